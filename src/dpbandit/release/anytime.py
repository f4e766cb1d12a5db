"""The anytime release: a sum that is shown again and again, for ever, at a cost that never exceeds one item's budget.

Keep S, the sum of the items so far, each of norm at most 1 when it enters. Release k shows qS with noise and then shrinks
S by ρ, where q² + ρ² = 1: an item that has weight ω left spends q²ω² and keeps ρ²ω². Over any number of releases, at any
times and with any shares, it spends no more than the 1 it came with. That is the whole proof (docs/privacy.md), and it is
why there is no horizon, no log T, and why nothing goes wrong when a release comes early or late.

The shares follow a schedule: R(j) = (1 + j/knee)^−4 is what an item that entered at the start has left after round j, and
releases come at times that grow by `ratio`. Long before the knee every release shows little of each item; long after it,
precision grows like t².
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel

POWER = 4.0


@kernel
def next_time(j: int, ratio: float) -> int:
    """When the release after the one at round j is due.

    >>> next_time(10, 1.025), next_time(1000, 1.025)
    (11, 1025)
    """
    return max(math.ceil(j * ratio), j + 1)


@kernel
def kept(j: int, later: int, knee: float) -> float:
    """ρ: the factor that a release at round j, with the next one due at `later`, leaves on every item.

    >>> round(kept(100, 200, knee=100.0) ** 2, 6)  # ((1 + 1) / (1 + 2))⁴
    0.197531
    """
    return ((knee + j) / (knee + later)) ** (POWER / 2.0)


@kernel
def shown(rho: float) -> float:
    """q: the share that a release shows of what it does not keep, √(1 − ρ²).

    >>> shown(0.6)
    0.8
    """
    return math.sqrt((1.0 - rho) * (1.0 + rho))


def times(first: int, ratio: float, horizon: int) -> NDArray[np.int64]:
    """All release times up to a horizon.

    >>> times(4, 1.5, 20).tolist()
    [4, 6, 9, 14]
    """
    found = []
    j = first
    while j <= horizon:
        found.append(j)
        j = next_time(j, ratio)
    return np.array(found, dtype=np.int64)
