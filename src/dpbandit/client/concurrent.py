"""`dpbandit.AsyncClient`: the same over asyncio's own streams."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import ssl as tls
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from dpbandit.client import calls
from dpbandit.client.calls import Call, Contexts, Decision

T = TypeVar("T")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AsyncClient:
    """`Client` for asyncio: the same calls, to be awaited; options as there.

    Parameters
    ----------
    connections : int
        How many requests are under way at a time; further ones wait.

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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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

    async def decide(
        self,
        bandit: str,
        contexts: Contexts,
        arms: Sequence[str] | None = None,
        user: str | None = None,
        *,
        request: str | None = None,
    ) -> Decision:
        """Choose an arm: see `Client.decide`."""
        return await self._send(calls.decide(bandit, contexts, arms, user, request))

    async def reward(self, bandit: str, decision: str | Decision, reward: float) -> str:
        """Report a reward: see `Client.reward`."""
        return await self._send(calls.reward(bandit, decision, reward))

    async def rewards(
        self, bandit: str, reports: Mapping[str, float] | Iterable[tuple[str | Decision, float]]
    ) -> list[str]:
        """Report many rewards: see `Client.rewards`."""
        return [
            status for call in calls.rewards(bandit, reports) for status in await self._send(call)
        ]

    async def create_bandit(
        self,
        name: str,
        algorithm: str,
        *,
        dim: int,
        reward_range: tuple[float, float],
        epsilon: float | None = None,
        delta: float | None = None,
        reward_window: float | None = None,
        default_reward: float | None = None,
        horizon: int | None = None,
        unit: str | tuple[str, int] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Make a bandit: see `Client.create_bandit`."""
        asked: dict[str, Any] = {
            "name": name,
            "algorithm": algorithm,
            "dim": dim,
            "reward_range": list(reward_range),
        }
        asked |= {"epsilon": epsilon, "delta": delta, "horizon": horizon, "unit": unit}
        asked |= {"reward_window": reward_window, "default_reward": default_reward}
        return await self._send(calls.create_bandit(asked, options))

    async def bandits(self) -> list[dict[str, Any]]:
        """All bandits: settings, claim, status, how far they have learned."""
        return await self._send(calls.bandits())

    async def bandit(self, name: str) -> dict[str, Any]:
        """One bandit."""
        return await self._send(calls.bandit(name))

    async def privacy(self, name: str | None = None) -> dict[str, Any]:
        """What a bandit promises and has spent; without a name, the total over all bandits."""
        return await self._send(calls.privacy(name))

    # ------------------------------------------------------------------ how it is sent

    async def _send(self, call: Call[T]) -> T:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections belong to the loop they were opened in
            self._loop, self._idle, self._places = loop, [], asyncio.Semaphore(self._most)
        attempts = calls.Attempts(self._address)
        while True:
            used, retry_after = False, None
            try:
                async with self._places, asyncio.timeout(self._address.timeout):
                    used = bool(self._idle)
                    status, retry_after, body = await self._exchange(call)
            except tls.SSLCertVerificationError as error:
                raise self._address.distrusted(error) from None
            except TimeoutError:
                problem = "no answer in time"
            except (
                OSError,
                EOFError,
                ValueError,
                asyncio.LimitOverrunError,
                http.client.HTTPException,
            ) as error:
                if used:
                    await (
                        self.close()
                    )  # the service has closed what lay idle; that is no reason to wait
                    continue
                problem = f"{type(error).__name__}: {error}"
            else:
                if status not in calls.TRY_AGAIN:
                    return calls.answer(call, status, body)
                problem = f"status {status}"
            await asyncio.sleep(attempts.wait(problem, retry_after))

    async def _exchange(self, call: Call[Any]) -> tuple[int, str | None, bytes]:
        where = self._address
        reader, writer = (
            self._idle.pop()
            if self._idle
            else await asyncio.open_connection(where.host, where.port, ssl=self._ssl)
        )
        try:
            headers = dict(where.headers)
            if call.body is not None:
                headers |= {
                    "Content-Type": "application/json",
                    "Content-Length": str(len(call.body)),
                }
            lines = [
                f"{call.method} {where.prefix}{call.path} HTTP/1.1",
                *(f"{n}: {v}" for n, v in headers.items()),
            ]
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
        return (
            status,
            headers,
            await reader.readexactly(int(headers.get("Content-Length") or 0)),
            stays,
        )
    return status, headers, await reader.read(), False
