"""What worlds do for every arm of every round, compiled: other threads play meanwhile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel


@kernel
def rows_with_repeats(table: NDArray[np.int64], rows: NDArray[np.int64], found: NDArray[np.int64]) -> int:
    """Which of these rows of the table hold a number twice: they are the first of `found`. Returns how many."""
    count = 0
    for n in range(rows.shape[0]):
        row, twice = rows[n], False
        for i in range(1, table.shape[1]):
            for k in range(i):
                twice |= table[row, i] == table[row, k]
        found[count] = row
        count += twice
    return count


@kernel
def pay(
    arm_means: NDArray[np.float64],
    shown: NDArray[np.int64],
    noise: NDArray[np.float64],
    means: NDArray[np.float64],
    rewards: NDArray[np.float64],
) -> None:
    """The mean reward of every arm shown, and the same with its round's noise."""
    for n in range(shown.shape[0]):
        for j in range(shown.shape[1]):
            mean = arm_means[shown[n, j]]
            means[n, j] = mean
            rewards[n, j] = mean + noise[n]
