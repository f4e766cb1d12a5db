"""How often people come, and how much a cap therefore leaves out. Visits are public, clicks are
not.

A unit of m rewards drops a user's later visits. A unit of C drops a person's clicks beyond C: of N
clicks min(N, C) are learned, and N is binomial, as if everybody clicked alike. Visits are spread
evenly over all rounds, so caps bind more late than early.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpbandit.errors import OptionError, ShapeError
from dpbandit.privacy.unit import FITS, ONE_REWARD, Person, Spread, Unit, User
from dpbandit.types import Matrix, Vector

CAPS = (1, 2, 5, 10)  # that an answer shows
MOST_COUNTS = 512  # beyond, neighbours are taken together
GRID: Vector = np.linspace(0.0, 1.0, 65)  # parts of all rounds
PLAYED_USERS, PLAYED_VISITS = 32, 128  # to find out which visits of a spread user are learned
TAIL = 1e-9  # people who come more often than all but this share are left out of a geometric law


@dataclass(frozen=True)
class Learned:
    """The share of visits learned from, and of the clicks in those.

    `course` has the share below 1 at the times GRID, from the first round to the last.
    """

    visits: float = 1.0
    clicks: float = 1.0
    course: Vector = field(default_factory=lambda: np.ones(len(GRID)))

    def to_dict(self) -> dict[str, float]:
        """For JSON."""
        return {"visits": self.visits, "clicks": self.clicks}

    def left_out(self, rounds: int, rate: float | None) -> str:
        """What nobody learns from, in words and as a count; `rate` is that of the best arms.

        >>> Learned(clicks=0.25).left_out(10_000, 0.02), Learned(visits=0.5).left_out(10_000, None)
        ('150 of some 200 clicks', '5,000 of 10,000 rounds')
        """
        if self.visits < 1:
            return f"{(1 - self.visits) * rounds:,.0f} of {rounds:,} rounds"
        if self.clicks < 1 and rate is not None:
            return f"{(1 - self.clicks) * rate * rounds:,.0f} of some {rate * rounds:,.0f} clicks"
        return "nothing"

    def clicks_at(self, part: Vector) -> Vector:
        """The share of clicks that counts, after this part of the rounds."""
        return np.asarray(np.interp(part, GRID, self.course))

    def rounds_learned(self, part: Vector) -> Vector:
        """How much of all rounds was learned from, after this part of them."""
        if self.visits == 1:
            return part
        steps = np.diff(GRID) * (self.course[1:] + self.course[:-1]) / 2
        return np.asarray(np.interp(part, GRID, np.concatenate([[0.0], np.cumsum(steps)])))

    def rounds_over(self, learned: Vector) -> Vector:
        """The inverse."""
        return np.asarray(np.interp(learned, self.rounds_learned(GRID), GRID))


EVERYTHING = Learned()


@dataclass(frozen=True)
class Visits:
    """The distribution of one person's visits: `counts`, and the share of people with each."""

    counts: Vector
    shares: Vector
    words: str

    @property
    def mean(self) -> float:
        """Visits of one person."""
        return float(self.counts @ self.shares)

    def up_to(self, most: int) -> float:
        """The share of visits that are among the first `most` of their person.

        >>> visits_of([1, 5]).up_to(2)
        0.5
        """
        return float(np.minimum(self.counts, most) @ self.shares) / self.mean

    def clicks_up_to(self, most: float, rate: float) -> float:
        """The share of clicks left by a cap of `most` clicks per person, at this click rate.

        >>> round(visits_of([2]).clicks_up_to(1, 0.5), 4)  # of 0, 1 or 2 clicks: 3/4 of one
        0.75
        """
        return mean_of(self.course(most, rate))

    def course(self, most: float, rate: float) -> Vector:
        """The probability that a click counts at the times GRID: fewer than `most` came before it.

        Each other visit of its person came before with probability τ, and was clicked with
        probability `rate`. A part of a click counts in part. With rate 1: the same for visits.
        """
        whole = math.floor(most)
        counted = self._at_most(whole - 1, rate) if whole else np.zeros(len(GRID))
        if most == whole:
            return counted
        return counted + (most - whole) * (self._at_most(whole, rate) - counted)

    def _at_most(self, k: int, rate: float) -> Vector:
        """The probability that no more than k of its person's clicks came before a visit."""
        from scipy.special import bdtr  # P(Bin(n, p) ≤ k)

        weights = self.counts * self.shares / self.mean  # who a visit's person is
        before, others = np.minimum(GRID * rate, 1.0)[:, None], self.counts.astype(np.int64) - 1
        return np.asarray(bdtr(np.minimum(float(k), others), others, before) @ weights)

    def thinned(self, chances: Vector) -> Vector:
        """The probability that a visit is learned from at the times GRID, if that of a person's j-th
        visit is `chances[j - 1]`, and later ones have the last of these chances.

        >>> two = visits_of([2])
        >>> two.thinned(np.array([1.0, 0.0])).tolist() == two.course(1, 1.0).tolist()
        True
        """
        found = np.full(len(GRID), chances[-1])
        for earlier, step in enumerate(chances[:-1] - chances[1:]):
            found += step * self._at_most(earlier, 1.0)
        return found

    def learned(
        self, unit: Unit, width: float, rate: float | None, chances: Vector | None = None
    ) -> Learned:
        """The share that a unit's cap leaves. Without a click rate the sum of rewards is unknown.

        `chances` are those of a person's visits, first to last, where contexts decide."""
        match unit:
            case Spread() if chances is not None:
                course = self.thinned(chances)
                return Learned(visits=mean_of(course), course=course)
            case User():
                first = unit.cap or 1
                return Learned(visits=self.up_to(first), course=self.course(first, 1.0))
            case Person():
                if rate is None:
                    return EVERYTHING
                course = self.course(float(unit.option[1]) / width, rate)
                return Learned(clicks=mean_of(course), course=course)
            case Unit() if unit.option == ONE_REWARD.option:
                return EVERYTHING
            case other:
                raise TypeError(f"it is unknown how much a cap of {other.words!r} leaves out")


