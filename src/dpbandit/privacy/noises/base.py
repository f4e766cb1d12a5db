"""What a noise must say of itself. What it leaves out keeps it from being made at all."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np

from dpbandit.privacy.claim import Notion
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.matrices import MatrixNoise
from dpbandit.types import Matrix as Matrix
from dpbandit.types import Vector as Vector

if TYPE_CHECKING:
    from dpbandit.privacy.opendp import Sampler

Currency = Literal["mu²", "epsilon"]

# What a release without noise adds to a log-likelihood ratio when it fits one side only: more than
# any ratio that noise leaves.
CERTAIN = 1e6


class Budgeted(Protocol):
    """What a noise has to know of a bandit's options."""

    seed: int | None
    horizon: int | None

    @property
    def moves_per_unit(self) -> float:
        """How many times as far as one reward can, all of a unit's can move together."""

    @property
    def items_per_unit(self) -> float:
        """How many of a unit's rewards can differ at all."""

    def need_epsilon(self) -> float:
        """ε, or an error that says it is missing."""

    def need_delta(self) -> float:
        """δ, or an error that says it is missing."""


class Noise(ABC):
    """One distribution of noise for vectors. `scale` is its parameter, in units of the value."""

    name: ClassVar[str]
    description: ClassVar[str]
    norm: ClassVar[Literal[1, 2]]  # in which a shift is measured
    currency: ClassVar[Currency]
    notion: ClassVar[Notion]
    has_real_source: ClassVar[bool]  # whether `seed=None` is possible: it has exact samplers
    in_core: ClassVar[bool]  # whether the compiled core can draw it
    matrices: ClassVar[MatrixNoise | None]  # what it does to a Gram matrix; None: not for one
    # Whether two numbers of it are equal by chance hardly ever: then equal ones were drawn once.
    has_density: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        """A class that leaves out one of the words above is refused where it is written."""
        wanted = ("name", "description", "norm", "currency", "notion", "has_real_source", "in_core")
        missing = [word for word in (*wanted, "matrices") if not hasattr(cls, word)]
        if "name" not in vars(cls) and "name" not in missing:
            missing.append("own name")
        if missing:
            raise TypeError(f"noise {cls.__name__} does not say its {', '.join(missing)}")
        if cls.norm not in (1, 2):
            raise TypeError(
                f"noise {cls.__name__} measures shifts in norm {cls.norm!r}, not 1 or 2"
            )
        # What it inherits is another noise's: the core would draw that one, or a sampler prove it.
        cls.in_core = vars(cls).get("in_core", False)
        cls.has_real_source = vars(cls).get("has_real_source", False)
        if "cost" in vars(cls) and "costs" not in vars(cls):
            cls.costs = Noise.costs  # type: ignore[method-assign] # no other class's arithmetic

    @abstractmethod
    def budget(self, options: Budgeted, coordinates: int) -> float:
        """What all releases together may cost one reward: μ for Gaussian noise, ε for the others.

        `coordinates` counts the noisy numbers that one reward is in, over all releases.
        """

    @abstractmethod
    def multiplier(self, budget: float, levels: int) -> float:
        """The scale per unit of sensitivity when so many levels share the budget; 0 without one."""

    @abstractmethod
    def share(self, multiplier: float) -> float:
        """What one release of that multiplier costs, in the currency; infinite without noise."""

    @abstractmethod
    def shift_of(self, scale: float, share: float) -> float:
        """How far apart neighbours may be for a release of this scale to cost that share."""

    @abstractmethod
    def cost(self, shift: Vector, scale: float) -> float:
        """What a release of this scale costs a reward that moves it by `shift`, exactly."""

    @abstractmethod
    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        """log p(y | the value was v1) − log p(y | it was v0), for a release of this scale."""

    @abstractmethod
    def ledger(self, budget: float) -> Ledger:
        """A ledger that holds one reward's budget."""

    @abstractmethod
    def delta(self, options: Budgeted) -> float:
        """The δ of a claim with this noise."""

    @abstractmethod
    def mu(self, options: Budgeted, budget: float) -> float | None:
        """The μ of a claim with this noise, for a whole unit; None where there is none."""

    @abstractmethod
    def epsilon(self, spent: float, delta: float) -> float:
        """The ε, at this δ, of having spent so much of the currency."""

    @abstractmethod
    def tail(self, dim: int, zeta: float) -> float:
        """How many scales bound every coordinate, or a sum of independent ones by the root of their
        squared scales, but with probability ζ. Multiplies √Σ scale²."""

    @abstractmethod
    def tail_at(self, log: float) -> float:
        """How many scales one coordinate reaches with probability about exp(−log)."""

    @abstractmethod
    def published_spread(self, scales: Vector) -> float:
        """What a sum of noises of these scales counts as in Mishra & Thakurta's bonus."""

    @abstractmethod
    def standard_deviation(self, dim: int = 1) -> float:
        """Of one of `dim` coordinates, per unit of scale."""

    @abstractmethod
    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        """`value` with noise number `index` of a key: a pure function, for simulations only."""

    @abstractmethod
    def whole_sampler(self, dim: int, scale: float) -> Sampler | None:
        """OpenDP's exact sampler on whole numbers; None: there is none, so no real noise."""

    @abstractmethod
    def float_sampler(self, dim: int, scale: float, exponent: int) -> Sampler | None:
        """The same for floats, with noise on multiples of 2^exponent."""

    def costs(self, shifts: Matrix, scales: Vector) -> Vector:
        """`cost` of many releases, one for each row. A noise may say how to do it at once."""
        return np.array([self.cost(*one) for one in zip(shifts, scales.tolist(), strict=True)])

    def multipliers(self, budget: float, most_levels: int) -> Vector:
        """`multiplier` for 0, 1, …, `most_levels` levels; entry 0 is unused."""
        each = [self.multiplier(budget, levels) for levels in range(1, most_levels + 1)]
        return np.array([0.0, *each])

    def __repr__(self) -> str:
        return f"<noise {self.name!r}>"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        from dpbandit.privacy.noise import find_noise

        return find_noise, (self.name,)


