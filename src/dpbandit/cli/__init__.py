"""The command line: parse, call, print. Everything it does can be done from Python with the names in `dpbandit`."""

from __future__ import annotations

import sys

from rich.markup import escape

from dpbandit.cli import bench, compare, planning, privacy, reproduction, service  # noqa: F401 - importing them adds their commands
from dpbandit.cli.shared import app, err
from dpbandit.errors import DpbanditError


def main() -> None:
    """Entry point: our own errors become one line and exit status 2."""
    try:
        app()
    except DpbanditError as error:
        err.print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(2)
