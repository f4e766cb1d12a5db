"""The two endpoints of a round, asked thousands of times a second: a decision, and its reward."""

from __future__ import annotations

import hashlib
import math
import time
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpbandit.service.answers import JSON, Answer, Receive, Refused, decoded, encode
from dpbandit.service.records import (
    CONFLICT,
    UNKNOWN,
    Asked,
    Earlier,
    decision_id,
    parse_decision_id,
)

if TYPE_CHECKING:
    from dpbandit.service.api import App

LONGEST_TEXT = 256
LONGEST_REQUEST = 64


class DecisionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST …/decisions`."""

    contexts: list[list[float]]
    arms: list[str] | None = None
    user: str | None = None
    request: str | None = None


class RewardRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST …/rewards`, or one of a list."""

    decision: str
    reward: float


class DecisionAnswer(msgspec.Struct):
    decision: str
    arm: int
    arm_id: str | None
    model_version: int


_DECISION = msgspec.json.Decoder(DecisionRequest)
_REWARDS: msgspec.json.Decoder[RewardRequest | list[RewardRequest]] = msgspec.json.Decoder(
    RewardRequest | list[RewardRequest]
)


async def decide(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Choose an arm. Answered when the decision is durable. With a `request` id asking again is
    safe: 200 and the decision that was made the first time.
    """
    began = time.perf_counter()
    body = await app.body(receive)
    served = await app.served(name)
    asked = decoded(_DECISION, body)
    contexts, arms, user = asked.contexts, asked.arms, asked.user
    _at_most(app.settings.max_arms, len(contexts), "arms", "allowed")
    version, model = served.version, served.model
    given = model.check(contexts)
    arm = model.choose(given)
    arm_id = None
    if arms is not None:
        if len(arms) != len(contexts):
            raise Refused(422, f"{len(arms)} arms were named for {len(contexts)} contexts")
        if max(map(len, arms)) > LONGEST_TEXT or any("\0" in name for name in arms):
            why = f"the name of an arm has at most {LONGEST_TEXT} characters, none of them NUL"
            raise Refused(422, why)
        arm_id = arms[arm]
    person = None
    if served.needs_user:
        if not user or len(user) > LONGEST_TEXT:
            raise Refused(
                422,
                f"this bandit protects users: say whose decision it is, in 1 to {LONGEST_TEXT} "
                "characters",
            )
        # A name is not needed to count by: what is kept is a keyed hash.
        person_key = app.catalog.person_key
        person = hashlib.blake2b(user.encode(), key=person_key, digest_size=16).digest()
    place = await app.journal.decide(
        (served.id, arm, arm_id, given[arm].tobytes(), person, version, key),
        None if asked.request is None else _fingerprint(app, asked.request, asked, given),
    )
    if place is None:
        raise Refused(404, "there is no bandit of this name")
    if isinstance(place, Earlier):
        if not place.same:
            raise Refused(
                409,
                "this request id was used with other contexts, arms or another user: choose a "
                "new one",
            )
        identity = decision_id(place.seq, place.nonce)
        earlier = DecisionAnswer(identity, place.arm, place.arm_id, place.version)
        return 200, JSON, encode(earlier)
    answer = encode(DecisionAnswer(decision_id(*place), arm, arm_id, version))
    app.metrics.decided(time.perf_counter() - began)
    return 201, JSON, answer


def _fingerprint(
    app: App, request: str, asked: DecisionRequest, given: NDArray[np.float64]
) -> Asked:
    """The request id and a hash of all else that was asked, whichever way the numbers were written.
    Keyed like that of a person, whose name may be in it."""
    if not 0 < len(request) <= LONGEST_REQUEST or "\0" in request:
        why = f"a request id has 1 to {LONGEST_REQUEST} characters, none of them NUL"
        raise Refused(422, why)
    # + 0.0: a zero is a zero, with or without its minus
    digest = hashlib.blake2b(
        (given + 0.0).tobytes(), key=app.catalog.person_key, digest_size=16, person=b"request"
    )
    digest.update(encode((given.shape, asked.arms, asked.user)))
    return request, digest.digest()


async def reward(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Report the reward of a decision, or a list of them. Answered when durable; asking again is
    safe. In a list each gets a status of its own, 'unknown' and 'conflict' included.
    """
    body = await app.body(receive)
    served = await app.served(name)
    asked = decoded(_REWARDS, body)
    items = asked if isinstance(asked, list) else [asked]
    _at_most(app.settings.max_rewards, len(items), "rewards", "allowed in a call")
    places = [parse_decision_id(item.decision) for item in items]
    reports = [
        (*place, _clip(item.reward, *served.reward_range))
        for item, place in zip(items, places, strict=True)
        if place is not None
    ]
    found = iter(
        await app.journal.report(served.id, served.window, key, reports) if reports else []
    )
    statuses = [UNKNOWN if place is None else next(found) for place in places]
    if items is asked:
        pairs = zip(items, statuses, strict=True)
        listed = [{"decision": item.decision, "status": status} for item, status in pairs]
        return 200, JSON, encode(listed)
    if statuses == [CONFLICT]:
        raise Refused(409, "another reward was reported for this decision")
    if statuses == [UNKNOWN]:
        raise Refused(404, "there is no such decision")
    return 200, JSON, encode({"status": statuses[0]})


def _at_most(most: int, count: int, what: str, where: str) -> None:
    if count > most:
        raise Refused(413, f"{count:,} {what} are more than the {most:,} {where}")


def _clip(reward: float, low: float, high: float) -> float:
    """Nothing outside the range is ever kept."""
    if not math.isfinite(reward):
        raise Refused(422, "a reward is a finite number")
    return min(max(reward, low), high)
