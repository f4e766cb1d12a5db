"""Rewards by user while a log is read: who is over the cap, in the log's order."""

from __future__ import annotations

import numpy as np

from dpbandit.engine import backend_for
from dpbandit.logs.record import Counts, Hashes, People
from dpbandit.logs.sums import Status, rows_by

# Places of a table that is still empty.
PLACES = 1 << 12


class Tally:
    """Counts by user: 12 bytes a place, 24 to 48 bytes a user.

    >>> tally, status = Tally(cap=2), np.zeros(4, dtype=np.uint8)
    >>> tally.admit(np.array([7, 7, 9, 7], dtype=np.uint64), status, over=1)
    >>> status.tolist(), tally.people().count_of_hash(7)
    ([0, 0, 0, 1], 2)
    """

    def __init__(self, cap: int, backend: str | None = None) -> None:
        self.cap = cap
        self._by = rows_by(backend_for(backend, ()))
        self._keys, self._counts = _table(PLACES)

    def admit(self, names: Hashes, status: Status, *, over: int) -> None:
        """Count the rows with status 0, and mark those beyond their user's cap."""
        done = 0
        while True:
            done = self._by.tally(names, status, self.cap, over, self._keys, self._counts, done)
            if done == len(names):
                return
            larger = _table(2 * len(self._keys))
            self._by.move_tally(self._keys, self._counts, *larger)
            self._keys, self._counts = larger

    def people(self) -> People:
        """What is left to remember."""
        taken = np.flatnonzero(self._keys)
        order = taken[np.argsort(self._keys[taken])]
        return People(self._keys[order], self._counts[order])


def _table(places: int) -> tuple[Hashes, Counts]:
    """Open addresses. The last count, beyond the places, is how many of them are taken."""
    return np.zeros(places, dtype=np.uint64), np.zeros(places + 1, dtype=np.int32)
