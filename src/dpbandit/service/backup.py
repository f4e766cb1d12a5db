"""A copy of a store while it is used. It holds rewards that the store will erase, and to go on from
it is to restore an old copy (`restore`)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from dpbandit.errors import OptionError, StoreError
from dpbandit.service import schema
from dpbandit.service.database import SQLite, connect


def backup(url: str, target: Path) -> int:
    """Copy a SQLite store as it is at one moment; returns the bytes of the copy. Decisions and
    rewards go on. The copy appears whole and checked, or not at all, for its owner alone.

    Raises
    ------
    OptionError
        For PostgreSQL, which has better ways of its own; and if the target is there.
    """
    connection = connect(url, create=False)
    try:
        if not isinstance(connection, SQLite):
            raise OptionError(
                "a PostgreSQL is copied with its own tools: pg_basebackup and a WAL archive, or "
                "pg_dump (docs/operate.md)"
            )
        if schema.version_of(connection) == 0:
            raise StoreError("this is no store: it has no tables of ours")
        if target.exists():
            raise OptionError(f"{target} is there already: a copy never replaces anything")
        part = target.with_name(target.name + ".part")
        try:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()  # of one that was interrupted
            os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            connection.copy_to(part)
            with part.open("rb") as file:
                os.fsync(file.fileno())
            os.link(part, target)  # unlike a rename it replaces nothing
            part.unlink()
            folder = os.open(target.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except (sqlite3.Error, OSError) as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise StoreError(f"the copy could not be made: {error}") from None
        return target.stat().st_size
    finally:
        connection.close()


def versions(url: str) -> tuple[int, int]:
    """(the store's schema version, the one that this program brings it to). Changes nothing."""
    connection = connect(url, create=False)
    try:
        return schema.version_of(connection), len(schema.MIGRATIONS)
    finally:
        connection.close()
