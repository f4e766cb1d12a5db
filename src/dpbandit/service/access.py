"""Who asked what: counts by minute, key, action, bandit and status. Rewards are noted by day and
without a count: how many there were is a statistic of clicks (see `metrics`).
"""

from __future__ import annotations

import contextlib
import time

from dpbandit.service.store import Store

BUCKET_SECONDS = 60
REWARDS_BUCKET_SECONDS = 86_400


class AccessLog:
    """Collects in memory; a thread writes it down every few seconds, on its own connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: Store | None = None
        self._entries: dict[tuple[int, str, str, str, int], int] = {}

    def note(self, key: str, action: str, bandit: str, status: int) -> None:
        # That a key reported something in this minute may be one person's click: rewards are noted
        # by the day.
        private = action == "rewards" and status in (200, 409)
        seconds = REWARDS_BUCKET_SECONDS if private else BUCKET_SECONDS
        entry = (
            int(time.time()) // seconds * seconds,
            key,
            action,
            bandit,
            200 if private else status,
        )
        self._entries[entry] = self._entries.get(entry, 0) + 1

    def write(self) -> None:
        """Add what was collected to the table; keep it for later if that fails."""
        entries, self._entries = self._entries, {}
        if not entries:
            return
        try:
            if self._store is None:
                self._store = Store(self._url)
            db = self._store.connection
            with db.write():
                for (bucket, key, action, bandit, status), count in sorted(entries.items()):
                    db.run(
                        "INSERT INTO access_log (bucket, key, action, bandit, status, requests) "
                        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (bucket, key, action, bandit, "
                        "status) DO UPDATE SET requests = access_log.requests + excluded.requests",
                        (
                            bucket,
                            key,
                            action,
                            bandit,
                            status,
                            None if action == "rewards" else count,
                        ),
                    )
        except BaseException:
            for entry, count in entries.items():
                self._entries[entry] = self._entries.get(entry, 0) + count
            self.close()
            raise

    def close(self) -> None:
        if self._store is not None:
            with contextlib.suppress(Exception):
                self._store.close()
        self._store = None
