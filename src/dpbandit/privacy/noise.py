"""The noises, each an object with all its consequences.

A noise knows the norm it measures shifts in, its currency, its exchange to (ε, δ), its draw for
simulations, its log-density for audits, and its exact sampler where there is one. Nothing else in the
library decides anything by a noise's name: it asks the object. A new noise is a class like those below
and one entry in `NOISES`; what it leaves out keeps it from being made at all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import NoiseError, OptionError, nearest
from dpbandit.privacy import matrices
from dpbandit.privacy.accounting import epsilon_of, mu_of
from dpbandit.privacy.claim import Notion
from dpbandit.privacy.grid import FLOAT_GRID_BITS, STEP, lattice_slack
from dpbandit.privacy.ledger import Ledger

if TYPE_CHECKING:
    from dpbandit.privacy.opendp import Sampler

Vector = NDArray[np.float64]
Currency = Literal["mu²", "epsilon"]

# What a release without noise adds to a log-likelihood ratio when it fits one side only: more than
# any ratio that noise leaves.
CERTAIN = 1e6


class Budgeted(Protocol):
    """What a noise has to know of a bandit's options."""

    seed: int | None
    horizon: int | None

    @property
    def rewards_per_unit(self) -> int:
        """How many rewards share a unit's budget."""

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
    in_core: ClassVar[bool]  # whether the compiled core can draw it
    matrices: ClassVar[matrices.MatrixNoise | None]  # what it does to a Gram matrix; None: not for one

    def __init_subclass__(cls) -> None:
        """A class that leaves out one of the words above is refused where it is written."""
        wanted = ("name", "description", "norm", "currency", "notion", "in_core", "matrices")
        missing = [word for word in wanted if not hasattr(cls, word)]
        if "name" not in vars(cls) and "name" not in missing:
            missing.append("own name")
        if missing:
            raise TypeError(f"noise {cls.__name__} does not say its {', '.join(missing)}")

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

    @property
    def has_real_source(self) -> bool:
        """Whether `seed=None` is possible."""
        return self.whole_sampler(1, 1.0) is not None

    def multipliers(self, budget: float, most_levels: int) -> Vector:
        """`multiplier` for 0, 1, …, `most_levels` levels; entry 0 is unused."""
        each = [self.multiplier(budget, levels) for levels in range(1, most_levels + 1)]
        return np.array([0.0, *each])

    def __repr__(self) -> str:
        return f"<noise {self.name!r}>"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return find_noise, (self.name,)


class Gaussian(Noise):
    """Normal noise, independent in every coordinate."""

    name = "gaussian"
    description = "Gaussian noise in every coordinate; scale is the standard deviation"
    norm = 2
    currency: ClassVar[Currency] = "mu²"
    notion: ClassVar[Notion] = "gdp"
    in_core = True
    matrices = matrices.GaussianMatrix()

    def budget(self, options: Budgeted, coordinates: int) -> float:
        epsilon, delta = options.need_epsilon(), options.need_delta()
        if math.isinf(epsilon):
            return math.inf
        if options.seed is None:
            # No scale is below 1/μ, in units of an item's sensitivity of at least 1.
            finest = max(STEP * mu_of(epsilon=epsilon, delta=delta), 2.0**-FLOAT_GRID_BITS)
            slack = lattice_slack(coordinates * options.rewards_per_unit, epsilon, finest)
            if slack > 0.01 * delta:
                hint = "" if options.horizon else ", or give a horizon"
                raise OptionError(
                    f"delta = {delta:g} is too small for real noise here: its grid alone may cost "
                    f"{slack:.1g}; take delta ≥ {100 * slack:.1g}{hint}"
                )
            delta -= slack
        return mu_of(epsilon=epsilon, delta=delta) / options.rewards_per_unit

    def multiplier(self, budget: float, levels: int) -> float:
        return math.sqrt(levels) / budget  # 0 where the budget is infinite

    def share(self, multiplier: float) -> float:
        return math.inf if multiplier == 0.0 else 1 / multiplier**2

    def shift_of(self, scale: float, share: float) -> float:
        return 1.0 if math.isinf(share) else scale * math.sqrt(share)

    def cost(self, shift: Vector, scale: float) -> float:
        return _nothing_or_everything(shift, scale, float(shift @ shift) / (scale**2 or 1.0))

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return _certain(y, v0, v1)
        middle = y - (v0 + v1) / 2
        return float((v1 - v0) @ middle) / scale**2

    def ledger(self, budget: float) -> Ledger:
        return Ledger(limit=budget**2, currency=self.currency)

    def delta(self, options: Budgeted) -> float:
        return options.need_delta()

    def mu(self, options: Budgeted, budget: float) -> float | None:
        return options.rewards_per_unit * budget if math.isfinite(budget) else None

    def epsilon(self, spent: float, delta: float) -> float:
        return epsilon_of(mu=math.sqrt(spent), delta=delta)

    def tail(self, dim: int, zeta: float) -> float:
        return math.sqrt(2 * math.log(2 * dim / zeta))

    def tail_at(self, log: float) -> float:
        return math.sqrt(2.0 * log)

    def published_spread(self, scales: Vector) -> float:
        return math.sqrt(float(scales @ scales))

    def standard_deviation(self, dim: int = 1) -> float:
        return 1.0

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        from dpbandit.reference import random

        return value + scale * random.normals(key, index, len(value))

    def whole_sampler(self, dim: int, scale: float) -> Sampler | None:
        from dpbandit.privacy import opendp

        return opendp.gaussian(dim, scale)

    def float_sampler(self, dim: int, scale: float, exponent: int) -> Sampler | None:
        from dpbandit.privacy import opendp

        return opendp.gaussian(dim, scale, exponent)


