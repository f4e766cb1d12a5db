"""Private items in whole numbers of 2⁻⁴⁰: their sums are exact, in any order and at any horizon.

An item is rounded once, when it enters, so its rounding is part of it. In memory a whole number is two words of 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Whole = NDArray[np.object_]  # Python's own integers, which have no largest

GRID_BITS = 40
STEP = 2.0**-GRID_BITS
SHARE_BITS = 62

_WORD = 1 << 64


def to_whole(item: Vector) -> Whole:
    """The nearest whole numbers of STEP; ties go to the even one.

    >>> to_whole(np.array([0.5, -2.0**-41])).tolist()
    [549755813888, 0]
    """
    return np.array([int(entry) for entry in np.rint(item / STEP)], dtype=object)


def to_doubles(numbers: Whole) -> Vector:
    """Whole numbers as doubles, rounded once.

    >>> to_doubles(np.array([1 << 40, 3 << 39], dtype=object)).tolist()
    [1.0, 1.5]
    """
    return numbers.astype(np.float64) * STEP


def share_of(numbers: Whole, share: float) -> Whole:
    """numbers · share for 0 ≤ share ≤ 1, with the share in whole numbers of 2⁻⁶²; rounded to nearest, ties away from 0.

    >>> share_of(np.array([10, -5], dtype=object), 0.5).tolist()
    [5, -3]
    """
    factor, half = int(share * 2.0**SHARE_BITS), 1 << (SHARE_BITS - 1)
    found = [(abs(number) * factor + half) >> SHARE_BITS for number in numbers]
    signed = [size if number >= 0 else -size for size, number in zip(found, numbers, strict=True)]
    return np.array(signed, dtype=object)


class WholeRows:
    """Rows of whole numbers kept in two arrays of 64 bits: high·2⁶⁴ + low, low without a sign."""

    def __init__(self, rows: int, dim: int) -> None:
        self.high = np.zeros((rows, dim), dtype=np.int64)
        self.low = np.zeros((rows, dim), dtype=np.int64)

    def __getitem__(self, row: int) -> Whole:
        words = zip(self.high[row].tolist(), self.low[row].tolist(), strict=True)
        return np.array([high * _WORD + low % _WORD for high, low in words], dtype=object)

    def __setitem__(self, row: int, numbers: Any) -> None:
        for i, number in enumerate(numbers):
            self.high[row, i] = number >> 64
            low = number % _WORD
            self.low[row, i] = low - _WORD if low >= _WORD // 2 else low

    def clear(self) -> None:
        """All of it to 0."""
        self.high[:] = 0
        self.low[:] = 0

    def fields(self, name: str) -> dict[str, NDArray[Any]]:
        """The two arrays by their names."""
        return {f"{name}_high": self.high, f"{name}_low": self.low}
