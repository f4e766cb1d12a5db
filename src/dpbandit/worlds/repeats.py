"""Rows that hold a number twice, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel


@kernel
def mark(table: NDArray[np.int64], rows: NDArray[np.int64], out: NDArray[np.bool_]) -> None:
    """Say for each of these rows of the table whether it does."""
    for n in range(rows.shape[0]):
        row, twice = rows[n], False
        for i in range(1, table.shape[1]):
            for k in range(i):
                twice |= table[row, i] == table[row, k]
        out[n] = twice
