"""All endpoints but the two hot ones. `openapi` has their paths, and takes their descriptions from
the docstrings here.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from dpbandit.errors import OptionError
from dpbandit.service import blueprint
from dpbandit.service.answers import JSON, Answer, Receive, Refused, decoded, encode
from dpbandit.service.budgets import add_up
from dpbandit.service.catalog import Served
from dpbandit.service.measure import estimates
from dpbandit.service.rounds import person_of
from dpbandit.service.settings import Settings
from dpbandit.service.store import Line, Store

if TYPE_CHECKING:
    from dpbandit.service.api import App

TEXT = b"text/plain; version=0.0.4; charset=utf-8"

# Bandits in one list.
MOST_LISTED = 1_000
# Arms of one bandit, those that were offered most.
MOST_SHOWN = 50

_REQUEST = msgspec.json.Decoder(blueprint.Request)


async def create(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Make a bandit. Repeating the request changes nothing."""
    body = await app.body(receive)
    name, new = await app.maker.do(lambda store: _create(app.settings, store, key, body))
    await app.catalog.refresh()
    answer = await _one(app, await app.served(name))
    return 201 if new else 200, JSON, answer


def _create(settings: Settings, store: Store, key: str, body: bytes) -> tuple[str, bool]:
    config = blueprint.normalised(decoded(_REQUEST, body), max_dim=settings.max_dim)
    try:
        text = blueprint.canonical(config)
    except (ValueError, TypeError, RecursionError):
        raise Refused(422, "the options hold something that is not a plain value") from None
    bandit = blueprint.draft(config, allow_unproven=settings.allow_unproven)
    try:
        new = store.create(config, text=text, key=key, **blueprint.records(bandit, config))
    except OptionError as error:
        raise Refused(409, str(error)) from None
    return config["name"], new


