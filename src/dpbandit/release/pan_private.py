"""The tree whose memory may be looked into once (Dwork et al. 2010).

Each node's running sum is set to fresh noise when the node begins, so a look into memory sees noisy
sums only; a second, independent noise is added when the node is shown, which protects the rewards
that come after the look. A reward is covered by the first noise in what the intruder saw and by the
second in what came after, so it pays once per level, as in the plain tree; the noise variance
doubles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from dpbandit.release.tree import Tree, TreeSums
from dpbandit.types import Vector


class PanPrivateSums(TreeSums):
    """`sums[l]` is the noisy sum of the node in progress at level l."""

    def starts(self, t: int) -> list[int]:
        """The levels of the nodes that begin with round t: their first noise is due before it."""
        index, _, levels = self.place(t)
        return [level for level in range(levels) if (index - 1) % (1 << level) == 0]

    def begin(self, level: int, whole: Any) -> None:
        """Noise into the node of this level that begins with the coming round."""
        self.sums[level] = whole

    def add(self, t: int, item: Any) -> Any:
        index, level, levels = self.place(t)
        if index == 1 and t > 1:
            self.carry += self.noisy[(t - 1).bit_length() - 1]
            self.noisy[:] = 0.0
        for row in range(levels):
            self.sums[row] = self.sums[row] + item
        return self.sums[level]


@dataclass(frozen=True, eq=False)
class PanPrivate(Tree):
    """A tree with noise in every sum from the start."""

    name = "pan-private"
    in_core = True

    @staticmethod
    def draws(dim: int, horizon: int | None) -> int:
        return 2 * Tree.draws(dim, horizon)  # a node has two noises

    def no_log(self) -> str:
        return "it is pan-private, and the log itself lies in memory in the clear"

    def squares(self, t: ArrayLike) -> Vector:
        return 2 * super().squares(t)
