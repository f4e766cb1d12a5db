"""A noise of your own: logistic noise, density exp(−z/s)/(s·(1 + exp(−z/s))²) in every coordinate.

The proof: the slope of the log-density is −tanh(z/2s)/s, at most 1/s in size. A shift by v moves the
log-density of coordinate i by at most |v_i|/s, so it costs ‖v‖₁/s, as with Laplace noise; and far
out it costs that much, so the bound is exact.

It has no exact sampler, so it is for simulations: without a seed it is refused.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

import dpbandit as dpb
from dpbandit.algorithms.moments import on_moments
from dpbandit.design import Design
from dpbandit.options import Options
from dpbandit.privacy import noise
from dpbandit.privacy.claim import Notion
from dpbandit.privacy.noises.base import Vector, certain
from dpbandit.reference.random import uniforms


class Logistic(noise.PaidInEpsilon, noise.Noise):
    """Logistic noise. What is paid in ε (budgets, shares, the ledger) it has from `PaidInEpsilon`."""

    name = "logistic"
    description = "logistic noise in every coordinate; simulations only"
    norm = 1
    notion: ClassVar[Notion] = "pure"
    has_real_source = False
    in_core = False
    matrices = None

    def cost(self, shift: Vector, scale: float) -> float:
        size = float(np.abs(shift).sum())
        return noise.nothing_or_everything(shift, scale, size / (scale or 1.0))

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return certain(y, v0, v1)
        return _log_density((y - v1) / scale) - _log_density((y - v0) / scale)

    def tail(self, dim: int, zeta: float) -> float:
        # E exp(tz) = πt/sin(πt). Its log over t² grows, so a sum of noises with Σ scale² = 1 has
        # E exp(z/2) ≤ π/2, and exceeds x with probability at most (π/2)·exp(−x/2).
        return 2 * math.log(math.pi * dim / zeta)

    def standard_deviation(self, dim: int = 1) -> float:
        return math.pi / math.sqrt(3)

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        u = uniforms(key, index, len(value))
        return value + scale * (np.log(u) - np.log1p(-u))

    def whole_sampler(self, dim: int, scale: float) -> None:
        return None

    def float_sampler(self, dim: int, scale: float, exponent: int) -> None:
        return None


def _log_density(z: Vector) -> float:
    size = np.abs(z)  # the density is even, and exp(size) would overflow
    return float((-size - 2 * np.log1p(np.exp(-size))).sum())


LOGISTIC = noise.add(Logistic())


def design(name: str, options: Options) -> Design:
    """What the algorithm is made of: a tree of moments with this noise, and UCB."""
    return on_moments(name, options, LOGISTIC)


dpb.register(
    "logistic-linucb",
    design=design,
    description="a tree of moments with logistic noise",
    claim="pure ε, proven",
)
