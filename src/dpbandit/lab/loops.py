"""The compiled inner loop of the engine: choose, be paid, learn, round after round, with no Python in between."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandits.rounds import choose, learn_simulated
from dpbandit.bandits.steps import perturb
from dpbandit.compiled import kernel

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@kernel
def play(
    learner: Any,
    plan: Any,
    pool: Matrix,
    shown: NDArray[np.int64],
    rewards: Matrix,
    means: Matrix,
    alphas: Vector,
    clip: tuple[float, float],
    known: NDArray[np.bool_],
    keys: tuple[np.uint64, np.uint64, np.uint64, np.uint64],
    truth: Vector,
    record: NDArray[np.int64],
    totals: Vector,
    out: Matrix,
    seen: Matrix,
    order: NDArray[np.int64],
    work: Vector,
    scores: Vector,
    noisy: Vector,
) -> None:
    """Play a block. `known` says for each row of the pool whether it is one of `plan.arms`. `totals` carries (reward, regret) over blocks; after rounds `record` (of this block) a row of `out`
    gets (reward, regret, ‖θ − truth‖); `keys` are for noise, ties, contexts and node starts; `order` is 0, 1, 2, …; the rest is
    scratch."""
    rounds, arms = shown.shape
    d = pool.shape[1]
    at = 0
    for n in range(rounds):
        offered, slate = pool, shown[n]
        if plan.context_noise > 0.0:
            perturb(pool, slate, plan.context_noise, plan.max_norm, keys[2], learner.clock[1], seen)
            offered, slate = seen, order
        arm = choose(learner, plan, offered, slate, alphas[n], work, scores, keys[1])
        best = -math.inf
        for j in range(arms):
            best = max(best, means[n, j])
        totals[0] += rewards[n, arm]
        totals[1] += best - means[n, arm]
        reward = min(max(rewards[n, arm], clip[0]), clip[1])
        learn_simulated(learner, plan, offered[slate[arm]], reward, known[shown[n, arm]], keys[0], keys[3], noisy)
        if at < record.shape[0] and record[at] == n:
            square = 0.0
            for i in range(d):
                square += (learner.theta[i] - truth[i]) ** 2
            out[at, 0] = totals[0]
            out[at, 1] = totals[1]
            out[at, 2] = math.sqrt(square)
            at += 1
