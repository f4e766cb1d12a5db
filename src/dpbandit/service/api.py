"""The HTTP API as one ASGI application. Decisions and rewards are handled here, with as little in
between as possible; the rest is in `pages`.

No answer, log line or metric shows a reward, a clean statistic, or noise.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import DpbanditError
from dpbandit.service.access import AccessLog
from dpbandit.service.answers import (
    Overloaded,
    Receive,
    Refused,
    Scope,
    Send,
    encode,
    respond,
    why_refused,
    why_undecodable,
)
from dpbandit.service.catalog import Catalog, Served
from dpbandit.service.dashboard import Dashboard
from dpbandit.service.journal import Journal
from dpbandit.service.metrics import Metrics
from dpbandit.service.records import (
    CONFLICT,
    UNKNOWN,
    Asked,
    Earlier,
    decision_id,
    parse_decision_id,
)
from dpbandit.service.settings import Settings

log = logging.getLogger("dpbandit.service")

UNEXPECTED = b'{"error":"unexpected: this is a bug, and nothing was changed"}'
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


decode_decision = msgspec.json.Decoder(DecisionRequest).decode
decode_rewards = msgspec.json.Decoder(RewardRequest | list[RewardRequest]).decode


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
        self._pages: Any = None
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
            parts = path.split("/")
            hot = len(parts) == 5 and parts[4] in ("decisions", "rewards")
            hot = hot and parts[1] == "v1" and parts[2] == "bandits"
            if hot and scope["method"] == "POST" and self.settings.role != "learner":
                action, bandit = parts[4], parts[3]
                if action == "decisions":
                    status, body = await self._decide(bandit, key, role, receive)
                else:
                    status, body = 200, await self._reward(bandit, key, role, receive)
                await respond(send, status, body)
            else:
                action, bandit, status = await self._other(scope, receive, send, key, role)
        except (Refused, DpbanditError, Overloaded) as error:
            status, why, headers = why_refused(error)
            await respond(send, status, encode({"error": why}), headers=headers)
        except Exception as error:
            status = 500
            # The type alone: a message might quote what was sent.
            where = "; ".join(
                f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}"
                for f in traceback.extract_tb(error.__traceback__)
            )
            log.error("unexpected %s in %s at %s", type(error).__name__, action, where)
            await respond(send, 500, UNEXPECTED)
        self.metrics.count(action, status)
        self.access.note(key, action, bandit if bandit in self.catalog.bandits else "", status)

    async def _other(
        self, scope: Scope, receive: Receive, send: Send, key: str, role: str
    ) -> tuple[str, str, int]:
        if self._pages is None:
            from dpbandit.service.pages import Pages

            self._pages = Pages(self)
        answered: tuple[str, str, int] = await self._pages.answer(scope, receive, send, key, role)
        return answered

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

    # ------------------------------------------------------------------ the two hot endpoints

    async def _decide(self, name: str, key: str, role: str, receive: Receive) -> tuple[int, bytes]:
        began = time.perf_counter()
        if role == "reward":
            raise Refused(403, "this key may report rewards, not ask for decisions")
        body = await self.body(receive)
        served = self.catalog.bandits.get(name) or await self.served(name)
        try:
            asked = decode_decision(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise why_undecodable(error) from None
        contexts, arms, user = asked.contexts, asked.arms, asked.user
        if len(contexts) > self.settings.max_arms:
            raise Refused(
                413, f"{len(contexts):,} arms are more than the {self.settings.max_arms:,} allowed"
            )
        version, model = served.version, served.model
        given = model.check(contexts)
        arm = model.choose(given)
        arm_id = None
        if arms is not None:
            if len(arms) != len(contexts):
                raise Refused(422, f"{len(arms)} arms were named for {len(contexts)} contexts")
            if max(map(len, arms)) > LONGEST_TEXT or any("\0" in name for name in arms):
                raise Refused(
                    422,
                    f"the name of an arm has at most {LONGEST_TEXT} characters, none of them NUL",
                )
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
            person = hashlib.blake2b(
                user.encode(), key=self.catalog.person_key, digest_size=16
            ).digest()
        decision = (served.id, arm, arm_id, given[arm].tobytes(), person, version, key)
        place = await self.journal.decide(
            decision, None if asked.request is None else self._fingerprint(asked, given)
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
            earlier = DecisionAnswer(
                decision_id(place.seq, place.nonce), place.arm, place.arm_id, place.version
            )
            return 200, encode(earlier)
        answer = encode(DecisionAnswer(decision_id(*place), arm, arm_id, version))
        self.metrics.decided(time.perf_counter() - began)
        return 201, answer

    def _fingerprint(self, asked: DecisionRequest, given: NDArray[np.float64]) -> Asked:
        """The request id and a hash of all else that was asked, whichever way the numbers were
        written. Keyed like that of a person, whose name may be in it."""
        request = asked.request or ""
        if not 0 < len(request) <= LONGEST_REQUEST or "\0" in request:
            raise Refused(
                422, f"a request id has 1 to {LONGEST_REQUEST} characters, none of them NUL"
            )
        # + 0.0: a zero is a zero, with or without its minus
        digest = hashlib.blake2b(
            (given + 0.0).tobytes(), key=self.catalog.person_key, digest_size=16, person=b"request"
        )
        digest.update(encode((given.shape, asked.arms, asked.user)))
        return request, digest.digest()

    async def _reward(self, name: str, key: str, role: str, receive: Receive) -> bytes:
        if role == "rank":
            raise Refused(403, "this key may ask for decisions, not report rewards")
        body = await self.body(receive)
        served = self.catalog.bandits.get(name) or await self.served(name)
        try:
            asked = decode_rewards(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise why_undecodable(error) from None
        low, high = served.reward_range
        if not isinstance(asked, list):
            place = parse_decision_id(asked.decision)
            if place is None:
                raise Refused(404, "there is no such decision")
            value = _clip(asked.reward, low, high)
            (status,) = await self.journal.report(served.id, served.window, key, [(*place, value)])
            if status == CONFLICT:
                raise Refused(409, "another reward was reported for this decision")
            if status == UNKNOWN:
                raise Refused(404, "there is no such decision")
            return b'{"status":"%s"}' % status.encode()
        if len(asked) > self.settings.max_rewards:
            raise Refused(
                413,
                f"{len(asked):,} rewards are more than the {self.settings.max_rewards:,} allowed "
                "in a call",
            )
        places = [parse_decision_id(item.decision) for item in asked]
        reports = [
            (*place, _clip(item.reward, low, high))
            for item, place in zip(asked, places, strict=True)
            if place is not None
        ]
        found = iter(
            await self.journal.report(served.id, served.window, key, reports) if reports else []
        )
        statuses = [UNKNOWN if place is None else next(found) for place in places]
        return encode(
            [
                {"decision": item.decision, "status": status}
                for item, status in zip(asked, statuses, strict=True)
            ]
        )


def _clip(reward: float, low: float, high: float) -> float:
    """Nothing outside the range is ever kept."""
    if not math.isfinite(reward):
        raise Refused(422, "a reward is a finite number")
    return min(max(reward, low), high)
