"""`dpbandit reproduce`: the paper's experiments, run and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpbandit.cli import names
from dpbandit.cli.shared import INTERRUPTED, Cluster, Json, app, out, print_json, print_table, room_for, starting


@app.command()
def reproduce(
    profile: Annotated[
        str,
        typer.Option(
            help="quick (minutes), paper (the paper's sizes, 20 seeds) or full (100 seeds, 100,000 rounds).",
            autocompletion=names.one_of("quick", "paper", "full"),
        ),
    ] = "quick",
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this figure: 1a, 1b, 1c, 2a, 2b, 2c or noise; may be repeated.",
            autocompletion=names.one_of(*names.FIGURES),
        ),
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
    Ctrl-C keeps the parts that are finished; the same command goes on from there.

    [dim]Examples:[/dim]

    dpbandit reproduce

    dpbandit reproduce --profile paper --out docs/reproduction

    dpbandit reproduce --figure 1a --figure noise

    dpbandit reproduce --profile full --cluster ray://head:10001
    """
    from dpbandit.cli.progress import bar
    from dpbandit.lab.reproduction.experiments import EXPERIMENTS
    from dpbandit.lab.reproduction.runner import reproduce as run_all

    room_for(folder, folder=True)
    parts = [e.name for e in EXPERIMENTS if not figure or set(e.figures) & set(figure)]
    with bar(starting(cluster)) as draw:

        def show(what: str, done: int, total: int) -> None:
            draw(f"{what} (part {parts.index(what) + 1} of {len(parts)})", done, total)

        result = run_all(folder, size=profile, figures=figure, cluster=cluster, progress=show)
    if json_:
        record = {
            "verdicts": [v.to_dict() for v in result.verdicts],
            "left_out": result.left_out,
            "complete": result.complete,
            "files": [str(f) for f in result.files],
        }
        print_json(record)
    else:
        _show_verdicts(result)
    if not result.complete:
        raise typer.Exit(INTERRUPTED)


def _show_verdicts(result: Any) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        box=None, pad_edge=False, header_style="bold", title="What the paper's experiments claim", title_justify="left"
    )
    table.add_column("claim", ratio=3)
    table.add_column("verdict", ratio=2)
    colours = {"reproduced": "green", "not reproduced": "red", "only at the figure's calibration": "yellow"}
    for verdict in result.verdicts:
        table.add_row(f"{verdict.claim} ({verdict.where})", f"[{colours.get(verdict.verdict, 'dim')}]{verdict.verdict}")
    print_table(table)
    for text in result.left_out:
        out.print(f"[yellow]left out:[/yellow] {escape(text)}", highlight=False)
    out.print(f"figures, tables and [bold]report.html[/bold] are in [bold]{result.folder}[/bold]", highlight=False)
