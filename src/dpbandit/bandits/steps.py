"""One round of learning for every bandit built on LinUCB's rule, compiled, for every seat the noise can sit in (docs/privacy.md).

The verbs are those of `rounds`. What lies between `prepare` and `commit` (drawing noise, asking the ledger) is the
caller's: `rounds.learn_simulated` for simulations, `bandits.linear` for real noise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit import numerics, products, scoring, sensitivity
from dpbandit.bandits.rounds import INCREMENT, MOMENTS, NO_RELEASE, NOTHING, OWN, RANDOM, REWARD, serve
from dpbandit.compiled import kernel
from dpbandit.noise import LAPLACE, PAN_PRIVATE_GRID_BITS, add_simulated
from dpbandit.numerics import Ridge
from dpbandit.randomness import add_normals, normal
from dpbandit.release import toeplitz
from dpbandit.release import tree as trees
from dpbandit.release.toeplitz import Toeplitz
from dpbandit.release.tree import Tree
from dpbandit.sensitivity import Watch

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


# How sums of moments are published over time.
#   TREE  HONAKER (the tree, with every node released and all of them used)  TOEPLITZ  EPISODES (each reward in one release)
TREE, HONAKER, TOEPLITZ, EPISODES = range(4)

# What picks an arm: the upper confidence bound, or a draw from the posterior.
UCB, THOMPSON = range(2)

# A context that is this small after shaping says nothing and is left out.
TINY = 1e-150

# Thompson's draws share the key of ties; their counters start far above it.
_THOMPSON_DRAWS = 1 << 61


class Plan(NamedTuple):
    """The public choices of one bandit, fixed before the first round."""

    seat: int
    noise: int
    dim: int
    levels: int
    unknown_horizon: bool
    pan_private: bool
    sensitivity: float  # of one item: constant for REWARD and MOMENTS; reward_width (× max_norm) for the others
    multipliers: Vector  # noise scale per unit of sensitivity, by the number of levels that share the budget
    ridge: float
    max_norm: float
    arms: Matrix  # the contexts known in advance; no rows: the whole ball
    form: int  # which Δ_t (INCREMENT)
    smallest_eigenvalue: float
    lemma_delta: float
    printed_index: bool
    context_noise: float
    release: int
    rule: int
    growth: float  # EPISODES: an episode ends when log det A has grown by this
    shape: Matrix  # P: moments are summed as u·r with u = Px/max(‖Px‖, floor); no rows: as x·r
    unshape: Matrix  # P⁻¹
    floor: float


class Learner(NamedTuple):
    """Everything that changes as a bandit learns.

    Clean, so for the trusted side only: `ridge.moments` and `ridge.theta` where the seat keeps them, `tree.sums`,
    `toeplitz.clean`, `pending`. In the pan-private form these hold noisy sums or nothing.
    """

    ridge: Ridge
    tree: Tree
    theta: Vector  # the released parameter
    pending: Vector
    context: Vector
    item: Vector  # scratch, like the next two
    node: Vector
    prefix: Vector
    watch: Watch  # memory of `sensitivity.observed_lazily`
    clock: NDArray[np.int64]  # rewards learned; decisions made; 1 once a context was outside `arms`
    toeplitz: Toeplitz
    weighted: Ridge  # with a shape: the Gram matrix that matches the shaped sums, Σ xxᵀ/max(‖Px‖, floor)
    anchor: Matrix  # EPISODES: A⁻¹ at the last release, which the bonus uses until the next
    episode: Vector  # EPISODES: how much log det A has grown since


def new_learner(plan: Plan, horizon: int | None) -> Learner:
    """A learner that has seen nothing."""
    d = plan.dim
    uses_tree = plan.seat in (MOMENTS, OWN, INCREMENT) and plan.release in (TREE, HONAKER)
    numbers = {REWARD: 1}.get(plan.seat, d * (plan.levels if plan.release == HONAKER else 1))
    streams, shaped, episodes = (
        d if plan.release == TOEPLITZ else 0,
        len(plan.shape),
        d if plan.release == EPISODES else 0,
    )
    return Learner(
        numerics.new_ridge(d, plan.ridge),
        trees.new_tree(d, horizon if uses_tree else 2 if plan.release == EPISODES else 1),
        np.zeros(d),
        np.zeros(numbers),
        np.zeros(d),
        np.zeros(d),
        np.zeros(d),
        np.zeros(d),
        sensitivity.new_watch(d, len(plan.arms) if plan.seat == OWN else 0),
        np.zeros(3, dtype=np.int64),
        toeplitz.new_toeplitz(streams, horizon if streams else 1),
        numerics.new_ridge(shaped, weighted_ridge(plan)),
        np.eye(episodes) / plan.ridge,
        np.zeros(1),
    )


def weighted_ridge(plan: Plan) -> float:
    """λ on the scale of shaped sums: their terms weigh 1/max(‖Px‖, floor), and ‖Px‖ is about √d for a whitener P."""
    return plan.ridge / max(math.sqrt(plan.dim), plan.floor)


@kernel
def reset(learner: Learner, plan: Plan) -> None:
    """Forget everything, in place."""
    _reset_ridge(learner.ridge, plan.ridge)
    _reset_ridge(learner.weighted, plan.ridge / max(math.sqrt(plan.dim), plan.floor))
    learner.tree.sums[:] = 0.0
    learner.tree.noisy[:] = 0.0
    learner.tree.carry[:] = 0.0
    learner.theta[:] = 0.0
    learner.pending[:] = 0.0
    learner.context[:] = 0.0
    learner.watch.largest[:] = 0.0
    learner.clock[:] = 0
    toeplitz.forget(learner.toeplitz)
    for i in range(learner.anchor.shape[0]):
        for k in range(learner.anchor.shape[0]):
            learner.anchor[i, k] = 1.0 / plan.ridge if i == k else 0.0
    learner.episode[:] = 0.0


@kernel
def _reset_ridge(ridge: Ridge, strength: float) -> None:
    ridge.inverse[:] = 0.0
    ridge.gram[:] = 0.0
    for i in range(ridge.theta.shape[0]):
        ridge.inverse[i, i] = 1.0 / strength
        ridge.gram[i, i] = strength
    ridge.gram_low[:] = 0.0
    ridge.moments[:] = 0.0
    ridge.moments_low[:] = 0.0
    ridge.theta[:] = 0.0
    ridge.step[:] = 0.0
    ridge.age[:] = 0.0
    ridge.waiting[:] = 0.0


@kernel(inline="always")
def prepare(learner: Learner, plan: Plan, x: Vector, reward: float, known: bool) -> float:
    """Learn from one clipped reward; the clean value to release is then in `pending`. Returns its noise scale.

    `known` says that x is one of `plan.arms`; one context outside them moves Δ to the ball for good.
    """
    d = plan.dim
    t = learner.clock[0] + 1
    learner.clock[0] = t
    if not known and learner.clock[2] == 0:
        learner.clock[2] = 1
        learner.watch.largest[:] = 0.0
    for i in range(d):
        learner.context[i] = x[i]
    if plan.seat == RANDOM:
        return 0.0
    if plan.seat == REWARD:
        learner.pending[0] = reward
        return plan.sensitivity * plan.multipliers[1]
    ridge = learner.ridge
    quadratic = numerics.add_context(ridge, x)
    if plan.seat == NOTHING:
        numerics.add_reward(ridge, x, reward, quadratic)
        numerics.refresh_when_due(ridge, quadratic)
        return 0.0

    _index, level, levels = trees.place(t, plan.unknown_horizon, plan.levels)
    multiplier = plan.multipliers[levels]
    item = learner.item
    if plan.seat == INCREMENT:
        for i in range(d):
            item[i] = -ridge.theta[i]
        numerics.add_reward(ridge, x, reward, quadratic)
        numerics.refresh_when_due(ridge, quadratic)
        for i in range(d):
            item[i] += ridge.theta[i]
        trees.add(learner.tree, t, plan.unknown_horizon, item, learner.pending)
        end = float(t - (1 << level) + 1) if plan.printed_index else float(t)
        return multiplier * sensitivity.lemma1(
            end, plan.form, plan.smallest_eigenvalue, plan.lemma_delta, plan.sensitivity, plan.ridge
        )

    for i in range(d):
        item[i] = x[i] * reward
    if plan.seat == MOMENTS:
        numerics.refresh_when_due(ridge, quadratic)
        if plan.shape.shape[0] > 0:
            _shape_item(learner, plan, x, reward)
        if plan.release == EPISODES:
            learner.episode[0] += math.log1p(quadratic)
            sums = learner.tree.sums  # the episode's sum, and what rounding lost of it
            for i in range(d):
                total = sums[0, i] + item[i]
                back = total - sums[0, i]
                sums[1, i] += (sums[0, i] - (total - back)) + (item[i] - back)
                sums[0, i] = total
            item[:] = 0.0
            if learner.episode[0] < plan.growth:
                return NO_RELEASE
            learner.episode[0] = 0.0
            for i in range(d):
                learner.pending[i] = sums[0, i] + sums[1, i]
                sums[0, i] = 0.0
                sums[1, i] = 0.0
            return plan.multipliers[1] * plan.sensitivity
        if plan.release == TOEPLITZ:
            toeplitz.encode(learner.toeplitz, item, learner.pending)
            item[:] = 0.0
            return plan.multipliers[1] * plan.sensitivity
        if plan.release == HONAKER:
            learner.pending[:] = 0.0
            trees.add_nodes(learner.tree, t, plan.unknown_horizon, item, learner.pending.reshape(plan.levels, d))
        elif plan.pan_private:
            # Terms on the noise's own grid: otherwise the low bits of a noisy sum in memory would tell them.
            # One power of two coarser, because real noise is enlarged a little and may round up to the next power.
            if multiplier > 0.0:
                grid = 2.0 ** (math.floor(math.log2(multiplier * plan.sensitivity)) + 1 - PAN_PRIVATE_GRID_BITS)
                for i in range(d):
                    item[i] = np.rint(item[i] / grid) * grid
            trees.add_pan_private(learner.tree, t, plan.unknown_horizon, levels, item, learner.pending)
        else:
            trees.add(learner.tree, t, plan.unknown_horizon, item, learner.pending)
        item[:] = 0.0  # no clean term stays in memory
        return multiplier * plan.sensitivity

    # Refresh first: the bound must be that of the very matrix that is multiplied below.
    if numerics.refresh_when_due(ridge, quadratic):
        sensitivity.distrust(learner.watch)
    norm = 1 if plan.noise == LAPLACE else 2
    arms = plan.arms if learner.clock[2] == 0 else plan.arms[:0]
    bound = sensitivity.observed_lazily(
        ridge.inverse, arms, plan.max_norm, norm, x, ridge.step, quadratic, learner.watch, ridge.work
    )
    trees.add(learner.tree, t, plan.unknown_horizon, item, item)
    products.multiply(ridge.inverse, item, learner.pending)
    item[:] = 0.0
    return multiplier * plan.sensitivity * bound


@kernel
def _shape_item(learner: Learner, plan: Plan, x: Vector, reward: float) -> None:
    """item = u·r with u = Px/max(‖Px‖, floor), of norm at most 1, and the same weight for this round in the Gram matrix."""
    d = plan.dim
    item, scaled = learner.item, learner.node
    products.multiply(plan.shape, x, item)
    largest = 0.0
    for i in range(d):
        largest = max(largest, abs(item[i]))
    square = 0.0
    if largest >= TINY:
        for i in range(d):
            square += (item[i] / largest) ** 2  # divided first: squares of tiny numbers vanish, and u would be too long
    size = max(largest * math.sqrt(square), plan.floor)
    weight = 1.0 / size if size >= TINY else 0.0
    for i in range(d):
        item[i] *= weight * reward
        scaled[i] = x[i] * math.sqrt(weight)
    quadratic = numerics.add_context(learner.weighted, scaled)
    numerics.refresh_when_due(learner.weighted, quadratic)


@kernel(inline="always")
def commit(learner: Learner, plan: Plan, noisy: Vector) -> None:
    """Turn the noisy value of this round's release into the released parameter."""
    d = plan.dim
    t = learner.clock[0]
    if plan.seat == RANDOM:
        return
    ridge = learner.ridge
    if plan.seat == NOTHING or plan.seat == REWARD:
        if plan.seat == REWARD:
            quadratic = numerics.add_context(ridge, learner.context)
            numerics.add_reward(ridge, learner.context, noisy[0], quadratic)
            numerics.refresh_when_due(ridge, quadratic)
        for i in range(d):
            learner.theta[i] = ridge.theta[i]
        return
    prefix = learner.prefix
    if plan.seat == INCREMENT:
        trees.publish(learner.tree, t, plan.unknown_horizon, noisy, learner.theta)
        return
    if plan.seat == OWN:
        # Back to moments, with the public A_e: the noise of old nodes shrinks with A_t⁻¹ like everything else.
        node = learner.node
        numerics.apply_gram(ridge, noisy, node)
        trees.publish(learner.tree, t, plan.unknown_horizon, node, prefix)
    elif plan.release == TOEPLITZ:
        toeplitz.decode(learner.toeplitz, noisy, prefix)
    elif plan.release == EPISODES:
        for i in range(d):
            learner.tree.carry[i] += noisy[i]
            prefix[i] = learner.tree.carry[i]
        for i in range(d):
            for k in range(d):
                learner.anchor[i, k] = ridge.inverse[i, k]
    elif plan.release == HONAKER:
        trees.publish_honaker(learner.tree, t, plan.unknown_horizon, noisy.reshape(plan.levels, d), prefix)
    else:
        trees.publish(learner.tree, t, plan.unknown_horizon, noisy, prefix)
    if plan.shape.shape[0] > 0:
        products.multiply(plan.unshape, prefix, learner.node)
        products.multiply(learner.weighted.inverse, learner.node, learner.theta)
    else:
        products.multiply(ridge.inverse, prefix, learner.theta)


