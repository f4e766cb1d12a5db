"""How simulated worlds make rounds: in pieces of a fixed size, each from its own seed, so that cutting never changes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECE = 1024

# Comparing all pairs of so few numbers is faster than sorting them.
FEW = 32

Arrays = tuple[NDArray[Any], ...]


class Pieces:
    """Rounds one after another. `make(number)` gives piece `number`, from 0: arrays whose rows are its PIECE rounds.

    >>> rounds = Pieces(lambda number: (np.arange(PIECE) + number * PIECE,))
    >>> [rounds.take(count)[0].tolist() for count in (2, 3)]
    [[0, 1], [2, 3, 4]]
    """

    def __init__(self, make: Callable[[int], Arrays]) -> None:
        self._make = make
        self._made = 0
        self._left: Arrays | None = None

    def take(self, count: int) -> Arrays:
        """The next `count` rounds."""
        parts = [self._next() if self._left is None else self._left]
        have = len(parts[0][0])
        while have < count:
            parts.append(self._next())
            have += PIECE
        whole = parts[0] if len(parts) == 1 else tuple(np.concatenate(same) for same in zip(*parts, strict=True))
        self._left = tuple(array[count:] for array in whole)
        return tuple(array[:count] for array in whole)

    def _next(self) -> Arrays:
        self._made += 1
        return self._make(self._made - 1)


def distinct(rng: np.random.Generator, size: int, *, rows: int, shown: int) -> NDArray[np.int64]:
    """`rows` rows of `shown` different numbers below `size`, every choice equally likely.

    >>> np.sort(distinct(np.random.default_rng(0), 3, rows=2, shown=3), axis=1).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    found = rng.integers(0, size, size=(rows, shown))
    again = np.arange(rows)
    while True:  # rows with an arm twice are drawn again: each distinct choice stays equally likely
        again = repeats(found, again)
        if len(again) == 0:
            return found
        if shown * shown > size:  # too likely to repeat: draw without replacement instead
            found[again] = np.argsort(rng.random((len(again), size)), axis=1)[:, :shown]
        else:
            found[again] = rng.integers(0, size, size=(len(again), shown))


def repeats(table: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of these rows that hold a number twice.

    >>> repeats(np.array([[1, 2, 3], [4, 5, 4]]), np.arange(2)).tolist()
    [1]
    """
    if table.shape[1] > FEW:
        ordered = np.sort(table[rows], axis=1)
        twice: NDArray[np.int64] = rows[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        return twice
    from dpbandit.worlds.kernels import (
        rows_with_repeats,  # compiled: who only reads about worlds need not wait for that
    )

    found = np.empty(len(rows) + 1, dtype=np.int64)
    return found[: rows_with_repeats(table, rows, found)]
