"""Compiled ridge regression and scoring: the one place where this arithmetic is written.

The step-by-step bandits and the batch engine call the same functions, so they agree bit for bit.
Knows nothing of privacy, and must never learn.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.lanes import (
    WIDTH,
    add_up,
    fma,
    load,
    load_four,
    minus,
    negative,
    over,
    plus,
    splat,
    splat_four,
    store,
    times,
)
from dpbandit.randomness import bits

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Scores closer than this are a tie: in round 1 all scores are equal up to rounding.
TIE = 1e-12

# Contexts are added to A this many at a time: kept rounding errors then cost little, and sums of 16 terms lose no more than
# the products of numbers do that are added.
RECENT = 16

# From this size on, matrices do not stay in the first cache: rows are read from end to end.
LONG = 64


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


@kernel(inline="late")
def dot(a: Vector, b: Vector) -> float:
    """a·b, in four sums and a tail: the same numbers on every machine."""
    d = a.shape[0]
    four = splat_four(0.0)
    whole = d - d % 4
    for i in range(0, whole, 4):
        four = fma(load_four(a, i), load_four(b, i), four)
    total = add_up(four)
    for i in range(whole, d):
        total = fma(a[i], b[i], total)
    return total


@kernel(inline="late")
def multiply(matrix: Matrix, vector: Vector, out: Vector) -> None:
    """out = matrix·vector for a symmetric matrix, without allocating. `out` is another array than `vector`."""
    d = vector.shape[0]
    if d < WIDTH:
        for i in range(d):
            total = 0.0
            for k in range(d):
                total = fma(matrix[k, i], vector[k], total)
            out[i] = total
    elif d < LONG:
        last = d - WIDTH  # strips may overlap: what is written twice is the same
        for j in range(0, d, 3 * WIDTH):
            first, second, third = min(j, last), min(j + WIDTH, last), min(j + 2 * WIDTH, last)
            a = b = c = splat(0.0)
            for k in range(d):
                row, entry = k * d, splat(vector[k])
                a = fma(load(matrix, row + first), entry, a)
                b = fma(load(matrix, row + second), entry, b)
                c = fma(load(matrix, row + third), entry, c)
            store(out, first, a)
            store(out, second, b)
            store(out, third, c)
    else:
        _multiply_long(matrix, vector, out)


@kernel
def _multiply_long(matrix: Matrix, vector: Vector, out: Vector) -> None:
    """The same sums in the same order, four rows at a time."""
    d = vector.shape[0]
    out[:] = 0.0
    whole, last = d - d % 4, d - d % WIDTH
    for k in range(0, whole, 4):
        row, x0, x1, x2, x3 = k * d, vector[k], vector[k + 1], vector[k + 2], vector[k + 3]
        s0, s1, s2, s3 = splat(x0), splat(x1), splat(x2), splat(x3)
        for j in range(0, last, WIDTH):
            total = fma(load(matrix, row + j), s0, load(out, j))
            total = fma(load(matrix, row + d + j), s1, total)
            total = fma(load(matrix, row + 2 * d + j), s2, total)
            store(out, j, fma(load(matrix, row + 3 * d + j), s3, total))
        for j in range(last, d):
            one = fma(matrix[k + 1, j], x1, fma(matrix[k, j], x0, out[j]))
            out[j] = fma(matrix[k + 3, j], x3, fma(matrix[k + 2, j], x2, one))
    for k in range(whole, d):
        for j in range(d):
            out[j] = fma(matrix[k, j], vector[k], out[j])


@kernel(inline="late")
def add_outer(matrix: Matrix, factor: float, left: Vector, right: Vector) -> None:
    """matrix ← matrix + factor·left·rightᵀ."""
    n, d = left.shape[0], right.shape[0]
    if d < WIDTH:
        for i in range(n):
            scaled = factor * left[i]
            for k in range(d):
                matrix[i, k] = fma(scaled, right[k], matrix[i, k])
        return
    whole, last = d - d % WIDTH, d - WIDTH
    tail = load(right, last)
    for i in range(n):
        row = i * d
        entry = splat(factor * left[i])
        end = fma(entry, tail, load(matrix, row + last))  # from the old numbers; overlaps what is written before it
        for k in range(0, whole, WIDTH):
            store(matrix, row + k, fma(entry, load(right, k), load(matrix, row + k)))
        store(matrix, row + last, end)


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
        sums, rest = _kept_sum(load(gram, i), load(low, i), load(terms, i))
        store(gram, i, sums)
        store(low, i, rest)
    for i in range(last, d * d):
        row, k = i // d, i % d
        gram[row, k], low[row, k] = _kept_sum(gram[row, k], low[row, k], terms[i])


@kernel(inline="late")
def copy(matrix: Matrix, out: Matrix) -> None:
    """out = matrix."""
    for i in range(matrix.shape[0]):
        for k in range(matrix.shape[1]):
            out[i, k] = matrix[i, k]


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
def _kept_sum(total: Any, low: Any, term: Any) -> Any:
    """total + term, and `low` with what rounding lost of it."""
    new = plus(total, term)
    back = minus(new, total)
    return new, plus(low, plus(minus(total, minus(new, back)), minus(term, back)))


@kernel(inline="late")
def add_kept(total: Vector, low: Vector, factor: float, vector: Vector) -> None:
    """total ← total + factor·vector, with what rounding loses of it in `low`."""
    d = vector.shape[0]
    whole = d - d % WIDTH
    for i in range(0, whole, WIDTH):
        sums, rest = _kept_sum(load(total, i), load(low, i), times(load(vector, i), splat(factor)))
        store(total, i, sums)
        store(low, i, rest)
    for i in range(whole, d):
        total[i], low[i] = _kept_sum(total[i], low[i], vector[i] * factor)


@kernel(inline="always")
def add_reward(ridge: Ridge, x: Vector, reward: float, quadratic: float) -> None:
    """b ← b + xr and θ ← θ + v(r − xᵀθ)/(1 + xᵀA_old⁻¹x), right after `add_context`."""
    gain = (reward - dot(x, ridge.theta)) / (1.0 + quadratic)
    add_kept(ridge.moments, ridge.moments_low, reward, x)
    add_to(ridge.theta, gain, ridge.step)


@kernel(inline="late")
def add_to(total: Vector, factor: float, vector: Vector) -> None:
    d = vector.shape[0]
    whole = d - d % WIDTH
    for i in range(0, whole, WIDTH):
        store(total, i, fma(splat(factor), load(vector, i), load(total, i)))
    for i in range(whole, d):
        total[i] = fma(factor, vector[i], total[i])


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
    high, low = _kept_sum(high, low, product)
    return high, fma(entry_low, minus_theta, plus(low, error))


@kernel
def factor(matrix: Matrix, low: Matrix, out: Matrix) -> None:
    """The upper factor U of matrix + low = UᵀU; below the diagonal of `out` is nothing of use. `low` without rows stands for
    zeros. A pivot that rounding made non-positive is replaced by the smallest sensible one."""
    d = matrix.shape[0]
    two = low.shape[0] > 0
    for i in range(d):
        pivot = matrix[i, i]
        if two:
            pivot += low[i, i]
        for k in range(i):
            pivot = fma(-out[k, i], out[k, i], pivot)
        pivot = math.sqrt(max(pivot, matrix[i, i] * 1e-16, 1e-300))
        out[i, i] = pivot
        j, last = i + 1, d - WIDTH
        while j <= last:
            total = load(matrix, i * d + j)
            if two:
                total = plus(total, load(low, i * d + j))
            for k in range(i):
                total = fma(splat(-out[k, i]), load(out, k * d + j), total)
            store(out, i * d + j, over(total, splat(pivot)))
            j += WIDTH
        while j < d:
            rest = matrix[i, j]
            if two:
                rest += low[i, j]
            for k in range(i):
                rest = fma(-out[k, i], out[k, j], rest)
            out[i, j] = rest / pivot
            j += 1


@kernel
def invert_factor(factor: Matrix, out: Matrix) -> None:
    """out = (UᵀU)⁻¹ for an upper triangular U, exactly symmetric. Destroys `factor`."""
    d = factor.shape[0]
    # U⁻ᵀ, lower triangular, row by row.
    for i in range(d):
        width = 0 if d < WIDTH else i + 1 + (-(i + 1)) % WIDTH
        if width > d:
            width = d - d % WIDTH
        for j in range(0, width, WIDTH):
            total = splat(0.0)
            for k in range(j, i):
                total = fma(splat(-factor[k, i]), load(out, k * d + j), total)
            store(out, i * d + j, over(total, splat(factor[i, i])))
        for j in range(width, d):
            rest = 0.0
            for k in range(j, i):
                rest = fma(-factor[k, i], out[k, j], rest)
            out[i, j] = rest / factor[i, i]
        out[i, i] = 1.0 / factor[i, i]
    # The product of its transpose with it. Entries above the diagonal are zeros, which change no sum.
    whole = d - d % WIDTH
    for i in range(d):
        for j in range(0, whole, WIDTH):
            total = splat(0.0)
            for k in range(i, d):
                total = fma(splat(out[k, i]), load(out, k * d + j), total)
            store(factor, i * d + j, total)
        for j in range(whole, d):
            rest = 0.0
            for k in range(i, d):
                rest = fma(out[k, i], out[k, j], rest)
            factor[i, j] = rest
    copy(factor, out)


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
def solve_lower(factor: Matrix, vector: Vector, out: Vector) -> None:
    """out = L⁻¹·vector for a lower triangular L; `out` may be `vector`."""
    for i in range(vector.shape[0]):
        total = vector[i]
        for k in range(i):
            total -= factor[i, k] * out[k]
        out[i] = total / factor[i, i]


@kernel
def invert_lower(factor: Matrix, out: Matrix) -> None:
    """out = L⁻ᵀ for a lower triangular L, so that `multiply(out, x, y)`, which adds up rows, gives L⁻¹x."""
    d = factor.shape[0]
    for column in range(d):
        for i in range(column):
            out[column, i] = 0.0
        for i in range(column, d):
            total = 1.0 if i == column else 0.0
            for k in range(column, i):
                total -= factor[i, k] * out[column, k]
            out[column, i] = total / factor[i, i]


@kernel
def product(left: Matrix, right: Matrix, out: Matrix) -> None:
    """out = left·right; `out` is another matrix than either."""
    out[:] = 0.0
    add_product(1.0, left, right, out)


@kernel
def add_product(sign: float, left: Matrix, right: Matrix, out: Matrix) -> None:
    """out ← out + sign·left·right; `out` is another matrix than either."""
    rows, inner = left.shape
    columns = right.shape[1]
    whole = columns - columns % WIDTH
    for i in range(rows):
        for j in range(0, whole, WIDTH):
            total = load(out, i * columns + j)
            for k in range(inner):
                total = fma(splat(sign * left[i, k]), load(right, k * columns + j), total)
            store(out, i * columns + j, total)
        for j in range(whole, columns):
            rest = out[i, j]
            for k in range(inner):
                rest = fma(sign * left[i, k], right[k, j], rest)
            out[i, j] = rest


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


@kernel
def has_no_eigenvalue_above(matrix: Matrix, limit: float, work: Matrix) -> bool:
    """Whether all eigenvalues of a symmetric matrix lie below the limit, up to rounding: limit·1 − matrix has a factor."""
    return has_factor(matrix, -1.0, limit, work)


@kernel
def has_factor(matrix: Matrix, sign: float, shift: float, out: Matrix) -> bool:
    """Whether sign·matrix + shift·1 is positive definite; if so, its upper factor is in `out`."""
    d = matrix.shape[0]
    whole = d - d % WIDTH
    for i in range(d):
        start = i - i % WIDTH
        for j in range(start, whole, WIDTH):
            total = times(splat(sign), load(matrix, i * d + j))
            for k in range(i):
                total = fma(splat(-out[k, i]), load(out, k * d + j), total)
            store(out, i * d + j, total)
        for j in range(max(start, whole), d):
            rest = sign * matrix[i, j]
            for k in range(i):
                rest = fma(-out[k, i], out[k, j], rest)
            out[i, j] = rest
        # The shift on the diagonal comes last: it is the same for every row, and stays out of the vectors.
        pivot = out[i, i] + shift
        if not pivot > 0.0:
            return False
        pivot = math.sqrt(pivot)
        inverse = 1.0 / pivot
        for j in range(i + 1, d):
            out[i, j] *= inverse
        out[i, i] = pivot
    return True


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
