"""How many degrees of freedom make Wishart noise on a tree of matrices (ε, δ)-private
(docs/privacy.md).

One person changes a node's sum of vvᵀ, ‖v‖ ≤ 1, by vvᵀ − uuᵀ. With W_p(I, k) noise the privacy loss
of that node is at most F(X) + G(Y), where X and Y are χ² with ν = k − p + 1 degrees of freedom
each,
    F(X) = ½ − (ν/2 − 1)·log(1 + 1/X),   G(Y) = −½ − (ν/2 − 1)·log(1 − 1/Y),
and E exp(λ(F + G)) ≤ E exp(λF)·E exp(λG) for every λ > 0, whatever v and u are. The rest is
Chernoff's bound over the levels of the tree.

Items are brought to the grid, and a rounded vvᵀ is no vvᵀ: what that adds to the loss is charged
where `rows` says how large the matrices are."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpbandit.errors import OptionError
from dpbandit.privacy.grid import STEP
from dpbandit.types import Vector

# The part of δ for noise so small that the loss has no bound, and the margin for rounding in the
# quadrature.
TRUNCATED, MARGIN = 1e-2, 1e-6
MOST_DEGREES = 1e12


class Calibration(NamedTuple):
    """Noise for a tree of so many levels, and what its releases cost.

    Somebody in j of the nodes has spent at most `first` + j·`each` at the whole δ; `first` +
    levels·`each` is at most ε.
    """

    degrees: int  # ν = k − p + 1
    first: float
    each: float


def calibrate(*, epsilon: float, delta: float, levels: int, rows: int = 0) -> Calibration:
    """The fewest degrees of freedom, beyond p − 1, for which one person in a node of each level has
    (ε, δ).

    >>> calibrate(epsilon=2.0, delta=1e-5, levels=14).degrees
    73
    >>> calibrate(epsilon=2.0, delta=1e-5, levels=14, rows=11).degrees  # of rounded items
    73
    """
    return _calibrate(float(epsilon), float(delta), int(levels), int(rows))


@lru_cache(maxsize=1024)
def _calibrate(epsilon: float, delta: float, levels: int, rows: int) -> Calibration:
    def fits(degrees: float) -> Calibration | None:
        try:
            found = losses(degrees, delta=delta, levels=levels, rows=rows)
        except OptionError:
            return None
        return found if found.first + levels * found.each <= epsilon else None

    low, high = 3, 8
    while fits(high) is None:
        low, high = high, 2 * high
        if high > MOST_DEGREES:
            raise OptionError(
                f"epsilon = {epsilon:g} with delta = {delta:g} needs more than 1e12 degrees of "
                "freedom"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) is not None else (middle, high)
    found = fits(high)
    if found is None:
        raise AssertionError("the end of the bisection that fits does not fit")
    return found


def rounding(rows: int) -> float:
    """How far rounding to the grid can move an item of so many rows, in Frobenius norm.

    >>> rounding(0), rounding(2) < 1e-12
    (0.0, True)
    """
    return math.sqrt(rows * (rows + 1) / 2) * STEP / 2


def margin(rows: int) -> float:
    """By how much ‖v‖² must stay below 1 for rounded items: η below, at its largest."""
    return 2 * rows * rounding(rows)


def added_by_rounding(degrees: float, *, least: float, rows: int) -> float:
    """What rounding both items adds to the loss of one node, where W ⪰ (least/rows)·I.

    Rounding takes at most 2·`rounding` off W in any direction, a share η of it, so that det(W + …)
    is no less than (1 − η)^rows of what it is with v and u longer by 1/√(1 − η).

    >>> added_by_rounding(73.0, least=20.0, rows=11) < 1e-8
    True
    """
    error = rounding(rows)
    share = 2 * error * rows / least
    return (degrees / 2 - 1) * rows * share / (1 - share) + math.sqrt(rows) * error + share


def losses(degrees: float, *, delta: float, levels: int, rows: int = 0) -> Calibration:
    """What noise with these degrees of freedom costs, at the λ that is best for all levels
    together. `rows`: of the matrices, whose items are rounded; 0: they are exact.

    >>> found = losses(200, delta=1e-5, levels=14)
    >>> 1.0 < found.first + 14 * found.each < 1.2
    True
    """
    from scipy.special import (  # slow to import, and Wishart noise alone needs it
        chdtr,
        chdtrc,
        xlogy,
    )

    shape = degrees / 2 - 1
    part = TRUNCATED * delta / levels
    least = _lower_quantile(degrees, part)
    # No eigenvalue of W lies below `lowest`/rows, but with the same probability: each diagonal entry
    # of W⁻¹ is one over a χ², and their sum is no less than its largest eigenvalue.
    lowest = _lower_quantile(degrees, part / max(rows, 1))
    if least <= 1.0 or lowest <= 1.0:
        raise OptionError(f"{degrees} degrees of freedom are too few: the loss has no bound")
    rounded = added_by_rounding(degrees, least=lowest, rows=rows)
    log_left = math.log(delta * (1 - TRUNCATED * (1 + (rows > 0))) * (1 - MARGIN))
    spread = math.sqrt(2 * degrees)
    low, high = max(degrees - 12 * spread, 1e-9), degrees + 14 * spread + 200
    x, weight_x = _quadrature(low, high, degrees)
    y, weight_y = _quadrature(least, high, degrees)
    f, g = 0.5 - shape * np.log1p(1 / x), -0.5 - shape * np.log1p(-1 / y)
    highest_g = -0.5 - shape * math.log1p(-1 / least)
    log_outside = math.log(max(float(chdtr(degrees, low) + chdtrc(degrees, high)), 1e-300))

    def each(rate: float) -> float:
        """log E exp(λF) + log E exp(λG), each at least 0, which is what a v or u of length 0
        gives."""
        of_f = np.logaddexp(_log_sum_exp(rate * f + weight_x), rate * 0.5 + log_outside)
        of_g = np.logaddexp(_log_sum_exp(rate * g + weight_y), rate * highest_g + math.log(part))
        of_g = np.logaddexp(of_g, rate * g[-1] + log_outside)
        return float(max(of_f, 0.0) + max(of_g, 0.0)) + rate * rounded + 1e-12

    def first(rate: float) -> float:
        # E(1 − e^{ε−L})₊ ≤ λ^λ/(1 + λ)^{1+λ}·E exp(λ(L − ε)), as in Canonne, Kamath & Steinke 2020.
        return float(xlogy(rate, rate) - xlogy(1 + rate, 1 + rate)) - log_left

    def total(log_rate: float) -> float:
        rate = math.exp(log_rate)
        return (max(first(rate), 0.0) + levels * each(rate)) / rate

    rate = math.exp(_lowest(total, math.log(1e-2), math.log(1e6)))
    return Calibration(int(degrees), max(first(rate), 0.0) / rate, each(rate) / rate)


def calibrate_all(
    *, epsilon: float, delta: float, rewards_per_unit: int, levels: list[int], rows: int = 0
) -> dict[int, Calibration]:
    """Calibrations by the number of levels, for units of m rewards; none where ε is infinite.

    A group of m has m·ε and m·e^{(m−1)ε}·δ, so each reward gets that much less.
    """
    if math.isinf(epsilon):
        return {}
    each = epsilon / rewards_per_unit
    log_delta = math.log(delta) - math.log(rewards_per_unit) - (rewards_per_unit - 1) * each
    if log_delta < math.log(1e-280):
        raise OptionError(
            f"a group of {rewards_per_unit} rewards leaves no δ for one at epsilon = {epsilon:g}: "
            "use noise='gaussian'"
        )
    left = math.exp(log_delta)
    return {n: calibrate(epsilon=each, delta=left, levels=n, rows=rows) for n in levels}


def _lowest(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one valley is least, to 1e-5, by golden section. Any λ is valid, so it
    errs safely."""
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > 1e-5:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(right)
    return (low + high) / 2


def _log_sum_exp(terms: Vector) -> float:
    largest = float(terms.max())
    return largest + math.log(float(np.exp(terms - largest).sum()))


@lru_cache(maxsize=1)
def _points_and_weights() -> tuple[Vector, Vector]:
    """Gauss and Legendre's, on [−1, 1]. Not made on import: it is an eigenvalue problem, seconds
    where BLAS has several threads on busy cores."""
    points, weights = np.polynomial.legendre.leggauss(600)
    return points, weights


def _quadrature(low: float, high: float, degrees: float) -> tuple[Vector, Vector]:
    """Points from low to high (Gauss–Legendre), and the logarithms of their weights times χ²'s
    density."""
    from scipy.special import xlogy

    half, shape = (high - low) / 2, degrees / 2
    standard, weights = _points_and_weights()
    points = low + half * (standard + 1)
    density = xlogy(shape - 1, points) - points / 2 - shape * math.log(2) - math.lgamma(shape)
    return points, np.log(weights * half) + density


def _lower_quantile(degrees: float, probability: float) -> float:
    """A point below which χ² falls with at most this probability, by bisection."""
    from scipy.special import chdtr

    low, high = 0.0, float(degrees)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if chdtr(degrees, middle) <= probability else (low, middle)
    return low
