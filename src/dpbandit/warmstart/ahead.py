"""An iterator that works ahead on a thread of its own, a few items."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Use it in a `with`: the thread ends with it.

    >>> with Ahead(iter("abc")) as letters:
    ...     "".join(letters)
    'abc'
    """

    def __init__(self, items: Iterator[T], room: int = 4) -> None:
        self._items = items
        self._queue = queue.Queue[tuple[T | None, BaseException | None]](room)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fetch, name="ahead", daemon=True)

    def _fetch(self) -> None:
        try:
            for item in self._items:
                if not self._put((item, None)):
                    return
            self._put((None, StopIteration()))
        except BaseException as error:
            self._put((None, error))

    def _put(self, pair: tuple[T | None, BaseException | None]) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(pair, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def __enter__(self) -> Iterator[T]:
        self._thread.start()
        return self._take()

    def _take(self) -> Iterator[T]:
        while True:
            item, error = self._queue.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
