"""Compiled factors, inverses and eigenvalues of small symmetric matrices."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.lanes import WIDTH, fma, load, over, plus, splat, store, times
from dpbandit.products import copy

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


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
