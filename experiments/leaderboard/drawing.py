"""The leaderboard's picture: above, what each algorithm costs at every budget; below, how the cost
grows with rounds.

Readable without colour: budgets have markers, algorithms below have dashes. Every ε stands beside
its claim. Lines with fewer seeds are drawn as if they had had all of them (`comparable`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpbandit import theory
from dpbandit.budget import mu_of
from dpbandit.simulate.figures import COLOURS, DASHES, MARKERS
from experiments.leaderboard import grid
from experiments.leaderboard.grid import Budget
from experiments.leaderboard.table import order, power

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From weak to strong privacy, light to dark; told apart by shape as well.
SHADES, SHAPES = ("#9ecae1", "#4292c6", "#2554a8", "#08204f"), ("o", "s", "^", "D")
WITHOUT_PRIVACY: dict[str, Any] = {"color": "black", "lw": 0.9, "ls": (0, (1, 1.5))}
WITH_PRIVACY: dict[str, Any] = {"color": "black", "lw": 0.9, "ls": (0, (6, 1.5, 1, 1.5))}
GUIDE, FADED = "#8a8f98", "#b3261e"
ACROSS = 3  # panels side by side: more could not be read on a telephone
CURVES = 6  # more than this in one small panel cannot be told apart
LINEAR = 10.0  # rewards: within ± this the scale is linear, so that 0 and gains have a place


def figure(table: pd.DataFrame) -> Figure:
    """The picture of a table of standings."""
    from matplotlib.figure import Figure

    names = [name for name in grid.PLACES if name in set(table["world"])]
    last = int(table["horizon"].max())
    labels = order(table[table["horizon"] == last])
    labels += [label for label in order(table) if label not in labels]
    status = table.groupby("label")["status"].first()
    labels.sort(key=lambda label: status[label] != "proven")
    wide = min(ACROSS, len(names))
    deep = math.ceil(len(names) / ACROSS)
    top, bottom = deep * (0.245 * len(labels) + 0.8) + 0.6, deep * 2.3 + 0.8
    made = Figure(figsize=(max(9.0, 3.0 + 2.15 * wide), top + bottom + 1.2), layout="constrained")
    layout: Any = made.get_layout_engine()
    layout.set(h_pad=0.04, w_pad=0.03, hspace=0.03, wspace=0.02)
    bands: Any = made.subfigures(2, 1, height_ratios=[top, bottom])
    upper = _panels(bands[0].subplots(deep, wide, sharey=True, squeeze=False), len(names))
    lower = _panels(bands[1].subplots(deep, wide, squeeze=False), len(names))
    budgets = list(
        dict.fromkeys(
            Budget(*pair) for pair in table[["epsilon", "delta"]].itertuples(index=False, name=None)
        )
    )
    unproven = int((status != "proven").sum())
    for axes, name in zip(upper, names, strict=True):
        _dots(
            axes,
            table[(table["world"] == name) & (table["horizon"] == last)],
            name,
            labels,
            budgets,
            unproven,
        )
    for axes in upper[::ACROSS]:
        _rows(axes, table, labels)
    middle = budgets[min(2, len(budgets) - 1)]
    chosen = _chosen(table, middle)
    for axes, name in zip(lower, names, strict=True):
        here = (
            (table["world"] == name)
            & (table["epsilon"] == middle.epsilon)
            & (table["delta"] == middle.delta)
        )
        _growth(axes, table[here], name, chosen, middle)
    for axes in lower[::ACROSS]:
        axes.set_ylabel("added regret, or lost reward", fontsize=8)
    bands[0].suptitle(
        "What privacy costs: added regret over LinUCB on the same seeds after\nT = "
        f"{power(last)} rounds (LastFM: lost reward). Left is better.",
        fontsize=11,
        x=0.01,
        ha="left",
        weight="bold",
    )
    bands[1].suptitle(
        f"How the cost grows with rounds, at the setting {middle}:\nthe {len(chosen)} proven "
        "algorithms that cost least, one line for each",
        fontsize=11,
        x=0.01,
        ha="left",
        weight="bold",
    )
    _legends(bands, budgets, chosen)
    return made


def _panels(drawn: Any, wanted: int) -> list[Axes]:
    """The panels that are wanted, row by row; the rest of the last row stays empty."""
    every = list(drawn.flat)
    for axes in every[wanted:]:
        axes.set_visible(False)
    return every[:wanted]


def _dots(
    axes: Axes,
    part: pd.DataFrame,
    name: str,
    labels: list[str],
    budgets: list[Budget],
    unproven: int,
) -> None:
    axes.set_title(grid.PLACES[name].title, fontsize=9)
    axes.set_ylim(len(labels) + 0.15, -0.6)
    _plain(axes)
    axes.tick_params(axis="y", length=0)
    if not len(part):  # an interrupted run
        axes.text(
            0.5, 0.5, "not finished", transform=axes.transAxes, ha="center", fontsize=9, color=GUIDE
        )
        axes.set_xticks([])
        return
    place = {label: row for row, label in enumerate(labels)}
    for number, budget in enumerate(budgets):
        mine = part[(part["epsilon"] == budget.epsilon) & (part["delta"] == budget.delta)]
        shift = (number - (len(budgets) - 1) / 2) * 0.17
        for proven, some in mine.groupby(mine["status"] == "proven"):
            style: dict[str, Any] = {
                "color": SHADES[number % 4],
                "fmt": SHAPES[number % 4],
                "ms": 4.6,
                "lw": 1.1,
            }
            rows = some["label"].map(place) + shift
            style |= {} if proven else {"mfc": "white", "mew": 1.1}
            axes.errorbar(
                some["comparable"],
                rows,
                xerr=2 * some["added_se"].fillna(0),
                capsize=0,
                zorder=3,
                **style,
            )
        if grid.PLACES[name].bounded:
            low, high = grid.PLACES[name].reward_range
            guide = theory.privacy_order(
                dim=grid.PLACES[name].dim,
                mu=mu_of(epsilon=budget.epsilon, delta=budget.delta),
                reward_width=high - low,
            )
            axes.plot(
                [guide],
                [len(labels) - 0.05],
                marker=(3, 0, 0),
                ms=5.5,
                color=SHADES[number % 4],
                mec="none",
            )
    axes.axvline(0, color="black", lw=0.8, zorder=1)
    axes.axvline(float(part["random"].iloc[0]), color=FADED, lw=1.0, zorder=1)
    if grid.PLACES[name].measure == "regret":
        axes.axvline(float(part["linucb"].iloc[0]), color=GUIDE, lw=1.0, ls=(0, (4, 2)), zorder=1)
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=0.5)
    _ticks(axes, "x", part)
    for stripe in range(0, len(labels), 2):
        axes.axhspan(stripe - 0.5, stripe + 0.5, color="#f3f5f8", zorder=0, lw=0)
    if unproven:
        axes.axhline(len(labels) - unproven - 0.5, color="black", lw=0.9)
    axes.grid(axis="x", alpha=0.25, lw=0.6)


def _rows(axes: Axes, table: pd.DataFrame, labels: list[str]) -> None:
    status = table.groupby("label")["status"].first()
    short = {"as-published": " †", "none": " ‡"}
    axes.set_yticks(
        range(len(labels)),
        [label + short.get(str(status[label]), "") for label in labels],
        fontsize=8.5,
    )
    for text, label in zip(axes.get_yticklabels(), labels, strict=True):
        if status[label] != "proven":
            text.set(style="italic", color="#555b64")


def _chosen(table: pd.DataFrame, budget: Budget) -> list[str]:
    """The cheapest proven line of each algorithm, the cheapest first: variants of one would lie on
    each other.
    """
    part = table[
        (table["status"] == "proven")
        & (table["epsilon"] == budget.epsilon)
        & (table["delta"] == budget.delta)
    ]
    algorithm = part.groupby("label")["algorithm"].first() if len(part) else pd.Series(dtype=object)
    best: dict[str, str] = {}
    for label in order(part) if len(part) else []:
        best.setdefault(str(algorithm[label]), label)
    return list(best.values())[:CURVES]


def _growth(axes: Axes, part: pd.DataFrame, name: str, chosen: list[str], budget: Budget) -> None:
    axes.set_title(grid.PLACES[name].title, fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.5)
    axes.axhline(0, color="black", lw=0.8, zorder=1)
    for number, label in enumerate(chosen):
        mine = part[part["label"] == label].sort_values("horizon")
        if not len(mine):
            continue
        axes.errorbar(
            mine["horizon"],
            mine["comparable"],
            yerr=2 * mine["added_se"].fillna(0),
            lw=1.5,
            ms=4.5,
            capsize=0,
            **_look(number),
        )
    reference = part.drop_duplicates("horizon").sort_values("horizon")
    if not len(reference):
        return
    axes.plot(reference["horizon"], reference["random"], color=FADED, lw=1.0, zorder=1)
    place = grid.PLACES[name]
    rounds = np.array([reference["horizon"].min(), reference["horizon"].max()])
    if place.reward_noise is not None:
        axes.plot(
            reference["horizon"], reference["linucb"], color=GUIDE, lw=1.0, ls=(0, (4, 2)), zorder=1
        )
    if place.bounded and place.reward_noise is not None:
        axes.plot(
            rounds,
            theory.worst_case_regret(rounds, dim=place.dim, reward_noise=place.reward_noise),
            color="black",
            lw=0.9,
            ls=(0, (1, 1.5)),
        )
        low, high = place.reward_range
        level = theory.privacy_order(
            dim=place.dim,
            mu=mu_of(epsilon=budget.epsilon, delta=budget.delta),
            reward_width=high - low,
        )
        axes.plot(rounds, [level, level], color="black", lw=0.9, ls=(0, (6, 1.5, 1, 1.5)))
    _ticks(axes, "y", part)
    horizons = reference["horizon"].tolist()
    axes.set_xticks(horizons, [power(int(t)) for t in horizons])
    axes.set_xticks([], minor=True)
    axes.set_xlim(rounds[0] / 1.35, rounds[1] * 1.35)
    axes.set_xlabel("rounds T", fontsize=8)
    _plain(axes)
    axes.grid(alpha=0.25, lw=0.6)


def _ticks(axes: Axes, which: str, part: pd.DataFrame) -> None:
    """Powers of ten, and 0, and as much room to the left as losses below LinUCB's need."""
    from matplotlib.ticker import NullLocator

    least = float(part["comparable"].min())
    most = float(max(part["comparable"].max(), part["random"].max()))
    low = min(-LINEAR * 0.3, 1.6 * least) if least < 0 else -LINEAR * 0.15
    high = max(most, LINEAR) * 1.8
    marks = [0.0, *(10.0**n for n in range(1, math.ceil(math.log10(high)) + 1))]
    marks = [-m for m in reversed(marks[1:]) if -m > low] + [m for m in marks if m < high]
    names = [
        f"{'−' if m < 0 else ''}{power(round(abs(m))) if abs(m) > 10 else round(abs(m))}"
        for m in marks
    ]
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    (axes.set_xticks if which == "x" else axes.set_yticks)(marks, names)
    (axes.xaxis if which == "x" else axes.yaxis).set_minor_locator(NullLocator())


