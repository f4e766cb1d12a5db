"""Rewards as they are: tastes that move, small catalogues, clicks, blocks of features. Held-out seeds.

    python -m experiments.rewards                    # everything, about ten minutes on two cores
    python -m experiments.rewards moving --seeds 8
    python -m experiments.rewards catalogues --json rewards.json

Each table has the regret of `anytime` as it comes, of a plain one (one memory, one prior, a bonus for
everything), of its rivals that are proven too, and of LinUCB at the better of two α, which is not private;
where θ moves, LinUCB that forgets is beside it. `below` counts runs that gain less than 0.8 over random play.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd

import dpbandit as dpb
from dpbandit import worlds
from dpbandit.algorithms.anytime import PLAIN
from experiments import parts

RANGE = (-0.5, 1.5)
WIDE: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "reward_range": RANGE}
NARROW: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "reward_range": RANGE}
CLICKS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "reward_range": (0.0, 1.0)}
TOLD = {"rewards": "clicks"}
FORGETS = 1 - 1 / 3000
# A world, the horizon, the budget, how many of the seeds asked for, and what `anytime` is told.
Setting = tuple[Any, int, dict[str, Any], float, dict[str, Any]]
PARTS: dict[str, dict[str, Setting]] = {
    "simulation": {
        "T = 10⁴, (2, 1e-5)": (worlds.Synthetic(), 10_000, WIDE, 8, {}),
        "T = 10⁴, (1, 1e-6)": (worlds.Synthetic(), 10_000, NARROW, 4, {}),
        "T = 10⁵, (2, 1e-5)": (worlds.Synthetic(), 100_000, WIDE, 1, {}),
        "noise 0.01": (worlds.Synthetic(reward_noise=0.01), 10_000, WIDE, 2, {}),
        "noise 0.1": (worlds.Synthetic(reward_noise=0.1), 10_000, WIDE, 2, {}),
        "d = 50": (worlds.Synthetic(dim=50), 10_000, WIDE, 0.5, {}),
        "degenerate": (worlds.Degenerate(), 10_000, WIDE, 4, {}),
    },
    "moving": {
        kind: (worlds.Moving(kind, 100_000), 100_000, WIDE, 1, {})
        for kind in ("abrupt", "walk", "seasonal", "new-arm", "worst-becomes-best")
    },
    "catalogues": {
        "20 arms, Gaussian": (worlds.Gaussian(20), 100_000, NARROW, 1, {}),
        "20 arms, clicks 10%": (worlds.Clicks(0.1, arms=20, one_hot=True), 100_000, CLICKS, 1, TOLD),
        "20 arms, clicks 2%": (worlds.Clicks(0.02, arms=20, one_hot=True), 100_000, CLICKS, 1, TOLD),
        "10 arms, T = 10⁴, (2, 1e-5)": (
            worlds.Bernoulli(10), 10_000, {**WIDE, "reward_range": (0.0, 1.0)}, 2, {},
        ),
    },
    "clicks": {
        f"{rate:.1%}, d = {dim}": (worlds.Clicks(rate, dim=dim), 100_000, CLICKS, 1, TOLD)
        for dim in (10, 25)
        for rate in (0.005, 0.02)
    },
    "blocks": {
        "digits, T = 1,797": (worlds.Labelled("digits"), 1_797, CLICKS, 0.3, {}),
        "digits, T = 17,970": (worlds.Labelled("digits"), 17_970, CLICKS, 0.2, {}),
        "wine": (worlds.Labelled("wine"), 5_000, CLICKS, 0.5, {}),
        "breast cancer": (worlds.Labelled("breast_cancer"), 5_000, CLICKS, 0.5, {}),
        "iris": (worlds.Labelled("iris"), 5_000, CLICKS, 0.5, {}),
    },
}  # fmt: skip


def measure(setting: Setting, seeds: int, moves: bool) -> pd.DataFrame:
    """Mean regret, its standard error, the gain over random play, and how many runs gain little."""
    world, horizon, given, share, told = setting
    rivals: dict[str, tuple[str, dict[str, Any]]] = {
        "anytime": ("anytime", told),
        "plain anytime": ("anytime", {**told, **PLAIN}),
        "local": ("local", {}),
        "random": ("random", {}),
    }
    for alpha in (0.3, 1.0):
        rivals[f"linucb, α = {alpha:g}"] = ("linucb", {"alpha": alpha})
        if moves:
            forgets = {"alpha": alpha, "forget": FORGETS}
            rivals[f"linucb that forgets, α = {alpha:g}"] = ("linucb", forgets)
    count = max(2, round(share * seeds))
    results = dpb.run(world, rivals, horizon=horizon, seeds=count, record=[], **given)
    last = results.frame().pivot(index="seed", columns="algorithm", values="regret")
    gains = 1.0 - last.div(last["random"], axis=0)
    error = last.std(ddof=1) / count**0.5
    return pd.DataFrame(
        {"regret": last.mean(), "se": error, "gain": gains.mean(), "below": (gains < 0.8).sum()}
    ).assign(seeds=count)


def tables(part: str, seeds: int) -> Iterator[tuple[str, pd.DataFrame]]:
    for label, setting in PARTS[part].items():
        yield label, measure(setting, seeds, moves=part == "moving")


if __name__ == "__main__":
    parts.measure(
        __doc__, {part: partial(tables, part) for part in PARTS}, dict.fromkeys(PARTS, 24)
    )
