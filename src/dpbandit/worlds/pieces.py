"""How simulated worlds make rounds: in pieces of a fixed size, each from its own seed, so that cutting never changes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECE = 1024

# Up to so many numbers all pairs are compared, in a kernel; more are sorted.
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
    if shown <= FEW and shown * shown <= size and 2 <= size <= 2**32 - 1:
        from dpbandit.worlds.kernels import address_of, draw_distinct  # who only reads about worlds need not compile

        table = np.empty((rows, shown), dtype=np.int64)
        draw_distinct(address_of(rng), size, table, np.empty(rows, dtype=np.int64))
        return table
    found = rng.integers(0, size, size=(rows, shown))
    again = np.arange(rows)
    while True:  # rows with an arm twice are drawn again: each distinct choice stays equally likely
        ordered = np.sort(found[again], axis=1)
        again = again[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        if len(again) == 0:
            return found
        if shown * shown > size:  # too likely to repeat: draw without replacement instead
            found[again] = np.argsort(rng.random((len(again), size)), axis=1)[:, :shown]
        else:
            found[again] = rng.integers(0, size, size=(len(again), shown))