class _PaidInEpsilon:
    """What the noises paid in pure ε share."""

    currency: ClassVar[Currency] = "epsilon"

    def budget(self, options: Budgeted, coordinates: int) -> float:
        return options.need_epsilon() / options.rewards_per_unit

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


class Laplace(_PaidInEpsilon, Noise):
    """Laplace noise, independent in every coordinate."""

    name = "laplace"
    description = "Laplace noise in every coordinate"
    norm = 1
    notion: ClassVar[Notion] = "pure"
    in_core = True
    matrices = None

    def cost(self, shift: Vector, scale: float) -> float:
        return _nothing_or_everything(shift, scale, float(np.abs(shift).sum()) / (scale or 1.0))

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return _certain(y, v0, v1)
        return float((np.abs(y - v0) - np.abs(y - v1)).sum()) / scale

    def tail(self, dim: int, zeta: float) -> float:
        return math.sqrt(8) * math.log(2 * dim / zeta)  # Chan et al. 2011, Lemma 2.8

    def standard_deviation(self, dim: int = 1) -> float:
        return math.sqrt(2)

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        from dpbandit.reference import random

        return value + scale * random.laplaces(key, index, len(value))

    def whole_sampler(self, dim: int, scale: float) -> Sampler | None:
        from dpbandit.privacy import opendp

        return opendp.laplace(dim, scale)

    def float_sampler(self, dim: int, scale: float, exponent: int) -> Sampler | None:
        from dpbandit.privacy import opendp

        return opendp.laplace(dim, scale, exponent)


class KNorm(_PaidInEpsilon, Noise):
    """K-norm noise for the Euclidean ball: density ∝ exp(−‖z‖₂/scale) (Hardt & Talwar 2010)."""

    name = "laplace-l2"
    description = "a vector of density ∝ exp(−‖z‖₂/scale); simulations only"
    norm = 2
    notion: ClassVar[Notion] = "pure"
    in_core = True
    matrices = None

    def cost(self, shift: Vector, scale: float) -> float:
        return _nothing_or_everything(shift, scale, float(np.linalg.norm(shift)) / (scale or 1.0))

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return _certain(y, v0, v1)
        return float(np.linalg.norm(y - v0) - np.linalg.norm(y - v1)) / scale

    def tail(self, dim: int, zeta: float) -> float:
        # A coordinate has √(d + 1) times the spread of a Laplace number's.
        return math.sqrt(8) * math.log(2 * dim / zeta) * math.sqrt(dim + 1)

    def standard_deviation(self, dim: int = 1) -> float:
        return math.sqrt(dim + 1)  # the radius is Gamma(d): its square is d(d + 1) on average

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        from dpbandit.reference import random

        return value + scale * random.knorm(key, index, len(value))

    def whole_sampler(self, dim: int, scale: float) -> Sampler | None:
        return None

    def float_sampler(self, dim: int, scale: float, exponent: int) -> Sampler | None:
        return None


