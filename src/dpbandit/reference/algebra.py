"""Factors and inverses that never fail, whatever rounding left of a matrix.

They come after noise was drawn: an error that its value decides would tell of it, and the same reward
would be given noise anew. As in the core, a pivot that rounding made 0 or less is replaced by the
smallest sensible one; what is not finite stays so. Learners may not call `numpy.linalg` for this
(a test looks).
"""

from __future__ import annotations

import numpy as np

from dpbandit.types import Matrix, Vector


def factor(m: Matrix) -> Matrix:
    """Lower L with LLᵀ = m, for a symmetric m that is positive definite but for rounding.

    >>> factor(np.array([[4.0, 2.0], [2.0, 1.0]])).tolist()  # singular: ordinary ones raise
    [[2.0, 0.0], [1.0, 1e-08]]
    """
    try:
        return np.asarray(np.linalg.cholesky(m))
    except np.linalg.LinAlgError:
        return _with_pivots(m)


def _with_pivots(m: Matrix) -> Matrix:
    found = np.zeros_like(m)
    with np.errstate(all="ignore"):
        for i in range(len(m)):
            rest = m[i:, i] - found[i:, :i] @ found[i, :i]
            pivot = np.sqrt(np.fmax(rest[0], np.fmax(m[i, i] * 1e-16, 1e-300)))
            found[i:, i] = rest / pivot
            found[i, i] = pivot
    return found


def below(lower: Matrix, right: Matrix | Vector) -> Matrix:
    """L⁻¹·right for a lower triangle."""
    try:
        return np.asarray(np.linalg.solve(lower, right), dtype=np.float64)
    except np.linalg.LinAlgError:
        found = np.array(right, dtype=np.float64)
        with np.errstate(all="ignore"):
            for i in range(len(lower)):
                found[i] = (found[i] - lower[i, :i] @ found[:i]) / lower[i, i]
        return found


def inverse(m: Matrix) -> Matrix:
    """m⁻¹, for a symmetric m that is positive definite but for rounding.

    Symmetric to the last bit, as the core's: noise is scaled to a bound on rows, and what is released
    is made of columns. Of a nearly singular m NumPy's own differ by far more than rounding.
    """
    try:
        found = np.linalg.inv(m)
    except np.linalg.LinAlgError:
        half = below(_with_pivots(m), np.eye(len(m)))
        found = half.T @ half
    return np.asarray(0.5 * found + 0.5 * found.T)


def inverse_if_positive(m: Matrix) -> Matrix | None:
    """m⁻¹ for a symmetric m; None if it is not positive definite."""
    try:
        np.linalg.cholesky(m)
        return np.asarray(np.linalg.inv(m))
    except np.linalg.LinAlgError:
        return None


def inverse_of_lower(lower: Matrix) -> Matrix:
    """L⁻¹ for a lower triangle."""
    try:
        return np.asarray(np.linalg.inv(lower))
    except np.linalg.LinAlgError:
        return below(lower, np.eye(len(lower)))


def solved(m: Matrix, right: Matrix | Vector) -> Matrix:
    """m⁻¹·right, for a symmetric m that is positive definite but for rounding."""
    try:
        return np.asarray(np.linalg.solve(m, right))
    except np.linalg.LinAlgError:
        return inverse(m) @ right


def eigen(m: Matrix) -> tuple[Vector, Matrix]:
    """Eigenvalues and eigenvectors of a symmetric m; NaN where there are none."""
    try:
        values, vectors = np.linalg.eigh(m)
        return values, vectors
    except np.linalg.LinAlgError:
        return np.full(len(m), np.nan), np.full(m.shape, np.nan)