def _look(number: int) -> dict[str, Any]:
    dashes = DASHES[number % len(DASHES)]
    look: dict[str, Any] = {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
    }
    return look if dashes[0] is None else look | {"linestyle": (0, dashes)}


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7.5)


def _legends(bands: Any, budgets: list[Budget], chosen: list[str]) -> None:
    from matplotlib.lines import Line2D

    def sample(label: str, **look: Any) -> Line2D:
        return Line2D([], [], label=label, **look)

    order = "W·d/√ρ"
    dots = [
        *(
            sample(f"setting {budget}", color=SHADES[i % 4], marker=SHAPES[i % 4], ls="")
            for i, budget in enumerate(budgets)
        ),
        sample("as good as LinUCB", color="black", lw=0.8),
        sample("random play", color=FADED, lw=1.0),
        sample("LinUCB's own regret: twice LinUCB in all", color=GUIDE, lw=1.0, ls=(0, (4, 2))),
        sample(
            f"order {order} of a lower bound (constant unknown)",
            color=SHADES[1],
            marker=(3, 0, 0),
            ls="",
        ),
        sample(
            "not proven: † as published, ‡ no claim", color="grey", marker="o", mfc="white", ls=""
        ),
        sample(
            "proven at its setting (ε, δ), for one reward (noise simulated)",
            color="grey",
            marker="o",
            ls="",
        ),
    ]
    lines = [
        *(sample(label, **_look(i)) for i, label in enumerate(chosen)),
        sample("lower bound without privacy, worst case: R·d√T/(16√3)", **WITHOUT_PRIVACY),
        sample(f"order of the private one: {order} (constant unknown)", **WITH_PRIVACY),
    ]
    style = {"loc": "outside lower left", "fontsize": 8, "frameon": False}
    bands[0].legend(handles=dots, ncols=2, **style)
    bands[1].legend(handles=lines, ncols=2, **style)
