"""How sums of private items are published over time: the state of each release, in plain NumPy.

`add(t, item)` takes the item of round t and gives the clean numbers to publish, or None if nothing is due.
`publish(t, noisy)` takes them back with noise and gives the noisy sum of all rounds so far.
Clean sums are in the fields named `sums…`, `clean…` and `episode_sum…`; nothing outside the trusted side may read them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.reference.fields import Fields
from dpbandit.reference.whole import Vector, Whole, WholeRows, share_of, to_doubles

Matrix = NDArray[np.float64]

# A tree without a horizon has this many rows: 2⁶² rounds are enough for anyone.
MAX_LEVELS = 62


class Place(NamedTuple):
    """Where a round stands in its tree."""

    index: int  # the round within its block
    level: int  # of the node that it completes
    levels: int  # that share the budget


def place(t: int, *, unknown_horizon: bool, levels: int) -> Place:
    """Where round t stands. Without a horizon, blocks of 1, 2, 4, … rounds have a tree each.

    >>> place(12, unknown_horizon=False, levels=4), place(12, unknown_horizon=True, levels=0)
    (Place(index=12, level=2, levels=4), Place(index=5, level=0, levels=4))
    """
    index = t
    if unknown_horizon:
        levels = t.bit_length()
        index = t - (1 << (levels - 1)) + 1
    return Place(index, (index & -index).bit_length() - 1, levels)


class Sums(ABC):
    """The state of one release."""

    dim: int
    pending_size: int

    @abstractmethod
    def add(self, t: int, item: Any) -> Any:
        """Take round t's item; the clean numbers to publish."""

    @abstractmethod
    def publish(self, t: int, noisy: Vector) -> Vector:
        """Take the same numbers with noise; the noisy sum of all rounds so far."""

    @abstractmethod
    def fields(self) -> Fields:
        """Everything that changes, by name."""


class Tree(Sums):
    """The binary tree (Dwork et al. 2010; Chan et al. 2011): round t publishes the node that it completes.

    `sums[l]` is the clean sum of the latest node of level l; `noisy[l]` the noisy sum of all rounds of the block up to
    that node's end; `carry` the noisy sum of the finished blocks.
    """

    def __init__(self, dim: int, *, levels: int, unknown_horizon: bool, whole: bool = True) -> None:
        self.dim = self.pending_size = dim
        self.levels, self.unknown_horizon = levels, unknown_horizon
        rows = MAX_LEVELS if unknown_horizon else levels
        self.sums: Any = WholeRows(rows, dim) if whole else np.zeros((rows, dim))
        self.noisy = np.zeros((rows, dim))
        self.carry = np.zeros(dim)

    def place(self, t: int) -> Place:
        """Where round t stands."""
        return place(t, unknown_horizon=self.unknown_horizon, levels=self.levels)

    def add(self, t: int, item: Any) -> Any:
        index, level, _ = self.place(t)
        if index == 1 and t > 1:
            self._close_block(t - 1)
        node = item
        for below in range(level):
            node = node + self.sums[below]
            self.sums[below] = 0 * item
        self.sums[level] = node
        return node

    def publish(self, t: int, noisy: Vector) -> Vector:
        index, level, _ = self.place(t)
        self.noisy[level] = noisy + self._before(index, level)
        return self.carry + self.noisy[level]

    def _before(self, index: int, level: int) -> Vector:
        """The noisy sum of the block's rounds before the node of this level that ends with round `index`."""
        rest = index - (1 << level)
        return self.noisy[(rest & -rest).bit_length() - 1] if rest else np.zeros(self.dim)

    def _close_block(self, last: int) -> None:
        """The block that ended with round `last` is one noisy number from now on: its top node."""
        self.carry += self.noisy[last.bit_length() - 1]
        self.noisy[:] = 0.0
        for row in range(len(self.noisy)):
            self.sums[row] = 0 * self.sums[row]

    def fields(self) -> Fields:
        wholes = isinstance(self.sums, WholeRows)
        clean = self.sums.fields("sums") if wholes else {"sums": self.sums}
        return {**clean, "noisy": self.noisy, "carry": self.carry}


class Honaker(Tree):
    """The tree with every node published, right children too, and a node estimated from its value and its children.

    With equal noise in all nodes, the best mean of a node's own value and its children's estimates has the variance
    v_l = 1/(1 + 1/(2v_{l−1})) of one node's, and v_l is also the own value's weight (Honaker 2015). `noisy` then has
    sums of estimates.
    """

    def __init__(self, dim: int, *, levels: int) -> None:
        super().__init__(dim, levels=levels, unknown_horizon=False)
        self.pending_size = levels * dim

    def add(self, t: int, item: Whole) -> Whole:
        level = self.place(t).level
        nodes = [item]
        for below in range(level):
            nodes.append(nodes[below] + self.sums[below])
            self.sums[below] = 0 * item
        self.sums[level] = nodes[level]
        nodes += [0 * item] * (self.levels - level - 1)  # those that do not end with this round
        return np.concatenate(nodes)

    def publish(self, t: int, noisy: Vector) -> Vector:
        index, level, _ = self.place(t)
        nodes = noisy.reshape(self.levels, self.dim)
        before = self._before(index, level)
        estimate, own = nodes[0], 1.0
        for row in range(1, level + 1):
            own = 2.0 * own / (1.0 + 2.0 * own)
            # The left sibling's estimate is what the sum gained when that sibling was published.
            left = self.noisy[row - 1] - (self.noisy[row] if row < level else before)
            estimate = own * nodes[row] + (1.0 - own) * (left + estimate)
        self.noisy[level] = estimate + before
        return self.carry + self.noisy[level]


