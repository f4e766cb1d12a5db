"""The leaderboard's large picture: above, every line in every world at one budget; below, how regret
grows with rounds where lower bounds are known.

Readable without colour: every cell has its number, and curves have dashes.
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
from experiments.leaderboard.grid import ROUNDS, SETTING, Budget
from experiments.leaderboard.table import order, power

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WITHOUT_PRIVACY: dict[str, Any] = {"color": "black", "lw": 0.9, "ls": (0, (1, 1.5))}
WITH_PRIVACY: dict[str, Any] = {"color": "black", "lw": 0.9, "ls": (0, (6, 1.5, 1, 1.5))}
GUIDE, FADED = "#8a8f98", "#b3261e"
ACROSS = 3  # panels side by side: more could not be read on a telephone
CURVES = 6  # more than this in one small panel cannot be told apart
LINEAR = 10.0  # rewards: within ± this the scale is linear, so that 0 and gains have a place
DARKEST = 10.0  # times the best: what is worse is no darker
MARKS = {"as-published": " †", "none": " ‡"}


def figure(table: pd.DataFrame) -> Figure:
    """The picture of a table of standings."""
    from matplotlib.figure import Figure

    budgets = [Budget(*pair) for pair in table[["epsilon", "delta"]].drop_duplicates().to_numpy()]
    budget = SETTING if SETTING in budgets else budgets[0]
    here = table[(table["epsilon"] == budget.epsilon) & (table["delta"] == budget.delta)]
    there = sorted(set(here["horizon"]))
    horizons = [t for t in ROUNDS if t in there] or there[-1:]
    worlds = [name for name in grid.PLACES if name in set(here["world"])]
    bounded = [name for name in worlds if grid.PLACES[name].bounded]
    status = here.groupby("label")["status"].first()
    labels = sorted(order(here), key=lambda label: status[label] != "proven")
    heights = [0.22 * len(worlds) + 2.3] * len(horizons)
    heights += [2.4 * math.ceil(len(bounded) / ACROSS) + 1.4] if bounded else []
    made = Figure(figsize=(max(9.0, 2.6 + 0.36 * len(labels)), sum(heights)), layout="constrained")
    bands: Any = np.ravel(made.subfigures(len(heights), 1, height_ratios=heights, squeeze=False))
    for band, horizon in zip(bands, horizons, strict=False):
        part = here[here["horizon"] == horizon]
        _matrix(band.subplots(), part, worlds, labels, status)
        words = f"T = {power(horizon)}, {budget}: times the best proven line's regret"
        _title(band, f"{words} (its reward over the line's, where regret is unknown)")
    if bounded:
        _bounded(bands[-1], here, bounded, budget)
    return made


def _title(band: Any, words: str) -> None:
    band.suptitle(words, fontsize=10.5, x=0.01, ha="left", weight="bold")


def whole(part: pd.DataFrame) -> pd.Series[float]:
    """All regret of each row; where it is unknown, one over all reward. Less is better.

    >>> row = {"linucb": 8.0, "comparable": 4.0}
    >>> whole(pd.DataFrame([row | {"measure": "regret"}, row | {"measure": "reward"}])).tolist()
    [12.0, 0.25]
    """
    regret = part["linucb"] + part["comparable"]
    reward = 1.0 / (part["linucb"] - part["comparable"])
    return regret.where(part["measure"] == "regret", reward)


def _matrix(
    axes: Axes, part: pd.DataFrame, worlds: list[str], labels: list[str], status: pd.Series[Any]
) -> None:
    """A row for each world and a column for each line."""
    from matplotlib.colors import LogNorm

    part = part.assign(whole=whole(part))
    best = part[part["rank"] == 1].set_index("world")["whole"]
    ratio = part["whole"] / part["world"].map(best)
    ratios = part.assign(ratio=ratio).pivot(index="world", columns="label", values="ratio")
    lost = part.assign(lost=part["comparable"] >= part["random"])
    lost = lost.pivot(index="world", columns="label", values="lost").reindex(
        index=worlds, columns=labels
    )
    numbers = ratios.reindex(index=worlds, columns=labels).to_numpy(float)
    norm = LogNorm(1.0, DARKEST, clip=True)
    axes.imshow(np.maximum(numbers, 1.0), cmap="Blues", norm=norm, aspect="auto", alpha=0.85)
    for (row, column), number in np.ndenumerate(numbers):
        if math.isnan(number):
            continue
        bad = bool(lost.iat[row, column])
        words = f"{number:.1f}" if number < 9.95 else f"{number:.0f}" if number < 99.5 else ">99"
        dark = norm(max(number, 1.0)) > 0.55
        colour = "#ffb4a9" if bad and dark else FADED if bad else "white" if dark else "black"
        weight = "bold" if number <= 1.0 and status[labels[column]] == "proven" else "normal"
        at: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.8}
        axes.text(column, row, words, color=colour, weight=weight, **at)
    axes.set_yticks(range(len(worlds)), [grid.PLACES[name].title for name in worlds], fontsize=8)
    names = [label + MARKS.get(str(status[label]), "") for label in labels]
    axes.set_xticks(range(len(labels)), names, fontsize=8, rotation=50, ha="right")
    proven = sum(status[label] == "proven" for label in labels)
    axes.axvline(proven - 0.5, color="black", lw=0.9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _bounded(band: Any, table: pd.DataFrame, worlds: list[str], budget: Budget) -> None:
    """Growth with rounds, beside the lower bounds."""
    chosen = _chosen(table[table["world"].isin(worlds)], budget)
    deep = math.ceil(len(worlds) / ACROSS)
    panels = _panels(band.subplots(deep, ACROSS, squeeze=False), len(worlds))
    for axes, name in zip(panels, worlds, strict=True):
        _growth(axes, table[table["world"] == name], name, chosen, budget)
    for axes in panels[::ACROSS]:
        axes.set_ylabel("added regret", fontsize=8)
    _title(band, f"How added regret grows, {budget}: the {len(chosen)} cheapest proven algorithms")
    _legend(band, chosen)


def _panels(drawn: Any, wanted: int) -> list[Axes]:
    """The panels that are wanted, row by row; the rest of the last row stays empty."""
    every = list(drawn.flat)
    for axes in every[wanted:]:
        axes.set_visible(False)
    return every[:wanted]


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
    axes.plot(
        reference["horizon"], reference["linucb"], color=GUIDE, lw=1.0, ls=(0, (4, 2)), zorder=1
    )
    if place.reward_noise is not None:
        least = theory.worst_case_regret(rounds, dim=place.dim, reward_noise=place.reward_noise)
        axes.plot(rounds, least, **WITHOUT_PRIVACY)
    low, high = place.reward_range
    mu = mu_of(epsilon=budget.epsilon, delta=budget.delta)
    level = theory.privacy_order(dim=place.dim, mu=mu, reward_width=high - low)
    axes.plot(rounds, [level, level], **WITH_PRIVACY)
    _ticks(axes, part)
    horizons = reference["horizon"].tolist()
    axes.set_xticks(horizons, [power(int(t)) for t in horizons])
    axes.set_xticks([], minor=True)
    axes.set_xlim(rounds[0] / 1.35, rounds[1] * 1.35)
    axes.set_xlabel("rounds T", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7.5)
    axes.grid(alpha=0.25, lw=0.6)


def _ticks(axes: Axes, part: pd.DataFrame) -> None:
    """Powers of ten, and 0, and as much room below as losses below LinUCB's need."""
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
    axes.set_ylim(low, high)
    axes.set_yticks(marks, names)
    axes.yaxis.set_minor_locator(NullLocator())


def _look(number: int) -> dict[str, Any]:
    dashes = DASHES[number % len(DASHES)]
    look: dict[str, Any] = {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
    }
    return look if dashes[0] is None else look | {"linestyle": (0, dashes)}


def _legend(band: Any, chosen: list[str]) -> None:
    from matplotlib.lines import Line2D

    def sample(label: str, **look: Any) -> Line2D:
        return Line2D([], [], label=label, **look)

    lines = [
        *(sample(label, **_look(i)) for i, label in enumerate(chosen)),
        sample("random play", color=FADED, lw=1.0),
        sample("LinUCB's own regret: twice LinUCB in all", color=GUIDE, lw=1.0, ls=(0, (4, 2))),
        sample("lower bound without privacy, worst case: R·d√T/(16√3)", **WITHOUT_PRIVACY),
        sample("order of the private one: W·d/√ρ (constant unknown)", **WITH_PRIVACY),
    ]
    band.legend(handles=lines, ncols=2, loc="outside lower left", fontsize=8, frameon=False)
