"""The binary tree (Dwork et al. 2010; Chan et al. 2011), and its hybrid for an unknown horizon.

Round t needs one new node, (t − lowbit(t), t]; its noise is drawn once and serves while the node is
part of a prefix. A reward is in at most one node of each level, so the levels share the budget:
⌊log₂T⌋ + 1 for horizon T. Unknown horizon: blocks of doubling length, each with a tree of its own.
A finished block's total is its top node, so no budget is set aside for totals, and a block of
length 2^b shares its budget over b + 1 levels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.errors import BudgetError
from dpbandit.privacy.wishart import Calibration
from dpbandit.release.base import MAX_LEVELS, Charge, Clock, Release, Sums, check_horizon
from dpbandit.release.whole import WholeRows
from dpbandit.types import Vector


class Place(NamedTuple):
    """Where a round stands in its tree."""

    position: int  # of the round within its block, from 1
    level: int  # of the node that it completes
    levels: int  # that share the budget


def levels_for(horizon: int | None) -> int:
    """How many levels a tree over this many rounds has.

    >>> levels_for(1), levels_for(1023), levels_for(1024), levels_for(10_000)
    (1, 10, 11, 14)
    """
    check_horizon(horizon)
    return MAX_LEVELS if horizon is None else int(horizon).bit_length()


def place(t: int, *, unknown_horizon: bool, levels: int) -> Place:
    """Where round t stands. Without a horizon, blocks of 1, 2, 4, … rounds have a tree each.

    >>> place(12, unknown_horizon=False, levels=4), place(12, unknown_horizon=True, levels=0)
    (Place(position=12, level=2, levels=4), Place(position=5, level=0, levels=4))
    """
    index = t
    if unknown_horizon:
        levels = t.bit_length()
        index = t - (1 << (levels - 1)) + 1
    return Place(index, (index & -index).bit_length() - 1, levels)


class TreeSums(Sums):
    """Round t shows the node that it completes.

    `sums[l]` is the clean sum of the latest node of level l; `noisy[l]` the noisy sum of the
    block's rounds up to that node's end; `carry` the noisy sum of the finished blocks."""

    def __init__(self, dim: int, *, levels: int, unknown_horizon: bool, whole: bool = True) -> None:
        self.dim, self.levels, self.unknown_horizon = dim, levels, unknown_horizon
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
            self.sums[below] = 0 * item  # it is in the node above from now on
        self.sums[level] = node
        return node

    def publish(self, t: int, noisy: Vector) -> Vector:
        index, level, _ = self.place(t)
        self.noisy[level] = noisy + self._before(index, level)
        return np.asarray(self.carry + self.noisy[level])

    def _before(self, index: int, level: int) -> Vector:
        """The noisy sum of the block's rounds before the node of this level that ends here."""
        rest = index - (1 << level)
        return self.noisy[(rest & -rest).bit_length() - 1] if rest else np.zeros(self.dim)

    def _close_block(self, last: int) -> None:
        """The block that ended with round `last` is one noisy number from now on: its top node."""
        self.carry += self.noisy[last.bit_length() - 1]
        self.noisy[:] = 0.0
        for row in range(len(self.sums)):
            self.sums[row] = 0 * self.sums[row]

    def fields(self) -> dict[str, NDArray[Any]]:
        clean = (
            self.sums.fields("sums") if isinstance(self.sums, WholeRows) else {"sums": self.sums}
        )
        return {**clean, "noisy": self.noisy, "carry": self.carry}


