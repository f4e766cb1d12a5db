"""MovieLens 100K from a log to a launch, with one person as the unit, at (1, 1e-6) in all.

    python -m experiments.movielens --seeds 20        # a minute or two
    python -m experiments.movielens --clicks 1        # one like of each person, however often they come
    python -m experiments.movielens --clicks 1 --still

A log of films shown at random: its first rows start a bandit (one release); the rest evaluate what was
learned (another release, of the same persons, so the two add up). Then it is launched on fresh rounds,
beside random play and the film that most people rated, counted in the clear. `--still` learns nothing more
after the log.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

import dpbandit as dpb
from dpbandit import worlds

LEARNED, EVALUATED, LAUNCHED = 12_000, 60_000, 20_000
REWARDS, ROWS = 5, 3  # of one person: learned from; counted in the evaluation
LEARNING: dict[str, Any] = {"epsilon": 0.92, "delta": 8e-7}
RELEASE = (0.4, 2e-7)


def play(world: Any, seed: int, unit: Any, learns: bool) -> dict[str, float]:
    """One log, one evaluation, one launch."""
    rows = world.records(seed, LEARNED + EVALUATED)
    log = pa.Table.from_pylist(list(islice(rows, LEARNED)))
    bandit = dpb.warm_start(
        log,
        encoder=world.encoder,
        reward="liked",
        user="person",
        reward_range=(0, 1),
        seed=seed,
        unit=unit,
        **LEARNING,
    )
    found = dpb.replay(
        rows,
        {"launched": bandit.model()},
        encoder=world.encoder,
        items=world.films,
        action="film",
        offered="offered",
        reward="liked",
        user="person",
        unit=unit,
        rows_per_user=ROWS,
        reward_range=(0, 1),
        release=RELEASE,
        seed=seed,
    )
    foretold = found.of("launched")
    episode = world.episode(100_000 + seed)
    block = episode.block(LAUNCHED)
    people = episode.users_of_last_block().tolist()
    popular = np.bincount(world.table.rated, minlength=len(world.films))
    earned = 0.0
    for shown, rewards, person in zip(block.shown, block.rewards, people, strict=True):
        arm = bandit.select(block.pool[shown])
        if learns:
            bandit.update(block.pool[shown[arm]], rewards[arm], user=person)
        earned += rewards[arm]
    every = np.arange(LAUNCHED)
    mu = math.hypot(bandit.claim.mu or 0.0, found.claim.mu or 0.0)
    delta = bandit.claim.delta + found.claim.delta
    return {
        "random": float(block.rewards.mean()),
        "popular": float(block.rewards[every, popular[block.shown].argmax(axis=1)].mean()),
        "launched": earned / LAUNCHED,
        "foretold": foretold.value,
        "low": foretold.low,
        "high": foretold.high,
        "epsilon": dpb.budget.epsilon_of(mu=mu, delta=0.98 * delta),
        "delta": delta,
    }


def main() -> None:
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--clicks", type=float, help="the cap of a person; instead of five rewards")
    parser.add_argument("--still", action="store_true", help="learn nothing more after the log")
    parser.add_argument("--json", help="write the numbers into this file")
    given = parser.parse_args()
    # Known: δ beside so few rewards, and that the log uses up the caps.
    for known in (dpb.errors.PrivacyWarning, dpb.errors.LogWarning):
        warnings.simplefilter("ignore", known)
    world = worlds.MovieLens()
    unit = ("user", REWARDS) if given.clicks is None else ("person", given.clicks)
    seeds = range(given.first, given.first + given.seeds)
    runs = [play(world, seed, unit, not given.still) for seed in seeds]
    columns = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    error = math.sqrt(len(runs))
    for name in ("random", "popular", "launched", "foretold"):
        print(f"{name:9} {columns[name].mean():.4f} ± {columns[name].std(ddof=1) / error:.4f}")
    ahead = columns["launched"] - columns["popular"]
    inside = (columns["low"] <= columns["launched"]) & (columns["launched"] <= columns["high"])
    print(f"ahead of popular {ahead.mean():.4f} ± {ahead.std(ddof=1) / error:.4f}")
    print(f"ahead in {int((ahead > 0).sum())} of {len(runs)}")
    width = (columns["high"] - columns["low"]).mean() / 2
    print(f"inside the interval in {int(inside.sum())} of {len(runs)}; it is ± {width:.4f}")
    print(f"together ε = {columns['epsilon'].max():.4f}, δ = {columns['delta'].max():g}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(runs, file, indent=1)


if __name__ == "__main__":
    main()
