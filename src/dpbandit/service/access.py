"""Who asked what: counts by minute, key, action, bandit and status. Rewards are noted by day and
without a count: how many there were is a statistic of clicks (see `metrics`).
"""

from __future__ import annotations

import time
from collections import Counter

from dpbandit.service.store import Kept, Store

BUCKET_SECONDS = 60
REWARDS_BUCKET_SECONDS = 86_400


class AccessLog:
    """Collects in memory; a thread writes it down every few seconds, on its own connection."""

    def __init__(self, url: str) -> None:
        self._kept = Kept(url, Store)
        self._entries: Counter[tuple[int, str, str, str, int]] = Counter()

    def note(self, key: str, action: str, bandit: str, status: int) -> None:
        # That a key reported something in this minute may be one person's click: rewards are noted
        # by the day.
        private = action == "rewards" and status in (200, 409)
        seconds = REWARDS_BUCKET_SECONDS if private else BUCKET_SECONDS
        bucket = int(time.time()) // seconds * seconds
        self._entries[bucket, key, action, bandit, 200 if private else status] += 1

    def write(self) -> None:
        """Add what was collected to the table; keep it for later if that fails."""
        entries, self._entries = self._entries, Counter()
        if not entries:
            return
        try:
            with self._kept.opened() as store, store.connection.write():
                for entry, count in sorted(entries.items()):
                    store.connection.run(
                        "INSERT INTO access_log (bucket, key, action, bandit, status, requests) "
                        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (bucket, key, action, bandit, "
                        "status) DO UPDATE SET requests = access_log.requests + excluded.requests",
                        (*entry, None if entry[2] == "rewards" else count),
                    )
        except BaseException:
            self._entries.update(entries)
            raise

    def close(self) -> None:
        self._kept.close()
