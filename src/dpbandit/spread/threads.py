"""Threads of this machine: the core's loops do not hold Python's lock, so that they use all its cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any

from dpbandit.spread import Advance, Place, R, Task, Work


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """Raised in a task whose result is no longer wanted."""


class Threads(Place):
    """So many tasks at a time, in this process."""

    def __init__(self, workers: int | None = None) -> None:
        # Not those of the machine where a process may use fewer.
        allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        self.cores = workers or allowed or os.cpu_count() or 1

    @property
    def for_python(self) -> Place:
        """One thread: more would only wait for each other."""
        return Threads(1)

    def each(
        self, work: Work[R], tasks: Iterable[Task], advance: Advance
    ) -> Generator[tuple[int, R], None, None]:
        """The results, as they come."""
        stop = threading.Event()

        def do(number: int, task: Task) -> R:
            def tell(amount: int) -> None:
                if stop.is_set():
                    raise Stopped
                advance(number, amount)

            return work(task.common, task.own, tell)

        coming = enumerate(tasks)
        running: dict[Future[Any], int] = {}
        with ThreadPoolExecutor(self.cores) as executor:
            try:
                while True:
                    # More than there are cores, so that none of them waits for this thread.
                    for number, task in islice(coming, 2 * self.cores - len(running)):
                        running[executor.submit(do, number, task)] = number
                    if not running:
                        return
                    finished, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                    for future in finished:
                        yield running.pop(future), future.result()
            finally:
                stop.set()
                for future in running:
                    future.cancel()