@dataclass(frozen=True, eq=False)
class Tree(Release):
    """A tree of nodes with noise of the same scale."""

    name = "tree"
    in_core = True
    log_field = "carry"  # as the total of a block that is finished

    # Scales per unit of sensitivity by levels that share the budget; None: what the noise needs.
    published_multipliers: Vector | None = None

    @staticmethod
    def draws(dim: int, horizon: int | None) -> int:
        return dim * (levels_for(horizon) + 1)

    def no_log(self) -> str:
        published = self.published_multipliers is not None
        return "nothing is proven for its noise" if published else super().no_log()

    @property
    def unknown_horizon(self) -> bool:
        """Whether it goes on for ever, block after block."""
        return self.horizon is None

    @property
    def levels(self) -> int:
        """That share the budget; those of the longest block if the horizon is unknown."""
        return levels_for(self.horizon)

    @cached_property
    def multipliers(self) -> Vector:
        """Noise scale per unit of sensitivity when 1, 2, … levels share the budget; 0 is unused."""
        if self.published_multipliers is not None:
            return self.published_multipliers
        return super().multipliers

    def place(self, t: int) -> Place:
        """Where round t stands."""
        return place(t, unknown_horizon=self.unknown_horizon, levels=self.levels)

    def scale(self, t: int) -> float:
        """The noise scale of the node that round t completes."""
        return float(self.multipliers[self.place(t).levels]) * self.sensitivity

    def share(self, place: Place) -> float:
        """What the node that ends here costs."""
        return self.noise.share(float(self.multipliers[place.levels]))

    def charge(self, engine: Clock, t: int) -> Charge:
        where, block = self.place(t), t.bit_length() - 1 if self.unknown_horizon else 0
        return Charge(self.share(where), f"tree level {where.level}", block)

    def room(self, engine: Clock) -> None:
        t = engine.rounds + 1
        if t.bit_length() > self.levels:
            raise BudgetError(
                f"round {t} would bring the total to one level more than the {self.levels} that "
                "share the budget; make the bandit with a larger horizon, or horizon=None"
            )

    def nodes(self, t: int) -> list[tuple[int, int]]:
        """The nodes in use at round t, as (end, levels that share the budget).

        >>> from dpbandit.privacy.noise import GAUSSIAN
        >>> Tree(GAUSSIAN, None, 1.0, 1.0).nodes(12)
        [(1, 1), (3, 2), (7, 3), (11, 4), (12, 4)]
        """
        nodes, start, levels = [], 0, self.levels
        if self.unknown_horizon:
            levels = max(t.bit_length(), 1)
            nodes = [((2 << b) - 1, b + 1) for b in range(levels - 1)]  # one for a finished block
            start = (1 << (levels - 1)) - 1
        inside, end = t - start, start
        for bit in reversed(range(inside.bit_length())):
            if inside >> bit & 1:
                end += 1 << bit
                nodes.append((end, levels))
        return nodes

    def squares(self, t: ArrayLike) -> Vector:
        rounds = np.minimum(np.asarray(t, dtype=np.int64), self.horizon or 2**62)
        scales = (self.multipliers * self.sensitivity) ** 2
        total = [math.fsum(scales[levels] for _, levels in self.nodes(int(v))) for v in rounds.flat]
        return np.array(total).reshape(rounds.shape)

    def core(self) -> dict[str, Any]:
        return {**super().core(), "levels": self.levels}

    def tree_keys(self) -> dict[str, Any]:
        """What an engine must know of the tree alone."""
        return {
            "levels": self.levels,
            "unknown_horizon": self.unknown_horizon,
            "sensitivity": self.sensitivity,
            "multipliers": self.multipliers,
        }


@dataclass(frozen=True, eq=False)
class GramTree(Tree):
    """One tree of packed Gram matrices. Items are vvᵀ, ‖v‖ ≤ 1."""

    name = "gram-tree"
    in_core = True

    def core(self) -> dict[str, Any]:
        return self.tree_keys()

    def no_log(self) -> str:
        return (
            "its contexts are private, so that the log's Gram matrix and even the number of bad "
            "rows would need noise, and its regulariser is derived for tree nodes alone"
        )


@dataclass(frozen=True, eq=False)
class WishartTree(GramTree):
    """The same with Wishart noise, whose price comes from a calibration for each number of levels.

    Without a calibration (ε = ∞) there is no noise, and no claim.
    """

    name = "wishart-tree"
    in_core = True

    dim: int = 0  # of a context: the matrix has one row more, the reward's
    calibrations: dict[int, Calibration] = field(default_factory=dict)

    @cached_property
    def multipliers(self) -> Vector:
        """Degrees of freedom: W_p(I, k) with k = ν + p − 1, p = dim + 1."""
        degrees = np.zeros(MAX_LEVELS + 1)
        for levels, found in self.calibrations.items():
            degrees[levels] = found.degrees + self.dim
        return degrees

    def share(self, place: Place) -> float:
        found = self.calibrations.get(place.levels)
        if found is None:
            return math.inf
        # Level 0 comes first in every block: it carries what the first release costs beyond others.
        return found.each + (found.first if place.level == 0 else 0.0)


@dataclass(frozen=True, eq=False)
class ArmTrees(Tree):
    """One tree for each arm, over that arm's own pulls: a reward enters one of them.

    An engine's fields say the pulls of each arm (`pulls`) and the arm that was pulled last (`arm`).
    """

    name = "arm-trees"
    in_core = True

    def charge(self, engine: Clock, t: int) -> Charge:
        fields = engine.fields()
        arm = int(fields["arm"][0])
        found = super().charge(engine, int(fields["pulls"][arm]))
        # A reward is in one block of one arm's tree: that is its group.
        group = arm * (MAX_LEVELS + 1) + found.group
        return found._replace(what=f"arm {arm}, {found.what}", group=group)

    def room(self, engine: Clock) -> None:
        most = int(engine.fields()["pulls"].max()) + 1
        if most.bit_length() > self.levels:
            raise BudgetError(
                f"round {engine.rounds + 1} could bring an arm's tree to one level more than the "
                f"{self.levels} that share the budget; make the bandit with a larger horizon, or "
                "horizon=None"
            )

    def core(self) -> dict[str, Any]:
        return self.tree_keys()

    def no_log(self) -> str:
        return "its arms have trees of their own"
