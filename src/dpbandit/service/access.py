"""The access log: counts by minute, key, action, bandit and status. Rewards are noted by day and
without a count, because their number is a statistic of clicks (see `metrics`).
"""

from __future__ import annotations

import time
from collections import Counter

from dpbandit.service.database import PATIENCE
from dpbandit.service.loops import Lane
from dpbandit.service.store import Store

BUCKET_SECONDS = 60
REWARDS_BUCKET_SECONDS = 86_400


class AccessLog:
    """Collects in memory, and is written down every few seconds, on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._lane = Lane(url, "access log", patience=PATIENCE)
        self._entries: Counter[tuple[int, str, str, str, int]] = Counter()
        self.start, self.stop = self._lane.start, self._lane.stop

    def note(self, key: str, action: str, bandit: str, status: int) -> None:
        # That a key reported something in this minute may be one person's click: rewards are noted
        # by the day, whatever they were answered.
        seconds = REWARDS_BUCKET_SECONDS if action == "rewards" else BUCKET_SECONDS
        bucket = int(time.time()) // seconds * seconds
        conflict = action == "rewards" and status == 409
        self._entries[bucket, key, action, bandit, 200 if conflict else status] += 1

    async def write(self) -> None:
        """Add what was collected to the table; keep it for later if that fails."""
        # Also if there is nothing: whether this fails must not show that there was something.
        entries, self._entries = self._entries, Counter()
        try:
            await self._lane.do(lambda store: _add(store, entries))
        except BaseException:
            self._entries.update(entries)
            raise


def _add(store: Store, entries: Counter[tuple[int, str, str, str, int]]) -> None:
    with store.connection.write():
        store.put_meta("noted", str(store.connection.now()))
        for entry, count in sorted(entries.items()):
            store.connection.run(
                "INSERT INTO access_log (bucket, key, action, bandit, status, requests) VALUES (?, "
                "?, ?, ?, ?, ?) ON CONFLICT (bucket, key, action, bandit, status) DO UPDATE SET "
                "requests = access_log.requests + excluded.requests",
                (*entry, None if entry[2] == "rewards" else count),
            )
