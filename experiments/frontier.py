"""The bars of the frontier, measured: regret of `anytime` beside its rivals, all proven, on
held-out seeds.

    python -m experiments.frontier                 # everything, about half an hour on two cores
    python -m experiments.frontier simulation --seeds 20

Prints a table for each part; with --json also a file of numbers. LastFM needs its data
(DPBANDIT_DATA).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import dpbandit as dpb
from experiments import parts

RANGE = (-0.5, 1.5)
Rivals = dict[str, tuple[str, dict[str, Any]]]
Tables = Iterator[tuple[str, pd.DataFrame]]
RIVALS: Rivals = {
    "linucb": ("linucb", {}),
    "linucb, rewards clipped": ("linucb", {"clip_rewards": True}),
    "anytime": ("anytime", {}),
    "anytime, no public contexts": ("anytime", {"public_contexts": None}),
    "toeplitz, instruments": ("toeplitz", {"shape": "instruments"}),
    "toeplitz, ellipsoid": ("toeplitz", {"shape": "ellipsoid"}),
    "toeplitz": ("toeplitz", {}),
    "tree-gauss": ("tree-gauss", {}),
    "tree-gauss, Honaker": ("tree-gauss", {"honaker": True}),
    "dgs": ("dgs", {}),
    "local": ("local", {}),
    "local, Gaussian": ("local", {"noise": "gaussian"}),
    "adac-oful": ("adac-oful", {}),
    "private-ts, Gaussian": ("private-ts", {"noise": "gaussian"}),
    "joint": ("joint", {}),
    "anytime-joint": ("anytime-joint", {"alpha": 0.4}),
}
FEW = {
    name: RIVALS[name]
    for name in ("linucb", "anytime", "anytime, no public contexts", "toeplitz, instruments")
}


def regret(rivals: Rivals, horizon: int, seeds: int, **options: Any) -> pd.DataFrame:
    """Mean regret ± standard error on the paper's simulation, and ratios to two of the means."""
    options |= {"horizon": horizon, "seeds": seeds, "record": [], "progress": True}
    results = dpb.run(dpb.worlds.Synthetic(), rivals, reward_range=RANGE, **options)
    last = results.frame().pivot(index="seed", columns="algorithm", values="regret")
    table = pd.DataFrame({"mean": last.mean(), "se": last.std(ddof=1) / np.sqrt(len(last))})
    table["mean + 2 se"] = table["mean"] + 2 * table["se"]
    for name in ("anytime", "linucb"):
        table[f"ratio to {name}"] = table["mean"] / table["mean"][name]
    return table.sort_values("mean")


def simulation(seeds: int) -> Tables:
    for epsilon, delta in ((2.0, 1e-5), (2.0, 0.1)):
        table = regret(RIVALS, 10_000, seeds, epsilon=epsilon, delta=delta)
        yield f"paper's simulation, T = 10⁴, ({epsilon:g}, {delta:g}), {seeds} seeds", table


def long_run(seeds: int) -> Tables:
    table = regret(FEW, 100_000, seeds, epsilon=1.0, delta=1e-6)
    yield f"paper's simulation, T = 10⁵, (1, 1e-6), {seeds} seeds", table


def lastfm(seeds: int) -> Tables:
    """Reward as a share of LinUCB's, and the worst 1,000 rounds after the first 1,000 as a multiple
    of random play.
    """
    marks = list(range(1_000, 50_001, 1_000))
    names = {**FEW, "random": ("random", {})}
    for features in ("pca", "svd"):
        results = dpb.run(
            dpb.worlds.LastFM(features=features),
            names,
            horizon=50_000,
            seeds=seeds,
            record=marks,
            progress=True,
            epsilon=2.0,
            delta=1e-5,
            reward_range=(0, 1),
        )
        frame = results.frame().set_index(["algorithm", "seed", "round"])["reward"].unstack("round")
        random = frame.loc["random"]
        rows = {}
        for name in names:
            share = frame.loc[name][50_000] / frame.loc["linucb"][50_000]
            stretches = np.diff(frame.loc[name][marks].to_numpy(), axis=1)
            chance = np.diff(random[marks].to_numpy(), axis=1).mean()
            rows[name] = {
                "share of linucb": share.mean(),
                "se": share.std(ddof=1) / np.sqrt(len(share)),
                "× random": (frame.loc[name][50_000] / random[50_000]).mean(),
                "worst 1,000 rounds, × random": stretches.min() / chance,
            }
        yield f"LastFM {features}, T = 50,000, (2, 1e-5), {seeds} seeds", pd.DataFrame(rows).T


if __name__ == "__main__":
    PARTS = {"simulation": simulation, "long": long_run, "lastfm": lastfm}
    parts.measure(__doc__, PARTS, {"simulation": 200, "long": 200, "lastfm": 10})
