"""Compiled ridge regression and scoring: the one place where this arithmetic is written.

The step-by-step bandits and the batch engine call the same functions, so they agree bit for bit.
Knows nothing of privacy, and must never learn.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.randomness import bits

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Scores closer than this are a tie: in round 1 all scores are equal up to rounding.
TIE = 1e-12


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
    )


@kernel(inline="always")
def add_context(ridge: Ridge, x: Vector) -> float:
    """A ← A + xxᵀ, by Sherman–Morrison on A⁻¹; leaves v = A_old⁻¹x in `step` and returns xᵀA_old⁻¹x.

    A itself is summed with its rounding errors kept (Neumaier), so that a refresh starts from the exact matrix
    even after millions of rounds: rank-one updates of the inverse alone drift.
    """
    inverse, gram, gram_low, v = ridge.inverse, ridge.gram, ridge.gram_low, ridge.step
    d = x.shape[0]
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
    ridge.age[0] += 1.0
    return quadratic


@kernel(inline="always")
def add_reward(ridge: Ridge, x: Vector, reward: float, quadratic: float) -> None:
    """b ← b + xr and θ ← θ + v(r − xᵀθ)/(1 + xᵀA_old⁻¹x), right after `add_context`."""
    b, b_low, theta, v = ridge.moments, ridge.moments_low, ridge.theta, ridge.step
    d = x.shape[0]
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


@kernel
def split_product(a: float, b: float) -> tuple[float, float]:
    """a·b as an exact sum of two floats (Veltkamp and Dekker)."""
    product = a * b
    c = 134217729.0 * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = 134217729.0 * b
    b_high = c - (c - b)
    b_low = b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@kernel
def refresh(ridge: Ridge) -> None:
    """Recompute A⁻¹ from A (by Cholesky), and θ from A and b, to nearly full precision.

    θ = A⁻¹b alone can lose κ² ulps; two steps of refinement with an exact residual leave about κ·2⁻⁵³.
    """
    inverse, gram, gram_low, theta = ridge.inverse, ridge.gram, ridge.gram_low, ridge.theta
    b, b_low = ridge.moments, ridge.moments_low
    d = theta.shape[0]
    _cholesky(gram, gram_low, ridge.work)
    _invert(ridge.work, inverse)
    for i in range(d):
        total = 0.0
        for k in range(d):
            total += inverse[i, k] * (b[k] + b_low[k])
        theta[i] = total
    residual = ridge.work[0]  # the factor is no longer needed
    for _ in range(2):
        for i in range(d):
            high = b[i]
            low = b_low[i]
            for k in range(d):
                product, error = split_product(gram[i, k], -theta[k])
                total = high + product
                back = total - high
                low += ((high - (total - back)) + (product - back)) + error - gram_low[i, k] * theta[k]
                high = total
            residual[i] = high + low
        for k in range(d):
            for i in range(d):
                theta[i] += inverse[k, i] * residual[k]
    ridge.age[0] = 0.0


@kernel
def _cholesky(matrix: Matrix, low: Matrix, out: Matrix) -> None:
    """The lower factor of matrix + low. A pivot that rounding made non-positive is replaced by the smallest sensible one."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i + 1):
            total = matrix[i, j] + low[i, j]
            for k in range(j):
                total -= out[i, k] * out[j, k]
            if i == j:
                out[i, i] = math.sqrt(max(total, matrix[i, i] * 1e-16))
            else:
                out[i, j] = total / out[j, j]


