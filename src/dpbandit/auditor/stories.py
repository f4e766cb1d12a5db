"""A story: what happens to a bandit, and what a neighbour changes in it. `judge` tells it to two
bandits side by side, the second told the first one's noisy values, and adds up the exact cost.

It goes through what users call: `make`, `select`, `update` of rows and batches, `save` and `load`,
Ctrl-C and the same call once more, a log to start from. After every step all that is public of the
two must be the same.
"""

from __future__ import annotations

import math
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import dpbandit
from dpbandit.algorithms import registry
from dpbandit.auditor.watch import (
    OTHER_ERROR,
    OTHER_PUBLIC,
    OTHER_RELEASES,
    TWICE,
    Watch,
    cost,
    cost_of_releases,
    difference,
    fixed_slate,
    shown,
)
from dpbandit.bandit import Bandit
from dpbandit.design import keys_for
from dpbandit.errors import DpbanditError
from dpbandit.files import unpack
from dpbandit.privacy.accounting import mu_of
from dpbandit.privacy.grid import STEP
from dpbandit.privacy.noise import Noise
from dpbandit.privacy.sources import Pending, Real, Simulation
from dpbandit.saving import pack
from dpbandit.types import Matrix, Vector

# Relative rounding allowed before a cost counts as too high: scales carry a margin of 2e-9 for it.
ROUNDING = 1e-9
MEMORY = "memory that is not noisy depends on a reward"

_PACKAGE = str(Path(dpbandit.__file__).parent) + os.sep
_AUDITOR = str(Path(__file__).parent) + os.sep

Kind = Literal["save", "interrupt", "look", "nan", "long", "wide", "offer"]
_WORDS: dict[Kind, str] = {
    "save": "saved and loaded",
    "interrupt": "Ctrl-C",
    "look": "memory inspected once",
    "nan": "a reward that is NaN",
    "long": "a context over max_norm",
    "wide": "a context of another dim",
    "offer": "another slate scored",
}


@dataclass(frozen=True)
class Event:
    """Something that happens before the update that begins with row `at`."""

    at: int
    kind: Kind
    number: int = 0  # of the bytecode at which Ctrl-C comes


@dataclass(frozen=True)
class Story:
    """One bandit's life and its neighbour's. Rows that are NaN are chosen while it is told."""

    name: str
    options: dict[str, Any]
    xs: Matrix
    rewards: Vector
    changed: tuple[int, ...]  # the rows that the neighbour changes
    other_rewards: Vector  # to these rewards
    # And, where contexts are private, to these contexts; a row of NaN: to none.
    other_xs: Matrix | None = None
    users: tuple[str, ...] | None = None
    batches: tuple[int, ...] = ()  # sizes, in order; rows after them come one by one
    events: tuple[Event, ...] = ()
    logged: int = 0  # so many rows, from the start, are a log that it starts from
    noise: int = 0  # seed of the transcript's noise
    loud: float = 1.0  # and how many times its scale that is
    blocks: int = 0  # so many features of its own has each arm that is looked at; 0: arms share all

    def parts(self) -> Iterator[str]:
        """What is in it, in words: for counting what was tried."""
        given = self.options
        unit = given.get("unit", "reward")
        yield f"unit {unit if isinstance(unit, str) else unit[0]}"
        yield from sorted({_WORDS[event.kind] for event in self.events})
        there = {
            "private contexts": self.other_xs is not None,
            "person with private contexts": self.other_xs is not None and unit[0] == "person",
            "public contexts": given.get("public_contexts") is not None,
            "starts from a log": self.logged > 0,
            "learns in batches": len(self.batches) > 0,
            "pan-private": bool(given.get("pan_private")),
            "clicks": given.get("rewards") == "clicks",
            "memories compete": self.name == "anytime"
            and given.get("memories") != ()
            and not isinstance(given.get("memories"), float),
            "local answers: the first rewards": isinstance(given.get("local"), int),
            "local answers: disjoint arms": self.blocks > 0,
            "over ten times the life": len(self.xs) > 10 * given.get("life", math.inf),
            "reference engine": given.get("backend") == "reference",
            "over 1,000 rounds": len(self.xs) > 1000,
        }
        yield from (words for words, is_so in there.items() if is_so)

    def steps(self) -> Iterator[tuple[int, int]]:
        """The rows of each update: from, to."""
        first, rows = self.logged, len(self.xs)
        for size in self.batches:
            if first < rows:
                yield first, min(first + size, rows)
            first += size
        yield from ((at, at + 1) for at in range(first, rows))

    def differs_too_much(self, bandit: Bandit) -> str:
        """Why the two streams are no neighbours in the terms of this bandit's claim; else empty."""
        if self.other_xs is not None and not bandit.contexts_are_private:
            return "contexts differ, and they are public"
        if not bandit.options.protects.needs_user:
            return "" if len(self.changed) == 1 else "more than one reward differs"
        whose = {None if self.users is None else self.users[row] for row in self.changed}
        return "" if len(whose) == 1 else "more than one user's rewards differ"

    def neighbour(self) -> tuple[Matrix, Vector]:
        """Contexts and rewards of the other stream."""
        xs, rewards = self.xs.copy(), self.rewards.copy()
        rewards[list(self.changed)] = self.other_rewards
        if self.other_xs is not None:
            own = xs[list(self.changed)]
            xs[list(self.changed)] = np.where(np.isnan(self.other_xs), own, self.other_xs)
        return xs, rewards


