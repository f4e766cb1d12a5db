"""Arms without features, one binary tree each (Mishra & Thakurta 2015, private UCB), compiled.

A context is a one-hot row that names its arm. An arm's tree counts that arm's own pulls, so a reward enters one tree only;
which arm was pulled, and when, is public. Clean sums live in `Learner.sums` and `pending`; nothing else holds a reward.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit import numerics
from dpbandit.bandits.rounds import serve
from dpbandit.compiled import kernel
from dpbandit.noise import GAUSSIAN
from dpbandit.release import tree as trees
from dpbandit.release.tree import Tree, levels_for

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# The index of an arm that was never pulled: above every other, and its square is still a float (see `private_ucb`).
UNTRIED = 1e140


class Plan(NamedTuple):
    """The public choices of one bandit, fixed before the first round."""

    seat: int
    noise: int
    dim: int  # how many arms
    levels: int
    unknown_horizon: bool
    horizon: float  # 0 where unknown
    width: float  # W, how far one reward can move
    sensitivity: float  # W with a margin for rounding
    multipliers: Vector  # noise scale per unit of sensitivity, by the number of levels that share the budget
    published_term: bool  # whether the privacy term is the paper's Γ/n
    privacy_bonus: float  # otherwise, what the noise's tail is multiplied by
    failure: float  # γ, the probability with which Γ may fail
    max_norm: float  # this and the next are what every compiled loop asks of a plan
    context_noise: float


class Learner(NamedTuple):
    """Everything that changes as a bandit learns. Clean, so for the trusted side only: `sums` and `pending`."""

    sums: NDArray[np.float64]  # the trees, one for each arm: see `release.tree`
    noisy: NDArray[np.float64]
    carry: Matrix
    pulls: NDArray[np.int64]
    spread: Vector  # of the noise in each arm's sum: see `spread`
    theta: Vector  # the released means
    pending: Vector
    item: Vector  # scratch, like the next
    total: Vector
    clock: NDArray[np.int64]  # rewards learned; decisions made; always 0; the arm pulled last


def new_learner(plan: Plan) -> Learner:
    """A learner that has seen nothing."""
    arms, levels = plan.dim, levels_for(None) if plan.unknown_horizon else plan.levels
    return Learner(
        np.zeros((arms, levels, 1)),
        np.zeros((arms, levels, 1)),
        np.zeros((arms, 1)),
        np.zeros(arms, dtype=np.int64),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(1),
        np.zeros(1),
        np.zeros(1),
        np.zeros(4, dtype=np.int64),
    )


@kernel
def reset(learner: Learner, plan: Plan) -> None:
    """Forget everything, in place."""
    learner.sums[:] = 0.0
    learner.noisy[:] = 0.0
    learner.carry[:] = 0.0
    learner.pulls[:] = 0
    learner.spread[:] = 0.0
    learner.theta[:] = 0.0
    learner.pending[:] = 0.0
    learner.clock[:] = 0


@kernel
def begin(learner: Learner, plan: Plan, key: np.uint64) -> None:
    """Nothing: there is no pan-private form."""


@kernel
def prepare(learner: Learner, plan: Plan, x: Vector, reward: float, known: bool) -> float:
    """Add the reward to its arm's tree; the clean node is then in `pending`. Returns its noise scale."""
    arm = 0
    for i in range(plan.dim):
        if x[i] > 0.5:
            arm = i
    learner.clock[0] += 1
    learner.clock[3] = arm
    pull = learner.pulls[arm] + 1
    learner.pulls[arm] = pull
    tree = Tree(learner.sums[arm], learner.noisy[arm], learner.carry[arm])
    learner.item[0] = reward
    trees.add(tree, pull, plan.unknown_horizon, learner.item, learner.pending)
    learner.item[0] = 0.0  # no clean term stays in memory
    _index, _level, levels = trees.place(pull, plan.unknown_horizon, plan.levels)
    return plan.multipliers[levels] * plan.sensitivity


@kernel
def commit(learner: Learner, plan: Plan, noisy: Vector) -> None:
    """Turn the noisy node into the arm's released mean."""
    arm = learner.clock[3]
    pull = learner.pulls[arm]
    tree = Tree(learner.sums[arm], learner.noisy[arm], learner.carry[arm])
    trees.publish(tree, pull, plan.unknown_horizon, noisy, learner.total)
    learner.theta[arm] = learner.total[0] / pull
    learner.spread[arm] = spread(plan, pull)


@kernel
def spread(plan: Plan, pull: int) -> float:
    """How far the noise in an arm's sum reaches after this many pulls: what `privacy_weight` multiplies.

    The root of the sum of squared scales of the nodes in use. For the paper's Γ it covers as many nodes as can be in use at
    once, and the scales of Laplace nodes are added up as they are, as in the paper.
    """
    index, _level, levels = trees.place(pull, plan.unknown_horizon, plan.levels)
    scale = plan.multipliers[levels] * plan.sensitivity
    nodes = 0
    while index > 0:
        nodes += index & 1
        index >>= 1
    if plan.published_term:
        nodes = levels
    total, square = nodes * scale, nodes * scale * scale
    if plan.unknown_horizon:
        for block in range(1, levels):  # finished blocks are one node each; block − 1 has `block` levels
            scale = plan.multipliers[block] * plan.sensitivity
            total += scale
            square += scale * scale
    return total if plan.published_term and plan.noise != GAUSSIAN else math.sqrt(square)


@kernel
def privacy_weight(plan: Plan, t: int) -> float:
    """What `spread` is multiplied by in round t: `privacy_bonus` times the noise's tail at probability 1/t, or the tail
    that all nodes of T rounds keep to.

    It has to grow with t: otherwise an arm that was unlucky early on may never be pulled again.
    """
    if not plan.published_term:
        log = math.log(t)
        return plan.privacy_bonus * (math.sqrt(2.0 * log) if plan.noise == GAUSSIAN else log)
    rounds, levels = plan.horizon, plan.levels
    if plan.unknown_horizon:
        rounds, levels = float(t), 0
        while (t >> levels) > 0:
            levels += 1
    if plan.noise == GAUSSIAN:
        return math.sqrt(2.0 * math.log(2.0 * plan.dim * rounds / plan.failure))
    return math.log(plan.dim * rounds * levels / plan.failure)


@kernel
def bonus(learner: Learner, plan: Plan, arm: int, alpha: float) -> float:
    """What an arm's index has on top of its released mean in the coming round. Arms never pulled come first."""
    pulls = learner.pulls[arm]
    if pulls == 0:
        return UNTRIED
    t = learner.clock[0] + 1
    explore = alpha * plan.width * math.sqrt(2.0 * math.log(t) / pulls)
    return explore + privacy_weight(plan, t) * learner.spread[arm] / pulls


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
    """The arm to play among the contexts shown, by released means and public counts alone."""
    index = learner.clock[1]
    learner.clock[1] = index + 1
    for j in range(shown.shape[0]):
        scores[j] = 0.0
        for arm in range(plan.dim):
            if contexts[shown[j], arm] > 0.5:
                scores[j] = learner.theta[arm] + bonus(learner, plan, arm, alpha)
    return numerics.pick(scores, key, index)


@kernel(inline="always")
def quiet(learner: Learner, plan: Plan, x: Vector) -> bool:
    """Never: every round is released."""
    return False


serve(Plan, reset=reset, begin=begin, prepare=prepare, commit=commit, choose=choose, quiet=quiet)
