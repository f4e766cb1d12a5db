"""A predicted course: regret and error over rounds, extrapolated beyond the rounds played.

Extrapolation uses regret over the last factor of 4 in time. D is what the last doubling added, and
the ratio compares it with what the doubling before added. D keeps growing by that ratio, limited to
between 1 (then regret grows like log t) and 2 (then like t). The parameter error continues along
its log-log slope over the last doubling, limited to between −1/2 and 0. This overestimates regret
that is still flattening: docs/plan.md says by how much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpbandit.types import Matrix, Vector

Times = NDArray[np.int64]

FACTOR = 2.0
# Recorded times grow by this.
RATIO = 1.1


@dataclass(frozen=True)
class Course:
    """The predictions after these rounds: means over particles, and every particle's regret.

    Up to round `played` bandits were run; later values are extrapolated.
    """

    rounds: Times
    regret: Vector
    theta_error: Vector
    final: Vector
    played: int

    @property
    def extrapolated(self) -> bool:
        """Whether the last values are extrapolated."""
        return self.played < int(self.rounds[-1])


def geometric_steps(rounds: int, ratio: float) -> Times:
    """0, 1, 2, …, then times that grow by `ratio`.

    >>> geometric_steps(20, 1.5).tolist()
    [0, 1, 2, 3, 5, 8, 12, 18, 20]
    """
    found = [0]
    while found[-1] < rounds:
        found.append(min(rounds, max(found[-1] + 1, math.ceil(found[-1] * ratio))))
    return np.array(found, dtype=np.int64)


def course_of(times: Times, regrets: Matrix, errors: Matrix, rounds: int) -> Course:
    """The course until `rounds`, from particles played to the last of `times`.

    `regrets` and `errors` have shape (particles, times).
    """
    played = int(times[-1])
    regret, error, final = regrets.mean(axis=0), errors.mean(axis=0), regrets[:, -1].copy()
    if played < rounds:
        every = geometric_steps(rounds, RATIO)[1:]
        later = every[every > played]
        growth = growth_of(times, regret)
        before = played / FACTOR
        added = regret[-1] - _at(times, regret, before)
        own_added = np.array([row[-1] - _at(times, row, before) for row in regrets])
        final = final + own_added * more(rounds / played, growth)
        regret = np.concatenate([regret, regret[-1] + added * more(later / played, growth)])
        slope = slope_of(times, error)
        error = np.concatenate([error, error[-1] * (later / played) ** slope])
        times = np.concatenate([times, later])
    return Course(times, regret, error, final, played)


def growth_of(times: Times, regret: Vector) -> float:
    """g, between 0 and 1: each doubling of time adds 2^g times as much regret as the one before.

    >>> times = geometric_steps(4096, 1.1)[1:]
    >>> [round(growth_of(times, f(times)), 2) for f in (np.log, np.sqrt, lambda t: 3.0 * t)]
    [0.0, 0.5, 1.0]
    """
    last = float(times[-1])
    now, then, earlier = (_at(times, regret, last / FACTOR**k) for k in range(3))
    added, added_before = now - then, then - earlier
    if added <= 0:
        return 0.0
    if added_before <= 0:
        return 1.0
    return min(max(math.log(added / added_before) / math.log(FACTOR), 0.0), 1.0)


def more(times_longer: Vector | float, growth: float) -> Vector:
    """Regret from now until `times` × now, in units of what the last doubling added.

    >>> [more(x, g).item() for x, g in ((2.0, 0.0), (2.0, 1.0), (4.0, 1.0))]
    [1.0, 2.0, 6.0]
    """
    longer = np.asarray(times_longer, dtype=np.float64)
    if growth < 1e-9:
        return np.log(longer) / math.log(FACTOR)
    return np.asarray((longer**growth - 1) / (1 - FACTOR**-growth))


def slope_of(times: Times, error: Vector) -> float:
    """The slope of a parameter error in log-log over the last doubling; between −1/2 and 0."""
    then = _at(times, error, float(times[-1]) / FACTOR)
    if not (error[-1] > 0 and then > 0):
        return 0.0
    return min(max(math.log(error[-1] / then) / math.log(FACTOR), -0.5), 0.0)


def _at(times: Times, values: Vector, when: float) -> float:
    return float(np.interp(when, np.concatenate([[0], times]), np.concatenate([[0.0], values])))
