"""`dpbandit bench`: measurements of this project's own work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dpbandit.cli import names as known_names
from dpbandit.cli.shared import (
    BROKEN,
    INTERRUPTED,
    Cluster,
    Json,
    app,
    err,
    note,
    out,
    print_json,
    print_table,
    room_for,
    starting,
)

bench = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Measure: what privacy costs, and how fast everything is."
)
app.add_typer(bench, name="bench")


@bench.callback()
def _measurements() -> None:
    """Measure: what privacy costs, and how fast everything is."""


@bench.command("privacy-cost")
def privacy_cost(
    profile: Annotated[
        str,
        typer.Option(
            help="quick (minutes, up to 10,000 rounds) or full (some 20 minutes on two cores, up to 100,000).",
            autocompletion=known_names.one_of("quick", "full"),
        ),
    ] = "quick",
    worlds: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this world: synthetic, synthetic-50, lastfm-pca, lastfm-svd, drifting or degenerate; may be repeated.",
            autocompletion=known_names.one_of(*known_names.PLACES),
        ),
    ] = None,
    algorithms: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this line, or all lines of this algorithm; may be repeated.",
            autocompletion=known_names.algorithm,
        ),
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
    from dpbandit.cli.progress import bar
    from dpbandit.lab.leaderboard import grid, page, runner, table

    room_for(folder, folder=True)
    room_for(docs and docs.absolute().parent, folder=True)
    with bar(starting(cluster)) as show:
        where: dict[str, Any] = {"workers": workers, "cluster": cluster}
        run = runner.play(folder, grid.profile(profile), worlds=worlds, algorithms=algorithms, progress=show, **where)
    standings = table.standings(run)
    if not len(standings):
        err.print(
            "no cell was finished: nothing to show" + "".join(f"; {text}" for text in run.left_out), highlight=False
        )
        raise typer.Exit(BROKEN if run.complete else INTERRUPTED)
    files = page.write(run, standings, folder, docs)
    if json_:
        print_json(page.as_json(run, standings, files))
    else:
        _show(table.winners(standings), run, files)
    if not run.complete:
        raise typer.Exit(INTERRUPTED)


def _show(found: Any, run: Any, files: list[Path]) -> None:
    from rich.markup import escape
    from rich.table import Table

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
        shown.add_column(name, no_wrap=name in ("T", "added"), justify="right" if name == "added" else "left")
    for w in found:
        note = "; ".join(w.tied) + ("" if w.beats_random else " [yellow](no better than random play)[/yellow]")
        shown.add_row(
            grid.PLACES[w.world].title, str(w.budget), power(w.horizon), w.label, number(w.added, w.error), note
        )
    print_table(shown)
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


@bench.command()
def speed(
    rounds: Annotated[int, typer.Option(help="Rounds of a turn; slow peers play a part of them.", min=1000)] = 100_000,
    repeats: Annotated[int, typer.Option(help="Turns of each contestant; the best counts.", min=1)] = 5,
    growth: Annotated[
        bool, typer.Option("--growth/--no-growth", help="Also measure how time grows with features and arms.")
    ] = True,
    folder: Annotated[Path, typer.Option("--out", help="Where figures and the drawing go.")] = Path("out/speed"),
    docs: Annotated[
        Path | None, typer.Option(help="Also write the table into this page, between its marks.", metavar="FILE")
    ] = None,
    json_: Json = False,
) -> None:
    """How long a decision takes, beside every peer that is installed (pip install 'dpbandit\\[bench]'), as ratios of one run.

    Contestants take turns and the best turn counts. Times of one machine say little about another; ratios say more.
    Ctrl-C keeps the turns that are finished.

    [dim]Examples:[/dim]

    dpbandit bench speed

    dpbandit bench speed --rounds 10000 --repeats 3 --no-growth
    """
    from dpbandit.cli.progress import bar
    from dpbandit.lab.speed import bench as speeds
    from dpbandit.lab.speed import page

    room_for(folder, folder=True)
    room_for(docs and docs.absolute().parent, folder=True)
    with bar(starting()) as show:
        result = speeds.run(rounds=rounds, repeats=repeats, growth=growth, say=show)
    result["complete"] = not show.stopped
    if not result["decisions"]:
        err.print("interrupted before the first turn was finished: nothing is kept", highlight=False)
        raise typer.Exit(INTERRUPTED)
    files = [folder / "speed.json"]
    files[0].write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    if result["growth"]:
        files.append(folder / "speed-growth.png")
        page.draw(result, files[-1])
    if docs is not None and result["complete"]:
        page.put_into(docs, page.markdown(result))
        if result["growth"]:
            page.draw(result, docs.with_name("speed-growth.png"))
    if json_:
        print_json(result)
    else:
        _show_speed(result, files)
    if not result["complete"]:
        kept = "" if docs is None else f"; {docs} is as it was"
        err.print(f"interrupted: only finished turns are counted{kept}", highlight=False)
        raise typer.Exit(INTERRUPTED)


def _show_speed(result: dict[str, Any], files: list[Path]) -> None:
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    names = [task["name"] for task in result["tasks"]]
    for name in ("", *(f"{n} {what}" for n in names for what in ("µs a round", "× linucb"))):
        shown.add_column(name, justify="right" if name else "left")
    for row in result["decisions"]:
        figures = [f"{row[key]:,.2f}" if row.get(key) is not None else "" for n in names for key in (n, f"{n} ratio")]
        shown.add_row(row["contestant"], *figures, style="bold" if row["ours"] else None)
    print_table(shown)
    for one in result["missing"]:
        note(one, "not installed")
    out.print(f"all figures: {', '.join(map(str, files))}", style="dim", highlight=False, soft_wrap=True)
