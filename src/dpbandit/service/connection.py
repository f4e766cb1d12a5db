"""Limits on connections. The server below waits for heads, bodies and readers as long as it takes,
before anybody has shown a key; here every connection is in one of three states, and none lasts.

Being answered: the application has deadlines of its own, and a caller must read its answer.
Sending: a head or a body, also one that nobody waits for any more. At rest: between two requests.
When there are too many, those who never showed a key go first, then those at rest; whoever has a
key and waits for an answer stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MOST_BYTES = 32 << 10
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

    def _make_room(self) -> bool:
        """End some who may as well come again; whether there were any."""
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
        if len(self.connections) > self.limits.connections and not self._make_room():
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


def end_overdue(connections: Collection[Any], now: float) -> None:
    """One look at all of them a second: a timer for each costs more."""
    for connection in [one for one in connections if isinstance(one, LimitedConnection)]:
        connection.end_if_overdue(now)
