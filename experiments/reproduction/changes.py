"""Figures 2(b) and 2(c): how many arms are chosen differently after one reward is changed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpbandit.algorithms import registry
from dpbandit.simulate.players import arms_played
from dpbandit.spread import Place, Task, Tell
from dpbandit.worlds import LastFM, Synthetic
from experiments.reproduction.setting import (
    ALL,
    DELTA,
    EPSILON,
    LASTFM_RANGE,
    SIMULATION_RANGE,
    Profile,
    Progress,
)

Vector = NDArray[np.float64]


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
    """World and rewards are fixed (seed 0); each run has its own privacy noise, the same before and
    after the change.
    """

    world: Any
    rounds: int
    positions: tuple[int, ...]
    change: Callable[[Vector], Vector]  # of a round's rewards
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
    before = arms_played(registry.construct(name, options), episode, block)
    rows = []
    for position in change.positions:
        tell(0)
        # Only the reward of the arm that is played is learned, so all of the round's may change.
        rewards = block.rewards.copy()
        if position < len(rewards):  # a short run ends before some of the changes
            rewards[position] = change.change(rewards[position])
        changed = block._replace(rewards=rewards)
        after = arms_played(registry.construct(name, options), episode, changed)
        rows.append(
            {
                "algorithm": name,
                "run": number,
                "position": position,
                "changed": int((before != after).sum()),
            }
        )
    return rows
