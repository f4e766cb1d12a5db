"""Which algorithms are played, and with which options: what `run` and `plan` are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpbandit.algorithms import registry
from dpbandit.errors import OptionError, nearest
from dpbandit.options import SHARED

Job = tuple[str, str, dict[str, Any]]  # label, algorithm, options


def named(
    algorithms: str | Sequence[str | tuple[str, Mapping[str, Any]]],
) -> list[tuple[str, dict[str, Any]]]:
    """Names, each with options of its own."""
    entries = [algorithms] if isinstance(algorithms, str) else algorithms
    found = [(e, {}) if isinstance(e, str) else (e[0], dict(e[1])) for e in entries]
    if not found:
        raise OptionError("no algorithm was given: name at least one, for example ['anytime']")
    return found


def share_out(options: dict[str, Any], wanted: list[Job]) -> list[Job]:
    """Give each algorithm those of the options that it takes; one that none takes is an error."""
    jobs, used = [], set(SHARED)
    for label, name, own in wanted:
        entry = registry.find(name)
        takes = set(options) if entry.black_box else set(SHARED) | set(entry.own_options)
        used |= takes
        jobs.append((label, name, {**{k: v for k, v in options.items() if k in takes}, **own}))
    for unknown in set(options) - used:
        raise OptionError(
            f"none of the algorithms has an option {unknown!r}: {nearest(unknown, used)}"
        )
    return jobs
