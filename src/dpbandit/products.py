"""Compiled products and sums of small vectors and matrices: the one place where this arithmetic is written.

Everything is in place and in a fixed order, so that whoever calls gets the same bits on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.lanes import WIDTH, add_up, fma, load, load_four, minus, plus, splat, splat_four, store, times

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# From this size on, matrices do not stay in the first cache: rows are read from end to end.
LONG = 64


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


@kernel(inline="late")
def copy(matrix: Matrix, out: Matrix) -> None:
    """out = matrix."""
    for i in range(matrix.shape[0]):
        for k in range(matrix.shape[1]):
            out[i, k] = matrix[i, k]


@kernel(inline="always")
def kept_sum(total: Any, low: Any, term: Any) -> Any:
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
        sums, rest = kept_sum(load(total, i), load(low, i), times(load(vector, i), splat(factor)))
        store(total, i, sums)
        store(low, i, rest)
    for i in range(whole, d):
        total[i], low[i] = kept_sum(total[i], low[i], vector[i] * factor)


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
