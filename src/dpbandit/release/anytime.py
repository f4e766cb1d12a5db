"""The anytime release: a sum shown again and again, for ever, at the cost of one budget.

Keep S, the sum of the items so far, each of norm at most 1 when it enters. A release shows qS with
noise and then shrinks S by ρ, where q² + ρ² = 1: an item that has weight ω left spends q²ω² and
keeps ρ²ω². Over any number of releases, at any times and with any shares, it spends no more than
the 1 it came with. That is the whole proof (docs/privacy.md), and it is why there is no horizon and
no log T.

The shares follow a schedule: R(j) = (1 + j/knee)⁻⁴ is what an item that entered at the start has
left after round j, and releases come at times that grow by `ratio`. Long before the knee every
release shows little of each item; long after it, precision grows like t². After `life` rounds the
schedule goes on as it was then: items spend what they have in about a quarter of that time, so that
releases speak of today. And every ten lives all that is left is shown: no item is in more releases
than one generation has, so that rounding is bounded for ever."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.errors import OptionError
from dpbandit.privacy.accounting import mu_of
from dpbandit.privacy.grid import STEP
from dpbandit.privacy.noise import RESPONSE, Noise
from dpbandit.release.base import MAX_LEVELS, Charge, Clock, Release, Sums
from dpbandit.release.local import LocalPhase
from dpbandit.release.whole import Whole, WholeRows, share_of
from dpbandit.types import Vector

POWER = 4.0
# The ledger's group of answers; groups of sums count from 0, and a log's is below.
ANSWERS = 1
LIVES = 10  # that a generation has


def next_time(j: int, ratio: float, life: float = math.inf) -> int:
    """When the release after the one at round j is due.

    >>> next_time(10, 1.025), next_time(1000, 1.025), next_time(1000, 1.025, life=400)
    (11, 1025, 1010)
    """
    later = j + life * (ratio - 1.0) if j > life else j * ratio
    return max(min(math.ceil(later), 1 << MAX_LEVELS), j + 1)  # no clock goes further


def kept(j: int, later: int, knee: float, life: float = math.inf) -> float:
    """ρ, what a release at round j leaves of every item when the next one is due at `later`.

    >>> round(kept(100, 200, knee=100.0) ** 2, 6)  # ((1 + 1) / (1 + 2))⁴
    0.197531
    >>> kept(390, 400, knee=100.0, life=40), kept(400, 410, knee=100.0, life=40) > 0.8
    (0.0, True)
    """
    generation = LIVES * life
    if math.floor(j / generation) != math.floor(later / generation):
        return 0.0
    at = knee + min(j, life)
    share = at / (at + (later - j))
    return share * share


def shown(rho: float) -> float:
    """q: the share that a release shows of what it does not keep, √(1 − ρ²).

    >>> shown(0.6)
    0.8
    """
    return math.sqrt((1.0 - rho) * (1.0 + rho))


def times(first: int, ratio: float, horizon: int, life: float = math.inf) -> NDArray[np.int64]:
    """All release times up to a horizon.

    >>> times(4, 1.5, 20).tolist()
    [4, 6, 9, 14]
    """
    found = []
    j = first
    while j <= horizon:
        found.append(j)
        j = next_time(j, ratio, life)
    return np.array(found, dtype=np.int64)


def most_releases(ratio: float) -> int:
    """More than any item can be in, whatever its life: one a round while ratio·j < j + 1, then
    geometric, to the end of 2⁶² rounds; and as many as a generation has after that.

    >>> len(times(1, 1.025, 2**62)) <= most_releases(1.025) < 2200
    True
    >>> len(times(1, 1.025, 100_000, life=10_000)) < 800
    True
    """
    growing = 1 / (ratio - 1) + MAX_LEVELS * math.log(2) / math.log(ratio)
    return math.ceil(growing + LIVES / (ratio - 1)) + 3


def rounding(ratio: float, dim: int) -> float:
    """How much longer whole numbers can make one item's shift, over all releases together.

    Each release rounds what it shows and what it keeps, so neighbours can end up one step further
    apart in every coordinate of either. A step lost in what is kept is an item of its own from then
    on, which spends no more than its length: K releases add K·√d steps. Steps in what is shown add
    √(K·d), as they are in different releases. ρ and q are floats: q² + ρ² is above 1 by at most
    2⁻⁵⁰ each time.

    Raises
    ------
    OptionError
        For a ratio so near 1 that this is no longer small.
    """
    releases = most_releases(ratio)
    slack = (releases + math.sqrt(releases)) * math.sqrt(dim) * STEP + releases * 2.0**-50
    if slack > 1e-3:
        raise OptionError(
            f"ratio = {ratio!r} is too near 1: rounding in so many releases would eat the noise's "
            "margin"
        )
    return slack


class AnytimeSums(Sums):
    """One sum for ever. `due` is the round of the next release."""

    def __init__(
        self, dim: int, *, knee: float, ratio: float, first: int, life: float = math.inf
    ) -> None:
        self.knee, self.ratio, self.life = knee, ratio, life
        self.sums = WholeRows(1, dim)
        self.due = np.array([first], dtype=np.int64)

    def add(self, t: int, item: Any) -> Whole | None:
        self.sums[0] = self.sums[0] + item
        return None if t < self.due[0] else self.show(t)

    def show(self, t: int) -> Whole:
        """q of the sum, clean; what stays is ρ of it."""
        later = next_time(t, self.ratio, self.life)
        rho, total = kept(t, later, self.knee, self.life), self.sums[0]
        self.sums[0] = share_of(total, rho)
        self.due[0] = later
        return share_of(total, shown(rho))

    def publish(self, t: int, noisy: Vector) -> Vector:
        return noisy  # what it says of the sum is the filter's to combine

    def fields(self) -> dict[str, NDArray[Any]]:
        return {**self.sums.fields("sums"), "due": self.due}


@dataclass(frozen=True, eq=False)
class Anytime(Release):
    """A sum of instruments times residuals, released for ever. `dim` counts an item's numbers."""

    name = "anytime"
    in_core = True
    log_field = "information_root"  # by way of the filter, which is shown all and keeps nothing

    dim: int
    knee: float
    ratio: float
    first: int
    life: float = field(default=math.inf, kw_only=True)
    local: LocalPhase = field(default_factory=LocalPhase, kw_only=True)

    @staticmethod
    def draws(dim: int, horizon: int | None, ratio: float = 1.025) -> int:
        return dim * (most_releases(ratio) + 1)  # an item is in every release of its generation

    @property
    def scale(self) -> float:
        """Of every release; 0 where nothing is claimed."""
        if math.isinf(self.budget):
            return 0.0
        one = self.sensitivity + rounding(self.ratio, self.dim)
        return self.noise.multiplier(self.budget, 1) * one

    def charge(self, engine: Clock, t: int) -> Charge:
        """What the rewards that were in the first release pay: they have paid most.

        Answers are a group of their own: a reward that is answered is in no other release.
        """
        whole = self.whole_share
        if self.local.rounds:
            before = int(engine.fields()["central_from"][0])
            if t <= before:
                return Charge(whole, "answers", group=ANSWERS, shift=1.0)  # all of ε
            t -= before
        left = self._left(t)
        q = shown(kept(t, next_time(t, self.ratio, self.life), self.knee, self.life))
        shift = q * self.noise.shift_of(self.scale, whole) + math.sqrt(self.dim) * STEP
        return Charge(whole * left * q * q, "releases", adds=True, shift=shift)

    def _left(self, t: int) -> float:
        """The square that a reward of the first release has left when that of round t comes."""
        if math.isinf(self.life):
            return float(((self.knee + self.first) / (self.knee + t)) ** POWER)
        due, left = self._course
        # Between two releases, what there was at the first of them: never too little.
        return left[max(bisect_right(due, t) - 1, 0)]

    @cached_property
    def _course(self) -> tuple[list[int], list[float]]:
        """The same for all releases of its generation: steps are whole, and not all alike."""
        due, left = [self.first], [1.0]
        while left[-1] > 0.0 and due[-1] < 1 << MAX_LEVELS:
            later = next_time(due[-1], self.ratio, self.life)
            left.append(left[-1] * kept(due[-1], later, self.knee, self.life) ** 2)
            due.append(later)
        return due, left

    def noise_now(self, engine: Clock) -> Noise:
        if self.local.rounds and engine.rounds <= int(engine.fields()["central_from"][0]):
            return RESPONSE
        return self.noise

    def answered(self) -> int:
        return self.local.rounds if self.local.anyhow else 0

    def counted(self, noise: Noise, cost: float) -> float:
        """Pure ε as the μ² that has this ε at the claim's δ: of one reward, one of the two alone is
        above 0, so that their sum is the greater of them."""
        if noise is not RESPONSE:
            return cost
        if cost == 0.0 or math.isinf(cost):
            return cost
        return mu_of(epsilon=cost, delta=self.local.delta) ** 2

    def room(self, engine: Clock) -> None:
        """There is always room."""

    def squares(self, t: ArrayLike) -> Vector:
        """Of the noise in one release: releases are not added up here."""
        return np.full(np.shape(t), self.scale**2)

    def core(self) -> dict[str, Any]:
        return {"scale": self.scale, "knee": self.knee, "ratio": self.ratio, "first": self.first}
