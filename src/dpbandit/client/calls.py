"""The client's requests, the meaning of answers, and the retries. No sockets here.

Every request is safe to repeat: a decision carries a request id, a reward its decision's id, and
making the same bandit again changes nothing. So an interrupted call is simply sent again. No reward
is ever logged, and none is part of an error.
"""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlsplit

from dpbandit.errors import (
    AccessError,
    NotFiniteError,
    OptionError,
    RequestError,
    ServiceError,
    ShapeError,
    UnreachableError,
)

T = TypeVar("T")

# The service's default for one call.
MOST_REWARDS = 1_000
# Temporary failures. Other answers would be the same the next time.
TRY_AGAIN = frozenset({408, 429, 502, 503, 504})
FIRST_WAIT, LONGEST_WAIT = 0.05, 2.0

_jitter = random.SystemRandom()  # forked workers must not all come back at the same moment


class ArrayLike(Protocol):
    """A NumPy array, or an object that behaves like one."""

    def tolist(self) -> Any: ...


Contexts = Sequence[Sequence[float]] | ArrayLike


@dataclass(frozen=True)
class Ranked:
    """One arm of a slate: a separate decision, with its own id for its reward.

    `propensity` is the probability of being ranked first, None if it was not requested or the
    policy does not randomise; `propensity_error` is its standard error, 0 if exact.
    """

    decision: str
    arm: int
    arm_id: str | None
    score: float
    propensity: float | None = None
    propensity_error: float | None = None


@dataclass(frozen=True)
class Decision:
    """The arm to show, and the id for its reward.

    >>> Decision("1f-00c0ffee00c0ffee", arm=2, arm_id="blue", model_version=17).arm_id
    'blue'
    """

    decision: str
    arm: int
    arm_id: str | None
    model_version: int
    slate: tuple[Ranked, ...] = ()  # where k or propensities were asked for: best first

    @classmethod
    def read(cls, said: Any) -> Decision:
        """From the service's answer."""
        slate = tuple(Ranked(**one) for one in said.get("slate", ()))
        return cls(said["decision"], said["arm"], said["arm_id"], said["model_version"], slate)


Reports = Mapping[str, float] | Iterable[tuple[str | Decision | Ranked, float]]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and how to read its answer."""

    method: str
    path: str
    body: bytes | None
    read: Callable[[Any], T]


class Address:
    """Where the service is, and what every request says."""

    def __init__(
        self, url: str, *, key: str | None, timeout: float, patience: float, insecure: bool
    ) -> None:
        parts = urlsplit(url)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.username
            or parts.query
        ):
            raise OptionError(
                "an address is http://host:port or https://host, followed at most by a path"
            )
        here = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
        if parts.scheme == "http" and not here and not insecure:
            raise OptionError(
                "over plain http the key and every reward travel in the clear: use https, or set "
                "insecure=True inside a network you trust"
            )
        for name, seconds in (("timeout", timeout), ("patience", patience)):
            if not 0 < seconds < math.inf:
                raise OptionError(f"{name} is a number of seconds above 0")
        key = key or os.environ.get("DPBANDIT_KEY") or ""
        if not key.isascii() or not key.isprintable() or " " in key:
            raise OptionError(
                "this is not a key: a key is one word, the last that dpbandit keys create prints"
            )
        if not key:
            raise AccessError(
                "a key is needed: pass key=… or set DPBANDIT_KEY (an operator makes one with "
                "dpbandit keys create)",
                401,
            )
        self.url = url.rstrip("/")
        self.secure, self.host = parts.scheme == "https", parts.hostname
        self.port = parts.port or (443 if self.secure else 80)
        self.prefix = parts.path.rstrip("/")
        self.timeout, self.patience = timeout, patience
        # As sent, so that a name-based proxy finds the service.
        self.headers = {
            "Host": parts.netloc,
            "Authorization": f"Bearer {key}",
            "Accept": "application/json",
        }

    def headers_of(self, call: Call[Any]) -> dict[str, str]:
        """The headers of a request."""
        if call.body is None:
            return self.headers
        length = str(len(call.body))
        return self.headers | {"Content-Type": "application/json", "Content-Length": length}


class Attempts:
    """Counts the attempts of one call. It waits longer each time, at random."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._began = time.monotonic()
        self.count = 0

    def failed(self, error: Exception, *, used: bool) -> float:
        """Seconds until the next attempt, after no answer on a connection, `used` before or not."""
        if isinstance(error, ssl.SSLCertVerificationError):  # trying again would not help
            raise ServiceError(
                f"{self._address.url} presents a certificate that is not trusted "
                f"({error.verify_message}): pass ssl= a context that knows its authority"
            ) from None
        if isinstance(error, TimeoutError):
            return self.wait("no answer in time")
        if used:  # the service has closed what lay idle; that is no reason to wait
            return 0.0
        return self.wait(f"{type(error).__name__}: {error}")

    def wait(self, problem: str, retry_after: str | None = None) -> float:
        """Seconds until the next attempt; raises UnreachableError when patience is at an end."""
        self.count += 1
        pause = _jitter.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2**self.count))
        if retry_after is not None and retry_after.strip().isdigit():
            pause += float(retry_after)
        passed = time.monotonic() - self._began
        if passed + pause > self._address.patience:
            raise UnreachableError(
                f"{self._address.url} did not answer in {self.count} attempts over {passed:.1f} s; "
                f"the last: {problem}. Check that the service runs and /readyz says ok; to retry "
                "again is safe"
            )
        return pause


