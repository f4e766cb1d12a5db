"""The paper's simulation (section 5 of Wang, Zhao & Wang 2022), exactly as read in docs/paper.md."""

from __future__ import annotations

import numpy as np

from dpbandit.worlds.drawn import DrawnEpisode, DrawnWorld


class Synthetic(DrawnWorld):
    """Arms and θ* with coordinates U(0, 1), each divided by its norm; some arms shown each round; Gaussian reward noise.

    Every seed draws its own arms, θ*, rounds and reward noise; all algorithms of a seed see the same ones.

    >>> episode = Synthetic().episode(seed=0)
    >>> block = episode.block(3)
    >>> block.shown.shape, episode.public_contexts.shape
    ((3, 10), (1000, 10))
    """

    def episode(self, seed: int) -> DrawnEpisode:
        """A fresh start from this seed."""
        setup = np.random.default_rng([seed, 0])
        pool = setup.uniform(size=(self.pool_size, self.dim))
        theta = setup.uniform(size=self.dim)
        return DrawnEpisode(
            "synthetic",
            seed,
            pool=pool / np.linalg.norm(pool, axis=1, keepdims=True),
            theta=theta / np.linalg.norm(theta),
            arms=self.arms,
            reward_noise=self.reward_noise,
        )
