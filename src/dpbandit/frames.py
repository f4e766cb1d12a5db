"""Frames in and out: pandas, polars and Arrow, each imported only if it is given or requested.

A frame is any object with Arrow's PyCapsule protocol. Columns are read by position. Names matter
only if a bandit learned from a log's columns by name: then they must be the same, in the same
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from importlib import import_module
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import OptionError, ShapeError, nearest

# pip's name of the package behind each kind of frame
KINDS = {"pandas": "pandas", "polars": "polars", "arrow": "pyarrow"}


def is_frame(given: Any) -> bool:
    """Whether this is a table or a column of pandas, polars, Arrow or a relative of theirs.

    >>> is_frame([[1.0, 2.0]]), is_frame(np.eye(2))
    (False, False)
    """
    return hasattr(type(given), "__arrow_c_stream__") or hasattr(type(given), "__arrow_c_array__")


def numbers(given: Any, what: str) -> NDArray[np.float64]:
    """The numbers in a frame, even where NumPy sees objects: nullable columns, mixed types, lists.

    Missing ones become NaN.
    """
    array = np.asarray(given)
    if array.dtype.kind in "fiub":
        return array.astype(np.float64, copy=False)
    if not is_frame(given):
        hint = ": collect the lazy frame first" if hasattr(given, "collect") else ""
        kind = {"U": "text", "S": "bytes", "O": "objects"}.get(array.dtype.kind, array.dtype)
        raise ShapeError(f"{what} must be numbers, not {kind}{hint}")
    rows = array.tolist()
    if array.ndim == 1 and any(isinstance(row, (list, tuple, np.ndarray)) for row in rows):
        lengths = {len(row) if isinstance(row, (list, tuple, np.ndarray)) else None for row in rows}
        if len(lengths) > 1:
            raise ShapeError(
                f"{what} must be lists of one length, not of {sorted(map(str, lengths))}"
            )
        return np.array([[_number(value, what) for value in row] for row in rows], dtype=np.float64)
    flat = [_number(value, what) for value in array.ravel().tolist()]
    return np.array(flat, dtype=np.float64).reshape(array.shape)


def _number(value: Any, what: str) -> float:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return float("nan")
    if isinstance(value, (Real, Decimal, np.bool_)):
        return float(value)
    raise ShapeError(f"{what} must be numbers, not {type(value).__name__}")


def array_of(given: Any, what: str) -> NDArray[np.float64]:
    """Anything that holds numbers as a float array in C's order, or a named error."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise ShapeError(f"{what} must be a rectangular array of numbers") from None
    found = array if array.dtype.kind in "fiub" else numbers(given, what)
    # Not `ascontiguousarray`, which makes a single number a list of one.
    return np.asarray(found, dtype=np.float64, order="C")


def contexts_in(given: Any, names: tuple[str, ...] | None, encoder: Any) -> NDArray[np.float64]:
    """Contexts as a float array, or an error that says what an encoder is for."""
    try:
        return array_of(in_order(given, names), "contexts")
    except ShapeError as error:
        if encoder is None:
            raise
        raise ShapeError(
            f"{error}. Records become contexts by bandit.encoder.transform(records), or by "
            "bandit.encoder.slate(items).contexts(person)"
        ) from None


def in_order(given: Any, names: tuple[str, ...] | None) -> Any:
    """The same; or an error if it is a frame whose columns are named, and not in this order."""
    if names is None or not is_frame(given):
        return given
    columns = getattr(given, "column_names", None)
    found = list(getattr(given, "columns", ()) if columns is None else columns)
    if not any(isinstance(name, str) for name in found) or found == list(names):
        return given
    raise ShapeError(
        f"the columns are {', '.join(map(str, found))}, but this bandit learned from "
        f"{', '.join(names)}, in this order: select these columns by name first"
    )


def column(frame: Any, name: str) -> Any:
    """A column by name, or an error with the nearest one."""
    names = list(getattr(frame, "column_names", None) or frame.columns)
    if name not in names:
        raise OptionError(f"the frame has no column {name!r}: {nearest(name, map(str, names))}")
    return frame[name]


def entries(given: Any) -> Any:
    """A frame's column as a list; anything else as it is."""
    return (
        given.to_pylist()
        if hasattr(given, "to_pylist")
        else list(given)
        if is_frame(given)
        else given
    )


def frame(columns: Mapping[str, Any], kind: str) -> Any:
    """Columns as a frame of pandas or polars, or as an Arrow table."""
    if kind not in KINDS:
        raise OptionError(f"a frame is one of {', '.join(KINDS)}, not {kind!r}")
    try:
        package = import_module(KINDS[kind])
    except ImportError:
        brings = "polars" if kind == "polars" else "'dpbandit[lab]'"
        raise OptionError(
            f"a frame of this kind needs {KINDS[kind]}: pip install {brings}"
        ) from None
    return package.table(dict(columns)) if kind == "arrow" else package.DataFrame(dict(columns))
