"""The paper's figures drawn again: each at the figures' own calibration, and beside it with the
proven algorithms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpbandit import theory
from dpbandit.simulate.figures import COLOURS, MARKERS
from experiments.reproduction.setting import DELTA, EPSILON, FIGURE_SET, PROVEN_SET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: dict[str, dict[str, Any]] = {
    name: {
        "color": COLOURS[i % len(COLOURS)],
        "marker": MARKERS[i % len(MARKERS)],
        "linestyle": ("-", "--", ":", "-.")[i % 4],
    }
    for i, name in enumerate((*FIGURE_SET, "dgs-published", *PROVEN_SET, "random"))
}
WORDS = {
    "linucb": "LinUCB (not private)",
    "dgs-figure": "DGS at Δ = 1/t (no claim)",
    "private-linucb-published": "Private LinUCB as published (not proven)",
    "dgs-published": "DGS as published (not proven)",
    "dgs": "dgs (proven)",
    "tree-gauss": "tree-gauss (proven)",
    "local": "local (proven, δ = 0)",
    "private-linucb": "private-linucb (proven, δ = 0)",
    "random": "random play",
}
LEFT, RIGHT = "the figure's calibration", "with the constants printed, and proven algorithms"


def _panels(title: str) -> tuple[Figure, tuple[Axes, Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 5.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=False)
    for axes, words in ((left, LEFT), (right, RIGHT)):
        axes.set_title(words, fontsize=9.5)
        axes.grid(alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11)
    return figure, (left, right)


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend under both panels, each name once."""
    found: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=3, fontsize=8, frameon=False
    )


