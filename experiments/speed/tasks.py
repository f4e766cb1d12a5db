"""The work that is timed: contexts and rewards drawn once, the same for everybody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """Rounds of a linear bandit. `slates[n]` are the contexts of round n; `rewards[n]` pays each of
    its arms.
    """

    name: str
    words: str
    pool: Matrix
    shown: NDArray[np.int64]
    rewards: Matrix
    means: Matrix

    @property
    def dim(self) -> int:
        return int(self.pool.shape[1])

    @property
    def arms(self) -> int:
        return int(self.shown.shape[1])

    def slates(self, count: int) -> list[Matrix]:
        """The first rounds' contexts, each an array of its own, as an application has them."""
        return [np.ascontiguousarray(self.pool[rows]) for rows in self.shown[:count]]


def linear(name: str, *, dim: int, arms: int, pool: int, rounds: int, seed: int = 0) -> Task:
    """Contexts and θ with coordinates U(0, 1) at norm 1, some of a pool shown each round, Gaussian
    noise of 0.5: the paper's.
    """
    rng = np.random.default_rng([seed, dim, arms, pool])
    contexts = rng.uniform(size=(pool, dim))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    theta = rng.uniform(size=dim)
    theta /= np.linalg.norm(theta)
    everything = arms == pool
    shown = (
        np.tile(np.arange(pool), (rounds, 1))
        if everything
        else rng.integers(pool, size=(rounds, arms))
    )
    means = (contexts @ theta)[shown]
    rewards = means + 0.5 * rng.normal(size=(rounds, 1))
    words = f"d = {dim}, " + (f"{arms:,} arms" if everything else f"{arms:,} of {pool:,} arms")
    return Task(name, words, contexts, shown.astype(np.int64), rewards, means)


def w1(rounds: int) -> Task:
    """The paper's simulation."""
    return linear("W1", dim=10, arms=10, pool=1000, rounds=rounds)


def w2(rounds: int) -> Task:
    """A size common in applications."""
    return linear("W2", dim=25, arms=25, pool=1000, rounds=rounds)


def growth(rounds: int = 300) -> list[tuple[str, int, Task]]:
    """(which axis, where on it, task): features from 5 to 500 at 25 arms, arms from 10 to 10⁵ at 10
    features.
    """
    wide = [
        ("features", d, linear(f"d = {d}", dim=d, arms=25, pool=200, rounds=rounds))
        for d in (5, 10, 25, 50, 100, 200, 500)
    ]
    many = [
        (
            "arms",
            k,
            linear(
                f"{k:,} arms", dim=10, arms=k, pool=k, rounds=max(20, min(rounds, 3_000_000 // k))
            ),
        )
        for k in (10, 100, 1_000, 10_000, 100_000)
    ]
    return wide + many