@dataclass(frozen=True)
class Verdict:
    """What a story costs, over what is claimed."""

    ratio: float = 0.0  # infinite where neighbours are told apart for sure
    why: str = ""
    at: int = 0  # rows told by then
    refused: str = ""  # the bandit could not be made, or claims nothing
    fault: str = ""  # an error that is none of this library's, in both of them
    story: Story | None = None  # with the contexts that were chosen while it was told

    @property
    def holds(self) -> bool:
        """Whether the claim does."""
        return self.ratio <= 1 + ROUNDING

    def __str__(self) -> str:
        if self.refused:
            return f"nothing to judge: {self.refused}"
        words = "neighbours are told apart" if math.isinf(self.ratio) else "of the claimed budget"
        size = "" if math.isinf(self.ratio) else f"{self.ratio:.10g} × "
        fault = f"; on the way: {self.fault}" if self.fault else ""
        return f"{size}{words}{f' ({self.why})' if self.why else ''} after {self.at} rows{fault}"


class UnderTest:
    """Where bandits come from, made and loaded: what ships. Subclass it to try something else."""

    def make(self, name: str, options: dict[str, Any]) -> Any:
        """A new bandit, or an error of this library."""
        return registry.construct(name, options)

    def load(self, packed: bytes) -> Any:
        """The bandit that was saved."""
        return unpack(packed)


class Public:
    """What an adversary who chooses contexts sees of the two, which must be the same."""

    def __init__(self, one: Side, two: Side) -> None:
        self.one, self.two = one, two
        self.differs = ""

    @property
    def theta(self) -> Vector:
        """The released parameter."""
        return np.array(self.one.bandit.theta)

    @property
    def l1_limit(self) -> float | None:
        """The L1 norm that contexts must keep to."""
        limit: float | None = self.one.bandit.l1_limit
        return limit

    def select(self, slate: Matrix) -> int:
        """The arm that both play; 0 where they refuse the slate."""
        found = [side.attempt(partial(side.bandit.select, slate)) for side in (self.one, self.two)]
        if found[0] != found[1]:
            self.differs = f"{OTHER_PUBLIC}: in the arms that it picks"
        return int(found[0] or 0)


Pick = Callable[[Public, int], Matrix]  # what is public, and how many → contexts


