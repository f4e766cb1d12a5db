"""From our bandits to plans for the kernels: which of them a GPU plays, and what it says to others.

Whatever it does not know it refuses by name: a policy, a noise, a release, a learner, a key of the
spec.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpbandit.algorithms import registry
from dpbandit.algorithms.anytime import PLAIN, not_plain
from dpbandit.bandit import Bandit
from dpbandit.errors import OptionError
from dpbandit.gpu.plans import NOISES, Anytime, Plan
from dpbandit.gpu.play import pool_and_truths
from dpbandit.privacy.sensitivity import lemma1
from dpbandit.release.anytime import Anytime as AnytimeRelease
from dpbandit.release.anytime import kept, next_time, shown, times
from dpbandit.worlds import Synthetic

PLAYED = (
    "random, linucb, local, private-linucb, private-linucb-published, tree-gauss, toeplitz, dgs, "
    "dgs-published, dgs-figure, adac-oful and a plain anytime"
)
# The rule that the kernels play for each learner.
POLICIES = {"none": "uniform", "ridge": "ucb", "filter": "centred-ucb"}
# The choices that this module knows, for each learner. One that is new elsewhere is refused here,
# not left out.
COMMON = (
    "learner policy noise dim max_norm l1_limit one_hot low high clips horizon alpha ties_key "
    "context_noise contexts_key holdout"
)
RIDGE = (
    "site release ridge levels unknown_horizon sensitivity multipliers growth shape unshape floor "
    "public_arms rates weights form smallest_eigenvalue lemma_delta printed_index forget"
)
FILTER = (
    "scale window knee ratio first life reward_variance rewards empirical_bayes memories "
    "memory_alone neglected find_scale widest local local_anyhow local_scale local_variance public_contexts"
)
KNOWN = {
    learner: {*COMMON.split(), *own.split()}
    for learner, own in (("none", ""), ("ridge", RIDGE), ("filter", FILTER))
}


def plan_of(bandit: Any, horizon: int) -> Plan:
    """What the kernels need to play this bandit for `horizon` rounds, or why they cannot."""
    name = getattr(bandit, "name", type(bandit).__name__)
    if not isinstance(bandit, Bandit):
        raise _refusal(name, "it is not one of ours")
    if bandit.design.not_in_core:
        raise _refusal(name, f"it has no {bandit.design.not_in_core[0]}")
    options, spec = bandit.options, bandit.spec
    learner, policy, noise = spec["learner"], spec["policy"], spec["noise"]
    if learner not in POLICIES:
        raise _refusal(name, f"its statistics are of another kind, {learner!r}")
    if policy != POLICIES[learner]:
        raise _refusal(name, f"its policy is {policy!r}, and the kernels have another")
    if noise not in NOISES or noise == "laplace-l2":
        raise _refusal(name, f"it has no {noise!r} noise")
    if set(spec) != KNOWN[learner]:
        unknown = sorted(set(spec) ^ KNOWN[learner])[0]
        raise _refusal(name, f"they know nothing of its choice {unknown!r}")
    if spec["context_noise"] > 0:
        raise _refusal(name, "context_noise draws new contexts in every round")
    if spec["holdout"] > 0:
        raise _refusal(name, "holdout plays some rounds at random")
    alphas = bandit.alphas(1, horizon)
    shared: dict[str, Any] = {
        "noise": noise,
        "alphas": tuple(alphas[:1].tolist() if (alphas == alphas[0]).all() else alphas.tolist()),
        "clip": (spec["low"], spec["high"]) if spec["clips"] else (-math.inf, math.inf),
        "ridge": float(options.ridge),
        "max_norm": float(options.max_norm),
    }
    if learner == "none":
        return Plan("random", **shared)
    if learner == "filter":
        return Plan("anytime", anytime=_anytime(bandit, horizon), **shared)
    return _ridge_plan(name, spec, horizon, shared)


def papers_plans(
    rounds: int, names: Sequence[str] = ("linucb", "tree-gauss", "dgs", "anytime")
) -> dict[str, Plan]:
    """Algorithms in the paper's setting; noise that depends on a pool is scaled for the first."""
    pool, _ = pool_and_truths(Synthetic(), 0)
    options = {"dim": 10, "horizon": rounds, "public_contexts": pool, "seed": 0}
    options |= {"epsilon": 2.0, "delta": 0.1, "reward_range": (-0.5, 1.5)}
    own = {"anytime": PLAIN}  # what a GPU can play of it
    return {
        name: plan_of(registry.construct(name, options | own.get(name, {})), rounds)
        for name in names
    }


