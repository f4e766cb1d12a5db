"""What noisy releases of an instrument sum say about θ: an exact Kalman filter, in constant memory.

A release is y = q(S + O) + z. S = Σ ω·u·e is the private sum, O = Σ ω·u·p the public offset (residuals e = r − p were
summed, so S + O is the sum of u·r), and Σ ω·u·r = N·θ⁺ + E with N = Σ ω·u·(x, 1)ᵀ public and E the sum of reward noises. θ⁺
holds θ and an intercept. E is carried from release to release, so it is part of the state: given θ⁺ it is Gaussian with
mean ξ − Ξθ⁺ and covariance Π. Each release updates these and adds to the information I and h about θ⁺; no prior is in
them, so a prior may be chosen, and changed, when the posterior is read.
After each release all sums shrink by ρ (`release.anytime`), so their size stays that of the number of rounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit import numerics
from dpbandit.compiled import kernel

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Filter(NamedTuple):
    """All of it is public: computed from contexts and noisy releases alone."""

    design: Matrix  # N, d × (d + 1)
    offset: Vector  # O
    spread: Matrix  # Σ ω²·u·uᵀ since the last release
    mean: Vector  # ξ
    slope: Matrix  # Ξ
    covariance: Matrix  # Π
    information: Matrix  # I, (d + 1) × (d + 1)
    evidence: Vector  # h
    square: Matrix  # scratch, d × d, like the next two
    gain: Matrix
    wide: Matrix  # scratch, d × (d + 1), like the next
    other: Matrix
    surprise: Vector  # scratch


def new_filter(dim: int) -> Filter:
    """A filter that has seen no release.

    >>> new_filter(3).information.shape
    (4, 4)
    """
    square, wide, full = (dim, dim), (dim, dim + 1), (dim + 1, dim + 1)
    return Filter(
        np.zeros(wide),
        np.zeros(dim),
        np.zeros(square),
        np.zeros(dim),
        np.zeros(wide),
        np.zeros(square),
        np.zeros(full),
        np.zeros(dim + 1),
        np.zeros(square),
        np.zeros(square),
        np.zeros(wide),
        np.zeros(wide),
        np.zeros(dim),
    )


@kernel
def forget(state: Filter) -> None:
    """Back to a filter that has seen no release."""
    state.design[:] = 0.0
    state.offset[:] = 0.0
    state.spread[:] = 0.0
    state.mean[:] = 0.0
    state.slope[:] = 0.0
    state.covariance[:] = 0.0
    state.information[:] = 0.0
    state.evidence[:] = 0.0


@kernel(inline="always")
def see(state: Filter, x: Vector, u: Vector, weight: float, prediction: float) -> None:
    """A round whose item is weight·u·(r − prediction)."""
    d = x.shape[0]
    for i in range(d):
        scaled = weight * u[i]
        state.offset[i] += scaled * prediction
        for k in range(d):
            state.design[i, k] += scaled * x[k]
        state.design[i, d] += scaled
        scaled *= weight
        for k in range(i + 1):
            state.spread[i, k] += scaled * u[k]


@kernel
def learn(state: Filter, noisy: Vector, q: float, rho: float, scale: float, reward_variance: float) -> None:
    """Take a release y = q·S + noise of this scale, made before all sums shrink by ρ."""
    d = noisy.shape[0]
    cov, gain, square = state.covariance, state.gain, state.square
    for i in range(d):
        for k in range(i + 1):
            cov[i, k] += reward_variance * state.spread[i, k]
            cov[k, i] = cov[i, k]
            state.spread[i, k] = 0.0
    # F = q²Π + scale²; F⁻¹ goes into `square`, K = qΠF⁻¹ into `gain`.
    for i in range(d):
        for k in range(d):
            square[i, k] = q * q * cov[i, k]
        square[i, i] += scale * scale
    numerics.invert(square, gain, square)
    numerics.product(cov, square, gain)
    for i in range(d):
        for k in range(d):
            gain[i, k] *= q
    # What is seen is seen·θ⁺ + what was expected + noise.
    seen, weighted, surprise = state.wide, state.other, state.surprise
    for i in range(d):
        surprise[i] = noisy[i] + q * (state.offset[i] - state.mean[i])
        for k in range(d + 1):
            seen[i, k] = q * (state.design[i, k] + state.slope[i, k])
    numerics.product(square, seen, weighted)
    for k in range(d + 1):
        for i in range(d):
            state.evidence[k] += weighted[i, k] * surprise[i]
            for j in range(d + 1):
                state.information[k, j] += seen[i, k] * weighted[i, j]
    for k in range(d + 1):
        for j in range(k):
            middle = 0.5 * (state.information[k, j] + state.information[j, k])
            state.information[k, j] = middle
            state.information[j, k] = middle
    for i in range(d):
        for k in range(d):
            state.mean[i] += gain[i, k] * surprise[k]
            for j in range(d + 1):
                state.slope[i, j] -= gain[i, k] * seen[k, j]
    # Π ← Π − qKΠ, in Joseph's form, (1 − qK)Π(1 − qK)ᵀ + scale²KKᵀ, which rounding cannot make negative.
    for i in range(d):
        for k in range(d):
            square[i, k] = (1.0 if i == k else 0.0) - q * gain[i, k]
    half = state.wide
    for i in range(d):
        for k in range(d):
            total = 0.0
            for j in range(d):
                total += square[i, j] * cov[j, k]
            half[i, k] = total
    for i in range(d):
        for k in range(i + 1):
            total = 0.0
            for j in range(d):
                total += half[i, j] * square[k, j] + scale * scale * gain[i, j] * gain[k, j]
            cov[i, k] = total
    for i in range(d):
        state.offset[i] *= rho
        state.mean[i] *= rho
        for k in range(d + 1):
            state.design[i, k] *= rho
            state.slope[i, k] *= rho
        for k in range(i + 1):
            cov[i, k] *= rho * rho
            cov[k, i] = cov[i, k]


@kernel
def read(state: Filter, precision: Matrix, pull: Vector, theta: Vector, covariance: Matrix, work: Matrix) -> None:
    """The posterior of θ⁺ under a prior with this precision matrix and pull = precision·mean. `work` is scratch."""
    n = pull.shape[0]
    for i in range(n):
        for k in range(n):
            covariance[i, k] = state.information[i, k] + precision[i, k]
    numerics.invert(covariance, work, covariance)
    for i in range(n):
        theta[i] = 0.0
    for k in range(n):
        total = state.evidence[k] + pull[k]
        for i in range(n):
            theta[i] += covariance[k, i] * total
