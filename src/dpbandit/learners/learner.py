"""What every learner is: a round is `prepare`, which sees the reward, and perhaps `commit`.

`prepare` gives the clean numbers to release and the scale of their noise. Whoever calls adds the
noise and gives the noisy numbers to `commit`. What `theta` and `matrix` show is made of noisy and
public numbers alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.release.pan_private import PanPrivateSums
from dpbandit.release.tree import Place, TreeSums, place
from dpbandit.types import Matrix, Vector

Spec = dict[str, Any]


class Clock(Holder):
    """What is counted."""

    rounds = Number(int)  # rewards learned
    decisions = Number(int)
    clipped = Number(int)  # rewards outside their range; private
    outside = Number(int)  # 1 once a context was not in the public set

    def __init__(self) -> None:
        self.rounds = self.decisions = self.clipped = self.outside = 0


class Pending(NamedTuple):
    """A release that waits for its noise."""

    numbers: NDArray[Any]  # whole numbers of STEP (Python's integers), or doubles
    scale: float
    noise: str = ""  # of an answer; else the bandit's


class Learner(ABC):
    """One learner. `theta` is the released parameter."""

    theta: Vector
    pending_size: int  # how many numbers a release has
    in_the_clear = False  # whether θ itself is shown, without noise
    pan_private: PanPrivateSums | None = None  # its sums, where nodes begin with noise
    # What was counted of the person whose round it is, and by how much that grew in it, where the
    # learner counts: whoever calls sets the former and keeps their sum.
    counted = 0
    counts = 0

    def __init__(self, spec: Spec, clock: Clock) -> None:
        self.spec, self.clock = spec, clock
        self.dim = int(spec["dim"])
        self.theta = np.zeros(self.dim)
        self.low, self.high = float(spec["low"]), float(spec["high"])
        self.width, self.centre = self.high - self.low, 0.5 * (self.low + self.high)

    def look(self, contexts: Matrix, decision: int) -> None:  # noqa: B027 - most need not
        """A slate was offered. Most learners have nothing to learn from that."""

    @abstractmethod
    def matrix(self, alpha: float) -> Matrix:
        """What the bonus is measured with."""

    @abstractmethod
    def quiet(self, x: Vector) -> bool:
        """Whether learning from x surely releases nothing. Changes nothing."""

    @abstractmethod
    def prepare(self, x: Vector, reward: float) -> Pending | None:
        """Learn from one clipped reward; the clock already shows its round."""

    @abstractmethod
    def commit(self, noisy: Vector) -> None:
        """Turn the noisy numbers of this round's release into the released parameter."""

    def leave_public_set(self) -> None:  # noqa: B027 - only `own` must know
        """A context was not among those known in advance."""

    def start(self, noisy: Vector, scale: float) -> bool:
        """Learn from a log's noisy sum before round 1, where the learner sums as it does."""
        return False

    def conclude(self) -> bool:
        """A log's public matrix and noisy moments were put into the fields: θ from them."""
        return False

    @abstractmethod
    def fields(self) -> Fields:
        """Everything that changes, by name."""

    def loaded(self) -> None:  # noqa: B027 - mostly nothing
        """Fields were written from outside: whatever follows from them must be computed anew."""

    # ------------------------------------------------------------------ what trees need

    def place(self, t: int) -> Place:
        """Where round t stands in a tree."""
        unknown = bool(self.spec["unknown_horizon"])
        return place(t, unknown_horizon=unknown, levels=int(self.spec["levels"]))

    def tree(self, numbers: int, *, whole: bool = True) -> TreeSums:
        """An empty tree for items of so many numbers."""
        unknown = bool(self.spec["unknown_horizon"])
        return TreeSums(
            numbers, levels=int(self.spec["levels"]), unknown_horizon=unknown, whole=whole
        )

    def scale(self, levels: int) -> float:
        """The noise of a release when so many levels share the budget."""
        return float(self.spec["multipliers"][levels]) * float(self.spec["sensitivity"])

    def scales_in_use(self, t: int, *, at_once: bool = False) -> list[float]:
        """Of the nodes in the sum of round t; or of as many as a sum can have at once."""
        index, _level, levels = self.place(t)
        # A finished block is one node.
        blocks = range(1, levels) if self.spec["unknown_horizon"] else ()
        nodes = levels if at_once else index.bit_count()
        return [self.scale(levels)] * nodes + [self.scale(block) for block in blocks]


class NoLearner(Learner):
    """Random play learns nothing."""

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        self.pending_size = self.dim

    def matrix(self, alpha: float) -> Matrix:
        return np.zeros((self.dim, self.dim))

    def quiet(self, x: Vector) -> bool:
        return True

    def prepare(self, x: Vector, reward: float) -> None:
        return None

    def commit(self, noisy: Vector) -> None:
        raise ValueError("random play releases nothing")

    def fields(self) -> Fields:
        return {"theta": self.theta}
