"""Writes decisions and rewards in groups: one transaction for everything that arrived while the
last one was being written. No request is answered before its write is on disk.

The event loop collects; threads write. A decision gets its place in the stream inside the
transaction, so that places are given in the order of commits, whichever ranker asks (`records`).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from dpbandit.errors import StoreError
from dpbandit.service.answers import Overloaded
from dpbandit.service.database import POSTGRES
from dpbandit.service.records import Asked, Decision, Placed, Report, judge, place
from dpbandit.service.store import Kept, Store

# A burst is not held back until all of it has been looked at.
FIRST_BATCH = 48
# Rewards in one transaction, lists as a whole: decisions that come meanwhile wait for it.
MOST_REWARDS = 500


class Journal:
    """The writers of one ranker process.

    In PostgreSQL a report may wait for a learner that is closing its stretch of the stream. Reports have
    a writer of their own there, so that a decision never shows that one waits. SQLite has one writer at
    a time, whatever it writes.
    """

    def __init__(self, url: str, *, most_waiting: int = 20_000) -> None:
        self._decisions = self._reports = Writer(url, most_waiting)
        if url.startswith(POSTGRES):
            self._reports = Writer(url, most_waiting)
        # What is called on all of them, once each.
        self._writers = list(dict.fromkeys([self._decisions, self._reports]))
        self.decide, self.decide_all = self._decisions.decide, self._decisions.decide_all
        self.probe, self.report = self._decisions.probe, self._reports.report

    async def start(self) -> None:
        for writer in self._writers:
            await writer.start()

    async def stop(self) -> None:
        """Write what is waiting, then end."""
        await asyncio.gather(*(writer.stop() for writer in self._writers))

    def expire(self, seconds: float) -> None:
        """As of `Writer`."""
        for writer in self._writers:
            writer.expire(seconds)


class Writer:
    """A thread with a connection, and what waits for it."""

    def __init__(self, url: str, most_waiting: int) -> None:
        self._most = most_waiting
        self._decisions: list[tuple[Decision, asyncio.Future[Placed], Asked | None]] = []
        self._reports: list[tuple[int, float, str, list[Report], asyncio.Future[list[str]]]] = []
        # Apart: that many rewards wait must not be seen by who asks for decisions.
        self._decisions_waiting = self._reports_waiting = 0
        self._busy = False
        self._nudged = False
        self._in_flight: tuple[float, list[asyncio.Future[Any]]] | None = None
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._kept = Kept(url, Store)
        self._loop: asyncio.AbstractEventLoop  # of `start`
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Write what is waiting, then end."""
        while self._busy or self._decisions or self._reports:
            await asyncio.sleep(0.01)
        self._work.put(None)
        while self._thread.is_alive():
            await asyncio.sleep(0.01)

    async def probe(self, seconds: float) -> None:
        """Write something, as decisions are written. Raises StoreError if that does not succeed."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._work.put(lambda: self._probe(future))
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            raise StoreError("nothing can be written: the store takes too long") from None

    # ------------------------------------------------------------------ the event loop's side

    def decide(self, decision: Decision, asked: Asked | None = None) -> asyncio.Future[Placed]:
        """Write a decision. The answer: its (seq, nonce) once durable, or the one made before."""
        return self.decide_all([(decision, asked)])[0]

    def decide_all(
        self, decisions: list[tuple[Decision, Asked | None]]
    ) -> list[asyncio.Future[Placed]]:
        """Write decisions, all in one transaction: all of them, or none."""
        waiting = self._decisions_waiting
        if waiting >= self._most or (waiting and waiting + len(decisions) > self._most):
            raise Overloaded
        self._decisions_waiting += len(decisions)
        futures: list[asyncio.Future[Placed]] = []
        for decision, asked in decisions:
            futures.append(self._loop.create_future())
            self._decisions.append((decision, futures[-1], asked))
        self._nudge()
        return futures

    def report(
        self, bandit: int, window: float, key: str, reports: list[Report]
    ) -> asyncio.Future[list[str]]:
        """Write rewards; the answer is a status for each, once those accepted are durable."""
        if self._reports_waiting + len(reports) > self._most:
            raise Overloaded
        self._reports_waiting += len(reports)
        future: asyncio.Future[list[str]] = self._loop.create_future()
        self._reports.append((bandit, window, key, reports, future))
        self._nudge()
        return future

    def _nudge(self) -> None:
        """Write soon. The first few of a burst go at once: meanwhile others are worked on."""
        if not self._busy:
            if len(self._decisions) + len(self._reports) >= FIRST_BATCH:
                self._busy = True
                self._send()
            elif not self._nudged:
                self._nudged = True
                self._loop.call_soon(self._send_soon)

    def _send_soon(self) -> None:
        self._nudged = False
        if not self._busy:
            self._busy = True
            self._send()

    def _send(self) -> None:
        decisions, reports = self._decisions, self._reports
        if not decisions and not reports:
            self._busy = False
            return
        sizes = accumulate(len(entry[3]) for entry in reports)
        at = next((n for n, size in enumerate(sizes, 1) if size >= MOST_REWARDS), len(reports))
        reports, rest = reports[:at], reports[at:]
        self._decisions, self._reports = [], rest
        self._in_flight = (time.monotonic(), _futures(decisions, reports))
        self._work.put(lambda: self._write(decisions, reports))

    def _done(
        self,
        results: list[tuple[asyncio.Future[Any], Any]],
        decisions: int,
        reports: int,
        error: StoreError | None,
    ) -> None:
        self._decisions_waiting -= decisions
        self._reports_waiting -= reports
        self._in_flight = None
        self._send()
        for future, result in results:
            if not future.done():  # its caller may have gone away
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(result)

    def expire(self, seconds: float) -> None:
        """Answer those who have waited this long for a store that hangs. It may still write what
        they sent: asking again is safe for rewards and under a request id, and leaves a decision
        without a reward otherwise."""
        if self._in_flight is not None and time.monotonic() - self._in_flight[0] > seconds:
            for future in self._in_flight[1] + _futures(self._decisions, self._reports):
                if not future.done():
                    future.set_exception(StoreError("the store takes too long"))

    # ------------------------------------------------------------------ the thread's side

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
        self._kept.close()

    def _write(self, decisions: list[Any], reports: list[Any]) -> None:
        rewards = sum(len(entry[3]) for entry in reports)
        error: StoreError | None = None
        placed, judged = list[Any](), list[Any]()
        try:
            with self._kept.opened() as store, store.connection.write():
                if decisions:
                    placed = place(store.connection, decisions)
                if reports:
                    judged = judge(store.connection, reports)
        except StoreError as problem:
            error = problem
        except Exception as problem:
            # Answered, never swallowed: the caller must know that nothing was written.
            error = StoreError(f"the journal failed: {type(problem).__name__}")
            self._kept.close()
        futures = _futures(decisions, reports)
        answers = [None] * len(futures) if error else [*placed, *judged]
        results = list(zip(futures, answers, strict=True))
        with contextlib.suppress(RuntimeError):  # the loop has ended: so has everybody who waited
            self._loop.call_soon_threadsafe(self._done, results, len(decisions), rewards, error)

    def _probe(self, future: asyncio.Future[None]) -> None:
        error: Exception | None = None
        if future.cancelled():  # nobody waits for it any more
            return
        try:
            with self._kept.opened() as store:
                store.set_meta("written", str(store.connection.now()))
        except Exception as problem:
            error = problem

        def tell() -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(tell)


def _futures(decisions: list[Any], reports: list[Any]) -> list[asyncio.Future[Any]]:
    """Who waits for these."""
    return [*(entry[1] for entry in decisions), *(entry[4] for entry in reports)]
