"""A batch of rows as arrays, and what is wrong with each.

Nothing is guessed: a bad row gets a status and no place in any sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import LogError, OptionError
from dpbandit.logs.sums import LENGTH, MISSING, NO_REWARD, NO_USER, Status, hash_names
from dpbandit.types import Matrix, Vector
from dpbandit.warmstart.source import Columns, arrow, whole_users


class Rows(NamedTuple):
    """Some rows. Where the status is not 0 the others mean nothing."""

    contexts: Matrix
    rewards: Vector
    status: Status
    users: NDArray[np.uint64] | None
    # Where contexts are private and persons come often: whether this one came before.
    again: NDArray[np.bool_] | None = None


def contexts_of(batch: Any, columns: Columns, status: Status) -> Matrix:
    """The contexts of a record batch, whose first columns are theirs."""
    if columns.encoder is not None:
        pa = arrow("pyarrow")
        fields = list(columns.context)
        try:
            found = columns.encoder.contexts(pa.Table.from_batches([batch]).select(fields))
        except OptionError as error:
            raise LogError(f"a row cannot be encoded: {error}. Nothing was released") from None
        return np.ascontiguousarray(found)
    if columns.is_list:
        return _lists(batch.column(0), columns.dim, status)
    contexts = np.empty((batch.num_rows, columns.dim))
    for i in range(columns.dim):
        values, absent = _numbers(batch.column(i))
        contexts[:, i] = values
        if absent is not None:
            status[absent] = MISSING
    return contexts


def read(batch: Any, columns: Columns, missing_reward: float | None, hides: bool = False) -> Rows:
    """The rows of a record batch, whose columns come in the order of `columns.names`.

    With `hides` contexts are private: one that is missing is zero, and its row has no status.
    """
    status = np.zeros(batch.num_rows, dtype=np.uint8)
    contexts = contexts_of(batch, columns, status)
    if hides:
        contexts = np.where((status == 0)[:, None], contexts, 0.0)
        status[:] = 0
    rewards, absent = _numbers(batch.column(len(columns.context)))
    if missing_reward is not None:
        # NaN too: that is how many tools write what is missing.
        rewards = np.where(np.isnan(rewards), missing_reward, rewards)
    elif absent is not None:
        status[absent & (status == 0)] = NO_REWARD
    users = None if columns.user is None else _users(batch.column(batch.num_columns - 1), status)
    return Rows(contexts, np.ascontiguousarray(rewards), status, users)


def _numbers(column: Any) -> tuple[Vector, NDArray[np.bool_] | None]:
    """Float64 values, NaN where there is none, and where that is (None: nowhere)."""
    pa, pc = arrow("pyarrow"), arrow("pyarrow.compute")
    if not pa.types.is_floating(column.type) or pa.types.is_float16(column.type):
        column = pc.cast(column, pa.float64(), safe=False)
    absent = None if column.null_count == 0 else column.is_null().to_numpy(zero_copy_only=False)
    return column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False), absent


def _lists(column: Any, d: int, status: Status) -> Matrix:
    """One row a list; rows of another length, or with anything missing, get a status."""
    pa, pc = arrow("pyarrow"), arrow("pyarrow.compute")
    lengths = None
    if not pa.types.is_fixed_size_list(column.type):
        lengths = pc.list_value_length(column).fill_null(d).to_numpy(zero_copy_only=False)
        status[lengths != d] = LENGTH
    if column.null_count:
        status[column.is_null().to_numpy(zero_copy_only=False)] = MISSING
    whole = status == 0
    if not whole.all():
        column = column.filter(pa.array(whole))
    values, absent = _numbers(column.flatten())
    filled = np.ascontiguousarray(values.reshape(-1, d))
    if whole.all():
        contexts = filled
    else:
        contexts = np.zeros((len(status), d))
        contexts[whole] = filled
    if absent is not None:
        status[np.flatnonzero(whole)[absent.reshape(-1, d).any(axis=1)]] = MISSING
    return contexts


def _users(column: Any, status: Status) -> NDArray[np.uint64]:
    """Hashes of the users' names: those that `update` would make of the same name or number."""
    pa, pc = arrow("pyarrow"), arrow("pyarrow.compute")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = whole_users(column)
    if column.null_count:
        status[column.is_null().to_numpy(zero_copy_only=False) & (status == 0)] = NO_USER
    text = pc.cast(column, pa.large_string()).fill_null("")
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[text.offset : text.offset + len(text) + 1]
    empty = data is None or data.size == 0
    letters = np.zeros(1, dtype=np.uint8) if empty else np.frombuffer(data, dtype=np.uint8)
    return hash_names(letters, ends)
