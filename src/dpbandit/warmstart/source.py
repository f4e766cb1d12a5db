"""Which files a log is made of, which columns it has, and how it is cut into parts.

A part is a stretch of row groups of one file: small enough to share work, and the same whoever
reads it; of CSV and Arrow it is a file, or a stream (`streams`). Needs pyarrow (extra `lab`), which is
imported when a log is opened.
"""

from __future__ import annotations

import glob
import hashlib
import os
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpbandit.encoder import Category, Encoder, Number
from dpbandit.encoder.features import MISSING
from dpbandit.errors import LogError, OptionError, nearest
from dpbandit.frames import is_frame
from dpbandit.warmstart.records import columns_of, declared
from dpbandit.warmstart.streams import (
    KINDS,
    NO_TEXTS,
    FilePart,
    StreamPart,
    ends,
    kind_of,
    schema_of,
)

# Rows decoded at a time: with 25 features they take 3 MB.
BATCH = 16_384
# Rows in a part, about. Parts are the unit of work of a thread.
PART = 500_000
# A column is read through a window of this many bytes, so that huge row groups do not fill the
# memory.
WINDOW = 1 << 20
# From here on two whole numbers can be one float.
LARGEST_WHOLE = 1 << 53
NOT_WHOLE = (
    "users in a column of floats must be whole numbers below 2⁵³: read them as text. Nothing was "
    "released"
)


@dataclass(frozen=True)
class Columns:
    """Where a row's context, reward and user are."""

    context: tuple[str, ...]  # one column of lists, or several of numbers
    reward: str
    user: str | None
    is_list: bool
    dim: int
    single: bool  # whether any feature has single precision or less
    encoder: Encoder | None = None  # then its fields are the context's columns
    numbered: bool = False  # whether users are whole numbers in a column of floats

    @property
    def names(self) -> list[str]:
        return [*self.context, self.reward, *([] if self.user is None else [self.user])]

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns of numbers. Whole numbers of an encoder's other fields may be names."""
        return numbers_of(self.context, self.reward, self.encoder)

    @property
    def texts(self) -> dict[str, frozenset[str]]:
        """Columns of names, which in CSV are read as they stand there (`FilePart.batches`)."""
        named = self.user is not None and not self.numbered
        users = {self.user: frozenset[str]()} if named and self.user is not None else {}
        return users if self.encoder is None else {**texts_of(self.encoder), **users}


def numbers_of(context: Sequence[str], reward: str, encoder: Encoder | None) -> tuple[str, ...]:
    """The columns that hold numbers: the reward's, and those of the context that are no texts."""
    if encoder is None:
        return (*context, reward)
    return (*(name for name in encoder.features if name not in texts_of(encoder)), reward)


def texts_of(encoder: Encoder) -> dict[str, frozenset[str]]:
    """The fields that are no numbers, with the categories that are known of each."""
    return {
        name: frozenset(feature.known if isinstance(feature, Category) else ())
        for name, feature in encoder.features.items()
        if not isinstance(feature, Number)
    }


@dataclass(frozen=True)
class Part:
    """Some consecutive rows of the log: row groups of a file, or a table in memory."""

    file: str
    groups: tuple[int, ...]
    rows: int
    stamp: str = ""
    table: Any = None

    def batches(
        self,
        names: list[str],
        rows: int = BATCH,
        *,
        threads: bool = False,
        numbers: Collection[str] = (),
        texts: Mapping[str, frozenset[str]] = NO_TEXTS,
    ) -> Iterator[Any]:
        """Its rows as Arrow record batches, in order. `threads`: decode columns side by side."""
        del numbers, texts  # Parquet says itself what they are
        if self.table is not None:
            yield from self.table.select(names).to_batches(max_chunksize=rows)
            return
        pq = arrow("pyarrow.parquet")
        try:
            changed = stamp(self.file) != self.stamp
        except OSError as error:
            raise LogError(
                f"{self._where} cannot be read ({type(error).__name__}). Nothing was released"
            ) from None
        if changed:
            raise LogError(
                f"{self._where} is not the file that was opened at the start. Nothing was released"
            )
        try:
            with pq.ParquetFile(self.file, buffer_size=WINDOW, pre_buffer=False) as file:
                groups = list(self.groups)
                for batch in file.iter_batches(
                    rows, row_groups=groups, columns=names, use_threads=threads
                ):
                    yield batch.select(names)  # they come in the order of the file
        except (OSError, ValueError, arrow("pyarrow").ArrowException) as error:
            # Arrow's own words may quote what is in it.
            raise LogError(
                f"{self._where} cannot be read ({type(error).__name__}). Nothing was released"
            ) from None

    @property
    def _where(self) -> str:
        return f"{self.file} on {socket.gethostname()}"  # on a cluster any node may have read it


