"""One round of learning where contexts are private too (Shariff & Sheffet 2018): noise on sums of vvᵀ, v = (x; weighted reward).

A symmetric matrix is packed into the vector of its upper triangle, row by row, with √2 on what is off the diagonal: the vector's
L2 norm is then the matrix's Frobenius norm, and independent Gaussian noise on it is a Gaussian orthogonal ensemble.
v is divided by `√size`, so that ‖v‖ ≤ 1. Clean numbers live in `tree.sums` and, between `prepare` and `commit`, in `pending`;
everything else the learner keeps is made of noisy sums, and that is all that `choose` may look at.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit import factors, numerics, products, scoring
from dpbandit.bandits.rounds import serve
from dpbandit.compiled import kernel
from dpbandit.noise import WISHART
from dpbandit.release import tree as trees
from dpbandit.release.tree import Tree

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Tails of the noise that are bounded in every round (lowest and highest eigenvalue, moments, and for Wishart noise a length).
TAILS = 4.0


class Plan(NamedTuple):
    """The public choices of one bandit, fixed before the first round."""

    seat: int
    noise: int
    dim: int
    levels: int
    unknown_horizon: bool
    sensitivity: (
        float  # of one packed vvᵀ, ‖v‖ ≤ 1: √2 for Gaussian noise; 1 for Wishart noise, whose scale is its degrees
    )
    multipliers: Vector  # noise scale per unit of sensitivity, by the number of levels that share the budget
    size: float  # the largest squared norm of (x; weighted reward)
    reward_weight: float  # what the reward is multiplied by
    reward_centre: float  # what is subtracted from it before
    ridge: float
    max_norm: float
    shift: float  # regulariser added, in units of the bound on the noise's lowest eigenvalue
    log_rounds: float  # log(4T/ζ) for a known horizon, log(4/ζ) for an unknown one
    context_noise: float


class Learner(NamedTuple):
    """Everything that changes as a bandit learns. Clean, so for the trusted side only: `tree.sums`."""

    tree: Tree
    theta: Vector  # the released parameter
    inverse: Matrix  # of `gram`
    gram: Matrix  # noisy sum of xxᵀ, shifted, eigenvalues raised where they are too low
    moments: Vector  # noisy sum of x·reward
    pending: Vector
    item: Vector  # scratch, like the next three
    row: Vector
    prefix: Vector
    work: Matrix
    clock: NDArray[np.int64]  # rewards learned; decisions made; releases whose eigenvalues had to be raised


def entries(dim: int) -> int:
    """How many numbers a packed matrix of (x; reward)(x; reward)ᵀ has.

    >>> entries(2)
    6
    """
    return (dim + 1) * (dim + 2) // 2


def new_learner(plan: Plan, horizon: int | None) -> Learner:
    """A learner that has seen nothing."""
    d, packed = plan.dim, entries(plan.dim)
    return Learner(
        trees.new_tree(packed, horizon),
        np.zeros(d),
        np.eye(d) / plan.ridge,
        np.eye(d) * plan.ridge,
        np.zeros(d),
        np.zeros(packed),
        np.zeros(packed),
        np.zeros(d + 1),
        np.zeros(packed),
        np.zeros((2 * d, d)),
        np.zeros(3, dtype=np.int64),
    )


@kernel
def reset(learner: Learner, plan: Plan) -> None:
    """Forget everything, in place."""
    learner.tree.sums[:] = 0.0
    learner.tree.noisy[:] = 0.0
    learner.tree.carry[:] = 0.0
    learner.theta[:] = 0.0
    learner.inverse[:] = 0.0
    learner.gram[:] = 0.0
    for i in range(plan.dim):
        learner.inverse[i, i] = 1.0 / plan.ridge
        learner.gram[i, i] = plan.ridge
    learner.moments[:] = 0.0
    learner.pending[:] = 0.0
    learner.item[:] = 0.0
    learner.row[:] = 0.0
    learner.clock[:] = 0


@kernel(inline="always")
def begin(learner: Learner, plan: Plan, key: np.uint64) -> None:
    """Nothing happens before a reward is looked at: there is no pan-private form."""


@kernel
def pack(v: Vector, out: Vector) -> None:
    """vvᵀ as a vector: its upper triangle row by row, √2 on what is off the diagonal.

    >>> packed = np.zeros(3)
    >>> pack(np.array([3.0, 4.0]), packed)
    >>> packed.round(6).tolist(), round(float(np.linalg.norm(packed)), 6)  # ‖vvᵀ‖ = ‖v‖²
    ([9.0, 16.970563, 16.0], 25.0)
    """
    at = 0
    for i in range(v.shape[0]):
        out[at] = v[i] * v[i]
        at += 1
        for j in range(i + 1, v.shape[0]):
            out[at] = math.sqrt(2.0) * v[i] * v[j]
            at += 1


@kernel(inline="always")
def prepare(learner: Learner, plan: Plan, x: Vector, reward: float, known: bool) -> float:
    """Learn from one context and clipped reward; the clean sum of a node is then in `pending`. Returns its noise scale."""
    d = plan.dim
    t = learner.clock[0] + 1
    learner.clock[0] = t
    row, item = learner.row, learner.item
    factor = 1.0 / math.sqrt(plan.size)
    for i in range(d):
        row[i] = x[i] * factor
    row[d] = (reward - plan.reward_centre) * plan.reward_weight * factor
    pack(row, item)
    trees.add(learner.tree, t, plan.unknown_horizon, item, learner.pending)
    item[:] = 0.0  # no clean term stays in memory
    row[:] = 0.0
    _index, _level, levels = trees.place(t, plan.unknown_horizon, plan.levels)
    return plan.multipliers[levels] * plan.sensitivity


@kernel
def amount(plan: Plan, t: int) -> float:
    """How much noise the sum at round t carries: the variance per packed entry, or the degrees of freedom for Wishart noise.

    Public: it follows from the round and the plan alone.
    """
    power = 1 if plan.noise == WISHART else 2
    index, _level, levels = trees.place(t, plan.unknown_horizon, plan.levels)
    nodes = 0
    while index > 0:
        index &= index - 1  # without its lowest bit
        nodes += 1
    total = nodes * (plan.multipliers[levels] * plan.sensitivity) ** power
    if plan.unknown_horizon:
        for block in range(levels - 1):  # each finished block is one node
            total += (plan.multipliers[block + 1] * plan.sensitivity) ** power
    return total


@kernel
def deviation(plan: Plan, t: int) -> float:
    """√(2·log(4/ζ_t)): how many standard deviations bound one tail in round t, ζ_t = ζ/T, or ζ/(t(t + 1)) without a horizon."""
    log = plan.log_rounds
    if plan.unknown_horizon:
        log += math.log(float(t)) + math.log(t + 1.0)
    return math.sqrt(2.0 * log)


@kernel
def lowest(plan: Plan, t: int) -> float:
    """The noise on Σxxᵀ (its mean removed, in units of `size`) has no eigenvalue below minus this, but with probability ζ_t/4.

    Gaussian: σ(√(2d) + √(2 log)), by Sudakov–Fernique for the mean and Lipschitz concentration (docs/privacy.md).
    Wishart with K degrees: K − (√K − √d − √(2 log))² (Davidson & Szarek 2001).
    """
    total, tail, root = amount(plan, t), deviation(plan, t), math.sqrt(plan.dim)
    if plan.noise == WISHART:
        return total - max(math.sqrt(total) - root - tail, 0.0) ** 2
    return math.sqrt(total) * (math.sqrt(2.0) * root + tail)


@kernel
def highest(plan: Plan, t: int) -> float:
    """The same for the largest eigenvalue."""
    total, tail, root = amount(plan, t), deviation(plan, t), math.sqrt(plan.dim)
    if plan.noise == WISHART:
        return 0.0 if total == 0.0 else (math.sqrt(total) + root + tail) ** 2 - total
    return math.sqrt(total) * (math.sqrt(2.0) * root + tail)


@kernel
def commit(learner: Learner, plan: Plan, noisy: Vector) -> None:
    """Turn the noisy node into the noisy Gram matrix and moments, and these into the released parameter."""
    d = plan.dim
    t = learner.clock[0]
    prefix, gram = learner.prefix, learner.gram
    trees.publish(learner.tree, t, plan.unknown_horizon, noisy, prefix)
    learner.pending[:] = 0.0
    shift = plan.ridge + plan.size * plan.shift * lowest(plan, t)
    if plan.noise == WISHART:
        shift -= plan.size * amount(plan, t)  # its mean is known
    off = plan.size / math.sqrt(2.0)
    at = 0
    for i in range(d):
        gram[i, i] = plan.size * prefix[at] + shift
        at += 1
        for j in range(i + 1, d):
            gram[i, j] = off * prefix[at]
            gram[j, i] = gram[i, j]
            at += 1
        learner.moments[i] = off * prefix[at] / plan.reward_weight
        at += 1
    # Eigenvalues that the noise took below ridge/2 are raised to it: more often than expected only if ζ was too large.
    least = 0.5 * plan.ridge
    if not _inverted(gram, least, learner.inverse, learner.work[:d]):
        learner.clock[2] += 1
        _raise_eigenvalues(gram, learner.inverse, learner.work, least)
    products.multiply(learner.inverse, learner.moments, learner.theta)


@kernel
def _inverted(matrix: Matrix, least: float, out: Matrix, work: Matrix) -> bool:
    """out = matrix⁻¹; False if an eigenvalue of the matrix is below `least`."""
    if not factors.has_factor(matrix, 1.0, 0.0, work):
        return False
    factors.invert_factor(work, out)
    trace = 0.0
    for i in range(matrix.shape[0]):
        trace += out[i, i]
    # 1/trace is a lower bound on all eigenvalues, and nearly always enough.
    return trace * least < 1.0 or factors.has_factor(matrix, 1.0, -least, work)


@kernel
def _raise_eigenvalues(matrix: Matrix, inverse: Matrix, work: Matrix, least: float) -> None:
    """Eigenvalues of the matrix below `least` become `least`, in place, and `inverse` its inverse."""
    d = matrix.shape[0]
    rotated, vectors = work[:d], work[d:]
    size = 0.0
    for i in range(d):
        for j in range(d):
            rotated[i, j] = matrix[i, j]
            vectors[i, j] = 1.0 if i == j else 0.0
            size += matrix[i, j] * matrix[i, j]
    factors.diagonalise(rotated, vectors, 1e-30 * size)
    for i in range(d):
        for j in range(i + 1):
            total, reciprocal = 0.0, 0.0
            for k in range(d):
                eigenvalue = max(rotated[k, k], least)
                product = vectors[i, k] * vectors[j, k]
                total += product * eigenvalue
                reciprocal += product / eigenvalue
            matrix[i, j] = matrix[j, i] = total
            inverse[i, j] = inverse[j, i] = reciprocal


@kernel(inline="late")
def choose(
    learner: Learner,
    plan: Plan,
    contexts: Matrix,
    shown: NDArray[np.int64],
    alpha: float,
    work: Vector,
    scores: Vector,
    key: np.uint64,
) -> int:
    """The arm to play among the contexts shown, by the noisy Gram matrix and moments alone."""
    index = learner.clock[1]
    learner.clock[1] = index + 1
    scoring.score(learner.inverse, learner.theta, contexts, shown, alpha, work, scores)
    return numerics.pick(scores, key, index)


@kernel(inline="always")
def quiet(learner: Learner, plan: Plan, x: Vector) -> bool:
    """Never: every round is released."""
    return False


serve(Plan, reset=reset, begin=begin, prepare=prepare, commit=commit, choose=choose, quiet=quiet)
