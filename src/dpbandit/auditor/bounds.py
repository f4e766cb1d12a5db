"""From scores on two neighbouring streams to an ε that is refuted, with a stated confidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from dpbandit.gpu.counting import Counts, count

Scores = NDArray[np.float64]

CONFIDENCE = 0.999


@dataclass(frozen=True)
class Bound:
    """A lower bound on ε at some δ, from scores on two streams."""

    epsilon: float
    threshold: float
    above: bool  # whether the event is a score above the threshold, else one below it
    power: float
    false_alarms: float


def lower_bound(
    scores0: Scores, scores1: Scores, *, delta: float, confidence: float = CONFIDENCE
) -> Bound:
    """The largest ε that these scores refute.

    The threshold is chosen on the first half and tested on the second. (ε, δ)-DP says
    P(E | one) ≤ e^ε P(E | other) + δ for every event E, either way round. Clopper–Pearson bounds
    each of the two probabilities with half of the allowed error.

    >>> rng = np.random.default_rng(0)
    >>> found = lower_bound(rng.normal(0, 1, 20_000), rng.normal(1, 1, 20_000), delta=0.01)
    >>> 1.0 < found.epsilon < 2.4
    True
    """
    # Rounded, because the low bits of a score come from the low bits of simulated noise, and those
    # leak: without this the attack breaks even a correct Laplace mechanism, through the floats
    # instead of through its noise. (So low-bit leaks of a real source are not seen here: tests look
    # whether its noise lies on its grid.)
    counts = count(np, np.round(scores0, 9), np.round(scores1, 9))
    return judge(counts, delta=delta, confidence=confidence)


def judge(counts: Counts, *, delta: float, confidence: float = CONFIDENCE) -> Bound:
    """The same from how often thresholds were passed, wherever that was counted."""
    error = (1 - confidence) / 2
    best, chosen, above = -math.inf, 0, True
    for number in range(len(counts.thresholds)):
        for direction in (True, False):
            seen = _seen(counts.train, counts.train_runs, number, direction)
            value = _epsilon(*seen, delta, error)
            if value > best:
                best, chosen, above = value, number, direction
    hits, runs, other_hits, other_runs = _seen(counts.test, counts.test_runs, chosen, above)
    epsilon = _epsilon(hits, runs, other_hits, other_runs, delta, error)
    threshold = float(counts.thresholds[chosen])
    return Bound(max(epsilon, 0.0), threshold, above, hits / runs, other_hits / other_runs)


def _seen(
    hits: NDArray[np.int64], runs: tuple[int, int], number: int, above: bool
) -> tuple[int, int, int, int]:
    """Hits and runs of the side that a score above (below) the threshold speaks for, then of the
    other."""
    side, direction = (1, 0) if above else (0, 1)
    own, other = int(hits[side, direction, number]), int(hits[1 - side, direction, number])
    return own, runs[side], other, runs[1 - side]


def _epsilon(
    hits: int, runs: int, other_hits: int, other_runs: int, delta: float, error: float
) -> float:
    low, high = 0.0, 1.0
    if hits > 0:
        low = float(betaincinv(hits, runs - hits + 1, error))
    if other_hits < other_runs:
        high = float(betaincinv(other_hits + 1, other_runs - other_hits, 1 - error))
    return math.log((low - delta) / high) if low > delta else -math.inf
