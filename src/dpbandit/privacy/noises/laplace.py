"""Laplace noise, in every coordinate or for the Euclidean ball: density ∝ exp(−‖z‖/scale)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from dpbandit.privacy import opendp
from dpbandit.privacy.claim import Notion
from dpbandit.privacy.noises.base import (
    Matrix,
    Noise,
    PaidInEpsilon,
    Vector,
    certain,
    nothing_or_everything,
    per_scale,
)
from dpbandit.reference import random


class _ByNorm(PaidInEpsilon):
    """A shift costs its length over the scale, in the norm of the density."""

    norm: ClassVar[int]
    notion: ClassVar[Notion] = "pure"

    def cost(self, shift: Vector, scale: float) -> float:
        size = float(np.linalg.norm(shift, ord=self.norm))
        return nothing_or_everything(shift, scale, size / (scale or 1.0))

    def costs(self, shifts: Matrix, scales: Vector) -> Vector:
        return per_scale(shifts, scales, np.linalg.norm(shifts, ord=self.norm, axis=1))


class Laplace(_ByNorm, Noise):
    """Laplace noise, independent in every coordinate."""

    name = "laplace"
    description = "Laplace noise in every coordinate"
    norm = 1
    has_real_source = True
    in_core = True
    matrices = None

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return certain(y, v0, v1)
        return float((np.abs(y - v0) - np.abs(y - v1)).sum()) / scale

    def tail(self, dim: int, zeta: float) -> float:
        return math.sqrt(8) * math.log(2 * dim / zeta)  # Chan et al. 2011, Lemma 2.8

    def standard_deviation(self, dim: int = 1) -> float:
        return math.sqrt(2)

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        return value + scale * random.laplaces(key, index, len(value))

    def whole_sampler(self, dim: int, scale: float) -> opendp.Sampler:
        return opendp.laplace(dim, scale)

    def float_sampler(self, dim: int, scale: float, exponent: int) -> opendp.Sampler:
        return opendp.laplace(dim, scale, exponent)


class KNorm(_ByNorm, Noise):
    """K-norm noise for the Euclidean ball: density ∝ exp(−‖z‖₂/scale) (Hardt & Talwar 2010)."""

    name = "laplace-l2"
    description = "a vector of density ∝ exp(−‖z‖₂/scale); simulations only"
    norm = 2
    has_real_source = False
    in_core = True
    matrices = None

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
        return value + scale * random.knorm(key, index, len(value))

    def whole_sampler(self, dim: int, scale: float) -> None:
        return None

    def float_sampler(self, dim: int, scale: float, exponent: int) -> None:
        return None
