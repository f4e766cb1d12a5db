"""Rounds of simulated worlds: drawn in lots of a fixed size, each a function of the seed and its
number, so that cutting an episode into blocks never changes it.

The compiled core draws them, or the reference in NumPy: the same numbers. A run plays them inside
the core, without Python in between.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.worlds.block import Block

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class DrawnEpisode:
    """One seed's run through a simulated world.

    Parameters
    ----------
    world : str
        The kind of world, as the engines name it.
    seed : int
        What all its rounds follow from.
    pool : array of shape (pool_size, dim)
        The contexts that rounds are made of.
    theta : array of shape (dim,)
        The true parameter.
    arms : int
        Contexts shown in a round.
    public : bool
        Whether the pool is known before the first round.
    """

    def __init__(
        self,
        world: str,
        seed: int,
        *,
        pool: Matrix,
        theta: Vector,
        arms: int,
        public: bool = True,
        reward_noise: float = 0.0,
        rare: float = 0.0,
        rare_arms: int = 0,
        period: float = 1.0,
        faded: float = 1.0,
    ) -> None:
        from dpbandit.reference.random import WORLD, derive_key

        self.theta: Vector = np.ascontiguousarray(theta, dtype=np.float64)
        pool = np.ascontiguousarray(pool, dtype=np.float64)
        self.public_contexts: Matrix | None = pool if public else None
        self.spec: dict[str, Any] = {
            "world": world,
            "dim": len(self.theta),
            "pool_size": len(pool),
            "arms": arms,
            "reward_noise": float(reward_noise),
            "key": derive_key(seed, WORLD),
            "pool": pool,
            "theta": self.theta,
            "rare": float(rare),
            "rare_arms": rare_arms,
            "period": float(period),
            "faded": float(faded),
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
        """The next `count` rounds. A public pool is the same array in all of them."""
        parts = []
        end = self._at + count
        while self._at < end:
            pool, shown, rewards, means = self._world.rounds(self._at, end - self._at)
            parts.append(Block(pool, shown, rewards, means))
            self._at += len(shown)
        if not parts:
            return _empty(self.spec["pool"], self.spec["arms"])
        if self.public_contexts is None:
            return _joined(parts)
        return _side_by_side(self.public_contexts, parts, [part.shown for part in parts])


def _joined(parts: list[Block]) -> Block:
    """One block of several that have contexts of their own: they follow one another."""
    first = np.cumsum([0] + [len(part.pool) for part in parts[:-1]])
    shown = [part.shown + offset for part, offset in zip(parts, first, strict=True)]
    return _side_by_side(np.concatenate([part.pool for part in parts]), parts, shown)


def _side_by_side(pool: Matrix, parts: list[Block], shown: list[NDArray[np.int64]]) -> Block:
    return Block(
        pool,
        np.concatenate(shown),
        np.concatenate([part.rewards for part in parts]),
        np.concatenate([part.means for part in parts]),
    )


def _empty(pool: Matrix, arms: int) -> Block:
    numbers = np.empty((0, arms))
    return Block(pool, np.empty((0, arms), dtype=np.int64), numbers, numbers)


def repeated(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Entries that stand further left in the same row already."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    again = np.zeros(rows.shape, dtype=np.bool_)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    found = np.empty_like(again)
    np.put_along_axis(found, order, again, axis=1)
    return found
