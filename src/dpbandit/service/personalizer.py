"""Rank, reward, activate: the calls that clients of Azure Personalizer make, for any bandit here.

A client's endpoint is `https://host/v1/bandits/NAME`, and its key one of ours, of role `app` if it
does both. An event is a decision under the event's id; a multi-slot event is one for each slot. No
answer depends on a reward: a report is answered 204 whether it was the first, late or a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from dpbandit.model import ReleasedModel
from dpbandit.service.answers import JSON, Answer, Receive, Refused, decoded, encode
from dpbandit.service.catalog import Served
from dpbandit.service.choose import Baseline, Chosen, Kept, choose
from dpbandit.service.features import Pairs, contexts_in_lots, flat
from dpbandit.service.records import Asked, Decision, Earlier, Placed
from dpbandit.service.rounds import (
    LONGEST_TEXT,
    Turn,
    at_most,
    clip,
    drawn,
    lots_for,
    person_of,
)
from dpbandit.service.store import Store
from dpbandit.types import Matrix, Vector

if TYPE_CHECKING:
    from dpbandit.service.api import App

# Beside features of the context: whose decision this is, where the bandit protects users.
USER = "_user"
# Request ids of events are longer than a caller's own can be: the two never meet.
EVENT = "an event of Personalizer, "
ONE, MANY = "of one slot: ", "of many slots: "
# Every slot looks at every action and its features anew.
MOST_SLOTTED = 100_000
# Bytes of a body from which on events are worked on one after the other, of one slot and of many:
# seconds of work may be in them, and none would be done in time if all were worked on at once.
LARGE, LARGE_OF_SLOTS = 1 << 16, 1 << 13

CODES = {400: "BadRequest", 404: "ResourceNotFound", 500: "InternalServerError"}
CODES |= {401: "Unauthorized", 403: "Forbidden", 405: "MethodNotAllowed", 408: "RequestTimeout"}
CODES |= {409: "Conflict", 413: "PayloadTooLarge", 429: "TooManyRequests"}
CODES |= {503: "ServiceUnavailable"}


class _Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What all of the bodies below have in common: names, and that no other is taken."""


class Action(_Body):
    """One of the things that can be shown."""

    id: str
    features: list[Any]


class Slot(_Body):
    """One of the places where something is shown."""

    id: str
    baseline_action: str
    features: list[Any] | None = None
    excluded_actions: list[str] | None = None


class RankRequest(_Body):
    """The body of `POST …/rank`."""

    actions: list[Action]
    context_features: list[Any] | None = None
    excluded_actions: list[str] | None = None
    event_id: str | None = None
    defer_activation: bool | None = False


class SlotsRequest(_Body):
    """The body of `POST …/multislot/rank`."""

    actions: list[Action]
    slots: list[Slot]
    context_features: list[Any] | None = None
    event_id: str | None = None
    defer_activation: bool | None = False


class RewardRequest(_Body):
    """The body of `POST …/events/{event}/reward`."""

    value: float


class SlotReward(_Body):
    """The reward of one slot."""

    slot_id: str
    value: float


class SlotsReward(_Body):
    """The body of `POST …/multislot/events/{event}/reward`."""

    reward: list[SlotReward]


_RANK, _SLOTS = msgspec.json.Decoder(RankRequest), msgspec.json.Decoder(SlotsRequest)
_REWARD, _REWARDS = msgspec.json.Decoder(RewardRequest), msgspec.json.Decoder(SlotsReward)
# (id, probability) of each action; (id, action, probability) of each slot
_RANKING: msgspec.json.Decoder[list[tuple[str, float]]] = msgspec.json.Decoder(
    list[tuple[str, float]]
)
_CHOSEN: msgspec.json.Decoder[list[tuple[str, str, float]]] = msgspec.json.Decoder(
    list[tuple[str, str, float]]
)
DONE: Answer = (204, JSON, b"")


