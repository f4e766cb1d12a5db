"""How far a long command is, and how long it will take: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpbandit.cli.shared import err

SECONDS = 30.0  # between two lines where there is no terminal: quick commands print none

# Called with what is being done, how much of it is done, and how much there is.
Show = Callable[[str, float, float], None]


@contextmanager
def bar(first: str) -> Iterator[Show]:
    """A bar while the block runs. Where less is done than before, another part has begun: its time left is its own.

    Ctrl-C that nobody in the block takes care of is said aloud; the exit status is then 130.
    """
    drawn = _on_terminal(first) if err.is_interactive else _on_lines()
    try:
        with drawn as show:
            yield show
    except KeyboardInterrupt:
        err.print("interrupted before anything was finished: nothing is kept", highlight=False)
        raise


@contextmanager
def _on_terminal(first: str) -> Iterator[Show]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Column

    narrow = err.width < 80
    columns = [
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=12 if narrow else 30),
        TextColumn("{task.percentage:>3.0f}%"),
        *(() if narrow else (TimeElapsedColumn(),)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("left"),
    ]
    # Work comes in lumps of minutes: a guess from the last half minute would jump about.
    with Progress(*columns, console=err, transient=True, expand=True, speed_estimate_period=300) as drawn:
        task = drawn.add_task(first, total=None)
        last = 0.0

        def show(what: str, done: float, total: float) -> None:
            nonlocal last
            if done < last:
                drawn.reset(task)
            last = done
            drawn.update(task, description=what, completed=done, total=total or None)

        yield show


@contextmanager
def _on_lines() -> Iterator[Show]:
    began = said = time.monotonic()
    last = 0.0

    def show(what: str, done: float, total: float) -> None:
        nonlocal began, said, last
        now = time.monotonic()
        if done < last:
            began = now
        last = done
        if now - said < SECONDS or not total:
            return
        said = now
        left = f", {clock((now - began) * (total - done) / done)} left" if done else ""
        err.print(f"{what}: {done / total:.0%}{left}", highlight=False, markup=False)

    yield show


def clock(seconds: float) -> str:
    """Seconds as a person reads them.

    >>> clock(59.6), clock(3725)
    ('1:00', '1:02:05')
    """
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