async def go_live(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Take a bandit out of the shadow: from now on it decides itself. Its model, its budget and
    what it has learned stay. Repeating the request changes nothing."""
    await app.body(receive)
    served = await app.served(name)
    if not served.line.config.get("shadow"):
        raise Refused(409, "this bandit was not made with shadow: it decides already")
    await app.maker.do(lambda store: store.go_live(served.id))
    await app.catalog.refresh()
    return 200, JSON, await _one(app, await app.served(name))


async def delete(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Erase a bandit's records. Its budget stays spent and its name taken."""
    served = await app.served(name)
    await app.maker.do(lambda store: store.delete(served.id))
    await app.catalog.refresh()
    return 200, JSON, b'{"status":"deleted; its budget stays spent and its name stays taken"}'


ERASED = (
    "erased: this person's decisions, the rewards reported for them, and what was counted of them; "
    "nothing of that is learned any more. What was released before stays released, with the "
    "promise it was released under. Where the bandit protects users, nothing more is learned of "
    "one of whom it had learned: their part of the claim is used up"
)


async def erase_user(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Erase a person's decisions and rewards that came with `user`. Repeating the request is safe.
    Releases cannot be undone."""
    name, _, user = name.partition("/")
    served = await app.served(name)
    person = person_of(app, served, user)
    erased = await app.maker.do(lambda store: store.erase_person(served.id, person))
    return 200, JSON, encode({"status": ERASED, "decisions": erased})


async def bandits(app: App, name: str, key: str, receive: Receive) -> Answer:
    """All bandits by name, without contexts known in advance: at most `?limit=`, by default a
    thousand. Pass `next` as `?after=` for more."""
    given = dict(parse_qsl(name))
    limit, after = given.get("limit", str(MOST_LISTED)), given.get("after", "")
    short = len(limit) <= len(str(MOST_LISTED))  # Python reads no number of thousands of digits
    if not (short and limit.isdecimal() and 1 <= int(limit) <= MOST_LISTED):
        raise Refused(422, f"limit must be a number from 1 to {MOST_LISTED:,}")
    await app.catalog.refresh(unless_newer_than=0.05)
    listed = heapq.nsmallest(int(limit) + 1, (n for n in app.catalog.bandits if n > after))
    shown = [app.catalog.bandits[n] for n in listed[: int(limit)]]
    more = listed[int(limit) - 1] if len(listed) > int(limit) else None
    answer = {"bandits": [_describe(app, served) for served in shown], "next": more}
    return 200, JSON, encode(answer)


async def bandit(app: App, name: str, key: str, receive: Receive) -> Answer:
    """One bandit."""
    await app.catalog.refresh(unless_newer_than=0.05)
    return 200, JSON, await _one(app, await app.served(name))


async def _one(app: App, served: Served) -> bytes:
    whole = await app.catalog.with_store(lambda store: store.config(served.id))
    offers = [{"arm": arm, "offers": count} for arm, count in served.offers.most_common(MOST_SHOWN)]
    return encode(_describe(app, served) | whole | {"offers": offers})


def _describe(app: App, served: Served) -> dict[str, Any]:
    line, catalog = served.line, app.catalog
    horizon, rate = line.config["horizon"], served.rate()
    left = None if horizon is None else max(horizon - line.decisions, 0)
    return {
        **line.config,
        "status": line.status,
        "reason": line.reason,
        "claim": line.claim,
        "timelines": line.timelines,
        "created_at": line.created_at / 1e6,
        "model_version": served.version,
        "decisions": line.decisions,
        "decisions_per_second": round(rate, 3),
        "learned": line.learned,
        "waiting": line.decisions - line.learned,
        "live": not served.shadow,
        "decisions_until_horizon": left,
        "seconds_until_horizon": None if left is None or rate == 0 else left / rate,
        "learner": {
            "alive": served.learner_up(catalog.store_now),
            "lease_until": line.lease_until // 1_000_000,  # each release prolongs it
        },
        "store_time": catalog.store_now / 1e6,
    }


async def privacy(app: App, name: str, key: str, receive: Receive) -> Answer:
    """The promise, the budget spent, and the released earnings of a shadow or a holdout."""
    served = await app.served(name)
    record, line = await app.catalog.with_store(
        lambda store: (
            store.privacy(served.id),
            store.lines(only=[served.id])[0],
        )
    )
    if (measured := record.pop("measured", None)) is not None:
        record["measured"] = estimates(measured, *served.reward_range)
    answer = {"claim": line.claim, **record}
    if line.timelines > 1:
        answer |= await asyncio.to_thread(_over_timelines, line, record)
    return 200, JSON, encode({**answer, "timelines": line.timelines, "status": line.status})


async def releases(app: App, name: str, key: str, receive: Receive) -> Answer:
    """The latest releases, without models."""
    served = await app.served(name)
    rows = await app.catalog.with_store(lambda store: store.releases(served.id, limit=500))
    return 200, JSON, encode({"releases": rows})


async def total(app: App, name: str, key: str, receive: Receive) -> Answer:
    """The total over all bandits."""

    def read(store: Store) -> dict[str, Any]:
        lines, cap = store.lines(), store.cap()
        claims = [(line.claim, line.timelines) for line in lines]
        total = add_up(claims, delta=None if cap is None else cap["delta"])
        left = None if cap is None else max(cap["epsilon"] - total.epsilon, 0.0)
        return {
            "total": total.to_dict(),
            "cap": cap,
            "remaining_epsilon": left,
            "words": "the promise to a person who is in every bandit ever made here, as one unit of each; deleted "
            "bandits count like the others",
            "restored": store.meta("restored"),
            "bandits": [
                {
                    "name": line.name,
                    "status": line.status,
                    "timelines": line.timelines,
                    "claim": line.claim,
                }
                for line in lines
            ],
        }

    return 200, JSON, encode(await app.catalog.with_store(read))


async def metrics(app: App, name: str, key: str, receive: Receive) -> Answer:
    """Prometheus metrics."""
    # With thousands of bandits that takes a while: decisions go on meanwhile.
    return 200, TEXT, await asyncio.to_thread(app.metrics.render, app.catalog)


def _over_timelines(line: Line, record: dict[str, Any]) -> dict[str, Any]:
    """Claim, spent and remaining when learning was resumed from old copies: a timeline that was
    lost counts as spent whole, because nobody can say how far it had come. So `spent` never falls.
    """
    lost, claim, own = line.timelines - 1, line.claim, record["spent"]
    # Gaussian promises are compared at the δ they were made at; the others add up theirs.
    delta = claim["delta"] if claim["notion"] == "gdp" else None
    whole = add_up([(claim, lost + 1)], delta=delta)
    spent = add_up([(claim, lost), ({**claim, **own}, 1)], delta=delta)
    words = (
        f"{claim['words']}\n  counted {line.timelines} times: learning was resumed from an old "
        "copy of the store"
    )
    remaining = record["remaining"]
    limit = None if remaining["limit"] is None else line.timelines * remaining["limit"]
    return {
        "claim": {
            **claim,
            "epsilon": blueprint.finite(whole.epsilon),
            "delta": whole.delta,
            "mu": whole.mu or None,
        }
        | {"words": words},
        "spent": {
            "epsilon": blueprint.finite(spent.epsilon),
            "delta": spent.delta,
            "mu": spent.mu or None,
        },
        "remaining": {
            **remaining,
            "limit": limit,
            "fraction": None if not limit else remaining["left"] / limit,
        },
    }
