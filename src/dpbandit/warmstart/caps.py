"""Caps for users: which of a user's rows count depends on all rows before them.

Rows that are bad do not count. On one machine one thread counts and adds up in the log's order
while others decode. On a cluster parts are read twice: once to find whose good rows they have (8
bytes a row travel), which the calling process counts in the log's order, and again with the answer
(a bit a good row). The sums are the same, to the last bit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import LogError
from dpbandit.logs.record import Hashes
from dpbandit.logs.sums import GOOD, OVER_CAP, Sums, inspect
from dpbandit.logs.users import Tally
from dpbandit.spread import Place, Task, Tell
from dpbandit.warmstart.ahead import ahead
from dpbandit.warmstart.rows import Rows
from dpbandit.warmstart.scan import Reading, Seen, rows_of, scan
from dpbandit.warmstart.source import Part


def scan_in_order(
    parts: Iterable[Part], reading: Reading, tally: Tally, seen: Seen, *, threads: bool
) -> Generator[Sums, None, None]:
    """The sums of each part, in one pass."""

    def admit(rows: Rows) -> None:
        tally.admit(_users(rows), rows.status, over=OVER_CAP)

    for part in parts:
        with closing(ahead(rows_of(part, reading, threads=threads))) as batches:
            yield scan(batches, reading.recipe, admit, seen)


class Answer(NamedTuple):
    """Which of a part's good rows are over their user's cap, in order."""

    good: int
    over: NDArray[np.uint8]  # eight rows a byte


def scan_twice(
    place: Place, parts: Iterable[Part], reading: Reading, tally: Tally, seen: Seen
) -> Generator[Sums, None, None]:
    """The sums of each part, in order. Either reading counts for half of the work."""
    parts = list(parts)
    tasks = [Task(reading, part, part.rows) for part in parts]
    with closing(place.stream(find_users, tasks, lambda _, rows: seen(rows // 2))) as found:
        answers = [decide(users, tally) for users in found]
    tasks = [
        Task(reading, (part, answer), part.rows)
        for part, answer in zip(parts, answers, strict=True)
    ]
    yield from place.stream(scan_answered, tasks, lambda _, rows: seen(rows - rows // 2))


def find_users(reading: Reading, part: Part, tell: Tell) -> Hashes:
    """A task: whose the good rows of a part are, in order."""
    found = [np.empty(0, dtype=np.uint64)]
    for rows in rows_of(part, reading):
        inspect(rows.contexts, rows.status, reading.recipe)
        found.append(_users(rows)[rows.status == GOOD])
        tell(len(rows.status))
    return np.concatenate(found)


def decide(users: Hashes, tally: Tally) -> Answer:
    """Count a part's users, after those of all parts before it."""
    status = np.zeros(len(users), dtype=np.uint8)
    tally.admit(users, status, over=OVER_CAP)
    return Answer(len(users), np.packbits(status == OVER_CAP))


def scan_answered(reading: Reading, own: tuple[Part, Answer], tell: Tell) -> Sums:
    """A task: the sums of a part whose answer is known."""
    part, answer = own
    over = np.unpackbits(answer.over, count=answer.good).astype(bool)
    at = 0

    def admit(rows: Rows) -> None:
        nonlocal at
        good = np.flatnonzero(rows.status == GOOD)
        if at + len(good) > answer.good:
            raise LogError(f"{part.file} changed while it was read. Nothing was released")
        rows.status[good[over[at : at + len(good)]]] = OVER_CAP
        at += len(good)

    sums = scan(rows_of(part, reading), reading.recipe, admit, tell)
    if at != answer.good:
        raise LogError(f"{part.file} changed while it was read. Nothing was released")
    return sums


def _users(rows: Rows) -> Hashes:
    if rows.users is None:
        raise LogError("caps need the log's column of users")
    return rows.users
