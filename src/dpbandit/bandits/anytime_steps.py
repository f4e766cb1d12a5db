"""One round of the anytime bandit, compiled: an instrument for the context, a residual for the reward, sometimes a release.

The verbs are those of `rounds`. Between releases nothing private is shown, and what is shown is a function of contexts and
earlier releases, so `choose` works with the posterior of the last release.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit import numerics, products, scoring
from dpbandit.bandits import outlook as outlooks
from dpbandit.bandits import posterior
from dpbandit.bandits.outlook import Outlook
from dpbandit.bandits.posterior import Filter
from dpbandit.bandits.rounds import NO_RELEASE, serve
from dpbandit.compiled import kernel
from dpbandit.release import anytime

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Factors tried on the prior variance where it is fitted to the releases (empirical Bayes).
FACTORS = np.array([1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 16.0, 64.0])


class Plan(NamedTuple):
    """The public choices of one bandit, fixed before the first round."""

    seat: int
    noise: int
    dim: int
    context_noise: float
    max_norm: float
    scale: float  # of the noise, for items of norm at most 1
    low: float
    high: float
    window: float  # half the width that residuals are clipped to
    knee: float
    ratio: float
    first: int  # when the first release is due
    reward_variance: float
    empirical_bayes: bool


class Learner(NamedTuple):
    """Everything that changes. Clean, so for the trusted side only: `sums`, `sums_low` and `pending`."""

    sums: Vector
    sums_low: Vector  # what rounding lost of `sums`
    pending: Vector
    theta: Vector  # the released parameter
    estimate: Vector  # the same with the intercept
    spread: Matrix  # the posterior covariance of θ
    covariance: Matrix  # the same with the intercept
    filter: Filter
    outlook: Outlook
    instrument: Vector  # scratch, like the next three
    middle: Vector
    longer: Vector  # (x, 1)
    work: Matrix
    clock: NDArray[
        np.int64
    ]  # rewards learned; decisions made; unused; next release due; releases made; next refresh due


def new_learner(plan: Plan, public: Matrix | None) -> Learner:
    """A learner that has seen nothing."""
    d = plan.dim
    learner = Learner(
        np.zeros(d + 1),
        np.zeros(d + 1),
        np.zeros(d + 1),
        np.zeros(d),
        np.zeros(d + 1),
        np.zeros((d, d)),
        np.zeros((d + 1, d + 1)),
        posterior.new_filter(d + 1),
        outlooks.new_outlook(d, public),
        np.zeros(d + 1),
        np.zeros(d),
        np.zeros(d + 1),
        np.zeros((d + 1, d + 1)),
        np.zeros(6, dtype=np.int64),
    )
    reset(learner, plan)
    return learner


@kernel
def reset(learner: Learner, plan: Plan) -> None:
    """Forget everything, in place."""
    learner.sums[:] = 0.0
    learner.sums_low[:] = 0.0
    learner.pending[:] = 0.0
    posterior.forget(learner.filter)
    outlooks.forget(learner.outlook)
    learner.clock[:] = 0
    learner.clock[3] = plan.first
    _conclude(learner, plan)


@kernel(inline="always")
def begin(learner: Learner, plan: Plan, key: np.uint64) -> None:
    """Nothing to do."""


@kernel(inline="always")
def prepare(learner: Learner, plan: Plan, x: Vector, reward: float, known: bool) -> float:
    """Add one clipped reward's residual to the sum. Returns the noise scale in rounds with a release, else NO_RELEASE."""
    d = plan.dim
    clock, u = learner.clock, learner.instrument
    t = clock[0] + 1
    clock[0] = t
    if clock[1] < t:
        # No slate was seen for this reward: a batch of delayed ones, or arms picked elsewhere.
        clock[1] = t
        if learner.outlook.counts[4] == 0.0:
            outlooks.look_at_one(learner.outlook, x)
    _refresh_when_due(learner, plan)
    # The instrument: the context and a constant, whitened, at norm 1. Whatever it is, it is public.
    longer = learner.longer
    square = 0.0
    inverse_size = 1.0 / learner.outlook.counts[5]
    for i in range(d):
        longer[i] = x[i] * inverse_size
        square += abs(x[i])
    longer[d] = 1.0 if square > 0.0 else 0.0  # a context of zeros says nothing about θ
    products.multiply(learner.outlook.whitener, longer, u)
    square = products.dot(u, u)
    unit = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
    for i in range(d):
        longer[i] = x[i]
    longer[d] = 1.0
    prediction = products.dot(longer, learner.estimate)
    for i in range(d + 1):
        u[i] *= unit
    # The residual, clipped to the window and brought to a width of 1. No θ can make it wider.
    half = plan.window
    prediction = min(max(prediction, plan.low + half), plan.high - half)
    weight = 0.5 / half
    item = min(max(reward - prediction, -half), half) * weight
    products.add_kept(learner.sums, learner.sums_low, item, u)
    posterior.see(learner.filter, longer, u, weight, prediction)
    if t < clock[3]:
        return NO_RELEASE
    rho = anytime.kept(t, anytime.next_time(t, plan.ratio), plan.knee)
    q = anytime.shown(rho)
    for i in range(d + 1):
        learner.pending[i] = q * learner.sums[i] + q * learner.sums_low[i]
        high, low = products.split_product(learner.sums[i], rho)
        learner.sums[i] = high
        learner.sums_low[i] = learner.sums_low[i] * rho + low
    return plan.scale