def _ridge_plan(name: str, spec: dict[str, Any], horizon: int, shared: dict[str, Any]) -> Plan:
    site, release = spec["site"], spec["release"]
    if len(spec["shape"]):
        raise _refusal(name, "shaped moments keep a second matrix")
    if spec["forget"] != 1.0:
        raise _refusal(name, "forget changes all of A in every round")
    # The kernels add up x·r as it is; an item is a share of that: of W·max_norm, or of W.
    width = spec["high"] - spec["low"]
    per_item = {"reward": width, "moments": width * spec["max_norm"]}.get(site, 1.0)
    size = float(spec["sensitivity"]) * per_item
    one = size * float(spec["multipliers"][1])
    match site, release:
        case "nothing", _:
            return Plan("linucb", **shared)
        case "reward", "once":
            return Plan("local", scales=(one,), **shared)
        case "moments", "toeplitz":
            decays = (tuple(spec["rates"].tolist()), tuple(spec["weights"].tolist()))
            return Plan("toeplitz", scales=(one,), decays=decays, **shared)
        case "moments", "episodes":
            return Plan("episodes", scales=(one,), growth=spec["growth"], **shared)
        case "moments", "honaker":
            raise _refusal(name, "honaker=True releases every node")
        case "moments", "pan-private":
            raise _refusal(name, "the pan-private form keeps noise in every sum")
        case (("moments" | "own" | "increment"), "tree") if spec["unknown_horizon"]:
            raise OptionError(
                f"device='cuda' plays {name} with a known horizon only: give one, or use "
                "device='cpu'"
            )
        case (("moments" | "own" | "increment"), "tree"):
            return _tree_plan(name, spec, size, horizon, shared)
    raise _refusal(name, f"it has no release {release!r} at site {site!r}")


def _tree_plan(
    name: str, spec: dict[str, Any], size: float, horizon: int, shared: dict[str, Any]
) -> Plan:
    multiplier = float(spec["multipliers"][spec["levels"]])
    match spec["site"]:
        case "moments":
            return Plan("tree", scales=(multiplier * size,), **shared)
        case "own" if len(spec["public_arms"]) == 0:
            why = "without public contexts its noise covers the whole ball, which needs eigenvalues"
            raise _refusal(name, why)
        case "own":
            return Plan("dgs", scales=(multiplier * size,), **shared)
        case "increment":
            ends = np.arange(1, horizon + 1)
            if spec["printed_index"]:
                ends = ends - (ends & -ends) + 1
            lemma = (spec["form"], spec["smallest_eigenvalue"], spec["lemma_delta"])
            bounds = [lemma1(float(end), *lemma, size, spec["ridge"]) for end in ends]
            return Plan("increment", scales=tuple(multiplier * one for one in bounds), **shared)
    raise _refusal(name, f"it has no site {spec['site']!r}")


def _anytime(bandit: Bandit, horizon: int) -> Anytime:
    spec, release = bandit.spec, bandit.release
    if not isinstance(release, AnytimeRelease):
        raise _refusal(bandit.name, f"it has no release {release.name!r} for a filter")
    if len(spec["public_contexts"]) == 0:
        why = "without public contexts its instruments change as contexts are seen"
        raise _refusal(bandit.name, why)
    if why := not_plain(spec):
        raise _refusal(bandit.name, why)
    if spec["rewards"] != "numbers":
        raise _refusal(bandit.name, f"rewards={spec['rewards']!r} moves its prior at every release")
    if spec["scale"] == 0.0:
        why = "epsilon = inf leaves a matrix that single precision cannot invert"
        raise _refusal(bandit.name, why)
    moments = times(release.first, release.ratio, horizon).tolist()
    left = [kept(j, next_time(j, release.ratio), release.knee) for j in moments]
    return Anytime(
        window=spec["window"],
        scale=spec["scale"],
        reward_variance=spec["reward_variance"],
        low=spec["low"],
        high=spec["high"],
        moments=tuple(moments),
        shown=tuple(shown(rho) for rho in left),
        kept=tuple(left),
    )


def _refusal(name: str, why: str) -> OptionError:
    return OptionError(
        f"device='cuda' does not play {name} with these options: {why}. Use device='cpu' (it plays "
        f"{PLAYED})"
    )
