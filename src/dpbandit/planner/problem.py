"""What a plan is made for: contexts, a public guess at θ, and how rewards vary. It reads no reward.

Particles stand for the worlds one may meet: each has a θ of its own, drawn from a stated prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import NotFiniteError, OptionError, ShapeError, nearest
from dpbandit.options import positive
from dpbandit.worlds.drawn import repeated

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Shown = NDArray[np.int64]

PRIORS = ("contexts", "round")
# Contexts that are kept of a sample: enough to see their spread, few enough to go through.
MOST_CONTEXTS = 4096
# Standard deviation of mean rewards within a slate under the prior "round", in widths of the range:
# that of the prior of `anytime`.
SPREAD = 1.0 / 16.0
# Rounds that are drawn together.
BLOCK = 2048
# Slates in order: a round is offered one from this share of the sample around its own time.
NEAR = 0.02


@dataclass(frozen=True)
class Problem:
    """One question, with everything that is assumed to answer it.

    `offered` has shape (n, d), or (n, arms, d) for slates.
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

    @property
    def contexts(self) -> Matrix:
        """All contexts of the sample, one a row."""
        return self.offered.reshape(-1, self.dim)

    def public(self) -> Matrix:
        """What algorithms are given where contexts are known: all of them, each once if many."""
        rows = self.contexts
        return rows if len(rows) <= MOST_CONTEXTS else np.unique(rows, axis=0)

    def block(self, particle: int, start: int, count: int) -> tuple[Shown, Matrix, Matrix]:
        """Rounds start, start + 1, … of a particle, from 0: the same for every algorithm.

        `start` is a multiple of BLOCK and `count` at most that. Returns arrays of shape
        (count, arms): rows of `contexts`, what they pay on average, and what they pay.
        """
        rng = np.random.default_rng([self.seed, 2, particle, start // BLOCK])
        noise = self.reward_noise * rng.normal(size=BLOCK)
        if self.offered.ndim == 2:
            shown = distinct(rng, len(self.offered), BLOCK, self.arms)
        else:
            now = self._slates(rng.random(BLOCK), np.arange(start, start + BLOCK))
            shown = self.arms * now[:, None] + np.arange(self.arms)
        means = (self.contexts @ self.thetas[particle])[shown[:count]]
        return np.ascontiguousarray(shown[:count]), means, means + noise[:count, None]

    def _slates(self, lots: Vector, rounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which slate is offered in each round. In order: one of its time or a little beside."""
        total = len(self.offered)
        if not self.in_order:
            return np.asarray((lots * total).astype(np.int64))
        near = max(1.0, NEAR * total)
        low = np.clip(total * rounds / self.rounds - near / 2, 0.0, total - near)
        return np.minimum((low + lots * near).astype(np.int64), total - 1)


def distinct(rng: np.random.Generator, total: int, count: int, arms: int) -> Shown:
    """Rows of different numbers below `total`, all choices equally likely.

    Numbers come up more than once in a row where there are fewer of them than arms.

    >>> rows = distinct(np.random.default_rng(0), 40, 1_000, 8)
    >>> all(len(set(row)) == 8 for row in rows.tolist())
    True
    """
    if total < arms:
        return rng.integers(0, total, size=(count, arms))
    if total <= 4 * arms:
        decks = np.tile(np.arange(total), (count, 1))
        return np.ascontiguousarray(rng.permuted(decks, axis=1)[:, :arms])
    # Whatever came up before is drawn again. That treats all numbers alike, so choices stay equally
    # likely.
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
    """As much of a sample as an algorithm can look through when it is given as public contexts."""
    rows = offered.reshape(-1, offered.shape[-1])
    if len(rows) <= MOST_CONTEXTS or len(np.unique(rows, axis=0)) <= MOST_CONTEXTS:
        return offered
    kept = max(1, MOST_CONTEXTS * len(offered) // len(rows))
    chosen = np.random.default_rng([seed, 5]).choice(len(offered), kept, replace=False)
    return np.ascontiguousarray(offered[np.sort(chosen)])


def sample_of(
    contexts: Any, covariance: Any, dim: int, arms: int, max_norm: float, seed: int
) -> tuple[Matrix, str]:
    """The contexts a plan is made with, and where they come from, in words.

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
    matrix = _numbers("covariance", covariance, f"({dim}, {dim})")
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
    sample = _numbers("contexts", contexts, f"(n, {dim}) or (n, {arms}, {dim})")
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
    if len(sample) > MOST_CONTEXTS:
        sample = sample[np.sort(rng.choice(len(sample), MOST_CONTEXTS, replace=False))]
    return sample, f"a sample of {len(sample):,} {'slates' if slates else 'contexts'}"


def _numbers(what: str, given: Any, shape: str) -> Matrix:
    try:
        found = np.ascontiguousarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError(f"{what} must be an array of numbers of shape {shape}") from None
    if not np.isfinite(found).all():
        raise NotFiniteError(f"{what} must be finite numbers, without NaN or infinity")
    return found


def draw_thetas(
    prior: Any,
    contexts: Matrix,
    *,
    particles: int,
    reward_range: tuple[float, float],
    reward_noise: float,
    reward_spread: float | None,
    seed: int,
) -> tuple[Matrix, str]:
    """One θ for each particle, and the prior in words.

    "contexts": θ points like a context drawn from the sample, as a user's taste is made of the
    features of items. It is scaled so that the best mean reward in the sample lies one reward noise
    below the top of the range.
    "round": Gaussian, alike in all directions. An array gives the θs themselves.
    `reward_spread` sets the standard deviation of mean rewards between contexts instead.
    """
    rng = np.random.default_rng([seed, 1])
    width, dim = reward_range[1] - reward_range[0], contexts.shape[1]
    if not isinstance(prior, str):
        given = np.atleast_2d(_numbers("prior, if it is not a name,", prior, f"(n, {dim})"))
        if given.ndim != 2 or given.shape[1] != dim:
            raise ShapeError(f"an array of θs must have shape (n, {dim}), not {given.shape}")
        chosen = np.arange(particles) % len(given)
        return _spread_out(given[chosen], contexts, reward_spread), f"{len(given)} given θs"
    if prior not in PRIORS:
        raise OptionError(f"no prior is called {prior!r}: {nearest(prior, PRIORS)}")
    if prior == "round":
        spread = SPREAD * width if reward_spread is None else reward_spread
        drawn = rng.normal(size=(particles, dim))
        return _spread_out(
            drawn, contexts, spread
        ), f"θ Gaussian; mean rewards of arms differ by ± {spread:.3g}"
    used = contexts[np.linalg.norm(contexts, axis=1) > 0]
    if len(used) == 0:
        raise OptionError("all contexts are zero: nothing can be learned from them")
    drawn = used[rng.integers(0, len(used), size=particles)]
    if reward_spread is not None:
        words = f"θ shaped like a context; mean rewards of arms differ by ± {reward_spread:.3g}"
        return _spread_out(drawn, contexts, reward_spread), words
    top = max(reward_range[1] - reward_noise, 0.25 * width)
    best = np.maximum((contexts @ drawn.T).max(axis=0), 1e-300)
    return drawn * (top / best)[:, None], f"θ shaped like a context; best mean reward {top:.3g}"


def _spread_out(thetas: Matrix, contexts: Matrix, spread: float | None) -> Matrix:
    """θs scaled so that x·θ has this standard deviation over the sample."""
    if spread is None:
        return thetas
    positive("reward_spread", spread)
    sd = np.maximum((contexts @ thetas.T).std(axis=0), 1e-300)
    return np.asarray(thetas * (spread / sd)[:, None])
