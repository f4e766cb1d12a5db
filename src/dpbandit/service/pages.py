"""Every endpoint that is not asked thousands of times a second."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from dpbandit.errors import OptionError
from dpbandit.service import blueprint
from dpbandit.service.answers import (
    JSON,
    Receive,
    Refused,
    Scope,
    Send,
    encode,
    respond,
    why_undecodable,
)
from dpbandit.service.budgets import add_up
from dpbandit.service.catalog import Served
from dpbandit.service.openapi import document
from dpbandit.service.store import Line, Store

if TYPE_CHECKING:
    from dpbandit.service.api import App

TEXT = b"text/plain; version=0.0.4; charset=utf-8"

Answer = tuple[int, bytes, bytes]  # status, content type, body
Handler = Callable[[str, str, Receive], Awaitable[Answer]]  # (bandit's name, key, receive)


class Pages:
    """Routes and what they answer."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._making = threading.Lock()  # one at a time: a large one takes its time
        # (pattern, method) → (action in the access log, roles that may, handler)
        every = ("rank", "reward", "admin")
        self.routes: dict[str, dict[str, tuple[str, tuple[str, ...], Handler]]] = {
            "/v1/bandits": {
                "GET": ("list bandits", every, self.bandits),
                "POST": ("create bandit", ("admin",), self.create),
            },
            "/v1/bandits/{name}": {
                "GET": ("show bandit", every, self.bandit),
                "DELETE": ("delete bandit", ("admin",), self.delete),
            },
            "/v1/bandits/{name}/privacy": {"GET": ("show privacy", every, self.privacy)},
            "/v1/bandits/{name}/releases": {"GET": ("show releases", every, self.releases)},
            "/v1/bandits/{name}/decisions": {"POST": ("decisions", every, self.nothing)},
            "/v1/bandits/{name}/rewards": {"POST": ("rewards", every, self.nothing)},
            "/v1/privacy": {"GET": ("show total privacy", every, self.total)},
            "/metrics": {"GET": ("metrics", every, self.metrics)},
            "/openapi.json": {"GET": ("openapi", every, self.openapi)},
        }
        if app.settings.role == "learner":
            self.routes = {"/metrics": self.routes["/metrics"]}

    async def answer(
        self, scope: Scope, receive: Receive, send: Send, key: str, role: str
    ) -> tuple[str, str, int]:
        """Answer and say (action, bandit, status) for the access log."""
        parts = scope["path"].split("/")
        named = len(parts) in (4, 5) and parts[1:3] == ["v1", "bandits"] and parts[3] != ""
        name = parts[3] if named else ""
        pattern = "/".join([*parts[:3], "{name}", *parts[4:]]) if named else scope["path"]
        methods = self.routes.get(pattern)
        if methods is None:
            raise Refused(404, "there is nothing here")
        if scope["method"] not in methods:
            raise Refused(
                405,
                "this method is not possible here",
                ((b"allow", ", ".join(sorted(methods)).encode()),),
            )
        action, roles, handler = methods[scope["method"]]
        if role not in roles:
            raise Refused(403, f"this needs a key of role {' or '.join(roles)}")
        status, kind, body = await handler(name, key, receive)
        await respond(send, status, body, kind)
        return action, name, status

    # ------------------------------------------------------------------ bandits

    async def create(self, name: str, key: str, receive: Receive) -> Answer:
        try:
            asked = msgspec.json.decode(await self.app.body(receive), type=blueprint.Request)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise why_undecodable(error) from None
        config = blueprint.normalised(asked, max_dim=self.app.settings.max_dim)
        try:
            text = blueprint.canonical(config)
        except (ValueError, RecursionError):
            raise Refused(422, "the options hold something that is not a plain value") from None
        draft = await asyncio.to_thread(self._draft, config)
        try:
            new = await self.app.catalog.with_store(
                lambda store: store.create(config, text=text, key=key, **draft)
            )
        except OptionError as error:
            raise Refused(409, str(error)) from None
        await self.app.catalog.refresh()
        served = await self.app.served(config["name"])
        return 201 if new else 200, JSON, encode(self._describe(served))

    def _draft(self, config: dict[str, Any]) -> dict[str, Any]:
        with self._making:
            bandit = blueprint.draft(config, allow_unproven=self.app.settings.allow_unproven)
            return blueprint.records(bandit)

    async def delete(self, name: str, key: str, receive: Receive) -> Answer:
        served = await self.app.served(name)
        # On a connection of its own: erasing a large bandit takes a while, and everybody else goes
        # on.
        await asyncio.to_thread(_delete, self.app.settings.store, served.id)
        await self.app.catalog.refresh()
        return 200, JSON, b'{"status":"deleted; its budget stays spent and its name stays taken"}'

    async def bandits(self, name: str, key: str, receive: Receive) -> Answer:
        await self.app.catalog.refresh(unless_newer_than=0.05)
        listed = sorted(self.app.catalog.bandits.items())
        return 200, JSON, encode({"bandits": [self._describe(served) for _, served in listed]})

    async def bandit(self, name: str, key: str, receive: Receive) -> Answer:
        await self.app.catalog.refresh(unless_newer_than=0.05)
        return 200, JSON, encode(self._describe(await self.app.served(name)))

    def _describe(self, served: Served) -> dict[str, Any]:
        line, catalog = served.line, self.app.catalog
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
            "decisions_until_horizon": left,
            "seconds_until_horizon": None if left is None or rate == 0 else left / rate,
            "learner": {
                "alive": line.lease_until > catalog.store_now,
                "lease_until": line.lease_until / 1e6,
            },
            "store_time": catalog.store_now / 1e6,
        }

    # ------------------------------------------------------------------ privacy

    async def privacy(self, name: str, key: str, receive: Receive) -> Answer:
        served = await self.app.served(name)
        record, line = await self.app.catalog.with_store(
            lambda store: (
                store.privacy(served.id),
                next(line for line in store.lines() if line.id == served.id),
            )
        )
        answer = {"claim": line.claim, **record}
        if line.timelines > 1:
            answer |= await asyncio.to_thread(_over_timelines, line, record)
        return 200, JSON, encode({**answer, "timelines": line.timelines, "status": line.status})

    async def releases(self, name: str, key: str, receive: Receive) -> Answer:
        served = await self.app.served(name)
        rows = await self.app.catalog.with_store(lambda store: store.releases(served.id, limit=500))
        return 200, JSON, encode({"releases": rows})

    async def total(self, name: str, key: str, receive: Receive) -> Answer:
        def read(store: Store) -> dict[str, Any]:
            lines, cap = store.lines(), store.cap()
            claims = [(line.claim, line.timelines) for line in lines]
            total = add_up(claims, delta=None if cap is None else cap["delta"])
            left = None if cap is None else max(cap["epsilon"] - total.epsilon, 0.0)
            return {
                "total": total.to_dict(),
                "cap": cap,
                "remaining_epsilon": left,
                "words": "what a person is promised who is in every bandit ever made here, once in "
                "each by that bandit's own unit; deleted bandits count like the others",
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

        return 200, JSON, encode(await self.app.catalog.with_store(read))

    # ------------------------------------------------------------------ the rest

    async def metrics(self, name: str, key: str, receive: Receive) -> Answer:
        return 200, TEXT, self.app.metrics.render(self.app.catalog, self.app.journal)

    async def openapi(self, name: str, key: str, receive: Receive) -> Answer:
        return 200, JSON, encode(document(self.app.settings))

    async def nothing(self, name: str, key: str, receive: Receive) -> Answer:
        """Answered by the application itself; here for the list of methods."""
        raise Refused(404, "there is nothing here")


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


def _delete(url: str, bandit: int) -> None:
    store = Store(url)
    try:
        store.delete(bandit)
    finally:
        store.close()
