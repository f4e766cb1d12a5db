"""The leaderboard in one small picture, which can be read on a telephone: one row for each world.

Every world has a scale of its own: 0 is LinUCB, which is not private, and 1 is random play. So regret,
clicks and rewards are not put on one axis as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from experiments.leaderboard import grid
from experiments.leaderboard.grid import ROUNDS, SETTING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT = "anytime"
LEFT, RIGHT = -0.6, 1.05  # what lies beyond is drawn at the edge


def rounds(standings: pd.DataFrame) -> int:
    """T = 10⁴ where it was played: later most lines have caught up with LinUCB."""
    return ROUNDS[0] if ROUNDS[0] in set(standings["horizon"]) else int(standings["horizon"].max())


def shares(standings: pd.DataFrame) -> pd.DataFrame:
    """Added regret by what random play adds, at one budget and number of rounds: of the default, and
    of the best proven line.

    >>> row = {"epsilon": 1.0, "delta": 1e-6, "horizon": 10, "status": "proven", "random": 8.0}
    >>> lines = [{**row, "world": "clicks", "label": "anytime", "added": 2.0, "rank": 2}]
    >>> lines += [{**row, "world": "clicks", "label": "local", "added": 1.0, "rank": 1}]
    >>> shares(pd.DataFrame(lines)).to_dict("records")
    [{'world': 'clicks', 'default': 0.25, 'best': 0.125, 'label': 'local'}]
    """
    at = (standings["epsilon"] == SETTING[0]) & (standings["delta"] == SETTING[1])
    here = standings[at & (standings["horizon"] == rounds(standings))]
    found = []
    for world in (name for name in grid.PLACES if name in set(here["world"])):
        part = here[(here["world"] == world) & (here["status"] == "proven")]
        default, best = part[part["label"] == DEFAULT], part[part["rank"] == 1]
        if len(default) and len(best):
            one, other = default.iloc[0], best.iloc[0]
            found.append(
                {
                    "world": world,
                    "default": float(one["added"] / one["random"]),
                    "best": float(other["added"] / other["random"]),
                    "label": str(other["label"]),
                }
            )
    return pd.DataFrame(found, columns=["world", "default", "best", "label"])


def figure(standings: pd.DataFrame) -> Figure:
    """The picture."""
    from matplotlib.figure import Figure

    table = shares(standings)
    made = Figure(figsize=(4.2, 1.6 + 0.32 * max(len(table), 1)), layout="constrained")
    axes = made.subplots()
    rows = range(len(table), 0, -1)
    for row, label in zip(rows, table["label"].astype(str), strict=True):
        axes.axhline(row, color="#e3e7ee", lw=0.8, zorder=0)
        if not label.startswith(DEFAULT):
            # Left of the red line, so that it does not run through the name.
            axes.text(
                0.97,
                row,
                label.split(" + ")[0],
                fontsize=7.5,
                ha="right",
                va="center",
                color="#545e6e",
            )
    for column, marker, face, words in (
        ("best", "s", "white", "best proven line, named if another"),
        ("default", "o", "#2554a8", "anytime, the default"),
    ):
        places = table[column].clip(LEFT, RIGHT)
        axes.scatter(
            places,
            list(rows),
            marker=marker,
            s=34,
            facecolor=face,
            edgecolor="#2554a8",
            label=words,
        )
    axes.axvline(0, color="black", lw=0.9)
    axes.axvline(1, color="#b3261e", lw=0.9, ls="--")
    axes.set_yticks(list(rows), [grid.PLACES[world].title for world in table["world"]], fontsize=8)
    axes.set_xticks([0, 0.5, 1], ["LinUCB,\nnot private", "½", "random\nplay"], fontsize=8)
    axes.set_xlim(LEFT - 0.05, RIGHT + 0.05)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(-0.55, -0.09), frameon=False, ncols=1)
    made.suptitle(
        f"What privacy costs: ε = {SETTING[0]:g}, δ = {SETTING[1]:g}, proven, for\none reward; {rounds(standings):,} rounds. "
        "Left is better",
        fontsize=9,
        x=0.02,
        ha="left",
        weight="bold",
    )
    return made