@kernel
def cholesky(matrix: Matrix, out: Matrix) -> None:
    """The lower factor of a symmetric matrix; entries above the diagonal are left as they are."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= out[i, k] * out[j, k]
            if i == j:
                out[i, i] = math.sqrt(max(total, matrix[i, i] * 1e-16, 1e-300))
            else:
                out[i, j] = total / out[j, j]


@kernel
def invert(matrix: Matrix, factor: Matrix, out: Matrix) -> None:
    """out = matrix⁻¹ for a symmetric positive matrix; `factor` is scratch. `out` may be `matrix`."""
    cholesky(matrix, factor)
    _invert(factor, out)


@kernel
def solve_lower(factor: Matrix, vector: Vector, out: Vector) -> None:
    """out = L⁻¹·vector for a lower triangular L; `out` may be `vector`."""
    for i in range(vector.shape[0]):
        total = vector[i]
        for k in range(i):
            total -= factor[i, k] * out[k]
        out[i] = total / factor[i, i]


@kernel
def product(left: Matrix, right: Matrix, out: Matrix) -> None:
    """out = left·right; `out` is another matrix than either."""
    rows, inner = left.shape
    columns = right.shape[1]
    for i in range(rows):
        for j in range(columns):
            out[i, j] = 0.0
        for k in range(inner):
            factor = left[i, k]
            for j in range(columns):
                out[i, j] += factor * right[k, j]


@kernel
def colour(ridge: Ridge, vector: Vector) -> None:
    """vector ← L⁻ᵀ·vector with A = LLᵀ: standard normal numbers become a draw with covariance A⁻¹. In place."""
    factor = ridge.work
    _cholesky(ridge.gram, ridge.gram_low, factor)
    d = vector.shape[0]
    for i in range(d - 1, -1, -1):
        total = vector[i]
        for k in range(i + 1, d):
            total -= factor[k, i] * vector[k]
        vector[i] = total / factor[i, i]


@kernel
def _invert(factor: Matrix, out: Matrix) -> None:
    """out = (factor·factorᵀ)⁻¹, exactly symmetric."""
    d = factor.shape[0]
    for column in range(d):
        # Forward: the entries above `column` of the solution are zero.
        for i in range(column, d):
            total = 1.0 if i == column else 0.0
            for k in range(column, i):
                total -= factor[i, k] * out[k, column]
            out[i, column] = total / factor[i, i]
        for i in range(d - 1, column - 1, -1):
            total = out[i, column]
            for k in range(i + 1, d):
                total -= factor[k, i] * out[k, column]
            out[i, column] = total / factor[i, i]
    for i in range(d):
        for j in range(i):
            out[j, i] = out[i, j]


@kernel
def diagonalise(matrix: Matrix, vectors: Matrix, enough: float) -> float:
    """Rotate a symmetric matrix, in place, until the squares off its diagonal add up to at most `enough` (Jacobi).

    The columns of `vectors`, the identity at first, turn into eigenvectors; no rows, if nobody needs them. Returns what is
    left off the diagonal.
    """
    d = matrix.shape[0]
    off = 0.0
    for _ in range(60):
        off = 0.0
        for p in range(d):
            for q in range(p):
                off += 2.0 * matrix[p, q] * matrix[p, q]
        if off <= enough:
            break
        for p in range(d):
            for q in range(p):
                if matrix[p, q] == 0.0:
                    continue
                ratio = (matrix[q, q] - matrix[p, p]) / (2.0 * matrix[p, q])
                t = 1.0 / (abs(ratio) + math.sqrt(ratio * ratio + 1.0))
                if ratio < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(t * t + 1.0)
                s = t * c
                for k in range(d):
                    kp, kq = matrix[k, p], matrix[k, q]
                    matrix[k, p], matrix[k, q] = c * kp - s * kq, s * kp + c * kq
                for k in range(d):
                    pk, qk = matrix[p, k], matrix[q, k]
                    matrix[p, k], matrix[q, k] = c * pk - s * qk, s * pk + c * qk
                for k in range(vectors.shape[0]):
                    kp, kq = vectors[k, p], vectors[k, q]
                    vectors[k, p], vectors[k, q] = c * kp - s * kq, s * kp + c * kq
    return off


@kernel
def largest_eigenvalue(matrix: Matrix, work: Matrix) -> float:
    """An upper bound on the largest eigenvalue of a symmetric matrix, tight to rounding."""
    d = matrix.shape[0]
    trace = 0.0
    for i in range(d):
        trace += abs(matrix[i, i])
        for j in range(d):
            work[i, j] = matrix[i, j]
    off = diagonalise(work, work[:0], (1e-14 * trace) ** 2)
    largest = work[0, 0]
    for i in range(1, d):
        largest = max(largest, work[i, i])
    return largest + math.sqrt(off)  # what is left off the diagonal moves no eigenvalue by more


@kernel(inline="always")
def refresh_when_due(ridge: Ridge, quadratic: float) -> bool:
    """Refresh every 256 updates (2d in high dimension, where it costs as much as that many updates), or at once when
    rounding has made A⁻¹ lose its sign."""
    if ridge.age[0] >= max(256.0, 2.0 * ridge.theta.shape[0]) or not quadratic >= 0.0:
        refresh(ridge)
        return True
    return False


@kernel
def multiply(matrix: Matrix, vector: Vector, out: Vector) -> None:
    """out = matrix·vector for a symmetric matrix, without allocating."""
    d = vector.shape[0]
    for i in range(d):
        out[i] = 0.0
    for k in range(d):
        factor = vector[k]
        for i in range(d):
            out[i] += matrix[k, i] * factor


@kernel
def score(inverse: Matrix, theta: Vector, columns: Matrix, alpha: float, work: Matrix, out: Vector) -> None:
    """UCB scores x·θ + α√(xᵀA⁻¹x) of every column.

    Arms are columns so that the innermost loop runs over arms, where additions are independent and the compiler may
    use vector instructions without changing the order of any sum. A⁻¹ is symmetric: half of it is enough.
    `work` has two rows of as many entries as there are arms.
    """
    d, arms = columns.shape
    for j in range(arms):
        out[j] = 0.0
        work[0, j] = 0.0
    for i in range(d):
        half = 0.5 * inverse[i, i]
        for j in range(arms):
            work[1, j] = half * columns[i, j]
        for k in range(i):
            entry = inverse[i, k]
            for j in range(arms):
                work[1, j] += entry * columns[k, j]
        weight = theta[i]
        for j in range(arms):
            work[0, j] += work[1, j] * columns[i, j]
            out[j] += weight * columns[i, j]
    for j in range(arms):
        out[j] += alpha * math.sqrt(max(2.0 * work[0, j], 0.0))


@kernel
def score_about_mean(
    matrix: Matrix, theta: Vector, columns: Matrix, alpha: float, work: Matrix, out: Vector, mean: Vector, image: Vector
) -> None:
    """Scores x·θ + α√((x − x̄)ᵀM(x − x̄)) with x̄ the mean of the columns, which ends up in `mean`.

    What all arms share cannot tell them apart, so its uncertainty is no reason to explore.
    """
    d, arms = columns.shape
    for i in range(d):
        total = 0.0
        for j in range(arms):
            total += columns[i, j]
        mean[i] = total / arms
    multiply(matrix, mean, image)
    middle = 0.0
    for i in range(d):
        middle += mean[i] * image[i]
    score(matrix, theta, columns, 0.0, work, out)  # leaves half of every xᵀMx in work[0]
    for j in range(arms):
        work[0, j] = 2.0 * work[0, j] + middle
    for i in range(d):
        twice = 2.0 * image[i]
        for j in range(arms):
            work[0, j] -= twice * columns[i, j]
    for j in range(arms):
        out[j] += alpha * math.sqrt(max(work[0, j], 0.0))


@kernel
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