AnyPart = Part | FilePart | StreamPart


@dataclass(frozen=True)
class Source:
    """A log: its parts in order, and its schema."""

    parts: tuple[AnyPart, ...]
    schema: Any

    @property
    def rows(self) -> int | None:
        """How many there are; None if nobody knows before they are read."""
        counts = [part.rows for part in self.parts]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None


def arrow(module: str) -> Any:
    """A module of pyarrow, or an error that says how to get it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise LogError("reading a log needs pyarrow: pip install 'dpbandit[lab]'") from None


def open_log(given: Any, numbers: Collection[str] = (), texts: Collection[str] = ()) -> Source:
    """A log, from files (Parquet, CSV, Arrow), a folder of them, a glob, a list of these, a table, a
    frame or a stream of Arrow. What has no types of its own gets those of these columns."""
    pa = arrow("pyarrow")
    if isinstance(given, pa.RecordBatchReader):
        return Source((StreamPart(given),), given.schema)
    if isinstance(given, pa.Table):
        return Source((Part("a table", (), given.num_rows, table=given),), given.schema)
    if is_frame(given):
        try:
            table = pa.table(_with_types(given, numbers, texts))
        except (TypeError, ValueError, OptionError, pa.ArrowException) as error:
            kind = type(given).__name__
            # Arrow's own words quote what is in it.
            raise LogError(
                f"this {kind} cannot be read as an Arrow table ({type(error).__name__}): every column "
                "must hold one kind of values, and have a name of its own"
            ) from None
        return open_log(table)
    if isinstance(given, list) and given and all(isinstance(row, Mapping) for row in given):
        if any(row.keys() != given[0].keys() for row in given):
            raise LogError("every record of a log must have the same fields")
        try:
            return open_log(_table_of(columns_of(given, numbers, texts)))
        except (TypeError, ValueError, OptionError, OverflowError, pa.ArrowException) as error:
            raise LogError(
                f"these records cannot be read as an Arrow table ({type(error).__name__}): every field "
                "must hold one kind of values"
            ) from None
    if hasattr(given, "collect"):
        raise LogError("collect the lazy frame first, or write it to Parquet")
    files = _files(given)
    kinds = {kind_of(file) for file in files}
    if len(kinds) > 1:
        raise LogError(
            f"a log is of one kind of files, not of {' and '.join(sorted(kinds))}: the same rows could "
            "stand in it twice"
        )
    if kinds != {"parquet"}:
        return _others(files, *kinds)
    parts: list[Part] = []
    schema = None
    for file in files:
        try:
            meta = arrow("pyarrow.parquet").ParquetFile(file)
        except (OSError, ValueError, pa.ArrowException) as error:
            kind = type(error).__name__
            raise LogError(f"{file} is not a Parquet file that can be read ({kind})") from None
        with meta:
            schema = _agree(schema, meta.schema_arrow, file, files[0])
            sizes = [meta.metadata.row_group(i).num_rows for i in range(meta.num_row_groups)]
        parts += _cut(file, sizes, stamp(file))
    return Source(tuple(parts), schema)


def _table_of(columns: Mapping[str, list[Any]]) -> Any:
    """Columns as a table; NaN is missing, as in a frame of pandas."""
    pa = arrow("pyarrow")
    arrays = [pa.array(column, from_pandas=True) for column in columns.values()]
    return pa.table(arrays, list(columns))


def _with_types(frame: Any, numbers: Collection[str], texts: Collection[str]) -> Any:
    """A frame of pandas whose columns of objects hold what was declared; others as they are."""
    if not hasattr(frame, "assign") or not frame.columns.is_unique:
        return frame
    loose = [
        name
        for name, kind in frame.dtypes.items()
        if kind.kind == "O" and (name in numbers or name in texts)
    ]
    return frame.assign(
        **{name: declared(name, frame[name].tolist(), numbers, texts) for name in loose}
    )


def _others(files: list[str], kind: str) -> Source:
    """A log of CSV or Arrow files."""
    pa, parts, schema = arrow("pyarrow"), [], None
    for file in files:
        try:
            found = schema_of(file, kind)
            parts.append(FilePart(file, kind, found, ends(file)))
        except (OSError, ValueError, pa.ArrowException) as error:
            words = f"{file} is not a file of {kind} that can be read ({type(error).__name__})"
            if kind == "csv":  # Arrow's own words quote the row
                words += ": has every row as many values as the first?"
            raise LogError(words) from None
        schema = _agree(schema, found, file, files[0])
    return Source(tuple(parts), schema)


def _agree(schema: Any, found: Any, file: str, first: str) -> Any:
    """The schema of all files, or an error if one has other columns; columns are found by name."""
    if schema is not None and not _same(schema, found):
        raise LogError(
            f"{file} has other columns than {first}: {_listed(found)} instead of {_listed(schema)}"
        )
    return found if schema is None else schema


def _files(given: Any) -> list[str]:
    """All files, each once, by name: the order decides which of a user's rewards count."""
    names = list(given) if isinstance(given, (list, tuple)) else [given]
    if not names:
        raise LogError("the log has no rows: this list is empty")
    found: set[str] = set()
    for name in names:
        if not isinstance(name, (str, os.PathLike)):
            raise LogError(
                "a log is a path, a folder, a glob, a list of these or of records, an Arrow table or stream, or a frame, "
                f"not {type(name).__name__}"
            )
        path = Path(name)
        if path.is_dir():
            inside = [
                p
                for p in path.rglob("*")
                if p.suffix.lower() in KINDS
                and not any(part[0] in "._" for part in p.relative_to(path).parts)
            ]
            here = [str(p) for p in inside]
        else:
            here = [str(path)] if path.is_file() else glob.glob(str(name), recursive=True)
        if not here:
            raise LogError(f"no Parquet, CSV or Arrow file is found at {name}")
        found |= {os.path.realpath(file) for file in here}
    return sorted(found)


