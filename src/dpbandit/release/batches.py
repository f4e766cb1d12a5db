"""The sums of disjoint batches of an arm's pulls, each shown once (Azize et al. 2025).

An arm's batches follow each other and each is as long as its pulls before it times ratio − 1, and
no shorter than the first. When one ends is a function of how often its arm was pulled, which is
public: no reward decides it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbandit.release.base import MAX_LEVELS, Charge, Clock, Release
from dpbandit.types import Vector


def batch_end(shown: int, first: int, ratio: float) -> int:
    """How many pulls an arm has when the next of its batches ends; `shown` are in those before.

    >>> [batch_end(shown, first=4, ratio=1.5) for shown in (0, 4, 8, 12)]
    [4, 8, 12, 18]
    """
    return max(min(math.ceil(shown * ratio), 1 << MAX_LEVELS), shown + first)


@dataclass(frozen=True, eq=False)
class ArmBatches(Release):
    """Batches of one arm's pulls, whose sums are shown once each: a reward is in one of them."""

    name = "arm-batches"
    in_core = True

    first: int
    ratio: float

    @staticmethod
    def draws(dim: int, horizon: int | None) -> int:
        return 2

    @property
    def scale(self) -> float:
        """Of every release."""
        return self.noise.multiplier(self.budget, 1) * self.sensitivity

    def charge(self, engine: Clock, t: int) -> Charge:
        return Charge(self.whole_share, "the reward's batch")

    def room(self, engine: Clock) -> None:
        """There is always room: a reward is in one batch, however many there are."""

    def squares(self, t: ArrayLike) -> Vector:
        """Of an arm that was pulled in all rounds t."""
        rounds = np.minimum(np.asarray(t, dtype=np.float64), self.horizon or np.inf)
        ends, last = [self.first], rounds.max(initial=0)
        for _ in range(int(last)):
            if ends[-1] > last:
                break
            ends.append(batch_end(ends[-1], self.first, self.ratio))
        batches = np.searchsorted(ends, rounds, side="right")
        return np.asarray(self.scale**2 * batches, dtype=np.float64)

    def core(self) -> dict[str, Any]:
        return {"scale": self.scale, "first": self.first, "ratio": self.ratio}

    def no_log(self) -> str:
        return "its arms have batches of their own"
