"""How far a release can move when one reward moves from one end of its range to the other.

Three answers: a constant for noise on moments; Lemma 1 of the paper, which shrinks like 1/t and
rests on an assumption about the contexts; and what the public matrix A_t itself says, which needs
no assumption. Nothing here may look at a reward."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.errors import OptionError, ShapeError, nearest
from dpbandit.privacy.grid import STEP

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Norm = Literal[1, 2]

FORMS = ("figure", "simplified", "full")

# Norms of contexts are checked to 1e-9, and items are products of a few floats.
CHECKED = 2e-9
# What rounding can take off a computed length, and more.
SLACK = 1.0 + 1e-9


def constant(
    *,
    reward_width: float,
    max_norm: float,
    dim: int,
    norm: Norm,
    public_contexts: Matrix | None = None,
) -> float:
    """Sensitivity of Σ x r: reward_width · the longest context, in L1 or L2.

    Without public contexts the L1 norm is bounded by √d · max_norm.

    >>> constant(reward_width=2.0, max_norm=1.0, dim=4, norm=2)
    2.0
    >>> constant(reward_width=2.0, max_norm=1.0, dim=4, norm=1)
    4.0
    >>> known = np.array([[0.6, 0.8]])
    >>> constant(reward_width=2.0, max_norm=1.0, dim=2, norm=1, public_contexts=known)
    2.8
    """
    bound = max_norm * (math.sqrt(dim) if norm == 1 else 1.0)
    if public_contexts is not None:
        bound = min(bound, float(np.linalg.norm(public_contexts, ord=norm, axis=1).max()))
    return reward_width * bound


def on_grid(one: float, *, dim: int, norm: Norm) -> float:
    """How far an item in whole numbers of STEP can move, where exact arithmetic would move it by
    `one`.

    Both ends are rounded, each by half a step in every coordinate: √d steps in L2, d in L1.

    >>> 1 < on_grid(1.0, dim=100, norm=2) < 1 + 3e-9
    True
    """
    return one * (1 + CHECKED) + STEP * (dim if norm == 1 else math.sqrt(dim))


def smallest_eigenvalue_bound(
    t: float, form: str, smallest_eigenvalue: float, delta: float
) -> float:
    """λ'(t), the paper's high-probability lower bound on λ_min(A_t); not positive where it says
    nothing.

    Full: λ₀t/4 − 8 log((t+3)/δ) − 2√(t log((t+3)/δ)). Simplified: λ₀t/16 from t > 32 log(1/δ)/λ₀
    on."""
    if form == "full":
        log = math.log((t + 3.0) / delta)
        return smallest_eigenvalue * t / 4.0 - 8.0 * log - 2.0 * math.sqrt(t * log)
    if form == "simplified":
        begins = 32.0 * math.log(1.0 / delta) / smallest_eigenvalue
        return smallest_eigenvalue * t / 16.0 if t > begins else 0.0
    raise OptionError(f"no bound on eigenvalues is called {form!r}: {nearest(form, FORMS[1:])}")


def lemma1(
    t: float,
    form: str,
    smallest_eigenvalue: float,
    delta: float,
    width_times_norm: float,
    ridge: float,
) -> float:
    """Δ_t as published: reward_width·max_norm/λ'(t), never above reward_width·max_norm/ridge, which
    always holds because λ_min(A_t) ≥ ridge. The form 'figure' is 1/t, behind the published figures.

    >>> lemma1(50.0, "figure", 1.0, 0.1, 2.0, 1.0)
    0.02
    """
    if form == "figure":
        return 1.0 / t
    eigenvalue = smallest_eigenvalue_bound(t, form, smallest_eigenvalue, delta)
    return width_times_norm / max(eigenvalue, ridge)


def observed(inverse: Matrix, arms: Matrix, max_norm: float, norm: Norm) -> float:
    """max ‖A⁻¹x‖ over the known arms, or over the ball of radius max_norm when `arms` is empty.

    A and the arms are public and fixed before the noise is drawn, so this needs no assumption on
    contexts.

    >>> round(observed(np.diag([0.5, 0.25]), np.empty((0, 2)), 1.0, 2), 6)
    0.5
    """
    if len(arms) == 0:
        largest = float(np.linalg.eigvalsh(inverse)[-1]) * max_norm
        return largest * SLACK * (math.sqrt(len(inverse)) if norm == 1 else 1.0)
    return float(np.linalg.norm(arms @ inverse, ord=norm, axis=1).max()) * SLACK


def growth(
    x: Vector, step: Vector, quadratic: float, max_norm: float, norm: Norm
) -> tuple[float, float]:
    """By what the addition of xxᵀ can at most have multiplied ‖A⁻¹z‖, and how far it can have moved
    it, if ‖z‖₂ ≤ max_norm: with these an old maximum over arms still gives a bound.

    The new A⁻¹z is (1 − vxᵀ/(1 + q))·(the old one), v = `step` = A⁻¹x, q = `quadratic` = xᵀA⁻¹x.
    With a = ‖v‖‖x‖/(1 + q) the norm of that matrix is (a + √(a² + 4/(1 + q)))/2 (its singular
    values off 1 have the product 1/(1 + q) and the squares' sum a² + 2/(1 + q)); in L1 it is the
    largest column's sum. It also moves A⁻¹z by at most ‖v‖‖v‖₂·max_norm/(1 + q)."""
    inside = 1.0 / (1.0 + quadratic)
    length, total = float(np.linalg.norm(step)), float(np.abs(step).sum())
    if norm == 1:
        columns = np.abs(1.0 - step * inside * x) + np.abs(x) * inside * (total - np.abs(step))
        return max(float(columns.max()), 1.0), total * length * max_norm * inside
    a = length * float(np.linalg.norm(x)) * inside
    factor = 0.5 * (a + math.sqrt(a * a + 4.0 * inside))
    return max(factor, 1.0), length * length * max_norm * inside


def estimate_bounds(contexts: ArrayLike) -> tuple[float, float]:
    """L and λ₀ from sample contexts: the longest norm, and the least eigenvalue of the mean of xxᵀ.

    Contexts are public, so this costs nothing; it is an estimate, not a bound on contexts yet to
    come.

    Raises
    ------
    ShapeError, OptionError
        If the sample is not an array of shape (n, d) of finite numbers with n ≥ 1.

    >>> estimate_bounds([[1.0, 0.0], [0.0, 1.0]])
    (1.0, 0.5)
    """
    sample = np.asarray(contexts, dtype=np.float64)
    if sample.ndim != 2 or len(sample) == 0:
        raise ShapeError(
            f"sample contexts must be an array of shape (n, d) with n ≥ 1, not {sample.shape}"
        )
    if not np.isfinite(sample).all():
        raise OptionError("sample contexts hold NaN or infinity: give finite numbers")
    longest = float(np.linalg.norm(sample, axis=1).max())
    return longest, max(float(np.linalg.eigvalsh(sample.T @ sample / len(sample))[0]), 0.0)
