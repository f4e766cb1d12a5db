"""Two anytime sums side by side: moments, and the Gram matrix of directions that rides along free.

An item is (a, g): a = u·e/2 with ‖u‖ = 1 and |e| ≤ 1, and g = η·uuᵀ, packed. Whoever is replaced
moves a by ‖ue − u′e′‖/2 and g by η·‖uuᵀ − u′u′ᵀ‖. With t = |cos∠(u, u′)| the squares are at most
(1 + t)/2 and 2η²(1 − t²): where u moves far, a cannot (docs/privacy.md). Both sums are shown in one
release, each with its own q and ρ, q² + ρ² = 1. At some releases the Gram matrix is shown whole,
and begins anew under another whitener.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.privacy.grid import STEP
from dpbandit.release.anytime import Anytime, kept, next_time, shown
from dpbandit.release.base import Charge, Clock, Sums
from dpbandit.release.whole import Whole, WholeRows, share_of
from dpbandit.types import Vector


def packed_size(n: int) -> int:
    """Numbers in a packed symmetric matrix.

    >>> packed_size(3)
    6
    """
    return n * (n + 1) // 2


def largest_move(eta2: float, moments: float = 1.0, directions: float = 1.0) -> float:
    """The largest (1 + t)/2·moments + 2η²(1 − t²)·directions over t in [0, 1].

    It is the square of how far (a, g) can move, with shares of either that were shown.

    >>> largest_move(1 / 8), largest_move(1 / 4)
    (1.0, 1.125)
    """
    most = 2.0 * eta2 * directions
    if most == 0.0:
        return moments
    t = min(moments / (4.0 * most), 1.0)
    return 0.5 * (1.0 + t) * moments + most * (1.0 - t * t)


def most_move(eta2: float, *others: float, persons: bool) -> float:
    """s²: the square of how far a unit's items can move if they are not divided by s.

    A person's residuals move a by 1 in all, wherever and whenever, and of one visit g moves by √2·η.
    The two need not be of one visit or one whitener, so none may have a smaller s than another.

    >>> most_move(1 / 8, 1 / 4, persons=False), most_move(1 / 8, 1 / 4, persons=True)
    (1.0, 1.5)
    """
    return 1.0 + 2.0 * max(eta2, *others) if persons else largest_move(eta2)


class PairSums(Sums):
    """Both sums. `due` is the round of the next release, `change_due` that of the next one that
    shows the Gram matrix whole, `version` how often it was."""

    def __init__(
        self,
        n: int,
        *,
        knee: float,
        ratio: float,
        first: int,
        change: int,
        growth: float,
        versions: int,
    ) -> None:
        self.n, self.knee, self.ratio, self.growth, self.versions = n, knee, ratio, growth, versions
        self.moments = WholeRows(1, n)
        self.directions = WholeRows(1, packed_size(n))
        self.due = np.array([first], dtype=np.int64)
        self.change_due = np.array([change], dtype=np.int64)
        self.version = np.array([0], dtype=np.int64)

    def add(self, t: int, item: Whole) -> Whole | None:
        self.moments[0] = self.moments[0] + item[: self.n]
        self.directions[0] = self.directions[0] + item[self.n :]
        return None if t < self.due[0] else self.show(t)

    def shows_whole(self, t: int) -> bool:
        """Whether the release of round t shows the Gram matrix whole."""
        return bool(t >= self.change_due[0] and self.version[0] + 1 < self.versions)

    def shares(self, t: int) -> tuple[float, float]:
        """ρ of the moments and of the Gram matrix, for a release in round t."""
        rho = kept(t, next_time(t, self.ratio), self.knee)
        return rho, 0.0 if self.shows_whole(t) else rho

    def show(self, t: int) -> Whole:
        """q of either sum, clean; what stays is ρ of it."""
        found = []
        for sums, rho in zip((self.moments, self.directions), self.shares(t), strict=True):
            found.append(share_of(sums[0], shown(rho)))
            sums[0] = share_of(sums[0], rho)
        self.due[0] = next_time(t, self.ratio)
        return np.concatenate(found)

    def publish(self, t: int, noisy: Vector) -> Vector:
        return noisy  # what it says of the sums is the filter's to combine

    def turn(self, t: int) -> None:
        """The Gram matrix begins anew."""
        self.version[0] += 1
        self.change_due[0] = next_change(t, int(self.change_due[0]), self.growth)

    def fields(self) -> dict[str, NDArray[Any]]:
        return {
            **self.moments.fields("moments"),
            **self.directions.fields("directions"),
            "due": self.due,
            "change_due": self.change_due,
            "version": self.version,
        }


def next_change(t: int, due: int, growth: float) -> int:
    """When the Gram matrix is shown whole next, if it was in round t and was due in `due`."""
    return math.ceil(max(due, t) * growth)


@dataclass(frozen=True, eq=False)
class Pair(Anytime):
    """Moments and directions, released for ever. `dim` counts an item's numbers, `n` its
    direction's."""

    name = "pair"
    in_core = True
    log_field = "before"  # by way of the learner, which is shown all and keeps nothing

    n: int
    change: int
    growth: float
    versions: int
    first_eta2: float
    later_eta2: float
    persons: bool = False  # all of a person's rounds are the unit, of which g has the first

    @staticmethod
    def draws(dim: int, horizon: int | None, ratio: float = 1.025) -> int:
        return Anytime.draws(dim, horizon, ratio)

    @cached_property
    def shown_whole(self) -> tuple[int, ...]:
        """The rounds whose releases show the Gram matrix whole: public, and known from the start."""
        found: list[int] = []
        t, due = self.first, self.change
        while len(found) + 1 < self.versions:
            if t >= due:
                found.append(t)
                due = next_change(t, due, self.growth)
            t = next_time(t, self.ratio)
        return tuple(found)

    @cached_property
    def after_log(self) -> Pair:
        """The same after a log, which has used up the first whitener."""
        change = next_change(0, self.change, self.growth)
        return replace(
            self, first_eta2=self.later_eta2, change=change, versions=max(self.versions - 1, 1)
        )

    def charge(self, engine: Clock, t: int) -> Charge:
        """What the people who were in the first release pay: they have paid most."""
        if self.versions > 1 and engine.fields()["before"][0] > 0:
            return self.after_log._charge(t)
        return self._charge(t)

    def _charge(self, t: int) -> Charge:
        whole = self.whole_share
        later, begun = next_time(t, self.ratio), self.shown_whole[:1] or (math.inf,)
        share = self._paid(later, begun[0] <= t) - self._paid(t, begun[0] < t)
        q = 1.0 if t in self.shown_whole else shown(kept(t, later, self.knee))
        shift = q * self.noise.shift_of(self.scale, whole) + math.sqrt(self.dim) * STEP
        return Charge(whole * max(share, 0.0), "releases", adds=True, shift=shift)

    def _paid(self, until: int, turned: bool) -> float:
        """The share of the budget that they have paid by the release before round `until`."""
        gone = 1.0 - ((self.knee + self.first) / (self.knee + until)) ** 4
        if self.persons:
            directions = 2.0 * max(self.first_eta2, self.later_eta2)
            return (gone + directions * (1.0 if turned else gone)) / (1.0 + directions)
        paid = largest_move(self.first_eta2, gone, 1.0 if turned else gone)
        return paid / largest_move(self.first_eta2)

    def core(self) -> dict[str, Any]:
        return {
            **super().core(),
            "change": self.change,
            "growth": self.growth,
            "versions": self.versions,
            "first_eta2": self.first_eta2,
            "later_eta2": self.later_eta2,
            "persons": self.persons,
        }
