"""A picture of an audit: the adversary's score on the two streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpbandit.auditor.attack import Audit


def distributions(result: Audit) -> Figure:
    """Two histograms, the threshold between them, and what follows from it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.add_subplot()
    both = np.concatenate([result.scores0, result.scores1])
    low, high = np.quantile(both, [0.0005, 0.9995])
    if low == high:
        low, high = low - 1, high + 1
    edges = np.linspace(low, high, 90)
    for scores, colour, hatch, label in (
        (result.scores0, "#0072B2", "", "reward as it was"),
        (result.scores1, "#D55E00", "///", result.changed),
    ):
        density, _ = np.histogram(np.clip(scores, low, high), bins=edges, density=True)
        axes.stairs(density, edges, color=colour, lw=1.5, label=label)
        axes.stairs(density, edges, color=colour, alpha=0.15, fill=True, hatch=hatch, lw=0)
    side = "right" if result.bound.above else "left"
    axes.axvline(
        float(np.clip(result.bound.threshold, low, high)),
        color="black",
        ls="--",
        lw=1.2,
        label=f"threshold: the event is to the {side}",
    )
    axes.set_xlabel(
        "score: log-likelihood ratio of the whole transcript"
        if "likelihood" in result.statistic
        else "score: trained statistic"
    )
    axes.set_ylabel("density")
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    verdict = "no violation found" if result.holds else "request refuted"
    axes.set_title(
        f"{result.name}: {verdict}. Requested ε = {result.epsilon:g} at δ = {result.delta:g} "
        f"(status: {result.claim.status}); found ε ≥ {result.bound.epsilon:.3g}\n"
        f"{result.runs:,} runs a side, {result.horizon} rounds, {result.noise} noise, "
        f"confidence {result.confidence:g}",
        fontsize=9,
        loc="left",
    )
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)
    return figure