def answer(call: Call[T], status: int, body: bytes) -> T:
    """The content of an answer, or the error it stands for."""
    try:
        said = json.loads(body) if body else None
    except ValueError:
        said = None
    if status in (200, 201) and said is not None:
        try:
            return call.read(said)
        except (KeyError, TypeError, AttributeError):
            pass
    words = said.get("error") if isinstance(said, dict) else None
    if status == 401:
        raise AccessError(
            f"the service does not accept this key ({words}): it may be mistyped, revoked, or "
            "another store's",
            401,
        )
    if status == 403:
        raise AccessError(f"{words}: use a key of another role", 403)
    if words is not None and 400 <= status < 500:
        raise RequestError(str(words), status)
    if words is not None:
        raise ServiceError(f"the service failed: {words}", status)
    raise ServiceError(
        f"status {status} is not an answer of this service: is the address right?", status
    )


def place(bandit: str) -> str:
    """Where a bandit's endpoints are."""
    if not bandit or bandit in (".", ".."):
        raise OptionError("a bandit's name may have letters, digits, dots, dashes and underscores")
    return f"/v1/bandits/{quote(bandit, safe='')}"


def post(path: str, body: Any, read: Callable[[Any], T]) -> Call[T]:
    """A call that sends something."""
    try:
        return Call(
            "POST", path, json.dumps(body, allow_nan=False, separators=(",", ":")).encode(), read
        )
    except ValueError:
        raise NotFiniteError(
            "NaN or infinity cannot be sent: every number must be finite"
        ) from None
    except TypeError:
        raise OptionError(
            "only plain values can be sent: numbers, strings, lists and dictionaries"
        ) from None


def numbers(contexts: Contexts) -> list[list[float]]:
    """Contexts in JSON's types."""
    try:
        rows = contexts if isinstance(contexts, Sequence) else contexts.tolist()
        return [[float(number) for number in row] for row in rows]
    except (TypeError, ValueError, AttributeError):
        raise ShapeError("contexts must be one row of numbers per arm: [[…], […]]") from None


def name_of(user: Any) -> str:
    """A person's name: text, or a whole number, which is the same person as its digits.

    >>> name_of("17") == name_of(17)
    True
    """
    if isinstance(user, Integral) and not isinstance(user, bool):
        return str(int(user))
    if isinstance(user, str) and user:
        return user
    # 17.0 would be another person than 17.
    raise OptionError(f"users are named by text or whole numbers, not {type(user).__name__}")


def question(
    contexts: Contexts,
    arms: Sequence[str] | None = None,
    user: str | int | None = None,
    *,
    request: str | None = None,
    k: int | None = None,
    propensities: bool = False,
    baseline: int | None = None,
    baseline_propensity: float | None = None,
) -> dict[str, Any]:
    """What is sent to ask for one decision."""
    body: dict[str, Any] = {"contexts": numbers(contexts)}
    body["request"] = request or secrets.token_hex(16)
    if arms is not None:
        body["arms"] = [str(arm) for arm in arms]
    if user is not None:
        body["user"] = name_of(user)
    if k is not None:
        body["k"] = k
    if propensities:
        body["propensities"] = True
    if baseline is not None:
        body["baseline"] = int(baseline)
    if baseline_propensity is not None:
        body["baseline_propensity"] = float(baseline_propensity)
    return body


def decisions(bandit: str, questions: Iterable[Mapping[str, Any]]) -> Call[list[Decision]]:
    """One call for many decisions."""
    try:
        asked = [question(**one) for one in questions]
    except TypeError:
        raise OptionError("each decision must be a dictionary of `decide`'s arguments") from None

    def read(said: Any) -> list[Decision]:
        for number, one in enumerate(said):
            if "error" in one:
                raise RequestError(f"number {number} of the list: {one['error']}", one["status"])
        return [Decision.read(one) for one in said]

    return post(f"{place(bandit)}/decisions", asked, read)


def report(decision: str | Decision | Ranked, value: float) -> dict[str, Any]:
    """What is sent about one reward."""
    name = decision.decision if isinstance(decision, Decision | Ranked) else decision
    if not isinstance(name, str):
        raise OptionError("report a reward for a Decision or its id")
    try:
        return {"decision": name, "reward": float(value)}
    except (TypeError, ValueError):
        raise OptionError("a reward must be a number") from None


def rewards(bandit: str, reports: Reports) -> list[Call[list[str]]]:
    """As many calls as it takes."""
    pairs: Iterable[tuple[str | Decision | Ranked, float]] = (
        reports.items() if isinstance(reports, Mapping) else reports
    )
    items = [report(decision, value) for decision, value in pairs]

    def read(said: Any) -> list[str]:
        return [str(one["status"]) for one in said]

    path = f"{place(bandit)}/rewards"
    starts = range(0, len(items), MOST_REWARDS)
    return [post(path, items[at : at + MOST_REWARDS], read) for at in starts]
