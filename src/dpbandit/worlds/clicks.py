"""Rewards that are clicks, 0 or 1: at real click rates, and as a logistic function of contexts. Not in the paper."""

from __future__ import annotations

import math

import numpy as np

from dpbandit.types import Vector
from dpbandit.worlds.drawn import DrawnEpisode

# Arms that stand for a fresh draw in every round of `Logistic`: no learner here knows one again.
FRESH = 100_000


def logistic(score: Vector) -> Vector:
    """1/(1 + e^−s)."""
    return np.asarray(1.0 / (1.0 + np.exp(-score)))


class Clicks:
    """Articles with features, some shown each round; the click probability is logistic in the
    features.

    An article has `dim` − 1 features N(0, 1) and a constant; contexts are divided by the longest
    one's norm. Its click probability is logistic(b + `spread`·s). Here s is linear in the features,
    with mean 0 and variance 1 over all articles, along a direction that every seed draws, and b
    makes `rate` the mean probability. With `one_hot` articles have no features, all are shown in
    every round, and s is N(0, 1) before centring and scaling. One uniform number per round decides
    the clicks on all shown articles. The articles are public. Make private bandits with
    reward_range=(0, 1) and, if they have it, rewards="clicks".

    >>> block = Clicks(rate=0.02).episode(seed=0).block(10_000)
    >>> float(block.means.mean().round(4)), float(block.means.max().round(3)), np.unique(block.rewards).tolist()
    (0.02, 0.079, [0.0, 1.0])
    """

    rounds = None
    reward_range = (0.0, 1.0)

    def __init__(
        self,
        rate: float = 0.02,
        *,
        arms: int = 1000,
        dim: int = 10,
        shown: int = 10,
        spread: float = 0.5,
        one_hot: bool = False,
    ) -> None:
        if not 0 < rate < 1:
            raise ValueError(f"rate must lie strictly between 0 and 1, not {rate!r}")
        if not 0 <= spread < math.inf:
            raise ValueError(f"spread must be a finite number of at least 0, not {spread!r}")
        if one_hot:
            dim = shown = arms
        if not 1 <= shown <= arms or dim < 2:
            raise ValueError(
                f"Clicks needs 1 ≤ shown ≤ arms and dim ≥ 2, not shown={shown}, arms={arms}, dim={dim}"
            )
        self.rate, self.pool_size, self.dim, self.arms = rate, arms, dim, shown
        self.spread, self.one_hot = spread, one_hot

    def episode(self, seed: int) -> DrawnEpisode:
        """A fresh start from this seed."""
        setup = np.random.default_rng([seed, 0])
        if self.one_hot:
            pool, score = np.eye(self.pool_size), setup.normal(size=self.pool_size)
        else:
            features = setup.normal(size=(self.pool_size, self.dim - 1))
            direction = setup.normal(size=self.dim - 1)
            score = features @ (direction / np.linalg.norm(direction))
            constant = np.ones((self.pool_size, 1))
            pool = np.concatenate([constant, features / math.sqrt(self.dim - 1)], axis=1)
            pool /= np.linalg.norm(pool, axis=1).max()
        scaled = self.spread * (score - score.mean()) / (score.std() or 1.0)
        chances = logistic(scaled + self._bias(scaled))
        return DrawnEpisode("clicks", seed, pool=pool, chances=chances, arms=self.arms)

    def _bias(self, scaled: Vector) -> float:
        """b, by bisection."""
        low, high = -60.0, 60.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (
                (low, middle) if logistic(scaled + middle).mean() > self.rate else (middle, high)
            )
        return low

    def __repr__(self) -> str:
        return (
            f"Clicks(rate={self.rate:g}, arms={self.pool_size}, dim={self.dim}, shown={self.arms}, "
            f"spread={self.spread:g}, one_hot={self.one_hot})"
        )


class Logistic:
    """The logistic environment of arXiv 2602.00417: contexts uniform in the unit ball, click
    probability logistic(x·θ*).

    θ* has coordinates U(−1, 1), scaled to norm `norm`. A round shows `shown` contexts from a pool
    of 100,000, which stands for fresh draws; none is known before it is offered. Every seed draws
    its own θ*, whereas that paper keeps one. Regret is in click probability.

    >>> block = Logistic(norm=3.0).episode(seed=0).block(5_000)
    >>> block.shown.shape, float(block.means.max(axis=1).mean().round(2))
    ((5000, 20), 0.9)
    """

    rounds = None
    reward_range = (0.0, 1.0)

    def __init__(self, norm: float = 3.0, *, dim: int = 3, shown: int = 20) -> None:
        if not 0 <= norm < math.inf:
            raise ValueError(f"norm must be a finite number of at least 0, not {norm!r}")
        if not 1 <= shown <= FRESH or dim < 1:
            raise ValueError(
                f"Logistic needs shown from 1 to {FRESH:,} and dim ≥ 1, not shown={shown}, dim={dim}"
            )
        self.norm, self.dim, self.arms = norm, dim, shown

    def episode(self, seed: int) -> DrawnEpisode:
        """A fresh start from this seed."""
        setup = np.random.default_rng([seed, 0])
        theta = setup.uniform(-1, 1, size=self.dim)
        pool = setup.normal(size=(FRESH, self.dim))
        length = setup.uniform(size=(FRESH, 1)) ** (1 / self.dim)
        pool *= length / np.linalg.norm(pool, axis=1, keepdims=True)
        chances = logistic(pool @ theta * (self.norm / np.linalg.norm(theta)))
        return DrawnEpisode(
            "clicks", seed, pool=pool, chances=chances, arms=self.arms, public=False
        )

    def __repr__(self) -> str:
        return f"Logistic(norm={self.norm:g}, dim={self.dim}, shown={self.arms})"
