"""All settings of `dpbandit serve`, declared once: command-line options, environment variables and
keys of a file are all made from the fields of `Settings`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from dpbandit.errors import OptionError

Roles = Literal["ranker", "learner", "all"]

PREFIX = "DPBANDIT_"
# Variables that are not the service's.
OTHERS = ("DPBANDIT_KEY", "DPBANDIT_DATA", "DPBANDIT_ARCH", "DPBANDIT_CONFIG")
# Of the command line's own completion, with an underscore in front where that sets it.
COMPLETION = "DPBANDIT_COMPLETE"


def _told(default: Any, words: str, kind: type, **more: Any) -> Any:
    return field(default=default, metadata={"setting": {"words": words, "kind": kind, **more}})


@dataclass(frozen=True)
class Settings:
    """Limits are per process. Seconds throughout."""

    store: str = field(
        metadata={
            "setting": {"words": "sqlite:///file.db or postgresql://user@host/name.", "kind": str}
        }
    )
    role: Roles = _told(  # noqa: RUF009 - a field
        "all",
        "ranker (answers), learner (reads rewards, one per bandit), or all.",
        str,
        choices=("ranker", "learner", "all"),
    )
    host: str = _told("127.0.0.1", "Address to listen on.", str)
    port: int = _told(
        8080,
        "Port to listen on; default 8080, none for a learner.",
        int,
        most=65_535,
        may_lack=True,
    )
    tls_cert: Path | None = _told(  # noqa: RUF009 - a field
        None,
        "Serve TLS with this certificate (PEM, with its chain); needs tls_key.",
        Path,
        may_lack=True,
    )
    tls_key: Path | None = _told(  # noqa: RUF009 - a field
        None, "The certificate's key (PEM, without a password).", Path, may_lack=True
    )
    json: bool = _told(
        False,
        "Print one JSON line on standard output when listening; log lines on standard error are "
        "JSON too.",
        bool,
    )
    log_level: str = _told(
        "info",
        "Least severe level to log: debug, info, warning or error.",
        str,
        choices=("debug", "info", "warning", "error"),
    )
    otel: bool = _told(
        False,
        "Send traces and metrics over OpenTelemetry, as its variables (OTEL_…) say; needs the "
        "extra otel.",
        bool,
    )
    cap_epsilon: float | None = _told(
        None,
        "Cap on the total ε of all bandits of this store; set once.",
        float,
        may_lack=True,
    )
    cap_delta: float | None = _told(None, "The δ of that cap.", float, may_lack=True)
    # requests
    max_body: int = _told(4 << 20, "Largest request, in bytes.", int, least=1)
    max_arms: int = _told(1_000, "Most arms in one decision.", int, least=1)
    max_dim: int = _told(512, "Most features of a context.", int, least=1)
    max_rewards: int = _told(1_000, "Most rewards in one call.", int, least=1)
    max_decisions: int = _told(
        1_000, "Most decisions in one call; each arm of a slate counts.", int, least=1
    )
    max_waiting: int = _told(
        20_000, "Most decisions, and most rewards, waiting for the disk.", int, least=1
    )
    max_connections: int = _told(10_000, "Most connections at a time.", int, least=1)
    body_seconds: float = _told(10.0, "Time limit for a request to arrive.", float, least=0.1)
    strangers_per_second: float = _told(
        100.0,
        "How many requests without a valid key are processed; the others get 429.",
        float,
        least=0.1,
    )
    read_seconds: float = _told(5.0, "Time limit for reading the store.", float, least=0.1)
    write_seconds: float = _told(30.0, "Time limit for an answer.", float, least=0.1)
    idle_seconds: float = _told(75.0, "How long a connection may stay idle.", float, least=1.0)
    start_seconds: float = _told(
        60.0, "How long to wait at the start for an unreachable PostgreSQL.", float
    )
    shutdown_seconds: float = _told(20.0, "Time limit for the shutdown.", float, least=1.0)
    allow_unproven: bool = _told(False, "Also serve algorithms whose privacy is not proven.", bool)
    # learning
    witness: Path | None = _told(  # noqa: RUF009 - a field
        None,
        "Folder that distinguishes an old copy of the store from the newest; keep it outside the store's folder.",
        Path,
        may_lack=True,
    )
    lease_seconds: float = _told(
        10.0, "How long a silent learner keeps its bandits.", float, least=0.1
    )
    release_seconds: float = _told(
        0.25, "Pause between two checks for decisions to learn.", float, least=0.001
    )
    batch: int = _told(512, "Most decisions learned at a time.", int, least=1)
    keep_transcript: bool = _told(
        False, "Keep every noisy value, so that learning can be replayed.", bool
    )
    retain_rewards: float = _told(3_600.0, "Seconds until a learned reward is erased.", float)
    retain_decisions: float = _told(
        7 * 86_400.0, "Seconds until a learned decision is erased.", float
    )
    retain_access_log: float = _told(
        90 * 86_400.0, "Seconds until an entry of the access log is erased.", float
    )
    bandits: tuple[str, ...] = _told(
        (),
        "Learn only for this bandit; repeat for more.",
        list,
        name="learn",
    )


@dataclass(frozen=True)
class Setting:
    """One line of the table."""

    field: str  # of `Settings`
    name: str  # in a file
    kind: type
    default: Any
    words: str
    required: bool
    may_lack: bool  # whether it may be left unsaid
    choices: tuple[str, ...]
    least: float
    most: float  # finite: neither NaN nor infinity is within

    @property
    def flag(self) -> str:
        """On the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """In the environment."""
        return PREFIX + self.name.upper()

    def check(self, value: Any) -> Any:
        """The checked value, or an error that names the setting but never the value, because a
        store's URL may hold a password."""
        if self.kind is list:
            if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
                raise OptionError(f"{self.name} is a list of names")
            return tuple(value)
        if isinstance(value, str | Path) and "\0" in str(value):
            raise OptionError(f"{self.name} holds a NUL, which no name does")
        if self.kind is Path and isinstance(value, str | Path):
            return Path(value)
        whole = self.kind is float and type(value) is int
        if type(value) is not self.kind and not whole:  # True is a number, and none here
            words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
            raise OptionError(f"{self.name} is {words.get(self.kind, 'a path')}")
        if self.choices and value not in self.choices:
            *some, last = self.choices
            raise OptionError(f"{self.flag} is {', '.join(some)} or {last}, not {value!r}")
        if isinstance(value, int | float) and not self.least <= value <= self.most:
            raise OptionError(f"{self.name} is a number from {self.least:g} to {self.most:g}")
        return float(value) if whole else value


