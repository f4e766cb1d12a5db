"""Honaker's estimate (2015), bottom-up: the tree with every node shown.

The plain tree shows one node a round. Here every node that ends with a round is shown, right
children too: an item is then in exactly one node of each level, so the same levels share the
budget, and a node can be estimated from its own value and from its children. With equal variances
the best mean of the two has variance v_l = 1/(1 + 1/(2v_{l−1})) = 2^l/(2^{l+1} − 1) of one node's,
and v_l is also the own value's weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbandit.errors import OptionError
from dpbandit.release.base import Charge, Clock
from dpbandit.release.tree import Tree, TreeSums
from dpbandit.types import Vector


class HonakerSums(TreeSums):
    """Shows all nodes that end with a round, one row a level; rows of other levels are zeros."""

    def add(self, t: int, item: Any) -> Any:
        level = self.place(t).level
        nodes = [item]
        for below in range(level):
            nodes.append(nodes[below] + self.sums[below])
            self.sums[below] = 0 * item
        self.sums[level] = nodes[level]
        return np.concatenate(nodes + [0 * item] * (self.levels - level - 1))

    def publish(self, t: int, noisy: Vector) -> Vector:
        index, level, _ = self.place(t)
        nodes, before = noisy.reshape(self.levels, self.dim), self._before(index, level)
        estimate, own = nodes[0], 1.0
        for row in range(1, level + 1):
            own = 2.0 * own / (1.0 + 2.0 * own)
            # The left sibling's estimate is what the sum gained when that sibling was shown.
            left = self.noisy[row - 1] - (self.noisy[row] if row < level else before)
            estimate = own * nodes[row] + (1.0 - own) * (left + estimate)
        self.noisy[level] = estimate + before
        return np.asarray(self.carry + self.noisy[level])


@dataclass(frozen=True, eq=False)
class Honaker(Tree):
    """All nodes of a tree with a known horizon."""

    name = "honaker"
    in_core = True

    def __post_init__(self) -> None:
        if self.horizon is None:
            raise OptionError(
                "honaker=True needs a horizon: every level of the tree is released in every round"
            )

    def charge(self, engine: Clock, t: int) -> Charge:
        return Charge(self.share(self.place(t)) * self.levels, "all levels, set aside")

    def squares(self, t: ArrayLike) -> Vector:
        """v_l of one node's variance for each node in use: the binary digits of t."""
        rounds = np.minimum(np.asarray(t, dtype=np.int64), self.horizon or 2**62)
        weights = 2.0 ** np.arange(self.levels) / (2.0 ** np.arange(1, self.levels + 1) - 1)
        used = rounds[..., None] >> np.arange(self.levels) & 1
        return np.asarray(used @ weights * self.scale(1) ** 2)
