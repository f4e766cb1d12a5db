"""Records, and columns of objects in a frame, as lists from which Arrow makes columns.

No row's value decides the type of a column: rewards are private, and contexts may be. Otherwise one
0.5 among true and false would stop the whole log, visibly.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from dpbandit.encoder.features import MISSING, text_of


def columns_of(
    records: list[Mapping[str, Any]], numbers: Collection[str], texts: Collection[str]
) -> dict[str, list[Any]]:
    """The columns of records; `numbers` and `texts` are those that are declared."""
    return {
        name: declared(name, [row[name] for row in records], numbers, texts) for name in records[0]
    }


def declared(
    name: str, values: list[Any], numbers: Collection[str], texts: Collection[str]
) -> list[Any]:
    """The values of a column as numbers (or lists of them) or texts, if it is declared.

    >>> declared("x", [True, 7, -(10**400), None], ["x"], [])
    [1.0, 7.0, -inf, None]
    >>> declared("x", [[1, True], None], ["x"], []), declared("c", [7, "x", 7.0], [], ["c"])
    ([[1.0, 1.0], None], ['7', 'x', '7'])
    """
    if name in texts:
        return [text_of(value) for value in values]
    if name not in numbers or _of_one_dtype(values):
        return values
    return [_number(value) for value in values]


def _of_one_dtype(values: list[Any]) -> bool:
    """Whether a program made all of them with NumPy: then their precision is known."""
    kinds = {getattr(value, "dtype", None) for value in values}
    return len(kinds) == 1 and all(getattr(kind, "kind", "O") in "fiub" for kind in kinds)


def _number(value: Any) -> Any:
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_number(one) for one in value]
    if value is None or type(value).__name__ in MISSING:
        return None
    if not isinstance(value, (Real, Decimal, np.bool_)):
        raise TypeError("not a number")
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return math.copysign(math.inf, 1 if value > 0 else -1)  # type: ignore[operator]