class Wishart(_PaidInEpsilon, Noise):
    """Wishart noise for a Gram matrix packed into a vector; its `scale` is its degrees of freedom.

    What it costs follows from a calibration for (ε, δ) and the number of levels (`privacy.wishart`),
    so it has no multiplier and no share by itself: `release.tree.WishartTree` has them.
    """

    name = "wishart"
    description = "Wishart noise on a Gram matrix; scale is its degrees of freedom; simulations only"
    norm = 2
    notion: ClassVar[Notion] = "approximate"
    in_core = True
    matrices = matrices.WishartMatrix()

    def multiplier(self, budget: float, levels: int) -> float:
        raise NoiseError("degrees of freedom of Wishart noise come from privacy.wishart.calibrate")

    def share(self, multiplier: float) -> float:
        raise NoiseError("what Wishart noise costs comes from privacy.wishart.calibrate")

    def shift_of(self, scale: float, share: float) -> float:
        return 1.0  # an item is vvᵀ with ‖v‖ ≤ 1, whatever the scale

    def cost(self, shift: Vector, scale: float) -> float:
        # μ² in the limit of many degrees of freedom: for comparing neighbours, not for a claim.
        return _nothing_or_everything(shift, scale, float(shift @ shift) / (2.0 * (scale or 1.0)))

    def log_ratio(self, y: Vector, v0: Vector, v1: Vector, scale: float) -> float:
        if scale == 0.0:
            return _certain(y, v0, v1)
        density = matrices.wishart_log_density
        return density(y - v1, scale, CERTAIN) - density(y - v0, scale, CERTAIN)

    def delta(self, options: Budgeted) -> float:
        return options.need_delta()

    def tail(self, dim: int, zeta: float) -> float:
        raise NoiseError("Wishart noise is bounded by its eigenvalues: ask `matrices`")

    def tail_at(self, log: float) -> float:
        raise NoiseError("Wishart noise is bounded by its eigenvalues: ask `matrices`")

    def published_spread(self, scales: Vector) -> float:
        raise NoiseError("Wishart noise is for Gram matrices alone")

    def standard_deviation(self, dim: int = 1) -> float:
        raise NoiseError("the spread of Wishart noise is √(2·degrees), not a multiple of its scale")

    def simulate(self, key: int, index: int, scale: float, value: Vector) -> Vector:
        from dpbandit.reference import random

        return value + random.wishart(key, index, scale, len(value))

    def whole_sampler(self, dim: int, scale: float) -> Sampler | None:
        return None

    def float_sampler(self, dim: int, scale: float, exponent: int) -> Sampler | None:
        return None


GAUSSIAN, LAPLACE, KNORM, WISHART = Gaussian(), Laplace(), KNorm(), Wishart()
NOISES: dict[str, Noise] = {noise.name: noise for noise in (GAUSSIAN, LAPLACE, KNORM, WISHART)}


def find_noise(name: str | Noise, allowed: tuple[str, ...] | None = None) -> Noise:
    """The noise of this name, or an error that lists what is allowed.

    Parameters
    ----------
    name
        A name in `NOISES`, or a noise itself.
    allowed
        The names that an algorithm takes; None: all.

    Raises
    ------
    OptionError
        If there is no such noise, or it is not among those allowed.

    >>> find_noise("laplace").norm
    1
    """
    names = tuple(NOISES) if allowed is None else allowed
    word = name.name if isinstance(name, Noise) else name
    if word not in names:
        raise OptionError(
            f"noise {word!r} is not possible here: {nearest(word, names)} "
            f"(allowed: {', '.join(names)})"
        )
    return name if isinstance(name, Noise) else NOISES[word]


def _nothing_or_everything(shift: Vector, scale: float, cost: float) -> float:
    """The cost, where there is a shift and noise; 0 without a shift; infinite without noise."""
    if not shift.any():
        return 0.0
    return cost if scale > 0.0 else math.inf


def _certain(y: Vector, v0: Vector, v1: Vector) -> float:
    """The log-ratio of a release without noise: for the side that it is nearer to, if either."""
    return CERTAIN * float(np.sign(float(np.linalg.norm(y - v0)) - float(np.linalg.norm(y - v1))))
