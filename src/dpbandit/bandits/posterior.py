"""What noisy releases of an instrument sum say about θ: an exact Kalman filter, in constant memory.

A release is y = q·S + z. S = Σ ω·u·e is the private sum of residuals e = r − p; with the public offset O = Σ ω·u·p it is the sum
of u·r, and Σ ω·u·r = N·θ⁺ + E, where θ⁺ holds θ and an intercept, x⁺ = (x, 1), N = Σ ω·u·x⁺ᵀ is public and E is the sum of
reward noises. E is carried from release to release, so it is part of the state: given θ⁺ and the releases so far it is
Gaussian with mean ξ + Ξθ⁺ (Ξ is minus what of N was attributed to noise) and covariance Π. Each release updates these and
adds rows to a square-root information matrix for θ⁺. No prior is in it, so a prior may be chosen, and changed, when the
posterior is read. After each release all sums shrink by ρ (`release.anytime`), so their size stays that of the number of rounds.

Information is kept as a triangular root and updated by rotations: it grows like t² in some directions and hardly in
others, and a sum of squares would drown the small ones in rounding long before 10⁸ rounds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit import factors, products
from dpbandit.compiled import kernel
from dpbandit.lanes import WIDTH, fma, load, splat, store, times

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Filter(NamedTuple):
    """All of it is public: computed from contexts and noisy releases alone. Sizes are n = d + 1."""

    design: Matrix  # N
    offset: Vector  # O
    spread: Matrix  # Σ ω²·u·uᵀ since the last release
    mean: Vector  # ξ
    slope: Matrix  # Ξ
    covariance: Matrix  # Π
    root: Matrix  # upper triangular R; RᵀR is the information on θ⁺
    target: Vector  # z; Rᵀz is what the releases pull towards
    square: Matrix  # scratch, like all that follow
    gain: Matrix
    seen: Matrix
    half: Matrix
    surprise: Vector
    row: Vector


def new_filter(size: int) -> Filter:
    """A filter that has seen no release.

    >>> new_filter(4).root.shape
    (4, 4)
    """
    square, line = (size, size), size
    return Filter(
        np.zeros(square),
        np.zeros(line),
        np.zeros(square),
        np.zeros(line),
        np.zeros(square),
        np.zeros(square),
        np.zeros(square),
        np.zeros(line),
        np.zeros(square),
        np.zeros(square),
        np.zeros(square),
        np.zeros(square),
        np.zeros(line),
        np.zeros(line),
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
    state.root[:] = 0.0
    state.target[:] = 0.0


@kernel(inline="always")
def see(state: Filter, longer: Vector, u: Vector, weight: float, prediction: float) -> None:
    """A round whose item is weight·u·(r − prediction); `longer` is (x, 1)."""
    for i in range(u.shape[0]):
        state.offset[i] += weight * u[i] * prediction
    products.add_outer(state.design, weight, u, longer)
    products.add_outer(state.spread, weight * weight, u, u)


@kernel
def learn(state: Filter, noisy: Vector, q: float, rho: float, scale: float, reward_variance: float) -> None:
    """Take a release y = q·S + noise of this scale, made before all sums shrink by ρ."""
    n = noisy.shape[0]
    cov, gain, square, seen, surprise = state.covariance, state.gain, state.square, state.seen, state.surprise
    for i in range(n):
        for k in range(i + 1):
            cov[i, k] += reward_variance * state.spread[i, k]
            cov[k, i] = cov[i, k]
            state.spread[i, k] = 0.0
            state.spread[k, i] = 0.0
    # F = q²Π + scale²; its inverse goes into `square`, its factor into `half`, the gain K = qΠF⁻¹ into `gain`.
    for i in range(n):
        for k in range(n):
            square[i, k] = q * q * cov[i, k]
        square[i, i] += scale * scale
    factors.factor(square, square[:0], state.half)
    for i in range(n):
        for k in range(i, n):
            seen[i, k] = state.half[i, k]
    factors.invert_factor(seen, square)
    products.product(cov, square, gain)
    # What is seen is `seen`·θ⁺ + noise of covariance F, once what was expected is taken off.
    for i in range(n):
        surprise[i] = noisy[i] + q * (state.offset[i] - state.mean[i])
        for k in range(n):
            gain[i, k] *= q
            seen[i, k] = q * (state.design[i, k] + state.slope[i, k])
    for i in range(n):
        state.mean[i] += products.dot(gain[i], surprise)
    products.add_product(-1.0, gain, seen, state.slope)
    _shrink_covariance(state, q, scale)
    # Rows of F^{−1/2}·seen join the root of the information. (`half` holds F's factor until here.)
    _add_rows(state)
    for i in range(n):
        state.offset[i] *= rho
        state.mean[i] *= rho
        for k in range(n):
            state.design[i, k] *= rho
            state.slope[i, k] *= rho
            cov[i, k] *= rho * rho


@kernel
def _shrink_covariance(state: Filter, q: float, scale: float) -> None:
    """Π ← (1 − qK)Π(1 − qK)ᵀ + scale²KKᵀ: Joseph's form, which rounding cannot make negative."""
    cov, gain, square = state.covariance, state.gain, state.square
    n = cov.shape[0]
    for i in range(n):
        for k in range(n):
            square[i, k] = (1.0 if i == k else 0.0) - q * gain[i, k]
    half = state.spread  # empty now
    products.product(square, cov, half)
    for i in range(n):
        for k in range(i + 1):
            total = products.dot(half[i], square[k]) + scale * scale * products.dot(gain[i], gain[k])
            cov[i, k] = total
            cov[k, i] = total
    half[:] = 0.0