def _setting(one: Any) -> Setting:
    told = one.metadata["setting"]
    return Setting(
        field=one.name,
        name=told.get("name", one.name),
        kind=told["kind"],
        default=one.default,
        words=told["words"],
        required=one.name == "store",
        may_lack=told.get("may_lack", False),
        choices=told.get("choices", ()),
        least=told.get("least", 0.0),
        most=told.get("most", 1e12),
    )


TABLE: tuple[Setting, ...] = tuple(_setting(one) for one in fields(Settings))


def _unknown(name: str, known: Iterable[str], where: str) -> OptionError:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return OptionError(f"{where} says {name}, which is not a setting of the service{hint}")


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file, by the names of the table; an unknown name is an error."""
    try:
        said = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        raise OptionError(f"{path} is not TOML in UTF-8: lines like port = 8080") from None
    table = {one.name: one for one in TABLE}
    for name in said:
        if name not in table:
            raise _unknown(name, table, str(path))
    return {name: table[name].check(value) for name, value in said.items()}


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise for a variable that looks like one of ours but is not: a typo would otherwise leave a
    limit unchanged."""
    known = [one.variable for one in TABLE]
    for name in environment:
        if name.startswith(PREFIX) and name not in (*known, *OTHERS, COMPLETION):
            raise _unknown(name, known, "the environment")


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Settings from values by the names of the table's fields; None means not set."""
    said = {
        one.field: one.check(given[one.field])
        for one in TABLE
        if given.get(one.field) is not None and given[one.field] != []
    }
    if ("cap_epsilon" in said) != ("cap_delta" in said):
        raise OptionError("a cap needs both --cap-epsilon and --cap-delta")
    if ("tls_cert" in said) != ("tls_key" in said):
        raise OptionError("TLS needs both --tls-cert and --tls-key")
    if "store" not in said:
        raise OptionError("give the store: --store, DPBANDIT_STORE, or store in the file")
    return Settings(**said)
