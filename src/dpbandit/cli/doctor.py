"""`dpbandit doctor`: what is installed, what works, what is missing and how to get it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import typer

from dpbandit.cli.options import Json
from dpbandit.cli.shared import BROKEN, app, err, print_json, print_table, say

if TYPE_CHECKING:
    from dpbandit.cli.checks import Finding, State

# A mark that is clear without colours, and a colour.
MARKS: dict[State, tuple[str, str]] = {
    "fine": ("ok", "green"),
    "absent": ("--", "yellow"),
    "broken": ("NO", "bold red"),
    "unset": ("", "dim"),
}


@app.command()
def doctor(json_: Json = False) -> None:
    """Check this installation: versions, cores, GPU, data, and what is missing, with the command
    that installs it.

    Nothing is downloaded. Exit status 0 if the library works, 1 if something essential is broken.

    [dim]Examples:[/dim]

    dpbandit doctor

    dpbandit doctor --json
    """
    from dpbandit.cli import checks

    with err.status("looking") if err.is_interactive else nullcontext():
        found = checks.everything()
    if json_:
        print_json(checks.as_record(found))
    else:
        _show(found)
    if not checks.works(found):
        raise typer.Exit(BROKEN)


def _show(found: dict[str, list[Finding]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for title, findings in found.items():
        for number, finding in enumerate(findings):
            mark, style = MARKS[finding.state]
            found_ = Text(finding.words, style="dim" if finding.state == "unset" else "")
            table.add_row("" if number else title, Text(mark, style=style), finding.name, found_)
    print_table(table)
    every = [finding for findings in found.values() for finding in findings]
    broken = [finding.name for finding in every if finding.state == "broken"]
    absent = [finding.name for finding in every if finding.state == "absent"]
    if broken:
        words = f"broken: {', '.join(broken)}; nothing can be trusted until that is fixed"
        say(words, "bold red")
    else:
        rest = f"; optional and not installed: {', '.join(absent)}" if absent else ""
        say(f"dpbandit can work here{rest}", "bold")
    # Below the table, where no column breaks a command to copy.
    for finding in every:
        if finding.fix:
            say(f"  {finding.name}: {finding.fix}")
