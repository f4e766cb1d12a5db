"""What it costs to protect people: their contexts too, and whole persons. Held-out seeds.

    python -m experiments.people                       # everything, about half an hour on two cores
    python -m experiments.people contexts --seeds 20
    python -m experiments.people persons --json people.json

`contexts`: regret of `anytime-joint` beside `anytime` and `joint`. `persons`: what is gained over random
play at real click rates when a person comes 20 times and one of their clicks is learned from.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np
import pandas as pd

import dpbandit as dpb
from dpbandit import worlds

RANGE, CLICKS = (-0.5, 1.5), {"reward_range": (0.0, 1.0), "rewards": "clicks"}
WIDE: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5}
NARROW: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
# A world, the horizon, the budget, how many of the seeds asked for, and what is said of its rewards.
SETTINGS: dict[str, tuple[Any, int, dict[str, Any], float, dict[str, Any]]] = {
    "simulation, d = 10": (worlds.Synthetic(), 10_000, WIDE, 1, {}),
    "simulation, d = 10, T = 10⁵": (worlds.Synthetic(), 100_000, WIDE, 0.3, {}),
    "simulation, d = 10, (1, 1e-6)": (worlds.Synthetic(), 10_000, NARROW, 1, {}),
    "simulation, d = 25, T = 10⁵, (1, 1e-6)": (worlds.Synthetic(dim=25), 100_000, NARROW, 0.2, {}),
    "simulation, d = 2": (worlds.Synthetic(dim=2), 10_000, WIDE, 0.5, {}),
    "simulation, d = 100": (worlds.Synthetic(dim=100), 10_000, WIDE, 0.05, {}),
    "degenerate": (worlds.Degenerate(), 10_000, WIDE, 0.5, {}),
    "10 one-hot arms": (worlds.Bernoulli(10), 10_000, WIDE, 0.5, CLICKS),
    "20 one-hot arms": (worlds.Bernoulli(20), 10_000, WIDE, 0.5, CLICKS),
    "logistic, θ of norm 3": (worlds.Logistic(3.0), 10_000, WIDE, 0.2, CLICKS),
    "logistic, θ of norm 3.5": (worlds.Logistic(3.5), 10_000, WIDE, 0.2, CLICKS),
    "logistic, θ of norm 4": (worlds.Logistic(4.0), 10_000, WIDE, 0.2, CLICKS),
}
RATES, VISITS, ROUNDS = (0.005, 0.02, 0.1), 20, 100_000
UNITS: dict[str, dict[str, Any]] = {
    "one reward": {},
    "a person, C = 1": {"unit": ("person", 1)},
    "a user with 20 rewards": {"unit": ("user", VISITS)},
}


def contexts(seeds: int) -> dict[str, pd.DataFrame]:
    """Mean regret ± standard error, T = 10⁴ and (2, 1e-5) unless said."""
    found = {}
    for label, (world, horizon, budget, share, rewards) in SETTINGS.items():
        given = {"reward_range": RANGE, **rewards}
        rivals: dict[str, tuple[str, dict[str, Any]]] = {
            "linucb": ("linucb", {}),
            "anytime-joint": ("anytime-joint", given),
            "anytime": ("anytime", given),
        }
        if world.dim < 50 and horizon < 100_000:  # it takes too long elsewhere
            rivals["joint"] = ("joint", {"reward_range": given["reward_range"]})
        count = max(2, round(share * seeds))
        results = dpb.run(world, rivals, horizon=horizon, seeds=count, record=[], **budget)
        last = results.frame().pivot(index="seed", columns="algorithm", values="regret")
        found[label] = pd.DataFrame({"mean": last.mean(), "se": last.std(ddof=1) / count**0.5})
        print(f"{label}, {count} seeds\n{found[label].round(1).to_string()}\n", flush=True)
    return found


def persons(seeds: int) -> dict[str, pd.DataFrame]:
    """Gain over random play, 1 − regret/its regret, T = 10⁵, d = 10, (1, 1e-6), 20 visits a person."""
    count, found = max(2, seeds // 10), {}
    for rate in RATES:
        rows = {}
        for label, unit in UNITS.items():
            gains = [gain(rate, seed, unit) for seed in range(count)]
            rows[label] = {"mean": np.mean(gains), "se": np.std(gains, ddof=1) / count**0.5}
        found[f"clicks at {rate:.1%}"] = pd.DataFrame(rows).T
        print(
            f"clicks at {rate:.1%}, {count} seeds\n{found[f'clicks at {rate:.1%}'].round(3)}\n",
            flush=True,
        )
    return found


def gain(rate: float, seed: int, unit: dict[str, Any]) -> float:
    """One run through the public API: caps are counted there, not in the engine."""
    episode = worlds.Clicks(rate).episode(seed)
    pool: Any = episode.public_contexts
    bandit = dpb.make(
        "anytime", dim=10, seed=seed, public_contexts=pool, **NARROW, **CLICKS, **unit
    )
    visitors = np.random.default_rng([seed, 1]).permutation(ROUNDS) // VISITS
    block, lost, lost_at_random = episode.block(ROUNDS), 0.0, 0.0
    for t, shown in enumerate(block.shown):
        arm = bandit.select(pool[shown])
        given = {"user": int(visitors[t])} if unit else {}
        bandit.update(pool[shown[arm]], block.rewards[t, arm], **given)
        lost += block.means[t].max() - block.means[t, arm]
        lost_at_random += block.means[t].max() - block.means[t].mean()
    return float(1.0 - lost / lost_at_random)


PARTS = {"contexts": contexts, "persons": persons}


def main() -> None:
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument(
        "parts", nargs="*", help=f"some of {', '.join(PARTS)}; all if none is given"
    )
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--json", help="write the numbers into this file")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part is named {', '.join(sorted(unknown))}: {', '.join(PARTS)} are")
    warnings.simplefilter("ignore", dpb.errors.PrivacyWarning)
    found = {}
    for name in given.parts or PARTS:
        found[name] = {label: table.to_dict() for label, table in PARTS[name](given.seeds).items()}
    if given.json:
        with open(given.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
