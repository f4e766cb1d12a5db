"""Planted bugs of logs from which bandits start."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpbandit as dpb
from bugs.bent import DELTA, EPSILON, make, ones, redesigned
from dpbandit.auditor import warm as warm_checks
from dpbandit.auditor.watch import Watch
from dpbandit.logs import sums as log_sums
from dpbandit.logs.enter import INDEX
from dpbandit.logs.users import Tally
from dpbandit.warmstart import scan as scans
from dpbandit.warmstart import start as warm_starts


def warm_cost(bend=lambda bandit: bandit, watch=Watch) -> float:
    """Exact joint cost of a logged reward, over the claimed μ, for a bandit started from a log that
    was bent, or watched by another."""
    changed, users = warm_checks.neighbours(16, 8, 0)[warm_checks.LOGGED]
    stream = warm_checks.Stream(ones(24), np.zeros(24), users, 16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_checks, "Watch", watch)
        cost, _why = warm_checks.cost(lambda: bend(make(horizon=8)), stream, changed)
    return math.sqrt(cost) / make(horizon=8).claim.mu


class NoiselessLog(Watch):
    """The log's sums go into the model as they are."""

    def release(self, noise, pending, *, scale, shift, index):
        scale = 0.0 if index == INDEX else scale
        return super().release(noise, pending, scale=scale, shift=shift, index=index)


def plant_noiseless_log() -> str:
    broken, sound = warm_cost(watch=NoiselessLog), warm_cost()
    assert math.isinf(broken)
    assert sound <= 1
    return f"a value is released without noise; {sound:.3f} × the claimed μ as it ships"


def plant_unclipped_log() -> str:
    with pytest.raises(ValueError, match="clipped") as refused:
        warm_cost(lambda bandit: redesigned(bandit, clips=False))
    return f"it is refused: {refused.value}"


class Careless(Tally):
    """Users' rewards in the log are not counted: neither there, nor against what is left online."""

    def admit(self, names, status, *, over):
        pass


def plant_log_without_cap() -> str:
    users = ["target"] * 8 + [f"u{i}" for i in range(16)]
    crowded = warm_checks.Stream(ones(24), np.zeros(24), users, 16)
    mu = make(horizon=8).claim.mu

    def ratio() -> float:
        cost, _ = warm_checks.cost(lambda: make(horizon=8, unit=("user", 2)), crowded, [*range(8)])
        return math.sqrt(cost) / mu

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_starts, "Tally", Careless)
        over = ratio()
    kept = ratio()
    assert kept <= 1
    assert over > 3.9
    return (
        f"{over:.2f} × the claimed μ for a user with 8 logged rewards; {kept:.2f} × with the cap "
        "of 2"
    )


def plant_log_charged_to_nobody() -> str:
    """The log's rewards are learned online once more: the ledger cannot know, the cost does."""
    once = warm_checks.Stream(ones(24), np.zeros(24), [f"u{i}" for i in range(24)], 16)
    # One person's reward, in the log and online.
    cost, _ = warm_checks.cost(lambda: make(horizon=8), once, [3, 16])
    ratio = math.sqrt(cost) / make(horizon=8).claim.mu
    assert ratio > 1.4
    return f"{ratio:.2f} × the claimed μ for a reward that is in the log and comes online again"


def plant_rows_left_out_by_their_rewards() -> str:
    """A row whose reward is not a number is left out: A and the counts say so to everybody."""
    own = scans.inspect

    def public(reward) -> tuple[str, Any]:
        def careless(contexts, status, recipe):
            own(contexts, status, recipe)
            if left_out and not math.isfinite(reward):
                status[1] = log_sums.NO_REWARD

        table = pa.table({"x": [[0.5]] * 4, "reward": [1.0, reward, 1.0, 1.0]})
        given = {"epsilon": EPSILON, "delta": DELTA, "horizon": 8, "seed": 0}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scans, "inspect", careless)
            bandit = dpb.warm_start(table, "tree-gauss", context="x", **given)
        return str(bandit.log), bandit.model().view.matrix.tolist()

    left_out = False
    assert public(math.nan) == public(0.0)
    left_out = True
    assert public(math.nan)[1] != public(0.0)[1]
    left, kept = (public(reward)[0].split(" rows")[0] for reward in (math.nan, 0.0))
    return (
        f"public state depends on a reward: {left} rows learned from, or {kept}; equal as it ships"
    )
