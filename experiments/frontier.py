"""The bars of the frontier, measured: regret of `anytime` beside its rivals, all proven, on
held-out seeds.

    python -m experiments.frontier                 # everything, about half an hour on two cores
    python -m experiments.frontier simulation --seeds 20

Prints a table for each part; with --json also a file of numbers. LastFM needs its data
(DPBANDIT_DATA).
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np
import pandas as pd

import dpbandit as dpb

RANGE = (-0.5, 1.5)
Rivals = dict[str, tuple[str, dict[str, Any]]]
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


def simulation(seeds: int) -> dict[str, pd.DataFrame]:
    return {
        f"paper's simulation, T = 10⁴, ({epsilon:g}, {delta:g}), {seeds} seeds": regret(
            RIVALS, 10_000, seeds, epsilon=epsilon, delta=delta
        )
        for epsilon, delta in ((2.0, 1e-5), (2.0, 0.1))
    }


def long_run(seeds: int) -> dict[str, pd.DataFrame]:
    table = regret(FEW, 100_000, seeds, epsilon=1.0, delta=1e-6)
    return {f"paper's simulation, T = 10⁵, (1, 1e-6), {seeds} seeds": table}


def lastfm(seeds: int) -> dict[str, pd.DataFrame]:
    """Reward as a share of LinUCB's, and the worst 1,000 rounds after the first 1,000 as a multiple
    of random play.
    """
    found = {}
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
        found[f"LastFM {features}, T = 50,000, (2, 1e-5), {seeds} seeds"] = pd.DataFrame(rows).T
    return found


PARTS = {"simulation": (simulation, 200), "long": (long_run, 200), "lastfm": (lastfm, 10)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], help="which parts; all if none is named"
    )
    parser.add_argument(
        "--seeds", type=int, help="how many seeds, instead of each part's own number"
    )
    parser.add_argument("--json", help="also write the numbers to this file")
    given = parser.parse_args()
    warnings.simplefilter("ignore", dpb.errors.PrivacyWarning)
    found: dict[str, pd.DataFrame] = {}
    for part in given.parts or PARTS:
        run, seeds = PARTS[part]
        for title, table in run(given.seeds or seeds).items():
            found[title] = table
            print(f"\n{title}\n{table.round(3).to_string()}", flush=True)
            if given.json:
                with open(given.json, "w") as file:
                    json.dump(
                        {name: t.to_dict("index") for name, t in found.items()}, file, indent=1
                    )


if __name__ == "__main__":
    main()