class Fast:
    """Noise for a transcript. Any number may be drawn, so any will do: they need not be secret."""

    kind: Literal["real", "simulation"] = "simulation"

    def __init__(self, seed: int, loud: float) -> None:
        self.rng, self.loud = np.random.default_rng(seed), loud

    def release(
        self, noise: Noise | str, pending: Pending, *, scale: float, shift: float, index: int
    ) -> Vector:
        size = len(pending.values)
        return pending.values + scale * self.loud * self.rng.standard_normal(size)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C of a story, not of the person who runs it."""


@contextmanager
def interrupting(number: int) -> Iterator[None]:
    """Ctrl-C before so many bytecodes of this library; 0 for none."""
    if not number:
        yield
        return
    left, before = number, sys.gettrace()

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE) or file.startswith(_AUDITOR):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(before)
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@lru_cache(maxsize=4096)
def _mu(epsilon: float, delta: float) -> float:
    return mu_of(epsilon=epsilon, delta=delta)


def limit_of(bandit: Bandit) -> float | None:
    """What a whole transcript may cost, in the noise's currency; None where it is not a sum."""
    claim = bandit.claim
    if bandit.noise.notion == "gdp" and bandit.design.is_private:
        asked = _mu(claim.epsilon, claim.delta)
        return float(min(asked, claim.mu or asked) ** 2)
    return claim.epsilon if bandit.noise.notion in ("pure", "gdp") else None


@dataclass
class Side:
    """One of the two bandits, and what is watched of it."""

    bandit: Any
    watch: Watch
    xs: Matrix
    rewards: Vector
    seen: list[str] = field(default_factory=list)  # errors, in words
    fault: str = ""  # the first that is none of this library's

    def attempt(self, call: Callable[[], Any], number: int = 0) -> Any:
        """What the call returns; `Interrupted` after Ctrl-C, None after an error, which is kept in
        words: all that fails is seen by whoever called.
        """
        made = self.watch.transcript
        before = len(made.releases), len(made.starts)
        try:
            with interrupting(number):
                return call()
        except Interrupted:
            self.watch.take_back(*before, self.bandit.rounds)
            return Interrupted
        except Exception as error:
            self.watch.take_back(*before, self.bandit.rounds)
            notes = getattr(error, "__notes__", [])
            self.seen.append(f"{type(error).__name__}: {error} {notes}")
            if not isinstance(error, DpbanditError):
                self.fault = self.fault or _where(error)
            return None


def _where(error: Exception) -> str:
    """An error that is none of this library's, and the last line of this library on its way."""
    lines = traceback.extract_tb(error.__traceback__)
    last = [line for line in lines if line.filename.startswith(_PACKAGE)][-1]
    place = last.filename.removeprefix(_PACKAGE)
    return f"{type(error).__name__}: {error} in {last.name}, {place}:{last.lineno}"


