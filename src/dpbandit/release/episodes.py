"""One release for each episode, of its sum: a reward is shown once (Azize & Basu 2024).

When an episode ends depends on contexts alone, which are public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.release.base import Charge, Clock, Release, Sums
from dpbandit.release.whole import Whole, WholeRows
from dpbandit.types import Vector


class EpisodeSums(Sums):
    """The sum of the running episode, and the noisy sum of those before. The learner says `end`."""

    def __init__(self, dim: int) -> None:
        self.episode, self.carry = WholeRows(1, dim), np.zeros(dim)

    def add(self, t: int, item: Any) -> None:
        self.episode[0] = self.episode[0] + item

    def end(self) -> Whole:
        """The clean sum of the episode, which is over."""
        total = self.episode[0]
        self.episode[0] = 0 * total
        return total

    def publish(self, t: int, noisy: Vector) -> Vector:
        self.carry += noisy
        return self.carry.copy()

    def fields(self) -> dict[str, NDArray[Any]]:
        return {**self.episode.fields("episode_sum"), "carry": self.carry}


@dataclass(frozen=True, eq=False)
class Episodes(Release):
    """Episodes that end when log det A has grown by `growth`."""

    name = "episodes"
    in_core = True
    log_field = "carry"  # as an episode that is over

    growth: float
    dim: int  # this and the next two say how fast det A can grow
    ridge: float
    max_norm: float

    @staticmethod
    def draws(dim: int, horizon: int | None) -> int:
        return 2 * dim

    @property
    def scale(self) -> float:
        """Of every release."""
        return self.noise.multiplier(self.budget, 1) * self.sensitivity

    def charge(self, engine: Clock, t: int) -> Charge:
        return Charge(self.whole_share, "the reward's episode")

    def room(self, engine: Clock) -> None:
        """There is always room: a reward is in one episode, however many there are."""

    def squares(self, t: ArrayLike) -> Vector:
        """det A grows from λ^d to at most (λ + tL²/d)^d, and each episode multiplies it."""
        rounds = np.minimum(np.asarray(t, dtype=np.float64), self.horizon or np.inf)
        grown = self.dim * np.log1p(rounds * self.max_norm**2 / (self.ridge * self.dim))
        return np.asarray(self.scale**2 * (1 + grown / self.growth))

    def core(self) -> dict[str, Any]:
        return {**super().core(), "growth": self.growth}
