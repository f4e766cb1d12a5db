"""`fuzz`: draw bandits and their histories at random, and compute the cost of each story.

Where `verify` tries one bandit hard, this tries a little of everything: all options of `dpb.make`,
contexts chosen from the releases, interrupts, saves, logs, users. A story that exceeds its claim is
shrunk to a script of a few lines.
"""

from __future__ import annotations

import math
import multiprocessing
import queue
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from dpbandit.algorithms import registry
from dpbandit.auditor.draw import names_of_proven, stories
from dpbandit.auditor.shrink import SECONDS, script, shrink
from dpbandit.auditor.stories import UnderTest, Verdict, judge
from dpbandit.errors import OptionError
from dpbandit.options import whole

CASES = 1_000
# Cases that one process takes at a time.
LOT = 32
# How often to redraw a bandit that cannot be made.
TRIES = 100

Progress = Callable[[str, float, float], None]


@dataclass(frozen=True)
class Finding:
    """A story that breaks a claim, or ends in an error not raised on purpose."""

    case: int
    name: str
    ratio: float  # infinite where neighbours are told apart for sure; 0 for an error
    words: str
    script: str = ""

    def __str__(self) -> str:
        return f"case {self.case}, {self.name}: {self.words}"


class Tried(NamedTuple):
    """The outcome of one case."""

    case: int
    name: str
    ratio: float
    finding: Finding | None
    parts: tuple[str, ...] = ()


