"""`dpbandit reproduce`: the paper's experiments, run and judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from dpbandit.cli.shared import Cluster, Json, app, err, out, starting


@app.command()
def reproduce(
    profile: Annotated[
        str,
        typer.Option(help="quick (minutes), paper (the paper's sizes, 20 seeds) or full (100 seeds, 100,000 rounds)."),
    ] = "quick",
    figure: Annotated[
        list[str] | None, typer.Option(help="Only this figure: 1a, 1b, 1c, 2a, 2b, 2c or noise; may be repeated.")
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(
            "--out", help="Where figures, tables and report.html go; finished parts found there are used again."
        ),
    ] = Path("out"),
    cluster: Cluster = None,
    json_: Json = False,
) -> None:
    """Run the paper's experiments and judge its claims: figures, tables and one self-contained report.html.

    LastFM and Open Bandit are looked for in $DPBANDIT_DATA and in the user cache; what is missing is left out and said so.

    [dim]Examples:[/dim]

    dpbandit reproduce

    dpbandit reproduce --profile paper --out docs/reproduction

    dpbandit reproduce --figure 1a --figure noise

    dpbandit reproduce --profile full --cluster ray://head:10001
    """
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from dpbandit.lab.reproduction.runner import reproduce as run_all

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        current, task = "", bar.add_task(starting(cluster), total=None)

        def show(what: str, done: int, total: int) -> None:
            nonlocal current
            if what != current:
                current = what
                bar.reset(task, description=what)
            bar.update(task, completed=done, total=total)

        result = run_all(folder, size=profile, figures=figure, cluster=cluster, progress=show)
    if json_:
        record = {
            "verdicts": [v.to_dict() for v in result.verdicts],
            "left_out": result.left_out,
            "complete": result.complete,
            "files": [str(f) for f in result.files],
        }
        print(json.dumps(record, indent=1, ensure_ascii=False))
    else:
        _show_verdicts(result)
    if not result.complete:
        raise typer.Exit(130)


def _show_verdicts(result: Any) -> None:
    table = Table(
        box=None, pad_edge=False, header_style="bold", title="What the paper's experiments claim", title_justify="left"
    )
    table.add_column("claim", ratio=3)
    table.add_column("verdict", ratio=2)
    colours = {"reproduced": "green", "not reproduced": "red", "only at the figure's calibration": "yellow"}
    for verdict in result.verdicts:
        table.add_row(f"{verdict.claim} ({verdict.where})", f"[{colours.get(verdict.verdict, 'dim')}]{verdict.verdict}")
    out.print(table)
    for text in result.left_out:
        out.print(f"[yellow]left out:[/yellow] {escape(text)}", highlight=False)
    out.print(f"figures, tables and [bold]report.html[/bold] are in [bold]{result.folder}[/bold]", highlight=False)
