"""Where work is done: in threads of this machine, or on a Ray cluster.

Simulations, audits and warm starts say what tasks there are; a place does them in any order and
hands back each result when it is there. What a task returns may depend on its arguments alone: then
it matters neither where it runs nor how often.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, TypeVar

from dpbandit.errors import ClusterError

R = TypeVar("R")

# Called by a task now and then with how much it has done since the last call, in units of its size.
Tell = Callable[[int], None]
# Called by a place with the number of a task and how much of it has been done since the last call.
Advance = Callable[[int, int], None]
Work = Callable[[Any, Any, Tell], R]


class Task(NamedTuple):
    """One call of a function: `work(common, own, tell)`. What many tasks have in common travels once."""

    common: Any
    own: Any
    size: int


class Place(ABC):
    """Somewhere that tasks are done."""

    cores: int
    elsewhere: bool = False  # whether tasks see nothing of this process
    preparing: str = "preparing"

    @property
    def playing(self) -> str:
        """What is happening, in a few words for a progress bar."""
        return "playing"

    @abstractmethod
    def each(
        self, work: Work[R], tasks: Iterable[Task], advance: Advance
    ) -> Generator[tuple[int, R], None, None]:
        """The number and the result of each task, as they finish. Tasks are drawn when there is room for them.

        Close the generator to stop: unfinished tasks are given up, and nothing goes on in the background.
        """

    def stream(
        self, work: Work[R], tasks: Iterable[Task], advance: Advance
    ) -> Generator[R, None, None]:
        """The results in the order of their tasks, for sums that depend on it."""
        tasks = list(tasks)
        return in_order(self.each(work, tasks, advance), len(tasks))

    @property
    def for_python(self) -> Place:
        """This place, for tasks that are plain Python."""
        return self

    def close(self) -> None:  # noqa: B027 - threads have nothing to leave
        """Leave."""


def in_order(
    numbered: Generator[tuple[int, R], None, None], count: int
) -> Generator[R, None, None]:
    """Results in order, each as soon as all before it are there. A result that comes again is dropped.

    >>> list(in_order((pair for pair in [(1, "b"), (0, "a"), (1, "b"), (2, "c"), (0, "a")]), 3))
    ['a', 'b', 'c']
    """
    waiting: dict[int, R] = {}
    due = 0
    with closing(numbered):
        for number, result in numbered:
            if number >= due:
                waiting[number] = result
            while due in waiting:
                yield waiting.pop(due)
                due += 1
    if due < count:
        raise ClusterError(f"the result of task {due + 1} of {count} never came")


def adding_up(told: Callable[[int], None]) -> Tell:
    """Adds amounts up, from any thread, and tells the total.

    >>> tell = adding_up(print)
    >>> tell(2), tell(3)
    2
    5
    (None, None)
    """
    lock, total = threading.Lock(), 0

    def tell(amount: int) -> None:
        nonlocal total
        with lock:
            total += amount
            told(total)

    return tell


@contextmanager
def over(cluster: str | Place | None = None, workers: int | None = None) -> Iterator[Place]:
    """The place that `cluster` names: None for this machine, else a Ray cluster ("local", "auto" or its address).

    A place that is already open is used as it is, and stays open. `workers` is how many tasks run at a time; all cores
    if not given.

    >>> with over(workers=2) as place:
    ...     sorted(place.each(lambda base, x, tell: base + x, [Task(10, x, 1) for x in range(3)], lambda *_: None))
    [(0, 10), (1, 11), (2, 12)]
    """
    if isinstance(cluster, Place):
        yield cluster
        return
    place: Place
    if cluster is None:
        from dpbandit.spread.threads import Threads

        place = Threads(workers)
    else:
        from dpbandit.spread.cluster import Cluster

        place = Cluster(cluster, workers)
    try:
        yield place
    finally:
        place.close()
