"""What is counted of users while a log is read, in its order: rows, or what rewards add up to."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpbandit.engine import backend_for
from dpbandit.logs.record import Counts, Hashes, People, Totals
from dpbandit.logs.sums import Status, rows_by
from dpbandit.privacy.unit import REWARD_BITS, Person
from dpbandit.types import Vector

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


class Steps(NamedTuple):
    """Rewards in whole numbers of width·2⁻ᵇⁱᵗˢ, like `Person.take` makes them.

    >>> Steps(2.0, 4).of(np.array([-1.0, 0.3, 7.0, np.nan])).tolist()
    [0, 2, 16, 0]
    >>> Steps(4.0, 4, largest=2.0).of(np.array([1.0, 7.0])).tolist()
    [4, 8]
    """

    width: float
    bits: int
    largest: float = math.inf  # no reward counts for more
    visits: bool = False  # whether a visit without a reward counts too, as the first one may

    def of(self, rewards: Vector) -> Totals:
        """How many. A reward that is no finite number counts for nothing."""
        most = min(self.width, self.largest)
        inside = np.clip(np.where(np.isfinite(rewards), rewards, 0.0), 0.0, most)
        return (inside / self.width * 2.0**self.bits).astype(np.int64)

    def worth(self, steps: Totals) -> Vector:
        """The rewards again."""
        rewards: Vector = steps * 2.0**-self.bits * np.float64(self.width)
        return rewards


class Persons:
    """What persons' rewards add up to, in steps, each up to the cap. All of it is private.

    >>> persons = Persons(3, Steps(1.0, 1))
    >>> persons.take(np.array([7, 9, 7, 7], dtype=np.uint64), np.array([2, 2, 2, 1])).tolist()
    [2, 2, 1, 0]
    """

    def __init__(self, cap: int, steps: Steps) -> None:
        self.steps, self.cap = steps, cap
        self._sums: dict[int, int] = {}

    def take(self, names: Hashes, steps: Totals) -> Totals:
        """What is learned of these rewards, after all before them.

        A person's rewards so far add up to S, and min(S, cap) of them is learned: of one reward, by
        how much that grows.
        """
        if len(names) == 0:
            return steps
        order = np.argsort(names, kind="stable")
        who, many = names[order], steps[order]
        first = np.concatenate([[0], np.flatnonzero(who[1:] != who[:-1]) + 1])
        group = np.repeat(np.arange(len(first)), np.diff([*first, len(who)]))
        before = np.array([self._sums.get(int(name), 0) for name in who[first]], dtype=np.int64)
        running = np.cumsum(many)
        so_far = before[group] + running - (running - many)[first][group]
        learned = np.minimum(so_far, self.cap)
        last = np.concatenate([first[1:] - 1, [len(who) - 1]])
        self._sums.update(zip(who[last].tolist(), learned[last].tolist(), strict=True))
        taken = np.empty_like(many)
        taken[order] = learned - np.minimum(so_far - many, self.cap)
        return taken

    def people(self) -> People:
        """What is left to remember."""
        hashes = np.array(sorted(self._sums), dtype=np.uint64)
        counts = np.array([self._sums[int(name)] for name in hashes], dtype=np.int64)
        return People(hashes, counts + self.steps.visits)


class Visitors(Persons):
    """The same where contexts are private: the Gram matrix has a person's first visit alone, and what
    is counted of them is 1 and the steps.

    An answer is twice the steps that are learned, and 1 more for a first visit.

    >>> visitors = Visitors(3, Steps(1.0, 1, visits=True))
    >>> visitors.take(np.array([7, 9, 7, 7], dtype=np.uint64), np.array([2, 0, 2, 1])).tolist()
    [5, 1, 2, 0]
    >>> visitors.people().count_of_hash(7), visitors.people().count_of_hash(9)
    (4, 1)
    """

    def take(self, names: Hashes, steps: Totals) -> Totals:
        """Twice what is learned of each, after all before it, and whether it is a first visit."""
        _, first = np.unique(names, return_index=True)
        new = np.zeros(len(names), dtype=np.int64)
        new[first] = [int(name) not in self._sums for name in names[first]]
        return 2 * super().take(names, steps) + new


def persons_of(unit: Person, width: float, bits: int) -> Persons:
    """Who counts what a log has of persons of this kind, whose rewards are 0 to `width`."""
    if unit.counted_by_engine:
        steps = Steps(float(unit.option[1]), REWARD_BITS, largest=width, visits=True)
        return Visitors(1 << REWARD_BITS, steps)
    return Persons(unit.room(0, width, bits), Steps(width, bits))


def _table(places: int) -> tuple[Hashes, Counts]:
    """Open addresses. The last count, beyond the places, is how many of them are taken."""
    return np.zeros(places, dtype=np.uint64), np.zeros(places + 1, dtype=np.int32)