def judge(story: Story, under_test: UnderTest | None = None, pick: Pick | None = None) -> Verdict:
    """Tell a story to two neighbours and compare them.

    Parameters
    ----------
    story : Story
        What happens.
    under_test : UnderTest, optional
        Where bandits come from; what ships if not given.
    pick : callable, optional
        Chooses contexts that are NaN from what is public of the first bandit.

    Returns
    -------
    Verdict
        Never an error of this library: those are public, and compared.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return Telling(replace(story, xs=story.xs.copy()), under_test or UnderTest(), pick).tell()


class Telling:
    """A story while it is told."""

    def __init__(self, story: Story, under_test: UnderTest, pick: Pick | None) -> None:
        self.story, self.under_test, self.pick = story, under_test, pick
        self.total = 0.0

    def tell(self) -> Verdict:
        story = self.story
        try:
            sides = [self._make(number) for number in range(2)]
        except DpbanditError as error:
            return Verdict(refused=f"{type(error).__name__}: {error}")
        except Exception as error:  # nothing was learned, and both were made alike
            return Verdict(fault=_where(error), story=story)
        one, two = self.one, self.two = sides
        bandit = one.bandit
        two.watch.script = one.watch.transcript
        if bandit.claim.status == "none":
            return Verdict(refused="nothing is claimed")
        if why := story.differs_too_much(bandit):
            return Verdict(refused=f"no neighbours: {why}")
        self.limit = limit_of(bandit)
        self.fast = isinstance(one.watch.inner, Fast)
        self.slate = apart(fixed_slate(bandit), story.blocks)
        why, at = self._log() or self._compare(), story.logged
        events: dict[int, list[Event]] = {}
        for event in story.events:
            events.setdefault(event.at, []).append(event)
        for first, last in story.steps():
            why = why or self._step(first, last, events)
            at = last
            if why or not self._within():
                break
        if not why and not self.fast and one.watch.transcript.uses_noise_twice:
            why = TWICE
        ratio = math.inf if why else self._ratio()
        return Verdict(ratio, why, at, fault=one.fault, story=story)

    def _make(self, number: int) -> Side:
        story, options = self.story, dict(self.story.options)
        bandit = self.under_test.make(story.name, options)
        if options.get("seed") is None and isinstance(bandit, Bandit):
            bandit.use_keys(keys_for(story.noise))  # lots and perturbed contexts can be repeated
        if type(bandit.source) in (Simulation, Real):
            bandit.source = Fast(story.noise, story.loud)
        watch = Watch(bandit.source)
        watch.transcript.counted = bandit.release.counted
        bandit.source = watch
        # The first one's contexts may still be chosen.
        xs, rewards = story.neighbour() if number else (story.xs, story.rewards)
        return Side(bandit, watch, xs, rewards)

    # ------------------------------------------------------------------ what it adds up to

    def _within(self) -> bool:
        return self.limit is None or self._ratio() <= 1 + ROUNDING

    def _ratio(self) -> float:
        if self.limit is None or self.total == 0:
            return 0.0
        ratio = self.total / self.limit if self.limit else math.inf
        return math.sqrt(ratio) if self.one.bandit.noise.notion == "gdp" else ratio

    def _compare(self, look: bool = True) -> str:
        """Add up what was released since, and see that all that is public is the same."""
        one, two = self.one, self.two
        mine, theirs = one.watch.transcript, two.watch.transcript
        if one.seen != two.seen:
            return f"{OTHER_ERROR}: {one.seen[-1:]} and {two.seen[-1:]}"
        if len(mine.releases) != len(theirs.releases):
            return OTHER_RELEASES
        if self.limit is not None:
            spent, why = cost_of_releases(mine, theirs)
            self.total = self.total + spent if self.fast else spent
        else:
            pairs = zip(mine.releases, theirs.releases, strict=True)
            why = "" if all(a.has_noise_of(b) for a, b in pairs) else OTHER_RELEASES
        if self.fast:  # noise that is used twice is looked for in all of it
            for transcript in (mine, theirs):
                transcript.releases.clear()
                transcript.starts.clear()
        if why or not look:
            return why
        seen = [side.attempt(partial(shown, side.bandit, self.slate)) for side in (one, two)]
        return difference(seen[0] or {}, seen[1] or {})

    # ------------------------------------------------------------------ what happens

    def _step(self, first: int, last: int, events: dict[int, list[Event]]) -> str:
        one, two = self.one, self.two
        if self.pick is not None and np.isnan(one.xs[first:last]).any():
            public = Public(one, two)
            chosen = self.pick(public, last - first)
            if public.differs:
                return public.differs
            open_rows = np.flatnonzero(np.isnan(one.xs[first:last]).any(axis=1))
            one.xs[first + open_rows] = chosen[open_rows]
            for row in first + open_rows:
                if np.isnan(two.xs[row]).any():
                    two.xs[row] = one.xs[row]
        number = 0
        for event in (each for row in range(first, last) for each in events.get(row, ())):
            if event.kind == "interrupt":
                number = event.number
            elif why := self._event(event):
                return why
        for side in (one, two):
            self._learn(side, first, last, number)
        return self._compare()

    def _learn(self, side: Side, first: int, last: int, number: int) -> None:
        """`update`, and once more for what an interrupt kept from being learned."""
        users = None if self.story.users is None else list(self.story.users[first:last])
        rounds = side.bandit.rounds

        def call() -> None:
            done = side.bandit.rounds - rounds if number else 0
            rows = slice(first + done, last)
            if last - first == 1:
                given: Any = {} if users is None else {"user": users[0]}
                if rows.start < last:
                    side.bandit.update(side.xs[first], float(side.rewards[first]), **given)
            else:
                given = {} if users is None else {"user": users[done:]}
                side.bandit.update(side.xs[rows], side.rewards[rows], **given)

        if side.attempt(call, number) is Interrupted:
            side.attempt(call)

    def _event(self, event: Event) -> str:
        one, two = self.one, self.two
        if event.kind == "look":
            return self._look()
        for side in (one, two):
            bandit, dim = side.bandit, side.bandit.dim
            user = {} if self.story.users is None else {"user": "somebody"}
            x = np.zeros(dim)
            x[0] = 1.0 if bandit.one_hot else 0.0
            if event.kind == "save":
                side.bandit = self.under_test.load(pack(bandit))
                side.bandit.source = side.watch
            elif event.kind == "nan":
                side.attempt(partial(bandit.update, x, math.nan, **user))
            elif event.kind == "long":
                v = np.full(dim, 2.5 * bandit.options.max_norm)
                side.attempt(partial(bandit.update, v, 0.0, **user))
            elif event.kind == "wide":
                side.attempt(partial(bandit.update, np.zeros(dim + 1), 0.0, **user))
            elif event.kind == "offer":
                rows = side.xs[event.at : event.at + 1]
                offered = np.ascontiguousarray(np.concatenate([self.slate[:3], rows]))
                side.attempt(partial(bandit.select, offered))
            else:
                raise ValueError(f"no event is called {event.kind!r}")
        return ""

    def _look(self) -> str:
        """One look into the memory of a pan-private bandit, which the neighbour is told from then
        on. Running sums are noisy; all else must be the same.
        """
        one, two = self.one.bandit, self.two.bandit
        if not one.options.pan_private:
            return ""
        mine, theirs, t = one.engine.fields(), two.engine.fields(), one.rounds
        scale = one.release.scale(max(t, 1))
        begun = 0 if one.options.horizon else 1 << max(t.bit_length() - 1, 0)
        index = t - begun + (begun > 0)
        # The node that was shown last was paid for then: what is in memory was under more noise.
        paid = (index & -index).bit_length() - 1
        for level, row in enumerate(_whole(mine) - _whole(theirs)):
            if level != paid:
                self.total += cost(one.noise, row.astype(np.float64) * STEP, scale)
        kept = {name: np.array(values) for name, values in mine.items()}
        for name, values in kept.items():
            if not name.startswith("sums_") and values.tobytes() != theirs[name].tobytes():
                return f"{MEMORY}: {name}"
        two.engine.load_fields(kept)
        return ""

    def _log(self) -> str:
        """Start from a log, where the story does."""
        story = self.story
        if not story.logged:
            return ""
        from dpbandit.auditor.warm import learn

        names = story.users or tuple(f"u{row}" for row in range(len(story.xs)))
        for side in (self.one, self.two):
            n = story.logged
            side.attempt(
                partial(learn, side.bandit, side.xs[:n], side.rewards[:n], list(names[:n]))
            )
        return self._compare()


def apart(slate: Matrix, features: int) -> Matrix:
    """A slate whose arms have so many features each, and share none; 0: as it is."""
    if not features:
        return slate
    arms = min(slate.shape[1] // features, 8)
    own = np.zeros((arms, slate.shape[1]))
    for arm in range(arms):
        own[arm, arm * features : (arm + 1) * features] = 1.0
    return np.ascontiguousarray(slate[-arms:] * own)


def _whole(fields: dict[str, NDArray[Any]]) -> NDArray[np.object_]:
    """Running sums in whole numbers: 128 bits, in two words."""
    high, low = (fields[f"sums_{word}"].astype(object) for word in ("high", "low"))
    found: NDArray[np.object_] = high * 2**64 + low % 2**64
    return found
