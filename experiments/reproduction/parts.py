"""The experiments behind the paper's figures, as tables. Each is a function of a profile alone, and cheap to repeat.

Calibrations: the figures' own (`dgs-figure`, `private-linucb-published`), the constants the paper prints
(`dgs-published`), and the proven ones (`dgs`, `tree-gauss`, `local`, `private-linucb`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpbandit.bandits import registry, rounds
from dpbandit.errors import OptionError, nearest
from dpbandit.lab.engine import play_all, prepare, run
from dpbandit.lab.results import Results
from dpbandit.sensitivity import estimate_bounds
from dpbandit.spread import Place, Task, Tell
from dpbandit.worlds import LastFM, OpenBandit, Synthetic, replay

FIGURE_SET = ("linucb", "dgs-figure", "private-linucb-published")
PROVEN_SET = ("dgs", "tree-gauss", "local", "private-linucb")
ALL = (*FIGURE_SET, "dgs-published", *PROVEN_SET)
EPSILON, DELTA = 2.0, 0.1
SIMULATION_RANGE, LASTFM_RANGE = (-0.5, 1.5), (0.0, 1.0)

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Profile:
    """How large the experiments are."""

    name: str
    horizon: int
    seeds: int
    lastfm_horizon: int
    lastfm_seeds: int
    epsilons: tuple[float, ...]
    change_rounds: int
    lastfm_change_rounds: int
    change_runs: int
    lastfm_change_runs: int


PAPER = Profile(
    "paper",
    10_000,
    20,
    50_000,
    20,
    (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
    500,
    5_000,
    5,
    5,
)
PROFILES = {
    "quick": replace(
        PAPER,
        name="quick",
        seeds=8,
        lastfm_horizon=10_000,
        lastfm_seeds=2,
        epsilons=(0.5, 1.0, 2.0, 3.0, 5.0),
        lastfm_change_runs=2,
    ),
    "paper": PAPER,
    "full": replace(PAPER, name="full", horizon=100_000, seeds=100),
}


def profile(name: str) -> Profile:
    """The profile of that name, or an error with the nearest one."""
    try:
        return PROFILES[name]
    except KeyError:
        raise OptionError(f"no profile is called {name!r}: {nearest(name, PROFILES)}") from None


def _all_of(results: Results) -> pd.DataFrame:
    """The table of a run that was played to the end: part of one would be taken for all of it the next time."""
    if not results.complete:
        raise KeyboardInterrupt
    return results.frame()


def simulation(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """Figures 1(a) and 1(c): regret and parameter error over rounds."""
    names = [*ALL, "random"]
    options: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "reward_range": SIMULATION_RANGE}
    return _all_of(
        run(
            Synthetic(),
            names,
            horizon=size.horizon,
            seeds=size.seeds,
            progress=progress,
            cluster=place,
            **options,
        )
    )


def lastfm(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """Figure 1(b): reward over that of random play, on LastFM with one shared model, PCA features."""
    names = [*ALL, "random"]
    options: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "reward_range": LASTFM_RANGE}
    horizon, seeds, world = size.lastfm_horizon, size.lastfm_seeds, LastFM(features="pca")
    frame = _all_of(
        run(world, names, horizon=horizon, seeds=seeds, progress=progress, cluster=place, **options)
    )
    # Random play's own reward is noisy early on; its expectation is known without running it: one hit in 25.
    frame["ratio"] = frame["reward"] / (frame["round"] / world.arms)
    return frame


def privacy_levels(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """Figure 2(a): regret at several ε."""
    names = ("dgs-figure", "dgs-published", "private-linucb-published", "dgs", "tree-gauss")
    jobs = {f"{name} {eps:g}": (name, {"epsilon": eps}) for name in names for eps in size.epsilons}
    options: dict[str, Any] = {"delta": DELTA, "reward_range": SIMULATION_RANGE}
    options |= {"horizon": size.horizon, "seeds": size.seeds, "record": []}
    frame = _all_of(run(Synthetic(), jobs, progress=progress, cluster=place, **options))
    label = frame["algorithm"].str.rsplit(" ", n=1)
    return frame.assign(algorithm=label.str[0], epsilon=label.str[1].astype(float))


def changed_arms(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """Figure 2(b): arms chosen differently after one reward is raised by 0.5, on the simulation."""
    rounds = size.change_rounds
    change = Change(Synthetic(), rounds, (0, 100, 200), lambda r: r + 0.5, SIMULATION_RANGE)
    return _changes(change, size.change_runs, progress, place)


def changed_arms_lastfm(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """Figure 2(c): the same after one reward is flipped, on LastFM."""
    rounds = size.lastfm_change_rounds
    change = Change(
        LastFM(features="pca"), rounds, (0, 1000, 2000), lambda r: 1.0 - r, LASTFM_RANGE
    )
    return _changes(change, size.lastfm_change_runs, progress, place)


@dataclass(frozen=True)
class Change:
    """World and rewards are fixed (seed 0); each run has its own privacy noise, the same before and after the change."""

    world: Any
    rounds: int
    positions: tuple[int, ...]
    change: Callable[[float], float]
    reward_range: tuple[float, float]


def _changes(change: Change, runs: int, progress: Progress, place: Place) -> pd.DataFrame:
    wanted = [(name, number) for name in ALL for number in range(1 if name == "linucb" else runs)]
    found: dict[int, list[dict[str, Any]]] = {}
    if place.elsewhere:
        from ray import cloudpickle

        # Nodes have dpbandit and not this module: its functions must travel as a whole.
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with closing(
        place.for_python.each(_changed, [Task(change, own, 1) for own in wanted], lambda *_: None)
    ) as results:
        for number, rows in results:
            found[number] = rows
            progress(len(found), len(wanted))
    return pd.DataFrame([row for number in range(len(wanted)) for row in found[number]])


def _changed(change: Change, own: tuple[str, int], tell: Tell) -> list[dict[str, Any]]:
    """How many arms one run of one algorithm chose differently, for each place of the change."""
    (name, number), world = own, change.world
    episode = world.episode(0)
    block = episode.block(change.rounds)
    options = {
        "dim": world.dim,
        "epsilon": EPSILON,
        "delta": DELTA,
        "reward_range": change.reward_range,
    }
    options |= {
        "horizon": change.rounds,
        "public_contexts": episode.public_contexts,
        "seed": number,
    }
    before = _arms(registry.construct(name, options), block, None, change.change)
    rows = []
    for position in change.positions:
        tell(0)
        after = _arms(registry.construct(name, options), block, position, change.change)
        rows.append(
            {
                "algorithm": name,
                "run": number,
                "position": position,
                "changed": int((before != after).sum()),
            }
        )
    return rows


def _arms(bandit: Any, block: Any, position: int | None, change: Callable[[float], float]) -> Any:
    arms = np.empty(len(block.shown), dtype=int)
    for t, shown in enumerate(block.shown):
        contexts = block.pool[shown]
        arm = arms[t] = bandit.select(contexts)
        reward = float(block.rewards[t, arm])
        bandit.update(contexts[arm], change(reward) if t == position else reward)
    return arms


def noise_levels(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """The seventh figure: the noise each calibration adds to θ at a node's end, beside the noise that is required."""
    world = Synthetic()
    episode = world.episode(0)
    options = {
        "dim": world.dim,
        "epsilon": EPSILON,
        "delta": DELTA,
        "reward_range": SIMULATION_RANGE,
    }
    options |= {"horizon": size.horizon, "public_contexts": episode.public_contexts, "seed": 0}
    labels = {
        "dgs-figure": ("dgs-figure", {}),
        "dgs-published": ("dgs-published", {}),
        "required, Laplace": ("dgs", {"noise": "laplace"}),
        "required, Gaussian": ("dgs", {}),
    }
    bandits = {
        label: registry.construct(name, options | own) for label, (name, own) in labels.items()
    }
    leader = registry.construct("linucb", options)
    block = episode.block(size.horizon)
    marks = set(np.unique(np.geomspace(1, size.horizon, 120).astype(int)).tolist())
    rows = []
    for t, shown in enumerate(block.shown, start=1):
        contexts = block.pool[shown]
        arm = leader.select(contexts)
        reward = float(block.rewards[t - 1, arm])
        leader.update(contexts[arm], reward)
        for label, bandit in bandits.items():
            scale = rounds.prepare_one(bandit.learner, bandit.plan, contexts[arm], reward, True)
            if t in marks:
                spread = 1.0 if bandit.noise == "gaussian" else np.sqrt(2)
                rows.append({"calibration": label, "round": t, "noise": scale * spread})
        if t % 500 == 0:
            progress(t, size.horizon)
    return pd.DataFrame(rows)