@dataclass
class Fuzzing:
    """The result of `fuzz`.

    Attributes
    ----------
    seed, cases : int
        Seed of the stories, and the number tried.
    seconds : float
        Time taken.
    highest : dict
        Algorithm → the highest ratio of cost to claim, over its stories that hold.
    counts : dict
        Algorithm → number of stories.
    parts : dict
        Ingredient of stories → number of stories, and their highest ratio of cost to claim.
    findings : list of Finding
        Stories that break their claim.
    errors : list of Finding
        Stories that ended in an error not raised on purpose.
    complete : bool
        False after Ctrl-C, or if time ran out before all cases.
    """

    seed: int
    cases: int = 0
    seconds: float = 0.0
    highest: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    parts: dict[str, tuple[int, float]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    errors: list[Finding] = field(default_factory=list)
    complete: bool = True
    name: str = "claims"

    @property
    def holds(self) -> bool:
        """Whether no story broke its claim."""
        return not self.findings

    def add(self, tried: Tried) -> None:
        """Add a case."""
        self.cases += 1
        self.counts[tried.name] = self.counts.get(tried.name, 0) + 1
        held = 0.0 if tried.finding else tried.ratio
        for part in tried.parts:
            count, highest = self.parts.get(part, (0, 0.0))
            self.parts[part] = count + 1, max(highest, held)
        if tried.finding is None:
            self.highest[tried.name] = max(self.highest.get(tried.name, 0.0), tried.ratio)
        else:
            (self.findings if tried.finding.ratio else self.errors).append(tried.finding)

    def __str__(self) -> str:
        verdict = "NO CLAIM WAS BROKEN" if self.holds else "A CLAIM DOES NOT HOLD"
        rate = self.cases / max(self.seconds, 1e-9)
        lines = [
            f"{verdict}: {len(self.findings)} of {self.cases:,} stories cost more than claimed "
            f"[seed {self.seed}, {self.seconds:.0f} s, {rate:.0f} a second]",
            "a story is a bandit, its stream, and a neighbour that sees the same noisy values. Each "
            "line: how many stories, and their highest exact cost over all releases, divided by the "
            "claim (1: fully used)",
        ]
        for name, count in sorted(self.counts.items()):
            lines.append(f"  {name:<34} {count:>9,} {self.highest.get(name, 0.0):>14.10f}")
        lines.append("what was in the stories")
        for part, (count, highest) in sorted(self.parts.items()):
            lines.append(f"  {part:<34} {count:>9,} {highest:>14.10f}")
        lines += [f"  FOUND {finding}" for finding in self.findings]
        lines += [f"  ERROR {finding}" for finding in self.errors]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""

        def one(finding: Finding) -> dict[str, Any]:
            return finding.__dict__ | {
                "ratio": finding.ratio if math.isfinite(finding.ratio) else None
            }

        return {
            **{name: getattr(self, name) for name in ("seed", "cases", "seconds", "complete")},
            "holds": self.holds,
            "counts": self.counts,
            "highest": self.highest,
            "parts": self.parts,
            "findings": [one(finding) for finding in self.findings],
            "errors": [one(finding) for finding in self.errors],
        }


def fuzz(
    names: Sequence[str] | None = None,
    *,
    seed: int = 0,
    cases: int | None = None,
    minutes: float | None = None,
    case: int | None = None,
    workers: int = 1,
    stop: int | None = None,
    shrinking: float = SECONDS,
    under_test: UnderTest | None = None,
    progress: Progress | None = None,
) -> Fuzzing:
    """Draw stories at random, compute the exact cost of each, and compare it with its claim.

    A story combines options of `dpb.make`, a stream whose contexts may be chosen from the releases,
    batches, Ctrl-C followed by the same call, saving and loading, a log to start from, and users
    within and beyond their cap. It runs on two neighbours, the second with the first one's noisy
    values. Everything public about the two is compared after every step.

    Parameters
    ----------
    names : sequence of str, optional
        Algorithms; default all built-in ones with a proven claim. Your own algorithm is judged by
        the claim of its bandit.
    seed : int
        Seed of all stories: the same seed and case number give the same story.
    cases : int, optional
        Number of stories; 1,000 if neither this nor `minutes` is given.
    minutes : float, optional
        Stop after this time.
    case : int, optional
        Try only this case.
    workers : int
        Number of processes.
    stop : int, optional
        Stop after this many findings.
    shrinking : float
        Seconds to spend on shortening a finding.
    under_test : UnderTest, optional
        The source of bandits, instead of `dpb.make` and `dpb.load`.
    progress : callable, optional
        Called with the current step, the amount done, and the total.

    Returns
    -------
    Fuzzing
        Counts, the highest costs, and every finding with a script. After Ctrl-C, those so far.

    Raises
    ------
    OptionError
        If a number is wrong, or an algorithm is unknown or claims nothing.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> result = dpb.fuzz(["tree-gauss", "dgs"], seed=1, cases=20)
    >>> result.holds, result.cases
    (True, 20)
    """
    seed, workers = whole("seed", seed, least=0), whole("workers", workers, least=1)
    if cases is None:
        cases = CASES if minutes is None else 2**62
    cases = whole("cases", cases, least=1)
    if minutes is not None and not minutes > 0:
        raise OptionError(f"minutes must be a number above 0, not {minutes!r}")
    chosen = list(names_of_proven() if names is None else names)
    if not chosen:
        raise OptionError("names is empty: omit it for all proven algorithms")
    for name in chosen:
        registry.find(name)
    numbers = range(cases) if case is None else range(whole("case", case, least=0), case + 1)
    job = Job(chosen, seed, under_test, shrinking)
    result, began = Fuzzing(seed), time.monotonic()
    end = math.inf if minutes is None else began + 60 * minutes
    result.complete = False
    with suppress(KeyboardInterrupt), closing(_all(job, numbers, workers)) as tried:
        for one in tried:
            result.add(one)
            result.seconds = time.monotonic() - began
            if progress is not None:
                _say(progress, result, numbers, minutes)
            enough = stop is not None and len(result.findings) >= stop
            if enough or result.seconds > end - began:
                break
        result.complete = result.cases == len(numbers) or minutes is not None or stop is not None
    result.seconds = time.monotonic() - began
    for found in (result.findings, result.errors):
        found.sort(key=lambda finding: finding.case)
    return result


def _say(progress: Progress, result: Fuzzing, numbers: range, minutes: float | None) -> None:
    words = f"{result.cases:,} stories, {len(result.findings)} found"
    if minutes is not None:
        progress(words, min(result.seconds, 60 * minutes), 60 * minutes)
    else:
        progress(words, result.cases, len(numbers))


class Job(NamedTuple):
    """The settings shared by all cases."""

    names: list[str]
    seed: int
    under_test: UnderTest | None
    shrinking: float

    def tell(self, number: int) -> Tried:
        """Run the story of this number; shrink it if it breaks a claim."""
        for tries, (story, pick) in enumerate(stories(self.seed, number, self.names)):
            verdict = judge(story, self.under_test, pick)
            if not verdict.refused:
                found, parts = self._found(number, verdict), tuple(story.parts())
                return Tried(number, story.name, verdict.ratio, found, parts)
            if tries == TRIES:
                raise OptionError(f"none of {TRIES} bandits can be judged: {verdict.refused}")
        raise AssertionError("stories end nowhere")

    def _by(self, number: int) -> str:
        return f"dpbandit fuzz --seed {self.seed} --case {number} {' '.join(self.names)}"

    def _found(self, number: int, verdict: Verdict) -> Finding | None:
        story, words = verdict.story, str(verdict)
        if story is None:
            raise AssertionError("a verdict without a story")
        if verdict.holds:
            if not verdict.fault:
                return None
            text = script(story, verdict, self._by(number))
            return Finding(number, story.name, 0.0, verdict.fault, text)
        story, shorter = shrink(story, self.under_test, self.shrinking)
        verdict = verdict if shorter.holds else shorter
        return Finding(
            number, story.name, verdict.ratio, words, script(story, verdict, self._by(number))
        )


# In a process of its own: its job.
_job: Job | None = None


def _begin(job: Job, known: dict[str, registry.Algorithm]) -> None:
    global _job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    registry.know(known)
    _job = job


def _lot(numbers: range) -> list[Tried]:
    if _job is None:
        raise AssertionError("no job")
    return [_job.tell(number) for number in numbers]


def _all(job: Job, numbers: range, workers: int) -> Generator[Tried, None, None]:
    """Every case, in this process or in others."""
    if workers == 1:
        for number in numbers:
            yield job.tell(number)
        return
    firsts = range(numbers.start, numbers.stop, LOT)
    lots = (range(first, min(first + LOT, numbers.stop)) for first in firsts)
    # A forked process knows the algorithms registered here, and `under_test`.
    way = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    known = {} if way == "fork" else registry.algorithms()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with multiprocessing.get_context(way).Pool(workers, _begin, (job, known)) as pool:

        def begin(lot: range) -> None:
            pool.apply_async(_lot, (lot,), callback=done.put, error_callback=done.put)

        waiting = 0
        for lot in islice(lots, 2 * workers):
            begin(lot)
            waiting += 1
        while waiting:
            found = done.get()
            waiting -= 1
            if isinstance(found, BaseException):
                raise found
            for lot in islice(lots, 1):
                begin(lot)
                waiting += 1
            yield from found
