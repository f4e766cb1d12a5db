"""Whole numbers that have no largest, kept where they can be saved: two words of 64 bits each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.object_]  # Python's own integers

SHARE_BITS = 62
_WORD = 1 << 64


class WholeRows:
    """Rows of whole numbers: high·2⁶⁴ + low, low without a sign.

    >>> rows = WholeRows(1, 2)
    >>> rows[0] = [-1, 3 << 70]
    >>> rows[0].tolist() == [-1, 3 << 70], rows.high.tolist()
    (True, [[-1, 192]])
    """

    def __init__(self, rows: int, dim: int) -> None:
        self.high = np.zeros((rows, dim), dtype=np.int64)
        self.low = np.zeros((rows, dim), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.high)

    def __getitem__(self, row: int) -> Whole:
        pairs = zip(self.high[row].tolist(), self.low[row].tolist(), strict=True)
        return np.array([(high << 64) + low % _WORD for high, low in pairs], dtype=object)

    def __setitem__(self, row: int, numbers: Any) -> None:
        for i, number in enumerate(numbers):
            high, low = divmod(int(number), _WORD)
            self.high[row, i] = high
            self.low[row, i] = low - _WORD if low >> 63 else low

    def fields(self, name: str) -> dict[str, NDArray[Any]]:
        """The two arrays, by their names."""
        return {f"{name}_high": self.high, f"{name}_low": self.low}


def share_of(numbers: Whole, share: float) -> Whole:
    """numbers·share for 0 ≤ share ≤ 1, rounded to nearest, with floor(share·2⁶²) in the share's
    place.

    >>> share_of(np.array([10, -5], dtype=object), 0.5).tolist()
    [5, -3]
    """
    factor, half = int(share * 2.0**SHARE_BITS), 1 << (SHARE_BITS - 1)
    sizes = [(abs(number) * factor + half) >> SHARE_BITS for number in numbers]
    signed = [size if number >= 0 else -size for size, number in zip(sizes, numbers, strict=True)]
    return np.array(signed, dtype=object)
