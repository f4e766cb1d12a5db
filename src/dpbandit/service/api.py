"""The HTTP API as one ASGI application: the path of every request. `openapi` names the handlers;
decisions and rewards are in `rounds`, the rest in `pages`.

No answer, log line or metric shows a reward, a clean statistic, or noise.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dpbandit.errors import DpbanditError
from dpbandit.service import personalizer
from dpbandit.service.access import AccessLog
from dpbandit.service.answers import (
    AGAIN,
    JSON,
    Headers,
    Overloaded,
    Receive,
    Refused,
    Scope,
    Send,
    encode,
    no_bandit,
    place_of,
    respond,
    why_refused,
)
from dpbandit.service.catalog import Catalog, Served
from dpbandit.service.dashboard import Dashboard
from dpbandit.service.database import PATIENCE
from dpbandit.service.journal import Journal
from dpbandit.service.loops import Lane, Loop
from dpbandit.service.metrics import ERASURE, Metrics
from dpbandit.service.openapi import ROUTES, Route
from dpbandit.service.settings import Settings
from dpbandit.service.strangers import Strangers
from dpbandit.service.telemetry import Silent, Told

log = logging.getLogger("dpbandit.service")

UNEXPECTED = "unexpected: this is a bug, and nothing was changed"
# Letters of a refusal. What is wrong is quoted, and may be as long as a body.
LONGEST_REFUSAL = 1_000


def said(path: str, status: int, why: str) -> tuple[int, bytes]:
    """Status and body of a refusal, in the words of whoever asks on this path."""
    why = why if len(why) <= LONGEST_REFUSAL else why[:LONGEST_REFUSAL] + "…"
    if personalizer.spoken(path):
        return personalizer.error(status, why)
    return status, encode({"error": why})


def no_key() -> Refused:
    """Made anew each time: an exception object keeps every request that it was raised in."""
    return Refused(
        401,
        "a key is needed: Authorization: Bearer …",
        ((b"www-authenticate", b'Bearer realm="dpbandit"'),),
    )


def action_of(path: str) -> str:
    """What is noted of a request before it is known what becomes of it."""
    if "reward" in path.lower():
        return "rewards"
    return ERASURE if "/users/" in path else "other"


# How often it is tried whether anything can be written.
PROBE_SECONDS = 2.0
# How long an attempt may take, unless a decision may take less.
PROBE_WAITS = 4.0


class App:
    """One process's API. `settings.role` 'learner' serves health and metrics only."""

    def __init__(self, settings: Settings, *, healthy: Callable[[], bool] = lambda: True) -> None:
        self.settings = settings
        self._healthy = healthy  # what else must be so for `/readyz`
        self.catalog = Catalog(settings.store, read_seconds=settings.read_seconds)
        self.journal = Journal(settings.store, most_waiting=settings.max_waiting)
        self.metrics = Metrics()
        self.telemetry = Told(self.metrics, self.catalog) if settings.otel else Silent()
        self.strangers = Strangers(settings.strangers_per_second)
        self.access = AccessLog(settings.store)
        # Bandits are made and deleted one at a time: a large one takes its time, and nobody else's.
        self.maker = Lane(settings.store, "maker", patience=PATIENCE)
        # Propensities are drawn one after the other: however many are asked for, the other threads
        # have their work. What nobody waits for any more is not begun.
        self.drawing = ThreadPoolExecutor(1, thread_name_prefix="propensities")
        # Of large events of Personalizer only one is worked on at a time.
        self.large = asyncio.Lock()
        # Decisions looked up by the names of their events: those activated, and those with a report,
        # which nobody else shall wait for.
        self.events = Lane(settings.store, "events", patience=settings.read_seconds)
        self.reported = Lane(settings.store, "reported events", patience=settings.read_seconds)
        self.dashboard = Dashboard()
        self._loops = (
            Loop("what is too slow", self._end_slow, every=1.0, well_for=5.0),
            Loop(
                "the store",
                self._probe,
                every=min(PROBE_SECONDS, settings.write_seconds / 2),
                well_for=10.0,
            ),
            Loop("the access log", self.access.write, every=5.0, well_for=60.0),
        )
        # All requests, and since when they are worked on; those whose body is awaited.
        self._working: dict[asyncio.Task[Any], float] = {}
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._late: dict[asyncio.Task[Any], Refused] = {}
        self._said: set[str] = set()

    # ------------------------------------------------------------------ life

    @property
    def ready(self) -> bool:
        """Whether all background work continues, and the store can be read and written."""
        loops = (*self.catalog.loops, *self._loops)
        return all(loop.well for loop in loops) and self.catalog.ready and self._healthy()

    async def start(self) -> None:
        await self.catalog.start()
        await self.journal.start()
        self.maker.start()
        self.events.start()
        self.reported.start()
        self.access.start()
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Finish pending work, if the store allows it."""
        for loop in self._loops:
            await loop.stop()
        self.maker.stop()
        self.events.stop()
        self.reported.stop()
        try:
            async with asyncio.timeout(self.settings.shutdown_seconds / 4):
                await self.journal.stop()
                await self.access.write()
        except (TimeoutError, DpbanditError):
            log.error("the store did not answer at the end; nothing that was acknowledged is lost")
        await self.telemetry.stop(self.settings.shutdown_seconds / 8)
        self.access.stop()
        self.drawing.shutdown(wait=False, cancel_futures=True)
        await self.catalog.stop()

    async def _probe(self) -> None:
        await self.journal.probe(min(PROBE_WAITS, self.settings.write_seconds))

    async def _end_slow(self) -> None:
        """One timer for all: a timer for each request costs more than reading it."""
        now, settings = time.monotonic(), self.settings
        self.journal.expire(settings.write_seconds)
        for task, since in [*self._reading.items()]:
            if now - since > settings.body_seconds:
                self._cancel(task, Refused(408, "the body did not come in time"))
        for task, since in [*self._working.items()]:
            if now - since > settings.write_seconds and task not in self._reading:
                self._cancel(task, Refused(503, "this takes too long: try again", AGAIN))

    def end_pending(self) -> None:
        """Answer all who still wait: the service ends, and its store may hang."""
        for task in [*self._working]:
            self._cancel(task, Refused(503, "the service is ending: try again", AGAIN))

    def _cancel(self, task: asyncio.Task[Any], late: Refused) -> None:
        if task not in self._late:
            self._late[task] = late
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                await self._http(scope, receive, send)
            except Exception as error:
                # Here, where it is said once: what the server says of it, once for each request, is
                # left out of the log.
                self._say_unexpected("an answer", error)
                raise
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except DpbanditError as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # ------------------------------------------------------------------ one request

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path in ("/healthz", "/readyz"):
            ready = path == "/healthz" or self.ready
            await respond(send, 200 if ready else 503, b'{"ok":true}' if ready else b'{"ok":false}')
            return
        if self.dashboard.has(scope) and self.settings.role != "learner":
            await self.dashboard.answer(scope, send)
            return
        # By its path, whatever becomes of it: a report that is refused is a report.
        action, bandit, key = action_of(path), "", "-"
        began, parent = time.time_ns(), b""
        kind = JSON
        headers: Headers = ()
        task = asyncio.current_task()
        assert task is not None
        self._working[task] = time.monotonic()
        try:
            authorization, length = b"", -1
            for name, value in scope["headers"]:
                if name == b"authorization":
                    authorization = value
                elif name == b"ocp-apim-subscription-key":
                    authorization = authorization or b"Bearer " + value
                elif name == b"content-length":
                    length = int(value)
                elif name == b"traceparent":
                    parent = value
            who = self.catalog.authorised(authorization) or await self._authorise(
                authorization, path, rewards=action == "rewards"
            )
            if who is None:
                raise no_key()
            key, role = who
            scope["key"] = key  # its connection may stay
            if length > self.settings.max_body:
                raise self._too_large()
            route, name, rest = self._route(path, scope["method"])
            if route.action in ("decisions", "rewards"):  # noted also when they are refused
                action, bandit = route.action, name
            if role not in route.roles:
                why = f"this needs a key of role {' or '.join(route.roles)}"
                raise Refused(403, route.refusal or why)
            what = name + rest or scope["query_string"].decode("latin-1")
            status, kind, body = await route.handler(self, what, key, receive)
            action, bandit = route.action, name
        except (Refused, DpbanditError, Overloaded) as error:
            status, why, headers = why_refused(error)
            status, body = said(path, status, why)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            task.uncancel()
            status, why, headers = why_refused(self._late[task])
            status, body = said(path, status, why)
        except Exception as error:
            status, body = said(path, 500, UNEXPECTED)
            self._say_unexpected(action, error)
        finally:
            del self._working[task]
            self._late.pop(task, None)
        await respond(send, status, body, kind, headers)
        self.metrics.count(action, status)
        self.telemetry.answered(
            action,
            status,
            known="key" in scope,
            began=began,
            method=scope["method"],
            bandit=bandit if bandit in self.catalog.bandits else "",
            parent=parent,
        )
        self.access.note(key, action, bandit if bandit in self.catalog.bandits else "", status)

    async def _authorise(
        self, authorization: bytes, path: str, *, rewards: bool
    ) -> tuple[str, str] | None:
        stranger = self.catalog.keys.check(authorization) is None
        if stranger and not self.strangers.heard(rewards=rewards):
            raise Refused(429, "too many requests without a key: try again", AGAIN)
        who = await self._look_up(authorization, path)
        if stranger and who is not None:
            self.strangers.known(rewards=rewards)
        return who

    async def _look_up(self, authorization: bytes, path: str) -> tuple[str, str] | None:
        if path == "/metrics" and not self.catalog.ready:
            # They say that the store is away, to whoever could see them when it was there.
            return self.catalog.keys.check(authorization)
        return await self.catalog.authorise(authorization)

    def _say_unexpected(self, action: str, error: Exception) -> None:
        """Once for each place: the lines must not count what was sent."""
        # The type alone: a message might quote what was sent.
        words = f"unexpected {type(error).__name__} in {action} at {place_of(error)}"
        if words not in self._said:
            self._said.add(words)
            log.error("%s; not said again", words)

    def _route(self, path: str, method: str) -> tuple[Route, str, str]:
        """What answers this, the bandit that the path names, and what else it names."""
        parts, name, rest = path.split("/"), "", ""
        if len(parts) > 5 and parts[4] == "users":  # a name of a user may hold slashes
            rest = "/" + "/".join(parts[5:])
            parts = [*parts[:5], "{user}"] if len(rest) > 1 else parts
        if personalizer.spoken(path):
            tail, rest = personalizer.place_of(parts[5:])
            name, path = parts[3], f"/v1/bandits/{{name}}/personalizer/{tail}"
        elif len(parts) in (4, 5, 6) and parts[1:3] == ["v1", "bandits"] and parts[3]:
            name, parts[3] = parts[3], "{name}"
            path = "/".join(parts)
        methods = ROUTES.get(path)
        if methods is None or (self.settings.role == "learner" and path != "/metrics"):
            raise Refused(404, "there is nothing here")
        if method not in methods:
            allowed = ", ".join(sorted(methods)).encode()
            raise Refused(405, "this method is not possible here", ((b"allow", allowed),))
        return methods[method], name, rest

    def _too_large(self) -> Refused:
        most = self.settings.max_body
        return Refused(
            413,
            f"the body is larger than the {most:,} bytes allowed (max_body): ask for less at once",
        )

    async def body(self, receive: Receive) -> bytes:
        """The whole body, if it is not too large and comes in time."""
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = time.monotonic()
        try:
            message = await receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body", False):
                chunks, size = [body], len(body)
                while message.get("more_body", False) and size <= self.settings.max_body:
                    message = await receive()
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                body = b"".join(chunks)
        finally:
            del self._reading[task]
            self._working[task] = time.monotonic()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the caller went away")
        if len(body) > self.settings.max_body:
            raise self._too_large()
        return body

    async def served(self, name: str) -> Served:
        served = self.catalog.bandits.get(name) or await self.catalog.find(name)
        if served is None and name in self.catalog.unreadable:
            raise Refused(503, "this version cannot read the model of this bandit: see the log")
        if served is None:
            raise no_bandit(name)
        return served
