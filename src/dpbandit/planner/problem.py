"""The problem of a plan: contexts, a public guess at θ, and the variance of rewards. It reads no
reward.

Particles are sampled problems: each has its own θ, drawn from a stated prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import NotFiniteError, OptionError, ShapeError
from dpbandit.types import Matrix, Vector
from dpbandit.worlds.clicks import logistic
from dpbandit.worlds.drawn import repeated

Shown = NDArray[np.int64]

# Contexts kept of a sample: enough to show their spread, few enough to search.
MOST_CONTEXTS = 4096
# Rounds drawn together.
BLOCK = 2048
# Slates in order: a round is offered one from this share of the sample around its own time.
NEAR = 0.02


@dataclass(frozen=True)
class Problem:
    """One question, with all assumptions needed to answer it.

    `offered` has shape (n, d), or (n, arms, d) for slates. If `bases` are given, one per particle,
    rewards are clicks: 0 or the top of the range, with probability logistic(base + x·θ).
    """

    dim: int
    arms: int
    rounds: int
    reward_range: tuple[float, float]
    reward_noise: float
    offered: Matrix
    in_order: bool
    thetas: Matrix
    seed: int
    bases: Vector | None = None

    @property
    def contexts(self) -> Matrix:
        """All contexts of the sample, one a row."""
        return self.offered.reshape(-1, self.dim)

    def public(self) -> Matrix:
        """The contexts that algorithms get if they are known: all, without repeats if many."""
        rows = self.contexts
        return rows if len(rows) <= MOST_CONTEXTS else np.unique(rows, axis=0)

    def block(self, particle: int, start: int, count: int) -> tuple[Shown, Matrix, Matrix]:
        """Rounds start, start + 1, … of a particle, counted from 0: the same for every algorithm.

        `start` is a multiple of BLOCK, and `count` at most BLOCK. Returns arrays of shape
        (count, arms): rows of `contexts`, their mean rewards, and their rewards.
        """
        rng = np.random.default_rng([self.seed, 2, particle, start // BLOCK])
        clicks = self.bases is not None
        luck = rng.random(BLOCK) if clicks else self.reward_noise * rng.normal(size=BLOCK)
        if self.offered.ndim == 2:
            shown = distinct(rng, len(self.offered), BLOCK, self.arms)
        else:
            now = self._slates(rng.random(BLOCK), np.arange(start, start + BLOCK))
            shown = self.arms * now[:, None] + np.arange(self.arms)
        means = self.means(particle)[shown[:count]]
        luck = luck[:count, None]
        top = self.reward_range[1]
        # One random number decides the clicks on all shown arms, as it does their noise.
        rewards: Matrix = np.where(luck < means / top, top, 0.0) if clicks else means + luck
        return np.ascontiguousarray(shown[:count]), means, rewards

    def means(self, particle: int) -> Vector:
        """Each context's mean reward."""
        scores = self.contexts @ self.thetas[particle]
        if self.bases is None:
            return np.asarray(scores)
        return self.reward_range[1] * logistic(self.bases[particle] + scores)

    @cached_property
    def best_rate(self) -> float:
        """How often the best arm of a slate is clicked, over all particles."""
        found = [self.block(p, 0, 256)[1].max(axis=1).mean() for p in range(len(self.thetas))]
        return float(np.mean(found)) / self.reward_range[1]

    def _slates(self, lots: Vector, rounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slate offered in each round. In order: one close to the round's own time."""
        total = len(self.offered)
        if not self.in_order:
            return np.asarray((lots * total).astype(np.int64))
        near = max(1.0, NEAR * total)
        low = np.clip(total * rounds / self.rounds - near / 2, 0.0, total - near)
        return np.minimum((low + lots * near).astype(np.int64), total - 1)


def distinct(rng: np.random.Generator, total: int, count: int, arms: int) -> Shown:
    """Rows of different numbers below `total`, all choices equally likely.

    Numbers repeat within a row if there are fewer of them than arms.

    >>> rows = distinct(np.random.default_rng(0), 40, 1_000, 8)
    >>> all(len(set(row)) == 8 for row in rows.tolist())
    True
    """
    if total < arms:
        return rng.integers(0, total, size=(count, arms))
    if total <= 4 * arms:
        decks = np.tile(np.arange(total), (count, 1))
        return np.ascontiguousarray(rng.permuted(decks, axis=1)[:, :arms])
    # Redraw repeated numbers. That treats all numbers alike, so choices stay equally likely.
    found = rng.integers(0, total, size=(count, arms))
    todo = np.arange(count)
    while True:
        ordered = np.sort(found[todo], axis=1)
        todo = todo[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        if len(todo) == 0:
            return found
        rows = found[todo]
        again = repeated(rows)
        rows[again] = rng.integers(0, total, size=int(again.sum()))
        found[todo] = rows


def known_sample(offered: Matrix, seed: int) -> Matrix:
    """As much of a sample as an algorithm can search when it gets it as public contexts."""
    rows = offered.reshape(-1, offered.shape[-1])
    if len(rows) <= MOST_CONTEXTS or len(np.unique(rows, axis=0)) <= MOST_CONTEXTS:
        return offered
    kept = max(1, MOST_CONTEXTS * len(offered) // len(rows))
    chosen = np.random.default_rng([seed, 5]).choice(len(offered), kept, replace=False)
    return np.ascontiguousarray(offered[np.sort(chosen)])


def sample_of(
    contexts: Any, covariance: Any, dim: int, arms: int, max_norm: float, seed: int
) -> tuple[Matrix, str]:
    """The contexts of a plan, and their origin in words.

    >>> offered, words = sample_of(None, None, dim=2, arms=3, max_norm=1.0, seed=0)
    >>> offered.shape, words
    ((4096, 2), "assumed: features U(0, 1), scaled to max_norm, as in the paper's simulation")
    """
    rng = np.random.default_rng([seed, 0])
    if contexts is not None and covariance is not None:
        raise OptionError("give a sample of contexts or their covariance, not both")
    if contexts is not None:
        return _checked(contexts, dim, arms, max_norm, rng)
    if covariance is None:
        drawn = rng.uniform(size=(MOST_CONTEXTS, dim))
        words = "assumed: features U(0, 1), scaled to max_norm, as in the paper's simulation"
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * max_norm, words
    matrix = numbers_of("covariance", covariance, f"({dim}, {dim})")
    if matrix.shape != (dim, dim):
        raise ShapeError(f"covariance must have shape ({dim}, {dim}), not {matrix.shape}")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if values[0] < -1e-9 * max(values[-1], 1e-300) or values[-1] <= 0:
        raise OptionError("covariance must be positive semi-definite and not zero")
    drawn = rng.normal(size=(MOST_CONTEXTS, dim)) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    drawn *= np.minimum(1.0, max_norm / np.linalg.norm(drawn, axis=1, keepdims=True))
    return drawn, "assumed: Gaussian with the given covariance, cut at max_norm"


def _checked(
    contexts: Any, dim: int, arms: int, max_norm: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], str]:
    sample = numbers_of("contexts", contexts, f"(n, {dim}) or (n, {arms}, {dim})")
    slates = sample.ndim == 3
    if sample.shape[1:] != ((arms, dim) if slates else (dim,)) or len(sample) == 0:
        raise ShapeError(
            f"contexts must have shape (n, {dim}), or (n, {arms}, {dim}) for slates, not "
            f"{sample.shape}"
        )
    longest = float(np.linalg.norm(sample, axis=-1).max())
    if longest > max_norm * (1 + 1e-9):
        raise OptionError(
            f"a context has norm {longest:.6g}, above max_norm = {max_norm:g}: scale it, or raise "
            "max_norm"
        )
    given, more = len(sample), ""
    if not slates:
        # A log repeats its articles many times; a round offers each of them once.
        _, first = np.unique(sample, axis=0, return_index=True)
        sample = sample[np.sort(first)]
        if len(sample) < given:
            more = f", {len(sample):,} of them different: each counts once"
    if len(sample) > MOST_CONTEXTS:
        sample = sample[np.sort(rng.choice(len(sample), MOST_CONTEXTS, replace=False))]
        given, more = len(sample), ""
    return sample, f"a sample of {given:,} {'slates' if slates else 'contexts'}{more}"


def numbers_of(what: str, given: Any, shape: str) -> Matrix:
    try:
        found = np.ascontiguousarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError(f"{what} must be an array of numbers of shape {shape}") from None
    if not np.isfinite(found).all():
        raise NotFiniteError(f"{what} must be finite numbers, without NaN or infinity")
    return found
