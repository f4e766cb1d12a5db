"""Simulated worlds. Their rounds are drawn in lots of a fixed size, each a function of the seed and
its number, so that cutting an episode into blocks never changes it.

The compiled core draws them, or the reference in NumPy: the same numbers. A run plays them inside
the core, without Python in between.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.types import Matrix, Vector
from dpbandit.worlds.block import Block

# What some kinds of worlds have, and what it is in the others.
SETTINGS = {
    "reward_noise": 0.0,
    "rare": 0.0,
    "rare_arms": 0,
    "period": 1.0,
    "faded": 1.0,
    "path_rounds": 1,
    "hidden": 0,
}


class DrawnWorld:
    """A pool of arms, of which every round shows some; the reward noise is Gaussian."""

    rounds = None
    reward_range = (-0.5, 1.5)  # of the paper's simulation; beyond it, rewards are clipped
    own: tuple[str, ...] = ()  # further options, which `repr` shows

    def __init__(
        self, arms: int = 1000, dim: int = 10, shown: int = 10, reward_noise: float = 0.5
    ) -> None:
        if not 1 <= shown <= arms or dim < 1:
            raise ValueError(
                f"{type(self).__name__} needs 1 ≤ shown ≤ arms and dim ≥ 1, not shown={shown}, "
                f"arms={arms}, dim={dim}"
            )
        if not 0 <= reward_noise < math.inf:
            raise ValueError(
                f"reward_noise must be a finite number of at least 0, not {reward_noise!r}"
            )
        self.pool_size, self.dim, self.arms, self.reward_noise = arms, dim, shown, reward_noise

    def __repr__(self) -> str:
        own = "".join(f", {name}={getattr(self, name)}" for name in self.own)
        return (
            f"{type(self).__name__}(arms={self.pool_size}, dim={self.dim}, shown={self.arms}, "
            f"reward_noise={self.reward_noise:g}{own})"
        )


class DrawnEpisode:
    """One seed's run through a simulated world.

    `world` is its kind, as the engines name it; rounds show `arms` of the contexts in `pool`, which
    are known before the first round if they are `public`. Expected rewards are linear in θ*, or each
    arm has its `chance` of a 1. A θ* that moves is a `path`, a row after another, in equal parts of
    the rounds. `more` is what a world of this kind has beside: see SETTINGS.
    """

    def __init__(
        self,
        world: str,
        seed: int,
        *,
        pool: Matrix,
        arms: int,
        theta: Vector | None = None,
        chances: Vector | None = None,
        path: Matrix | None = None,
        public: bool = True,
        **more: float,
    ) -> None:
        from dpbandit.reference.random import WORLD, derive_key

        self.theta: Vector | None = None
        if theta is not None:
            self.theta = np.ascontiguousarray(theta, dtype=np.float64)
        pool = np.ascontiguousarray(pool, dtype=np.float64)
        self.public_contexts: Matrix | None = pool if public else None
        self.spec: dict[str, Any] = {
            "world": world,
            "dim": pool.shape[1],
            "pool_size": len(pool),
            "arms": arms,
            "key": derive_key(seed, WORLD),
            "pool": pool,
            "theta": np.zeros(pool.shape[1]) if self.theta is None else self.theta,
            "chances": np.zeros(0) if chances is None else np.ascontiguousarray(chances),
            "path": np.zeros((0, pool.shape[1])) if path is None else np.ascontiguousarray(path),
            **SETTINGS,
            **{name: type(SETTINGS[name])(value) for name, value in more.items()},
        }
        self._at = 0

    def __getstate__(self) -> dict[str, Any]:
        # What draws is a function of the spec: a copy makes its own.
        return {name: value for name, value in self.__dict__.items() if name != "_world"}

    def new_world(self) -> Any:
        """What draws the rounds: an object of the core, or of the reference."""
        from dpbandit.engine import new_world

        return new_world(self.spec)

    @cached_property
    def _world(self) -> Any:
        return self.new_world()

    def block(self, count: int) -> Block:
        """The next `count` rounds. A pool that stays is the same array in all of them."""
        numbers = np.empty((0, self.spec["arms"]))
        parts = [Block(self.spec["pool"][:0], numbers.astype(np.int64), numbers, numbers)]
        end = self._at + count
        while self._at < end:
            parts.append(Block(*self._world.rounds(self._at, end - self._at)))
            self._at += len(parts[-1].shown)
        pools, shown, rewards, means = zip(*parts, strict=True)
        pool = self.spec["pool"]
        if self.spec["world"] == "drifting":  # contexts of their own follow one another
            starts = np.cumsum([0] + [len(one) for one in pools[:-1]])
            shown = tuple(rows + start for rows, start in zip(shown, starts, strict=True))
            pool = np.concatenate(pools)
        return Block(pool, np.concatenate(shown), np.concatenate(rewards), np.concatenate(means))


def repeated(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Entries that stand further left in the same row already."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    again = np.zeros(rows.shape, dtype=np.bool_)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    found = np.empty_like(again)
    np.put_along_axis(found, order, again, axis=1)
    return found