@kernel
def _add_rows(state: Filter) -> None:
    """Whiten what was seen by F's factor and rotate it into the root."""
    seen, surprise, factor = state.seen, state.surprise, state.half
    n = seen.shape[0]
    for i in range(n):
        row = seen[i]
        for j in range(i):
            surprise[i] -= factor[j, i] * surprise[j]
            products.add_to(row, -factor[j, i], seen[j])
        unit = 1.0 / factor[i, i]
        surprise[i] *= unit
        for k in range(n):
            row[k] *= unit
    for i in range(n):
        add_row(state.root, state.target, seen[i], surprise[i])


@kernel
def add_row(root: Matrix, target: Vector, row: Vector, value: float) -> float:
    """Rotate the equation row·θ = value (of variance 1) into the triangular system. Destroys `row`; returns what is left
    over, whose square is how much worse the equations fit together."""
    n = target.shape[0]
    whole = n - n % WIDTH
    for i in range(n):
        length = math.sqrt(root[i, i] * root[i, i] + row[i] * row[i])
        if row[i] == 0.0 or length == 0.0:
            continue
        unit = 1.0 / length
        c, s = root[i, i] * unit, row[i] * unit
        start = i - i % WIDTH  # what is before i in both rows is 0, and stays it
        for k in range(start, whole, WIDTH):
            old, new = load(root, i * n + k), load(row, k)
            store(root, i * n + k, fma(splat(c), old, times(splat(s), new)))
            store(row, k, fma(splat(c), new, times(splat(-s), old)))
        for k in range(max(start, whole), n):
            entry = root[i, k]
            root[i, k] = fma(c, entry, s * row[k])
            row[k] = fma(c, row[k], -s * entry)
        row[i] = 0.0
        entry = target[i]
        target[i] = c * entry + s * value
        value = c * value - s * entry
    return value


@kernel
def read(state: Filter, precision: Matrix, pull: Vector, theta: Vector, covariance: Matrix, work: Matrix) -> float:
    """The posterior of θ⁺ under a prior with this precision matrix and pull = precision·mean. `work` is scratch.

    Returns the log of the releases' marginal likelihood, up to a constant that no prior changes.
    """
    n = pull.shape[0]
    root, target, row = work, theta, state.row
    factors.cholesky(precision, covariance)  # the prior as equations: U·θ⁺ = U·mean, with U the factor's transpose
    likely = 0.0
    factors.solve_lower(covariance, pull, state.surprise)
    for i in range(n):
        likely += math.log(covariance[i, i])
        target[i] = state.target[i]
        for k in range(n):
            root[i, k] = state.root[i, k] if k >= i else 0.0
    for i in range(n):
        for k in range(n):
            row[k] = covariance[k, i] if k >= i else 0.0
        left = add_row(root, target, row, state.surprise[i])
        likely -= 0.5 * left * left
    # θ⁺ = R⁻¹z, by back substitution, and Σ = R⁻¹R⁻ᵀ.
    for i in range(n - 1, -1, -1):
        likely -= math.log(root[i, i])
        total = target[i]
        for k in range(i + 1, n):
            total -= root[i, k] * theta[k]
        theta[i] = total / root[i, i]
    factors.invert_factor(root, covariance)
    return likely