class PaidInEpsilon:
    """What the noises paid in pure ε share."""

    currency: ClassVar[Currency] = "epsilon"

    def budget(self, options: Budgeted, coordinates: int) -> float:
        return options.need_epsilon() / options.moves_per_unit

    def multiplier(self, budget: float, levels: int) -> float:
        return levels / budget  # 0 where the budget is infinite

    def share(self, multiplier: float) -> float:
        return math.inf if multiplier == 0.0 else 1 / multiplier

    def shift_of(self, scale: float, share: float) -> float:
        return 1.0 if math.isinf(share) else scale * share

    def ledger(self, budget: float) -> Ledger:
        return Ledger(limit=budget, currency=self.currency)

    def delta(self, options: Budgeted) -> float:
        return 0.0

    def mu(self, options: Budgeted, budget: float) -> float | None:
        return None

    def epsilon(self, spent: float, delta: float) -> float:
        return spent

    def tail_at(self, log: float) -> float:
        return log

    def published_spread(self, scales: Vector) -> float:
        return float(scales.sum())  # added up as they are, as in the paper


def nothing_or_everything(shift: Vector, scale: float, cost: float) -> float:
    """The cost, where there is a shift and noise; 0 without a shift; infinite without noise."""
    if not shift.any():
        return 0.0
    return cost if scale > 0.0 else math.inf


def per_scale(shifts: Matrix, scales: Vector, sizes: Vector) -> Vector:
    """Sizes of shifts over their scales, with the same rules."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(scales > 0.0, sizes / scales, np.inf)
    return np.where(shifts.any(axis=1), found, 0.0)


def certain(y: Vector, v0: Vector, v1: Vector) -> float:
    """The log-ratio of a release without noise: for the side that it is nearer to, if either."""
    return CERTAIN * float(np.sign(float(np.linalg.norm(y - v0)) - float(np.linalg.norm(y - v1))))
