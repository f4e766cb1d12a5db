"""The answers of endpoints, and the errors that become answers."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

import msgspec

from dpbandit.errors import CapError, DpbanditError, StoreError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Headers = tuple[tuple[bytes, bytes], ...]
Answer = tuple[int, bytes, bytes]  # status, content type, body
T = TypeVar("T")

encode = msgspec.json.Encoder().encode

JSON = b"application/json"
AGAIN = ((b"retry-after", b"1"),)
LONGEST_NAME = 64  # of a bandit


class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """A refusal."""

    def __init__(self, status: int, why: str, headers: Headers = ()) -> None:
        super().__init__(why)
        self.status, self.why, self.headers = status, why, headers


def no_bandit(name: str) -> Refused:
    """404, with the requested name."""
    return Refused(404, f"there is no bandit called {name[:LONGEST_NAME]!r}")


class Overloaded(Exception):  # noqa: N818 - an answer, not a failure
    """More requests wait than this process may hold."""


def why_refused(error: Refused | DpbanditError | Overloaded) -> tuple[int, str, Headers]:
    """Status, words and headers, by what the caller can do about the error.

    Not an exception: one that a frame holds keeps that frame, and with it the request.
    """
    if isinstance(error, Refused):
        return error.status, error.why, error.headers
    if isinstance(error, Overloaded):
        return 503, "too much is waiting: try again", AGAIN
    if isinstance(error, StoreError):
        return 503, "the store cannot be reached: try again", AGAIN
    if isinstance(error, CapError):
        return 409, str(error), ()
    return 422, str(error), ()


def decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """400 for what is not JSON, 422 for JSON of another shape. The text never names values."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refused(422, f"the body does not fit: {error}") from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeError):
        raise Refused(400, "the body is not JSON in UTF-8") from None


def place_of(error: BaseException) -> str:
    """Where something unexpected happened, for the log. A message might quote what was sent."""
    frames = traceback.extract_tb(error.__traceback__)
    return "; ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in frames)


async def respond(
    send: Send, status: int, body: bytes, kind: bytes = JSON, headers: Headers = ()
) -> None:
    """One whole answer."""
    what = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    head = [*(() if status == 204 else what), (b"cache-control", b"no-store"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
