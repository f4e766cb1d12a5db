"""K-norm noise for the Euclidean ball."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpbandit.privacy.claim import Notion
from dpbandit.privacy.noises.base import (
    Noise,
    PaidInEpsilon,
    Vector,
    certain,
    nothing_or_everything,
)

if TYPE_CHECKING:
    from dpbandit.privacy.opendp import Sampler


class KNorm(PaidInEpsilon, Noise):
    """K-norm noise for the Euclidean ball: density ∝ exp(−‖z‖₂/scale) (Hardt & Talwar 2010)."""

    name = "laplace-l2"
    description = "a vector of density ∝ exp(−‖z‖₂/scale); simulations only"
    norm = 2
    notion: ClassVar[Notion] = "pure"
    has_real_source = False
    in_core = True
    matrices = None

    def cost(self, shift: Vector, scale: float) -> float:
        return nothing_or_everything(shift, scale, float(np.linalg.norm(shift)) / (scale or 1.0))

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return certain(y, v0, v1)
        return float(np.linalg.norm(y - v0) - np.linalg.norm(y - v1)) / scale

    def tail(self, dim: int, zeta: float) -> float:
        # A coordinate has √(d + 1) times the spread of a Laplace number's.
        return math.sqrt(8) * math.log(2 * dim / zeta) * math.sqrt(dim + 1)

    def standard_deviation(self, dim: int = 1) -> float:
        return math.sqrt(dim + 1)  # the radius is Gamma(d): its square is d(d + 1) on average

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        from dpbandit.reference import random

        return value + scale * random.knorm(key, index, len(value))

    def whole_sampler(self, dim: int, scale: float) -> Sampler | None:
        return None

    def float_sampler(self, dim: int, scale: float, exponent: int) -> Sampler | None:
        return None
