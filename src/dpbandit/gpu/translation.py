"""From our bandits to plans for the kernels: which of them a GPU plays, and what it says to the others.

The one module of this room that needs the rest of the library.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpbandit import sensitivity
from dpbandit.bandits import anytime_steps, rounds, steps
from dpbandit.bandits.linear import LinearBandit, is_compiled
from dpbandit.errors import OptionError
from dpbandit.gpu.plans import NOISES, Anytime, Plan
from dpbandit.noise import CODES
from dpbandit.release import anytime as releases
from dpbandit.release import toeplitz

PLAYED = (
    "random, linucb, local, private-linucb, private-linucb-published, tree-gauss, toeplitz, dgs, dgs-published, dgs-figure, "
    "adac-oful and anytime"
)


def plan_of(bandit: Any, horizon: int) -> Plan:
    """What the kernels need to play this bandit for `horizon` rounds, or an error that says what to do instead."""
    name = getattr(bandit, "name", type(bandit).__name__)
    if not is_compiled(bandit):
        raise _refusal(name, "it is not one of ours")
    options, plan = bandit.options, bandit.plan
    if plan.context_noise > 0:
        raise _refusal(name, "context_noise draws new contexts in every round")
    noise = {code: word for word, code in CODES.items()}[plan.noise]
    if noise not in NOISES or noise == "laplace-l2":
        raise _refusal(name, f"it has no {noise!r} noise")
    clip = tuple(float(end) for end in options.reward_range) if bandit._clips else (-math.inf, math.inf)
    alphas = bandit.alphas(1, horizon)
    shared: dict[str, Any] = {
        "noise": noise,
        "alphas": tuple(alphas[:1].tolist() if (alphas == alphas[0]).all() else alphas.tolist()),
        "clip": clip,
        "ridge": float(options.ridge),
        "max_norm": float(options.max_norm),
    }
    if isinstance(plan, anytime_steps.Plan):
        return Plan("anytime", anytime=_anytime(bandit, horizon), **shared)
    if not isinstance(plan, steps.Plan):
        raise _refusal(name, "its statistics are of another kind")
    return _ridge_plan(name, bandit, plan, horizon, shared)


def _ridge_plan(name: str, bandit: LinearBandit, plan: steps.Plan, horizon: int, shared: dict[str, Any]) -> Plan:
    for refused, why in (
        (plan.pan_private, "the pan-private form keeps noise in every sum"),
        (len(plan.shape) > 0, "shaped moments keep a second matrix"),
        (plan.rule == steps.THOMPSON, "Thompson sampling factors A in every round"),
        (plan.release == steps.HONAKER, "honaker=True releases every node"),
    ):
        if refused:
            raise _refusal(name, why)
    if plan.seat == rounds.RANDOM:
        return Plan("random", **shared)
    if plan.seat == rounds.NOTHING:
        return Plan("linucb", **shared)
    if plan.seat == rounds.REWARD:
        return Plan("local", scales=(plan.sensitivity * float(plan.multipliers[1]),), **shared)
    one = plan.sensitivity * float(plan.multipliers[1])
    if plan.seat == rounds.MOMENTS and plan.release == steps.TOEPLITZ:
        rates, weights = toeplitz.decays_for(bandit.options.horizon)
        return Plan("toeplitz", scales=(one,), decays=(tuple(rates.tolist()), tuple(weights.tolist())), **shared)
    if plan.seat == rounds.MOMENTS and plan.release == steps.EPISODES:
        return Plan("episodes", scales=(one,), growth=plan.growth, **shared)
    if plan.unknown_horizon:
        raise OptionError(f"device='cuda' plays {name} with a known horizon only: give one, or use device='cpu'")
    multiplier = float(plan.multipliers[plan.levels])
    if plan.seat == rounds.MOMENTS:
        return Plan("tree", scales=(multiplier * plan.sensitivity,), **shared)
    if plan.seat == rounds.OWN:
        if len(plan.arms) == 0:
            raise _refusal(name, "without public contexts its noise covers the whole ball, which needs eigenvalues")
        return Plan("dgs", scales=(multiplier * plan.sensitivity,), **shared)
    ends = np.arange(1, horizon + 1)
    if plan.printed_index:
        ends = ends - (ends & -ends) + 1
    lemma = [
        sensitivity.lemma1(
            float(end), plan.form, plan.smallest_eigenvalue, plan.lemma_delta, plan.sensitivity, plan.ridge
        )
        for end in ends
    ]
    return Plan("increment", scales=tuple(multiplier * delta for delta in lemma), **shared)


def _anytime(bandit: LinearBandit, horizon: int) -> Anytime:
    plan = bandit.plan
    if bandit.options.public_contexts is None:
        raise _refusal(bandit.name, "without public contexts its instruments change as contexts are seen")
    if plan.empirical_bayes:
        raise _refusal(bandit.name, "empirical_bayes=True fits its prior at every release")
    if plan.scale == 0.0:
        raise _refusal(bandit.name, "epsilon = inf leaves a matrix that single precision cannot invert")
    moments = releases.times(plan.first, plan.ratio, horizon)
    kept = [releases.kept(j, releases.next_time(j, plan.ratio), plan.knee) for j in moments.tolist()]
    return Anytime(
        window=plan.window,
        scale=plan.scale,
        reward_variance=plan.reward_variance,
        low=plan.low,
        high=plan.high,
        moments=tuple(moments.tolist()),
        shown=tuple(releases.shown(rho) for rho in kept),
        kept=tuple(kept),
    )


def _refusal(name: str, why: str) -> OptionError:
    return OptionError(
        f"device='cuda' does not play {name} with these options: {why}. Use device='cpu' (it plays {PLAYED})"
    )
