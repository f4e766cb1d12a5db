"""Progress and remaining time of a long command: a bar on a terminal, an occasional line elsewhere.

It also handles Ctrl-C: the first stops the work, which then hands over its results; the second
exits at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from dpbandit.cli.shared import INTERRUPTED, err

SECONDS = 30.0  # between two lines where there is no terminal: quick commands print none
EARLY = 0.05  # of the work: until then too little is done to say how long the rest takes
STOPPING = "stopping; press Ctrl-C again to exit at once"

# Called with the current step, the amount done, and the total (0 if unknown).
Draw = Callable[[str, float, float], None]


class Show:
    """Called by the work to report progress."""

    def __init__(self, draw: Draw) -> None:
        self._draw, self._last = draw, (0.0, 0.0)
        self.stopped = False

    def __call__(self, what: str, done: float, total: float) -> None:
        self._last = (done, total)
        if not self.stopped:
            self._draw(what, done, total)
        elif threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt  # work in several parts takes Ctrl-C for one of them and goes on with the next

    def stop(self, number: int, frame: FrameType | None) -> None:
        """The handler of Ctrl-C."""
        if self.stopped:
            err.show_cursor(True)
            os._exit(INTERRUPTED)  # threads in the middle of something would be waited for
        self.stopped = True
        self._draw(STOPPING, *self._last)
        signal.default_int_handler(number, frame)


@contextmanager
def bar(first: str) -> Iterator[Show]:
    """A bar while the block runs. If progress falls back, another part has begun, with its own time
    left.

    Ctrl-C that the block does not handle is reported; the exit status is then 130.
    """
    # Leave another handler as it is, and threads that may not set one.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ours = ours and threading.current_thread() is threading.main_thread()
    try:
        with drawing(first) as draw:
            show = Show(draw)
            if ours:
                signal.signal(signal.SIGINT, show.stop)
            try:
                yield show
            finally:
                if ours:
                    signal.signal(signal.SIGINT, signal.default_int_handler)
    except KeyboardInterrupt:
        err.print("interrupted before anything was finished: nothing is kept", highlight=False)
        raise


def drawing(first: str) -> AbstractContextManager[Draw]:
    """A console for standard error."""
    return _on_terminal(first) if err.is_interactive else _on_lines()


@contextmanager
def _on_terminal(first: str) -> Iterator[Draw]:
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Times(ProgressColumn):
        """Time taken and, if known, time left."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            words = [] if narrow or task.elapsed is None else [clock(task.elapsed)]
            if (
                task.total
                and task.time_remaining is not None
                and task.completed >= EARLY * task.total
            ):
                words.append(f"{clock(task.time_remaining)} left")
            return Text("  ".join(words), style="cyan")

    narrow = err.width < 80
    columns = [
        TextColumn(
            "{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        ),
        BarColumn(bar_width=12 if narrow else 30),
        TextColumn("{task.percentage:>3.0f}%"),
        Times(table_column=Column(no_wrap=True)),
    ]
    # Work comes in chunks of minutes: an estimate from the last half minute would jump about.
    with Progress(
        *columns, console=err, transient=True, expand=True, speed_estimate_period=300
    ) as drawn:
        task = drawn.add_task(first, total=None)
        last = 0.0

        def draw(what: str, done: float, total: float) -> None:
            nonlocal last
            if done < last:
                drawn.reset(task)
            last = done
            drawn.update(task, description=what, completed=done, total=total or None)

        yield draw


@contextmanager
def _on_lines() -> Iterator[Draw]:
    began = said = time.monotonic()
    last = 0.0

    def draw(what: str, done: float, total: float) -> None:
        nonlocal began, said, last
        now = time.monotonic()
        if done < last:
            began = now
        last = done
        if now - said < SECONDS or not total:
            return
        said = now
        left = (
            f", {clock((now - began) * (total - done) / done)} left"
            if done >= EARLY * total
            else ""
        )
        err.print(f"{what}: {done / total:.0%}{left}", highlight=False, markup=False)

    yield draw


def clock(seconds: float) -> str:
    """Seconds as a person reads them.

    >>> clock(59.6), clock(3725)
    ('1:00', '1:02:05')
    """
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
