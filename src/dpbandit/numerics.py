"""Compiled ridge regression, and the choice among scores.

The step-by-step bandits and the batch engine call the same functions, so they agree bit for bit.
Knows nothing of privacy, and must never learn.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.factors import factor, invert_factor
from dpbandit.lanes import (
    WIDTH,
    fma,
    load,
    negative,
    plus,
    splat,
    store,
    times,
)
from dpbandit.products import add_kept, add_outer, add_to, dot, kept_sum, multiply
from dpbandit.randomness import bits

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Scores closer than this are a tie: in round 1 all scores are equal up to rounding.
TIE = 1e-12

# Contexts are added to A this many at a time: kept rounding errors then cost little, and sums of 16 terms lose no more than
# the products of numbers do that are added.
RECENT = 16


class Ridge(NamedTuple):
    """The statistics of one ridge regression, updated in place."""

    inverse: Matrix  # A⁻¹
    gram: Matrix  # A = λI + Σ xxᵀ
    gram_low: Matrix  # what rounding lost of A
    moments: Vector  # b = Σ xr
    moments_low: Vector
    theta: Vector  # A⁻¹b
    step: Vector  # A⁻¹x of the latest context, with A before it was added
    age: Vector  # updates since the last refresh
    work: Matrix  # scratch
    recent: Matrix  # contexts that are in A⁻¹ and not yet in A: see `settle`
    waiting: Vector  # how many of them


def new_ridge(dim: int, ridge: float) -> Ridge:
    """Statistics of an empty ridge regression.

    >>> new_ridge(2, 4.0).inverse.tolist()
    [[0.25, 0.0], [0.0, 0.25]]
    """
    square, line = (dim, dim), dim
    return Ridge(
        np.eye(dim) / ridge,
        np.eye(dim) * ridge,
        np.zeros(square),
        np.zeros(line),
        np.zeros(line),
        np.zeros(line),
        np.zeros(line),
        np.zeros(1),
        np.zeros(square),
        np.zeros((RECENT, dim)),
        np.zeros(1),
    )


@kernel(inline="always")
def add_context(ridge: Ridge, x: Vector) -> float:
    """A ← A + xxᵀ, by Sherman–Morrison on A⁻¹; leaves v = A_old⁻¹x in `step` and returns xᵀA_old⁻¹x."""
    multiply(ridge.inverse, x, ridge.step)
    quadratic = dot(ridge.step, x)
    add_outer(ridge.inverse, -1.0 / (1.0 + quadratic), ridge.step, ridge.step)
    waiting = int(ridge.waiting[0])
    for i in range(x.shape[0]):
        ridge.recent[waiting, i] = x[i]
    ridge.waiting[0] = waiting + 1.0
    if waiting + 1 == RECENT:
        settle(ridge)
    ridge.age[0] += 1.0
    return quadratic


@kernel
def settle(ridge: Ridge) -> None:
    """Add the recent contexts to A, which is behind by up to RECENT of them.

    A is summed with its rounding errors kept (Neumaier), so that a refresh starts from the exact matrix even after millions of
    rounds: rank-one updates of the inverse alone drift.
    """
    waiting, recent = int(ridge.waiting[0]), ridge.recent
    gram, low = ridge.gram, ridge.gram_low
    d = recent.shape[1]
    ridge.waiting[0] = 0.0
    if waiting == 0:
        return
    _sum_of_squares(recent, waiting, ridge.work)
    terms, last = ridge.work.reshape(d * d), d * d - d * d % WIDTH
    for i in range(0, last, WIDTH):
        sums, rest = kept_sum(load(gram, i), load(low, i), load(terms, i))
        store(gram, i, sums)
        store(low, i, rest)
    for i in range(last, d * d):
        row, k = i // d, i % d
        gram[row, k], low[row, k] = kept_sum(gram[row, k], low[row, k], terms[i])


@kernel(inline="late")
def apply_gram(ridge: Ridge, vector: Vector, out: Vector) -> None:
    """out = A·vector, with the recent contexts that A is behind by."""
    multiply(ridge.gram, vector, out)
    for n in range(int(ridge.waiting[0])):
        add_to(out, dot(ridge.recent[n], vector), ridge.recent[n])


@kernel
def _sum_of_squares(rows: Matrix, count: int, out: Matrix) -> None:
    """out = Σ xxᵀ over the first rows. Exactly symmetric: both halves add the same products in the same order."""
    d = rows.shape[1]
    if d < WIDTH:
        for i in range(d):
            for k in range(d):
                total = 0.0
                for n in range(count):
                    total = fma(rows[n, i], rows[n, k], total)
                out[i, k] = total
        return
    last = d - WIDTH  # strips may overlap: what is written twice is the same
    for i in range(0, d, 2):
        other = min(i + 1, d - 1)
        for j in range(0, d, 3 * WIDTH):
            first, second, third = min(j, last), min(j + WIDTH, last), min(j + 2 * WIDTH, last)
            a = b = c = e = f = g = splat(0.0)
            for n in range(count):
                s, t = splat(rows[n, i]), splat(rows[n, other])
                x, y, z = load(rows, n * d + first), load(rows, n * d + second), load(rows, n * d + third)
                a, b, c = fma(s, x, a), fma(s, y, b), fma(s, z, c)
                e, f, g = fma(t, x, e), fma(t, y, f), fma(t, z, g)
            store(out, i * d + first, a)
            store(out, i * d + second, b)
            store(out, i * d + third, c)
            store(out, other * d + first, e)
            store(out, other * d + second, f)
            store(out, other * d + third, g)


@kernel(inline="always")
def add_reward(ridge: Ridge, x: Vector, reward: float, quadratic: float) -> None:
    """b ← b + xr and θ ← θ + v(r − xᵀθ)/(1 + xᵀA_old⁻¹x), right after `add_context`."""
    gain = (reward - dot(x, ridge.theta)) / (1.0 + quadratic)
    add_kept(ridge.moments, ridge.moments_low, reward, x)
    add_to(ridge.theta, gain, ridge.step)


@kernel
def refresh(ridge: Ridge) -> None:
    """Recompute A⁻¹ from A (by Cholesky), and θ from A and b, to nearly full precision.

    θ = A⁻¹b alone can lose κ² ulps; two steps of refinement with an exact residual leave about κ·2⁻⁵³.
    """
    settle(ridge)
    inverse, theta = ridge.inverse, ridge.theta
    d = theta.shape[0]
    factor(ridge.gram, ridge.gram_low, ridge.work)
    invert_factor(ridge.work, inverse)
    residual, change = ridge.recent[0], ridge.recent[1]  # free now
    for i in range(d):
        residual[i] = ridge.moments[i] + ridge.moments_low[i]
    multiply(inverse, residual, theta)
    for _ in range(2):
        _residual(ridge, residual)
        multiply(inverse, residual, change)
        for i in range(d):
            theta[i] += change[i]
    ridge.age[0] = 0.0


@kernel
def _residual(ridge: Ridge, out: Vector) -> None:
    """out = b − Aθ, with every product and sum kept in two floats."""
    gram, gram_low, theta, b, b_low = ridge.gram, ridge.gram_low, ridge.theta, ridge.moments, ridge.moments_low
    d = theta.shape[0]
    whole = d - d % WIDTH
    for i in range(0, whole, WIDTH):
        high, low = load(b, i), load(b_low, i)
        for k in range(d):
            high, low = _minus_product(high, low, load(gram, k * d + i), load(gram_low, k * d + i), splat(-theta[k]))
        store(out, i, plus(high, low))
    for i in range(whole, d):
        high, low = b[i], b_low[i]
        for k in range(d):
            high, low = _minus_product(high, low, gram[k, i], gram_low[k, i], -theta[k])
        out[i] = high + low


@kernel(inline="always")
def _minus_product(high: Any, low: Any, entry: Any, entry_low: Any, minus_theta: Any) -> Any:
    product = times(entry, minus_theta)
    error = fma(entry, minus_theta, negative(product))
    high, low = kept_sum(high, low, product)
    return high, fma(entry_low, minus_theta, plus(low, error))


@kernel
def colour(ridge: Ridge, vector: Vector) -> None:
    """vector ← U⁻¹·vector with A = UᵀU: standard normal numbers become a draw with covariance A⁻¹. In place."""
    settle(ridge)
    root_of_a = ridge.work
    factor(ridge.gram, ridge.gram_low, root_of_a)
    d = vector.shape[0]
    for i in range(d - 1, -1, -1):
        total = vector[i]
        for k in range(i + 1, d):
            total -= root_of_a[i, k] * vector[k]
        vector[i] = total / root_of_a[i, i]


@kernel(inline="always")
def refresh_when_due(ridge: Ridge, quadratic: float) -> bool:
    """Refresh every 256 updates (2d in high dimension, where it costs as much as that many updates), or at once when
    rounding has made A⁻¹ lose its sign."""
    if ridge.age[0] >= max(256.0, 2.0 * ridge.theta.shape[0]) or not quadratic >= 0.0:
        refresh(ridge)
        return True
    return False


@kernel(inline="late")
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
    return max(chosen, 0)
