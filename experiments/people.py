"""What it costs to protect people: their contexts too, and whole persons. Held-out seeds.

    python -m experiments.people                       # everything, about half an hour on two cores
    python -m experiments.people lastfm                # needs its data: README, "Data"
    python -m experiments.people contexts --seeds 20
    python -m experiments.people persons --json people.json

`contexts`: regret of `anytime-joint` beside `anytime` and `joint`. `lastfm`: the same as shares of LinUCB's
reward. `persons`: what is gained over random
play at real click rates when a person comes 20 times and one of their clicks is learned from. `spread`:
regret where rewards are no clicks and all 20 of a user's are protected together. `mixed`: regret where
private columns describe the person and public ones the article.
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
from dpbandit.algorithms.registry import make_named

RANGE, CLICKS = (-0.5, 1.5), {"reward_range": (0.0, 1.0), "rewards": "clicks"}
WIDE: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5}
NARROW: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
# A world, the horizon, the budget, how many of the seeds asked for, and what is said of its rewards.
SETTINGS: dict[str, tuple[Any, int, dict[str, Any], float, dict[str, Any]]] = {
    "simulation, d = 10": (worlds.Synthetic(), 10_000, WIDE, 1, {}),
    "simulation, d = 10, T = 10⁵": (worlds.Synthetic(), 100_000, WIDE, 0.3, {}),
    "simulation, d = 10, (1, 1e-6)": (worlds.Synthetic(), 10_000, NARROW, 1, {}),
    "simulation, d = 25, T = 10⁵, (1, 1e-6)": (worlds.Synthetic(dim=25), 100_000, NARROW, 0.3, {}),
    "simulation, d = 2": (worlds.Synthetic(dim=2), 10_000, WIDE, 0.5, {}),
    "simulation, d = 5": (worlds.Synthetic(dim=5), 10_000, WIDE, 0.5, {}),
    "simulation, d = 50": (worlds.Synthetic(dim=50), 10_000, WIDE, 0.1, {}),
    "simulation, d = 100": (worlds.Synthetic(dim=100), 10_000, WIDE, 0.05, {}),
    "degenerate": (worlds.Degenerate(), 10_000, WIDE, 0.5, {}),
    "10 one-hot arms": (worlds.Bernoulli(10), 10_000, WIDE, 0.5, CLICKS),
    "20 one-hot arms": (worlds.Bernoulli(20), 10_000, WIDE, 0.5, CLICKS),
    "logistic, θ of norm 3": (worlds.Logistic(3.0), 10_000, WIDE, 0.2, CLICKS),
    "logistic, θ of norm 3.5": (worlds.Logistic(3.5), 10_000, WIDE, 0.2, CLICKS),
    "logistic, θ of norm 4": (worlds.Logistic(4.0), 10_000, WIDE, 0.2, CLICKS),
}
RATES, VISITS, ROUNDS = (0.005, 0.02, 0.1), 20, 100_000
UNITS: dict[str, tuple[str, Any]] = {
    "one reward": ("anytime", "reward"),
    "a person, C = 1": ("anytime", ("person", 1)),
    "a user with 20 rewards": ("anytime", ("user", VISITS)),
    "contexts private: one round": ("anytime-joint", "reward"),
    "contexts private: a person, C = 1": ("anytime-joint", ("person", 1)),
    "contexts private: a user with 20 rounds": ("anytime-joint", ("user", VISITS)),
}
# The best m of either kind on seeds from 10,000, and the same noise without the other's rule.
SPREAD = ("reward", ("user", 1), ("user", 5), ("spread", 5))
# Five columns of the article and five of the person, or the article's alone.
MIXED = {
    "all columns, all private": ("anytime-joint", 10),
    "all columns, all public": ("anytime", 10),
    "the article's columns, public": ("anytime", 5),
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


def lastfm(seeds: int) -> dict[str, pd.DataFrame]:
    """Reward as a share of LinUCB's on the same seeds, T = 50,000, (2, 1e-5); a tenth of the seeds."""
    count, found = max(2, seeds // 10), {}
    given = {"linucb": ("linucb", {}), "anytime-joint": ("anytime-joint", CLICKS)}
    for features in ("pca", "svd"):
        world = worlds.LastFM(features)
        results = dpb.run(world, given, horizon=50_000, seeds=count, record=[], **WIDE)
        last = results.frame().pivot(index="seed", columns="algorithm", values="reward")
        shares = last["anytime-joint"] / last["linucb"]
        rows = {"mean": shares.mean(), "se": shares.std(ddof=1) / count**0.5}
        found[f"LastFM, {features}"] = pd.DataFrame({"anytime-joint": rows}).T
        print(
            f"LastFM, {features}, {count} seeds\n{found[f'LastFM, {features}'].round(3)}\n",
            flush=True,
        )
    return found


def persons(seeds: int) -> dict[str, pd.DataFrame]:
    """Gain over random play, 1 − regret/its regret, T = 10⁵, d = 10, (1, 1e-6), 20 visits a person."""
    count, found = max(2, seeds // 10), {}
    for rate in RATES:
        clicks, rows = worlds.Clicks(rate), {}
        # Nobody comes more often than 20 times: where visits are counted nothing is left out.
        uncapped = {
            label: (name, {"unit": unit, **CLICKS})
            for label, (name, unit) in UNITS.items()
            if unit[0] != "person"
        }
        rivals = {"random": ("random", {}), **uncapped}
        given = {"horizon": ROUNDS, "seeds": count, "record": [], **NARROW}
        last = dpb.run(clicks, rivals, **given).frame()
        regret = last.pivot(index="seed", columns="algorithm", values="regret")
        for label, (name, unit) in UNITS.items():
            if label in uncapped:
                gains = 1.0 - regret[label] / regret["random"]
            else:
                told: dict[str, Any] = {"unit": unit, **CLICKS}
                runs = [play(clicks, ROUNDS, seed, name, **told) for seed in range(count)]
                gains = 1.0 - pd.Series([lost / at_random for lost, at_random in runs])
            rows[label] = {"mean": gains.mean(), "se": gains.std(ddof=1) / count**0.5}
        found[f"clicks at {rate:.1%}"] = pd.DataFrame(rows).T
        print(
            f"clicks at {rate:.1%}, {count} seeds\n{found[f'clicks at {rate:.1%}'].round(3)}\n",
            flush=True,
        )
    return found


def spread(seeds: int) -> dict[str, pd.DataFrame]:
    """Mean regret ± standard error on the simulation, T = 50,000, (1, 1e-6), 20 visits a user."""
    count, rows = max(2, seeds // 10), {}
    for unit in SPREAD:
        given: dict[str, Any] = {"unit": unit, "reward_range": RANGE}
        world = worlds.Synthetic()
        lost = [play(world, ROUNDS // 2, seed, "anytime", **given)[0] for seed in range(count)]
        rows[str(unit)] = {"mean": np.mean(lost), "se": np.std(lost, ddof=1) / count**0.5}
    found = pd.DataFrame(rows).T
    print(f"20 visits a user, {count} seeds\n{found.round(0)}\n", flush=True)
    return {"20 visits a user": found}


def mixed(seeds: int) -> dict[str, pd.DataFrame]:
    """Mean regret ± standard error: five columns of the article, public, and five of the person, which
    are the same for all arms; T = 10⁴, (2, 1e-5)."""
    count, rows = max(2, seeds // 10), {}
    for label, (name, dim) in MIXED.items():
        lost = [_visited(seed, name, dim) for seed in range(count)]
        rows[label] = {"mean": np.mean(lost), "se": np.std(lost, ddof=1) / count**0.5}
    found = pd.DataFrame(rows).T
    print(f"articles and persons, {count} seeds\n{found.round(1)}\n", flush=True)
    return {"articles and persons": found}


def _visited(seed: int, name: str, dim: int, rounds: int = 10_000) -> float:
    """The regret of one run: ten of a hundred articles are offered to a new person in every round."""
    rng = np.random.default_rng([seed, 77])
    articles, theta = rng.uniform(size=(100, 5)), rng.uniform(size=10)
    theta /= np.linalg.norm(theta)
    offered = np.argsort(rng.random((rounds, 100)), axis=1)[:, :10]
    people, noise = rng.uniform(size=(rounds, 5)), rng.normal(0, 0.5, size=rounds)
    bandit = make_named(name, dim=dim, seed=seed, reward_range=RANGE, **WIDE)
    lost = 0.0
    for t in range(rounds):
        article = articles[offered[t]]
        both = np.hstack([article, np.broadcast_to(people[t], (10, 5))]) / 10**0.5
        means, slate = both @ theta, both if dim == 10 else article / 5**0.5
        arm = bandit.select(slate)
        bandit.update(slate[arm], means[arm] + noise[t])
        lost += means.max() - means[arm]
    return float(lost)


def play(
    world: Any, rounds: int, seed: int, name: str, visits: int = VISITS, **given: Any
) -> tuple[float, float]:
    """One run through the public API, which counts users: its regret, and that of random play."""
    episode = world.episode(seed)
    pool: Any = episode.public_contexts
    if name == "anytime":
        given["public_contexts"] = pool
    bandit = make_named(name, dim=world.dim, seed=seed, **NARROW, **given)
    visitors = np.random.default_rng([seed, 1]).permutation(rounds) // visits
    block, lost, lost_at_random = episode.block(rounds), 0.0, 0.0
    for t, shown in enumerate(block.shown):
        arm = bandit.select(pool[shown])
        who = {} if given["unit"] == "reward" else {"user": int(visitors[t])}
        bandit.update(pool[shown[arm]], block.rewards[t, arm], **who)
        lost += block.means[t].max() - block.means[t, arm]
        lost_at_random += block.means[t].max() - block.means[t].mean()
    return float(lost), float(lost_at_random)


PARTS = {
    "contexts": contexts,
    "lastfm": lastfm,
    "persons": persons,
    "spread": spread,
    "mixed": mixed,
}


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
