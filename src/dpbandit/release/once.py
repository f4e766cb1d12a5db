"""Releases that no reward is in twice because each is shown by itself, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbandit.release.base import MAX_LEVELS, Charge, Clock, Release
from dpbandit.types import Vector


@dataclass(frozen=True, eq=False)
class Once(Release):
    """Each reward is shown once, with noise, before anything else sees it."""

    name = "once"
    in_core = True

    @staticmethod
    def draws(dim: int, horizon: int | None) -> int:
        return 2

    def no_log(self) -> str:
        return "each reward needs noise of its own: one release for all of them would not be local"

    def charge(self, engine: Clock, t: int) -> Charge:
        return Charge(self.whole_share, "the reward itself")

    def room(self, engine: Clock) -> None:
        """There is always room."""

    def squares(self, t: ArrayLike) -> Vector:
        """Of the noise on one reward, whatever the round."""
        one = (self.noise.multiplier(self.budget, 1) * self.sensitivity) ** 2
        return np.full(np.shape(t), one)


@dataclass(frozen=True, eq=False)
class Nothing(Once):
    """Nothing is protected: rewards are learned in the clear, or not looked at."""

    name = "nothing"
    in_core = True
    log_field = "moments"

    @cached_property
    def multipliers(self) -> Vector:
        """No noise."""
        return np.zeros(MAX_LEVELS + 1)

    def no_log(self) -> str:
        return ""

    def charge(self, engine: Clock, t: int) -> Charge:
        return Charge(float("inf"), "rewards in the clear")

    def squares(self, t: ArrayLike) -> Vector:
        return np.zeros(np.shape(t))

    def core(self) -> dict[str, Any]:
        return {**super().core(), "release": "once"}
