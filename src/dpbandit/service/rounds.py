"""The two endpoints of a round, called thousands of times a second: a decision, and its reward.

A slate of k arms is k decisions in a row, written in one transaction: each has its id, and its
reward. A list of decisions is written in one transaction too.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import DpbanditError
from dpbandit.logs.record import hash_name
from dpbandit.model import ReleasedModel
from dpbandit.policies.policy import BoundPolicy, Propensities
from dpbandit.service.answers import (
    JSON,
    Answer,
    Receive,
    Refused,
    decoded,
    encode,
    no_bandit,
    why_refused,
)
from dpbandit.service.catalog import Served
from dpbandit.service.choose import Baseline, Kept, choose
from dpbandit.service.records import (
    CONFLICT,
    UNKNOWN,
    Asked,
    Decision,
    Earlier,
    Placed,
    decision_id,
    parse_decision_id,
    person_of_log,
)

if TYPE_CHECKING:
    from dpbandit.service.api import App

LONGEST_TEXT = 256
LONGEST_REQUEST = 64
LONGER = "." * LONGEST_REQUEST


class DecisionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST …/decisions`, or one of a list."""

    contexts: list[list[float]]
    arms: list[str] | None = None
    user: str | None = None
    request: str | None = None
    k: int | None = None
    propensities: bool = False
    baseline: int | None = None
    baseline_propensity: float | None = None


class RewardRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST …/rewards`, or one of a list."""

    decision: str
    reward: float


class DecisionAnswer(msgspec.Struct):
    decision: str
    arm: int
    arm_id: str | None
    model_version: int


class Ranked(msgspec.Struct, omit_defaults=True):
    """One arm of a slate: a decision of its own."""

    decision: str
    arm: int
    arm_id: str | None
    score: float
    propensity: float | msgspec.UnsetType | None = msgspec.UNSET
    propensity_error: float | msgspec.UnsetType | None = msgspec.UNSET


class SlateAnswer(msgspec.Struct):
    """A decision with what was asked for besides; its first four are those of the first arm."""

    decision: str
    arm: int
    arm_id: str | None
    model_version: int
    slate: list[Ranked]


class Details(msgspec.Struct, omit_defaults=True):
    """What is answered with an arm, and kept with its decision so that asking again gives the
    same."""

    score: float
    propensity: float | msgspec.UnsetType | None = msgspec.UNSET
    propensity_error: float | msgspec.UnsetType | None = msgspec.UNSET


@dataclass(frozen=True)
class Prepared:
    """One request for a decision, ready to be written down."""

    entries: list[tuple[Decision, Asked | None]]  # one for each arm of its slate
    details: list[Details]  # as many, or none if an arm was all that was asked for
    version: int


# Arms in a call whose propensities are asked for; lots drawn for them, and in all for a call, which
# then takes half a second. With fewer lots the standard error, which is answered too, is larger.
MOST_DRAWN = 10_000
DRAWS, DRAWN = 1_000, 1_000_000
# Of a list, so many are worked on at once where lots are drawn: the thread that draws and this one
# then wait for each other once, which on a busy machine is most of the time.
TOGETHER = 100
_DECISIONS: msgspec.json.Decoder[DecisionRequest | list[DecisionRequest]] = msgspec.json.Decoder(
    DecisionRequest | list[DecisionRequest]
)
_DETAILS = msgspec.json.Decoder(Details)
_REWARDS: msgspec.json.Decoder[RewardRequest | list[RewardRequest]] = msgspec.json.Decoder(
    RewardRequest | list[RewardRequest]
)


class Turn:
    """Of one request: others get theirs every few milliseconds, also where many of its parts are
    worked on at once."""

    SECONDS = 0.003

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._alone = asyncio.Lock()

    async def passes(self) -> None:
        async with self._alone:
            if time.perf_counter() - self._began > self.SECONDS:
                await asyncio.sleep(0)
                self._began = time.perf_counter()


async def decide(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Choose an arm, or with `k` rank a slate of them, each a separate decision; or handle a list
    of such requests. Answered once durable. With a `request` id repeating is safe: the answer is
    200 and the first decision. A list is answered 200, in its order: either all of it is made,
    except requests that contradict a request id, or nothing.
    """
    began = time.perf_counter()
    body = await app.body(receive)
    served = await app.served(name)
    asked = decoded(_DECISIONS, body)
    many = asked if isinstance(asked, list) else [asked]
    ready = await _prepare_all(app, served, key, many, listed=many is asked)
    entries = [entry for one in ready for entry in one.entries]
    futures = app.journal.decide_all(entries) if entries else []
    # One is what nearly everybody asks for. Of many, all are waited for: none fails unseen.
    places = iter([await futures[0]] if len(futures) == 1 else await asyncio.gather(*futures))
    answers = [_answer(name, one, [next(places) for _ in one.entries]) for one in ready]
    for one, (status, _) in zip(ready, answers, strict=True):
        if status == 201:
            served.offered(decision for decision, _ in one.entries)
    if many is asked:
        app.metrics.decided(time.perf_counter() - began)
        # In a list one that is refused does not hide the others.
        return 200, JSON, encode([_or_error(said) for _, said in answers])
    status, said = answers[0]
    if isinstance(said, Refused):
        raise said
    if status == 201:
        app.metrics.decided(time.perf_counter() - began)
    return status, JSON, encode(said)


async def _prepare_all(
    app: App, served: Served, key: str, many: list[DecisionRequest], *, listed: bool
) -> list[Prepared]:
    wanted = sum(1 if one.k is None else max(one.k, 1) for one in many)
    at_most(app.settings.max_decisions, wanted, "decisions", "allowed in a call")
    rows = sum(len(one.contexts) for one in many if one.propensities)
    most = max(MOST_DRAWN, app.settings.max_arms)
    at_most(most, rows, "arms", "whose propensities can be asked for in a call")
    draws = lots_for(rows)
    if not listed:
        return [await _prepare(app, served, key, many[0], draws)]
    ready: list[Prepared] = []
    together, turn = TOGETHER if rows else 1, Turn()
    for at in range(0, len(many), together):
        work = [
            _numbered(partial(_prepare, app, served, key, one, draws), number, turn)
            for number, one in enumerate(many[at : at + together], at)
        ]
        ready += await asyncio.gather(*work) if together > 1 else [await work[0]]
    return ready


async def _numbered(
    prepare: Callable[[], Awaitable[Prepared]], number: int, turn: Turn
) -> Prepared:
    """One of a list, whose refusal says which it was."""
    await turn.passes()
    try:
        return await prepare()
    except (Refused, DpbanditError) as error:
        status, why, headers = why_refused(error)
        raise Refused(status, f"number {number} of the list: {why}", headers) from None


async def _prepare(
    app: App, served: Served, key: str, asked: DecisionRequest, draws: int
) -> Prepared:
    """Everything that is looked at before anything is written."""
    contexts, arms, user = asked.contexts, asked.arms, asked.user
    at_most(app.settings.max_arms, len(contexts), "arms", "allowed")
    version, model = served.version, served.model
    given = model.check(contexts)
    if arms is not None:
        if len(arms) != len(contexts):
            raise Refused(422, f"{len(arms)} arms were named for {len(contexts)} contexts")
        if max(map(len, arms)) > LONGEST_TEXT or any("\0" in name for name in arms):
            why = f"the name of an arm has at most {LONGEST_TEXT} characters, none of them NUL"
            raise Refused(422, why)
    if served.needs_user and not user:
        raise Refused(
            422,
            f"this bandit protects users: say whose decision it is, in 1 to {LONGEST_TEXT} "
            "characters",
        )
    # Kept also where nobody counts by it: a person may ask for erasure.
    person = person_of(app, served, user) if user else None
    details: list[Details] = []
    kept = Kept()
    if asked.k is None and not asked.propensities and served.plain:
        arm, propensity = model.pick(given)
        chosen, kept = [arm], Kept(propensity)
    else:
        chosen, details, kept = await _ranked(app, served, model, given, asked, draws)
    names: list[Asked | None] = [None] * len(chosen)
    if asked.request is not None:
        names = _fingerprints(app, asked.request, asked, given, details or [None])
    if kept != Kept():
        names[0] = (names[0] or Asked(None, None))._replace(**kept._asdict())
    entries: list[tuple[Decision, Asked | None]] = [
        (
            (
                served.id,
                arm,
                None if arms is None else arms[arm],
                given[arm].tobytes(),
                person,
                version,
                key,
            ),
            name,
        )
        for arm, name in zip(chosen, names, strict=True)
    ]
    return Prepared(entries, details, version)


async def _ranked(
    app: App,
    served: Served,
    model: ReleasedModel,
    given: NDArray[np.float64],
    asked: DecisionRequest,
    draws: int,
) -> tuple[list[int], list[Details], Kept]:
    """The slate, and what is said of its arms: functions of the released model and of what the
    caller sent, so they show nothing that was not released. And what is kept of the first."""
    most = 1 if asked.k is None else asked.k
    if not 1 <= most <= len(given):
        raise Refused(422, f"k must be a number from 1 to {len(given)}, the arms that were sent")
    # Where the highest bound is played, and no lot is drawn, none are stated.
    states = asked.propensities and not (served.plain and isinstance(model.policy, BoundPolicy))
    found = await choose(
        served,
        model,
        given,
        most,
        chances=states,
        baseline=_baseline(asked, len(given)),
        draw=partial(drawn, app, model, draws=draws),
    )
    if asked.k is None and not asked.propensities:
        return found.order, [], found.kept
    said = [Details(float(found.scores[arm])) for arm in found.order]
    if asked.propensities:
        for arm, one in zip(found.order, said, strict=True):
            if found.chances is None or not states:
                one.propensity = one.propensity_error = None
            else:
                one.propensity = float(found.chances.probabilities[arm])
                one.propensity_error = float(found.chances.standard_errors[arm])
    return found.order, said, found.kept


def _baseline(asked: DecisionRequest, arms: int) -> Baseline:
    arm, propensity = asked.baseline, asked.baseline_propensity
    if arm is not None and not 0 <= arm < arms:
        raise Refused(422, f"baseline must be a number from 0 to {arms - 1}, one of the arms")
    if propensity is not None and (arm is None or not 0 < propensity <= 1):
        raise Refused(422, "baseline_propensity must be a probability above 0, given with baseline")
    return Baseline(arm, propensity)


def lots_for(rows: int) -> int:
    """How many lots are drawn for each of so many arms in a call."""
    return min(DRAWS, max(DRAWN // max(rows, 1), 1))


async def drawn(
    app: App, model: ReleasedModel, given: NDArray[np.float64], draws: int
) -> Propensities:
    """Propensities. Some policies draw lots for them: decisions go on meanwhile."""
    draw = partial(model.propensities, given, draws=draws)
    return await asyncio.get_running_loop().run_in_executor(app.drawing, draw)


def _answer(
    name: str, one: Prepared, places: list[Placed]
) -> tuple[int, DecisionAnswer | SlateAnswer | Refused]:
    """Status and answer of one request."""
    status, details = 201, one.details
    slate: list[tuple[str, int, str | None]] = []
    version = one.version
    for at, place in enumerate(places):
        if place is None:
            return 404, no_bandit(name)
        if isinstance(place, Earlier):
            if not place.same:
                return 409, Refused(
                    409,
                    "this request id was used with other contexts, arms or another user: choose a "
                    "new one",
                )
            status, version = 200, place.version
            if details and place.details is not None:
                details[at] = _DETAILS.decode(place.details)
            slate.append((decision_id(place.seq, place.nonce), place.arm, place.arm_id))
        else:
            _, arm, arm_id, *_ = one.entries[at][0]
            slate.append((decision_id(*place), arm, arm_id))
    if not details:
        return status, DecisionAnswer(*slate[0], version)
    ranked = [
        Ranked(*which, said.score, said.propensity, said.propensity_error)
        for which, said in zip(slate, details, strict=True)
    ]
    return status, SlateAnswer(*slate[0], version, ranked)


def _or_error(said: DecisionAnswer | SlateAnswer | Refused) -> object:
    if isinstance(said, Refused):
        return {"error": said.why, "status": said.status}
    return said


def person_of(app: App, served: Served, user: str) -> bytes:
    """A name is not needed to count by, or to find somebody: what is kept is a keyed hash. Whom a log
    may have counted is known by what that has of a name."""
    if len(user) > LONGEST_TEXT:
        raise Refused(422, f"the name of a user may have at most {LONGEST_TEXT} characters")
    key = app.catalog.person_key
    if served.counted_by_log:
        return person_of_log(hash_name(user), key)
    return hashlib.blake2b(user.encode(), key=key, digest_size=16).digest()


def _fingerprints(
    app: App,
    request: str,
    asked: DecisionRequest,
    given: NDArray[np.float64],
    details: Sequence[Details | None],
) -> list[Asked | None]:
    """For each arm of a slate its own request id, and a hash of all else that was asked, whichever
    way the numbers were written. Keyed like that of a person, whose name may be in it."""
    if not 0 < len(request) <= LONGEST_REQUEST or "\0" in request:
        why = f"a request id has 1 to {LONGEST_REQUEST} characters, none of them NUL"
        raise Refused(422, why)
    # + 0.0: a zero is a zero, with or without its minus
    digest = hashlib.blake2b(
        (given + 0.0).tobytes(), key=app.catalog.person_key, digest_size=16, person=b"request"
    )
    # As it was before there were slates, for what asks for none.
    rest = () if details[0] is None else (asked.k, asked.propensities)
    if asked.baseline is not None:
        rest = (*rest, asked.baseline, asked.baseline_propensity)
    digest.update(encode((given.shape, asked.arms, asked.user, *rest)))
    # Those after the first are longer than a caller's can be.
    return [
        Asked(
            f"{at}:{request}:{LONGER}" if at else request,
            digest.digest(),
            None if one is None else encode(one).decode(),
            arms=len(details),
        )
        for at, one in enumerate(details)
    ]


async def reward(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Report the reward of a decision, or a list of them. Answered once durable; repeating is safe.
    In a list each gets its own status, including 'unknown' and 'conflict'.
    """
    body = await app.body(receive)
    served = await app.served(name)
    asked = decoded(_REWARDS, body)
    items = asked if isinstance(asked, list) else [asked]
    at_most(app.settings.max_rewards, len(items), "rewards", "allowed in a call")
    places = [parse_decision_id(item.decision) for item in items]
    reports = [
        (*place, clip(item.reward, *served.reward_range))
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


def at_most(most: int, count: int, what: str, where: str) -> None:
    if count > most:
        raise Refused(413, f"{count:,} {what} are more than the {most:,} {where}")


def clip(reward: float, low: float, high: float) -> float:
    """Nothing outside the range is ever kept."""
    if not math.isfinite(reward):
        raise Refused(422, "a reward must be a finite number")
    return min(max(reward, low), high)
