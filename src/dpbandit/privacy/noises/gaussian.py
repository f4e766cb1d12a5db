"""Gaussian noise."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from dpbandit.errors import OptionError
from dpbandit.privacy import opendp
from dpbandit.privacy.accounting import epsilon_of, mu_of
from dpbandit.privacy.claim import Notion
from dpbandit.privacy.grid import FLOAT_GRID_BITS, GRID_SHARE, STEP, lattice_slack
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.matrices import GaussianMatrix
from dpbandit.privacy.noises.base import (
    Budgeted,
    Currency,
    Matrix,
    Noise,
    Vector,
    certain,
    nothing_or_everything,
    per_scale,
)
from dpbandit.reference import random


class Gaussian(Noise):
    """Normal noise, independent in every coordinate."""

    name = "gaussian"
    description = "Gaussian noise in every coordinate; scale is the standard deviation"
    norm = 2
    currency: ClassVar[Currency] = "mu²"
    notion: ClassVar[Notion] = "gdp"
    has_real_source = True
    in_core = True
    matrices = GaussianMatrix()

    def budget(self, options: Budgeted, coordinates: int) -> float:
        epsilon, delta = options.need_epsilon(), options.need_delta()
        if math.isinf(epsilon):
            return math.inf
        if options.seed is None:
            # No scale is below 1/μ, in units of an item's sensitivity of at least 1.
            finest = max(STEP * mu_of(epsilon=epsilon, delta=delta), 2.0**-FLOAT_GRID_BITS)
            slack = lattice_slack(coordinates * options.items_per_unit, epsilon, finest)
            if slack > GRID_SHARE * delta:
                hint = "" if options.horizon else ", or give a horizon"
                raise OptionError(
                    f"delta = {delta:g} is too small for real noise here: its grid alone may cost "
                    f"{slack:.1g}; take delta ≥ {slack / GRID_SHARE:.1g}{hint}"
                )
            delta -= slack
        return mu_of(epsilon=epsilon, delta=delta) / options.moves_per_unit

    def multiplier(self, budget: float, levels: int) -> float:
        return math.sqrt(levels) / budget  # 0 where the budget is infinite

    def share(self, multiplier: float) -> float:
        return math.inf if multiplier == 0.0 else 1 / multiplier**2

    def shift_of(self, scale: float, share: float) -> float:
        return 1.0 if math.isinf(share) else scale * math.sqrt(share)

    def cost(self, shift: Vector, scale: float) -> float:
        return nothing_or_everything(shift, scale, float(shift @ shift) / (scale**2 or 1.0))

    def costs(self, shifts: Matrix, scales: Vector) -> Vector:
        return per_scale(shifts, scales, np.linalg.norm(shifts, axis=1)) ** 2

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return certain(y, v0, v1)
        middle = y - (v0 + v1) / 2
        return float((v1 - v0) @ middle) / scale**2

    def ledger(self, budget: float) -> Ledger:
        return Ledger(limit=budget**2, currency=self.currency)

    def delta(self, options: Budgeted) -> float:
        return options.need_delta()

    def mu(self, options: Budgeted, budget: float) -> float | None:
        return options.moves_per_unit * budget if math.isfinite(budget) else None

    def epsilon(self, spent: float, delta: float) -> float:
        return epsilon_of(mu=math.sqrt(spent), delta=delta)

    def tail(self, dim: int, zeta: float) -> float:
        return math.sqrt(2 * math.log(2 * dim / zeta))

    def tail_at(self, log: float) -> float:
        return math.sqrt(2.0 * log)

    def published_spread(self, scales: Vector) -> float:
        return math.sqrt(float(scales @ scales))

    def standard_deviation(self, dim: int = 1) -> float:
        return 1.0

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        return value + scale * random.normals(key, index, len(value))

    def whole_sampler(self, dim: int, scale: float) -> opendp.Sampler:
        return opendp.gaussian(dim, scale)

    def float_sampler(self, dim: int, scale: float, exponent: int) -> opendp.Sampler:
        return opendp.gaussian(dim, scale, exponent)
