"""A release of your own: the stream is cut into tiles of eight rewards, and each tile's sum of x·r is
shown once, with noise.

The proof: a reward is in one tile, so it moves one release, by at most the sensitivity. Noise of the
scale that the whole budget buys for one release is enough, however long the stream. Which rounds
show something is fixed in advance and says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import dpbandit as dpb
from dpbandit.algorithms.moments import on_moments
from dpbandit.design import Design
from dpbandit.options import Options
from dpbandit.release import Clock, PythonRelease, Sums, WholeRows

Vector = NDArray[np.float64]
TILE = 8


class TileSums(Sums):
    """The clean sum of the tile at hand, in whole numbers, and the noisy sum of all before it."""

    def __init__(self, dim: int) -> None:
        self.tile, self.total = WholeRows(1, dim), np.zeros(dim)

    def add(self, t: int, item: Any) -> Any:
        self.tile[0] = self.tile[0] + item
        if t % TILE:
            return None  # nothing is due
        whole, self.tile[0] = self.tile[0], 0 * item
        return whole

    def publish(self, t: int, noisy: Vector) -> Vector:
        self.total += noisy
        return self.total.copy()

    def fields(self) -> dict[str, NDArray[Any]]:
        return {**self.tile.fields("tile"), "total": self.total}


@dataclass(frozen=True, eq=False)
class Tiles(PythonRelease):
    """Each tile once."""

    name = "tiles"
    in_core = False
    log_field = "total"  # a log's noisy sum is one tile more, of rewards that are in no other

    @staticmethod
    def draws(dim: int, horizon: int | None) -> int:
        return 2 * dim  # a tile's numbers, and a log's

    def scale(self, t: int) -> float:
        return self.noise.multiplier(self.budget, 1) * self.sensitivity

    def lane(self, t: int) -> str:
        return "the reward's tile"  # one for all tiles: no reward is in two of them

    def room(self, engine: Clock) -> None:
        """There is always room."""

    def squares(self, t: ArrayLike) -> Vector:
        return np.floor(np.asarray(t) / TILE) * self.scale(1) ** 2

    def sums(self, dim: int) -> TileSums:
        return TileSums(dim)


def design(name: str, options: Options) -> Design:
    """What the algorithm is made of: tiles of moments with Gaussian noise, and UCB."""
    return on_moments(name, options, options.noise or "gaussian", release=Tiles)


dpb.register(
    "tiles",
    design=design,
    description="one noisy sum for every eight rewards",
    claim="GDP (pure ε with noise='laplace'), proven",
)