def chances_of(unit: Spread, instruments: Matrix, visits: int, seed: int) -> Vector:
    """How likely a user's first, second, … visit is learned from, if contexts point like these.

    >>> from dpbandit.privacy.unit import spread
    >>> chances_of(spread(2), np.eye(4)[:1], 6, 0).tolist()  # all alike: two of them
    [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """
    rng, learned = np.random.default_rng(seed), np.zeros(visits)
    square = float(unit.option[1]) ** 2 * (1 + FITS)
    for _ in range(PLAYED_USERS):
        gram, count = np.zeros((instruments.shape[1],) * 2), 0
        for visit, row in enumerate(rng.integers(len(instruments), size=visits)):
            more = gram + np.outer(instruments[row], instruments[row])
            if (count + 1) * float(np.linalg.eigvalsh(more)[-1]) <= square:
                gram, count = more, count + 1
                learned[visit] += 1
    return learned / PLAYED_USERS


def mean_of(course: Vector) -> float:
    """Over all rounds."""
    return float((np.diff(GRID) * (course[1:] + course[:-1]) / 2).sum())


def law_of(counts: Vector, shares: Vector, words: str) -> Visits:
    """With a bounded number of different counts: large ones that are close are merged."""
    if len(counts) > MOST_COUNTS:
        edges = np.unique(np.geomspace(1, len(counts), MOST_COUNTS).astype(int) - 1)
        together = np.add.reduceat(shares, edges)
        counts = np.round(np.add.reduceat(counts * shares, edges) / together)
        shares = together
    return Visits(counts, shares / shares.sum(), words)


def visits_of(given: Any) -> Visits:
    """From a number, the mean of a geometric distribution, or from the visits of a sample of
    people.

    >>> visits_of(20).words, visits_of([1, 1, 4]).mean
    ('20 a person on average, geometric', 2.0)
    """
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.array(math.nan)
    if numbers.ndim > 1:
        raise ShapeError(f"visits must be a number or a list of them, not {numbers.shape}")
    if numbers.size == 0 or not (np.isfinite(numbers) & (numbers >= 1)).all():
        raise OptionError(
            "visits must be how often one person comes, at least 1: the mean, or one number per "
            f"person of a sample, not {given!r}"
        )
    if numbers.ndim == 0:
        mean = float(numbers)
        last = 1 if mean == 1 else math.ceil(math.log(TAIL) / math.log1p(-1 / mean))
        counts = np.arange(1.0, min(last, 10**6) + 1)
        shares = (1 - 1 / mean) ** (counts - 1) / mean
        return law_of(counts, shares, f"{mean:g} a person on average, geometric")
    if (numbers != np.round(numbers)).any():
        raise OptionError("visits of a sample of people must be whole numbers")
    counts, people = np.unique(numbers, return_counts=True)
    words = f"{numbers.mean():.3g} a person on average, as {len(numbers):,} people came"
    return law_of(counts, people / people.sum(), words)
