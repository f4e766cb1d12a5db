"""Results as the commands print them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from dpbandit.cli.shared import note, out, print_table
from experiments.leaderboard import grid
from experiments.leaderboard.default import Gap, sentences
from experiments.leaderboard.runner import Run
from experiments.leaderboard.table import Winner, number, power
from experiments.reproduction.runner import Reproduction
from experiments.reproduction.verdicts import FIGURE_ONLY, NOT, REPRODUCED

COLOURS = {REPRODUCED: "green", NOT: "red", FIGURE_ONLY: "yellow"}


def _table(title: str | None = None) -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")


def _dim(words: str) -> None:
    out.print(words, style="dim", highlight=False, soft_wrap=True)


def _left_out(reasons: list[str]) -> None:
    for text in reasons:
        out.print(f"[yellow]left out:[/yellow] {escape(text)}", highlight=False)


def verdicts(result: Reproduction) -> None:
    """The paper's claims, each with its verdict."""
    shown = _table("What the paper's experiments claim")
    shown.add_column("claim", ratio=3)
    shown.add_column("verdict", ratio=2)
    for one in result.verdicts:
        colour = COLOURS.get(one.verdict, "dim")
        shown.add_row(f"{one.claim} ({one.where})", f"[{colour}]{one.verdict}")
    print_table(shown)
    _left_out(result.left_out)
    out.print(
        "figures, tables and [bold]report.html[/bold] are in "
        f"[bold]{escape(str(result.folder))}[/bold]",
        highlight=False,
    )


def winners(found: list[Winner], run: Run, files: list[Path]) -> None:
    """The best proven line of each cell."""
    shown = _table("Best proven algorithm of each cell: added regret over LinUCB")
    for name in ("world", "setting", "T", "best proven", "added", "tied"):
        if name == "added":
            shown.add_column(name, no_wrap=True, justify="right")
        else:
            shown.add_column(name, no_wrap=name == "T")
    for w in found:
        tied = "; ".join(w.tied)
        tied += "" if w.beats_random else " [yellow](no better than random play)[/yellow]"
        cells = (grid.PLACES[w.world].title, str(w.budget), power(w.horizon), w.label)
        shown.add_row(*cells, number(w.added, w.error), tied)
    print_table(shown)
    _dim(
        "mean ± standard error over seeds, paired with LinUCB; claims are for one reward; "
        "noise is simulated; LastFM: lost reward"
    )
    _left_out(run.left_out)
    _dim(f"all numbers, the figure and the page: {', '.join(map(str, files))}")


def default(found: list[Gap]) -> None:
    """The default beside the best proven line of each world."""
    shown = _table("The default's regret over that of the best proven line")
    for name in ("world", "T", "best proven", "its regret", "anytime", "told clicks"):
        shown.add_column(name, no_wrap=name == "T", justify="left" if name == "world" else "right")
    for gap in found:
        place = grid.PLACES[gap.world]
        ratios = (f"{gap.ratio:.2f}", f"{gap.told:.2f}" if place.clicked else "–")
        shown.add_row(place.title, power(gap.horizon), gap.best, number(gap.regret), *ratios)
    print_table(shown)
    for words in sentences(found):
        _dim(words)


def speeds(result: dict[str, Any], files: list[Path]) -> None:
    """Microseconds a round, and the ratio to our linucb."""
    shown = _table()
    names = [task["name"] for task in result["tasks"]]
    shown.add_column("")
    for name in names:
        shown.add_column(f"{name} µs a round", justify="right")
        shown.add_column(f"{name} × linucb", justify="right")
    for row in result["decisions"]:
        values = [row.get(key) for name in names for key in (name, f"{name} ratio")]
        figures = ["" if value is None else f"{value:,.2f}" for value in values]
        shown.add_row(row["contestant"], *figures, style="bold" if row["ours"] else None)
    print_table(shown)
    for one in result["missing"]:
        note(one, "not installed")
    _dim(f"all figures: {', '.join(map(str, files))}")
