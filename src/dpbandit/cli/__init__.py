"""The command line: parse, call, print. Everything it does can be done from Python with the names in `dpbandit`."""

from __future__ import annotations

import sys

from dpbandit.cli.shared import app, err  # first: it says what to install where the library alone is

# isort: split
from dpbandit.cli import bench, compare, planning, privacy, reproduction, service, warmstart  # noqa: F401 - importing them adds their commands
from dpbandit.errors import DpbanditError


def main() -> None:
    """Entry point: our own errors become one line and exit status 2."""
    try:
        app()
    except DpbanditError as error:
        from rich.markup import escape

        err.print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(2)
