"""What was measured and what was predicted, kept in JSON files.

A plan sees contexts of a seed that is not simulated, the reward range, and nothing else: θ's prior
and the reward noise are its defaults. One that is told gets θs drawn as the world draws them, of
further seeds. A plan runs the bandits themselves, so what is left then is sampling: of seeds here,
of particles there, and one seed's contexts for all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dpbandit as dpb

RANGE = (-0.5, 1.5)
HELD_OUT = 12_345
BUDGETS = ((2.0, 0.1), (2.0, 1e-5), (1.0, 1e-6), (0.5, 1e-6))
HORIZONS = (1_000, 10_000, 100_000)
SEEDS = {1_000: 30, 10_000: 16, 100_000: 5}
SEEDS_50 = {1_000: 8, 10_000: 4, 100_000: 2}
FREE = ("random", "linucb")  # the same for every budget
PRIVATE = (
    "anytime",
    "toeplitz",
    "local",
    "tree-gauss",
    "adac-oful",
    "dgs",
    "private-linucb",
    "private-ts",
    "joint",
)
WORLDS: dict[str, Callable[[], Any]] = {
    "synthetic-10": dpb.worlds.Synthetic,
    "drifting": dpb.worlds.Drifting,
    "degenerate": dpb.worlds.Degenerate,
    "synthetic-50": lambda: dpb.worlds.Synthetic(dim=50),
}


def private_for(world: str, horizon: int) -> tuple[str, ...]:
    """All of them, but for the slowest on the longest runs: they are far from the best there."""
    if horizon < 100_000:
        return PRIVATE
    return PRIVATE[:2] if world == "synthetic-50" else PRIVATE[:3]


def seeds_for(world: str, horizon: int) -> int:
    return SEEDS[horizon] if world != "synthetic-50" else SEEDS_50[horizon]


def settings(most: int = HORIZONS[-1]) -> list[tuple[str, int, tuple[float, float]]]:
    """All with at most so many rounds."""
    horizons = [horizon for horizon in HORIZONS if horizon <= most]
    return [(w, horizon, budget) for horizon in horizons for w in WORLDS for budget in BUDGETS]


def key(world: str, horizon: int, budget: tuple[float, float] | None) -> str:
    return f"{world}|{horizon}|" + ("free" if budget is None else f"{budget[0]:g},{budget[1]:g}")


class Store:
    """A JSON file that is written after every entry."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name
        self.data: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def __setitem__(self, name: str, value: Any) -> None:
        self.data[name] = value
        self.path.write_text(json.dumps(self.data, indent=1))


def simulate(folder: Path, most: int) -> None:
    store = Store(folder, "measured.json")
    for world, horizon, budget in settings(most):
        for names, which in ((FREE, None), (private_for(world, horizon), budget)):
            name = key(world, horizon, which)
            if name in store.data:
                continue
            start = time.perf_counter()
            seeds = seeds_for(world, horizon)
            options: dict[str, Any] = {"epsilon": budget[0], "delta": budget[1]}
            options |= {"horizon": horizon, "seeds": seeds, "reward_range": RANGE}
            rows = dpb.run(WORLDS[world](), names, workers=1, **options).summary()
            store[name] = {
                n: {"regret": float(mean), "se": float(error), "seeds": seeds}
                for n, mean, error in rows[["regret", "regret_se"]].itertuples(name=None)
            }
            print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)


def sample(world: str, horizon: int) -> dict[str, Any]:
    """What a user would know: contexts as they are offered."""
    made = WORLDS[world]()
    episode = made.episode(HELD_OUT)
    if world.startswith("synthetic"):
        return {"contexts": episode.public_contexts, "known_contexts": True}
    slates, every, kept = [], 4096, min(horizon, 4000)
    wanted = np.unique(np.linspace(0, horizon - 1, kept).astype(int))
    for start in range(0, horizon, every):
        block = episode.block(min(every, horizon - start))
        inside = wanted[(wanted >= start) & (wanted < start + every)] - start
        slates.append(block.pool[block.shown[inside]])
    drifting = world == "drifting"
    return {
        "contexts": np.concatenate(slates),
        "in_order": drifting,
        "known_contexts": not drifting,
    }


def thetas(world: str) -> Any:
    """θs of seeds that are not simulated, in the frame of the contexts that the plan sees."""
    made = WORLDS[world]()
    episodes = [made.episode(HELD_OUT + 1 + n) for n in range(24)]
    if world != "degenerate":
        return np.array([episode.theta for episode in episodes])
    frame = made.episode(HELD_OUT).directions
    return np.array([episode.directions @ episode.theta @ frame for episode in episodes])


def predict(folder: Path, most: int, *, told: bool) -> None:
    store = Store(folder, "told.json" if told else "predicted.json")
    for world, horizon, budget in settings(most):
        name = key(world, horizon, budget)
        if name in store.data:
            continue
        start = time.perf_counter()
        made = WORLDS[world]()
        plan = dpb.plan(
            dim=made.dim,
            arms=made.arms,
            epsilon=budget[0],
            delta=budget[1],
            horizon=horizon,
            reward_range=RANGE,
            algorithms=[*FREE, *private_for(world, horizon)],
            **sample(world, horizon),
            **({"prior": thetas(world)} if told else {}),
        )
        store[name] = {
            "recommended": plan.recommended,
            "regret": {n: plan.final(n) for n in plan.forecasts},
        }
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)


LASTFM_ROUNDS, LASTFM_SEEDS, LASTFM_NAMES = (
    10_000,
    2,
    ("anytime", "toeplitz", "local", "tree-gauss"),
)


def lastfm(folder: Path) -> None:
    """Rewards there are no linear function of contexts and regret is unknown: rewards earned are
    compared, nothing predicted.
    """
    store = Store(folder, "lastfm.json")
    for features in ("pca", "svd"):
        world = dpb.worlds.LastFM(features)
        for epsilon, delta in BUDGETS[1:3]:
            name = f"{features}|{epsilon:g},{delta:g}"
            if name in store.data:
                continue
            privacy: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
            privacy |= {"horizon": LASTFM_ROUNDS, "reward_range": (0.0, 1.0)}
            names = [*FREE, *LASTFM_NAMES]
            results = dpb.run(world, names, seeds=LASTFM_SEEDS, workers=1, **privacy)
            earned = results.summary()["reward"]
            plan = dpb.plan(
                dim=world.dim,
                arms=world.arms,
                contexts=world.public_contexts,
                known_contexts=True,
                algorithms=names,
                **privacy,
            )
            store[name] = {"reward": {n: float(earned[n]) for n in names}, "ranked": plan.ranked()}
            print(name, store.data[name], flush=True)
