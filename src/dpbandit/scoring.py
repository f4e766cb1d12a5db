"""Compiled scoring: what an upper confidence bound says of every arm of a slate.

Arms are handled side by side, three vectors of them at a time: their contexts are packed so that each lane is an arm. The
inner loops then have nothing to add up across lanes, every arm's sums are taken in the same order whatever stands beside it,
and what is in work stays in registers and the first cache, for ten arms and for 10⁵. A⁻¹ is symmetric: half is enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.lanes import WIDTH, fma, larger, load, negative, plus, root, splat, store, times, transpose
from dpbandit.products import dot

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Slate = NDArray[np.int64]

# Arms that are packed together.
PACK = 3 * WIDTH


def new_work(dim: int) -> Vector:
    """Scratch for scoring contexts of this many features.

    >>> len(new_work(10)) > 10
    True
    """
    return np.zeros(PACK * (dim + 2))


@kernel(inline="late")
def pack(contexts: Matrix, shown: Slate, first: int, width: int, work: Vector) -> None:
    """Put arms first, first + 1, … into `work`, feature by feature: `width` of them, the last one again where none is left.

    `width` is a multiple of 4.
    """
    d, last = contexts.shape[1], shown.shape[0] - 1
    if d < 4:
        for lane in range(width):
            row = shown[min(first + lane, last)]
            for i in range(d):
                work[i * width + lane] = contexts[row, i]
        return
    for lane in range(0, width, 4):
        j = first + lane
        a, b = shown[min(j, last)] * d, shown[min(j + 1, last)] * d
        c, e = shown[min(j + 2, last)] * d, shown[min(j + 3, last)] * d
        for i in range(0, d - 3, 4):
            transpose(contexts, a + i, b + i, c + i, e + i, work, i * width + lane, width)
        i = d - 4  # overlaps the one before; what is written twice is the same
        transpose(contexts, a + i, b + i, c + i, e + i, work, i * width + lane, width)


@kernel(inline="late")
def score(
    inverse: Matrix, theta: Vector, contexts: Matrix, shown: Slate, alpha: float, work: Vector, out: Vector
) -> None:
    """UCB scores x·θ + α√(xᵀA⁻¹x) of the contexts in rows `shown`. `work` is from `new_work`."""
    arms = shown.shape[0]
    for first in range(0, arms, PACK):
        _score_pack(inverse, theta, contexts, shown, first, alpha, work, out)


@kernel(inline="late")
def score_about_mean(
    matrix: Matrix,
    theta: Vector,
    contexts: Matrix,
    shown: Slate,
    alpha: float,
    work: Vector,
    out: Vector,
    mean: Vector,
) -> None:
    """Scores x·θ + α√((x − x̄)ᵀM(x − x̄)) with x̄ the mean of the contexts shown, which ends up in `mean`.

    What all arms share cannot tell them apart, so its uncertainty is no reason to explore.
    """
    arms, d = shown.shape[0], theta.shape[0]
    whole, share = d - d % WIDTH, 1.0 / arms
    for i in range(0, whole, WIDTH):
        sums = splat(0.0)
        for j in range(arms):
            sums = plus(sums, load(contexts, shown[j] * d + i))
        store(mean, i, times(sums, splat(share)))
    for i in range(whole, d):
        total = 0.0
        for j in range(arms):
            total += contexts[shown[j], i]
        mean[i] = total * share
    middle = dot(mean, theta)
    for first in range(0, arms, PACK):
        width = WIDTH if arms - first <= WIDTH else PACK
        pack(contexts, shown, first, width, work)
        for i in range(d):
            centre = splat(-mean[i])
            for lane in range(0, width, WIDTH):
                store(work, i * width + lane, plus(load(work, i * width + lane), centre))
        _bounds(matrix, theta, width, alpha, middle, work)
        for j in range(first, min(first + width, arms)):
            out[j] = work[width * d + j - first]


@kernel(inline="late")
def _score_pack(
    inverse: Matrix,
    theta: Vector,
    contexts: Matrix,
    shown: Slate,
    first: int,
    alpha: float,
    work: Vector,
    out: Vector,
) -> None:
    arms = shown.shape[0]
    width = WIDTH if arms - first <= WIDTH else PACK
    pack(contexts, shown, first, width, work)
    _bounds(inverse, theta, width, alpha, 0.0, work)
    at = width * theta.shape[0] - first
    for j in range(first, min(first + width, arms)):
        out[j] = work[at + j]


@kernel(inline="late")
def _bounds(matrix: Matrix, theta: Vector, width: int, alpha: float, constant: float, work: Vector) -> None:
    """constant + x·θ + α√(xᵀMx) of the arms packed in `work`, behind them."""
    if width == WIDTH:
        _bounds_of_one(matrix, theta, alpha, constant, work)
    else:
        _bounds_of_three(matrix, theta, alpha, constant, work)


@kernel
def _bounds_of_three(matrix: Matrix, theta: Vector, alpha: float, constant: float, work: Vector) -> None:
    """Two rows of the matrix and three vectors of arms at a time: six sums at once hide how long each addition takes."""
    d, w = theta.shape[0], WIDTH
    zero = splat(0.0)
    q0 = q1 = q2 = zero  # half of xᵀMx
    m0 = m1 = m2 = splat(constant)
    even = d - d % 2
    for i in range(0, even, 2):
        a0 = a1 = a2 = b0 = b1 = b2 = zero
        at = 0
        for k in range(i):
            e, f = splat(matrix[i, k]), splat(matrix[i + 1, k])
            x = load(work, at)
            a0, b0 = fma(e, x, a0), fma(f, x, b0)
            x = load(work, at + w)
            a1, b1 = fma(e, x, a1), fma(f, x, b1)
            x = load(work, at + 2 * w)
            a2, b2 = fma(e, x, a2), fma(f, x, b2)
            at += 3 * w
        e, f, g = splat(0.5 * matrix[i, i]), splat(matrix[i + 1, i]), splat(0.5 * matrix[i + 1, i + 1])
        s, t = splat(theta[i]), splat(theta[i + 1])
        x, y = load(work, at), load(work, at + 3 * w)
        q0 = fma(fma(g, y, fma(f, x, b0)), y, fma(fma(e, x, a0), x, q0))
        m0 = fma(t, y, fma(s, x, m0))
        x, y = load(work, at + w), load(work, at + 4 * w)
        q1 = fma(fma(g, y, fma(f, x, b1)), y, fma(fma(e, x, a1), x, q1))
        m1 = fma(t, y, fma(s, x, m1))
        x, y = load(work, at + 2 * w), load(work, at + 5 * w)
        q2 = fma(fma(g, y, fma(f, x, b2)), y, fma(fma(e, x, a2), x, q2))
        m2 = fma(t, y, fma(s, x, m2))
    at = 3 * w * even
    if even < d:
        a0 = a1 = a2 = zero
        for k in range(even):
            e = splat(matrix[even, k])
            a0 = fma(e, load(work, 3 * w * k), a0)
            a1 = fma(e, load(work, 3 * w * k + w), a1)
            a2 = fma(e, load(work, 3 * w * k + 2 * w), a2)
        e, s = splat(0.5 * matrix[even, even]), splat(theta[even])
        x, y, z = load(work, at), load(work, at + w), load(work, at + 2 * w)
        q0, q1, q2 = fma(fma(e, x, a0), x, q0), fma(fma(e, y, a1), y, q1), fma(fma(e, z, a2), z, q2)
        m0, m1, m2 = fma(s, x, m0), fma(s, y, m1), fma(s, z, m2)
        at += 3 * w
    e = splat(alpha)
    store(work, at, fma(e, root(larger(plus(q0, q0), zero)), m0))
    store(work, at + w, fma(e, root(larger(plus(q1, q1), zero)), m1))
    store(work, at + 2 * w, fma(e, root(larger(plus(q2, q2), zero)), m2))


@kernel
def _bounds_of_one(matrix: Matrix, theta: Vector, alpha: float, constant: float, work: Vector) -> None:
    """The same sums, in the same order, for one vector of arms: four rows of the matrix at a time."""
    d, w = theta.shape[0], WIDTH
    zero = splat(0.0)
    q, m = zero, splat(constant)
    whole = d - d % 4
    for i in range(0, whole, 4):
        a = b = c = e = zero
        for k in range(i):
            x = load(work, w * k)
            a, b = fma(splat(matrix[i, k]), x, a), fma(splat(matrix[i + 1, k]), x, b)
            c, e = fma(splat(matrix[i + 2, k]), x, c), fma(splat(matrix[i + 3, k]), x, e)
        x, y = load(work, w * i), load(work, w * (i + 1))
        z, u = load(work, w * (i + 2)), load(work, w * (i + 3))
        b = fma(splat(matrix[i + 1, i]), x, b)
        c = fma(splat(matrix[i + 2, i + 1]), y, fma(splat(matrix[i + 2, i]), x, c))
        e = fma(splat(matrix[i + 3, i + 1]), y, fma(splat(matrix[i + 3, i]), x, e))
        e = fma(splat(matrix[i + 3, i + 2]), z, e)
        q = fma(fma(splat(0.5 * matrix[i, i]), x, a), x, q)
        q = fma(fma(splat(0.5 * matrix[i + 1, i + 1]), y, b), y, q)
        q = fma(fma(splat(0.5 * matrix[i + 2, i + 2]), z, c), z, q)
        q = fma(fma(splat(0.5 * matrix[i + 3, i + 3]), u, e), u, q)
        m = fma(splat(theta[i + 1]), y, fma(splat(theta[i]), x, m))
        m = fma(splat(theta[i + 3]), u, fma(splat(theta[i + 2]), z, m))
    for i in range(whole, d):
        a, x = zero, load(work, w * i)
        for k in range(i):
            a = fma(splat(matrix[i, k]), load(work, w * k), a)
        q = fma(fma(splat(0.5 * matrix[i, i]), x, a), x, q)
        m = fma(splat(theta[i]), x, m)
    store(work, w * d, fma(splat(alpha), root(larger(plus(q, q), zero)), m))


@kernel
def image_sizes(matrix: Matrix, absolute: bool, work: Vector) -> None:
    """‖Mx‖ of the PACK arms packed in `work`, behind them: in L1 if `absolute`, else in L2. M is symmetric."""
    d, w = matrix.shape[0], WIDTH
    s0 = s1 = s2 = splat(0.0)
    for i in range(0, d, 2):
        other = min(i + 1, d - 1)
        a0 = a1 = a2 = b0 = b1 = b2 = splat(0.0)
        for k in range(d):
            e, f = splat(matrix[i, k]), splat(matrix[other, k])
            x, y, z = load(work, 3 * w * k), load(work, 3 * w * k + w), load(work, 3 * w * k + 2 * w)
            a0, a1, a2 = fma(e, x, a0), fma(e, y, a1), fma(e, z, a2)
            b0, b1, b2 = fma(f, x, b0), fma(f, y, b1), fma(f, z, b2)
        s0, s1, s2 = _longer(s0, a0, absolute), _longer(s1, a1, absolute), _longer(s2, a2, absolute)
        if other > i:
            s0, s1, s2 = _longer(s0, b0, absolute), _longer(s1, b1, absolute), _longer(s2, b2, absolute)
    at = 3 * w * d
    if not absolute:
        s0, s1, s2 = root(s0), root(s1), root(s2)
    store(work, at, s0)
    store(work, at + w, s1)
    store(work, at + 2 * w, s2)


@kernel(inline="late")
def _longer(size: Any, entry: Any, absolute: bool) -> Any:
    if absolute:
        return plus(size, larger(entry, negative(entry)))
    return fma(entry, entry, size)