def _same(one: Any, other: Any) -> bool:
    return {f.name: str(f.type) for f in one} == {f.name: str(f.type) for f in other}


def stamp(file: str) -> str:
    """What tells a file from another one of its name, or on another machine.

    Its size, and its footer, which says where every column of every row group lies, how long it is
    and mostly between which values.
    """
    with open(file, "rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(size - 8, 0))
        length = int.from_bytes(opened.read(4), "little")
        opened.seek(max(size - 8 - length, 0))
        return hashlib.sha256(size.to_bytes(8, "little") + opened.read()).hexdigest()[:16]


def _cut(file: str, sizes: list[int], stamped: str = "") -> list[Part]:
    """Row groups in stretches of about PART rows.

    >>> [part.groups for part in _cut("log", [300_000, 300_000, 10, 0, 900_000])]
    [(0, 1), (2, 3, 4)]
    """
    parts, groups, rows = [], [], 0
    for number, size in enumerate(sizes):
        groups.append(number)
        rows += size
        if rows >= PART or number == len(sizes) - 1:
            parts.append(Part(file, tuple(groups), rows, stamped))
            groups, rows = [], 0
    return parts


def find_columns(
    source: Source,
    *,
    context: str | Sequence[str],
    reward: str,
    user: str | None,
    dim_given: int | None = None,
    private: bool = False,
    encoder: Encoder | None = None,
) -> Columns:
    """The columns by name, or an error that lists those there are.

    Where contexts are `private` nothing is read off them, not even how long they are.
    """
    names = (context,) if isinstance(context, str) else tuple(context)
    if encoder is not None:
        names = tuple(encoder.features)
    if not names:
        raise LogError(
            f"name the context's column or columns; the log has {_listed(source.schema)}"
        )
    for name in (*names, reward, *([] if user is None else [user])):
        if name not in source.schema.names:
            hint = nearest(name, source.schema.names) if len(source.schema.names) < 30 else ""
            raise LogError(
                f"the log has no column {name!r}{': ' if hint else ''}{hint} "
                f"(columns: {_listed(source.schema)})"
            )
        if source.schema.names.count(name) > 1:
            raise LogError(f"the log has more than one column {name!r}")
    if len({*names, reward, user}) < len(names) + 2:
        asked = f"context {', '.join(names)}; reward {reward}; user {user}"
        raise LogError(f"one column is asked for twice: {asked}")
    if encoder is None:
        is_list, dim, single = _numbers_in(source, names, dim_given, private)
    else:
        is_list, dim, single = False, encoder.dim, False
    _check_reward(source, reward)
    numbered = check_user(source, user)
    return Columns(names, reward, user, is_list, dim, single, encoder, numbered)


def _numbers_in(
    source: Source, names: tuple[str, ...], dim_given: int | None, private: bool
) -> tuple[bool, int, bool]:
    """Whether the context is one column of lists, how many numbers it has, and whether they are short."""
    types = arrow("pyarrow").types
    kinds = [source.schema.field(name).type for name in names]
    lists = [
        types.is_list(k) or types.is_large_list(k) or types.is_fixed_size_list(k) for k in kinds
    ]
    if any(lists) and len(names) > 1:
        raise LogError("give one column of lists, or several columns of numbers, as the context")
    values = [k.value_type for k in kinds] if any(lists) else kinds
    for name, kind in zip(names, values, strict=True):
        if not _is_number(kind):
            raise LogError(
                f"the context's column {name!r} holds {kind}: numbers are needed "
                f"(columns: {_listed(source.schema)})"
            )
    dim = len(names)
    if any(lists):
        dim = (
            kinds[0].list_size
            if types.is_fixed_size_list(kinds[0])
            else (_known_length(dim_given) if private else _usual_length(source, names[0]))
        )
    single = any(types.is_float32(k) or types.is_float16(k) for k in values)
    return any(lists), dim, single


def _check_reward(source: Source, reward: str) -> None:
    if not _is_number(kind := source.schema.field(reward).type):
        raise LogError(f"the reward's column {reward!r} holds {kind}: numbers are needed")


def check_user(source: Source, user: str | None) -> bool:
    """Whether users are whole numbers in a column of floats, as pandas has them where some are missing;
    LogError if the column cannot hold users."""
    if user is None:
        return False
    types = arrow("pyarrow").types
    kind = source.schema.field(user).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_float64(kind):
        return True
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    if not (types.is_integer(kind) or any(is_text(kind) for is_text in texts)):
        raise LogError(f"the user's column {user!r} holds {kind}: text or whole numbers are needed")
    return False


def user_of(value: Any) -> str | None:
    """A user's name; None if it is missing. 17.0 is 17: nobody is two, with a cap for each.

    >>> user_of(17.0), user_of(17), user_of("17"), user_of(float("nan"))
    ('17', '17', '17', None)
    """
    if value is None or type(value).__name__ in MISSING:
        return None
    if isinstance(value, float):
        if value != value:
            return None
        if not value.is_integer() or abs(value) >= LARGEST_WHOLE:
            raise LogError(NOT_WHOLE)
        return str(int(value))
    if isinstance(value, bool) or not isinstance(value, (str, int, np.integer)):
        raise LogError(f"users must be text or whole numbers, not {type(value).__name__}")
    return str(value)


def whole_users(column: Any) -> Any:
    """A column of users in floats as whole numbers; NaN is missing."""
    pa, pc = arrow("pyarrow"), arrow("pyarrow.compute")
    column = pc.if_else(pc.is_nan(column), None, column)
    far = pc.greater_equal(pc.abs(column), float(LARGEST_WHOLE))
    broken = pc.or_(far, pc.not_equal(pc.floor(column), column))
    if pc.any(broken).as_py():
        raise LogError(NOT_WHOLE)
    return pc.cast(column, pa.int64())


def _is_number(kind: Any) -> bool:
    types = arrow("pyarrow").types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
        or types.is_null(kind)  # nobody has one: whether somebody does may be private
    )


def _known_length(given: int | None) -> int:
    if given is None:
        raise LogError(
            "contexts are private, so nobody counts how long they are: give dim=..., or a column of "
            "lists of a fixed size"
        )
    return given


def _usual_length(source: Source, name: str) -> int:
    """The length that most lists among the first rows have."""
    pc = arrow("pyarrow.compute")
    for part in source.parts:
        for batch in part.batches([name]):
            counts = pc.value_counts(
                pc.drop_null(pc.list_value_length(batch.column(0)))
            ).to_pylist()
            lengths = {row["values"]: row["counts"] for row in counts if row["values"] > 0}
            if lengths:
                return int(max(lengths, key=lambda length: (lengths[length], length)))
    raise LogError(f"the column {name!r} holds no context: every list is empty or missing")


def _listed(schema: Any) -> str:
    shown = [f"{f.name} {f.type}" for f in list(schema)[:40]]
    return ", ".join(shown) + (f", and {len(schema) - 40} more" if len(schema) > 40 else "")
