"""What the simulation kernel must know of an algorithm: plain numbers, so that they can be made
elsewhere."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.types import Vector
from dpbandit.worlds import Synthetic

# Codes of kernels.cu.
FAMILIES = {
    name: code
    for code, name in enumerate(
        ("random", "linucb", "local", "tree", "toeplitz", "dgs", "increment", "anytime", "episodes")
    )
}
NOISES = {"gaussian": 0, "laplace": 1, "laplace-l2": 2}


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

    def settings(self, world: Synthetic) -> Vector:
        """The kernel's `settings`, in the order of kernels.cu."""
        own = self.anytime
        usual = [world.pool_size, world.reward_noise, *self.clip, self.ridge, self.max_norm]
        usual += [self.refresh, self.growth]
        if own is None:
            return np.array([*usual, *[0.0] * 5, len(self.decays[0])], dtype=np.float64)
        rest = [own.window, own.scale, own.reward_variance, own.low, own.high, len(own.moments)]
        return np.array([*usual, *rest], dtype=np.float64)

    def table(self) -> Vector:
        """Rates and weights, or shares shown and kept."""
        pairs = self.decays if self.anytime is None else (self.anytime.shown, self.anytime.kept)
        return np.array([*pairs[0], *pairs[1], 0.0], dtype=np.float64)

    def moments(self) -> NDArray[np.int32]:
        """The rounds of releases, where they are rare."""
        return np.array([*(self.anytime.moments if self.anytime else ()), 0], dtype=np.int32)


def save(path: Path, plans: dict[str, Plan]) -> None:
    """Write plans under their labels, to be played elsewhere."""
    path.write_text(json.dumps({label: asdict(plan) for label, plan in plans.items()}, indent=1))


def load(path: Path) -> dict[str, Plan]:
    """Read what `save` wrote."""
    found = {}
    for label, fields in json.loads(path.read_text()).items():
        own = fields.pop("anytime")
        fields["decays"] = tuple(tuple(part) for part in fields["decays"])
        anytime = None if own is None else Anytime(**_tuples(own))
        found[label] = Plan(**_tuples(fields), anytime=anytime)
    return found


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON knows lists alone."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
