"""The prior of θ, before the first reward: drawn once per particle, and described in words.

"contexts": θ points like a context drawn from the sample, as a user's taste is made of the features
of items. "round": Gaussian, equal in all directions. An array gives the θs themselves.

In a catalogue contexts say nothing about each other; one-hot ones are an example. A θ like one of
them would pay for a single article, so there each article has a mean reward of its own. In the same
way θ has a part for each block of features that shares no context with another block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import OptionError, ShapeError, nearest
from dpbandit.options import positive
from dpbandit.planner.problem import MOST_CONTEXTS, numbers_of
from dpbandit.types import Matrix, Vector
from dpbandit.worlds.clicks import logistic

PRIORS = ("contexts", "round")
# Standard deviation of mean rewards within a slate under the prior "round", in widths of the range:
# that of the prior of `anytime`.
SPREAD = 1.0 / 16.0
# The same of the logarithm of a click's odds: that of `worlds.Clicks`.
LOGIT_SPREAD = 0.5


def draw_thetas(
    prior: Any,
    contexts: Matrix,
    *,
    particles: int,
    reward_range: tuple[float, float],
    reward_noise: float,
    reward_spread: float | None,
    seed: int,
    level: float | None = None,
) -> tuple[Matrix, str]:
    """One θ per particle for numeric rewards, and the prior in words.

    With "contexts" the best mean reward in the sample lies one reward noise below the top of the
    range; in a catalogue mean rewards are uniform to within one reward noise of both ends.
    `reward_spread` sets the standard deviation of mean rewards between contexts instead; those of a
    catalogue lie around `level`, the middle of the range if it is not given.
    """
    rng = np.random.default_rng([seed, 1])
    (low, high), width = reward_range, reward_range[1] - reward_range[0]
    articles = distinct_rows(contexts)
    own = prior_of(prior) == "contexts" and is_catalogue(articles)
    if own and reward_spread is None:
        edge = min(reward_noise, 0.375 * width)
        means = rng.uniform(low + edge, high - edge, size=(particles, len(articles)))
        words = f"{len(articles)} contexts, each with a mean reward of its own"
        span = f", U({low + edge:.3g}, {high - edge:.3g})"
        return means @ np.linalg.pinv(articles).T, words + span
    if own and reward_spread is not None:
        spread = positive("reward_spread", reward_spread)
        centre = (low + high) / 2 if level is None else level
        means = rng.normal(centre, spread, size=(particles, len(articles)))
        words = f"{len(articles)} contexts, each with a mean reward of its own"
        return means @ np.linalg.pinv(articles).T, f"{words}, N({centre:.3g}, {spread:.3g}²)"
    drawn, words = directions(prior, contexts, own, particles, rng)
    if prior_of(prior) == "round" and reward_spread is None:
        reward_spread = SPREAD * width
    if reward_spread is not None:
        words += (
            f"; mean rewards of arms differ by ± {positive('reward_spread', reward_spread):.3g}"
        )
        return spread_out(drawn, contexts, reward_spread), words
    if prior_of(prior) == "given":
        return drawn, words
    top = max(high - reward_noise, 0.25 * width)
    best = np.maximum((contexts @ drawn.T).max(axis=0), 1e-300)
    return drawn * (top / best)[:, None], f"{words}; best mean reward {top:.3g}"


def draw_clicks(
    prior: Any,
    contexts: Matrix,
    *,
    particles: int,
    rate: float,
    reward_spread: float | None,
    seed: int,
) -> tuple[Matrix, Vector, str]:
    """A θ and a base per particle: a click has probability logistic(base + x·θ), `rate` on average.

    The log-odds differ by ± ½ between contexts; with `reward_spread` the probabilities differ by
    about that much. Given θs stay as they are.
    """
    rng = np.random.default_rng([seed, 1])
    own = prior_of(prior) == "contexts" and is_catalogue(distinct_rows(contexts))
    thetas, words = directions(prior, contexts, own, particles, rng)
    if reward_spread is not None:
        wanted = positive("reward_spread", reward_spread) / (rate * (1 - rate))
        thetas = spread_out(thetas, contexts, wanted)
    elif prior_of(prior) != "given":
        thetas = spread_out(thetas, contexts, LOGIT_SPREAD)
    some = contexts[:: max(1, len(contexts) // MOST_CONTEXTS)]
    scores = some @ thetas.T
    low, high = np.full(particles, -60.0) - scores.max(axis=0), 60.0 - scores.min(axis=0)
    for _ in range(60):
        middle = (low + high) / 2
        above = logistic(middle + scores).mean(axis=0) > rate
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    sd = float(logistic(low + scores).std(axis=0).mean())
    words += (
        f"; click probability is logistic in x·θ, {rate:.3g} on average, ± {sd:.2g} between arms"
    )
    return thetas, low, words


def prior_of(prior: Any) -> str:
    """The kind of prior: a name, or "given"."""
    if not isinstance(prior, str):
        return "given"
    if prior not in PRIORS:
        raise OptionError(f"no prior is called {prior!r}: {nearest(prior, PRIORS)}")
    return prior


def directions(
    prior: Any, contexts: Matrix, own: bool, particles: int, rng: np.random.Generator
) -> tuple[Matrix, str]:
    """θs before scaling; `own`: those of a catalogue, drawn for each article separately."""
    dim = contexts.shape[1]
    kind = prior_of(prior)
    if kind == "given":
        given = np.atleast_2d(numbers_of("prior, if it is not a name,", prior, f"(n, {dim})"))
        if given.ndim != 2 or given.shape[1] != dim:
            raise ShapeError(f"an array of θs must have shape (n, {dim}), not {given.shape}")
        return given[np.arange(particles) % len(given)], f"{len(given)} given θs"
    if kind == "round" or own:
        words = "each context separately" if own else "θ Gaussian"
        return rng.normal(size=(particles, dim)), words
    used = contexts[np.linalg.norm(contexts, axis=1) > 0]
    if len(used) == 0:
        raise OptionError("all contexts are zero: nothing can be learned from them")
    blocks = blocks_of(used)
    parts = [used[blocks == block] for block in range(blocks.max() + 1)]
    drawn = np.zeros((particles, dim))
    for rows in parts:
        drawn += rows[rng.integers(0, len(rows), size=particles)]
    if len(parts) == 1:
        return drawn, "θ shaped like a context"
    return drawn, f"θ in each of {len(parts)} blocks of features shaped like a context of its own"


def blocks_of(contexts: Matrix) -> NDArray[np.int64]:
    """In which block of features each context lies: two that share a feature are in the same one.

    >>> blocks_of(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0], [0.0, 4.0, 0.0]])).tolist()
    [0, 1, 0]
    """
    from scipy.sparse.csgraph import connected_components

    uses = (contexts != 0).astype(np.float32)
    _, block = connected_components(uses.T @ uses > 0, directed=False)
    _, found = np.unique(block[uses.argmax(axis=1)], return_inverse=True)
    return np.asarray(found, dtype=np.int64)


def distinct_rows(contexts: Matrix) -> Matrix:
    """The distinct rows, if they are no more than dimensions; else none, as this is no
    catalogue."""
    found = np.unique(contexts, axis=0)
    return found if len(found) <= contexts.shape[1] else found[:0]


def is_catalogue(articles: Matrix) -> bool:
    """Whether no context's reward follows from the others': several, linearly independent.

    >>> is_catalogue(np.eye(3)), is_catalogue(np.array([[1.0, 0.0], [2.0, 0.0]]))
    (True, False)
    """
    return len(articles) > 1 and int(np.linalg.matrix_rank(articles)) == len(articles)


def spread_out(thetas: Matrix, contexts: Matrix, spread: float) -> Matrix:
    """θs scaled so that x·θ has this standard deviation over the sample."""
    sd = np.maximum((contexts @ thetas.T).std(axis=0), 1e-300)
    return np.asarray(thetas * (spread / sd)[:, None])
