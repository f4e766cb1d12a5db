"""The randomised response of one number: one of two answers, whose mean is the number.

A value v of [−½, ½] becomes ±B/2, + with probability ½ + v/B, B = coth(ε/2). Between v and v′ the
chances of an answer differ by a factor of at most (B + 1)/(B − 1) = e^ε, and by that much between the
ends: pure ε, and no mechanism that is pure ε has less variance at the ends (docs/privacy.md). Unlike
other noises its law depends on the value, so that sums cannot have it: an answer is of one reward.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from dpbandit.errors import NoiseError
from dpbandit.privacy import opendp
from dpbandit.privacy.claim import Notion
from dpbandit.privacy.noises.base import (
    Noise,
    PaidInEpsilon,
    Vector,
    certain,
    nothing_or_everything,
)
from dpbandit.reference import random

MOST = 700.0  # whose exponential is a float; at 37 already an answer has the least noise there is


class Response(PaidInEpsilon, Noise):
    """One of two numbers. `scale` is B, the distance between them."""

    name = "response"
    description = "one of two answers, at random, to a single reward"
    norm = 1
    notion: ClassVar[Notion] = "pure"
    has_real_source = True
    in_core = True
    matrices = None
    has_density = False

    def multiplier(self, budget: float, levels: int) -> float:
        """coth(ε/2) as a float that costs no more than ε: nearest 1, a float's step is much of ε."""
        epsilon = budget / levels
        if math.isinf(epsilon):
            return 0.0
        found = 1 + 2 / math.expm1(min(epsilon, MOST))
        while self.share(found) > epsilon:
            found = math.nextafter(found, math.inf)
        return found

    def share(self, multiplier: float) -> float:
        return math.inf if multiplier <= 1.0 else math.log1p(2 / (multiplier - 1))

    def shift_of(self, scale: float, share: float) -> float:
        return 1.0 if math.isinf(share) else math.expm1(share) * (scale - 1) / 2

    def cost(self, shift: Vector, scale: float) -> float:
        size = float(np.abs(shift).sum())  # at an end of the range, where it costs most
        found = math.log1p(2 * size / (scale - 1)) if scale > 1.0 else math.inf
        return nothing_or_everything(shift, scale, found)

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return certain(y, v0, v1)
        sign = np.where(y > 0, 2.0, -2.0)
        return float(np.log((scale + sign * v1) / (scale + sign * v0)).sum())

    def tail(self, dim: int, zeta: float) -> float:
        return 1.0  # an answer is never further than a scale from the value

    def standard_deviation(self, dim: int = 1) -> float:
        return 0.5  # at most, of a value in the middle

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        drawn = random.uniforms(key, index, len(value))
        return np.where(drawn < 0.5 + value / scale, 0.5 * scale, -0.5 * scale)

    def answer(self, whole: list[int], *, scale: float, step: float) -> tuple[Vector, float]:
        """Real answers to whole numbers of `step` between −½ and ½, and what OpenDP proves of them.

        A number is rounded to either end first, by an exact lot that makes its mean the number; then
        OpenDP answers for the end. So what it proves holds for the number too, whatever that lot is.
        """
        if not scale > 1.0:
            raise NoiseError(f"answers of scale {scale!r} protect nobody: it must be above 1")
        ends = [opendp.one_of(round(0.5 / step) + number, round(1 / step)) for number in whole]
        sampler = opendp.response(scale)
        up = np.array([sampler.draw(end) for end in ends])
        return np.where(up, 0.5 * scale, -0.5 * scale), sampler.cost

    def whole_sampler(self, dim: int, scale: float) -> None:
        return None

    def float_sampler(self, dim: int, scale: float, exponent: int) -> None:
        return None