# ---------------------------------------------------------------------- where it is, and errors


def place_of(rest: list[str]) -> tuple[str, str]:
    """What of a path stands behind `personalizer`: the endpoint, and "/" and the event's id."""
    rest = rest[1:] if rest[:1] == ["v1.0"] else rest  # the older client
    slots, rest = (["multislot"], rest[1:]) if rest[:1] == ["multislot"] else ([], rest)
    if len(rest) > 2 and rest[0] == "events":  # an id may hold slashes
        return "/".join([*slots, "events", "{event}", rest[-1]]), "/" + "/".join(rest[1:-1])
    return "/".join([*slots, *rest]), ""


def spoken(path: str) -> bool:
    """Whether answers on this path are for clients of Personalizer."""
    parts = path.split("/", 5)
    return len(parts) > 4 and parts[1:3] == ["v1", "bandits"] and parts[4] == "personalizer"


def error(status: int, why: str) -> tuple[int, bytes]:
    """Status and body as those clients read them: what does not fit is a 400 to them."""
    status = 400 if status == 422 else status
    return status, encode({"error": {"code": CODES[status], "message": why}})


# ---------------------------------------------------------------------- rank


async def rank(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Azure Personalizer's Rank: the action to show, and the probability of each; durable.
    Repeating an event id with the same body gives the same answer. Also at `…/v1.0/rank`."""
    began = time.perf_counter()
    body = await app.body(receive)
    served = await app.served(name)
    async with _turn_of(app, len(body) > LARGE):
        asked = decoded(_RANK, body)
        actions = await _actions(app, asked.actions)
        person, user = _person(asked.context_features)
        excluded = set(asked.excluded_actions or ())
        open_ = [at for at, (ident, _) in enumerate(actions) if ident not in excluded]
        if not open_:
            raise Refused(422, "every action is excluded: leave one to be shown")
        version, model = served.version, served.model
        given = await _contexts(model, person, [actions[at] for at in open_])
    found = await choose(
        served,
        model,
        given,
        len(open_),
        chances=True,
        baseline=Baseline(0),
        draw=partial(drawn, app, model, draws=lots_for(len(given))),
    )
    order, chances = found.order, _certain(found)
    # Those excluded stay where they stood.
    best = iter([(actions[open_[at]][0], float(chances[at])) for at in order])
    ranking = [(ident, 0.0) if ident in excluded else next(best) for ident, _ in actions]
    event = _event(asked.event_id)
    first = open_[order[0]]
    decision = _decision(app, served, version, first, actions, given[order[0]], user, key)
    event_name, kept = ONE + event, [found.kept]
    (placed,) = await _write(app, [decision], asked, event_name, encode(ranking), kept)
    action = actions[first][0]
    if isinstance(placed, Earlier):
        action, ranking = placed.arm_id or "", _RANKING.decode(placed.details or "[]")
    else:
        served.offered([decision])
    app.metrics.decided(time.perf_counter() - began)
    shown = [{"id": ident, "probability": chance} for ident, chance in ranking]
    return 201, JSON, encode({"ranking": shown, "eventId": event, "rewardActionId": action})


async def rank_slots(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Azure Personalizer's multi-slot Rank: for each slot, in order, an action that no earlier slot
    has. Each slot is a separate decision, with its own reward and its own place in the claim; its
    id and features join those of the context."""
    began = time.perf_counter()
    body = await app.body(receive)
    served = await app.served(name)
    async with _turn_of(app, len(body) > LARGE_OF_SLOTS):
        asked = decoded(_SLOTS, body)
        actions = await _actions(app, asked.actions)
        at_most(app.settings.max_decisions, len(asked.slots), "slots", "allowed in a call")
        size = sum(1 + len(features) for _, features in actions)
        at_most(MOST_SLOTTED, len(asked.slots) * size, "slots × (actions and features)", "allowed")
        person, user = _person(asked.context_features)
        open_ = _open_to(asked.slots, [ident for ident, _ in actions])
        event = _event(asked.event_id)
        decisions: list[Decision] = []
        chosen: list[tuple[str, str, float]] = []
        kept: list[Kept] = []
        number_of = {ident: at for at, (ident, _) in enumerate(actions)}
        filling = Filling(open_, [number_of[slot.baseline_action] for slot in asked.slots])
        version, model = served.version, served.model
        for number, slot in enumerate(asked.slots):
            await asyncio.sleep(0)  # others get a turn
            # Only those that leave the slots behind this one something to show.
            arms = filling.possible(number)
            here = [*person, *flat(slot.features, f"slot {number + 1}")]
            given = await _contexts(model, here, [actions[at] for at in arms], slot.id)
            # Out of the shadow a slot above may have taken what this one would show by itself.
            usual = number_of[slot.baseline_action]
            found = await choose(
                served,
                model,
                given,
                1,
                chances=True,
                baseline=Baseline(arms.index(usual) if served.shadow else None),
                draw=partial(drawn, app, model, draws=lots_for(len(asked.slots) * len(given))),
            )
            best = found.order[0]
            arm = arms[best]
            filling.take(number, arm)
            decisions.append(_decision(app, served, version, arm, actions, given[best], user, key))
            chosen.append((slot.id, actions[arm][0], float(_certain(found)[best])))
            kept.append(found.kept)
    placed = await _write(app, decisions, asked, MANY + event, encode(chosen), kept)
    if isinstance(placed[0], Earlier):
        chosen = _CHOSEN.decode(placed[0].details or "[]")
    else:
        served.offered(decisions)
    app.metrics.decided(time.perf_counter() - began)
    slots = [{"id": ident, "rewardActionId": action} for ident, action, _ in chosen]
    return 201, JSON, encode({"slots": slots, "eventId": event})


def _turn_of(app: App, large: bool) -> contextlib.AbstractAsyncContextManager[Any]:
    """Large events go one after the other; what waits for its turn is not even decoded."""
    return app.large if large else contextlib.nullcontext()


async def _actions(app: App, given: list[Action]) -> list[tuple[str, Pairs]]:
    at_most(app.settings.max_arms, len(given), "actions", "allowed")
    idents = [action.id for action in given]
    for ident in idents:
        _text(ident, "an action's id")
    if len(set(idents)) < len(idents) or not idents:
        raise Refused(422, "give at least one action, each with its own id")
    found, turn = list[tuple[str, Pairs]](), Turn()
    for number, action in enumerate(given, 1):
        found.append((action.id, flat(action.features, f"action {number}")))
        await turn.passes()
    return found


def _open_to(slots: list[Slot], idents: list[str]) -> list[list[int]]:
    """For each slot the actions it may show; or what is wrong with the slots."""
    names = [slot.id for slot in slots]
    baselines = [slot.baseline_action for slot in slots]
    for ident in names:
        _text(ident, "a slot's id")
    if not names or len(set(names)) < len(names):
        raise Refused(422, "give at least one slot, each with its own id")
    if len(set(baselines)) < len(baselines) or not set(baselines) <= set(idents):
        raise Refused(422, "each slot needs its own baselineAction, one of the actions")
    if any(slot.baseline_action in (slot.excluded_actions or ()) for slot in slots):
        raise Refused(422, "a slot's baselineAction must not be among its excludedActions")
    excluded = [set(slot.excluded_actions or ()) for slot in slots]
    return [[at for at, ident in enumerate(idents) if ident not in out] for out in excluded]


class Filling:
    """Slots that each get an action of their own, one slot after the other: whatever is taken, those
    behind find one too.

    They always have some: their baselines at first, and others when those are taken. An action may
    be taken if it is nobody's, or if whose it is can have another one, whose it is another, and so
    on to one that is nobody's.
    """

    def __init__(self, open_: list[list[int]], baselines: list[int]) -> None:
        self._open = open_
        self._wanted: dict[int, set[int]] = {}  # action → slots that may have it
        for slot, actions in enumerate(open_):
            for action in actions:
                self._wanted.setdefault(action, set()).add(slot)
        self._of = dict(enumerate(baselines))  # slot → action, for slots without a decision
        self._taken: set[int] = set()
        self._next: dict[int, int] = {}  # slot → the action it can have instead

    def possible(self, slot: int) -> list[int]:
        """The actions that this slot, the first without one, may take."""
        whose = {action: other for other, action in self._of.items() if other != slot}
        # From the actions that are nobody's back to those whose slots could move there. Each slot
        # behind this one is found once.
        self._next, left = {}, set(range(slot + 1, len(self._open)))
        nobodys = [a for a in self._wanted if a not in whose and a not in self._taken]
        while nobodys and left:
            action = nobodys.pop()
            found = self._wanted[action] & left
            left -= found
            for other in found:
                self._next[other] = action
                nobodys.append(self._of[other])
        return [
            action
            for action in self._open[slot]
            if action not in self._taken and (action not in whose or whose[action] in self._next)
        ]

    def take(self, slot: int, action: int) -> None:
        """Give the slot one of those. Whose it was moves on."""
        del self._of[slot]
        self._taken.add(action)
        whose = {taken: other for other, taken in self._of.items()}
        while (moving := whose.get(action)) is not None:
            self._of[moving] = action = self._next[moving]


def _person(features: list[Any] | None) -> tuple[Pairs, str | None]:
    """Features of the context, and whose it is."""
    user: str | None = None
    rest: list[Any] = []
    for one in features or []:
        if isinstance(one, dict) and USER in one:
            user = one[USER]
            if not isinstance(user, str) or not user:
                raise Refused(422, f"{USER} says whose decision this is, as text")
            one = {name: value for name, value in one.items() if name != USER}
        rest.append(one)
    return flat(rest, "the context"), user


async def _contexts(
    model: ReleasedModel, person: Pairs, actions: list[tuple[str, Pairs]], slot: str | None = None
) -> Matrix:
    rows, turn = list[Matrix](), Turn()
    for lot in contexts_in_lots(model, person, actions, slot):
        rows.append(lot)
        await turn.passes()
    return model.check(np.concatenate(rows))


def _certain(found: Chosen) -> Vector:
    assert found.chances is not None  # they were asked for
    return found.chances.probabilities


# ---------------------------------------------------------------------- what is written down


def _text(text: str, what: str) -> str:
    if not 0 < len(text) <= LONGEST_TEXT or "\0" in text:
        raise Refused(422, f"{what} has 1 to {LONGEST_TEXT} characters, none of them NUL")
    return text


def _event(given: str | None) -> str:
    return uuid.uuid4().hex if given is None else _text(given, "an event id")


def _decision(
    app: App,
    served: Served,
    version: int,
    arm: int,
    actions: list[tuple[str, Pairs]],
    context: Vector,
    user: str | None,
    key: str,
) -> Decision:
    if served.needs_user and user is None:
        raise Refused(
            422,
            f'this bandit protects users: say whose decision it is, {{"{USER}": "…"}} in '
            "contextFeatures",
        )
    person = None if user is None else person_of(app, served, user)
    return served.id, arm, actions[arm][0], context.tobytes(), person, version, key


def _names(event: str, count: int = 1) -> list[str]:
    """The request ids of an event's decisions, one for each slot."""
    whole = hashlib.blake2b(event.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
    return [f"{EVENT}{whole}:{number}" for number in range(count)]


async def _write(
    app: App,
    decisions: list[Decision],
    asked: RankRequest | SlotsRequest,
    event: str,
    details: bytes,
    kept: list[Kept],
) -> list[Placed]:
    """All decisions of an event in one transaction; the first keeps what is answered."""
    digest = hashlib.blake2b(
        encode(asked), key=app.catalog.person_key, digest_size=16, person=b"event"
    ).digest()
    deferred = 1 if asked.defer_activation else None
    entries: list[tuple[Decision, Asked | None]] = []
    for number, request in enumerate(_names(event, len(decisions))):
        words = None if number else details.decode()
        named = Asked(request, digest, words, deferred, arms=len(decisions))
        named = named._replace(**kept[number]._asdict())
        entries.append((decisions[number], named))
    futures = app.journal.decide_all(entries)
    placed = [await futures[0]] if len(futures) == 1 else await asyncio.gather(*futures)
    if any(one is None for one in placed):
        raise Refused(404, "there is no bandit of this name")
    if any(isinstance(one, Earlier) and not one.same for one in placed):
        raise Refused(409, "this event id was used for another request: choose a new one")
    return placed


# ---------------------------------------------------------------------- reward and activate


async def reward(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Azure Personalizer's Reward: the reward of the shown action. The first report counts; reports
    that come later, or after the wait time, change nothing. Also at
    `…/v1.0/events/{event}/reward`."""
    asked = decoded(_REWARD, await app.body(receive))
    name, _, event = name.partition("/")
    served = await app.served(name)
    value = clip(asked.value, *served.reward_range)
    (place,) = await app.reported.do(lambda store: _found(store, served, _names(ONE + event)))
    await app.journal.report(served.id, served.window, key, [(*place[:2], value)])
    return DONE


async def reward_slots(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Azure Personalizer's multi-slot Reward: one for each slot named."""
    asked = decoded(_REWARDS, await app.body(receive))
    at_most(app.settings.max_rewards, len(asked.reward), "rewards", "allowed in a call")
    name, _, event = name.partition("/")
    served = await app.served(name)
    values = {one.slot_id: clip(one.value, *served.reward_range) for one in asked.reward}
    if len(values) < len(asked.reward) or not values:
        raise Refused(422, "give at least one reward, and at most one for each slot")
    places = await app.reported.do(lambda store: _slots(store, served, event))
    if not set(values) <= set(places):
        raise Refused(404, "this event has no slot of that id")
    reports = [(*places[slot], value) for slot, value in values.items()]
    await app.journal.report(served.id, served.window, key, reports)
    return DONE


async def activate(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Azure Personalizer's Activate: an action ranked with deferActivation was shown, and will be
    learned. Also at `…/v1.0/events/{event}/activate`."""
    await app.body(receive)
    name, _, event = name.partition("/")
    served = await app.served(name)

    def do(store: Store) -> None:
        places = _found(store, served, _names(ONE + event))
        store.activate(served.id, [seq for seq, _, _ in places])

    await app.events.do(do)
    return DONE


async def activate_slots(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Azure Personalizer's multi-slot Activate: of all slots of the event."""
    await app.body(receive)
    name, _, event = name.partition("/")
    served = await app.served(name)

    def do(store: Store) -> None:
        store.activate(served.id, [seq for seq, _ in _slots(store, served, event).values()])

    await app.events.do(do)
    return DONE


def _found(store: Store, served: Served, names: list[str]) -> list[tuple[int, int, str | None]]:
    """(seq, nonce, details) of decisions by their request ids."""
    places = store.asked_as(served.id, names)
    if len(places) < len(names):
        raise Refused(404, "there is no such event, or it was erased after its time")
    return [places[name] for name in names]


def _slots(store: Store, served: Served, event: str) -> dict[str, tuple[int, int]]:
    """(seq, nonce) of each slot of an event."""
    ((_, _, details),) = _found(store, served, _names(MANY + event))
    chosen = _CHOSEN.decode(details or "[]")
    places = _found(store, served, _names(MANY + event, len(chosen)))
    return {slot: place[:2] for (slot, _, _), place in zip(chosen, places, strict=True)}
