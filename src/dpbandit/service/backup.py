"""A copy of a store in use. It holds rewards that the store will erase, and starting from it means
restoring an old copy (`restore`)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from dpbandit.errors import OptionError, StoreError
from dpbandit.service import schema
from dpbandit.service.database import SQLite, connect


def backup(url: str, target: Path) -> int:
    """Copy a SQLite store as of one moment; returns the size of the copy in bytes. Decisions and
    rewards continue. The copy appears whole and checked, or not at all, readable only by its owner.

    Raises
    ------
    OptionError
        For PostgreSQL, which has its own, better tools; if the target exists; and while another copy
        to it is being made.
    """
    connection = connect(url, create=False)
    try:
        if not isinstance(connection, SQLite):
            raise OptionError(
                "a PostgreSQL is copied with its own tools: pg_basebackup and a WAL archive, or "
                "pg_dump (docs/operate.md)"
            )
        if schema.version_of(connection) == 0:
            raise StoreError("this is not a store: it has none of our tables")
        if target.exists():
            raise OptionError(f"{target} exists already: a copy never replaces anything")
        part = target.with_name(target.name + ".part")
        try:
            with _alone(part) as file:
                try:
                    connection.copy_to(part)
                    os.fsync(file)
                    os.link(part, target)  # unlike a rename it replaces nothing
                finally:
                    part.unlink()
            folder = os.open(target.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"the copy could not be made: {error}") from None
        return target.stat().st_size
    finally:
        connection.close()


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[int]:
    """A new file for its owner alone, in the place of one that was left by a copy that was killed.
    Two copies of one name at a time would write the same file."""
    busy = OptionError(f"another copy to {part.with_suffix('')} is being made just now")
    with contextlib.ExitStack() as stack:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(FileNotFoundError):
            left = os.open(part, flags)
            stack.callback(os.close, left)
            # Locked until the new file is, so that of several who find it one alone goes on.
            _lock(left, part, busy)
            for name in (part, part.with_name(part.name + "-journal")):
                with contextlib.suppress(FileNotFoundError):
                    name.unlink()
        try:
            file = os.open(part, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise busy from None
        stack.callback(os.close, file)
        _lock(file, part, busy)
        yield file


def _lock(file: int, path: Path, busy: OptionError) -> None:
    """Lock it, if it is still the file of that name."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        same = os.path.samestat(os.fstat(file), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        raise busy from None
    if not same:
        raise busy


def versions(url: str) -> tuple[int, int]:
    """(the store's schema version, the one that this program brings it to). Changes nothing."""
    connection = connect(url, create=False)
    try:
        return schema.version_of(connection), len(schema.MIGRATIONS)
    finally:
        connection.close()
