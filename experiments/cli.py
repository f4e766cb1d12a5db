"""`dpbandit reproduce` and `dpbandit bench`; importing this adds them to the command line.

Nothing heavy is imported before a command runs, so that help and completion are quick.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dpbandit.cli import names
from dpbandit.cli.options import Cluster, Json
from dpbandit.cli.shared import BROKEN, INTERRUPTED, app, err, print_json, room_for

# Written here once more because their modules take seconds to import; a test compares them.
PLACES = (
    *("synthetic", "synthetic-50", "lastfm-pca", "lastfm-svd"),
    *("little-noise", "student", "mixture", "money"),
    *("drifting", "degenerate", "clicks", "logistic"),
    *("abrupt", "walk", "seasonal", "new-arm", "worst-becomes-best"),
    *("catalogue", "catalogue-clicks", "movielens"),
    *("digits", "image_segments", "wine", "breast_cancer", "phishing", "iris", "bananas"),
)
SECTIONS = ("logistic-environment", "open-bandit")
FIGURES = ("1a", "1b", "1c", "2a", "2b", "2c", "noise")


@app.command()
def reproduce(
    profile: Annotated[
        str,
        typer.Option(
            help="quick (half a minute), paper (the paper's sizes) or full (100 seeds, 100,000 "
            "rounds).",
            autocompletion=names.one_of("quick", "paper", "full"),
        ),
    ] = "quick",
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this figure: 1a, 1b, 1c, 2a, 2b, 2c or noise; may be repeated.",
            autocompletion=names.one_of(*FIGURES),
        ),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Where figures, tables and report.html go; finished parts found there are used "
            "again.",
        ),
    ] = Path("out"),
    cluster: Cluster = None,
    json_: Json = False,
) -> None:
    """Run the paper's experiments and judge its claims: figures, tables and one self-contained
    report.html.

    LastFM and Open Bandit are looked for in $DPBANDIT_DATA and in the user cache; what is missing
    is left out and said so. Ctrl-C keeps the parts that are finished; the same command goes on
    from there.

    [dim]Examples:[/dim]

    dpbandit reproduce

    dpbandit reproduce --profile paper --out docs/reproduction

    dpbandit reproduce --figure 1a --figure noise

    dpbandit reproduce --profile full --cluster ray://head:10001
    """
    from dpbandit.cli.progress import bar
    from experiments import screen
    from experiments.reproduction.parts import EXPERIMENTS
    from experiments.reproduction.runner import reproduce as run_all

    room_for(folder, folder=True)
    parts = [e.name for e in EXPERIMENTS if not figure or set(e.figures) & set(figure)]
    with bar("starting") as draw:

        def show(what: str, done: int, total: int) -> None:
            draw(f"{what} (part {parts.index(what) + 1} of {len(parts)})", done, total)

        result = run_all(folder, size=profile, figures=figure, cluster=cluster, progress=show)
    if json_:
        print_json(result.to_dict())
    else:
        screen.verdicts(result)
    if not result.complete:
        raise typer.Exit(INTERRUPTED)


bench = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Measure: what privacy costs, and how fast everything is.",
)
app.add_typer(bench, name="bench")


@bench.command("privacy-cost")
def privacy_cost(
    profile: Annotated[
        str,
        typer.Option(
            help="quick (minutes, up to 10,000 rounds), setting (the same with more seeds, at ε = 1 alone) or "
            "full (some 40 minutes on two cores, up to 100,000).",
            autocompletion=names.one_of("quick", "setting", "full"),
        ),
    ] = "quick",
    worlds: Annotated[
        list[str] | None,
        typer.Option(
            "--worlds",
            "--only",
            help=f"Only this world: {', '.join(PLACES)}; or this section: {' or '.join(SECTIONS)}; may be "
            "repeated. The others stay as they are in the table beside --docs.",
            autocompletion=names.one_of(*PLACES, *SECTIONS),
        ),
    ] = None,
    algorithms: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this line, or all lines of this algorithm; may be repeated.",
            autocompletion=names.algorithm,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Cores to use; all if not given. Results do not depend on it."),
    ] = None,
    cluster: Cluster = None,
    older: Annotated[
        str | None,
        typer.Option(
            help="A fingerprint of older code (config.json in --out has it). Cells that it left in --out are "
            "used if today's code repeats the first seed of their world and line; the page says which.",
            metavar="CODE",
        ),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Where tables and the figure go; finished cells found there are used again.",
        ),
    ] = Path("out/leaderboard"),
    docs: Annotated[
        Path | None,
        typer.Option(
            help="Also write the page here, with figure and table beside it.", metavar="FILE"
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """The leaderboard: what every private algorithm loses over LinUCB on the same seeds, in
    27 worlds at four budgets.

    Ctrl-C keeps what is finished; the same command goes on from there. LastFM is looked for in
    $DPBANDIT_DATA and in the user cache, MovieLens also in an installed recbole, Open Bandit in an
    installed obp; without them those worlds are left out and said so. Only proven algorithms are
    ranked.

    [dim]Examples:[/dim]

    dpbandit bench privacy-cost

    dpbandit bench privacy-cost --worlds synthetic --algorithms anytime --algorithms toeplitz

    dpbandit bench privacy-cost --profile full --docs docs/leaderboard.md

    dpbandit bench privacy-cost --profile full --only logistic --docs docs/leaderboard.md

    dpbandit bench privacy-cost --profile full --cluster ray://head:10001
    """
    from dpbandit.cli.progress import bar
    from experiments import screen
    from experiments.leaderboard import grid, page, runner, table

    room_for(folder, folder=True)
    room_for(docs and docs.absolute().parent, folder=True)
    chosen: dict[str, Any] = {"worlds": worlds, "algorithms": algorithms}
    with bar("starting") as show:
        where: dict[str, Any] = {"workers": workers, "cluster": cluster, "older": older}
        run = runner.play(folder, grid.profile(profile), progress=show, **chosen, **where)
    standings = table.standings(run)
    if not len(standings):
        words = "; ".join(["no cell was finished: nothing to show", *run.left_out])
        err.print(words, highlight=False)
        raise typer.Exit(BROKEN if run.complete else INTERRUPTED)
    files = page.write(run, standings, folder, docs)
    if json_:
        print_json(page.as_json(run, standings, files))
    else:
        screen.winners(table.winners(standings), run, files)
    if not run.complete:
        raise typer.Exit(INTERRUPTED)


@bench.command("default")
def how_far(
    standings: Annotated[
        Path, typer.Option("--table", help="A table that bench privacy-cost wrote.", metavar="CSV")
    ] = Path("docs/leaderboard.csv"),
    json_: Json = False,
) -> None:
    """How far the default is from the best proven line of each world, in a finished table.

    Whole regret over the best line's, at ε = 1 and δ = 1e-6, for 10,000 and 100,000 rounds.

    [dim]Example:[/dim]

    dpbandit bench default --table docs/leaderboard.csv
    """
    import pandas as pd

    from dpbandit.errors import OptionError
    from experiments import screen
    from experiments.leaderboard import default

    try:
        found = default.against_best(pd.read_csv(standings))
    except (OSError, KeyError, ValueError) as error:
        raise OptionError(f"{standings} is no table of the leaderboard: {error}") from None
    if json_:
        print_json({"bar": default.BAR, "worlds": [gap._asdict() for gap in found]})
    else:
        screen.default(found)


@bench.command()
def speed(
    rounds: Annotated[
        int, typer.Option(help="Rounds of a turn; slow peers play a part of them.", min=1000)
    ] = 100_000,
    repeats: Annotated[
        int, typer.Option(help="Turns of each contestant; the best counts.", min=1)
    ] = 5,
    growth: Annotated[
        bool,
        typer.Option(
            "--growth/--no-growth", help="Also measure how time grows with features and arms."
        ),
    ] = True,
    folder: Annotated[Path, typer.Option("--out", help="Where figures and the drawing go.")] = Path(
        "out/speed"
    ),
    docs: Annotated[
        Path | None,
        typer.Option(
            help="Also write the table into this page, between its marks.", metavar="FILE"
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """How long a decision takes, beside every peer that is installed
    (pip install 'dpbandit\\[bench]'), as ratios of one run.

    Contestants take turns and the best turn counts. Times of one machine say little about another;
    ratios say more. Ctrl-C keeps the turns that are finished.

    [dim]Examples:[/dim]

    dpbandit bench speed

    dpbandit bench speed --rounds 10000 --repeats 3 --no-growth
    """
    from dpbandit.cli.progress import bar
    from experiments import screen
    from experiments.speed import measure, page

    room_for(folder, folder=True)
    room_for(docs and docs.absolute().parent, folder=True)
    with bar("starting") as show:
        result = measure.everything(rounds=rounds, repeats=repeats, growth=growth, say=show)
    result["complete"] = not show.stopped
    if not result["decisions"]:
        words = "interrupted before the first turn was finished: nothing is kept"
        err.print(words, highlight=False)
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
        screen.speeds(result, files)
    if not result["complete"]:
        kept = "" if docs is None else f"; {docs} is as it was"
        err.print(f"interrupted: only finished turns are counted{kept}", highlight=False)
        raise typer.Exit(INTERRUPTED)
