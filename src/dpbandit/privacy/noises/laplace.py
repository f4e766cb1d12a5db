"""Laplace noise."""

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


class Laplace(PaidInEpsilon, Noise):
    """Laplace noise, independent in every coordinate."""

    name = "laplace"
    description = "Laplace noise in every coordinate"
    norm = 1
    notion: ClassVar[Notion] = "pure"
    has_real_source = True
    in_core = True
    matrices = None

    def cost(self, shift: Vector, scale: float) -> float:
        return nothing_or_everything(shift, scale, float(np.abs(shift).sum()) / (scale or 1.0))

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return certain(y, v0, v1)
        return float((np.abs(y - v0) - np.abs(y - v1)).sum()) / scale

    def tail(self, dim: int, zeta: float) -> float:
        return math.sqrt(8) * math.log(2 * dim / zeta)  # Chan et al. 2011, Lemma 2.8

    def standard_deviation(self, dim: int = 1) -> float:
        return math.sqrt(2)

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        from dpbandit.reference import random

        return value + scale * random.laplaces(key, index, len(value))

    def whole_sampler(self, dim: int, scale: float) -> Sampler | None:
        from dpbandit.privacy import opendp

        return opendp.laplace(dim, scale)

    def float_sampler(self, dim: int, scale: float, exponent: int) -> Sampler | None:
        from dpbandit.privacy import opendp

        return opendp.laplace(dim, scale, exponent)
