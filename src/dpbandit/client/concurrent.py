"""`dpbandit.AsyncClient`: the same over asyncio's own streams."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import io
import ssl as tls
from collections.abc import Callable, Coroutine
from http.client import HTTPException
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from dpbandit.client import calls
from dpbandit.client.blocking import Client
from dpbandit.client.calls import Call, Reports

T = TypeVar("T")

P = ParamSpec("P")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def awaited(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A method of `Client` for a client whose `_send` is awaited, so that the request is defined
    once."""

    @functools.wraps(method)
    async def call(self: AsyncClient, /, *given: P.args, **named: P.kwargs) -> T:
        answer: Any = method(self, *given, **named)  # type: ignore[arg-type]
        return cast(T, await answer)

    return call


class AsyncClient:
    """`Client` for asyncio, with the same options and awaitable calls.

    `decide`, `decide_many`, `reward`, `rewards`, `create_bandit`, `erase_user`, `go_live`, `bandits`,
    `bandit` and `privacy` take the arguments and return the results of `Client`'s.

    Parameters
    ----------
    connections : int
        Number of concurrent requests; further ones wait.

    Examples
    --------
    >>> import asyncio
    >>> async def main():
    ...     async with AsyncClient("https://bandits.example.org", key="dpb_0123_secret") as client:
    ...         return repr(client)  # await client.decide("shop", contexts)
    >>> asyncio.run(main())
    "AsyncClient('https://bandits.example.org')"
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        timeout: float = 10.0,
        patience: float = 30.0,
        connections: int = 100,
        insecure: bool = False,
        ssl: tls.SSLContext | None = None,
    ) -> None:
        self._address = calls.Address(
            url, key=key, timeout=timeout, patience=patience, insecure=insecure
        )
        self._ssl = (ssl or tls.create_default_context()) if self._address.secure else None
        self._most = connections
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[Streams] = []
        self._places = asyncio.Semaphore(connections)

    def __repr__(self) -> str:
        return f"AsyncClient({self._address.url!r})"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. The client can be used again: it opens new ones."""
        idle, self._idle = self._idle, []
        for _, writer in idle:
            writer.close()
        for _, writer in idle:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    # ------------------------------------------------------------------ what can be asked

    decide = awaited(Client.decide)
    decide_many = awaited(Client.decide_many)
    reward = awaited(Client.reward)
    create_bandit = awaited(Client.create_bandit)
    bandits = awaited(Client.bandits)
    erase_user = awaited(Client.erase_user)
    go_live = awaited(Client.go_live)
    bandit = awaited(Client.bandit)
    privacy = awaited(Client.privacy)

    async def rewards(self, bandit: str, reports: Reports) -> list[str]:
        """Report many rewards: see `Client.rewards`."""
        parts = [await self._send(call) for call in calls.rewards(bandit, reports)]
        return [status for part in parts for status in part]

    # ------------------------------------------------------------------ how it is sent

    async def _send(self, call: Call[T]) -> T:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections belong to the loop they were opened in
            self._loop, self._idle, self._places = loop, [], asyncio.Semaphore(self._most)
        attempts = calls.Attempts(self._address)
        while True:
            used = False
            try:
                async with self._places, asyncio.timeout(self._address.timeout):
                    used = bool(self._idle)
                    status, retry_after, body = await self._exchange(call)
            except (
                OSError,
                EOFError,
                ValueError,
                asyncio.LimitOverrunError,
                HTTPException,
            ) as error:
                pause = attempts.failed(error, used=used)
                if used:
                    await self.close()
            else:
                if status not in calls.TRY_AGAIN:
                    return calls.answer(call, status, body)
                pause = attempts.wait(f"status {status}", retry_after)
            await asyncio.sleep(pause)

    async def _exchange(self, call: Call[Any]) -> tuple[int, str | None, bytes]:
        where = self._address
        reader, writer = (
            self._idle.pop()
            if self._idle
            else await asyncio.open_connection(where.host, where.port, ssl=self._ssl)
        )
        try:
            lines = [f"{call.method} {where.prefix}{call.path} HTTP/1.1"]
            lines += [f"{name}: {value}" for name, value in where.headers_of(call).items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + (call.body or b""))
            await writer.drain()
            status, said, body, stays = await _read(reader)
        except BaseException:
            writer.close()  # an answer that is still to come belongs to nobody
            raise
        if stays:
            self._idle.append((reader, writer))
        else:
            writer.close()
        return status, said.get("Retry-After"), body


async def _read(reader: asyncio.StreamReader) -> tuple[int, http.client.HTTPMessage, bytes, bool]:
    """One answer in HTTP/1.1: (status, headers, body, whether the connection stays open)."""
    status = 100
    while status < 200:  # 1xx: the answer is still to come
        head = await reader.readuntil(b"\r\n\r\n")
        first, _, rest = head.partition(b"\r\n")
        words = first.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise http.client.BadStatusLine(first.decode("latin-1")[:80])
        status, headers = int(words[1]), http.client.parse_headers(io.BytesIO(rest))
    stays = words[0] == b"HTTP/1.1" and headers.get("Connection", "").lower() != "close"
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        chunks = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            chunks.append(await reader.readexactly(size))
            await reader.readexactly(2)
        while (await reader.readuntil(b"\r\n")) != b"\r\n":  # trailers
            pass
        return status, headers, b"".join(chunks), stays
    if status == 204 or headers.get("Content-Length") is not None:
        body = await reader.readexactly(int(headers.get("Content-Length") or 0))
        return status, headers, body, stays
    return status, headers, await reader.read(), False
