"""What every release says of itself, and the state that its reference keeps.

A release is a plan for showing sums over time: what each showing costs, whether there is room for
the next, how good the sums are, and what an engine must know. Items are vectors of norm at most ½
that one reward can move by at most `sensitivity`; noise scales and errors are in the same units.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.errors import OptionError
from dpbandit.privacy.noise import Noise
from dpbandit.types import Vector

# A tree has no more levels, so no bandit learns more than 2⁶² − 1 rewards: the next is refused.
MAX_LEVELS = 62


class Clock(Protocol):
    """What a release may know of an engine: all of it public."""

    @property
    def rounds(self) -> int:
        """Rewards learned."""

    def fields(self) -> dict[str, NDArray[Any]]:
        """Everything that changes, by name."""


class Charge(NamedTuple):
    """What a release costs the reward that has paid most, and how to book it."""

    share: float  # in the ledger's currency
    what: str
    group: int = 0
    adds: bool = False  # the same rewards pay again with every release of this lane
    shift: float | None = None  # how far apart neighbours can be; None: what `share` implies


class Sums(ABC):
    """The state of one release, in plain NumPy: the specification."""

    @abstractmethod
    def add(self, t: int, item: Any) -> Any:
        """Take round t's item; the clean numbers to show, or None if nothing is due."""

    @abstractmethod
    def publish(self, t: int, noisy: Vector) -> Vector:
        """Take the same numbers with noise; the noisy sum of all rounds so far."""

    @abstractmethod
    def fields(self) -> dict[str, NDArray[Any]]:
        """Live views of everything that changes, by name."""


@dataclass(frozen=True, eq=False)
class Release(ABC):
    """How sums of private items are shown over time."""

    name: ClassVar[str]
    in_core: ClassVar[bool]  # whether the compiled core has it
    # The field of an engine that the noisy sum of a log goes into before round 1; "": none.
    log_field: ClassVar[str] = ""

    noise: Noise
    horizon: int | None
    sensitivity: float  # how far one reward can move an item, in the noise's norm
    budget: float  # what one reward may pay over all releases: μ, or ε

    def __init_subclass__(cls) -> None:
        """A class that leaves out one of the words above is refused where it is written.

        It says both itself: another release's would be of another release.
        """
        if ABC in cls.__bases__:
            return
        missing = [word for word in ("name", "in_core") if word not in vars(cls)]
        if missing:
            raise TypeError(f"release {cls.__name__} does not say its own {', '.join(missing)}")

    @staticmethod
    @abstractmethod
    def draws(dim: int, horizon: int | None) -> int:
        """How many noisy numbers one reward is in, over all releases: what `Noise.budget` asks.

        One release more than it makes, for the log that a bandit may be started from.
        """

    @abstractmethod
    def charge(self, engine: Clock, t: int) -> Charge:
        """What the release that is pending in round t costs. Public: no reward decides it."""

    @abstractmethod
    def room(self, engine: Clock) -> None:
        """Raises `BudgetError` if the coming round would be more than the noise was scaled for."""

    @abstractmethod
    def squares(self, t: ArrayLike) -> Vector:
        """Σ scale² over the noises in the sum shown at rounds t.

        `noise.tail(dim, zeta)·√squares` bounds each coordinate.
        """

    def noise_now(self, engine: Clock) -> Noise:
        """The noise of the release that is pending."""
        return self.noise

    def answered(self) -> int:
        """How many of the first rewards are answered by themselves where no slates were shown."""
        return 0

    def counted(self, noise: Noise, cost: float) -> float:
        """What a release with this noise costs, in the ledger's currency."""
        return cost

    def core(self) -> dict[str, Any]:
        """What an engine must know, by its names: here, of a release without levels."""
        return ridge_keys(
            release=self.name,
            levels=1,
            unknown_horizon=self.horizon is None,
            sensitivity=self.sensitivity,
            multipliers=self.multipliers,
        )

    @cached_property
    def multipliers(self) -> Vector:
        """Noise scale per unit of sensitivity when 1, 2, … levels share the budget; 0 is unused."""
        return self.noise.multipliers(self.budget, MAX_LEVELS)

    @property
    def whole_share(self) -> float:
        """What a release costs that has the whole budget to itself."""
        return self.noise.share(self.noise.multiplier(self.budget, 1))

    def no_log(self) -> str:
        """Why its bandit cannot start from a log; empty if it can."""
        return "" if self.log_field else "its release has no place for the sums of a log"

    def variance(self, t: ArrayLike, dim: int = 1) -> Vector:
        """The variance of each of `dim` coordinates of the sum shown at rounds t."""
        return self.squares(t) * self.noise.standard_deviation(dim) ** 2


@dataclass(frozen=True, eq=False)
class PythonRelease(Release, ABC):
    """A release that only Python has: the reference engine asks it, round by round.

    A class of it says `in_core = False`, its scale and its lanes; the price follows from those.
    """

    @abstractmethod
    def scale(self, t: int) -> float:
        """The noise scale of what is shown in round t. Public: no reward decides it."""

    @abstractmethod
    def sums(self, dim: int) -> Sums:
        """The reference: an empty state for items of so many numbers."""

    @abstractmethod
    def lane(self, t: int) -> str:
        """Which lane round t's release is in, in words: no reward is in two releases of a lane."""

    def shift(self, t: int) -> float:
        """How far one reward can move what is shown in round t: as far as its item, if not less."""
        return self.sensitivity

    def charge(self, engine: Clock, t: int) -> Charge:
        """What noise of this scale costs for a shift so large."""
        shift = self.shift(t)
        return Charge(self.noise.share(self.scale(t) / shift), self.lane(t), shift=shift)

    def core(self) -> dict[str, Any]:
        """The release itself. Nothing may be read off multipliers, so they are no numbers."""
        unread = np.full(MAX_LEVELS + 1, np.nan)
        return {**super().core(), "release": self, "multipliers": unread}


def ridge_keys(**given: Any) -> dict[str, Any]:
    """The keys of a release that the ridge learner expects; those not given are of no use to it."""
    none: dict[str, Any] = {"growth": float("inf"), "rates": np.empty(0), "weights": np.empty(0)}
    return {**none, **given}


def check_horizon(horizon: int | None) -> None:
    """An error for a horizon that is none."""
    if horizon is not None and horizon < 1:
        raise OptionError(f"horizon must be at least 1 (or None for unknown), not {horizon!r}")
