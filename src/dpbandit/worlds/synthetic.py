"""The paper's simulation (section 5 of Wang, Zhao & Wang 2022), exactly as read in docs/paper.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpbandit.worlds.block import Block
from dpbandit.worlds.pieces import PIECE, Pieces, distinct


class Synthetic:
    """Arms and θ* with coordinates U(0, 1), each divided by its norm; some arms shown each round; Gaussian reward noise.

    Every seed draws its own arms, θ*, rounds and reward noise; all algorithms of a seed see the same ones.

    >>> episode = Synthetic().episode(seed=0)
    >>> block = episode.block(3)
    >>> block.shown.shape, episode.public_contexts.shape
    ((3, 10), (1000, 10))
    """

    rounds = None

    def __init__(self, arms: int = 1000, dim: int = 10, shown: int = 10, reward_noise: float = 0.5) -> None:
        if not 1 <= shown <= arms or dim < 1:
            raise ValueError(f"Synthetic needs 1 ≤ shown ≤ arms and dim ≥ 1, not shown={shown}, arms={arms}, dim={dim}")
        if not 0 <= reward_noise < np.inf:
            raise ValueError(f"reward_noise must be a finite number of at least 0, not {reward_noise!r}")
        self.pool_size, self.dim, self.arms, self.reward_noise = arms, dim, shown, reward_noise

    def episode(self, seed: int) -> SyntheticEpisode:
        """A fresh start from this seed."""
        return SyntheticEpisode(self, seed)

    def __repr__(self) -> str:
        return (
            f"Synthetic(arms={self.pool_size}, dim={self.dim}, shown={self.arms}, reward_noise={self.reward_noise:g})"
        )


class SyntheticEpisode:
    """One seed's run."""

    def __init__(self, world: Synthetic, seed: int) -> None:
        setup = np.random.default_rng([seed, 0])
        pool = setup.uniform(size=(world.pool_size, world.dim))
        theta = setup.uniform(size=world.dim)
        self._world, self._seed = world, seed
        self.public_contexts: NDArray[np.float64] = pool / np.linalg.norm(pool, axis=1, keepdims=True)
        self.theta: NDArray[np.float64] = theta / np.linalg.norm(theta)
        self._arm_means = self.public_contexts @ self.theta
        self._rounds = Pieces(self._piece)

    def _piece(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        rng, world = np.random.default_rng([self._seed, 1, number]), self._world
        shown = distinct(rng, world.pool_size, rows=PIECE, shown=world.arms)
        return shown, rng.normal(0.0, world.reward_noise, size=PIECE)

    def block(self, count: int) -> Block:
        """The next `count` rounds."""
        from dpbandit.worlds.kernels import pay

        shown, noise = self._rounds.take(count)
        means, rewards = np.empty(shown.shape), np.empty(shown.shape)
        pay(self._arm_means, np.ascontiguousarray(shown), noise, means, rewards)
        return Block(self.public_contexts, shown, rewards, means)
