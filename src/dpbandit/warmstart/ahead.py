"""An iterator that reads a few items ahead, on a thread of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def ahead(items: Iterator[T], room: int = 4) -> Generator[T, None, None]:
    """The same items. Close it, or go through it: its thread ends with it.

    >>> "".join(ahead(iter("abc")))
    'abc'
    """
    end: Any = object()
    with ThreadPoolExecutor(1, "ahead") as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(room))
        try:
            while (item := waiting.popleft().result()) is not end:
                waiting.append(thread.submit(next, items, end))
                yield item
        finally:
            for future in waiting:
                future.cancel()
