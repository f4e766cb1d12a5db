"""`dpbandit bench`: measurements of this project's own work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from dpbandit.cli.shared import Cluster, Json, app, err, out, starting

bench = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Measure: what privacy costs.")
app.add_typer(bench, name="bench")


@bench.callback()
def _measurements() -> None:
    """Measure: what privacy costs."""


@bench.command("privacy-cost")
def privacy_cost(
    profile: Annotated[
        str,
        typer.Option(
            help="quick (minutes, up to 10,000 rounds) or full (some 20 minutes on two cores, up to 100,000)."
        ),
    ] = "quick",
    worlds: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this world: synthetic, synthetic-50, lastfm-pca, lastfm-svd, drifting or degenerate; may be repeated."
        ),
    ] = None,
    algorithms: Annotated[
        list[str] | None, typer.Option(help="Only this line, or all lines of this algorithm; may be repeated.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Cores to use; all if not given. Results do not depend on it.")
    ] = None,
    cluster: Cluster = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Where tables and the figure go; finished cells found there are used again.")
    ] = Path("out/leaderboard"),
    docs: Annotated[
        Path | None, typer.Option(help="Also write the page here, with figure and table beside it.", metavar="FILE")
    ] = None,
    json_: Json = False,
) -> None:
    """The leaderboard: what every private algorithm loses over LinUCB on the same seeds, in six worlds at four budgets.

    Ctrl-C keeps what is finished; the same command goes on from there. LastFM is looked for in $DPBANDIT_DATA and in the user
    cache; without it those worlds are left out and said so. Only proven algorithms are ranked.

    [dim]Examples:[/dim]

    dpbandit bench privacy-cost

    dpbandit bench privacy-cost --worlds synthetic --algorithms anytime --algorithms toeplitz

    dpbandit bench privacy-cost --profile full --docs docs/leaderboard.md

    dpbandit bench privacy-cost --profile full --cluster ray://head:10001
    """
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from dpbandit.lab.leaderboard import grid, page, runner, table

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, speed_estimate_period=300) as bar:
        task = bar.add_task(starting(cluster), total=None)

        def show(what: str, done: float, total: float) -> None:
            bar.update(task, description=what, completed=done, total=total)

        where: dict[str, Any] = {"workers": workers, "cluster": cluster}
        run = runner.play(folder, grid.profile(profile), worlds=worlds, algorithms=algorithms, progress=show, **where)
    standings = table.standings(run)
    if not len(standings):
        err.print(
            "no cell was finished: nothing to show" + "".join(f"; {text}" for text in run.left_out), highlight=False
        )
        raise typer.Exit(1 if run.complete else 130)
    files = page.write(run, standings, folder, docs)
    if json_:
        print(json.dumps(page.as_json(run, standings, files), indent=1, ensure_ascii=False))
    else:
        _show(table.winners(standings), run, files)
    if not run.complete:
        raise typer.Exit(130)


def _show(found: Any, run: Any, files: list[Path]) -> None:
    from dpbandit.lab.leaderboard import grid
    from dpbandit.lab.leaderboard.table import number, power

    shown = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        title="Best proven algorithm of each cell: added regret over LinUCB",
        title_justify="left",
    )
    for name in ("world", "setting", "T", "best proven", "added", "tied"):
        shown.add_column(name, no_wrap=name not in ("tied", "world"), justify="right" if name == "added" else "left")
    for w in found:
        note = "; ".join(w.tied) + ("" if w.beats_random else " [yellow](no better than random play)[/yellow]")
        shown.add_row(
            grid.PLACES[w.world].title, str(w.budget), power(w.horizon), w.label, number(w.added, w.error), note
        )
    out.print(shown)
    out.print(
        "mean ± standard error over seeds, paired with LinUCB; claims are for one reward; noise is simulated; LastFM: lost reward",
        style="dim",
        highlight=False,
    )
    for text in run.left_out:
        out.print(f"[yellow]left out:[/yellow] {escape(text)}", highlight=False)
    out.print(
        f"all numbers, the figure and the page: {', '.join(str(f) for f in files)}",
        style="dim",
        highlight=False,
        soft_wrap=True,
    )
