"""Streams of played contexts to try a mechanism on: ordinary, degenerate, and searched for.

A mechanism's claim must hold on every one of them: contexts are public and an adversary may choose
them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpbandit.types import Matrix


def families(
    dim: int, horizon: int, seed: int, max_norm: float = 1.0, l1_limit: float | None = None
) -> dict[str, Matrix]:
    """Streams that break mechanisms in different ways: (horizon, dim), norms at most `max_norm`.

    >>> sorted(families(3, 16, 0))[:3]
    ['all equal', 'late direction', 'one direction, small then large']
    """
    rng = np.random.default_rng([seed, dim, horizon])
    first = np.eye(dim)[0]
    equal = np.tile(first, (horizon, 1))
    growing = equal * np.where(np.arange(horizon) < horizon // 4, 0.02, 1.0)[:, None]
    random = rng.normal(size=(horizon, dim))
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    # the first coordinate is never explored until the end, where a reward moves θ as much as in
    # round 1
    late = random.copy()
    late[:, 0] = 0.0
    late /= np.maximum(np.linalg.norm(late, axis=1, keepdims=True), 1e-300)
    late[-max(1, horizon // 64) :] = first
    signs = rng.choice([-1.0, 1.0], size=(horizon, dim)) / np.sqrt(dim)
    unit = {
        "random directions": random,
        "all equal": equal,
        "one direction, small then large": growing,
        "late direction": late,
        "spread over all coordinates": signs,
        # squares of these are lost to floats
        "vanishing": random * 10.0 ** -np.linspace(100, 320, horizon)[:, None],
    }
    return {label: within(xs * max_norm, max_norm, l1_limit) for label, xs in unit.items()}


def only(dim: int) -> Matrix:
    """One known context of length 1, along no axis: all other directions stay unexplored.

    >>> only(2).round(3).tolist()
    [[0.447, 0.894]]
    """
    along = np.arange(1.0, dim + 1)
    return np.ascontiguousarray(along[None, :] / np.linalg.norm(along))


def within(xs: Matrix, max_norm: float, l1_limit: float | None) -> Matrix:
    """The contexts, shortened where a bandit would refuse them."""
    lengths: Matrix = np.linalg.norm(xs, axis=1, keepdims=True) / max_norm
    if l1_limit is not None:
        lengths = np.maximum(lengths, np.abs(xs).sum(axis=1, keepdims=True) / l1_limit)
    # Known contexts stay the same bit for bit.
    return np.where(lengths > 1 + 1e-12, xs / np.maximum(lengths, 1.0), xs)


def search(
    cost: Callable[[Matrix], float], start: list[Matrix], *, tries: int, seed: int
) -> Matrix:
    """Contexts that make `cost` large, by hill climbing from the costliest of `start`."""
    rng = np.random.default_rng(seed)
    best = max(start, key=cost)
    highest = cost(best)
    for _ in range(tries):
        candidate = _vary(best, rng)
        value = cost(candidate)
        if value >= highest:
            best, highest = candidate, value
    return best


def _vary(xs: Matrix, rng: np.random.Generator) -> Matrix:
    """Change one stretch of the stream: shrink it, turn it, repeat it, or swap it."""
    horizon, dim = xs.shape
    varied = xs.copy()
    start = int(rng.integers(horizon))
    stop = min(horizon, start + 1 + int(rng.geometric(4 / horizon)))
    match int(rng.integers(5)):
        case 0:
            varied[start:stop] *= rng.choice([0.0, 0.02, 0.1, 0.5])
        case 1:
            varied[start:stop] = np.eye(dim)[rng.integers(dim)] * rng.choice([-1.0, 1.0, 0.1])
        case 2:
            direction = rng.normal(size=dim)
            varied[start:stop] = direction / np.linalg.norm(direction)
        case 3:
            varied[start:stop] = varied[rng.integers(horizon)]
        case _:
            lengths = np.linalg.norm(varied[start:stop], axis=1, keepdims=True)
            varied[start:stop] = varied[start:stop] / np.maximum(lengths, 1e-12)
    return varied


def turned(xs: Matrix, max_norm: float, angles: int = 33) -> Matrix:
    """For each context: it turned by many angles at full length, it reversed, and nothing.

    The shape is (contexts, angles + 2, dim).

    >>> (turned(np.array([[1.0, 0.0]]), 1.0, angles=3).round(6) + 0.0).tolist()
    [[[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]]
    """
    rounds, dim = xs.shape
    # Divided by the largest entry first: squares of small ones vanish. What is left of numbers near
    # the end of floats has no direction to speak of.
    largest = np.abs(xs).max(axis=1, keepdims=True)
    sized = np.where(largest > 1e-300, xs / np.maximum(largest, 1e-300), np.eye(dim)[0])
    along = sized / np.linalg.norm(sized, axis=1, keepdims=True)
    # Away from the coordinate in which the context is smallest: a direction that is never parallel
    # to it.
    across = np.eye(dim)[np.argmin(np.abs(along), axis=1)]
    across = across - (across * along).sum(axis=1, keepdims=True) * along
    across /= np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-300)
    cosines = np.linspace(-1, 1, angles)[None, :, None]
    rotated = cosines * along[:, None] + np.sqrt(1 - cosines**2) * across[:, None]
    if dim == 1:
        rotated = cosines * along[:, None]  # there is no other direction: shorter instead
    return np.concatenate([rotated * max_norm, -xs[:, None], np.zeros((rounds, 1, dim))], axis=1)
