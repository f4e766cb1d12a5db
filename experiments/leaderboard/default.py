"""How far the default is from the best proven line of each world: one table, of a finished leaderboard."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pandas as pd

from experiments.leaderboard import grid, table
from experiments.leaderboard.grid import ROUNDS, SETTING
from experiments.leaderboard.summary import DEFAULT

TOLD = f"{DEFAULT}, clicks"  # what a user writes where rewards are clicks
BAR = 1.1


class Gap(NamedTuple):
    """The default beside the best proven line of a world, after so many rounds.

    `regret` is the best line's, or its reward where regret is unknown. `ratio` is the default's regret
    over it, or its reward over the default's. `told` is the same with `rewards="clicks"`, where rewards
    are 0 or 1; elsewhere it equals `ratio`. `tied`: the paired difference from the best is within one
    standard error. `kept`: of an earlier table, with the code of that time.
    """

    world: str
    horizon: int
    best: str
    regret: float
    ratio: float
    tied: bool
    told: float
    told_tied: bool
    kept: bool


def against_best(standings: pd.DataFrame) -> list[Gap]:
    """The gaps in a table of standings, at one budget.

    >>> row = {"epsilon": 1.0, "delta": 1e-6, "horizon": 10_000, "status": "proven", "linucb": 8.0}
    >>> row |= {"world": "clicks", "measure": "regret", "tied": False}
    >>> lines = [{**row, "label": "anytime", "comparable": 4.0, "rank": 2}]
    >>> lines += [{**row, "label": "local", "comparable": 2.0, "rank": 1}]
    >>> [(gap.best, gap.ratio, gap.told) for gap in against_best(pd.DataFrame(lines))]
    [('local', 1.2, 1.2)]
    """
    at = (standings["epsilon"] == SETTING[0]) & (standings["delta"] == SETTING[1])
    here = standings[at & standings["horizon"].isin(ROUNDS) & (standings["status"] == "proven")]
    found = []
    for _, part in here.groupby(["world", "horizon"], sort=False):
        lines: dict[str, Any] = {str(row.label): row for row in part.itertuples()}
        best = next((row for row in lines.values() if row.rank == 1), None)
        mine = lines.get(DEFAULT)
        if best is None or mine is None:
            continue
        told = lines.get(TOLD, mine)
        about = (str(mine.world), int(mine.horizon), str(best.label), _whole(best))
        ratios = (_ratio(mine, best), bool(mine.tied), _ratio(told, best), bool(told.tied))
        found.append(Gap(*about, *ratios, bool(getattr(mine, "kept", False))))
    return found


def _whole(row: Any) -> float:
    """All of a line's regret, or all of its reward."""
    sign = {"regret": 1.0, "reward": -1.0}[row.measure]
    return float(row.linucb + sign * row.comparable)


def _ratio(mine: Any, best: Any) -> float:
    """Above 1 where the default is worse."""
    pair = _whole(mine), _whole(best)
    more, less = pair if mine.measure == "regret" else pair[::-1]
    return more / less if less > 0 else math.nan


FORMS = {
    "ratio": "`anytime` as it is",
    "told": 'with `rewards="clicks"` where they are 0 or 1',
}


def sentences(found: list[Gap]) -> list[str]:
    """How many worlds are within the bar, for both forms of the default, and which are not."""
    said = []
    for horizon in sorted({gap.horizon for gap in found}):
        for form, words in FORMS.items():
            here = {gap.world: getattr(gap, form) for gap in found if gap.horizon == horizon}
            over = sorted((ratio, world) for world, ratio in here.items() if ratio > BAR)[::-1]
            beyond = [f"{grid.PLACES[world].title} {ratio:.2f}" for ratio, world in over]
            more = f"; beyond it: {'; '.join(beyond)}" if beyond else ""
            said.append(
                f"T = {table.power(horizon)}, {words}: {len(here) - len(over)} of {len(here)} "
                f"worlds within {BAR:g} ×{more}."
            )
    return said


def markdown(found: list[Gap]) -> str:
    """The table of the page: a row for each world, and for both horizons the best and the ratios."""
    horizons = [t for t in ROUNDS if any(gap.horizon == t for gap in found)]
    head = [f"T = {table.power(t)}: best proven | `anytime` | told clicks" for t in horizons]
    lines = ["| world | " + " | ".join(head) + " |", "|---" * (1 + 3 * len(horizons)) + "|"]
    cells = {(gap.world, gap.horizon): gap for gap in found}
    for world in dict.fromkeys(gap.world for gap in found):
        row = [grid.PLACES[world].title]
        for t in horizons:
            row += _three(cells[world, t]) if (world, t) in cells else ["–", "–", "–"]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def _three(gap: Gap) -> list[str]:
    told = _times(gap.told, gap.told_tied) if grid.PLACES[gap.world].clicked else "–"
    mark = table.KEPT if gap.kept else ""
    return [f"`{gap.best}`{mark} {table.number(gap.regret)}", _times(gap.ratio, gap.tied), told]


def _times(ratio: float, tied: bool) -> str:
    """In bold what misses the bar and is not tied with the best."""
    words = f"{ratio:.2f}" + (" ≈" if tied and ratio > 1 else "")
    return f"**{words}**" if ratio > BAR and not tied else words
