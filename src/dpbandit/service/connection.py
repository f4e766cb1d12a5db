"""Limits on connections. The server below waits for heads, bodies and readers as long as it takes,
before anybody has shown a key; here every connection is in one of four states, and none lasts.

Greeting: over TLS, until both sides have shaken hands. Being answered: the application has
deadlines of its own, and a caller must read its answer. Sending: a head or a body, also one that
nobody waits for any more. At rest: between two requests.

When there are too many, those that greet go first, then those who never showed a key, then those at
rest; whoever has a key and waits for an answer stays.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

log = logging.getLogger("dpbandit.service")

MOST_BYTES = 32 << 10
# Open files that are no connection: the store's, on several threads, and those of libraries. Also
# connections of a moment that are closed again at once.
OWN_FILES = 128
# Of all connections, so many make room at once: looking for the oldest costs a look at all.
ROOM = 16


def _plain(status: bytes, why: bytes, more: bytes = b"") -> bytes:
    body = b'{"error":"%s"}' % why
    head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s"
    return head % (status, len(body), more) + b"connection: close\r\n\r\n" + body


TOO_LARGE = _plain(
    b"431 Request Header Fields Too Large", b"the headers of the request are too large"
)
TOO_MANY = _plain(
    b"503 Service Unavailable", b"too many connections: try again", b"retry-after: 1\r\n"
)


@dataclass(frozen=True)
class Limits:
    """How many connections, and for how many seconds."""

    connections: int
    sending: float  # for a head, and for a body
    answer: float  # for an answer to be made and read
    rest: float


def room_for(connections: int) -> int:
    """So many connections, or as many as the system lets this process have: each is an open file.
    Strangers could otherwise take all of them, and leave none for the store."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < wanted:
            most = max(soft - OWN_FILES, soft // 4)
            words = "%d connections at a time, not %d: the system allows %d open files (ulimit -n)"
            log.warning(words, most, connections, soft)
            return most
    return connections


class _Answer(RequestResponseCycle):
    """The answer to one request. Where another request stood behind it, the server below does not
    tell it that the caller has gone, writes, fails, and says so in thirty lines of the log: whoever
    reads that would see a report of a reward."""

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        self.disconnected = self.disconnected or self.transport.is_closing()
        await super().send(message)


class LimitedConnection(HttpToolsProtocol):
    """One connection."""

    limits: Limits  # of all of them; set by `serve_http`

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._since = self.loop.time()  # when its state began
        self._in_head = self._sending = True
        self._raw = 0  # bytes of a head that is not complete
        self._fields = 0  # bytes of fields, trailers included
        self._known = False  # whether it has ever shown a key

    # ------------------------------------------------------------------ how long it may stay

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def known(self) -> bool:
        """Whether it has shown a key: the application writes it down with the request."""
        return self._known or (self.cycle is not None and "key" in self.cycle.scope)

    def _overdue(self, now: float) -> bool:
        limits, passed = self.limits, now - self._since
        if self._answering or self.transport.is_closing():
            # One that is closing stays until what was written is read.
            return passed > limits.sending + limits.answer
        if self._sending:
            return passed > limits.sending
        unread = self.transport.get_write_buffer_size() > 0
        return passed > (limits.answer if unread else limits.rest)

    def end_if_overdue(self, now: float) -> None:
        if self._overdue(now):
            self._end()

    def _end(self) -> None:
        if self.transport.get_write_buffer_size() > 0 or self._answering:
            self.transport.abort()  # closing would wait for a reader
        else:
            self.transport.close()

    @property
    def too_many(self) -> int:
        """How many more there are than may be; this one counts once it is made."""
        return len(self.connections) + len(Greetings.waiting) - self.limits.connections

    def make_room(self) -> bool:
        """End some who may as well come again; whether there were any."""
        greeting = [*Greetings.waiting][: max(1, self.limits.connections // ROOM)]
        for task in greeting:
            Greetings.end(task)
        if greeting:
            return True
        others = [other for other in self.connections if other is not self]
        here = [other for other in others if isinstance(other, LimitedConnection)]
        found = [other for other in here if not other.known]
        found = found or [other for other in here if not other._answering and not other._sending]
        found.sort(key=lambda other: other._since)
        for other in found[: max(1, self.limits.connections // ROOM)]:
            other.transport.abort()
            # Gone is gone: the transport says so a moment later.
            self.connections.discard(other)
        return bool(found)

    # ------------------------------------------------------------------ what happens on it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.too_many > 0 and not self.make_room():
            transport.write(TOO_MANY)
            transport.close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._raw += len(data)
        super().data_received(data)
        if self._fields > MOST_BYTES or (self._in_head and self._raw > MOST_BYTES):
            self._too_large()

    def on_message_begin(self) -> None:
        self._in_head = self._sending = True
        self._fields = 0
        if not self._answering:
            self._since = self.loop.time()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += len(name) + len(value) + 4
        if self._fields <= MOST_BYTES:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._raw = False, 0
        if self._fields + len(self.url) > MOST_BYTES:
            self._too_large()
            return
        if not self._answering:
            self._since = self.loop.time()
        super().on_headers_complete()
        if self.cycle is not None:
            self.cycle.__class__ = _Answer  # it begins to run after this

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._sending = False
        if not self.transport.is_closing():
            if not self._answering:
                self._since = self.loop.time()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        self._known = self.known
        super().on_response_complete()

    def _too_large(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()


class Greetings:
    """Accepts connections over TLS, in the place of the event loop's server, which does not say who
    is shaking hands."""

    waiting: ClassVar[dict[asyncio.Task[None], None]] = {}  # in the order in which they came

    def __init__(
        self,
        sockets: list[socket.socket],
        context: ssl.SSLContext,
        make: Callable[[], LimitedConnection],
        seconds: float,
    ) -> None:
        self.sockets = sockets
        self._context, self._make, self._seconds = context, make, seconds
        self._accepting = [asyncio.create_task(self._accept(one)) for one in sockets]

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                found, _ = await loop.sock_accept(listening)
                behind = self._make()
                if behind.too_many >= 0:
                    behind.make_room()
                self.waiting[asyncio.create_task(self._shake(found, behind))] = None
            except Exception:  # gone already, or no file is left for it: nobody else's concern
                await asyncio.sleep(0.05)

    async def _shake(self, found: socket.socket, behind: LimitedConnection) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: behind,
                found,
                ssl=self._context,
                ssl_handshake_timeout=self._seconds,
                ssl_shutdown_timeout=1.0,
            )
        except Exception:  # whatever a stranger sent; in no log, which could count them
            found.close()
        finally:
            self.waiting.pop(task, None)

    @classmethod
    def end(cls, task: asyncio.Task[None]) -> None:
        del cls.waiting[task]
        task.cancel()

    def close(self) -> None:
        for task in (*self._accepting, *self.waiting):
            task.cancel()
        for one in self.sockets:
            one.close()

    async def wait_closed(self) -> None:
        """Nobody has to wait."""


def end_overdue(connections: Collection[Any], now: float) -> None:
    """One look at all of them a second: a timer for each costs more."""
    for connection in [one for one in connections if isinstance(one, LimitedConnection)]:
        connection.end_if_overdue(now)