@kernel(inline="always")
def begin(learner: Learner, plan: Plan, key: np.uint64) -> None:
    """Pan-private form: put fresh noise into every node that begins with the coming round."""
    if not plan.pan_private:
        return
    t = learner.clock[0] + 1
    _index, _level, levels = trees.place(t, plan.unknown_horizon, plan.levels)
    zero = learner.item
    zero[:] = 0.0
    scale = plan.multipliers[levels] * plan.sensitivity
    for level in range(levels):
        if trees.starts(t, plan.unknown_horizon, level):
            add_simulated(plan.noise, key, t * 64 + level, scale, zero, learner.tree.sums[level])


@kernel
def perturb(
    contexts: Matrix,
    shown: NDArray[np.int64],
    sigma: float,
    max_norm: float,
    key: np.uint64,
    index: int,
    out: Matrix,
) -> None:
    """out = the contexts shown + N(0, σ²I), brought back to norm `max_norm` where longer (Corollary 1).

    The paper leaves x + z as it is, but then the noise, scaled for contexts of norm ≤ max_norm, would not cover it.
    """
    d = contexts.shape[1]
    for j in range(shown.shape[0]):
        square = 0.0
        for i in range(d):
            out[j, i] = contexts[shown[j], i] + sigma * normal(key, (index * 65536 + j) * d + i)
            square += out[j, i] * out[j, i]
        factor = min(1.0, max_norm / math.sqrt(square)) if square > 0.0 else 1.0
        for i in range(d):
            out[j, i] *= factor


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
    """The arm to play among the contexts shown, by the released parameter and the public A alone."""
    index = learner.clock[1]
    learner.clock[1] = index + 1
    if plan.seat == RANDOM:
        scores[:] = 0.0
    elif plan.rule == THOMPSON:
        # θ + α·A^{−1/2}z: one draw for all arms, so that the arm played has the posterior's probability of being best.
        learner.prefix[:] = 0.0
        add_normals(key, _THOMPSON_DRAWS + index * plan.dim, alpha, learner.prefix, learner.node)
        numerics.colour(learner.ridge, learner.node)
        for i in range(plan.dim):
            learner.node[i] += learner.theta[i]
        scoring.score(learner.ridge.inverse, learner.node, contexts, shown, 0.0, work, scores)
    elif plan.release == EPISODES:
        scoring.score(learner.anchor, learner.theta, contexts, shown, alpha, work, scores)
    else:
        scoring.score(learner.ridge.inverse, learner.theta, contexts, shown, alpha, work, scores)
    return numerics.pick(scores, key, index)


@kernel(inline="always")
def quiet(learner: Learner, plan: Plan, x: Vector) -> bool:
    """Whether nothing is private, or the episode surely goes on after x."""
    if plan.seat == RANDOM or plan.seat == NOTHING:
        return True
    if plan.seat != MOMENTS or plan.release != EPISODES:
        return False
    inverse, quadratic = learner.ridge.inverse, 0.0
    for i in range(plan.dim):  # in the order of `numerics.add_context`
        total = 0.0
        for k in range(plan.dim):
            total += inverse[k, i] * x[k]
        quadratic += total * x[i]
    # So close to the end it may be the end, should the order there ever change.
    return quadratic >= 0.0 and learner.episode[0] + math.log1p(quadratic) < plan.growth * (1.0 - 1e-9)


serve(Plan, reset=reset, begin=begin, prepare=prepare, commit=commit, choose=choose, quiet=quiet)
