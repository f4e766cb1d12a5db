"""The options every algorithm shares, checked once and in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dpbandit.defaults import REWARD_RANGE
from dpbandit.errors import NotFiniteError, OptionError, ShapeError, nearest
from dpbandit.frames import array_of
from dpbandit.privacy.accounting import check_delta, check_epsilon
from dpbandit.privacy.noise import NOISES, find_noise
from dpbandit.privacy.unit import Unit, find_unit
from dpbandit.types import Matrix

LOOK_INTO_MEMORY = ", also if memory is inspected once between two updates"
BACKENDS = ("core", "reference")
MOST_FEATURES = 100_000  # as in src/core/module/spec.hpp


@dataclass
class Options:
    """What `dpb.make` takes, besides the name; see there for what each one means."""

    dim: int
    epsilon: float | None = None
    delta: float | None = None
    reward_range: tuple[float, float] = REWARD_RANGE
    horizon: int | None = None
    alpha: float | str | None = None
    ridge: float = 1.0
    max_norm: float = 1.0
    public_contexts: Matrix | None = None
    noise: str | None = None
    unit: Any = "reward"
    seed: int | None = None
    pan_private: bool = False
    context_noise: float = 0.0
    holdout: float = 0.0
    theta_norm: float = 1.0
    zeta: float = 0.05
    reward_noise: float = 0.5
    backend: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # options that only some algorithms have

    def __post_init__(self) -> None:
        self.dim = whole("dim", self.dim, least=1)
        if self.dim > MOST_FEATURES:
            raise OptionError(
                f"dim must be at most {MOST_FEATURES:,}, not {self.dim:,}: a bandit keeps matrices of "
                "dim × dim numbers. Hash or project the features first (dpb.Encoder, dpb.Hashed)"
            )
        if self.epsilon is not None:
            self.epsilon = check_epsilon(self.epsilon)
        if self.delta is not None:
            self.delta = check_delta(self.delta)
        if self.horizon is not None:
            self.horizon = whole("horizon", self.horizon, least=1, also="None for unknown")
            if self.horizon > 2**60:
                raise OptionError(
                    f"horizon must be at most 2**60, not {self.horizon}: use horizon=None for "
                    "unknown"
                )
        if self.seed is not None:
            self.seed = whole("seed", self.seed, least=0, also="None for real noise")
        for name in ("ridge", "max_norm", "theta_norm"):
            setattr(self, name, positive(name, getattr(self, name)))
        for name in ("context_noise", "reward_noise"):
            setattr(self, name, not_negative(name, getattr(self, name)))
        self.holdout = not_negative("holdout", self.holdout)
        if self.holdout > 1:
            raise OptionError(
                f"holdout is a share of the decisions, from 0 to 1, not {self.holdout!r}"
            )
        self.zeta = positive("zeta", self.zeta)
        if not self.zeta < 1:
            raise OptionError(f"zeta must lie strictly between 0 and 1, not {self.zeta!r}")
        self.reward_range = range_of(self.reward_range)
        if self.alpha is not None:
            self.alpha = number_or_theory("alpha", self.alpha)
        self.unit = find_unit(self.unit).option
        self.protects.check(self.reward_range)
        self.pan_private = flag("pan_private", self.pan_private)
        if self.pan_private and not self.protects.counts_are_public:
            raise OptionError(
                "pan_private=True protects if memory is inspected, but memory holds the clean sum of "
                "each person's rewards: use unit='reward' or ('user', m)"
            )
        if self.noise is not None:
            find_noise(self.noise, tuple(NOISES))
        if self.backend is not None and self.backend not in BACKENDS:
            raise OptionError(f"backend must be 'core' or 'reference', not {self.backend!r}")
        self._check_sizes()
        if self.public_contexts is not None:
            self.public_contexts = self._contexts(self.public_contexts)

    def _check_sizes(self) -> None:
        """Sizes at which float arithmetic can still be trusted."""
        width = ("the width of reward_range", self.width)
        for name, size in (("max_norm", self.max_norm), ("ridge", self.ridge), width):
            if not 1e-100 < size < 1e100:
                raise OptionError(
                    f"{name} must lie between 1e-100 and 1e100, not {size!r}: rescale the problem"
                )
        share = self.max_norm**2 / self.ridge
        if share > 1e10:
            raise OptionError(
                f"max_norm²/ridge = {share:.3g} is above 1e10: the inverse would be rounding "
                "noise; use a larger ridge or smaller contexts"
            )

    def _contexts(self, given: Any) -> Matrix:
        try:
            sample = array_of(given, "public_contexts")
        except (TypeError, ValueError):
            raise ShapeError(
                f"public_contexts must be an array of numbers of shape (n, {self.dim})"
            ) from None
        if sample.ndim != 2 or sample.shape[1] != self.dim or len(sample) == 0:
            raise ShapeError(
                f"public_contexts must have shape (n, {self.dim}) with n ≥ 1, not {sample.shape}"
            )
        if not np.isfinite(sample).all():
            raise NotFiniteError("public_contexts hold NaN or infinity: give finite numbers")
        return sample

    @property
    def width(self) -> float:
        """W, how far one reward can move."""
        return self.reward_range[1] - self.reward_range[0]

    contexts_are_private = False  # set by the algorithm, not an option

    def protect_contexts(self) -> None:
        """The algorithm protects contexts too: the unit is whole rounds."""
        self.contexts_are_private = True
        self.protects.check(self.reward_range)

    @property
    def protects(self) -> Unit:
        """Who is protected: the unit that `unit` names."""
        low, high = self.reward_range
        unit = find_unit(self.unit, high if low == 0 else 1.0)
        return unit.with_contexts() if self.contexts_are_private else unit

    @property
    def moves_per_unit(self) -> float:
        """How far all of a unit's rewards can move a sum, in units of one reward: 1, m or 2C/W."""
        return self.protects.moves(self.width)

    @property
    def items_per_unit(self) -> float:
        """How many of a unit's rewards can differ."""
        return self.moves_per_unit * self.protects.items_per_move

    @property
    def unit_in_words(self) -> str:
        """Who is protected, as a claim says it."""
        return self.protects.words + (LOOK_INTO_MEMORY if self.pan_private else "")

    def need_epsilon(self) -> float:
        """ε, or an error that says it is missing."""
        if self.epsilon is None:
            raise OptionError(
                "epsilon is missing: a private algorithm needs one, for example epsilon=2.0"
            )
        return self.epsilon

    def need_delta(self) -> float:
        """δ, or an error that says it is missing."""
        if self.delta is None:
            raise OptionError(
                "delta is missing: Gaussian noise needs one, well below 1/horizon, for example "
                "delta=1e-5"
            )
        return self.delta

    def given(self, *, changed: bool = False, but: tuple[str, ...] = ()) -> dict[str, Any]:
        """All options by name, or those that differ from their default: what `dpb.make` takes."""
        found = {}
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name == "extra" or option.name in but:
                continue
            if not (changed and _same(value, option.default)):
                found[option.name] = value
        return {**found, **self.extra}

    def own(self, name: str, default: Any) -> Any:
        """An option that only some algorithms have."""
        return self.extra.get(name, default)

    def own_flag(self, name: str) -> bool:
        """The same for one that is True or False, and False if not given."""
        return flag(name, self.extra.get(name, False))


