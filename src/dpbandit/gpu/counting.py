"""How often scores pass thresholds: all that a lower bound on ε needs to know of millions of runs.
NumPy or CuPy, the same code.

Thresholds are quantiles of the first half of the runs; hits are counted in that half, where one is
chosen, and in the other, where it is tried. Choosing and bounding are `auditor.bounds`'s: counts
are few numbers that travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.gpu.machines import to_numpy

THRESHOLDS = 400


@dataclass(frozen=True)
class Counts:
    """Hits of each threshold: arrays of shape (side, direction, threshold), direction 0 for scores
    above it, 1 for below."""

    thresholds: NDArray[np.float64]
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    train_runs: tuple[int, int]
    test_runs: tuple[int, int]


def count(arrays: Any, scores0: Any, scores1: Any) -> Counts:
    """Counts of two sides' scores; `arrays` is the module they live in."""
    half0, half1 = len(scores0) // 2, len(scores1) // 2
    train = [arrays.sort(scores0[:half0]), arrays.sort(scores1[:half1])]
    test = [arrays.sort(scores0[half0:]), arrays.sort(scores1[half1:])]
    # Quantiles of the mixture, with the tails finely covered: that is where ratios are extreme.
    tail = np.geomspace(1e-6, 0.5, THRESHOLDS // 2)
    both = arrays.sort(arrays.concatenate(train))
    thresholds = np.unique(_quantiles(arrays, both, np.concatenate([tail, 1 - tail])))
    found = arrays.asarray(thresholds.astype(both.dtype))
    return Counts(
        thresholds,
        np.stack([_hits(arrays, side, found) for side in train]),
        np.stack([_hits(arrays, side, found) for side in test]),
        (len(train[0]), len(train[1])),
        (len(test[0]), len(test[1])),
    )


def _quantiles(arrays: Any, ordered: Any, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """As numpy.quantile, of numbers that are in order already; in their own precision, so that they
    can be compared with."""
    at = shares * (len(ordered) - 1)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, len(ordered) - 1)
    lower, upper = (
        np.asarray(to_numpy(ordered[arrays.asarray(where)]), dtype=np.float64)
        for where in (low, high)
    )
    mixed = lower + (upper - lower) * (at - low)
    return mixed.astype(ordered.dtype).astype(np.float64)


def _hits(arrays: Any, ordered: Any, thresholds: Any) -> NDArray[np.int64]:
    above = len(ordered) - arrays.searchsorted(ordered, thresholds, side="right")
    below = arrays.searchsorted(ordered, thresholds, side="left")
    return np.stack([to_numpy(above), to_numpy(below)]).astype(np.int64)
