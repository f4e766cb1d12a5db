"""A reference that is not private and has no line of the library: a logistic bandit.

It joins as anybody's own algorithm does, by `dpb.register`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpbandit as dpb

NAME = "logistic-bandit"
PRIOR = 1.0  # precision of each coordinate of θ
SCALE = 0.5  # of the samples: of 1, ½ and ¼ none is better in all of six worlds (seeds from 10,000)


class LogisticBandit:
    """Thompson sampling on a logistic regression, whose posterior is kept as a Gaussian.

    Each click moves mean and covariance by one Newton step (an extended Kalman filter; Faury and
    others 2022 step likewise). A constant is added to contexts: clicks are rare. No noise.
    """

    claim = None

    def __init__(self, *, dim: int, seed: int | None = None, **_: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.theta: NDArray[np.float64] = np.zeros(dim + 1)
        self.covariance = np.eye(dim + 1) / PRIOR

    def select(self, contexts: NDArray[np.float64]) -> int:
        """The arm with the highest sampled score: scores alone are sampled, not θ."""
        rows = np.column_stack([contexts, np.ones(len(contexts))])
        spread = rows @ self.covariance @ rows.T
        root = np.linalg.cholesky(spread + 1e-9 * np.eye(len(rows)))
        scores = rows @ self.theta + SCALE * root @ self.rng.normal(size=len(rows))
        return int(scores.argmax())

    def update(self, context: NDArray[np.float64], reward: float) -> None:
        """One Newton step on the log-likelihood of this click."""
        row = np.append(context, 1.0)
        along = self.covariance @ row
        chance = 1.0 / (1.0 + math.exp(-float(np.clip(row @ self.theta, -30.0, 30.0))))
        weight = max(chance * (1.0 - chance), 1e-6)
        self.covariance -= np.outer(along, along) * (weight / (1.0 + weight * float(row @ along)))
        self.theta += self.covariance @ row * (reward - chance)


def register() -> None:
    """Make it known; again and again is the same."""
    dpb.register(
        NAME,
        LogisticBandit,
        description="logistic regression, sampled; not private",
        claim="none",
        replace=True,
    )
