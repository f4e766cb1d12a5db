"""What the simulation kernel must know of an algorithm and of a world: plain numbers, so that they
can be made elsewhere."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# Codes of kernels.cu.
FAMILIES = {
    name: code
    for code, name in enumerate(
        ("random", "linucb", "local", "tree", "toeplitz", "dgs", "increment", "anytime", "episodes")
    )
}
NOISES = {"gaussian": 0, "laplace": 1, "laplace-l2": 2}


@dataclass(frozen=True)
class World:
    """The paper's simulation: arms and θ* uniform, divided by their norms."""

    arms: int = 1000
    dim: int = 10
    shown: int = 10
    reward_noise: float = 0.5


@dataclass(frozen=True)
class Anytime:
    """The public choices of the anytime bandit."""

    window: float  # half the width of residuals
    scale: float
    reward_variance: float
    low: float
    high: float
    moments: tuple[int, ...]  # rounds with a release
    shown: tuple[float, ...]
    kept: tuple[float, ...]


@dataclass(frozen=True)
class Plan:
    """One algorithm, ready to be played. `scales` and `alphas` have one number, or one for every
    round."""

    family: str
    noise: str = "gaussian"
    scales: tuple[float, ...] = (0.0,)
    alphas: tuple[float, ...] = (0.3,)
    clip: tuple[float, float] = (-math.inf, math.inf)
    ridge: float = 1.0
    max_norm: float = 1.0
    refresh: int = 0  # dgs: recompute the maximum over arms at multiples of this as well
    growth: float = math.inf  # episodes
    decays: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())  # toeplitz: rates and weights
    anytime: Anytime | None = None

    def settings(self, world: World) -> Vector:
        """The kernel's `settings`, in the order of kernels.cu."""
        own = self.anytime
        rest = (
            [0.0] * 5
            if own is None
            else [own.window, own.scale, own.reward_variance, own.low, own.high]
        )
        count = len(self.decays[0]) if own is None else len(own.moments)
        return np.array(
            [
                world.arms,
                world.reward_noise,
                *self.clip,
                self.ridge,
                self.max_norm,
                self.refresh,
                self.growth,
                *rest,
                count,
            ],
            dtype=np.float64,
        )

    def table(self) -> Vector:
        """Rates and weights, or shares shown and kept."""
        pairs = self.decays if self.anytime is None else (self.anytime.shown, self.anytime.kept)
        return np.array([*pairs[0], *pairs[1], 0.0], dtype=np.float64)

    def moments(self) -> NDArray[np.int32]:
        """The rounds of releases, where they are rare."""
        return np.array([*(self.anytime.moments if self.anytime else ()), 0], dtype=np.int32)


@dataclass(frozen=True)
class Book:
    """Plans under their labels, for a machine that cannot make them."""

    plans: dict[str, Plan] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        path.write_text(
            json.dumps({label: asdict(plan) for label, plan in self.plans.items()}, indent=1)
        )

    @classmethod
    def load(cls, path: Path) -> Book:
        return cls({label: _plan(fields) for label, fields in json.loads(path.read_text()).items()})


def _plan(fields: dict[str, Any]) -> Plan:
    own = fields.pop("anytime")
    fields["decays"] = tuple(tuple(part) for part in fields["decays"])
    return Plan(**_tuples(fields), anytime=None if own is None else Anytime(**_tuples(own)))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON knows lists alone."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }


# (ε, δ) = (2, 0.1) as Gaussian privacy, by `dpbandit.budget.mu_of`; the paper's setting.
PAPERS_MU = 1.3662024


def papers_plans(
    rounds: int, *, width: float = 2.0, low: float = -0.5, dim: int = 10
) -> dict[str, Plan]:
    """`linucb`, `tree-gauss`, `dgs` and `anytime` at (2, 0.1), as `translation` makes them (a test
    compares)."""
    levels = rounds.bit_length()
    multiplier = math.sqrt(levels) / PAPERS_MU
    clip = (low, low + width)
    return {
        "linucb": Plan("linucb"),
        "tree-gauss": Plan("tree", scales=(multiplier * width,), clip=clip),
        "dgs": Plan("dgs", scales=(multiplier * width,), clip=clip),
        "anytime": Plan("anytime", clip=clip, anytime=_papers_anytime(rounds, width, low, dim)),
    }


def _papers_anytime(rounds: int, width: float, low: float, dim: int) -> Anytime:
    share, ratio = 0.375, 1.025  # docs/frontier.md
    knee = 45.0 * dim * 2 * share / PAPERS_MU
    moments, shown, kept = [], [], []
    j = max(1, math.ceil(knee / 20))
    while j <= rounds:
        later = max(math.ceil(j * ratio), j + 1)
        rho = ((knee + j) / (knee + later)) ** 2
        moments.append(j)
        kept.append(rho)
        shown.append(math.sqrt((1 - rho) * (1 + rho)))
        j = later
    return Anytime(
        share * width,
        1 / PAPERS_MU,
        width**2 / 16,
        low,
        low + width,
        tuple(moments),
        tuple(shown),
        tuple(kept),
    )
