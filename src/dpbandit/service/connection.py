"""Limits on the headers of requests. The server below waits for them as long as it takes, however
large they grow, before anybody has shown a key; here such a connection is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_BYTES = 32 << 10
SECONDS = 10.0

_WHY = b'{"error":"the headers of the request are too large"}'
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s"
) % (len(_WHY), _WHY)


class LimitedConnection(HttpToolsProtocol):
    """One connection. A timer runs only while headers are incomplete, which is seldom."""

    seconds = SECONDS

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._in_headers = True
        self._header_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if not self._in_headers or self.transport.is_closing():
            return
        if self._header_bytes > MOST_BYTES:
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self._too_slow)

    def on_message_begin(self) -> None:
        self._in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers, self._header_bytes = False, 0
        self._stop_timer()
        super().on_headers_complete()

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self.transport.close()
