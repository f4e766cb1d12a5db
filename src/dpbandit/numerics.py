"""Compiled ridge regression and scoring: the one place where this arithmetic is written.

The step-by-step bandits and the batch engine call the same functions, so they agree bit for bit.
All statistics of one ridge regression live in one flat array (`ridge`), cut into named views by `parts`.
Knows nothing of privacy, and must never learn.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dpbandit.randomness import bits

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Scores closer than this are a tie: in round 1 all scores are equal up to rounding.
TIE = 1e-12


def new_ridge(dim: int, ridge: float) -> Vector:
    """Statistics of an empty ridge regression.

    >>> statistics = new_ridge(2, 4.0)
    >>> parts(statistics, 2)[0].tolist()
    [[0.25, 0.0], [0.0, 0.25]]
    """
    statistics = np.zeros(3 * dim * dim + 4 * dim + 1)
    inverse, gram = parts(statistics, dim)[:2]
    np.fill_diagonal(inverse, 1.0 / ridge)
    np.fill_diagonal(gram, ridge)
    return statistics


@njit(cache=True, inline="always")
def parts(ridge: Vector, d: int) -> tuple[Matrix, Matrix, Matrix, Vector, Vector, Vector, Vector, Vector]:
    """The named pieces: A⁻¹, A, A's rounding error, b, b's rounding error, θ = A⁻¹b, scratch, updates since refresh."""
    n = d * d
    return (
        ridge[0:n].reshape(d, d),
        ridge[n : 2 * n].reshape(d, d),
        ridge[2 * n : 3 * n].reshape(d, d),
        ridge[3 * n : 3 * n + d],
        ridge[3 * n + d : 3 * n + 2 * d],
        ridge[3 * n + 2 * d : 3 * n + 3 * d],
        ridge[3 * n + 3 * d : 3 * n + 4 * d],
        ridge[3 * n + 4 * d : 3 * n + 4 * d + 1],
    )


@njit(cache=True)
def add_context(ridge: Vector, d: int, x: Vector) -> float:
    """A ← A + xxᵀ, by Sherman–Morrison on A⁻¹; leaves v = A_old⁻¹x in scratch and returns xᵀA_old⁻¹x.

    A itself is summed with its rounding errors kept (Neumaier), so that a refresh starts from the exact matrix
    even after millions of rounds: rank-one updates of the inverse alone drift.
    """
    inverse, gram, gram_low, _b, _bl, _theta, v, age = parts(ridge, d)
    quadratic = 0.0
    for i in range(d):
        v[i] = 0.0
    for k in range(d):
        for i in range(d):
            v[i] += inverse[k, i] * x[k]
    for i in range(d):
        quadratic += v[i] * x[i]
    factor = 1.0 / (1.0 + quadratic)
    for i in range(d):
        scaled = v[i] * factor
        xi = x[i]
        for k in range(d):
            inverse[i, k] -= scaled * v[k]
            product = xi * x[k]
            total = gram[i, k] + product
            back = total - gram[i, k]
            gram_low[i, k] += (gram[i, k] - (total - back)) + (product - back)
            gram[i, k] = total
    age[0] += 1.0
    return quadratic


@njit(cache=True)
def add_reward(ridge: Vector, d: int, x: Vector, reward: float, quadratic: float) -> None:
    """b ← b + xr and θ ← θ + v(r − xᵀθ)/(1 + xᵀA_old⁻¹x), right after `add_context`."""
    _i, _g, _gl, b, b_low, theta, v, _age = parts(ridge, d)
    prediction = 0.0
    for i in range(d):
        prediction += x[i] * theta[i]
        product = x[i] * reward
        total = b[i] + product
        back = total - b[i]
        b_low[i] += (b[i] - (total - back)) + (product - back)
        b[i] = total
    gain = (reward - prediction) / (1.0 + quadratic)
    for i in range(d):
        theta[i] += gain * v[i]


@njit(cache=True)
def _split_product(a: float, b: float) -> tuple[float, float]:
    """a·b as an exact sum of two floats (Veltkamp and Dekker)."""
    product = a * b
    c = 134217729.0 * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = 134217729.0 * b
    b_high = c - (c - b)
    b_low = b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@njit(cache=True)
def refresh(ridge: Vector, d: int) -> None:
    """Recompute A⁻¹ from A, and θ from A and b, to nearly full precision.

    θ = A⁻¹b alone can lose κ² ulps; two steps of refinement with an exact residual leave about κ·2⁻⁵³.
    """
    inverse, gram, gram_low, b, b_low, theta, residual, age = parts(ridge, d)
    exact = gram + gram_low
    fresh = np.linalg.inv(exact)
    fresh = fresh @ (2.0 * np.eye(d) - exact @ fresh)
    for i in range(d):
        for k in range(d):
            inverse[i, k] = 0.5 * (fresh[i, k] + fresh[k, i])
    theta[:] = inverse @ (b + b_low)
    for _ in range(2):
        for i in range(d):
            high = b[i]
            low = b_low[i]
            for k in range(d):
                product, error = _split_product(gram[i, k], -theta[k])
                total = high + product
                back = total - high
                low += ((high - (total - back)) + (product - back)) + error - gram_low[i, k] * theta[k]
                high = total
            residual[i] = high + low
        theta[:] = theta + inverse @ residual
    age[0] = 0.0


@njit(cache=True)
def refresh_when_due(ridge: Vector, d: int, quadratic: float) -> bool:
    """Refresh every 256 updates (2d in high dimension, where it costs as much as that many updates), or at once when
    rounding has made A⁻¹ lose its sign."""
    age = ridge[3 * d * d + 4 * d]
    if age >= max(256.0, 2.0 * d) or not quadratic >= 0.0:
        refresh(ridge, d)
        return True
    return False


@njit(cache=True)
def multiply(matrix: Matrix, vector: Vector, out: Vector) -> None:
    """out = matrix·vector for a symmetric matrix, without allocating."""
    d = vector.shape[0]
    for i in range(d):
        out[i] = 0.0
    for k in range(d):
        factor = vector[k]
        for i in range(d):
            out[i] += matrix[k, i] * factor


@njit(cache=True)
def score(inverse: Matrix, theta: Vector, contexts: Matrix, alpha: float, out: Vector) -> None:
    """UCB scores x·θ + α√(xᵀA⁻¹x) of every row."""
    arms, d = contexts.shape
    y = np.empty(d)
    for j in range(arms):
        x = contexts[j]
        mean = 0.0
        quadratic = 0.0
        for i in range(d):
            y[i] = 0.0
        for k in range(d):
            xk = x[k]
            for i in range(d):
                y[i] += inverse[k, i] * xk
        for i in range(d):
            mean += x[i] * theta[i]
            quadratic += x[i] * y[i]
        out[j] = mean + alpha * math.sqrt(max(quadratic, 0.0))


@njit(cache=True)
def pick(scores: Vector, key: np.uint64, index: int) -> int:
    """The arm with the highest score; among ties, a random one that depends on (key, index) alone."""
    arms = scores.shape[0]
    best = scores[0]
    for j in range(1, arms):
        best = max(best, scores[j])
    chosen = -1
    highest = np.uint64(0)
    for j in range(arms):
        if scores[j] >= best - TIE:
            if chosen < 0:
                chosen = j
                continue
            if highest == np.uint64(0):
                highest = bits(key, index * 65536 + chosen)
            lot = bits(key, index * 65536 + j)
            if lot > highest:
                chosen, highest = j, lot
    return chosen
