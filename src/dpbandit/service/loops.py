"""Background work: loops that survive everything, threads that use the store, and their last
readings.

None of it may end unseen. A loop that fails says so, once for each kind of failure, and is not
`well` until it has worked again; the service is ready while all its loops are well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from dpbandit.errors import DpbanditError, StoreError
from dpbandit.service.answers import place_of
from dpbandit.service.store import Kept, Store

log = logging.getLogger("dpbandit.service")

T = TypeVar("T")


def words_of(error: BaseException) -> str:
    """For the log. Type and place alone, unless the words are ours: others might quote a reward."""
    if isinstance(error, DpbanditError):
        return str(error)
    return f"{type(error).__name__} at {place_of(error)}"


class Loop:
    """Something done every so many seconds, for ever."""

    def __init__(
        self, name: str, step: Callable[[], Awaitable[None]], *, every: float, well_for: float
    ) -> None:
        self._name, self._step, self._every, self._well_for = name, step, every, well_for
        self._worked_at = time.monotonic()
        self._said = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def well(self) -> bool:
        """Whether it has worked lately."""
        return not self._said and time.monotonic() - self._worked_at < self._well_for

    def start(self) -> None:
        self._task = asyncio.create_task(self._forever())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _forever(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self._step()
            except Exception as error:
                words = words_of(error)
                if words != self._said:
                    log.error("%s: %s; trying again", self._name, words)
                self._said = words
                continue
            if self._said:
                log.warning("%s: works again", self._name)
            self._worked_at, self._said = time.monotonic(), ""


class Lane:
    """One thread with one connection to the store: what it is given is done in order. Nobody waits
    for it when the process ends."""

    def __init__(self, url: str, name: str, *, patience: float) -> None:
        self._kept = Kept(url, partial(Store, patience=patience))
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
        self._kept.close()

    async def do(self, action: Callable[[Store], T]) -> T:
        """What `action` returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def tell(result: Any, error: Exception | None) -> None:
            if not future.done():  # who asked may have gone
                future.set_result(result) if error is None else future.set_exception(error)

        def work() -> None:
            result: T | None = None
            problem: Exception | None = None
            if future.cancelled():
                return
            try:
                with self._kept.opened() as store:
                    result = action(store)
            except Exception as error:
                problem = error
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(tell, result, problem)

        self._work.put(work)
        return await future


class Remembered:
    """Something read from the store by a lane; all who ask within a moment share one reading, and
    its failure: they do not wait for a silent store one after the other."""

    def __init__(self, read: Callable[[], Awaitable[None]]) -> None:
        self._read, self._reading = read, asyncio.Lock()
        self.at = -1e9  # when the last reading began
        self._failed: tuple[float, str] = (-1e9, "")  # when the last that failed began, and why

    @property
    def age(self) -> float:
        return time.monotonic() - self.at

    async def again(self, *, unless_newer_than: float = 0.0) -> None:
        """Read it as it is now, or as it was so many seconds ago."""
        asked = time.monotonic()
        async with self._reading:
            if self.at > asked or self.age < unless_newer_than:
                return
            if self._failed[0] > asked:
                raise StoreError(self._failed[1])
            began = time.monotonic()
            try:
                await self._read()
            except StoreError as error:
                self._failed = (began, str(error))
                raise
            self.at = began
