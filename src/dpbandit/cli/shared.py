"""Shared by all commands: the application, where and how to print, and how to exit."""

from __future__ import annotations

import inspect
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer as typer
from rich.console import Console

from dpbandit.errors import OptionError

if TYPE_CHECKING:
    from rich.table import Table

# Beside 0 and, after Ctrl-C, 130. `dpbandit --help` says the same.
BROKEN, MISTAKE, REFUTED, INTERRUPTED = 1, 2, 3, 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # its boxes hide where a fault is, and could show what was in memory
    help="Contextual bandits with differential privacy that you can check.",
    epilog="Start with [bold]dpbandit doctor[/bold] or [bold]dpbandit run[/bold].\n\n"
    "Exit status: 0 done; 1 broken, or nothing to show; 2 a mistake in the command; 3 a promise does not hold; "
    "130 stopped by Ctrl-C, finished work is kept.",
)


def join_lines(one: typer.Typer) -> None:
    """Join a docstring's lines, so that the terminal wraps them at its own width."""
    for command in one.registered_commands:
        paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for group in one.registered_groups:
        if group.typer_instance is not None:
            join_lines(group.typer_instance)


def console(*, stderr: bool = False) -> Console:
    """Colours and line wrapping on a terminal; neither in a file or pipe, so that each row stays on
    one line."""
    stream = sys.stderr if stderr else sys.stdout
    if stream is not None and stream.isatty():
        return Console(stderr=stderr)
    return Console(stderr=stderr, soft_wrap=True, width=None if os.environ.get("COLUMNS") else 200)


out = console()
err = console(stderr=True)


def say(words: object, style: str | None = None) -> None:
    """Print plain text on standard output."""
    out.print(str(words), style=style, highlight=False, markup=False, soft_wrap=True)


def interrupted(words: str) -> NoReturn:
    """Exit after Ctrl-C, and say what was kept."""
    err.print(f"interrupted: {words}", highlight=False)
    raise typer.Exit(INTERRUPTED)


def new_table(title: str | None = None) -> Table:
    """A table with bold headers and no frame."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")


def print_table(table: Table) -> None:
    """Print a table; in a file or pipe without padding."""
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as drawn:
        out.print(table)
    print("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def print_json(record: Any) -> None:
    """Print one JSON document on standard output, in any encoding; non-finite numbers become
    null."""
    plain = not (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
    print(json.dumps(_finite(record), indent=1, ensure_ascii=plain, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def note(words: str, kind: str = "note", *, colour: str = "yellow") -> None:
    """Print a note beside the answer."""
    from rich.markup import escape

    err.print(f"[{colour}]{kind}:[/{colour}] {escape(words)}", highlight=False)


def room_for(path: Path | None, *, folder: bool = False) -> None:
    """Check that results can be written before computing them; makes the folder."""
    if path is None:
        return
    place = path if folder else path.absolute().parent
    if folder:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(
                f"the folder {path} cannot be made ({error.strerror}): name another folder"
            ) from None
    if not place.is_dir():
        raise OptionError(f"there is no folder {place}: make it, or name another file")
    if not os.access(place, os.W_OK):
        raise OptionError(
            f"{place} cannot be written to: name another place, or change its permissions"
        )
