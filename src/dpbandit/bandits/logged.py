"""What a bandit remembers of the log it was started from: public counts, and how many rewards each user has had there.

Users are kept as 64-bit hashes of their names, so that a hundred million rows fit into memory. Two users whose hashes agree
share one count: each of them may then be learned from less than the cap allows, never more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.logs.record import ASSUMPTION, Counts, Hashes, Log, People

__all__ = ["ASSUMPTION", "Counts", "Hashes", "Log", "People", "Tally", "admit", "hash_bytes", "hash_names"]

@kernel
def hash_bytes(text: NDArray[np.uint8], start: int, stop: int) -> np.uint64:
    """64 bits of a name: FNV-1a, mixed once more (splitmix64). Saved files rely on it, so it must never change."""
    h = np.uint64(0xCBF29CE484222325)
    for i in range(start, stop):
        h = (h ^ np.uint64(text[i])) * np.uint64(0x100000001B3)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    h = h ^ (h >> np.uint64(31))
    return h if h != np.uint64(0) else np.uint64(1)  # 0 marks an empty place in a table


@kernel
def hash_names(text: NDArray[np.uint8], offsets: NDArray[np.int64], out: Hashes) -> None:
    """The hashes of many names: the i-th is text[offsets[i]:offsets[i + 1]]."""
    for i in range(out.shape[0]):
        out[i] = hash_bytes(text, offsets[i], offsets[i + 1])


@kernel
def admit(
    names: Hashes, status: NDArray[np.uint8], cap: int, over: int, keys: Hashes, counts: Counts, start: int
) -> int:
    """Count rows with status 0 by user, in order; a row beyond its user's cap gets status `over`.

    `keys` is a table of open addresses with a power of two of places. Returns the row it stopped at because the table is half
    full, and must grow before going on from there; the number of rows when all are done. counts[-1], beyond the places, is how many are taken.
    """
    places = keys.shape[0]
    mask = np.uint64(places - 1)
    for i in range(start, names.shape[0]):
        if status[i] != 0:
            continue
        if 2 * counts[places] >= places:
            return i
        at = names[i] & mask
        while keys[at] != np.uint64(0) and keys[at] != names[i]:
            at = (at + np.uint64(1)) & mask
        if keys[at] == np.uint64(0):
            keys[at] = names[i]
            counts[places] += 1
        if counts[at] >= cap:
            status[i] = over
        else:
            counts[at] += 1
    return names.shape[0]


@kernel
def _move(keys: Hashes, counts: Counts, new_keys: Hashes, new_counts: Counts) -> None:
    """Everything in one table into a larger, empty one."""
    mask = np.uint64(new_keys.shape[0] - 1)
    for i in range(keys.shape[0]):
        if keys[i] == np.uint64(0):
            continue
        at = keys[i] & mask
        while new_keys[at] != np.uint64(0):
            at = (at + np.uint64(1)) & mask
        new_keys[at] = keys[i]
        new_counts[at] = counts[i]
    new_counts[new_keys.shape[0]] = counts[keys.shape[0]]


class Tally:
    """Rewards by user while a log is read: 12 bytes a place, 24 to 48 bytes a user.

    >>> tally, status = Tally(cap=2), np.zeros(4, dtype=np.uint8)
    >>> tally.admit(np.array([7, 7, 9, 7], dtype=np.uint64), status, over=1)
    >>> status.tolist(), tally.people().count_of_hash(7)
    ([0, 0, 0, 1], 2)
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self._keys, self._counts = _table(1 << 12)

    def admit(self, names: Hashes, status: NDArray[np.uint8], *, over: int) -> None:
        """Mark the rows beyond their user's cap."""
        done = 0
        while True:
            done = int(admit(names, status, self.cap, over, self._keys, self._counts, done))
            if done == len(names):
                return
            larger = _table(2 * len(self._keys))
            _move(self._keys, self._counts, *larger)
            self._keys, self._counts = larger

    def people(self) -> People:
        """What is left to remember."""
        taken = np.flatnonzero(self._keys)
        order = taken[np.argsort(self._keys[taken])]
        return People(self._keys[order], self._counts[order])


def _table(places: int) -> tuple[Hashes, Counts]:
    return np.zeros(places, dtype=np.uint64), np.zeros(places + 1, dtype=np.int32)