def assumption(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """Whether contexts are diverse: λ₀ of both worlds, and what Lemma 1 promises against what A_t shows."""
    rows = []
    for label, make in (
        ("simulation", Synthetic),
        ("LastFM, PCA", LastFM),
        ("LastFM, SVD", lambda: LastFM(features="svd")),
    ):
        try:
            world = make()
            episode = world.episode(0)
        except FileNotFoundError:
            continue
        longest, smallest = estimate_bounds(episode.public_contexts)
        horizon = size.horizon
        bandit = registry.construct("linucb", {"dim": world.dim, "ridge": 1.0, "seed": 0})
        gram = np.eye(world.dim)
        block = episode.block(horizon)
        for t, shown in enumerate(block.shown):
            contexts = block.pool[shown]
            arm = bandit.select(contexts)
            bandit.update(contexts[arm], float(block.rewards[t, arm]))
            gram += np.outer(contexts[arm], contexts[arm])
        least = float(np.linalg.eigvalsh(gram)[0])
        rows.append(
            {
                "world": label,
                "longest": longest,
                "smallest_eigenvalue": smallest,
                "rounds": horizon,
                "least_of_gram": least,
                "promised": smallest * horizon / 16,
            }
        )
        progress(len(rows), 3)
    return pd.DataFrame(rows)


def growth(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """Added regret at growing horizons, each with noise scaled for that horizon."""
    horizons = [size.horizon // 8, size.horizon // 4, size.horizon // 2, size.horizon]
    names = ["linucb", "dgs-figure", "dgs-published", "dgs"]
    options: dict[str, Any] = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "reward_range": SIMULATION_RANGE,
        "record": [],
    }
    matches = [
        prepare(Synthetic(), names, horizon=horizon, seeds=size.seeds, **options)
        for horizon in horizons
    ]
    total = sum(match.size for match in matches)
    done, lock = 0, threading.Lock()

    def advance(_: int, rounds: int) -> None:
        nonlocal done
        with lock:
            done += rounds
            progress(done, total)

    found = play_all(matches, place, advance, among=len(matches))
    parts = [
        _all_of(results).assign(horizon=horizon)
        for results, horizon in zip(found, horizons, strict=True)
    ]
    return pd.concat(parts, ignore_index=True)


def open_bandit(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """Replay on real logged clicks: unbiased, and far too few of them to rank policies."""
    rows = []
    names = ("random", "linucb", "tree-gauss", "dgs")
    for campaign in ("all", "men", "women"):
        world = OpenBandit(campaign)
        for name in names:
            options = {
                "dim": world.dim,
                "epsilon": EPSILON,
                "delta": DELTA,
                "reward_range": (0.0, 1.0),
                "horizon": world.rounds,
            }
            found = replay(registry.construct(name, options | {"seed": 0}), world)
            rows.append(
                {
                    "campaign": campaign,
                    "algorithm": name,
                    "logged rounds": found.rounds,
                    "rounds that count": found.matched,
                    "clicks": found.clicks,
                    "click rate": found.ctr,
                    "standard error": found.standard_error,
                }
            )
            progress(len(rows), 3 * len(names))
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Experiment:
    """One table, and the figures drawn from it."""

    name: str
    make: Callable[[Profile, Progress, Place], pd.DataFrame]
    figures: tuple[str, ...]


EXPERIMENTS = (
    Experiment("simulation", simulation, ("1a", "1c")),
    Experiment("lastfm", lastfm, ("1b",)),
    Experiment("privacy-levels", privacy_levels, ("2a",)),
    Experiment("changed-arms", changed_arms, ("2b",)),
    Experiment("changed-arms-lastfm", changed_arms_lastfm, ("2c",)),
    Experiment("noise-levels", noise_levels, ("noise",)),
    Experiment("assumption", assumption, ()),
    Experiment("growth", growth, ()),
    Experiment("open-bandit", open_bandit, ()),
)
FIGURES = ("1a", "1b", "1c", "2a", "2b", "2c", "noise")
