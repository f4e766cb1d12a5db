"""One thin layer over SQLite and PostgreSQL: the same SQL for both, transactions, the store's
clock, and its locks.

SQLite serialises writers; PostgreSQL is told what must not overlap by row and advisory locks.
Nothing above this file knows which of the two it talks to.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dpbandit.errors import OptionError, StoreError

Row = tuple[Any, ...]

# What URLs of a PostgreSQL begin with.
POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")
# SQLite compiles a statement for each number of rows; powers of two keep the set of statements
# small and cached.
CHUNKS = tuple(1 << k for k in range(8, -1, -1))
# How long a store may take over one statement, waiting for others included, unless said.
PATIENCE = 20.0
# How often a writer looks whether it is its turn.
TURN_SECONDS = 0.0005


class _Shared:
    """One connection, for one thread at a time. SQL uses `?` for parameters."""

    _begin: str
    _db: Any
    _problems: type[Exception]
    # Who may write now, where the database does not see to it in a fair way.
    _turn: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()

    def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self._errors():
            rows: list[Row] = self._execute(sql, parameters).fetchall()
            return rows

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row, or None."""
        return next(iter(self.all(sql, parameters)), None)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """How many rows it changed."""
        with self._errors():
            return int(self._execute(sql, parameters).rowcount)

    def add(self, table: str, **row: Any) -> None:
        """Insert one row."""
        marks = ", ".join("?" * len(row))
        self.run(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """A transaction: all that the block writes, or nothing."""
        with self._turn:
            self.run(self._begin)
            try:
                yield
                with self._errors():
                    self._commit()
            except BaseException:
                with contextlib.suppress(self._problems):
                    self._db.execute("ROLLBACK")
                raise

    def _execute(self, sql: str, parameters: Sequence[Any]) -> Any:
        return self._db.execute(sql, parameters)

    def _commit(self) -> None:
        self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._problems as error:
            raise StoreError(f"the store answered: {self._words(error)}") from None

    def _words(self, error: Exception) -> str:
        # Parameters are never part of it: a reward might be among them.
        return type(error).__name__


class _Turn:
    """A fair lock between the processes that write to one SQLite file.

    SQLite makes a waiting writer poll, so a busy one can shut the others out for as long as it is
    busy. Here a writer first takes the turnstile, then the lock: whoever waits for the lock holds
    the turnstile, and the busy one queues behind it. The kernel drops both when a process dies.
    One that is stopped keeps them, so nobody waits without an end.
    """

    def __init__(self, path: Path, patience: float) -> None:
        self._patience = patience
        self._turnstile, self._lock = (
            os.open(f"{path}-{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            for name in ("turn", "lock")
        )

    def __enter__(self) -> None:
        deadline = time.monotonic() + self._patience
        self._take(self._turnstile, deadline)
        try:
            self._take(self._lock, deadline)
        finally:
            fcntl.flock(self._turnstile, fcntl.LOCK_UN)

    def _take(self, handle: int, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreError("the store is busy: another process holds its lock") from None
            time.sleep(TURN_SECONDS)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._turnstile)
        os.close(self._lock)


class SQLite(_Shared):
    """A file on this machine."""

    kind = "sqlite"
    _begin, _problems = "BEGIN IMMEDIATE", sqlite3.Error
    _turn: _Turn

    def __init__(self, path: Path, *, create: bool, patience: float) -> None:
        self._patience = patience
        if not create and not path.exists():
            raise StoreError(f"there is no store at {path}")
        if not path.parent.is_dir():
            raise StoreError(f"there is no folder {path.parent} to keep the store in")
        try:
            if not path.exists():  # for its owner alone: rewards are in it
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(
                path,
                timeout=patience,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            self._refuse_what_is_not_ours(path)
            # FULL: a commit has reached the disk when it returns. secure_delete: an erased reward
            # is overwritten.
            pragmas = ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON")
            for pragma in (*pragmas, "wal_autocheckpoint=2000"):
                self._db.execute(f"PRAGMA {pragma}").fetchall()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot open the store {path}: {error}") from error
        self._turn = _Turn(path, patience)

    def _refuse_what_is_not_ours(self, path: Path) -> None:
        """A path that is wrong by a letter must not make a store of another program's data."""
        rows = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if rows and ("meta",) not in rows:
            self._db.close()
            raise StoreError(f"{path} is not a store: it holds another program's tables")

    def _words(self, error: Exception) -> str:
        return f"{type(error).__name__}: {error}"

    def insert(self, table: str, columns: Mapping[str, str], rows: Sequence[Row]) -> None:
        """Insert many rows; `columns` are names with PostgreSQL's types."""
        # One statement for many rows: Python gives up its lock at every step of SQLite, and under
        # load it takes milliseconds to get it back.
        width, at = f"({','.join('?' * len(columns))})", 0
        for size in CHUNKS:
            while len(rows) - at >= size:
                values = [value for row in rows[at : at + size] for value in row]
                places = ",".join([width] * size)
                self.run(f"INSERT INTO {table} ({','.join(columns)}) VALUES {places}", values)
                at += size

    def matching(self, sql: str, before: Sequence[Any], numbers: Sequence[int]) -> list[Row]:
        """Rows of integers, for `sql` that ends in `IN NUMBERS`. One step, for the same reason."""
        columns, rest = sql.removeprefix("SELECT ").split(" FROM ", 1)
        rest = rest.replace("NUMBERS", "(SELECT value FROM json_each(?))")
        query = f"SELECT json_group_array(json_array({columns})) FROM {rest}"
        found = self.all(query, (*before, json.dumps(list(numbers))))
        return [tuple(row) for row in json.loads(found[0][0])]

    def naming(self, sql: str, names: Sequence[str], after: Sequence[Any]) -> list[Row]:
        """Rows for `sql` that reads from the table NAMES, whose one column is `names.value`."""
        sql = sql.replace("NAMES", "json_each(?) AS names")
        return self.all(sql, (json.dumps(list(names)), *after))

    def pairing(
        self, sql: str, before: Sequence[Any], pairs: Sequence[tuple[int, int]]
    ) -> list[Row]:
        """Rows for `sql` that reads from the table PAIRS, whose columns are `pairs.a` and
        `pairs.b`."""
        columns = "json_extract(value, '$[0]') AS a, json_extract(value, '$[1]') AS b"
        sql = sql.replace("PAIRS", f"(SELECT {columns} FROM json_each(?)) AS pairs")
        return self.all(sql, (*before, json.dumps(list(pairs))))

    def now(self) -> int:
        return time.time_ns() // 1000

    def share(self, what: int, bandit: int) -> None:
        """Writers exclude each other here anyway."""

    def exclude(self, what: int, bandit: int) -> None:
        """Writers exclude each other here anyway."""

    def copy_to(self, path: Path) -> None:
        """All that is committed now, in one file without a log, looked over."""
        with contextlib.closing(sqlite3.connect(path)) as copy:
            self._db.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE").fetchall()
            if copy.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                raise StoreError("the store is damaged: its copy is inconsistent")

    def empty_log(self) -> bool:
        """Erased rows are overwritten in the file; the log beside it must be emptied too. False if
        somebody is reading, a backup say, who is not waited for."""
        with self._turn, self._errors():
            self._db.execute("PRAGMA busy_timeout=100")
            try:
                ((busy, _, _),) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self._db.execute(f"PRAGMA busy_timeout={int(1000 * self._patience)}")
        return not busy

    @contextlib.contextmanager
    def unhurried(self) -> Iterator[None]:
        """A statement takes as long as it takes; only waiting for others has an end."""
        yield

    def close(self) -> None:
        self._db.close()
        self._turn.close()


# Unless the URL says otherwise. A server whose machine is gone is noticed within half a minute,
# idle or not.
DEFAULTS: dict[str, Any] = {
    "application_name": "dpbandit",
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# The server ends a statement that takes too long. One that is stopped, whose machine still answers
# for it, ends nothing: a moment later the connection is given up here.
GRACE = 2.0


@functools.cache
def _deadlined() -> Callable[..., Any]:
    """Opens connections that give up on a silent server."""
    import psycopg

    class Deadlined(psycopg.Connection[Any]):
        deadline: float | None = None  # seconds for one statement

        def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
            if self.deadline is None:
                return super().wait(gen, *arguments, **more)
            limited = self._limited(gen, time.monotonic() + self.deadline)
            return super().wait(limited, *arguments, **more)

        def _limited(self, gen: Any, deadline: float) -> Any:
            ready = None
            while True:
                try:
                    wanted = gen.send(ready)
                except StopIteration as end:
                    return end.value
                # Asked again whenever something came, and ten times a second when nothing does.
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.close()
                    raise psycopg.OperationalError("the server is silent")

    return functools.partial(Deadlined.connect, autocommit=True)


class Postgres(_Shared):
    """A server, for several machines."""

    kind = "postgresql"
    _begin = "BEGIN"

    def __init__(self, url: str, *, patience: float) -> None:
        try:
            import psycopg
        except ImportError:
            raise StoreError(
                "PostgreSQL needs the extra 'postgres': pip install 'dpbandit[postgres]'"
            ) from None
        self._problems, self._url, self._patience = psycopg.Error, url, patience
        self._open()

    def _open(self) -> None:
        from psycopg.conninfo import conninfo_to_dict

        try:
            own = conninfo_to_dict(self._url)
        except self._problems:  # its words quote the URL, the password included
            raise OptionError(
                "the URL of this PostgreSQL cannot be read: special characters of a password are "
                "written as %40, and what comes after a ? are options of libpq"
            ) from None
        try:
            limit = int(1000 * self._patience)
            # A process that is paused inside a transaction must not hold its locks for ever. Plans
            # are made while the tables are empty and kept for the life of a connection: reading a
            # table from end to end, right then, is wrong soon. A failed statement is logged without
            # its parameters: rewards may be among them. What the URL says comes last, and holds.
            options = (
                f"-c idle_in_transaction_session_timeout=10000 -c lock_timeout={limit} "
                f"-c statement_timeout={limit} -c synchronous_commit=on -c enable_seqscan=off "
                f"-c jit=off -c log_parameter_max_length_on_error=0 {own.pop('options', None) or ''}"
            )
            soon = {"connect_timeout": max(2, int(min(self._patience, 5)))}
            self._db = _deadlined()(**DEFAULTS | soon | own | {"options": options.strip()})
            self._db.deadline = self._patience + GRACE
        except self._problems as error:
            why = str(error).strip().split("\n", 1)[0]
            where = f"{own.get('dbname', '')} at {own.get('host', 'its socket')}"
            raise StoreError(f"cannot reach the store {where}: {why}") from None

    def _execute(self, sql: str, parameters: Sequence[Any]) -> Any:
        if self._db.closed:
            self._open()
        # binary: doubles arrive bit for bit
        return self._db.cursor(binary=True).execute(sql.replace("?", "%s"), parameters)

    def _commit(self) -> None:
        if self._db.execute("COMMIT").statusmessage != "COMMIT":
            raise StoreError("the store rolled a transaction back")

    def insert(self, table: str, columns: Mapping[str, str], rows: Sequence[Row]) -> None:
        if rows:
            arrays = ",".join(f"?::{kind}[]" for kind in columns.values())
            sql = f"INSERT INTO {table} ({','.join(columns)}) SELECT * FROM unnest({arrays})"
            self.run(sql, [list(column) for column in zip(*rows, strict=True)])

    def matching(self, sql: str, before: Sequence[Any], numbers: Sequence[int]) -> list[Row]:
        sql = sql.replace("NUMBERS", "(SELECT unnest(?::bigint[]))")
        return self.all(sql, (*before, list(numbers)))

    def naming(self, sql: str, names: Sequence[str], after: Sequence[Any]) -> list[Row]:
        sql = sql.replace("NAMES", "unnest(?::text[]) AS names(value)")
        return self.all(sql, (list(names), *after))

    def pairing(
        self, sql: str, before: Sequence[Any], pairs: Sequence[tuple[int, int]]
    ) -> list[Row]:
        sql = sql.replace("PAIRS", "unnest(?::bigint[], ?::bigint[]) AS pairs(a, b)")
        return self.all(sql, (*before, [a for a, _ in pairs], [b for _, b in pairs]))

    def now(self) -> int:
        rows = self.all("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int(rows[0][0])

    def share(self, what: int, bandit: int) -> None:
        self.all("SELECT pg_advisory_xact_lock_shared(?::int, ?::int)", (what, bandit))

    def exclude(self, what: int, bandit: int) -> None:
        self.all("SELECT pg_advisory_xact_lock(?::int, ?::int)", (what, bandit))

    def empty_log(self) -> bool:
        """PostgreSQL's own vacuum does that, and its logs are the operator's."""
        return True

    @contextlib.contextmanager
    def unhurried(self) -> Iterator[None]:
        """For a migration, which may read whole tables."""
        self._db.deadline = None
        self.run("SET statement_timeout = 0")
        try:
            yield
        finally:
            self._db.deadline = self._patience + GRACE
            self.run(f"SET statement_timeout = {int(1000 * self._patience)}")

    def close(self) -> None:
        self._db.close()


Connection = SQLite | Postgres


def connect(url: str, *, create: bool = True, patience: float = PATIENCE) -> Connection:
    """Open a store by URL: `sqlite:///file.db` (four slashes for an absolute path) or
    `postgresql://…`. No statement takes longer than `patience`, in seconds."""
    if url.startswith(POSTGRES):
        return Postgres(url.replace("postgresql+psycopg://", "postgresql://", 1), patience=patience)
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return SQLite(Path(unquote(url[len("sqlite:///") :])), create=create, patience=patience)
    raise StoreError(
        "a store is sqlite:///file.db or postgresql://user@host/name; the given one is neither"
    )