def _curve(axes: Axes, frame: pd.DataFrame, name: str, column: str) -> None:
    part = frame[frame["algorithm"] == name].groupby("round")[column].agg(["mean", "sem"])
    x, mean = part.index.to_numpy(), part["mean"].to_numpy()
    error = part["sem"].fillna(0).to_numpy()
    axes.plot(
        x, mean, lw=1.6, ms=4.5, markevery=max(1, len(x) // 10), label=WORDS[name], **STYLE[name]
    )
    axes.fill_between(
        x, mean - 2 * error, mean + 2 * error, color=STYLE[name]["color"], alpha=0.15, lw=0
    )


def _over_rounds(
    frame: pd.DataFrame, column: str, title: str, label: str, *, log: bool = False
) -> Figure:
    figure, panels = _panels(title)
    for axes, names in zip(
        panels, (FIGURE_SET, ("linucb", "dgs-published", *PROVEN_SET, "random")), strict=True
    ):
        for name in names:
            if column == "theta_error" and name == "random":
                continue
            _curve(axes, frame, name, column)
        axes.set_xlabel("round")
        axes.set_ylabel(label)
        if log:
            axes.set_xscale("log")
            axes.set_yscale("log")
    _legend(figure, panels)
    return figure


def figure_1a(tables: dict[str, pd.DataFrame]) -> Figure:
    frame = tables["simulation"]
    horizon = int(frame["round"].max())
    figure = _over_rounds(
        frame,
        "regret",
        f"Figure 1(a): regret on the simulation (setting ε = {EPSILON:g}, δ = {DELTA:g})",
        "cumulative regret",
    )
    rounds = np.unique(np.geomspace(10, horizon, 40).astype(int))
    bound = theory.regret_bound(
        rounds,
        dim=10,
        epsilon=EPSILON,
        delta=DELTA,
        smallest_eigenvalue=0.022,
        ridge=1.0,
        max_norm=1.0,
        theta_norm=1.0,
        zeta=0.05,
        reward_noise=0.5,
        as_published=True,
    )
    least = float(np.nanmin(np.asarray(bound)[-1]))
    figure.axes[1].text(
        0.02,
        0.97,
        f"Theorem 3 as printed: {least:,.0f} at the last round,\noff the scale (regret "
        f"cannot exceed {2 * horizon:,})",
        transform=figure.axes[1].transAxes,
        fontsize=7.5,
        va="top",
    )
    return figure


def figure_1b(tables: dict[str, pd.DataFrame]) -> Figure:
    frame = tables["lastfm"]
    frame = frame[frame["round"] >= 50]
    return _over_rounds(
        frame,
        "ratio",
        f"Figure 1(b): reward on LastFM over that of random play (setting ε = {EPSILON:g}, "
        f"δ = {DELTA:g})",
        "reward / random play's expected reward",
    )


def figure_1c(tables: dict[str, pd.DataFrame]) -> Figure:
    frame = tables["simulation"]
    figure = _over_rounds(
        frame,
        "theta_error",
        f"Figure 1(c): parameter error on the simulation (setting ε = {EPSILON:g}, δ = {DELTA:g})",
        "‖θ^p − θ*‖₂",
        log=True,
    )
    horizon = int(frame["round"].max())
    rounds = np.unique(np.geomspace(2, horizon, 60).astype(int))
    common: dict[str, Any] = {"horizon": horizon, "epsilon": EPSILON, "smallest_eigenvalue": 0.022}
    for words, dashes, more in (
        ("Theorem 2 as printed", (1, 2), {"as_published": True}),
        ("Theorem 2 corrected", (6, 3), {"dim": 10, "delta": DELTA}),
    ):
        bound = np.asarray(theory.noise_bound(rounds, **common, **more))
        figure.axes[1].plot(
            rounds,
            bound,
            color="grey",
            lw=1.1,
            dashes=dashes,
            label=f"{words}: noise of DGS as published",
        )
    for legend in list(figure.legends):
        legend.remove()
    _legend(figure, figure.axes)
    return figure


def figure_2a(tables: dict[str, pd.DataFrame]) -> Figure:
    frame = tables["privacy-levels"]
    figure, panels = _panels("Figure 2(a): regret at the last round against ε (δ = 0.1)")
    for axes, names in zip(
        panels,
        (("dgs-figure",), ("dgs-published", "private-linucb-published", "dgs", "tree-gauss")),
        strict=True,
    ):
        for name in names:
            part = (
                frame[frame["algorithm"] == name].groupby("epsilon")["regret"].agg(["mean", "sem"])
            )
            axes.errorbar(
                part.index,
                part["mean"],
                yerr=2 * part["sem"],
                lw=1.5,
                ms=5,
                capsize=3,
                label=WORDS[name],
                **STYLE[name],
            )
        axes.set_xlabel("ε")
        axes.set_ylabel("cumulative regret at the last round")
    _legend(figure, panels)
    return figure


def _bars(frame: pd.DataFrame, title: str) -> Figure:
    figure, panels = _panels(title)
    for axes, names in zip(
        panels, (FIGURE_SET, ("linucb", "dgs-published", *PROVEN_SET)), strict=True
    ):
        positions = sorted(frame["position"].unique())
        width = 0.8 / len(names)
        for i, name in enumerate(names):
            part = (
                frame[frame["algorithm"] == name]
                .groupby("position")["changed"]
                .agg(["mean", "std"])
            )
            x = np.arange(len(positions)) + (i - (len(names) - 1) / 2) * width
            hatch = ("", "//", "..", "xx", "\\\\", "++")[i % 6]
            axes.bar(
                x,
                part["mean"],
                width,
                yerr=part["std"].fillna(0),
                capsize=2.5,
                label=WORDS[name],
                color=STYLE[name]["color"],
                alpha=0.75,
                hatch=hatch,
                edgecolor="white",
            )
        axes.set_xticks(range(len(positions)), [f"{p:,}" for p in positions])
        axes.set_xlabel("round in which the reward was changed")
        axes.set_ylabel("arms chosen differently (mean, sd over runs)")
        axes.set_ylim(bottom=0)
    _legend(figure, panels)
    return figure


def figure_2b(tables: dict[str, pd.DataFrame]) -> Figure:
    return _bars(
        tables["changed-arms"],
        "Figure 2(b): arms changed by raising one reward by 0.5, simulation, 500 rounds",
    )


def figure_2c(tables: dict[str, pd.DataFrame]) -> Figure:
    return _bars(
        tables["changed-arms-lastfm"],
        "Figure 2(c): arms changed by flipping one reward, LastFM, 5,000 rounds",
    )


def figure_noise(tables: dict[str, pd.DataFrame]) -> Figure:
    from matplotlib.figure import Figure

    frame = tables["noise-levels"]
    figure = Figure(figsize=(8.4, 4.6), layout="constrained")
    axes = figure.subplots()
    looks: dict[str, dict[str, Any]] = {
        "dgs-published": {
            "color": COLOURS[1],
            "marker": "s",
            "label": "added by DGS as published (Lemma 1)",
        },
        "required, Laplace": {
            "color": "black",
            "marker": "^",
            "linestyle": "--",
            "label": f"required for pure ε = {EPSILON:g} (Laplace, proven)",
        },
        "required, Gaussian": {
            "color": COLOURS[0],
            "marker": "o",
            "linestyle": "-.",
            "label": f"required for ε = {EPSILON:g}, δ = {DELTA:g} (Gaussian, proven)",
        },
        "dgs-figure": {
            "color": COLOURS[2],
            "marker": "D",
            "linestyle": ":",
            "label": "added at Δ = 1/t, as behind the figures (no claim)",
        },
    }
    for name, look in looks.items():
        part = frame[frame["calibration"] == name]
        axes.plot(part["round"], part["noise"], lw=1.7, ms=4.5, markevery=8, **look)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("round at which the node ends")
    axes.set_ylabel("standard deviation of one node's noise\nin one coordinate of θ")
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        "Why the published curves look as they do: noise added against noise "
        "required\n(paper's simulation, LinUCB's arms; θ* has length 1)",
        fontsize=10,
        loc="left",
    )
    axes.axhline(1.0, color="grey", lw=0.8)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return figure


DRAW: dict[str, Callable[[dict[str, pd.DataFrame]], Any]] = {
    "1a": figure_1a,
    "1b": figure_1b,
    "1c": figure_1c,
    "2a": figure_2a,
    "2b": figure_2b,
    "2c": figure_2c,
    "noise": figure_noise,
}
