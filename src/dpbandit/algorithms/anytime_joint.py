"""The anytime bandit with private contexts: whole rounds protected at nearly the price of rewards.

Everybody is protected except from themselves: the arm shown to a person may depend on that person's
own context, and on the others only through noisy sums (joint differential privacy). Two sums are
released indefinitely (`release.pair`): residuals along whitened directions, and the Gram matrix of
the directions, which costs nothing extra. A filter estimates θ from both (`learners.pair`). Arms
are picked by Thompson sampling, so that no direction is given up because of an early guess.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpbandit.algorithms import joint, presets
from dpbandit.algorithms.anytime import KNEE, LONGEST_KNEE, RATIO
from dpbandit.algorithms.rewards import NUMBERS, Rewards, rewards_of
from dpbandit.design import Design
from dpbandit.errors import OptionError
from dpbandit.options import Options, one_of, positive, whole
from dpbandit.policies import SAMPLED, THOMPSON, find_policy
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.noise import find_noise
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.privacy.unit import REWARD_BITS
from dpbandit.release.pair import Pair, most_move, packed_size
from dpbandit.types import Matrix

DESCRIPTION = "two sums released indefinitely, moments and directions; Thompson sampling: contexts are private too"
REFERENCE = "this project; see dpbandit proofs"
CLAIM = "joint, as GDP, proven"
OPTIONS = (
    "rewards",
    "window",
    "knee",
    "ratio",
    "first_release",
    "reward_variance",
    "private_features",
    "policy",
)
CONTEXTS_ARE_PRIVATE = True

# In knees: the first release, and the first change of the whitener.
FIRST = 0.09
CHANGE = 0.18
GROWTH = 3.0
VERSIONS = 8
# η²: up to ⅛ the Gram matrix is free; under the first whitener, which knows nothing, it is worth more.
FIRST_ETA2 = 0.25
LATER_ETA2 = 0.125
# Of persons nothing is free: noise grows by √(1 + 2η²), and all whiteners share it.
PERSONS_ETA2 = 0.125
ALPHA = 0.2  # of the posterior's standard deviation; the learner widens it where arms differ more
VISITS = (
    "who comes when, and how often, is public, and does not depend on their own contexts and rewards "
    "except through what was released"
)
SAMPLE = "public_contexts come from nobody who is protected: they shape the first whitener"


def design(name: str, options: Options) -> Design:
    noise = find_noise(options.noise or "gaussian", ("gaussian",))
    presets.refuse_pan_private(options, name, "its sums are clean in memory between releases")
    presets.check_range(options)
    options.protect_contexts()
    persons = not options.protects.counts_are_public
    if options.context_noise > 0:
        raise OptionError(f"{name} protects contexts itself: omit context_noise")
    rewards = rewards_of(options)
    share = positive("window", options.own("window", rewards.joint_window))
    if share > 1:
        raise OptionError(f"window must be at most 1, the reward's range, not {share!r}")
    ratio = positive("ratio", options.own("ratio", RATIO))
    if not 1 < ratio <= 10:
        raise OptionError(f"ratio must lie above 1, and at most 10, not {ratio!r}")
    policy = find_policy(
        one_of("policy", options.own("policy", THOMPSON.name), (THOMPSON.name, SAMPLED.name))
    )
    n = options.dim + 1
    numbers = n + packed_size(n)
    budget = noise.budget(options, Pair.draws(numbers, options.horizon, ratio))
    knee = options.own("knee", None)
    # All that the residuals of one unit can add up to, in rewards.
    reach = float(options.protects.option[1]) if persons else share * options.width
    if knee is None:
        noise_per_reward = reach / options.width if persons else NUMBERS.window
        knee = KNEE * options.dim * 2 * noise_per_reward / min(budget, 1e3)
    knee = min(positive("knee", knee), LONGEST_KNEE)
    first = options.own("first_release", None)
    if first is None:
        first = max(1, math.ceil(FIRST * knee))
    variance = options.own("reward_variance", options.width**2 / 16)
    release = Pair(
        noise,
        options.horizon,
        # A person's residuals are so many steps at most, and each may be an item of its own.
        on_grid(1.0, dim=numbers, norm=noise.norm, items=1 << REWARD_BITS if persons else 1),
        budget,
        dim=numbers,
        knee=knee,
        ratio=ratio,
        first=whole("first_release", first, least=1),
        n=n,
        change=max(1, math.ceil(CHANGE * knee)),
        growth=GROWTH,
        versions=VERSIONS,
        first_eta2=PERSONS_ETA2 if persons else FIRST_ETA2,
        later_eta2=PERSONS_ETA2 if persons else LATER_ETA2,
        persons=persons,
    )
    infinite = math.isinf(options.need_epsilon())
    claim = Claim(
        unit=_unit(options),
        notion="none" if infinite else "joint",
        epsilon=options.need_epsilon(),
        delta=options.need_delta(),
        mu=noise.mu(options, budget),
        status="none" if infinite else "proven",
        noise=presets.noise_kind(options),
        assumptions=(
            presets.clipped(options),
            joint.BOUNDED.format(options.max_norm),
            joint.OWN_ARM,
            joint.TIMING,
            joint.OTHERS,
            *([VISITS] if persons else []),
            *([SAMPLE] if options.public_contexts is not None else []),
        ),
    )
    return Design(
        learner="pair",
        settings={
            **release.core(),
            "window": share * options.width,
            "reach": reach,
            "reward_variance": positive("reward_variance", variance),
            "known_second": known_second(options),
        },
        release=release,
        noise=noise,
        policy=policy,
        claim=claim,
        ledger=noise.ledger(budget),
        theory=math.sqrt(options.dim) + math.sqrt(2 * math.log(1 / options.zeta)),
        alpha=ALPHA,
        contexts_are_private=True,
        values_depend_on_releases=True,
    )


def noise_of_person(most: float, width: float, rewards: Rewards) -> float:
    """A person's noise on what residuals add up to, in units of one round's.

    >>> from dpbandit.algorithms.rewards import CLICKS
    >>> round(noise_of_person(1.0, 1.0, CLICKS), 2)
    1.12
    """
    alone = rewards.joint_window * width * math.sqrt(most_move(LATER_ETA2, persons=False))
    return most * math.sqrt(most_move(PERSONS_ETA2, PERSONS_ETA2, persons=True)) / alone


def known_second(options: Options) -> Matrix:
    """Second moments of (x/L, 1) over contexts that are public; empty if none are known.

    Moments of some columns alone were tried where only those are public. They win nothing, and lose
    where the others' mean is guessed wrongly (docs/privacy.md).
    """
    if options.public_contexts is None:
        return np.empty((0, 0))
    count, d = len(options.public_contexts), options.dim
    longer = np.column_stack([options.public_contexts / options.max_norm, np.ones(count)])
    # What was not seen is taken to be round, with the weight of one context.
    unseen = np.diag(np.append(np.full(d, 1.0 / d), 1.0))
    found: Matrix = (longer.T @ longer + unseen) / (count + 1)
    return found


def _unit(options: Options) -> str:
    """Who is protected: with `private_features`, only those columns of a context."""
    private = options.own("private_features", None)
    words = options.protects.words_with_contexts
    if private is None:
        return words
    columns = features(private, options.dim)
    options.extra["private_features"] = columns
    named = f"feature {columns[0]} is" if len(columns) == 1 else f"features {columns} are"
    return f"{words}, where {named} private"


def features(given: Any, dim: int) -> list[int]:
    """Columns, from their numbers or a mask.

    >>> features([True, False, True], 3), features([2, 0], 3)
    ([0, 2], [0, 2])
    """
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.empty((0, 0))
    if array.ndim == 1 and array.dtype == bool and len(array) == dim:
        array = np.flatnonzero(array)
    whole_numbers = array.ndim == 1 and np.issubdtype(array.dtype, np.integer) and len(array) > 0
    if not whole_numbers or array.min() < 0 or array.max() >= dim:
        raise OptionError(
            f"private_features must be columns from 0 to {dim - 1}, at least one, or a mask of "
            f"{dim} flags, not {given!r}"
        )
    return sorted({int(column) for column in array})
