"""How far a release can move when one reward moves from one end of its range to the other.

Three answers: a constant for noise on moments; Lemma 1 of the paper, which shrinks like 1/t and rests on an
assumption about the contexts; and what the public matrix A_t itself says, which needs no assumption.
Nothing here may look at a reward.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.compiled import kernel
from dpbandit.errors import OptionError, ShapeError
from dpbandit.numerics import largest_eigenvalue

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

FIGURE, SIMPLIFIED, FULL = 0, 1, 2
FORMS = {"figure": FIGURE, "simplified": SIMPLIFIED, "full": FULL}


def constant(
    *, reward_width: float, max_norm: float, dim: int, norm: int, public_contexts: Matrix | None = None
) -> float:
    """Sensitivity of Σ x r: reward_width · the longest context, in L1 or L2.

    Without public contexts the L1 norm is bounded by √d · max_norm.

    >>> constant(reward_width=2.0, max_norm=1.0, dim=4, norm=2), constant(reward_width=2.0, max_norm=1.0, dim=4, norm=1)
    (2.0, 4.0)
    >>> constant(reward_width=2.0, max_norm=1.0, dim=2, norm=1, public_contexts=np.array([[0.6, 0.8]]))
    2.8
    """
    bound = max_norm * (math.sqrt(dim) if norm == 1 else 1.0)
    if public_contexts is not None:
        bound = min(bound, float(np.linalg.norm(public_contexts, ord=norm, axis=1).max()))
    return reward_width * bound


@kernel
def smallest_eigenvalue_bound(t: float, form: int, smallest_eigenvalue: float, delta: float) -> float:
    """λ'(t), the paper's high-probability lower bound on λ_min(A_t); not positive where it says nothing.

    Full: λ₀t/4 − 8 log((t+3)/δ) − 2√(t log((t+3)/δ)). Simplified: λ₀t/16 from t > 32 log(1/δ)/λ₀ on.
    """
    if form == FULL:
        log = math.log((t + 3.0) / delta)
        return smallest_eigenvalue * t / 4.0 - 8.0 * log - 2.0 * math.sqrt(t * log)
    if t > 32.0 * math.log(1.0 / delta) / smallest_eigenvalue:
        return smallest_eigenvalue * t / 16.0
    return 0.0


@kernel
def lemma1(
    t: float, form: int, smallest_eigenvalue: float, delta: float, width_times_norm: float, ridge: float
) -> float:
    """Δ_t as published: reward_width·max_norm / λ'(t), never above the cap reward_width·max_norm / ridge that always
    holds because λ_min(A_t) ≥ ridge. The form FIGURE is 1/t, the scale behind the published figures."""
    if form == FIGURE:
        return 1.0 / t
    cap = width_times_norm / ridge
    eigenvalue = smallest_eigenvalue_bound(t, form, smallest_eigenvalue, delta)
    if eigenvalue <= ridge:
        return cap
    return width_times_norm / eigenvalue


@kernel
def observed(inverse: Matrix, arms: Matrix, max_norm: float, norm: int, work: Matrix) -> float:
    """max ‖A⁻¹x‖ (L1 or L2) over the known arms, or over the ball of radius max_norm when `arms` is empty.

    A and the arms are public and fixed before the noise is drawn, so this needs no assumption on contexts.
    `work` is scratch of A's shape.
    """
    d = inverse.shape[0]
    if arms.shape[0] == 0:
        largest = largest_eigenvalue(inverse, work) * max_norm * (1.0 + 1e-9)
        return largest * math.sqrt(d) if norm == 1 else largest
    worst = 0.0
    y = work[0]
    for j in range(arms.shape[0]):
        for i in range(d):
            y[i] = 0.0
        for k in range(d):
            xk = arms[j, k]
            for i in range(d):
                y[i] += inverse[k, i] * xk
        size = 0.0
        for i in range(d):
            size += abs(y[i]) if norm == 1 else y[i] * y[i]
        worst = max(worst, size)
    return (worst if norm == 1 else math.sqrt(worst)) * (1.0 + 1e-9)


@kernel
def observed_lazily(
    inverse: Matrix,
    arms: Matrix,
    max_norm: float,
    norm: int,
    step: Vector,
    quadratic: float,
    memory: Vector,
    work: Matrix,
) -> float:
    """A valid bound on `observed`, recomputed only when it may have become more than 5% too large.

    `memory` is [last exact value, growth allowed for since]. With v = A_old⁻¹x_t (`step`) one update moves A⁻¹x by
    v(vᵀx)/(1 + xᵀA⁻¹x), at most ‖v‖‖v‖₂·max_norm/(1 + q). That growth must be added: although A⁻¹ only shrinks as a
    matrix, ‖A⁻¹x‖ for one x can grow (docs/privacy.md has an example), so an old maximum over arms is no bound.
    Over the ball it is one, and the same growth says how much of its shrinking may have been missed.
    """
    d = step.shape[0]
    square, total = 0.0, 0.0
    for i in range(d):
        square += step[i] * step[i]
        total += abs(step[i])
    size = total if norm == 1 else math.sqrt(square)
    memory[1] += size * math.sqrt(square) * max_norm / (1.0 + quadratic)
    if memory[0] <= 0.0 or memory[1] > 0.05 * memory[0]:
        memory[0] = observed(inverse, arms, max_norm, norm, work)
        memory[1] = 0.0
    if arms.shape[0] == 0:  # monotone over the ball
        return memory[0]
    return memory[0] + memory[1]


def estimate_bounds(contexts: ArrayLike) -> tuple[float, float]:
    """L and λ₀ from sample contexts: the longest norm, and the least eigenvalue of the mean of xxᵀ.

    Contexts are public, so this costs nothing; it is an estimate, not a bound on contexts yet to come.

    >>> estimate_bounds([[1.0, 0.0], [0.0, 1.0]])
    (1.0, 0.5)
    """
    sample = np.asarray(contexts, dtype=np.float64)
    if sample.ndim != 2 or len(sample) == 0:
        raise ShapeError(f"sample contexts must be an array of shape (n, d) with n ≥ 1, not {sample.shape}")
    if not np.isfinite(sample).all():
        raise OptionError("sample contexts hold NaN or infinity: give finite numbers")
    longest = float(np.linalg.norm(sample, axis=1).max())
    return longest, max(float(np.linalg.eigvalsh(sample.T @ sample / len(sample))[0]), 0.0)
