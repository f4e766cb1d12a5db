"""Pictures of runs: readable without colour, fit for a paper, every ε shown with its claim."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpbandit import __version__
from dpbandit.engine import core_status
from dpbandit.errors import OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpbandit.simulate.results import Results

# Okabe & Ito's palette, told apart with any colour vision; markers and dashes tell curves apart in black and white.
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8C564B",
    "#7F7F7F",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ((None, None), (5, 2), (2, 1.5), (7, 2, 2, 2), (1, 1))
AXES = {
    "regret": "cumulative regret",
    "reward": "cumulative reward",
    "theta_error": "parameter error ‖θ − θ*‖₂",
}
STATUS = {"proven": "proven", "as-published": "as published, not proven", "none": "no claim"}


def curves(results: Results, what: str = "regret") -> Figure:
    """Means over seeds with bands of two standard errors, one curve per algorithm."""
    if what not in AXES:
        hint = "to write a file: results.plot().savefig('regret.png')"
        raise OptionError(f"plot draws one of {', '.join(AXES)}, not {what!r}; {hint}")
    from matplotlib.figure import Figure

    frame = results.frame()
    grouped = frame.groupby(["algorithm", "round"], sort=False)[what]
    table = grouped.agg(["mean", "sem"]).reset_index()
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    final = table[table["round"] == results.horizon].set_index("algorithm")["mean"]
    names = [n for n in final.sort_values(ascending=False).index if np.isfinite(final[n])]
    for name, style in styled(names):
        part = table[table["algorithm"] == name]
        x, mean = part["round"].to_numpy(), part["mean"].to_numpy()
        error = part["sem"].fillna(0).to_numpy()
        style |= {"markersize": 4.5, "markevery": max(1, len(x) // 12), "lw": 1.6}
        axes.plot(x, mean, label=_label(results, name), **style)
        band = mean - 2 * error, mean + 2 * error
        axes.fill_between(x, *band, color=style["color"], alpha=0.16, lw=0)
    dress(axes, AXES[what], log=what == "theta_error")
    seeds = frame["seed"].nunique()
    axes.set_title(
        f"{_title(results)}\nmean over {seeds} seed{'s' * (seeds > 1)}, bands ± 2 standard errors",
        fontsize=9,
        loc="left",
    )
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.set_figwidth(9.2)
    return figure


def styled(names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each name with the style of its curve."""
    styles = cycle(COLOURS), cycle(MARKERS), cycle(DASHES)
    for name, colour, marker, dashes in zip(names, *styles, strict=False):
        style: dict[str, Any] = {} if dashes[0] is None else {"dashes": dashes}
        yield name, {"color": colour, "marker": marker, **style}


def dress(axes: Any, title: str, *, log: bool) -> None:
    """The style that all pictures over rounds share."""
    axes.set_xlabel("round")
    axes.set_ylabel(title)
    if log:
        axes.set_yscale("log")
        axes.set_xscale("log")
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _label(results: Results, name: str) -> str:
    claim = results.claims.get(name)
    return f"{name}\n({STATUS[claim.status]})" if claim is not None else name


def _title(results: Results) -> str:
    epsilon, delta = results.options.get("epsilon"), results.options.get("delta")
    setting = [f"ε = {epsilon:g}"] if epsilon else []
    setting += [f"δ = {delta:g}"] if delta else []
    return results.world + (f"; setting {', '.join(setting)}" if setting else "")


def save_all(results: Results, folder: Path) -> list[Path]:
    """Table (Parquet, CSV), summary, pictures (SVG, PNG) and the exact configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    frame, summary = results.frame(), results.summary()
    for name, write in (
        ("results.parquet", frame.to_parquet),
        ("results.csv", lambda path: frame.to_csv(path, index=False)),
        ("summary.csv", summary.to_csv),
    ):
        write(folder / name)
        files.append(folder / name)
    for what in AXES:
        if not np.isfinite(summary[what]).any():
            continue
        figure = curves(results, what)
        for ending in ("svg", "png"):
            path = folder / f"{what.replace('_', '-')}.{ending}"
            figure.savefig(path, dpi=160)
            files.append(path)
    config = {
        "world": results.world,
        "horizon": results.horizon,
        "seeds": sorted({int(row["seed"]) for row in results.rows}),
        "complete": results.complete,
        "options": {
            name: value
            for name, value in results.options.items()
            if isinstance(value, (int, float, str, tuple, list))
        },
        "claims": {
            name: None if claim is None else claim.to_dict()
            for name, claim in results.claims.items()
        },
        "versions": {
            "python": platform.python_version(),
            "dpbandit": __version__,
            **{n: version(n) for n in ("numpy", "scipy", "opendp")},
            "engine": core_status(),
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False))
    files.append(folder / "config.json")
    return files
