"""Compiled loops of the auditor, around the very functions that ship (`bandits.rounds`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandits.rounds import NO_RELEASE, NOTHING, REWARD, begin, commit_one, learn_simulated, prepare_one, reset
from dpbandit.compiled import kernel
from dpbandit.noise import GAUSSIAN, LAPLACE, LAPLACE_L2, WISHART, add_simulated
from dpbandit.randomness import bits, knorm_laplace, laplace, normal

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# What a release without noise adds to a score when it fits one side only: more than any likelihood ratio.
CERTAIN = 1e6


@kernel
def trace(
    learner: Any,
    plan: Any,
    xs: Matrix,
    rs: Vector,
    known: NDArray[np.bool_],
    key: np.uint64,
    start_key: np.uint64,
    forced: bool,
    noisy: Matrix,
    values: Matrix,
    scales: Vector,
) -> None:
    """Learn a stream; record the clean value and noise scale of every release.

    With `forced`, the noisy values are taken from `noisy` (an earlier run's transcript) instead of being written to it:
    this is what a neighbouring stream looks like to someone who saw that transcript.
    """
    reset(learner, plan)
    for t in range(xs.shape[0]):
        begin(learner, plan, start_key)
        scales[t] = prepare_one(learner, plan, xs[t], rs[t], known[t])
        if scales[t] == NO_RELEASE:
            values[t] = 0.0
            continue
        if plan.seat >= REWARD:
            for i in range(values.shape[1]):
                values[t, i] = learner.pending[i]
            if not forced:
                add_simulated(plan.noise, key, t + 1, scales[t], learner.pending, noisy[t])
        commit_one(learner, plan, noisy[t])
        if plan.seat == NOTHING:
            for i in range(values.shape[1]):
                values[t, i] = learner.theta[i]  # released as it is


@kernel
def release_cost(noise: int, value: Vector, other: Vector, scale: float) -> float:
    """What one release costs a reward that moves its value to `other`: μ² for Gaussian noise, ε for the others."""
    square, total = 0.0, 0.0
    for i in range(value.shape[0]):
        shift = other[i] - value[i]
        square += shift * shift
        total += abs(shift)
    if total == 0.0:
        return 0.0
    if scale <= 0.0:
        return math.inf
    if noise == GAUSSIAN:
        return square / (scale * scale)
    if noise == WISHART:
        return square / (
            2.0 * scale
        )  # μ² in the limit of many degrees of freedom: for comparing neighbours, not for a claim
    return (total if noise == LAPLACE else math.sqrt(square)) / scale


@kernel
def position_costs(
    learner: Any,
    plan: Any,
    xs: Matrix,
    rs: Vector,
    changed: Vector,
    changed_xs: Matrix,
    known: NDArray[np.bool_],
    start_key: np.uint64,
    noisy: Matrix,
    values: Matrix,
    scales: Vector,
    positions: NDArray[np.int64],
    out: Vector,
    other: Matrix,
    other_scales: Vector,
    stream: Vector,
    stream_xs: Matrix,
) -> None:
    """The joint cost over all releases of changing the rewards at each row of `positions` to `changed`, and contexts likewise.

    `changed_xs` is `xs` where contexts are public. `other`, `other_scales`, `stream` and `stream_xs` are scratch: zeros like
    `values` and `scales`, and copies of `rs` and `xs`.
    """
    rounds = xs.shape[0]
    for p in range(positions.shape[0]):
        for k in positions[p]:
            stream[k] = changed[k]
            for i in range(xs.shape[1]):
                stream_xs[k, i] = changed_xs[k, i]
        trace(learner, plan, stream_xs, stream, known, np.uint64(0), start_key, True, noisy, other, other_scales)
        for k in positions[p]:
            stream[k] = rs[k]
            for i in range(xs.shape[1]):
                stream_xs[k, i] = xs[k, i]
        cost = 0.0
        for t in range(rounds):
            if other_scales[t] != scales[t]:
                cost = math.inf  # the noise itself tells the two streams apart
            cost += release_cost(plan.noise, values[t], other[t], scales[t])
        out[p] = cost


@kernel
def furthest(
    learner: Any,
    plan: Any,
    xs: Matrix,
    rs: Vector,
    other_xs: NDArray[np.float64],
    other_rs: Matrix,
    value: Vector,
    out: NDArray[np.int64],
    costs: Vector,
) -> None:
    """For each context and reward, which of the candidates [n, :] moves the very first release the most, and what that costs."""
    for n in range(xs.shape[0]):
        reset(learner, plan)
        scale = prepare_one(learner, plan, xs[n], rs[n], True)
        for i in range(value.shape[0]):
            value[i] = learner.pending[i]
        costs[n] = -1.0
        for c in range(other_rs.shape[1]):
            reset(learner, plan)
            prepare_one(learner, plan, other_xs[n, c], other_rs[n, c], True)
            cost = release_cost(plan.noise, value, learner.pending, scale)
            if cost > costs[n]:
                costs[n] = cost
                out[n] = c


@kernel
def wishart_log_density(y: Vector, value: Vector, degrees: float, work: Matrix) -> float:
    """log density of y − value under packed W_p(I, degrees), up to a constant; −CERTAIN outside its support. `work` is p × p."""
    p = work.shape[0]
    at = 0
    total = 0.0
    for i in range(p):
        for j in range(i, p):
            entry = y[at] - value[at]
            at += 1
            if i == j:
                total -= 0.5 * entry
            else:
                entry /= math.sqrt(2.0)
            for k in range(i):
                entry -= work[k, i] * work[k, j]
            if i == j:
                if not entry > 0.0:
                    return -CERTAIN
                work[i, i] = math.sqrt(entry)
                total += 0.5 * (degrees - p - 1.0) * math.log(entry)
            else:
                work[i, j] = entry / work[i, i]
    return total


@kernel
def log_ratio(noise: int, y: Vector, v0: Matrix, v1: Matrix, t: int, scale: float) -> float:
    """log p(y | value v1[t]) − log p(y | value v0[t])."""
    return _log_ratio(noise, y, v0[t], v1[t], scale)


@kernel
def _log_ratio(noise: int, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
    a, b = 0.0, 0.0
    for i in range(y.shape[0]):
        from0, from1 = y[i] - v0[i], y[i] - v1[i]
        if noise == LAPLACE:
            a += abs(from0)
            b += abs(from1)
        else:
            a += from0 * from0
            b += from1 * from1
    if scale <= 0.0:
        return 0.0 if a == b else (CERTAIN if b < a else -CERTAIN)
    if noise == LAPLACE:
        return (a - b) / scale
    if noise == LAPLACE_L2:
        return (math.sqrt(a) - math.sqrt(b)) / scale
    return (a - b) / (2.0 * scale * scale)


@kernel
def learner_scores(
    learner: Any,
    plan: Any,
    xs: Matrix,
    rs: Vector,
    known: NDArray[np.bool_],
    key: np.uint64,
    first: int,
    v0: Matrix,
    v1: Matrix,
    scales: Vector,
    out: Vector,
    noisy: Vector,
    x: Vector,
    work: Matrix,
) -> None:
    """Log-likelihood ratios of whole transcripts, each from a fresh run of the shipped learner with its own noise."""
    for run in range(out.shape[0]):
        reset(learner, plan)
        noise_key = bits(key, 2 * (first + run))
        start_key = bits(key, 2 * (first + run) + 1)
        total = 0.0
        for t in range(xs.shape[0]):
            for i in range(x.shape[0]):
                x[i] = xs[t, i]
            learn_simulated(learner, plan, x, rs[t], known[t], noise_key, start_key, noisy)
            if plan.seat == NOTHING:
                total += log_ratio(plan.noise, learner.theta, v0, v1, t, 0.0)
            elif plan.noise == WISHART:
                total += wishart_log_density(noisy, v1[t], scales[t], work)
                total -= wishart_log_density(noisy, v0[t], scales[t], work)
            elif plan.seat >= REWARD and scales[t] != NO_RELEASE:
                total += log_ratio(plan.noise, noisy, v0, v1, t, scales[t])
        out[run] = total


@kernel
def paired_scores(
    learner: Any,
    twin: Any,
    plan: Any,
    xs: Matrix,
    rs: Vector,
    other: Vector,
    known: NDArray[np.bool_],
    key: np.uint64,
    first: int,
    out: Vector,
    noisy: Vector,
    x: Vector,
) -> None:
    """`learner_scores` for values that depend on earlier releases: a twin learns the other stream and is told the same
    noisy values, so that both clean values are known for the transcript at hand. Scores are log p(rs) − log p(other)."""
    for run in range(out.shape[0]):
        reset(learner, plan)
        reset(twin, plan)
        noise_key = bits(key, 2 * (first + run))
        total = 0.0
        for t in range(xs.shape[0]):
            for i in range(x.shape[0]):
                x[i] = xs[t, i]
            scale = prepare_one(learner, plan, x, rs[t], known[t])
            prepare_one(twin, plan, x, other[t], known[t])
            if scale == NO_RELEASE:
                continue
            add_simulated(plan.noise, noise_key, t + 1, scale, learner.pending, noisy)
            total += _log_ratio(plan.noise, noisy, twin.pending, learner.pending, scale)
            commit_one(learner, plan, noisy)
            commit_one(twin, plan, noisy)
        out[run] = total


@kernel
def release_scores(
    noise: int,
    key: np.uint64,
    first: int,
    value: Matrix,
    v0: Matrix,
    v1: Matrix,
    scales: Vector,
    out: Vector,
    y: Vector,
) -> None:
    """The same for a mechanism given by its releases alone: `value` plus independent noise of these scales."""
    rounds, d = value.shape
    for run in range(out.shape[0]):
        run_key = bits(key, first + run)
        total = 0.0
        for t in range(rounds):
            if noise == LAPLACE_L2:
                knorm_laplace(run_key, t, y)
            for i in range(d):
                if noise == LAPLACE:
                    y[i] = laplace(run_key, t * d + i)
                elif noise == GAUSSIAN:
                    y[i] = normal(run_key, t * d + i)
                y[i] = value[t, i] + scales[t] * y[i]
            total += log_ratio(noise, y, v0, v1, t, scales[t])
        out[run] = total
