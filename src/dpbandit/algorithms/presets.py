"""Shared by the algorithms' files: from (ε, δ) to a design, and the wording of claims."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpbandit.design import Design
from dpbandit.errors import OptionError
from dpbandit.options import Options
from dpbandit.policies import UCB, Policy
from dpbandit.privacy.claim import Claim, NoiseKind, Notion, Status
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.noise import GAUSSIAN, Noise
from dpbandit.release import Nothing, Release
from dpbandit.types import Matrix, Vector

CLIPPED = "each reward is clipped to {0}, so it can move by at most {1:g}"
CONTEXTS_PUBLIC = (
    "contexts, arm features, the order of learning and all timing are public and not protected"
)
CONTEXTS_NOT_CAPPED = (
    "its contexts are private, and a cap on the sum of rewards does not cap contexts"
)
# Of arms without features.
ONE_HOT = ("contexts name arms and nothing else (checked)",)
OTHERS = "other people's rewards do not react to the changed one except through what was released"
# Of a unit with several rewards.
THEIR_OWN = (
    "their own visits and contexts do not depend on their rewards except through what was released: no "
    "feature is made from their past rewards"
)
# A reward this many widths from 0 loses half of its digits.
FURTHEST = 1e9


def check_range(options: Options) -> None:
    """Raise for rewards that floats hardly distinguish."""
    if max(abs(end) for end in options.reward_range) > FURTHEST * options.width:
        raise OptionError(
            f"reward_range = {options.reward_range} lies too far from 0 for its width "
            f"{options.width:g}: floats hardly distinguish such rewards; subtract a constant from "
            "the rewards"
        )


def claim(
    options: Options,
    noise: Noise,
    budget: float,
    status: Status = "proven",
    assumptions: tuple[str, ...] = (),
) -> Claim:
    """A claim in the words that most algorithms share. An infinite ε gives no claim."""
    epsilon = options.need_epsilon()
    notion: Notion = noise.notion
    if math.isinf(epsilon):
        status, notion = "none", "none"
    return Claim(
        unit=options.unit_in_words,
        notion=notion,
        epsilon=epsilon,
        delta=noise.delta(options),
        mu=noise.mu(options, budget),
        status=status,
        noise=noise_kind(options),
        assumptions=(
            clipped(options),
            CONTEXTS_PUBLIC,
            OTHERS,
            *their_own(options),
            *assumptions,
        ),
    )


def their_own(options: Options) -> tuple[str, ...]:
    """The assumption on the other rounds of a unit that has several."""
    return (THEIR_OWN,) if options.protects.needs_user and options.protects.cap != 1 else ()


def clipped(options: Options) -> str:
    """The treatment of rewards outside their range, in a claim's words."""
    return CLIPPED.format(options.reward_range, options.width)


def noise_kind(options: Options) -> NoiseKind:
    """Real noise without a seed."""
    return "real" if options.seed is None else "simulation"


def ridge(
    options: Options,
    site: str,
    release: Release,
    *,
    promise: Claim,
    ledger: Ledger | None = None,
    theory: Callable[[Vector], Vector],
    policy: Policy = UCB,
    public_set: Matrix | None = None,
    **more: Any,
) -> Design:
    """A design whose learner is LinUCB's regression, with the noise at a site.

    The ledger holds the release's budget, if none is given. `more` are settings of the learner, or
    fields of the design, that differ from the usual ones.
    """
    public = np.empty((0, options.dim)) if public_set is None else public_set
    settings = {
        "site": site,
        "ridge": options.ridge,
        "shape": np.empty((0, 0)),
        "unshape": np.empty((0, 0)),
        "floor": 0.0,
        "public_arms": public,
        "form": "simplified",
        "smallest_eigenvalue": 1.0,
        "lemma_delta": 0.5,
        "printed_index": False,
        "forget": 1.0,
        **release.core(),
    }
    settings |= {name: more.pop(name) for name in list(more) if name in settings}
    return Design(
        learner="ridge",
        settings=settings,
        release=release,
        noise=release.noise,
        policy=policy,
        claim=promise,
        ledger=release.noise.ledger(release.budget) if ledger is None else ledger,
        theory=theory,
        public_set=public,
        **more,
    )


def nothing(options: Options) -> Nothing:
    """The release of a bandit that protects nobody."""
    return Nothing(GAUSSIAN, options.horizon, 1.0, math.inf)


def refuse_persons(options: Options, name: str, why: str) -> None:
    """Raise for unit=('person', C) if nothing is proven for it."""
    if not options.protects.counts_are_public:
        raise OptionError(f"{name} has no unit=('person', C): {why}; use unit=('user', m)")


def check_plain_arms(options: Options, name: str, memory: str) -> None:
    """Raise for options that arms without features cannot have. `memory`: why it is not
    pan-private."""
    refuse_pan_private(options, name, memory)
    check_range(options)
    if options.context_noise > 0:
        raise OptionError(f"{name} has no context_noise: a perturbed context names no arm")
    if options.max_norm < 1:
        raise OptionError(
            f"{name} needs max_norm ≥ 1, the norm of a one-hot context, not {options.max_norm:g}"
        )


def refuse_pan_private(options: Options, name: str, why: str) -> None:
    """Raise for pan_private if the algorithm has no pan-private form."""
    if options.pan_private:
        raise OptionError(
            f"{name} has no pan-private form: {why}; use private-linucb or tree-gauss"
        )
