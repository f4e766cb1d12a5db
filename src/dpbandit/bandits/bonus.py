"""Lemma 2's α_t for each algorithm: LinUCB's confidence radius plus a bound on what the privacy noise adds to it.

The bound is each mechanism's own: the noise scales of the nodes in use at time t, a tail bound for their sum, and the
norm of A_t. Parameter seats take λ_min(A_t) from the paper's Lemma 1, which rests on its assumption about contexts; that
concerns how well they explore, never how private they are.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpbandit import theory
from dpbandit.bandits import rounds, steps
from dpbandit.bandits.options import Options
from dpbandit.errors import OptionError
from dpbandit.noise import GAUSSIAN, LAPLACE_L2
from dpbandit.release import toeplitz
from dpbandit.release.tree import tree_standard_error
from dpbandit.sensitivity import FIGURE, estimate_bounds, lemma1

Vector = NDArray[np.float64]


def theoretical(options: Options, plan: steps.Plan, t: Vector) -> Vector:
    """α_t in rounds t."""
    spread = options.reward_noise
    if plan.seat == rounds.REWARD:
        # Noise on a reward is more noise in the reward; Laplace noise counts by its standard deviation.
        sd = plan.sensitivity * plan.multipliers[1] * (1.0 if plan.noise == GAUSSIAN else math.sqrt(2))
        spread = math.hypot(spread, float(sd))
    radius = theory.confidence_radius(
        t,
        dim=options.dim,
        ridge=options.ridge,
        max_norm=options.max_norm,
        theta_norm=options.theta_norm,
        zeta=options.zeta,
        reward_noise=spread,
        noise=_noise_radius(options, plan, t),
    )
    return np.asarray(radius, dtype=np.float64)


def _noise_radius(options: Options, plan: steps.Plan, t: Vector) -> Vector:
    """A bound on ‖θ^p − θ̂‖ in A_t's norm that holds with probability 1 − ζ in each round."""
    if plan.seat < rounds.MOMENTS:
        return np.zeros_like(t)
    in_moments = plan.seat == rounds.MOMENTS
    eigenvalue = 1.0 if in_moments or plan.form == FIGURE else _smallest_eigenvalue(options)
    squares = _squares(options, plan, t, eigenvalue)
    log = math.log(2 * options.dim / options.zeta)
    # Per coordinate: √(2 log) standard deviations for a Gaussian; for Laplace, Chan et al. 2011, Lemma 2.8.
    tail = math.sqrt(2 * log) if plan.noise == GAUSSIAN else math.sqrt(8) * log
    if plan.noise == LAPLACE_L2:
        tail *= math.sqrt(options.dim + 1)  # a coordinate of K-norm noise has √(d + 1) times the spread
    if plan.pan_private:
        tail *= math.sqrt(2)
    size = np.sqrt(squares * options.dim) * tail
    if in_moments and len(plan.shape):
        # θ = M⁻¹P⁻¹n with M ⪰ A/reach and M ⪰ λ_M, so ‖θ‖_A ≤ √reach·‖P⁻¹n‖/√λ_M.
        reach = max(float(np.linalg.norm(plan.shape, 2)) * options.max_norm, plan.floor)
        size = size * math.sqrt(reach) * np.linalg.norm(plan.unshape, 2)
        return np.asarray(size / math.sqrt(steps.weighted_ridge(plan)))
    if in_moments:
        return np.asarray(size / math.sqrt(options.ridge))  # ‖A⁻¹n‖_A = ‖n‖_{A⁻¹} ≤ ‖n‖/√λ
    return np.asarray(
        theory.noise_in_confidence_norm(t, size, ridge=options.ridge, max_norm=options.max_norm), dtype=np.float64
    )


def _squares(options: Options, plan: steps.Plan, t: Vector, eigenvalue: float) -> Vector:
    """The variance of the noise in a coordinate of what is released at t: of the sum, or of θ for parameter seats."""
    if plan.seat == rounds.MOMENTS and plan.release != steps.TREE:
        t = np.minimum(t, options.horizon or math.inf)  # after its last round a bandit still ranks
        one = float(plan.multipliers[plan.levels if plan.release == steps.HONAKER else 1]) * plan.sensitivity
        if plan.release == steps.TOEPLITZ:
            error = toeplitz.standard_error(t, options.horizon) / toeplitz.column_norm(options.horizon)
        elif plan.release == steps.HONAKER:
            error = tree_standard_error(t, options.horizon, honaker=True) / math.sqrt(plan.levels)
        else:  # det A grows from λ^d to at most (λ + tL²/d)^d, and each episode multiplies it
            growth = options.dim * np.log1p(t * options.max_norm**2 / (options.ridge * options.dim))
            error = np.sqrt(1 + growth / plan.growth)
        return np.asarray((one * error) ** 2)
    return np.array(
        [sum(_scale(plan, end, levels, eigenvalue) ** 2 for end, levels in _nodes(plan, int(v))) for v in t]
    )


def _scale(plan: steps.Plan, end: int, levels: int, eigenvalue: float) -> float:
    multiplier = float(plan.multipliers[levels])
    if plan.seat == rounds.MOMENTS:
        return multiplier * plan.sensitivity
    # What dgs reads off A_e is at most what Lemma 1 allows, where its assumption holds.
    reach = plan.sensitivity * (plan.max_norm if plan.seat == rounds.OWN else 1.0)
    return multiplier * float(lemma1(float(end), plan.form, eigenvalue, plan.lemma_delta, reach, plan.ridge))


def _nodes(plan: steps.Plan, t: int) -> list[tuple[int, int]]:
    """The nodes in use at time t, as (end, levels that share the budget)."""
    nodes, start, levels = [], 0, plan.levels
    if plan.unknown_horizon:
        block = t.bit_length() - 1
        nodes = [((2 << b) - 1, b + 1) for b in range(block)]  # one for every finished block
        start, levels = (1 << block) - 1, block + 1
    inside, end = t - start, start
    for bit in reversed(range(inside.bit_length())):
        if inside >> bit & 1:
            end += 1 << bit
            nodes.append((end, levels))
    return nodes


def _smallest_eigenvalue(options: Options) -> float:
    given = options.take("smallest_eigenvalue", None)
    if given is not None:
        return float(given)
    if options.public_contexts is None:
        raise OptionError(
            "alpha='theory' needs smallest_eigenvalue (the paper's λ₀), or public_contexts to estimate it from"
        )
    return estimate_bounds(options.public_contexts)[1]
