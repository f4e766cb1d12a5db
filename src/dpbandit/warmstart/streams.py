"""Parts of a log that is not Parquet: CSV files, Arrow files, and a stream of Arrow, which can be read once.

How many rows they have is unknown until they are read. Each is one part, and one thread reads it.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpbandit.errors import LogError

HEAD = 65_536  # rows of a stream that are kept, so that it can be looked at before it is read
ENDS = 1 << 16  # bytes at either end that tell a file from another one

# What stands for a missing value in CSV: nothing, and what R, databases and spreadsheets write.
SPELLED_MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None")
NO_TEXTS: Mapping[str, frozenset[str]] = {}

# Kinds of files by how their names end.
KINDS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


def kind_of(file: str) -> str:
    """What a file holds, by its name; Parquet where it does not say.

    >>> kind_of("log.csv"), kind_of("log.ARROW"), kind_of("log")
    ('csv', 'arrow', 'parquet')
    """
    return KINDS.get(Path(file).suffix.lower(), "parquet")


def schema_of(file: str, kind: str) -> Any:
    """The columns of a CSV or Arrow file; of CSV as its first megabyte suggests."""
    with _reader(file, kind, None, None) as reader:
        return reader.schema


@dataclass(frozen=True)
class FilePart:
    """A whole CSV or Arrow file."""

    file: str
    kind: str
    schema: Any
    stamp: str
    rows: int | None = None
    table: Any = None  # it is not in memory

    def batches(
        self,
        names: list[str],
        rows: int = 16_384,
        *,
        threads: bool = False,
        numbers: Collection[str] = (),
        texts: Mapping[str, frozenset[str]] = NO_TEXTS,
    ) -> Iterator[Any]:
        """Its rows as Arrow record batches, in order. Of CSV, `numbers` and `texts` are read as such,
        whatever the first megabyte held: 0 and 1 there, or true and false, say nothing of 0.5 later.

        `texts` are columns of names, as they stand in the file: 007 is not 7. With each come the names
        that are none of `SPELLED_MISSING`: NA is a country."""
        import pyarrow as pa

        del threads  # CSV is parsed by several anyway
        where = f"{self.file} on {socket.gethostname()}"
        try:
            if ends(self.file) != self.stamp:
                raise LogError(
                    f"{where} is not the file that was opened at the start. Nothing was released"
                )
            schema = _with_kinds(self.schema, numbers, texts)
            with _reader(self.file, self.kind, schema, names) as reader:
                for batch in reader:
                    found = batch.select(names)
                    if self.kind == "csv":
                        found = self._names(_truths(found, numbers), texts)
                    yield from _slices(found, rows)
        except (OSError, ValueError, pa.ArrowException) as error:
            # Arrow's own words quote what is in it.
            words = f"{where} cannot be read ({type(error).__name__}). Nothing was released"
            if self.kind == "csv":
                words += ". Is there text in a column of numbers?"
            raise LogError(words) from None

    def _names(self, batch: Any, texts: Mapping[str, frozenset[str]]) -> Any:
        """The batch with null where a text says that it is missing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = []
        for one, column in zip(batch.schema, batch.columns, strict=True):
            if pa.types.is_string(one.type):
                known = texts.get(one.name, frozenset())
                if not known and pa.types.is_integer(self.schema.field(one.name).type):
                    # Numbers at the head: 17.0 further down is 17. Nobody is two persons.
                    column = pc.replace_substring_regex(column, r"^(-?[0-9]+)\.0$", r"\1")
                missing = [text for text in SPELLED_MISSING if text not in known]
                gone = pc.is_in(column, value_set=pa.array(missing, pa.string()))
                column = pc.if_else(gone, None, column)
            columns.append(column)
        return pa.record_batch(columns, schema=batch.schema)


