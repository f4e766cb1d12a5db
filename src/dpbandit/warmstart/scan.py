"""The pass over a log: `scan` adds up a part, `merge` puts parts together. Memory does not grow with the log.

A part needs nothing from other parts, so any machinery that maps a function over parts may run `scan`: here threads, on a
cluster Ray Data. With caps for users it matters which of a user's rows come first, so one thread reads the log in order. (On
a cluster: send all rows of a user to one worker, by `users % workers`, in the order of the log; then each worker has a `Tally`
of its own, and the parts' sums are merged as always.)
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dpbandit.bandits.log_sums import OVER_CAP, Recipe, Sums, absorb, inspect, merge, new_desk, new_sums
from dpbandit.bandits.logged import Tally
from dpbandit.warmstart.rows import Rows, read
from dpbandit.warmstart.source import Columns, Part, Source

Seen = Callable[[int], None]


def scan(batches: Iterable[Rows], recipe: Recipe, tally: Tally | None = None, seen: Seen | None = None) -> Sums:
    """The sums of these rows. `tally` counts users, and goes on from what it has counted before."""
    sums, desk = new_sums(recipe), new_desk(recipe)
    for rows in batches:
        inspect(rows.contexts, rows.rewards, rows.status, recipe)
        if tally is not None and rows.users is not None:
            tally.admit(rows.users, rows.status, over=OVER_CAP)
        absorb(rows.contexts, rows.rewards, rows.status, recipe, sums, desk)
        if seen is not None:
            seen(len(rows.status))
    return sums


def rows_of(part: Part, columns: Columns, missing_reward: float | None) -> Iterator[Rows]:
    """The rows of a part, a batch at a time."""
    for batch in part.batches(columns.names):
        yield read(batch, columns, missing_reward)


def scan_all(
    source: Source,
    columns: Columns,
    recipe: Recipe,
    *,
    missing_reward: float | None,
    tally: Tally | None,
    workers: int,
    seen: Seen | None,
) -> Sums:
    """The sums of the whole log. They do not depend on `workers`."""
    stop = threading.Event()

    def count(rows: int) -> None:
        if stop.is_set():
            raise InterruptedError("another part of the log failed")
        if seen is not None:
            seen(rows)

    def work(part: Part) -> Sums:
        return scan(rows_of(part, columns, missing_reward), recipe, seen=count)

    total = new_sums(recipe)
    if tally is not None:
        for part in source.parts:
            with _Ahead(rows_of(part, columns, missing_reward)) as batches:
                merge(total, scan(batches, recipe, tally, seen))
        return total
    with ThreadPoolExecutor(workers, thread_name_prefix="log") as executor:
        try:
            for sums in executor.map(work, source.parts):
                merge(total, sums)
        except BaseException:
            # Ctrl-C too: the threads stop after the batch in hand, and nothing of what was added up leaves this function.
            stop.set()
            executor.shutdown(wait=True, cancel_futures=True)
            raise
    return total


class _Ahead:
    """An iterator that works ahead on a thread of its own, a few items."""

    def __init__(self, items: Iterator[Any], room: int = 4) -> None:
        self._items, self._queue = items, queue.Queue[Any](room)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fetch, name="log", daemon=True)

    def _fetch(self) -> None:
        try:
            for item in self._items:
                if not self._put((item, None)):
                    return
            self._put((None, StopIteration()))
        except BaseException as error:
            self._put((None, error))

    def _put(self, pair: tuple[Any, BaseException | None]) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(pair, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def __enter__(self) -> Iterator[Any]:
        self._thread.start()
        return self._take()

    def _take(self) -> Iterator[Any]:
        while True:
            item, error = self._queue.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
