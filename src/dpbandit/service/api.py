"""The HTTP API as one ASGI application: what every request goes through. Which handler answers it
is in `openapi`; decisions and rewards are in `rounds`, the rest in `pages`.

No answer, log line or metric shows a reward, a clean statistic, or noise.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from dpbandit.errors import DpbanditError
from dpbandit.service.access import AccessLog
from dpbandit.service.answers import (
    Overloaded,
    Receive,
    Refused,
    Scope,
    Send,
    encode,
    place_of,
    respond,
    why_refused,
)
from dpbandit.service.catalog import Catalog, Served
from dpbandit.service.dashboard import Dashboard
from dpbandit.service.journal import Journal
from dpbandit.service.metrics import Metrics
from dpbandit.service.openapi import ROUTES, Route
from dpbandit.service.settings import Settings

log = logging.getLogger("dpbandit.service")

UNEXPECTED = b'{"error":"unexpected: this is a bug, and nothing was changed"}'


def no_key() -> Refused:
    """Made anew each time: an exception object keeps every request that it was raised in."""
    return Refused(
        401,
        "a key is needed: Authorization: Bearer …",
        ((b"www-authenticate", b'Bearer realm="dpbandit"'),),
    )


class App:
    """One process's API. `settings.role` 'learner' serves health and metrics only."""

    def __init__(self, settings: Settings, *, healthy: Callable[[], bool] = lambda: True) -> None:
        self.settings = settings
        self._healthy = healthy  # what else must be so for `/readyz`
        self.catalog = Catalog(settings.store)
        self.journal = Journal(settings.store, most_waiting=settings.max_waiting)
        self.metrics = Metrics()
        self.access = AccessLog(settings.store)
        self.dashboard = Dashboard()
        self._housekeeper: asyncio.Task[None] | None = None
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._too_slow: set[asyncio.Task[Any]] = set()

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        await self.catalog.start()
        await self.journal.start()
        self._housekeeper = asyncio.create_task(self._housekeeping())

    async def stop(self) -> None:
        """Finish what was begun."""
        if self._housekeeper is not None:
            self._housekeeper.cancel()
        await self.journal.stop()
        await self._write_access()
        self.access.close()
        await self.catalog.stop()

    async def _housekeeping(self) -> None:
        turns = 0
        while True:
            await asyncio.sleep(1.0)
            turns += 1
            self._end_slow_bodies()
            self.journal.expire(self.settings.write_seconds)
            if turns % 5 == 0:
                await self._write_access()

    async def _write_access(self) -> None:
        try:
            await asyncio.to_thread(self.access.write)
        except DpbanditError as error:
            log.warning("the access log waits: %s", error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
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
            ready = path == "/healthz" or (self.catalog.ready and self._healthy())
            await respond(send, 200 if ready else 503, b'{"ok":true}' if ready else b'{"ok":false}')
            return
        if self.dashboard.has(scope) and self.settings.role != "learner":
            await self.dashboard.answer(scope, send)
            return
        action, bandit, key = "other", "", "-"
        try:
            authorization, length = b"", -1
            for name, value in scope["headers"]:
                if name == b"authorization":
                    authorization = value
                elif name == b"content-length":
                    length = int(value)
            who = self.catalog.keys.check(authorization)
            who = who or await self.catalog.authorise(authorization)
            if who is None:
                raise no_key()
            key, role = who
            if length > self.settings.max_body:
                raise self._too_large()
            route, name = self._route(path, scope["method"])
            if route.action in ("decisions", "rewards"):  # noted also when they are refused
                action, bandit = route.action, name
            if role not in route.roles:
                why = f"this needs a key of role {' or '.join(route.roles)}"
                raise Refused(403, route.refusal or why)
            status, kind, body = await route.handler(self, name, key, receive)
            action, bandit = route.action, name
            await respond(send, status, body, kind)
        except (Refused, DpbanditError, Overloaded) as error:
            status, why, headers = why_refused(error)
            await respond(send, status, encode({"error": why}), headers=headers)
        except Exception as error:
            status = 500
            # The type alone: a message might quote what was sent.
            log.error("unexpected %s in %s at %s", type(error).__name__, action, place_of(error))
            await respond(send, 500, UNEXPECTED)
        self.metrics.count(action, status)
        self.access.note(key, action, bandit if bandit in self.catalog.bandits else "", status)

    def _route(self, path: str, method: str) -> tuple[Route, str]:
        """What answers this, and the bandit that the path names."""
        parts, name = path.split("/"), ""
        if len(parts) in (4, 5) and parts[1:3] == ["v1", "bandits"] and parts[3]:
            name, parts[3] = parts[3], "{name}"
            path = "/".join(parts)
        methods = ROUTES.get(path)
        if methods is None or (self.settings.role == "learner" and path != "/metrics"):
            raise Refused(404, "there is nothing here")
        if method not in methods:
            allowed = ", ".join(sorted(methods)).encode()
            raise Refused(405, "this method is not possible here", ((b"allow", allowed),))
        return methods[method], name

    def _too_large(self) -> Refused:
        most = self.settings.max_body
        return Refused(413, f"the body is larger than the {most:,} bytes allowed")

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
        except asyncio.CancelledError:
            if task not in self._too_slow:
                raise
            self._too_slow.discard(task)
            task.uncancel()
            raise Refused(408, "the body did not come in time") from None
        finally:
            del self._reading[task]
        if message["type"] == "http.disconnect":
            raise Refused(400, "the caller went away")
        if len(body) > self.settings.max_body:
            raise self._too_large()
        return body

    def _end_slow_bodies(self) -> None:
        """One timer for all: a timer for each request costs more than reading it."""
        before = time.monotonic() - self.settings.body_seconds
        for task in [task for task, since in self._reading.items() if since < before]:
            self._too_slow.add(task)
            task.cancel()

    async def served(self, name: str) -> Served:
        served = self.catalog.bandits.get(name) or await self.catalog.find(name)
        if served is None and name in self.catalog.unreadable:
            raise Refused(503, "this version cannot read the model of this bandit: see the log")
        if served is None:
            raise Refused(404, "there is no bandit of this name")
        return served
