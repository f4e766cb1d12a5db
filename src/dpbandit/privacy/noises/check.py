"""Whether what a noise says of itself fits together: draws, density, cost and budget.

Mistakes are found, nothing is proven: that a cost is never exceeded is the author's to prove.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from dpbandit.privacy.noises.base import Matrix, Noise, Vector

# Draws, and the seed that they come from: the same noise always has the same answer.
DRAWS, KEY = 3_000, 0x5EED
# Standard errors allowed to a mean of draws: a right noise is refused once in 10⁵ times.
ERRORS = 5.0
ROUNDING = 1e-9
SCALE = 1.7


def contradiction(noise: Noise) -> str:
    """Where a noise contradicts itself, in words; empty if nothing was found.

    >>> from dpbandit.privacy.noise import GAUSSIAN
    >>> contradiction(GAUSSIAN)
    ''
    """
    if noise.notion not in ("pure", "gdp"):
        return f"nobody knows how costs of the notion {noise.notion!r} add up over releases"
    if (noise.notion == "gdp") != (noise.currency == "mu²"):
        return f"the notion {noise.notion!r} is not paid in {noise.currency!r}"
    shift = np.array([0.6, -0.8, 0.0]) if noise.norm == 2 else np.array([0.5, -0.3, 0.2])
    return _of_price(noise, shift) or _of_draws(noise, shift)


def _of_price(noise: Noise, shift: Vector) -> str:
    for budget in (0.25, 4.0):
        for levels in (1, 5):
            multiplier = noise.multiplier(budget, levels)
            share, limit = noise.share(multiplier), noise.ledger(budget).limit
            if not levels * share <= limit * (1 + ROUNDING):
                return f"{levels} releases of its multiplier cost more than the budget"
            if not noise.cost(shift, multiplier) <= share * (1 + ROUNDING):
                return "a shift of norm 1 costs more than the share of its multiplier"
            if not math.isclose(noise.shift_of(multiplier, share), 1.0, rel_tol=1e-6):
                return "shift_of does not lead back from a share to the shift"
    if noise.cost(shift, 0.0) != math.inf or noise.cost(0 * shift, 0.0) != 0.0:
        return "a release without noise must cost everything, and no shift nothing"
    return ""


def _of_draws(noise: Noise, shift: Vector) -> str:
    v0 = np.array([0.3, -2.0, 1.0])
    v1 = v0 + SCALE * shift
    drawn = np.array([noise.simulate(KEY, index, SCALE, v0) for index in range(DRAWS)])
    if len(np.unique(drawn[:, 0])) < DRAWS:
        return "two of its draws are the same"
    if (noise.simulate(KEY, 7, SCALE, v0) != drawn[7]).any():
        return "the same key and index draw another number"
    if not np.allclose(noise.simulate(KEY, 7, SCALE, v1) - v1, drawn[7] - v0, atol=1e-9):
        return "its draw depends on the value"
    ratios = np.array([noise.log_ratio(y, v0, v1, SCALE) for y in drawn])
    back = np.array([noise.log_ratio(y, v1, v0, SCALE) for y in drawn])
    if not np.allclose(ratios, -back, atol=1e-9):
        return "its density tells v0 from v1 otherwise than v1 from v0"
    if not _mean_is(np.exp(ratios), 1.0) or not _density_fits(noise, v0, drawn):
        return "its draws do not have the density of log_ratio, or not this scale"
    spread = float((drawn - v0).std()) / SCALE
    if not math.isclose(spread, noise.standard_deviation(len(v0)), rel_tol=0.15):
        return f"its draws have standard deviation {spread:.3g} for each unit of scale"
    return _of_cost(noise, v0, v1, ratios)


def _density_fits(noise: Noise, v0: Vector, drawn: Matrix) -> bool:
    """Draws at v0, weighted by exp(log_ratio), must fall where draws at v1 do: bin by bin."""
    v1 = v0 + np.array([2 * SCALE, 0.0, 0.0])
    weights = np.exp([noise.log_ratio(y, v0, v1, SCALE) for y in drawn])
    places = (drawn[:, 0] - v0[0]) / SCALE
    edges = np.array([0.0, 0.5, 1.0, 1.5, 2.0])  # where both are often
    return all(
        _mean_is(
            weights * ((places >= a) & (places < b)) - ((places + 2 >= a) & (places + 2 < b)), 0
        )
        for a, b in pairwise(edges)
    )


def _of_cost(noise: Noise, v0: Vector, v1: Vector, ratios: Vector) -> str:
    cost = noise.cost(v1 - v0, SCALE)
    if noise.notion == "gdp":
        # Of a Gaussian transcript: normal, of mean −μ²/2 and variance μ².
        if not _mean_is(ratios, -cost / 2) or not _mean_is((ratios + cost / 2) ** 2, cost):
            return "its log-ratios are not those of a Gaussian noise with this cost"
        return ""
    towards = np.sign(v1 - v0)
    far = [v0 + reach * SCALE * towards for reach in (-50.0, -5.0, 0.0, 0.5, 1.0, 5.0, 50.0)]
    most = max(np.abs(ratios).max(), *(abs(noise.log_ratio(y, v0, v1, SCALE)) for y in far))
    if not most <= cost * (1 + ROUNDING):
        return f"a log-ratio of {most:.4g} is seen where the cost is said to be {cost:.4g}"
    return ""


def _mean_is(numbers: Vector, expected: float) -> bool:
    error = float(numbers.std()) / math.sqrt(len(numbers))
    return bool(abs(float(numbers.mean()) - expected) <= ERRORS * error + ROUNDING)
