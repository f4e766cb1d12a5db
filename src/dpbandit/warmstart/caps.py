"""Caps for users and persons: what is learned of a row depends on all rows before it.

Rows that are bad do not count. On one machine one thread counts and adds up in the log's order
while others decode. On a cluster parts are read twice: once to find whose good rows they have (8
bytes a row travel; of persons, 16 for each row that has a reward above 0, or for every good one where
contexts are private), which the calling process counts in the log's order, and again with the answer
(a bit a good row; 8 bytes). The sums are the
same, to the last bit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import LogError
from dpbandit.logs.record import Hashes, Totals
from dpbandit.logs.sums import GOOD, OVER_CAP, Sums
from dpbandit.logs.users import Persons, Steps, Tally
from dpbandit.spread import Place, Task, Tell
from dpbandit.warmstart.ahead import ahead
from dpbandit.warmstart.rows import Rows
from dpbandit.warmstart.scan import Reading, Seen, look, rows_of, scan
from dpbandit.warmstart.source import AnyPart

Counts = Tally | Persons


def scan_in_order(
    parts: Iterable[AnyPart], reading: Reading, tally: Counts, seen: Seen, *, threads: bool
) -> Generator[Sums, None, None]:
    """The sums of each part, in one pass."""

    def admit(rows: Rows) -> Rows:
        if isinstance(tally, Persons):
            found = asked_of(rows, tally.steps)
            return _worth(rows, found, tally.take(found.names, found.steps), tally.steps)
        tally.admit(_users(rows), rows.status, over=OVER_CAP)
        return rows

    for part in parts:
        with closing(ahead(rows_of(part, reading, threads=threads))) as batches:
            yield scan(batches, reading.recipe, admit, seen)


class Asked(NamedTuple):
    """Whose the rows are that count for something, in order; of persons, for how much."""

    at: NDArray[np.int64]
    names: Hashes
    steps: Totals


class Answer(NamedTuple):
    """What is learned of the rows that were asked of, in order."""

    asked: int
    taken: NDArray[np.uint8] | Totals  # over the cap, eight rows a byte; or so many steps


def asked_of(rows: Rows, steps: Steps | None) -> Asked:
    """The good rows; of persons, those of them with a reward above 0, unless visits count too."""
    good = rows.status == GOOD
    if steps is None:
        at = np.flatnonzero(good)
        return Asked(at, _users(rows)[at], np.empty(0, dtype=np.int64))
    many = steps.of(rows.rewards)
    at = np.flatnonzero(good & ((many > 0) | steps.visits))
    return Asked(at, _users(rows)[at], many[at])


def scan_twice(
    place: Place, parts: Iterable[AnyPart], reading: Reading, tally: Counts, seen: Seen
) -> Generator[Sums, None, None]:
    """The sums of each part, in order. Either reading counts for half of the work."""
    parts = list(parts)
    tasks = [Task(reading, part, part.rows or 0) for part in parts]
    with closing(place.stream(find_users, tasks, lambda _, rows: seen(rows // 2))) as found:
        answers = [decide(names, steps, tally) for names, steps in found]
    tasks = [
        Task(reading, (part, answer), part.rows or 0)
        for part, answer in zip(parts, answers, strict=True)
    ]
    yield from place.stream(scan_answered, tasks, lambda _, rows: seen(rows - rows // 2))


def find_users(reading: Reading, part: AnyPart, tell: Tell) -> tuple[Hashes, Totals]:
    """A task: whose rows of a part are asked of, in order, and for how much."""
    names = [np.empty(0, dtype=np.uint64)]
    steps = [np.empty(0, dtype=np.int64)]
    for rows in rows_of(part, reading):
        look(rows, reading.recipe)
        found = asked_of(rows, reading.steps)
        names.append(found.names)
        steps.append(found.steps)
        tell(len(rows.status))
    return np.concatenate(names), np.concatenate(steps)


def decide(names: Hashes, steps: Totals, tally: Counts) -> Answer:
    """Count a part's users, after those of all parts before it."""
    if isinstance(tally, Persons):
        return Answer(len(names), tally.take(names, steps))
    status = np.zeros(len(names), dtype=np.uint8)
    tally.admit(names, status, over=OVER_CAP)
    return Answer(len(names), np.packbits(status == OVER_CAP))


def scan_answered(reading: Reading, own: tuple[AnyPart, Answer], tell: Tell) -> Sums:
    """A task: the sums of a part whose answer is known."""
    part, answer = own
    taken: Totals | NDArray[np.bool_] = answer.taken.astype(np.int64, copy=False)
    if reading.steps is None:
        taken = np.unpackbits(answer.taken.astype(np.uint8), count=answer.asked).astype(bool)
    done = 0

    def admit(rows: Rows) -> Rows:
        nonlocal done
        found = asked_of(rows, reading.steps)
        start, done = done, done + len(found.at)
        if done > answer.asked:
            raise LogError(f"{part.file} changed while it was read. Nothing was released")
        if reading.steps is not None:
            return _worth(rows, found, taken[start:done].astype(np.int64), reading.steps)
        rows.status[found.at[taken[start:done].astype(bool)]] = OVER_CAP
        return rows

    sums = scan(rows_of(part, reading), reading.recipe, admit, tell)
    if done != answer.asked:
        raise LogError(f"{part.file} changed while it was read. Nothing was released")
    return sums


def _worth(rows: Rows, found: Asked, taken: Totals, steps: Steps) -> Rows:
    """The rows with what is learned of their rewards; those not asked of have none."""
    rewards = np.zeros(len(rows.rewards))
    if not steps.visits:
        rewards[found.at] = steps.worth(taken)
        return rows._replace(rewards=rewards)
    rewards[found.at] = steps.worth(taken >> 1)
    again = np.zeros(len(rewards), dtype=bool)
    again[found.at] = taken & 1 == 0
    return rows._replace(rewards=rewards, again=again)


def _users(rows: Rows) -> Hashes:
    if rows.users is None:
        raise LogError("caps need the log's column of users")
    return rows.users
