"""The anytime bandit: no horizon, no log T, and the lowest price of privacy here.

Every reward enters one sum, at norm 1, through a whitened instrument; the sum is released at times
that grow geometrically, and each release spends a share of every reward's remaining budget
(`release.anytime`). The sum holds residuals against the released prediction, which need a narrower
range than rewards. A Kalman filter combines all releases (`learners.filter`), with a prior based
only on contexts (`learners.prior`), and arms are picked by upper confidence bounds. Hypotheses
about the world compete on how well they predict the noisy releases, at no cost: how fast it changes
(`learners.bank`), and how far arms differ. Where arms share no feature, the first rewards are
answered by themselves instead (`release.local`). It assumes a mean reward that is linear in the
context; where that fails it is still private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpbandit.algorithms import presets
from dpbandit.algorithms.phase import local_phase
from dpbandit.algorithms.rewards import NUMBERS, rewards_of
from dpbandit.design import DEFAULT_ALPHA, Design
from dpbandit.errors import OptionError
from dpbandit.learners.scale import FREE
from dpbandit.options import Options, flag, one_of, positive, whole
from dpbandit.policies import CENTRED_UCB, SAMPLED, find_policy
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.noise import Noise, find_noise
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.release import Anytime
from dpbandit.release.local import NEVER, LocalPhase

DESCRIPTION = (
    "instrument sums released indefinitely, Kalman filter, upper confidence bounds: the lowest price of "
    "privacy here"
)
REFERENCE = "this project; see dpbandit proofs"
CLAIM = "GDP, proven; (ε, δ) where the first rewards may be released one by one"
OPTIONS = (
    "rewards",
    "window",
    "knee",
    "ratio",
    "first_release",
    "reward_variance",
    "empirical_bayes",
    "memories",
    "life",
    "explore",
    "find_scale",
    "local",
    "policy",
)

# Where they come from, and what other values gave: docs/frontier.md.
KNEE = 45.0  # rounds per dimension and unit of noise
RATIO = 1.025
# Rounds after which the interval between releases stops growing: this many, or knees if more.
LIFE, LIFE_IN_KNEES = 10_000.0, 12.0
# Rounds after which past information fades to about a third, in the memories that forget. Clicks vary as
# much as their rates do, which short memories take for a change.
MEMORIES = (27_000.0, 9_000.0, 4_000.0, 2_000.0, 1_000.0)
MEMORIES_OF_CLICKS = (27_000.0, 9_000.0, 3_000.0)
MOST_MEMORIES = 16
# The uncertainty that the bonus covers: arms and features that play neglects, or all.
EXPLORE = {"neglected": True, "everything": False}
# One hypothesis, one prior, one sum and nothing else: the form that a GPU can play.
PLAIN = {
    "memories": (),
    "empirical_bayes": False,
    "life": math.inf,
    "explore": "everything",
    "find_scale": False,
    "local": NEVER,
}
# Of policy='sampled': standard deviations of the posterior, where arms share no feature
# (`learners.filter` narrows them where they do). What it costs: docs/frontier.md.
SPREAD = 0.8
# Beyond, a release would show less of an item than floats can tell.
LONGEST_KNEE = 1e9


def design(name: str, options: Options) -> Design:
    noise = find_noise(options.noise or "gaussian", ("gaussian",))
    presets.refuse_pan_private(options, name, "its sum is clean in memory between releases")
    presets.check_range(options)
    rewards = rewards_of(options)
    whole_range = not options.protects.counts_are_public
    share = positive("window", options.own("window", 0.5 if whole_range else rewards.window))
    if whole_range and share != 0.5:
        raise OptionError(
            f"with unit={options.unit!r} window must be 0.5, the whole range, not {share!r}: the sum "
            "of a person's rewards needs the same noise in any window"
        )
    if share > 0.5:
        raise OptionError(
            "window must be at most 0.5 of the reward's range, which is no window at all, not "
            f"{share!r}"
        )
    ratio = positive("ratio", options.own("ratio", RATIO))
    if not 1 < ratio <= 10:
        raise OptionError(f"ratio must lie above 1, and at most 10, not {ratio!r}")
    finds = finds_scale(options, share)
    # Whoever states the window, or the variance in it, keeps it.
    stated = {"window", "reward_variance"} & set(options.extra)
    opens = finds and not stated
    # Of an item: an instrument for the context and a constant, and what rides along.
    numbers = options.dim + 1 + (FREE if finds else 0)
    budget = noise.budget(options, Anytime.draws(numbers, options.horizon, ratio))
    knee = options.own("knee", None)
    if knee is None:
        # Noise against signal: about so many rounds pass before a direction is known to within the
        # range of rewards.
        knee = KNEE * options.dim * 2 * share / min(budget, 1e3)
    knee = min(positive("knee", knee), LONGEST_KNEE)
    # As people use up their caps their rewards fade, which filters that forget would take for tastes
    # that move.
    usual = MEMORIES_OF_CLICKS if rewards.are_clicks else MEMORIES
    memories = options.own("memories", () if whole_range else usual)
    # One number is a memory that always acts: what is shown about a round must not outlast it.
    alone = isinstance(memories, (int, float)) and not isinstance(memories, bool)
    memories = [memories] if alone else memories
    if not isinstance(memories, (tuple, list)) or len(memories) > MOST_MEMORIES:
        raise OptionError(
            f"memories must be at most {MOST_MEMORIES} numbers of rounds, () for none, or one number "
            f"for a memory that always acts, not {memories!r}"
        )
    memories = [positive("memories", one) for one in memories]
    life = max(LIFE, LIFE_IN_KNEES * knee)
    life = max(1.0, min(life, memories[0])) if alone else life
    life = _rounds("life", options.own("life", life))
    policy = find_policy(
        one_of("policy", options.own("policy", CENTRED_UCB.name), (CENTRED_UCB.name, SAMPLED.name))
    )
    by_lot = policy is SAMPLED
    if by_lot and options.alpha == "theory":
        raise OptionError("alpha='theory' is the width of a bound, and policy='sampled' has none")
    everything = by_lot or options.alpha == "theory"
    explore = options.own("explore", "everything" if everything else "neglected")
    if explore not in EXPLORE:
        raise OptionError(
            f"explore must be one of {', '.join(map(repr, EXPLORE))}, not {explore!r}"
        )
    neglected = EXPLORE[explore]
    if neglected and options.alpha == "theory":
        raise OptionError(
            "alpha='theory' covers all directions: explore='neglected' does not go with it"
        )
    if neglected and by_lot:
        raise OptionError(
            "policy='sampled' samples arms from the whole posterior: explore='neglected' does not go "
            "with it"
        )
    first = options.own("first_release", None)
    if first is None:
        first = max(1, math.ceil(knee / 20))
    variance = options.own("reward_variance", options.width**2 / 16)
    local = local_phase(options, numbers=options.dim + 1, budget=budget)
    release = Anytime(
        noise,
        options.horizon,
        on_grid(1.0, dim=numbers, norm=noise.norm, items=options.protects.items_per_move),
        budget,
        dim=numbers,
        knee=knee,
        ratio=ratio,
        first=whole("first_release", first, least=1),
        life=life,
        local=local,
    )
    public = options.public_contexts
    return Design(
        learner="filter",
        settings={
            **release.core(),
            "window": share * options.width,
            "widest": (0.5 if opens else share) * options.width,
            "reward_variance": positive("reward_variance", variance),
            "rewards": rewards.name,
            "empirical_bayes": flag("empirical_bayes", options.own("empirical_bayes", True)),
            "life": life,
            "memories": np.array(memories),
            "memory_alone": alone,
            "neglected": neglected,
            "find_scale": finds,
            **local.core(share * options.width),
            "public_contexts": np.empty((0, options.dim)) if public is None else public,
        },
        release=release,
        noise=noise,
        policy=policy,
        claim=_claim(options, noise, budget, local),
        ledger=noise.ledger(budget),
        # The posterior holds all uncertainty, the noise's too: this radius covers every x at once.
        theory=math.sqrt(options.dim) + math.sqrt(2 * math.log(1 / options.zeta)),
        alpha=SPREAD if by_lot else rewards.alpha if neglected else DEFAULT_ALPHA,
        values_depend_on_releases=True,  # residuals are taken against the released prediction
        has_instruments=True,
    )


def _claim(options: Options, noise: Noise, budget: float, local: LocalPhase) -> Claim:
    """μ-GDP, or (ε, δ) where some rewards pay pure ε instead."""
    found = presets.claim(options, noise, budget, assumptions=local.words)
    return replace(found, notion="parallel", mu=None) if local.rounds else found


def not_plain(spec: Mapping[str, Any]) -> str:
    """The parts of a bandit that weigh hypotheses, in words; none for a plain one, which is linear
    in the releases."""
    parts = {
        "memories compete": len(spec["memories"]) > 0,
        "its prior is fitted at every release": spec["empirical_bayes"],
        "it explores what is neglected": spec["neglected"],
        "its releases stay at a constant interval": not math.isinf(spec["life"]),
        "its window follows the residuals": spec["find_scale"],
        "its first rewards may be released one by one": spec["local"] > 0,
    }
    found = [words for words, is_so in parts.items() if is_so]
    plain = ", ".join(f"{name}={value!r}" for name, value in PLAIN.items())
    plain = plain.replace("=inf", "=math.inf")
    return f"{', '.join(found)} (a plain one has {plain})" if found else ""


def finds_scale(options: Options, share: float) -> bool:
    """Whether the window follows residuals: as requested, or by default where possible."""
    rewards = options.own("rewards", NUMBERS.name)
    against = ""
    if options.protects.needs_instruments:
        against = f"unit={options.unit!r}: where residuals are free, a user's move the same way"
    elif not options.protects.counts_are_public:
        against = f"unit={options.unit!r}: a person's rewards add up only in the whole range"
    elif rewards != NUMBERS.name:
        against = f"rewards={rewards!r}, which already determines the variance"
    elif share == 0.5:
        against = "window=0.5, which is no window"
    found = flag("find_scale", options.own("find_scale", not against))
    if found and against:
        raise OptionError(f"find_scale=True does not go with {against}. Omit find_scale")
    return found


def _rounds(name: str, value: Any) -> float:
    """At least 1; infinity is a number of rounds too."""
    if value != math.inf and positive(name, value) < 1:
        raise OptionError(f"{name} is in rounds, 1 at least, not {value!r}")
    return float(value)
