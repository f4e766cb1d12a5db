"""The choice of an arm, and its record: the model's best arm, a random one for a holdout, or in the
shadow the arm that another system shows. Nothing here knows a reward.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import numpy as np

from dpbandit.model import ReleasedModel
from dpbandit.policies import Propensities
from dpbandit.policies.policy import BoundPolicy
from dpbandit.service.answers import Refused
from dpbandit.service.catalog import Served
from dpbandit.service.measure import WEIGHT_STEPS, weight_of
from dpbandit.types import Matrix, Vector


class Kept(NamedTuple):
    """What the store keeps with the first arm, for an evaluation."""

    propensity: float | None = None
    agreed: int | None = None  # in the shadow: what the round weighs if the model agreed, or 0
    by_lot: int | None = None  # with a holdout: its whole weight if the lot decided, or 0


class Chosen(NamedTuple):
    """Arms, the first of which is shown, with the scores of all."""

    order: list[int]
    scores: Vector
    chances: Propensities | None  # of each arm to be shown, where that was wanted
    kept: Kept


class Baseline(NamedTuple):
    """What another system shows."""

    arm: int | None
    propensity: float | None = None


async def choose(
    served: Served,
    model: ReleasedModel,
    given: Matrix,
    most: int,
    *,
    chances: bool,
    baseline: Baseline,
    draw: Callable[[Matrix], Awaitable[Propensities]],
) -> Chosen:
    """The best `most` arms, behind the one that is shown; `draw` finds propensities by lots."""
    order, scores = model.rank(given, most)
    if served.shadow:
        return _in_the_shadow(order, scores, baseline)
    holdout = served.holdout
    wanted = chances or holdout or model.policy.exact
    found = await _chances(model, given, draw) if wanted else None
    if found is None or not holdout:
        kept = Kept()
        if found is not None and not isinstance(model.policy, BoundPolicy):
            kept = Kept(float(found.probabilities[order[0]]))
        return Chosen(order, scores, found, kept)
    arms = len(given)
    mixed = (1 - holdout) * found.probabilities + holdout / arms
    by_lot = random.random() < holdout
    if by_lot:
        first = random.randrange(arms)
        order = [first, *(arm for arm in order if arm != first)][:most]
    kept = Kept(float(mixed[order[0]]), by_lot=WEIGHT_STEPS if by_lot else 0)
    errors = (1 - holdout) * found.standard_errors
    return Chosen(order, scores, Propensities(mixed, errors), kept)


def _in_the_shadow(order: list[int], scores: Vector, baseline: Baseline) -> Chosen:
    arm, propensity = baseline
    if arm is None:
        raise Refused(
            422,
            "this bandit is in the shadow: give the other system's arm as baseline, or make the "
            "bandit live",
        )
    certain = np.zeros(len(scores))
    certain[arm] = 1.0
    agreed = weight_of(propensity) if order[0] == arm else 0
    order = [arm, *(other for other in order if other != arm)][: len(order)]
    found = Propensities(certain, np.zeros(len(scores)))
    return Chosen(order, scores, found, Kept(propensity, agreed=agreed))


async def _chances(
    model: ReleasedModel, given: Matrix, draw: Callable[[Matrix], Awaitable[Propensities]]
) -> Propensities:
    """The probability with which the model ranks each arm first."""
    policy = model.policy
    if isinstance(policy, BoundPolicy):
        return policy.certain(model.view, given, model.alpha)
    return model.propensities(given) if policy.exact else await draw(given)
