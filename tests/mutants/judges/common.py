"""The table of judges, and how they compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Judge = Callable[[], Any]


JUDGES: dict[str, Judge] = {}


EPSILON, DELTA = 1.5, 1e-4


ROUNDS, DIM = 20, 3


def judge(function: Judge) -> Judge:
    JUDGES[function.__name__] = function
    return function


def close(a: Any, b: Any, rel: float = 1e-9, abs_: float = 0.0) -> None:
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    assert a.shape == b.shape, (a.shape, b.shape)
    assert np.allclose(a, b, rtol=rel, atol=abs_), (a, b)


def between(low: Any, value: Any, high: Any) -> None:
    assert low <= value <= high, (low, value, high)


def refused(kind: str, call: Callable[[], Any]) -> str:
    """The words of the error that a call must raise; its class is named, not imported."""
    try:
        call()
    except Exception as error:
        if kind in {each.__name__ for each in type(error).__mro__}:
            return kind
        raise AssertionError(f"{type(error).__name__}, not {kind}: {error}") from error
    raise AssertionError(f"nothing was refused: {kind} expected")
