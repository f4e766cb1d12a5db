"""With which probability each arm would be played: for Thompson sampling and random play, the only rules here that draw lots.

It is computed from the released parameter and the public Gram matrix, so it costs no privacy: post-processing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpbandit.errors import PropensityError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Draws × arms held at a time: 8 MB in each of a few arrays.
CHUNK = 1 << 20


class Propensities(NamedTuple):
    """The probability of each arm, and the standard error with which it was computed: 0 where a formula gives it."""

    probabilities: Vector
    standard_errors: Vector


def of_model(released: dict[str, Any], contexts: Matrix, *, name: str, draws: int, seed: int | None) -> Propensities:
    """The propensities of a released model, as `Bandit._released` describes it."""
    if released["plays_at_random"]:
        return Propensities(np.full(len(contexts), 1 / len(contexts)), np.zeros(len(contexts)))
    if not released.get("draws_from_posterior", False):
        raise PropensityError(
            f"{name} has no propensities: it plays the arm with the highest bound, so one arm has probability 1 and all others 0, "
            "and its log cannot say what another arm would have earned. 'private-ts' has them; or play another arm with a "
            "known probability yourself, and log that"
        )
    covariance = float(released["alpha"]) ** 2 * np.asarray(released["inverse_gram"], dtype=np.float64)
    return thompson(np.asarray(released["theta"], dtype=np.float64), covariance, contexts, draws=draws, seed=seed)


def thompson(theta: Vector, covariance: Matrix, contexts: Matrix, *, draws: int, seed: int | None) -> Propensities:
    """How likely each row scores highest under θ' ~ N(θ, Σ). Equal rows share evenly, as `select` breaks ties by lot.

    One or two different rows: exactly. More: θ' = θ + L(z + s·u) with a random direction u, z orthogonal to it and s normal.
    Given z and u the scores are straight lines in s, so each row is highest on one interval, whose normal probability is
    known. Their mean over draws of (z, u) is unbiased, with less variance than counting winners (Rao and Blackwell).

    >>> far = thompson(np.array([1.0, 0.0]), 0.5 * np.eye(2), np.eye(2), draws=1, seed=0)
    >>> far.probabilities.round(4).tolist(), far.standard_errors.tolist()
    ([0.8413, 0.1587], [0.0, 0.0])
    """
    rows, where, counts = np.unique(contexts, axis=0, return_inverse=True, return_counts=True)
    where, share = where.ravel(), 1.0 / counts
    if len(rows) == 1:
        chances, errors = np.ones(1), np.zeros(1)
    elif len(rows) == 2:
        apart = rows[0] - rows[1]
        spread = float(np.sqrt(max(apart @ covariance @ apart, 0.0)))
        lead = float(apart @ theta)
        first = float(ndtr(lead / spread)) if spread > 0 else 0.5 + 0.5 * np.sign(lead)
        chances, errors = np.array([first, 1.0 - first]), np.zeros(2)
    else:
        chances, errors = _by_lines(rows @ theta, rows @ _root(covariance), draws, np.random.default_rng(seed))
    return Propensities((chances * share)[where], (errors * share)[where])


def _root(covariance: Matrix) -> Matrix:
    """L with LLᵀ = Σ; by eigenvalues, which also takes a matrix that rounding left a hair from positive."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root: Matrix = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def _by_lines(means: Vector, loadings: Matrix, draws: int, rng: np.random.Generator) -> tuple[Vector, Vector]:
    k, d = loadings.shape
    total, squares = np.zeros(k), np.zeros(k)
    step = max(1, CHUNK // k)
    for start in range(0, draws, step):
        count = min(step, draws - start)
        u = rng.normal(size=(count, d))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        z = rng.normal(size=(count, d))
        z -= (z * u).sum(axis=1, keepdims=True) * u
        heights, slopes = means + z @ loadings.T, u @ loadings.T
        for arm in range(k):
            lead = heights - heights[:, arm : arm + 1]  # how far the others are ahead at s = 0
            gain = slopes[:, arm : arm + 1] - slopes  # and how fast this arm catches up
            with np.errstate(divide="ignore", invalid="ignore"):
                crossing = lead / gain
            low = np.where(gain > 0, crossing, -np.inf).max(axis=1)
            high = np.where(gain < 0, crossing, np.inf).min(axis=1)
            never = ((gain == 0) & (lead > 0)).any(axis=1)
            chance = np.where(never, 0.0, np.maximum(ndtr(high) - ndtr(low), 0.0))
            total[arm] += chance.sum()
            squares[arm] += (chance**2).sum()
    chances = total / draws
    variance = np.maximum(squares / draws - chances**2, 0.0) * draws / max(draws - 1, 1)
    errors = np.sqrt(variance / draws) if draws > 1 else np.full(k, np.nan)
    return chances, errors
