"""How far a release can move when one reward moves from one end of its range to the other.

Three answers: a constant for noise on moments; Lemma 1 of the paper, which shrinks like 1/t and rests on an
assumption about the contexts; and what the public matrix A_t itself says, which needs no assumption.
Nothing here may look at a reward.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.compiled import kernel
from dpbandit.errors import OptionError, ShapeError
from dpbandit.factors import has_no_eigenvalue_above, largest_eigenvalue
from dpbandit.products import dot, multiply
from dpbandit.scoring import PACK, image_sizes, new_work, pack

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

FIGURE, SIMPLIFIED, FULL = 0, 1, 2
FORMS = {"figure": FIGURE, "simplified": SIMPLIFIED, "full": FULL}

# By how much a bound that is not computed anew may exceed what it bounds: noise that is 2% larger on average is hardly seen.
TOO_LARGE = 0.05
# It is computed anew when rounds have grown by this factor (A⁻¹ shrinks about as 1/t), or when it may be twice too large.
LATER = 1.05
MUCH_TOO_LARGE = 0.5
# Rounds in which the ball's eigenvalue is computed itself.
EARLY = 20.0
# What rounding can take off a computed length, and more.
SLACK = 1.0 + 1e-9


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
        largest = largest_eigenvalue(inverse, work) * max_norm * SLACK
        return largest * math.sqrt(d) if norm == 1 else largest
    worst = 0.0
    y = work[0]
    for j in range(arms.shape[0]):
        multiply(inverse, arms[j], y)
        size = 0.0
        for i in range(d):
            size += abs(y[i]) if norm == 1 else y[i] * y[i]
        worst = max(worst, size)
    return (worst if norm == 1 else math.sqrt(worst)) * SLACK


class Watch(NamedTuple):
    """What `observed_lazily` remembers between rounds; all of it is public."""

    # The bound when it was last computed; its growth since; growth since all arms were computed; the largest arm; how far any
    # can have moved since the bound was computed, up or down; rounds; rounds when it was computed; 1 if A⁻¹ is another since.
    largest: Vector
    sizes: Vector  # for each arm ‖A⁻¹x‖ when it was last computed, over the growth until then
    todo: NDArray[np.int64]  # scratch, like the next
    work: Vector


def new_watch(dim: int, arms: int) -> Watch:
    """A memory of nothing yet.

    >>> new_watch(3, 20).sizes.shape
    (20,)
    """
    return Watch(np.zeros(8), np.zeros(arms), np.zeros(PACK, dtype=np.int64), new_work(dim))


@kernel
def distrust(watch: Watch) -> None:
    """A⁻¹ is not the old one updated, but computed anew: what is remembered no longer bounds it to the last digit."""
    watch.largest[7] = 1.0


@kernel
def observed_lazily(
    inverse: Matrix,
    arms: Matrix,
    max_norm: float,
    norm: int,
    x: Vector,
    step: Vector,
    quadratic: float,
    watch: Watch,
    work: Matrix,
) -> float:
    """A valid bound on `observed`, brought up to date when it may have become more than 5% too large and t has grown by 5%, or
    when it may have become twice too large.

    `x` is the context added last, `step` = A_old⁻¹x and `quadratic` = xᵀA_old⁻¹x. Although A⁻¹ only shrinks as a matrix,
    ‖A⁻¹z‖ for one z can grow (docs/privacy.md has an example), so an old maximum over arms is no bound. But `growth` says by
    how much at most. Only arms that can have become the largest by now are computed anew, and most cannot.
    Over the ball an old maximum is a bound. `watch.largest` starts at 0; `distrust` says that A⁻¹ has been computed anew.
    """
    largest = watch.largest
    if arms.shape[0] == 0:
        return _over_the_ball(inverse, max_norm, norm, step, quadratic, largest, work)
    largest[5] += 1.0
    if largest[0] <= 0.0 or largest[7] > 0.0:
        largest[2] = 1.0
        largest[7] = 0.0
        watch.sizes[:] = math.inf
        _bring_up_to_date(inverse, arms, norm, watch)
    else:
        factor, moved = growth(x, step, quadratic, max_norm, norm)
        largest[1] *= min(factor, 1.0 + moved / (largest[0] * largest[1]))
        largest[2] *= factor
        largest[4] += moved
        if largest[1] > 1.0 + TOO_LARGE or _is_due(largest):
            _bring_up_to_date(inverse, arms, norm, watch)
    return largest[0] * largest[1]


@kernel(inline="late")
def _is_due(largest: Vector) -> bool:
    """Whether the bound may have become much too large, or a little and it is long ago that it was computed."""
    moved = largest[4] / largest[0]
    return moved > MUCH_TOO_LARGE or (moved > TOO_LARGE and largest[5] >= LATER * largest[6])


@kernel(inline="late")
def growth(x: Vector, step: Vector, quadratic: float, max_norm: float, norm: int) -> tuple[float, float]:
    """By what the addition of xxᵀ can at most have multiplied ‖A⁻¹z‖, and how far it can have moved it, if ‖z‖₂ ≤ max_norm.

    The new A⁻¹z is (1 − vxᵀ/(1 + q))·(the old one), v = `step`, q = `quadratic`. With a = ‖v‖‖x‖/(1 + q) the norm of that
    matrix is (a + √(a² + 4/(1 + q)))/2 (its singular values off 1 have the product 1/(1 + q) and the squares' sum
    a² + 2/(1 + q)); in L1 it is the largest column's sum. It also moves A⁻¹z by at most ‖v‖‖v‖₂·max_norm/(1 + q).
    """
    d = step.shape[0]
    inside = 1.0 / (1.0 + quadratic)
    square, length, total = 0.0, 0.0, 0.0
    for i in range(d):
        square += step[i] * step[i]
        length += x[i] * x[i]
        total += abs(step[i])
    moved = (total if norm == 1 else math.sqrt(square)) * math.sqrt(square) * max_norm * inside
    if norm == 1:
        factor = 0.0
        for i in range(d):
            column = abs(1.0 - step[i] * inside * x[i]) + abs(x[i]) * inside * (total - abs(step[i]))
            factor = max(factor, column)
    else:
        a = math.sqrt(square * length) * inside
        factor = 0.5 * (a + math.sqrt(a * a + 4.0 * inside))
    return max(factor, 1.0), moved


@kernel
def _bring_up_to_date(inverse: Matrix, arms: Matrix, norm: int, watch: Watch) -> None:
    """The largest ‖A⁻¹x‖ over all arms. Arms that cannot have become the largest are not looked at."""
    largest, sizes, todo = watch.largest, watch.sizes, watch.todo
    before = largest[2]
    todo[0] = int(largest[3])
    worst = _sizes_of(inverse, arms, norm, before, 1, 0.0, watch)
    count = 0
    for j in range(arms.shape[0]):
        if sizes[j] * before > worst:
            todo[count] = j
            count += 1
            if count == PACK:
                worst = _sizes_of(inverse, arms, norm, before, count, worst, watch)
                count = 0
    if count > 0:
        worst = _sizes_of(inverse, arms, norm, before, count, worst, watch)
    largest[0] = worst
    largest[1] = 1.0
    largest[4] = 0.0
    largest[6] = largest[5]


@kernel
def _sizes_of(inverse: Matrix, arms: Matrix, norm: int, before: float, count: int, worst: float, watch: Watch) -> float:
    """Compute ‖A⁻¹x‖ for the first arms of `watch.todo`; returns the largest of them and of `worst`."""
    work, todo = watch.work, watch.todo
    d = inverse.shape[0]
    for n in range(count, PACK):
        todo[n] = todo[0]
    pack(arms, todo, 0, PACK, work)
    image_sizes(inverse, norm == 1, work)
    for n in range(count):
        size = work[d * PACK + n] * SLACK
        watch.sizes[todo[n]] = size / before
        if size > worst:
            worst = size
            watch.largest[3] = float(todo[n])
    return worst


@kernel
def _over_the_ball(
    inverse: Matrix, max_norm: float, norm: int, step: Vector, quadratic: float, largest: Vector, work: Matrix
) -> float:
    """λ_max(A⁻¹)·max_norm. It only shrinks: by no more than ‖v‖²/(1 + q) a round, so when that adds up to 5%, it is time to try
    whether a bound 5% lower holds. A bound s does if s·1 − A⁻¹ has a Cholesky factor, which takes less than an eigenvalue."""
    d = inverse.shape[0]
    largest[5] += 1.0
    if largest[7] > 0.0:
        largest[7] = 0.0
        largest[0] *= SLACK
        if not has_no_eigenvalue_above(inverse, largest[0], work):
            largest[0] = 0.0
    if largest[0] <= 0.0:
        largest[0] = largest_eigenvalue(inverse, work) * SLACK
        largest[4] = 0.0
    else:
        largest[4] += dot(step, step) / (1.0 + quadratic)
        if _is_due(largest):
            largest[4] = 0.0
            largest[6] = largest[5]
            if largest[5] <= EARLY:
                largest[0] = largest_eigenvalue(inverse, work) * SLACK
            while has_no_eigenvalue_above(inverse, largest[0] * (1.0 - TOO_LARGE), work):
                largest[0] *= (1.0 - TOO_LARGE) * SLACK
    return largest[0] * max_norm * (math.sqrt(d) if norm == 1 else 1.0)


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
