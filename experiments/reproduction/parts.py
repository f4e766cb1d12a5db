"""The experiments behind the paper's figures, as tables. Each is a function of a profile alone, and
cheap to repeat.

Calibrations: the figures' own (`dgs-figure`, `private-linucb-published`), the constants the paper
prints (`dgs-published`), and the proven ones (`dgs`, `tree-gauss`, `local`, `private-linucb`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpbandit.algorithms import registry
from dpbandit.errors import OptionError
from dpbandit.privacy.sensitivity import estimate_bounds
from dpbandit.reference.random import START
from dpbandit.simulate.players import arms_played
from dpbandit.simulate.results import Results
from dpbandit.simulate.run import play_all, prepare, run
from dpbandit.spread import Place
from dpbandit.worlds import LastFM, OpenBandit, Synthetic, replay
from experiments.reproduction.changes import changed_arms, changed_arms_lastfm
from experiments.reproduction.setting import (
    ALL,
    DELTA,
    EPSILON,
    LASTFM_RANGE,
    SIMULATION_RANGE,
    Profile,
    Progress,
)


def _all_of(results: Results) -> pd.DataFrame:
    """The table of a run that was played to the end: part of one would be taken for all of it the
    next time.
    """
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
    """Figure 1(b): reward over random play's, on LastFM with one shared model, PCA features."""
    names = [*ALL, "random"]
    options: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "reward_range": LASTFM_RANGE}
    horizon, seeds, world = size.lastfm_horizon, size.lastfm_seeds, LastFM(features="pca")
    frame = _all_of(
        run(world, names, horizon=horizon, seeds=seeds, progress=progress, cluster=place, **options)
    )
    # Random play's own reward is noisy early on; its expectation is known without running it: one
    # hit in 25.
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


def noise_levels(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """The seventh figure: the noise each calibration adds to θ at a node's end, beside the noise
    that is required.
    """
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
    # All learn what LinUCB plays.
    block = episode.block(size.horizon)
    arms = arms_played(registry.construct("linucb", options), episode, block)
    every = np.arange(size.horizon)
    xs, rs = block.pool[block.shown[every, arms]], block.rewards[every, arms]
    marks = np.unique(np.geomspace(1, size.horizon, 120).astype(int))
    rows = []
    for number, (label, (name, own)) in enumerate(labels.items(), start=1):
        bandit = registry.construct(name, options | own)
        keys = {"noise_key": bandit.source.key, "start_key": bandit.keys[START]}
        _, _, scales = bandit.engine.trace(xs, rs, bandit.in_public_set(xs), **keys)
        spread = bandit.noise.standard_deviation(bandit.dim)
        rows += [
            {"calibration": label, "round": int(t), "noise": float(scales[t - 1] * spread)}
            for t in marks
        ]
        progress(number, len(labels))
    return pd.DataFrame(rows)


def assumption(size: Profile, progress: Progress, place: Place) -> pd.DataFrame:
    """Whether contexts are diverse: λ₀ of both worlds, and what Lemma 1 promises against what A_t
    shows.
    """
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
        if episode.public_contexts is None:
            raise OptionError(f"{label} has no contexts that are known before the first round")
        longest, smallest = estimate_bounds(episode.public_contexts)
        horizon = size.horizon
        bandit = registry.construct("linucb", {"dim": world.dim, "ridge": 1.0, "seed": 0})
        block = episode.block(horizon)
        arms = arms_played(bandit, episode, block)
        played = block.pool[block.shown[np.arange(horizon), arms]]
        least = float(np.linalg.eigvalsh(np.eye(world.dim) + played.T @ played)[0])
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