SHARED = tuple(f.name for f in fields(Options) if f.name != "extra")


def build(given: Mapping[str, Any], own: tuple[str, ...], algorithm: str) -> Options:
    """Options from keywords; `own` are those that only this algorithm has."""
    unknown = [name for name in given if name not in SHARED and name not in own]
    if unknown:
        hint = nearest(unknown[0], SHARED + own)
        raise OptionError(f"{algorithm} has no option {unknown[0]!r}: {hint}")
    if "dim" not in given:
        raise OptionError("dim is missing: the number of features of a context")
    shared = {name: value for name, value in given.items() if name in SHARED}
    extra = {name: _plain(value) for name, value in given.items() if name in own}
    return Options(**shared, extra=extra)


def _same(value: Any, default: Any) -> bool:
    same = value is default
    return same or (not isinstance(value, np.ndarray) and bool(value == default))


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, for files."""
    return value.item() if isinstance(value, np.generic) else value


def whole(name: str, value: Any, *, least: int, also: str = "") -> int:
    """A whole number, or an error."""
    also = f" ({also})" if also else ""
    if not _is_number(value) or not math.isfinite(value) or value != int(value) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}{also}, not {value!r}")
    return int(value)


def positive(name: str, value: Any) -> float:
    """A finite number above 0, or an error."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise OptionError(f"{name} must be a finite number above 0, not {value!r}")
    return float(value)


def not_negative(name: str, value: Any) -> float:
    """0, or a finite number above it."""
    return 0.0 if _is_number(value) and value == 0 else positive(name, value)


def number_or_theory(name: str, value: Any) -> float | str:
    """A finite number of at least 0, or the word 'theory'."""
    if isinstance(value, str):
        if value != "theory":
            raise OptionError(f"{name} must be a number of at least 0, or 'theory', not {value!r}")
        return value
    return not_negative(name, value)


def flag(name: str, value: Any) -> bool:
    """True or False, or an error."""
    if not isinstance(value, (bool, np.bool_)):
        raise OptionError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of a few words, or an error with the nearest one."""
    if value not in allowed:
        listed = ", ".join(allowed)
        hint = nearest(str(value), allowed)
        raise OptionError(f"no {name} is called {value!r}: {hint} ({listed})")
    return str(value)


def _is_number(value: Any) -> bool:
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool)


def range_of(given: Any) -> tuple[float, float]:
    """A range of rewards as two floats, or OptionError."""
    try:
        low, high = (float(v) for v in given)
    except (TypeError, ValueError):
        raise OptionError(f"reward_range must be two numbers (low, high), not {given!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise OptionError(f"reward_range must be two finite numbers, low < high, not {given!r}")
    return low, high
