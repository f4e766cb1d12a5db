"""The options every algorithm shares, checked once and in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.budget import check_delta, check_epsilon
from dpbandit.errors import NotFiniteError, OptionError, ShapeError, nearest
from dpbandit.frames import is_frame, numbers
from dpbandit.noise import CODES, check_noise


@dataclass
class Options:
    """What `dpb.make` takes, besides the name. See docs for the paper's symbols."""

    dim: int
    epsilon: float | None = None
    delta: float | None = None
    reward_range: tuple[float, float] = (-1.0, 1.0)
    horizon: int | None = None
    alpha: float | str | None = None
    ridge: float = 1.0
    max_norm: float = 1.0
    public_contexts: NDArray[np.float64] | None = None
    noise: str | None = None
    unit: Any = "reward"
    seed: int | None = None
    pan_private: bool = False
    context_noise: float = 0.0
    theta_norm: float = 1.0
    zeta: float = 0.05
    reward_noise: float = 0.5
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dim = whole("dim", self.dim, least=1)
        if self.epsilon is not None:
            self.epsilon = check_epsilon(self.epsilon)
        if self.delta is not None:
            self.delta = check_delta(self.delta)
        if self.horizon is not None:
            self.horizon = whole("horizon", self.horizon, least=1, also="None for unknown")
            if self.horizon > 2**60:
                raise OptionError(f"horizon must be at most 2**60, not {self.horizon}: use horizon=None for unknown")
        if self.seed is not None:
            self.seed = whole("seed", self.seed, least=0, also="None for real noise")
        for name in ("ridge", "max_norm", "theta_norm"):
            setattr(self, name, positive(name, getattr(self, name)))
        for name in ("context_noise", "reward_noise"):
            if getattr(self, name) != 0:
                setattr(self, name, positive(name, getattr(self, name)))
        self.zeta = positive("zeta", self.zeta)
        if not self.zeta < 1:
            raise OptionError(f"zeta must lie strictly between 0 and 1, not {self.zeta!r}")
        self.reward_range = _range(self.reward_range)
        if isinstance(self.alpha, str):
            if self.alpha != "theory":
                raise OptionError(f"alpha must be a number of at least 0, or 'theory', not {self.alpha!r}")
        elif self.alpha is not None and self.alpha != 0:
            self.alpha = positive("alpha", self.alpha)
        if self.unit != "reward":
            self.unit = ("user", self.rewards_per_unit)
        if not isinstance(self.pan_private, (bool, np.bool_)):
            raise OptionError(f"pan_private must be True or False, not {self.pan_private!r}")
        if self.noise is not None:
            check_noise(self.noise, tuple(CODES))
        self._check_sizes()
        if self.public_contexts is not None:
            self.public_contexts = self._contexts(self.public_contexts)

    def _check_sizes(self) -> None:
        """Sizes at which float arithmetic can still be trusted."""
        for name, size in (
            ("max_norm", self.max_norm),
            ("ridge", self.ridge),
            ("the width of reward_range", self.width),
        ):
            if not 1e-100 < size < 1e100:
                raise OptionError(f"{name} must lie between 1e-100 and 1e100, not {size!r}: rescale the problem")
        if self.max_norm**2 / self.ridge > 1e10:
            raise OptionError(
                f"max_norm²/ridge = {self.max_norm**2 / self.ridge:.3g} is above 1e10: the inverse would be rounding noise; "
                "take a larger ridge or smaller contexts"
            )

    def _contexts(self, given: Any) -> NDArray[np.float64]:
        try:
            sample = np.ascontiguousarray(
                numbers(given, "public_contexts") if is_frame(given) else given, dtype=np.float64
            )
        except (TypeError, ValueError):
            raise ShapeError(f"public_contexts must be an array of numbers of shape (n, {self.dim})") from None
        if sample.ndim != 2 or sample.shape[1] != self.dim or len(sample) == 0:
            raise ShapeError(f"public_contexts must have shape (n, {self.dim}) with n ≥ 1, not {sample.shape}")
        if not np.isfinite(sample).all():
            raise NotFiniteError("public_contexts hold NaN or infinity: give finite numbers")
        return sample

    @property
    def width(self) -> float:
        """W, how far one reward can move."""
        return self.reward_range[1] - self.reward_range[0]

    @property
    def rewards_per_unit(self) -> int:
        """1, or m for ('user', m)."""
        if self.unit == "reward":
            return 1
        if isinstance(self.unit, (tuple, list)) and len(self.unit) == 2 and self.unit[0] == "user":
            return whole("unit's second part, the most rewards per user,", self.unit[1], least=1)
        raise OptionError(f"unit must be 'reward' or ('user', m), not {self.unit!r}")

    @property
    def unit_in_words(self) -> str:
        m = self.rewards_per_unit
        words = "one reward" if self.unit == "reward" else f"one user with at most {m} reward{'s' * (m > 1)}"
        return words + (", also against one look into memory between two updates" if self.pan_private else "")

    def need_epsilon(self) -> float:
        """ε, or an error that says it is missing."""
        if self.epsilon is None:
            raise OptionError("epsilon is missing: a private algorithm needs one, for example epsilon=2.0")
        return self.epsilon

    def need_delta(self) -> float:
        """δ, or an error that says it is missing."""
        if self.delta is None:
            raise OptionError(
                "delta is missing: Gaussian noise needs one, well below 1/horizon, for example delta=1e-5"
            )
        return self.delta

    def given(self, *, changed: bool = False, but: tuple[str, ...] = ()) -> dict[str, Any]:
        """All options by name, or those that differ from their default: what `dpb.make` takes."""
        found = {}
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name == "extra" or option.name in but or (changed and _same(value, option.default)):
                continue
            found[option.name] = value
        return {**found, **self.extra}

    def take(self, name: str, default: Any) -> Any:
        """An option that only some algorithms have."""
        return self.extra.get(name, default)


SHARED = tuple(f.name for f in fields(Options) if f.name != "extra")


def build(given: dict[str, Any], own: tuple[str, ...], algorithm: str) -> Options:
    """Options from keywords; `own` are those that only this algorithm has."""
    unknown = [name for name in given if name not in SHARED and name not in own]
    if unknown:
        raise OptionError(f"{algorithm} has no option {unknown[0]!r}: {nearest(unknown[0], SHARED + own)}")
    if "dim" not in given:
        raise OptionError("dim is missing: the number of features of a context")
    shared = {name: value for name, value in given.items() if name in SHARED}
    extra = {name: _plain(value) for name, value in given.items() if name in own}
    return Options(**shared, extra=extra)


def _same(value: Any, default: Any) -> bool:
    return value is default or (not isinstance(value, np.ndarray) and bool(value == default))


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's: they are written to files."""
    return value.item() if isinstance(value, np.generic) else value


def whole(name: str, value: Any, *, least: int, also: str = "") -> int:
    """A whole number, or an error."""
    also = f" ({also})" if also else ""
    number = isinstance(value, (int, np.integer, float, np.floating)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value != int(value) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}{also}, not {value!r}")
    return int(value)


def positive(name: str, value: Any) -> float:
    """A finite number above 0, or an error."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value < math.inf:
        raise OptionError(f"{name} must be a finite number above 0, not {value!r}")
    return float(value)


def _range(given: Any) -> tuple[float, float]:
    try:
        low, high = (float(v) for v in given)
    except (TypeError, ValueError):
        raise OptionError(f"reward_range must be two numbers (low, high), not {given!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise OptionError(f"reward_range must be two finite numbers, low < high, not {given!r}")
    return low, high
