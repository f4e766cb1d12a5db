"""The command line: parse, call, print. The names in `dpbandit` do the same from Python."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import dpbandit
from dpbandit.cli import extras, shared
from dpbandit.cli.shared import app, join_lines, typer
from dpbandit.errors import DpbanditError

# In the order of the help; importing them adds their commands.
from dpbandit.cli import doctor, compare, privacy, planning, clone, evaluate, warmstart, service  # noqa: F401  # isort: skip

# Of Click, or of the copy of it inside newer versions of Typer.
ClickException: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"dpbandit {dpbandit.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


join_lines(app)


def main() -> None:
    """Entry point: turns a mistake, a missing package or an unusable file into one line that says
    what to do."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show Greek letters gets question marks, not a crash.
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        clone.look_for(sys.argv[1:])
        status = app(prog_name="dpbandit", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except ClickException as error:
        status = _usage(error)
    except ModuleNotFoundError as error:
        if (command := extras.what_brings(error.name or "")) is None:
            raise
        status = _say(
            f"{error.name} is not installed: {command} (dpbandit doctor shows what else is missing)"
        )
    except DpbanditError as error:
        status = _say(str(error))
    except BrokenPipeError:  # whoever read this has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = shared.BROKEN
    except OSError as error:
        if error.filename is None:
            raise
        status = _say(
            f"{error.filename}: {error.strerror or error}; name an existing, writable place"
        )
    except typer.Abort:
        status = shared.INTERRUPTED
    sys.exit(status if isinstance(status, int) else 0)


def _usage(error: BaseException) -> int:
    """Wrong arguments: say what is wrong, and where the right ones are listed."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return shared.MISTAKE  # the help has been printed
    words = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    where = context.command_path if context is not None else "dpbandit"
    return _say(
        f"{words} See {where} --help" if words.endswith("?") else f"{words}; see {where} --help"
    )


def _say(words: str) -> int:
    shared.note(words, "error", colour="red")
    return shared.MISTAKE
