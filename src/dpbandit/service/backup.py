"""A copy of a store in use. It holds rewards that the store will erase, and starting from it means
restoring an old copy (`restore`)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
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
        For PostgreSQL, which has its own, better tools; and if the target exists.
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
            for left in (part, part.with_name(part.name + "-journal")):
                with contextlib.suppress(FileNotFoundError):
                    left.unlink()  # of one that was interrupted
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
