"""The paper's simulation with seasons: θ* stays, the contexts that are offered drift. Not in the paper; a held-out test."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpbandit.worlds.drawn import DrawnEpisode, DrawnWorld


class Drifting(DrawnWorld):
    """Features come into season one after another: early learning concerns directions that are
    hardly offered later.

    As in `Synthetic`, arms and θ* have coordinates U(0, 1), θ* is divided by its norm, and each round shows some arms drawn
    uniformly. But in round t, from 0, coordinate j (from 0) of every arm is first multiplied by its season's weight,
    `faded` + (1 − `faded`)·(1 + cos 2π(t/`period` − j/`dim`))/2, and only then is the context divided by its norm. A weight
    goes from 1 to `faded` in half a period and back in the other half; `faded=1` is no drift. θ* never changes.

    No context repeats, and none is known before it is offered: there are no public contexts.

    >>> episode = Drifting(period=2000).episode(seed=0)
    >>> for name, start in [("early", 0), ("late", 900)]:
    ...     _ = episode.block(start)
    ...     squares = (episode.block(100).pool ** 2).mean(axis=0)
    ...     print(name, "most weight on features", sorted(squares.argsort()[-3:].tolist()))
    early most weight on features [0, 1, 9]
    late most weight on features [4, 5, 6]
    """

    own = ("period", "faded")

    def __init__(
        self,
        arms: int = 1000,
        dim: int = 10,
        shown: int = 10,
        reward_noise: float = 0.5,
        *,
        period: int = 20_000,  # the paper's 10,000 rounds end at the season opposite to the first
        faded: float = 0.1,  # then half of the features hold 87 % of a context's squared length (measured)
    ) -> None:
        super().__init__(arms, dim, shown, reward_noise)
        if dim < 2:
            raise ValueError(f"Drifting needs dim ≥ 2 (one feature cannot drift), not dim={dim}")
        if not 1 <= period < math.inf:
            raise ValueError(
                f"period must be a number of rounds of at least 1, not {period!r}: take twice the horizon for a drift that "
                "ends opposite to where it began"
            )
        if not 0 <= faded <= 1:
            raise ValueError(
                f"faded must lie between 0 (out of season a feature vanishes) and 1 (no drift), not {faded!r}"
            )
        self.period, self.faded = period, faded

    def weights(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The season's weights of the features, a row for each round counted from 0."""
        time, place = (rounds % self.period)[:, None] / self.period, np.arange(self.dim) / self.dim
        weight = (1 + np.cos(2 * math.pi * (time - place))) / 2
        return np.asarray(self.faded + (1 - self.faded) * weight)

    def episode(self, seed: int) -> DrawnEpisode:
        """A fresh start from this seed."""
        setup = np.random.default_rng([seed, 0])
        items = setup.uniform(size=(self.pool_size, self.dim))
        theta = setup.uniform(size=self.dim)
        return DrawnEpisode(
            "drifting",
            seed,
            pool=items,
            theta=theta / np.linalg.norm(theta),
            arms=self.arms,
            public=False,
            reward_noise=self.reward_noise,
            period=self.period,
            faded=self.faded,
        )
