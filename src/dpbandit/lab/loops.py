"""The compiled inner loop of the engine: choose, be paid, learn, round after round, with no Python in between."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandits.rounds import choose, learn_simulated
from dpbandit.bandits.steps import perturb
from dpbandit.compiled import kernel
from dpbandit.lanes import add_up, fma, load_four, plus, splat_four
from dpbandit.products import dot

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


@kernel
def longest_square(pool: Matrix) -> float:
    """The largest squared norm of the rows; infinite or NaN if any number is."""
    longest = 0.0
    for j in range(pool.shape[0]):
        square = dot(pool[j], pool[j])
        if not square <= longest:
            longest = square
            if not longest < math.inf:
                break
    return longest


@kernel
def all_finite(table: Matrix) -> bool:
    """Whether there is no NaN and no infinity among the numbers of a table."""
    a = b = c = e = splat_four(0.0)
    numbers = table.size
    whole = numbers - numbers % 16
    for i in range(0, whole, 16):  # x·0 is 0, or NaN for what is not finite
        a = fma(load_four(table, i), splat_four(0.0), a)
        b = fma(load_four(table, i + 4), splat_four(0.0), b)
        c = fma(load_four(table, i + 8), splat_four(0.0), c)
        e = fma(load_four(table, i + 12), splat_four(0.0), e)
    total = add_up(plus(plus(a, b), plus(c, e)))
    for i in range(whole, numbers):
        total += table[i // table.shape[1], i % table.shape[1]] * 0.0
    return total == 0.0