class PanPrivate(Tree):
    """The tree whose memory may be looked into: a node's sum starts from noise of its own (`begin`)."""

    def starts(self, t: int) -> list[int]:
        """The levels of the nodes that begin with round t."""
        index, _, levels = self.place(t)
        return [level for level in range(levels) if (index - 1) % (1 << level) == 0]

    def begin(self, level: int, start: Whole) -> None:
        """Noise into the node of this level that begins with the coming round."""
        self.sums[level] = start

    def add(self, t: int, item: Whole) -> Whole:
        index, level, levels = self.place(t)
        if index == 1 and t > 1:
            self.carry += self.noisy[(t - 1).bit_length() - 1]
            self.noisy[:] = 0.0
        for row in range(levels):
            self.sums[row] = self.sums[row] + item
        node: Whole = self.sums[level]
        return node


class Toeplitz(Sums):
    """A square root of the matrix of prefix sums, as a sum of few decays (Dvijotham et al. 2024). In doubles.

    Round t publishes (Cg)_t, C's first column 1, c_k = Σ_i ω_i θ_i^{k−1}; decoding is post-processing. A slow buffer
    would add up a million roundings before it forgets the first, so what rounding loses is kept beside it.
    """

    def __init__(self, dim: int, *, rates: Vector, weights: Vector) -> None:
        self.dim = self.pending_size = dim
        self.rates, self.weights = rates[:, None], weights[:, None]  # 1 − θ, and ω
        self.clean, self.clean_low, self.noisy, self.noisy_low = np.zeros((4, len(rates), dim))
        self.total, self.total_low = np.zeros((2, dim))

    def _advance(self, old: Matrix, low: Matrix, item: Vector) -> None:
        """s ← θs + ωg, in place."""
        _keep(old, low, self.weights * item - self.rates * old)

    def add(self, t: int, item: Whole) -> Vector:
        del t
        clean = to_doubles(item)
        value = clean
        for row in self.clean:
            value = value + row
        self._advance(self.clean, self.clean_low, clean)
        return value

    def publish(self, t: int, noisy: Vector) -> Vector:
        del t
        item = noisy
        for row in self.noisy:
            item = item - row
        self._advance(self.noisy, self.noisy_low, item)
        _keep(self.total, self.total_low, item)
        return self.total.copy()

    def fields(self) -> Fields:
        return {
            "clean": self.clean,
            "clean_low": self.clean_low,
            "noisy_buffers": self.noisy,
            "noisy_low": self.noisy_low,
            "total": self.total,
            "total_low": self.total_low,
        }


def _keep(total: Matrix, low: Matrix, change: Matrix) -> None:
    """total ← total + change + low, and low ← what rounding lost of it."""
    change = change + low
    new = total + change
    back = new - total
    low[:] = (total - (new - back)) + (change - back)
    total[:] = new


class Episodes(Sums):
    """One release for each episode, of that episode's sum: every item is published once."""

    def __init__(self, dim: int) -> None:
        self.dim = self.pending_size = dim
        self.episode = WholeRows(1, dim)
        self.carry = np.zeros(dim)

    def add(self, t: int, item: Whole) -> None:
        del t
        self.episode[0] = self.episode[0] + item

    def end(self) -> Whole:
        """The clean sum of the episode, which ends with it."""
        found = self.episode[0]
        self.episode.clear()
        return found

    def publish(self, t: int, noisy: Vector) -> Vector:
        del t
        self.carry += noisy
        return self.carry.copy()

    def fields(self) -> Fields:
        return {**self.episode.fields("episode_sum"), "carry": self.carry}


class Schedule(NamedTuple):
    """When the anytime release comes, and what it shows: q of the sum, which then shrinks by ρ, q² + ρ² = 1.

    An item that has weight ω left spends q²ω² and keeps ρ²ω², so over all releases it spends no more than the 1 that it
    came with. ρ follows from R(j) = (1 + j/knee)⁻⁴, what an item of the start has left after round j.
    """

    knee: float
    ratio: float
    first: int

    def next(self, t: int) -> int:
        """When the release after the one of round t is due."""
        return max(math.ceil(t * self.ratio), t + 1)

    def kept(self, t: int) -> float:
        """ρ of the release of round t."""
        share = (self.knee + t) / (self.knee + self.next(t))
        return share * share

    def shown(self, t: int) -> float:
        """q of the release of round t."""
        rho = self.kept(t)
        return math.sqrt((1.0 - rho) * (1.0 + rho))


class Decaying:
    """One sum for ever, shown at the schedule's times."""

    def __init__(self, dim: int, schedule: Schedule) -> None:
        self.sum, self.schedule = WholeRows(1, dim), schedule

    def add(self, item: Whole) -> None:
        """Take an item."""
        self.sum[0] = self.sum[0] + item

    def show(self, t: int) -> Whole:
        """q of the sum, clean, in round t; what stays is ρ of it."""
        total = self.sum[0]
        self.sum[0] = share_of(total, self.schedule.kept(t))
        return share_of(total, self.schedule.shown(t))

    def fields(self) -> Fields:
        """Everything that changes, by name."""
        return self.sum.fields("sums")