@dataclass(eq=False)
class StreamPart:
    """A stream of record batches. Its head may be looked at; the rest comes once."""

    reader: Any
    file: str = "a stream"
    rows: int | None = None
    table: Any = None
    head: list[Any] = field(default_factory=list)
    kept: int = 0
    gone: bool = False

    def batches(
        self,
        names: list[str],
        rows: int = 16_384,
        *,
        threads: bool = False,
        numbers: Collection[str] = (),
        texts: Mapping[str, frozenset[str]] = NO_TEXTS,
    ) -> Iterator[Any]:
        """Its rows as Arrow record batches, in order. What is not kept is gone then."""
        del threads, numbers, texts
        for batch in list(self.head):
            yield from _slices(batch.select(names), rows)
        if self.gone:
            raise LogError("a stream can be read once, and this one was. Nothing was released")
        while (batch := self._next()) is not None:
            if self.kept < HEAD:
                self.head.append(batch)
                self.kept += batch.num_rows
            else:
                self.gone = True
            yield from _slices(batch.select(names), rows)

    def _next(self) -> Any:
        """The next batch; None after the last."""
        import pyarrow as pa

        try:
            return self.reader.read_next_batch()
        except StopIteration:
            return None
        except (OSError, ValueError, pa.ArrowException) as error:
            # Its own words quote what is in it.
            raise LogError(
                f"the stream cannot be read ({type(error).__name__}). Nothing was released"
            ) from None


def _with_kinds(schema: Any, numbers: Collection[str], texts: Mapping[str, frozenset[str]]) -> Any:
    """The schema with floats where whole numbers, or nothing, were found at the head, and with texts
    as they stand in the file."""
    import pyarrow as pa

    def kind(field: Any) -> Any:
        if field.name in texts:
            return pa.string()
        if field.name not in numbers:
            return field.type
        if pa.types.is_boolean(field.type):
            return pa.string()  # `_truths` makes numbers of them
        guessed = pa.types.is_integer(field.type) or pa.types.is_null(field.type)
        return pa.float64() if guessed else field.type

    return pa.schema([(field.name, kind(field)) for field in schema])


def _truths(batch: Any, numbers: Collection[str]) -> Any:
    """The batch with numbers where a column of them began with true and false: 1 and 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for at, one in enumerate(batch.schema):
        if one.name in numbers and pa.types.is_string(one.type):
            words = pc.utf8_lower(pc.utf8_trim_whitespace(batch.column(at)))
            missing = pa.array([text.lower() for text in SPELLED_MISSING], pa.string())
            words = pc.if_else(pc.is_in(words, value_set=missing), None, words)
            words = pc.if_else(pc.equal(words, "true"), "1", words)
            words = pc.if_else(pc.equal(words, "false"), "0", words)
            batch = batch.set_column(at, one.name, pc.cast(words, pa.float64()))
    return batch


def _slices(batch: Any, rows: int) -> Iterator[Any]:
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _reader(file: str, kind: str, schema: Any, names: list[str] | None) -> Any:
    """A reader of record batches, to be closed."""
    import pyarrow as pa

    if kind == "csv":
        from pyarrow import csv

        # Texts that are missing become null later, where it is known which are not.
        given = csv.ConvertOptions(column_types=schema, include_columns=names or [])
        return csv.open_csv(file, convert_options=given)
    if kind == "arrow":
        source = pa.memory_map(file)
        try:
            return _FileBatches(pa.ipc.open_file(source))
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source)
    raise LogError(f"{file} is of no kind that can be read: {kind}")


class _FileBatches:
    """An Arrow file, read like a stream."""

    def __init__(self, reader: Any) -> None:
        self.reader, self.schema = reader, reader.schema

    def __enter__(self) -> _FileBatches:
        return self

    def __exit__(self, *error: object) -> None:
        self.reader.__exit__(*error)

    def __iter__(self) -> Iterator[Any]:
        return (self.reader.get_batch(i) for i in range(self.reader.num_record_batches))


def ends(file: str) -> str:
    """What tells a file from another one of its name: its size, its beginning and its end."""
    with open(file, "rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(0)
        first = opened.read(ENDS)
        opened.seek(max(size - ENDS, 0))
        return hashlib.sha256(size.to_bytes(8, "little") + first + opened.read()).hexdigest()[:16]
