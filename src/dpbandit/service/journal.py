"""Decisions and rewards, written down many at a time: one transaction for all that arrived while the last one was being
written. Nobody is answered before the disk has it.

The event loop collects; one thread writes. A decision gets its place in the stream inside the transaction, so that places
are given in the order of commits and without gaps, whichever ranker asks. Whether a reward is in time is decided here, once,
by the store's clock and under the same lock with which the learner closes a stretch of the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from dpbandit.errors import StoreError
from dpbandit.service.database import Connection, connect, one
from dpbandit.service.schema import LOCK_REWARDS
from dpbandit.service.store import DELETED, LEARNING

DECISION_COLUMNS = ("bandit", "seq", "nonce", "decided_at", "arm", "arm_id", "context", "person", "version", "key")
DECISION_TYPES = ("int", "bigint", "bigint", "bigint", "int", "text", "bytea", "bytea", "bigint", "text")
REWARD_COLUMNS = ("bandit", "seq", "value", "received_at", "key")
REWARD_TYPES = ("int", "bigint", "float8", "bigint", "text")

# (bandit, arm, arm_id, context, person, model version, key)
Decision = tuple[int, int, str | None, bytes, bytes | None, int, str]
# (seq, nonce, value)
Report = tuple[int, int, float]

ACCEPTED, DUPLICATE, LATE, CONFLICT, UNKNOWN = "accepted", "duplicate", "late", "conflict", "unknown"


# A burst is not held back until all of it has been looked at.
FIRST_BATCH = 48


class Overloaded(Exception):  # noqa: N818 - an answer, not a failure
    """More is waiting than this process is willing to hold."""


def decision_id(seq: int, nonce: int) -> str:
    """What a caller quotes with the reward. The nonce tells decisions of a restored store from those that were lost."""
    return f"{seq:x}-{nonce:016x}"


def parse_decision_id(text: str) -> tuple[int, int] | None:
    """(seq, nonce), or None if it cannot be one of ours."""
    head, dash, tail = text.partition("-")
    if not dash or len(tail) != 16 or not 0 < len(head) <= 15 or not (head + tail).isascii():
        return None
    try:
        seq, nonce = int(head, 16), int(tail, 16)
    except ValueError:
        return None
    return (seq, nonce) if seq > 0 and nonce < 2**63 and decision_id(seq, nonce) == text else None


class Journal:
    """The writer of one ranker process."""

    def __init__(self, url: str, *, most_waiting: int = 20_000) -> None:
        self._url = url
        self._most = most_waiting
        self._decisions: list[tuple[Decision, asyncio.Future[tuple[int, int] | None]]] = []
        self._reports: list[tuple[int, float, str, list[Report], asyncio.Future[list[str]]]] = []
        self._waiting = 0
        self._busy = False
        self._nudged = False
        self._in_flight: tuple[float, list[asyncio.Future[Any]]] | None = None
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self.batches = 0
        self.last_seconds = 0.0

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Write what is waiting, then end."""
        while self._busy or self._waiting:
            await asyncio.sleep(0.01)
        self._work.put(None)
        await asyncio.to_thread(self._thread.join, 10.0)

    # ------------------------------------------------------------------ the event loop's side

    def decide(self, decision: Decision) -> asyncio.Future[tuple[int, int] | None]:
        """Write a decision; the answer is its (seq, nonce), once it is durable."""
        self._make_room(1)
        assert self._loop is not None
        future: asyncio.Future[tuple[int, int] | None] = self._loop.create_future()
        self._decisions.append((decision, future))
        self._nudge()
        return future

    def report(self, bandit: int, window: float, key: str, reports: list[Report]) -> asyncio.Future[list[str]]:
        """Write rewards; the answer is a status for each, once those accepted are durable."""
        self._make_room(len(reports))
        assert self._loop is not None
        future: asyncio.Future[list[str]] = self._loop.create_future()
        self._reports.append((bandit, window, key, reports, future))
        self._nudge()
        return future

    def _nudge(self) -> None:
        """Write soon. The first few of a burst go at once: while they are written, the others can be worked on."""
        if not self._busy:
            if len(self._decisions) + len(self._reports) >= FIRST_BATCH:
                self._busy = True
                self._send()
            elif not self._nudged:
                self._nudged = True
                assert self._loop is not None
                self._loop.call_soon(self._send_soon)

    def _send_soon(self) -> None:
        self._nudged = False
        if not self._busy:
            self._busy = True
            self._send()

    def _make_room(self, count: int) -> None:
        if self._waiting + count > self._most:
            raise Overloaded
        self._waiting += count

    def _send(self) -> None:
        decisions, reports = self._decisions, self._reports
        if not decisions and not reports:
            self._busy = False
            return
        self._decisions, self._reports = [], []
        futures: list[asyncio.Future[Any]] = [*(d[1] for d in decisions), *(r[4] for r in reports)]
        self._in_flight = (time.monotonic(), futures)
        self._work.put(lambda: self._write(decisions, reports))

    def _done(self, results: list[tuple[asyncio.Future[Any], Any]], count: int, error: StoreError | None) -> None:
        self._waiting -= count
        if self._in_flight is not None:
            self.last_seconds = time.monotonic() - self._in_flight[0]
            self._in_flight = None
        self._send()
        for future, result in results:
            if not future.done():  # its caller may have gone away
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(result)

    def expire(self, seconds: float) -> None:
        """Answer those who have waited this long for a store that hangs. It may still write what they sent: asking again
        is safe for rewards, and leaves a decision without a reward otherwise."""
        if self._in_flight is not None and time.monotonic() - self._in_flight[0] > seconds:
            waiting: list[asyncio.Future[Any]] = [*(d[1] for d in self._decisions), *(r[4] for r in self._reports)]
            for future in (*self._in_flight[1], *waiting):
                if not future.done():
                    future.set_exception(StoreError("the store takes too long"))

    # ------------------------------------------------------------------ the thread's side

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
        if self._connection is not None:
            self._connection.close()

    def _write(self, decisions: list[Any], reports: list[Any]) -> None:
        count = len(decisions) + sum(len(entry[3]) for entry in reports)
        error: StoreError | None = None
        placed: list[Any] = []
        judged: list[Any] = []
        try:
            if self._connection is None:
                self._connection = connect(self._url)
            with self._connection.write():
                if decisions:
                    placed = self._place([entry for entry, _ in decisions])
                if reports:
                    judged = self._judge(reports)
            self.batches += 1
        except StoreError as problem:
            error = problem
            self._drop_connection()
        except Exception as problem:  # answered, never swallowed: the caller must know that nothing was written
            error = StoreError(f"the journal failed: {type(problem).__name__}")
            self._drop_connection()
        if error is not None:
            placed, judged = [None] * len(decisions), [None] * len(reports)
        results = [(future, answer) for (_, future), answer in zip(decisions, placed, strict=True)]
        results += [(entry[4], answer) for entry, answer in zip(reports, judged, strict=True)]
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended: so has everybody who waited
            self._loop.call_soon_threadsafe(self._done, results, count, error)

    def _drop_connection(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
        self._connection = None

    def _place(self, decisions: list[Decision]) -> list[tuple[int, int] | None]:
        """Give each decision its place and write it down. None: its bandit is gone."""
        db = self._connection
        assert db is not None
        counts: dict[int, int] = {}
        for decision in decisions:
            counts[decision[0]] = counts.get(decision[0], 0) + 1
        free: dict[int, int] = {}
        for bandit in sorted(counts):  # in one order everywhere, so that no two rankers wait for each other
            # The row stays locked until the commit: another ranker's decisions come after these.
            sql = f"UPDATE streams SET last_seq = last_seq + ? WHERE bandit = ? AND EXISTS (SELECT 1 FROM bandits WHERE id = ? AND status <> '{DELETED}') RETURNING last_seq"
            row = one(db, sql, (counts[bandit], bandit, bandit))
            if row is not None:
                free[bandit] = int(row[0]) - counts[bandit]
        now = db.now()
        nonces = struct.unpack(f"<{len(decisions)}Q", os.urandom(8 * len(decisions)))
        rows: list[tuple[Any, ...]] = []
        places: list[tuple[int, int] | None] = []
        for (bandit, arm, arm_id, context, person, version, key), random in zip(decisions, nonces, strict=True):
            if bandit not in free:
                places.append(None)
                continue
            free[bandit] += 1
            seq, nonce = free[bandit], random >> 1
            rows.append((bandit, seq, nonce, now, arm, arm_id, context, person, version, key))
            places.append((seq, nonce))
        db.insert("decisions", DECISION_COLUMNS, rows, types=DECISION_TYPES)
        return places

    def _judge(self, entries: list[Any]) -> list[list[str]]:
        """A status for every reward reported, and those accepted written down."""
        db = self._connection
        assert db is not None
        wanted: dict[int, set[int]] = {}
        for bandit, _window, _key, reports, _future in entries:
            wanted.setdefault(bandit, set()).update(seq for seq, _, _ in reports)
        books = {bandit: _Book(db, bandit, sorted(wanted[bandit])) for bandit in sorted(wanted)}
        now = db.now()
        answers = [
            [books[bandit].judge(seq, nonce, value, now, window, key) for seq, nonce, value in reports]
            for bandit, window, key, reports, _future in entries
        ]
        rows = [row for book in books.values() for row in book.new]
        db.insert("rewards", REWARD_COLUMNS, rows, types=REWARD_TYPES)
        return answers


class _Book:
    """What the store knows about some decisions of one bandit, while it is locked."""

    def __init__(self, db: Connection, bandit: int, seqs: list[int]) -> None:
        db.share(LOCK_REWARDS, bandit)
        self.bandit = bandit
        self.new: list[tuple[Any, ...]] = []
        self.values: dict[int, float] = {}
        state = one(
            db,
            "SELECT p.closed, p.learned, s.last_seq, b.status FROM progress p JOIN streams s ON s.bandit = p.bandit JOIN bandits b "
            "ON b.id = p.bandit WHERE p.bandit = ?",
            (bandit,),
        )
        self.closed, self.learned, self.last, self.status = state or (0, 0, 0, DELETED)
        found = db.matching(
            "SELECT d.seq, d.nonce, d.decided_at, CASE WHEN r.seq IS NULL THEN 0 ELSE 1 END FROM decisions d LEFT JOIN "
            "rewards r ON r.bandit = d.bandit AND r.seq = d.seq WHERE d.bandit = ? AND d.seq IN NUMBERS",
            (bandit,),
            seqs,
        )
        self.decisions = {seq: (nonce, decided_at) for seq, nonce, decided_at, _ in found}
        for seq, _, _, rewarded in found:
            if rewarded:  # seldom: a retry
                row = one(db, "SELECT value FROM rewards WHERE bandit = ? AND seq = ?", (bandit, seq))
                if row is not None:
                    self.values[seq] = float(row[0])

    def judge(self, seq: int, nonce: int, value: float, now: int, window: float, key: str) -> str:
        known = self.decisions.get(seq)
        if known is None:
            # Its decision was learned and erased long ago.
            return LATE if seq <= min(self.learned, self.last) and self.status != DELETED else UNKNOWN
        if known[0] != nonce:
            return UNKNOWN
        before = self.values.get(seq)
        if before is not None:
            return DUPLICATE if before == value else CONFLICT
        if seq <= self.closed or now - known[1] > window * 1e6 or self.status != LEARNING:
            return LATE
        self.values[seq] = value
        self.new.append((self.bandit, seq, value, now, key))
        return ACCEPTED
