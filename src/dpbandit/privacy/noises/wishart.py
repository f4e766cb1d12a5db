"""Wishart noise."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dpbandit.errors import NoiseError
from dpbandit.privacy.claim import Notion
from dpbandit.privacy.matrices import WishartMatrix, unpack
from dpbandit.privacy.noises.base import (
    CERTAIN,
    Budgeted,
    Noise,
    PaidInEpsilon,
    Vector,
    certain,
    nothing_or_everything,
)
from dpbandit.reference import random


class Wishart(PaidInEpsilon, Noise):
    """Wishart noise for a Gram matrix packed into a vector; its `scale` is its degrees of freedom.

    What it costs follows from a calibration for (ε, δ) and the number of levels
    (`privacy.wishart`), so it has no multiplier and no share by itself: `release.tree.WishartTree`
    has them."""

    name = "wishart"
    description = (
        "Wishart noise on a Gram matrix; scale is its degrees of freedom; simulations only"
    )
    norm = 2
    notion: ClassVar[Notion] = "approximate"
    has_real_source = False
    in_core = True
    matrices = WishartMatrix()

    def multiplier(self, budget: float, levels: int) -> float:
        raise NoiseError("degrees of freedom of Wishart noise come from privacy.wishart.calibrate")

    def share(self, multiplier: float) -> float:
        raise NoiseError("what Wishart noise costs comes from privacy.wishart.calibrate")

    def shift_of(self, scale: float, share: float) -> float:
        return 1.0  # an item is vvᵀ with ‖v‖ ≤ 1, whatever the scale

    def cost(self, shift: Vector, scale: float) -> float:
        # μ² in the limit of many degrees of freedom: for comparing neighbours, not for a claim.
        return nothing_or_everything(shift, scale, float(shift @ shift) / (2.0 * (scale or 1.0)))

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return certain(y, v0, v1)
        return _log_density(y - v1, scale) - _log_density(y - v0, scale)

    def delta(self, options: Budgeted) -> float:
        return options.need_delta()

    def tail(self, dim: int, zeta: float) -> float:
        raise NoiseError("Wishart noise is bounded by its eigenvalues: ask `matrices`")

    def tail_at(self, log: float) -> float:
        raise NoiseError("Wishart noise is bounded by its eigenvalues: ask `matrices`")

    def published_spread(self, scales: Vector) -> float:
        raise NoiseError("Wishart noise is for Gram matrices alone")

    def standard_deviation(self, dim: int = 1) -> float:
        raise NoiseError("the spread of Wishart noise is √(2·degrees), not a multiple of its scale")

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        return value + random.wishart(key, index, scale, len(value))

    def whole_sampler(self, dim: int, scale: float) -> None:
        return None

    def float_sampler(self, dim: int, scale: float, exponent: int) -> None:
        return None


def _log_density(packed: Vector, degrees: float) -> float:
    """Under W_p(I, degrees), up to a constant; −CERTAIN outside its support."""
    matrix = unpack(packed)
    try:
        diagonal = np.diagonal(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        return -CERTAIN
    logs = float(np.log(diagonal).sum())
    return (degrees - len(matrix) - 1.0) * logs - 0.5 * float(np.trace(matrix))