@kernel(inline="always")
def commit(learner: Learner, plan: Plan, noisy: Vector) -> None:
    """Learn from the noisy sum and turn to the next release."""
    clock = learner.clock
    t = clock[0]
    later = anytime.next_time(t, plan.ratio)
    rho = anytime.kept(t, later, plan.knee)
    # Without privacy noise (ε = ∞) a little is assumed, so that few rewards do not say everything about some direction.
    assumed = max(plan.scale, 1e-6)
    posterior.learn(learner.filter, noisy, anytime.shown(rho), rho, assumed, plan.reward_variance)
    clock[3] = later
    clock[4] += 1
    _conclude(learner, plan)


@kernel
def start(learner: Learner, plan: Plan, noisy: Vector, scale: float) -> None:
    """Learn from a log's noisy sum, before round 1: all of it is shown and nothing kept. Its design is in the filter."""
    posterior.learn(learner.filter, noisy, 1.0, 0.0, max(scale, 1e-6), plan.reward_variance)
    learner.clock[4] += 1
    _conclude(learner, plan)


@kernel
def _refresh_when_due(learner: Learner, plan: Plan) -> None:
    """Contexts offered so far change the whitener: every round at first, then as their number grows by a twentieth."""
    clock = learner.clock
    t = clock[0]
    if learner.outlook.counts[4] > 0.0 or t < clock[5]:
        return
    clock[5] = t + 1 if t < 50 else t + t // 20
    if clock[4] == 0:
        _conclude(learner, plan)
    else:
        outlooks.refresh(learner.outlook, plan.low, plan.high, 1.0)


@kernel
def _conclude(learner: Learner, plan: Plan) -> None:
    """Read the posterior, with the prior that today's contexts suggest."""
    d = plan.dim
    state, outlook = learner.filter, learner.outlook
    factor = 1.0
    if plan.empirical_bayes and learner.clock[4] > 0:
        best = -math.inf
        for candidate in FACTORS:
            outlooks.refresh(outlook, plan.low, plan.high, candidate)
            likely = posterior.read(
                state, outlook.precision, outlook.pull, learner.estimate, learner.covariance, learner.work
            )
            if likely > best:
                best, factor = likely, candidate
    # With public contexts and a prior that is not fitted, it is what it was at the last release.
    if plan.empirical_bayes or outlook.counts[4] == 0.0 or learner.clock[4] == 0:
        outlooks.refresh(outlook, plan.low, plan.high, factor)
    posterior.read(state, outlook.precision, outlook.pull, learner.estimate, learner.covariance, learner.work)
    for i in range(d):
        learner.theta[i] = learner.estimate[i]
        for k in range(d):
            learner.spread[i, k] = learner.covariance[i, k]


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
    """The arm to play: upper confidence bounds from the posterior of the last release."""
    index = learner.clock[1]
    learner.clock[1] = index + 1
    if learner.outlook.counts[4] == 0.0 and (index < outlooks.LOOKED_AT or index % 8 == 0):
        outlooks.look(learner.outlook, contexts, shown)
    scoring.score_about_mean(learner.spread, learner.theta, contexts, shown, alpha, work, scores, learner.middle)
    return numerics.pick(scores, key, index)


@kernel(inline="always")
def quiet(learner: Learner, plan: Plan, x: Vector) -> bool:
    """Whether the coming round comes before the next release."""
    return learner.clock[0] + 1 < learner.clock[3]


serve(Plan, reset=reset, begin=begin, prepare=prepare, commit=commit, choose=choose, quiet=quiet)
