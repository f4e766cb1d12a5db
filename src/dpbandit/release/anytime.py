"""The anytime release: a sum shown again and again, for ever, at the cost of one budget.

Keep S, the sum of the items so far, each of norm at most 1 when it enters. A release shows qS with
noise and then shrinks S by ρ, where q² + ρ² = 1: an item that has weight ω left spends q²ω² and
keeps ρ²ω². Over any number of releases, at any times and with any shares, it spends no more than
the 1 it came with. That is the whole proof (docs/privacy.md), and it is why there is no horizon and
no log T.

The shares follow a schedule: R(j) = (1 + j/knee)⁻⁴ is what an item that entered at the start has
left after round j, and releases come at times that grow by `ratio`. Long before the knee every
release shows little of each item; long after it, precision grows like t²."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.errors import OptionError
from dpbandit.privacy.grid import STEP
from dpbandit.release.base import MAX_LEVELS, Charge, Clock, Release, Sums
from dpbandit.release.whole import Whole, WholeRows, share_of
from dpbandit.types import Vector

POWER = 4.0


def next_time(j: int, ratio: float) -> int:
    """When the release after the one at round j is due.

    >>> next_time(10, 1.025), next_time(1000, 1.025)
    (11, 1025)
    """
    return max(min(math.ceil(j * ratio), 1 << MAX_LEVELS), j + 1)  # no clock goes further


def kept(j: int, later: int, knee: float) -> float:
    """ρ, what a release at round j leaves of every item when the next one is due at `later`.

    >>> round(kept(100, 200, knee=100.0) ** 2, 6)  # ((1 + 1) / (1 + 2))⁴
    0.197531
    """
    share = (knee + j) / (knee + later)
    return share * share


def shown(rho: float) -> float:
    """q: the share that a release shows of what it does not keep, √(1 − ρ²).

    >>> shown(0.6)
    0.8
    """
    return math.sqrt((1.0 - rho) * (1.0 + rho))


def times(first: int, ratio: float, horizon: int) -> NDArray[np.int64]:
    """All release times up to a horizon.

    >>> times(4, 1.5, 20).tolist()
    [4, 6, 9, 14]
    """
    found = []
    j = first
    while j <= horizon:
        found.append(j)
        j = next_time(j, ratio)
    return np.array(found, dtype=np.int64)


def most_releases(ratio: float) -> int:
    """More than there can be in 2⁶² rounds: one a round while ratio·j < j + 1, then geometric.

    >>> len(times(1, 1.025, 2**62)) <= most_releases(1.025) < 1800
    True
    """
    return math.ceil(1 / (ratio - 1) + MAX_LEVELS * math.log(2) / math.log(ratio)) + 2


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

    def __init__(self, dim: int, *, knee: float, ratio: float, first: int) -> None:
        self.knee, self.ratio = knee, ratio
        self.sums = WholeRows(1, dim)
        self.due = np.array([first], dtype=np.int64)

    def add(self, t: int, item: Any) -> Whole | None:
        self.sums[0] = self.sums[0] + item
        return None if t < self.due[0] else self.show(t)

    def show(self, t: int) -> Whole:
        """q of the sum, clean; what stays is ρ of it."""
        later = next_time(t, self.ratio)
        rho, total = kept(t, later, self.knee), self.sums[0]
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

    @staticmethod
    def draws(dim: int, horizon: int | None, ratio: float = 1.025) -> int:
        return dim * (most_releases(ratio) + 1)  # an item is in every release after it

    @property
    def scale(self) -> float:
        """Of every release; 0 where nothing is claimed."""
        if math.isinf(self.budget):
            return 0.0
        one = self.sensitivity + rounding(self.ratio, self.dim)
        return self.noise.multiplier(self.budget, 1) * one

    def charge(self, engine: Clock, t: int) -> Charge:
        """What the rewards that were in the first release pay: they have paid most."""
        whole = self.whole_share
        left = ((self.knee + self.first) / (self.knee + t)) ** POWER
        q = shown(kept(t, next_time(t, self.ratio), self.knee))
        shift = q * self.noise.shift_of(self.scale, whole) + math.sqrt(self.dim) * STEP
        return Charge(whole * left * q * q, "releases", adds=True, shift=shift)

    def room(self, engine: Clock) -> None:
        """There is always room."""

    def squares(self, t: ArrayLike) -> Vector:
        """Of the noise in one release: releases are not added up here."""
        return np.full(np.shape(t), self.scale**2)

    def core(self) -> dict[str, Any]:
        return {"scale": self.scale, "knee": self.knee, "ratio": self.ratio, "first": self.first}
