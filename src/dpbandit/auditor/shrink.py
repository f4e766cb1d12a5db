"""From a story that breaks a claim to the shortest one that still does, and a script that shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.auditor.stories import Story, UnderTest, Verdict, judge
from dpbandit.types import Matrix

SECONDS = 20.0


def shrink(
    story: Story, under_test: UnderTest | None = None, seconds: float = SECONDS
) -> tuple[Story, Verdict]:
    """The simplest story found in so many seconds that breaks the claim, and what it costs.

    The contexts must have been chosen already. A change is kept if the claim is still broken, not
    only by rounding: at least a tenth of what was too much stays too much.
    """
    end = time.monotonic() + seconds
    best, verdict = story, judge(story, under_test)
    if verdict.holds:
        return story, verdict
    bar = 1 + min((verdict.ratio - 1) / 10, 0.1)

    def breaks(tried: Story) -> Verdict | None:
        try:
            found = judge(tried, under_test)
        except Exception:  # another fault than the one that is being looked at
            return None
        return found if not found.refused and not found.holds and found.ratio >= bar else None

    again = True
    while again and time.monotonic() < end:
        again = False
        for tried in _simpler(best):
            if time.monotonic() > end:
                break
            if (found := breaks(tried)) is not None:
                best, verdict, again = tried, found, True
                break
    return best, verdict


def _simpler(story: Story) -> Iterator[Story]:
    """Stories that are a little simpler, those that save most first."""
    rows = len(story.xs)
    if story.events:
        yield replace(story, events=())
    if story.batches:
        yield replace(story, batches=())
    last = max(story.changed) + 1
    size = rows
    while size >= 1:
        for first in range(0, rows, size):
            if rows > size and (kept := _without(story, first, min(first + size, rows))):
                yield kept
        size //= 2
        if size < rows // 64:  # of a long story, long parts alone
            break
    for event in story.events:
        yield replace(story, events=tuple(one for one in story.events if one is not event))
    if story.logged:
        yield replace(story, logged=0)
    if story.blocks:
        yield replace(story, blocks=0)
    if story.loud:
        yield replace(story, loud=0.0)
    needed = ("dim", "epsilon", "delta", "seed")
    for name in story.options:
        if name not in needed:
            yield replace(story, options={k: v for k, v in story.options.items() if k != name})
    if story.options.get("seed") is None:
        yield replace(story, options={**story.options, "seed": 0})
    if story.options.get("horizon") not in (None, rows - story.logged) and rows:
        yield replace(story, options={**story.options, "horizon": rows - story.logged})
    for name, plain in (("epsilon", 1.0), ("delta", 1e-6)):
        if story.options.get(name) != plain:
            yield replace(story, options={**story.options, name: plain})
    if len(story.changed) > 1:
        for at in range(len(story.changed)):
            yield _keep_changed(story, at)
    low, high = story.options.get("reward_range", (-1.0, 1.0))
    for value in (low, high):
        rewards = story.rewards.copy()
        rewards[[row for row in range(rows) if row not in story.changed]] = value
        if (rewards != story.rewards).any():
            yield replace(story, rewards=rewards)
    yield from _rounder(story, last)


def _rounder(story: Story, last: int) -> Iterator[Story]:
    """The same with fewer digits, and with one context for all."""
    if len(story.xs) > 1 and len({row.tobytes() for row in story.xs}) > 1:
        for row in {0, last - 1}:
            yield replace(story, xs=np.tile(story.xs[row], (len(story.xs), 1)))
    arms = story.options.get("public_contexts")
    longest = story.options.get("max_norm", 1.0)
    for digits in (1, 2):
        rounded = _round(story.xs / longest, digits) * longest
        lengths = np.linalg.norm(rounded / longest, axis=1)
        if (rounded != story.xs).any() and (lengths <= 1).all():
            tried = replace(story, xs=rounded)
            if arms is not None:
                known = _round(arms / longest, digits) * longest
                tried = replace(tried, options={**story.options, "public_contexts": known})
            yield tried


def _round(numbers: Matrix, digits: int) -> Matrix:
    return np.array([float(f"{n:.{digits}g}") for n in numbers.ravel()]).reshape(numbers.shape)


def _without(story: Story, first: int, last: int) -> Story | None:
    """The story without these rows; None if nothing changed would be left."""
    kept = [row for row in range(len(story.xs)) if not first <= row < last]
    at = [number for number, row in enumerate(story.changed) if not first <= row < last]
    if not at or not kept:
        return None
    place = {row: number for number, row in enumerate(kept)}
    return replace(
        story,
        xs=story.xs[kept],
        rewards=story.rewards[kept],
        changed=tuple(place[story.changed[number]] for number in at),
        other_rewards=story.other_rewards[at],
        other_xs=None if story.other_xs is None else story.other_xs[at],
        users=None if story.users is None else tuple(story.users[row] for row in kept),
        batches=(),
        events=tuple(
            replace(event, at=place[event.at]) for event in story.events if event.at in place
        ),
        logged=sum(row < story.logged for row in kept),
    )


def _keep_changed(story: Story, but: int) -> Story:
    """The story in which one row less differs."""
    at = [number for number in range(len(story.changed)) if number != but]
    return replace(
        story,
        changed=tuple(story.changed[number] for number in at),
        other_rewards=story.other_rewards[at],
        other_xs=None if story.other_xs is None else story.other_xs[at],
    )


SCRIPT = '''\
"""{title}

Found by: {found_by}
"""
from numpy import array, float64, full, inf, nan, repeat  # noqa: F401

from dpbandit.auditor.stories import Event, Story, judge  # noqa: F401

story = Story(
{fields}
)
print(judge(story))
'''


def script(story: Story, verdict: Verdict, found_by: str) -> str:
    """A script that tells the story and prints what it costs."""
    fields = {
        "name": repr(story.name),
        "options": _options(story.options),
        "xs": _repeated(story.xs),
        "rewards": _repeated(story.rewards),
        "changed": repr(story.changed),
        "other_rewards": _array(story.other_rewards),
    }
    if story.other_xs is not None:
        fields["other_xs"] = _array(story.neighbour()[0][list(story.changed)])
    for name in ("users", "batches", "events", "logged", "blocks"):
        if value := getattr(story, name):
            fields[name] = repr(value)
    fields["noise"], fields["loud"] = repr(story.noise), repr(story.loud)
    lines = "\n".join(f"    {name}={text}," for name, text in fields.items())
    return SCRIPT.format(title=f"{story.name}: {verdict}", found_by=found_by, fields=lines)


def _array(numbers: NDArray[np.float64]) -> str:
    return f"array({numbers.tolist()!r})"


def _repeated(rows: NDArray[np.float64]) -> str:
    """An array with the same row many times in a row, in few words."""
    runs = [
        (next(run), 1 + sum(1 for _ in run)) for _, run in groupby(rows, lambda row: row.tobytes())
    ]
    if len(runs) > len(rows) / 2:
        return _array(rows)
    each, counts = [row.tolist() for row, _ in runs], [count for _, count in runs]
    return f"repeat(array({each!r}), {counts!r}, axis=0)"


def _options(options: dict[str, Any]) -> str:
    words = (
        f"{name!r}: {_array(value) if isinstance(value, np.ndarray) else repr(value)}"
        for name, value in options.items()
    )
    return "{" + ", ".join(words) + "}"
