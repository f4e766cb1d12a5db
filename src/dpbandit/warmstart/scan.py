"""The pass over a part of a log: its rows, a batch at a time, become sums.

Memory does not grow with the part. Parts, and batches within them, are the same wherever they are
read, so their sums are too, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dpbandit.logs.sums import GOOD, Recipe, Sums, absorb, inspect, new_sums
from dpbandit.logs.users import Steps
from dpbandit.spread import Tell
from dpbandit.warmstart.rows import Rows, read
from dpbandit.warmstart.source import AnyPart, Columns

Seen = Callable[[int], None]
# Gives rows that are over their user's cap that status; or leaves less of a person's rewards.
Admit = Callable[[Rows], Rows]


class Reading(NamedTuple):
    """How rows are read and what is added up: what all parts have in common."""

    columns: Columns
    recipe: Recipe
    missing_reward: float | None
    steps: Steps | None = None  # of persons' rewards, where those are added up


def scan(
    batches: Iterable[Rows], recipe: Recipe, admit: Admit | None = None, seen: Seen | None = None
) -> Sums:
    """The sums of these rows."""
    sums = new_sums(recipe)
    for rows in batches:
        look(rows, recipe)
        if admit is not None:
            rows = admit(rows)
        add(rows, recipe, sums)
        if seen is not None:
            seen(len(rows.status))
    return sums


def add(rows: Rows, recipe: Recipe, sums: Sums) -> None:
    """Add up the rows. Of a person whose contexts are private the Gram matrix has one visit."""
    if rows.again is None:
        absorb(rows.contexts, rows.rewards, rows.status, recipe, sums)
        return
    for these, how in ((~rows.again, recipe), (rows.again, recipe.without_directions)):
        absorb(rows.contexts[these], rows.rewards[these], rows.status[these], how, sums)


def look(rows: Rows, recipe: Recipe) -> None:
    """Give rows whose contexts cannot be learned from a status. Where contexts are private, that a row
    is left out would show: then such contexts become zero.
    """
    if not recipe.directions:
        inspect(rows.contexts, rows.status, recipe)
        return
    bad = np.zeros_like(rows.status)
    inspect(rows.contexts, bad, recipe)
    rows.contexts[bad != GOOD] = 0.0


def rows_of(part: AnyPart, reading: Reading, *, threads: bool = False) -> Iterator[Rows]:
    """The rows of a part, a batch at a time."""
    columns, hides = reading.columns, reading.recipe.directions > 0
    for batch in part.batches(
        columns.names, threads=threads, numbers=columns.numbers, texts=columns.texts
    ):
        yield read(batch, columns, reading.missing_reward, hides)


def scan_part(reading: Reading, part: AnyPart, tell: Tell) -> Sums:
    """A task: the sums of a part in which nobody has a cap."""
    return scan(rows_of(part, reading), reading.recipe, seen=tell)
