"""Arms without features, with 0/1 or Gaussian rewards: the worlds of multi-armed bandits, with
one-hot contexts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.worlds.drawn import DrawnEpisode


class Bernoulli:
    """Every round offers all arms; arm a pays 1 with probability `means[a]` and 0 otherwise.

    A context is a row of the identity matrix: it names its arm and says nothing else, so `dim` is the number of arms, and
    θ* is the vector of means. Without `means` every seed draws its own, U(0, 1), for as many arms as `arms` says (10).
    Rewards of different arms and rounds are independent. Make private bandits with reward_range=(0, 1).

    >>> episode = Bernoulli(means=[0.2, 0.8]).episode(seed=0)
    >>> block = episode.block(4)
    >>> block.pool.tolist(), block.rewards.tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    """

    rounds = None
    reward_range = (0.0, 1.0)

    def __init__(self, arms: int | None = None, *, means: ArrayLike | None = None) -> None:
        self.means: NDArray[np.float64] | None = None
        if means is not None:
            self.means = np.array(means, dtype=np.float64)
            if (
                self.means.ndim != 1
                or len(self.means) == 0
                or not ((self.means >= 0) & (self.means <= 1)).all()
            ):
                raise ValueError(
                    f"means must be a list of probabilities, one for each arm, not {means!r}"
                )
            if arms not in (None, len(self.means)):
                raise ValueError(
                    f"there are {len(self.means)} means: arms must be that number or omitted, not {arms!r}"
                )
        self.arms = (10 if arms is None else arms) if self.means is None else len(self.means)
        if self.arms < 1:
            raise ValueError(f"Bernoulli needs at least one arm, not arms={arms!r}")
        self.dim = self.arms

    def episode(self, seed: int) -> DrawnEpisode:
        """A fresh start from this seed."""
        theta = self.means
        if theta is None:
            theta = np.random.default_rng([seed, 0]).uniform(size=self.arms)
        return DrawnEpisode(
            "bernoulli", seed, pool=np.eye(self.arms), theta=theta.copy(), arms=self.arms
        )

    def __repr__(self) -> str:
        given = f"arms={self.arms}" if self.means is None else f"means={self.means.tolist()}"
        return f"Bernoulli({given})"


class Gaussian:
    """The same with rewards N(`means[a]`, `reward_noise`²). Without `means` every seed draws its own, U(0, 0.6).

    The noise of a round is the same for all arms, as in the paper's simulation. For private bandits reward_range=(-0.5, 1.5)
    clips 5% of the rewards of the best of 20 arms.

    >>> Gaussian(means=[0.5, 0.25], reward_noise=0.0).episode(seed=0).block(1).rewards.max().item()
    0.5
    """

    rounds = None
    reward_range = (-0.5, 1.5)

    def __init__(
        self, arms: int = 20, *, means: ArrayLike | None = None, reward_noise: float = 0.5
    ) -> None:
        self.means = None if means is None else np.array(means, dtype=np.float64)
        if self.means is not None and not (
            self.means.ndim == 1 and len(self.means) and np.isfinite(self.means).all()
        ):
            raise ValueError(f"means must be a list of numbers, one for each arm, not {means!r}")
        self.arms = self.dim = arms if self.means is None else len(self.means)
        if self.arms < 1:
            raise ValueError(f"Gaussian needs at least one arm, not arms={arms!r}")
        if not 0 <= reward_noise < math.inf:
            raise ValueError(
                f"reward_noise must be a finite number of at least 0, not {reward_noise!r}"
            )
        self.reward_noise = reward_noise

    def episode(self, seed: int) -> DrawnEpisode:
        """A fresh start from this seed."""
        theta = self.means
        if theta is None:
            theta = np.random.default_rng([seed, 0]).uniform(0, 0.6, size=self.arms)
        return DrawnEpisode(
            "synthetic",
            seed,
            pool=np.eye(self.arms),
            theta=theta.copy(),
            arms=self.arms,
            reward_noise=self.reward_noise,
        )

    def __repr__(self) -> str:
        given = f"arms={self.arms}" if self.means is None else f"means={self.means.tolist()}"
        return f"Gaussian({given}, reward_noise={self.reward_noise:g})"
