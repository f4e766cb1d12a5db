"""The note's pictures, drawn from its file of numbers; the same file gives the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

INK: Any = {"figure.dpi": 100, "font.size": 8, "svg.hashsalt": "note", "svg.fonttype": "path"}
STYLES: dict[str, dict[str, Any]] = {
    "anytime": {"color": "#00796b", "lw": 1.8, "label": "anytime"},
    "anytime-joint": {"color": "#c2571a", "lw": 1.8, "ls": "--", "label": "anytime-joint"},
    "joint": {"color": "#7b3294", "lw": 1.2, "ls": (0, (4, 1, 1, 1)), "label": "joint (tree)"},
    "tree-gauss": {"color": "#2554a8", "lw": 1.2, "ls": ":", "label": "tree-gauss"},
    "linucb": {"color": "black", "lw": 1.2, "label": "LinUCB, not private"},
    "random": {"color": "#8a8f98", "lw": 1.0, "ls": (0, (1, 2)), "label": "random play"},
}
TOLD: dict[str, dict[str, Any]] = {
    "square": {"color": "#c2571a", "lw": 1.4, "ls": "--", "label": "squared weights like 1/j²"},
    "fourth": {
        "color": "#00796b",
        "lw": 1.2,
        "ls": (0, (3, 1)),
        "label": "like 1/j⁴ past the knee",
    },
    "shipped": {"color": "#00796b", "lw": 1.9, "label": "as shipped: with a life"},
    "toeplitz": {
        "color": "#7b3294",
        "lw": 1.1,
        "ls": (0, (4, 1, 1, 1)),
        "label": "square root, T known",
    },
    "tree": {"color": "#2554a8", "lw": 1.1, "ls": ":", "label": "binary tree, T known"},
    "local": {"color": "#8a8f98", "lw": 1.1, "ls": (0, (1, 2)), "label": "each reward by itself"},
}


def draw(data: dict[str, Any], folder: Path) -> None:
    import matplotlib

    with matplotlib.rc_context(INK):
        for name, figure in (("information", information(data)), ("regret", regret(data))):
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})


def information(data: dict[str, Any]) -> Any:
    """Information over t², and the line that no guarantee passes."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(5.0, 2.5), layout="constrained")
    axes = made.subplots()
    for name, style in TOLD.items():
        x, y = zip(*data["exact"]["anytime"]["curves"][name], strict=True)
        axes.plot(x, y, **style)
    axes.axhline(0.25, color="#b3261e", lw=0.9)
    axes.annotate("¼", (11, 0.262), color="#b3261e", fontsize=9)
    axes.set(xscale="log", xlabel="rounds t", ylabel="information / (μt)²")
    axes.set(xlim=(10, 1e5), ylim=(0, 0.5))
    axes.legend(frameon=False, fontsize=7, loc="upper right", ncols=2)
    _plain(axes)
    return made


def regret(data: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    made = Figure(figsize=(5.0, 2.5), layout="constrained")
    axes = made.subplots()
    for name, style in STYLES.items():
        x, y = zip(*data["measured"]["simulation"]["curves"][name], strict=True)
        axes.plot(x, y, **style)
    axes.set(xscale="log", yscale="log", xlabel="rounds t", ylabel="regret")
    axes.set(xlim=(10, 1e4), ylim=(3, 1_500))
    axes.legend(frameon=False, fontsize=7, loc="upper left", ncols=2)
    _plain(axes)
    return made


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
