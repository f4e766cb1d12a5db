"""Planted bugs of noise, of scales and of trees."""

from __future__ import annotations

import math

import numpy as np

import dpbandit as dpb
from bugs.bent import (
    DELTA,
    EPSILON,
    Bent,
    bent,
    engine_ratio,
    make,
    ones,
    redesigned,
    stepwise_cost,
    stepwise_ratio,
    wholes,
)
from dpbandit.auditor.bounds import lower_bound
from dpbandit.auditor.scores import scores_of_releases
from dpbandit.auditor.verify import as_shipped
from dpbandit.auditor.watch import TWICE
from dpbandit.codes import NO_RELEASE
from dpbandit.engine import new_engine
from dpbandit.errors import BudgetError
from dpbandit.privacy.grid import STEP
from dpbandit.privacy.sources import Pending, Simulation
from dpbandit.reference.random import normals


def plant_fresh_noise() -> str:
    """Every round publishes the whole sum again with new noise, as Algorithm 1 is printed."""
    bandit = make(horizon=1024)
    sd = bandit.release.scale(1)
    scales = sd * np.sqrt([t.bit_count() for t in range(1, 1025)])
    before, after = np.zeros((1024, 1)), np.ones((1024, 1))  # the first reward is in every sum
    ratio = math.sqrt((1 / scales**2).sum()) / bandit.claim.mu
    assert ratio > 4
    scores = scores_of_releases("gaussian", before, after, scales, runs=10_000)
    found = lower_bound(*scores, delta=DELTA)
    assert found.epsilon > 2 * EPSILON
    return f"{ratio:.1f} × the claimed μ; attacked: ε ≥ {found.epsilon:.1f} where 2 is claimed"


def plant_l2_for_l1() -> str:
    dim = 16
    bandit = redesigned(make("private-linucb", dim=dim), settings={"sensitivity": 1.0})
    ratio = engine_ratio(bandit, ones(64, dim))
    assert ratio > 3.9
    return f"{ratio:.2f} × the claimed ε (√d = 4)"


def plant_log_levels() -> str:
    few = np.full(63, math.log2(1024) / EPSILON)
    bandit = redesigned(make("private-linucb", horizon=1024), settings={"multipliers": few})
    ratio = engine_ratio(bandit, ones(1024))
    assert ratio > 1.09
    return f"{ratio:.2f} × the claimed ε (11 levels, paid for 10)"


class PerNode(Bent):
    """Noise on increments of θ̂ with the exact Δ of each node."""

    def __init__(self, inner, per_level):
        super().__init__(inner)
        self.per_level = per_level

    def prepare(self, x, reward, in_public_set=True):
        self.inner.prepare(x, reward, in_public_set)
        return 2.0 * float(np.linalg.norm(self.inner.fields()["inverse"] @ x)) * self.per_level


def per_node(horizon: int, noise: str, levels: float):
    """Every node paid for as if it were alone."""
    given = {"noise": noise, "smallest_eigenvalue": 1.0, "seed": 0}
    bandit = dpb.make("dgs-published", dim=1, epsilon=EPSILON, delta=1e-9, horizon=horizon, **given)
    mu = dpb.budget.mu_of(epsilon=EPSILON, delta=DELTA)
    return bent(bandit, PerNode, levels / EPSILON if noise == "laplace" else math.sqrt(levels) / mu)


def plant_per_node() -> str:
    found = []
    for noise, levels in (("laplace", 10.0), ("laplace", 11.0), ("gaussian", 11.0)):
        cost, _ = stepwise_cost(lambda n=noise, m=levels: per_node(1024, n, m), ones(1024), [0])
        mu = dpb.budget.mu_of(epsilon=EPSILON, delta=DELTA)
        found.append(cost / (EPSILON if noise == "laplace" else mu**2))
    assert np.allclose(found, [2.83, 2.57, 1.27], atol=0.01), found
    return (
        f"true ε {found[0]:.2f} × the claim with log₂T levels, {found[1]:.2f} × with h; "
        f"Gaussian ρ {found[2]:.2f} ×"
    )


class RewardScale(Bent):
    def prepare(self, x, reward, in_public_set=True):
        return self.inner.prepare(x, reward, in_public_set) * (1 + abs(reward - 1))


def plant_reward_scale() -> str:
    cost, why = stepwise_cost(lambda: bent(make(), RewardScale), ones(16), [3])
    assert math.isinf(cost)
    return why


class RewardSchedule(Bent):
    """Publishes when something happened."""

    def prepare(self, x, reward, in_public_set=True):
        scale = self.inner.prepare(x, reward, in_public_set)
        if reward > 0:
            return scale
        self.inner.commit(np.zeros(1))
        return NO_RELEASE


def plant_reward_schedule() -> str:
    cost, why = stepwise_cost(lambda: bent(make(), RewardSchedule), ones(16), [3])
    assert math.isinf(cost)
    return why


def plant_redraw_after_load() -> str:
    def redraw(bandit, t):
        if t == 62:  # a "load" that keeps clean sums and draws the nodes in use again
            for level, (whole,) in enumerate(wholes(bandit.engine)[:6]):
                pending = Pending(np.array([whole * STEP]), [whole])
                scale, index = bandit.release.scale(t), 1000 + level
                bandit.source.release(bandit.noise, pending, scale=scale, shift=1.0, index=index)
        return bandit

    ratio = stepwise_ratio(make, ones(64), [0], between=redraw)
    assert ratio > 1.06
    assert stepwise_ratio(make, ones(64), [0]) <= 1 + 1e-9
    return f"{ratio:.3f} × the claimed μ after one load; exactly 1 without"


def plant_unclipped() -> str:
    ratio = stepwise_ratio(lambda: redesigned(make(), clips=False), ones(64), [0])
    assert ratio > 50
    assert engine_ratio(redesigned(make(), clips=False), ones(64)) > 15  # rewards at -21 and 21
    return f"{ratio:.0f} × the claimed μ for a reward that moves by 200 instead of 2"


def plant_horizon_overrun() -> str:
    bandit = make(horizon=4)
    bandit.engine = new_engine({**bandit.spec, "horizon": 0}, bandit.backend)
    try:
        for _ in range(20):
            bandit.update([1.0], 0.0)
    except BudgetError as error:
        assert bandit.rounds == 7, "the last round that needs no fourth level"
        return str(error)
    raise AssertionError("learned past its horizon")


def plant_rounded_down() -> str:
    bandit = make()
    less = bandit.release.multipliers * (1 - 1e-6)
    ratio = engine_ratio(redesigned(bandit, settings={"multipliers": less}), ones(64))
    assert ratio > 1 + 1e-7
    return f"{ratio:.7f} × the claimed μ"


class Forgetful(Simulation):
    """Forgets to move on: every node gets the noise of the first."""

    def release(self, noise, pending, *, scale, shift, index):
        return super().release(noise, pending, scale=scale, shift=shift, index=1)


class Overlapping(Simulation):
    """Reads a window of one stream of numbers, and moves it on by one number a release."""

    def release(self, noise, pending, *, scale, shift, index):
        width = len(pending.values)
        return pending.values + scale * normals(self.key, 0, index + width)[index:]


def with_source(bandit, source):
    bandit.source = source
    return bandit


def plant_repeated_noise() -> str:
    xs = ones(16, 3)
    sound = as_shipped(lambda: make(dim=3), xs)
    assert sound[1] == ""
    assert as_shipped(lambda: with_source(make(dim=3), Forgetful(0)), xs) == (math.inf, TWICE)
    return TWICE


def plant_overlapping_noise() -> str:
    """No two releases carry the same noise: each has two of three numbers from the one before."""
    found = as_shipped(lambda: with_source(make(dim=3), Overlapping(0)), ones(16, 3))
    assert found == (math.inf, TWICE)
    return TWICE


def plant_toeplitz_without_column() -> str:
    """Noise for what a reward moves in its own round, although encoding moves every later one."""
    bandit = redesigned(make("toeplitz", horizon=64), settings={"sensitivity": 1.0})
    ratio = engine_ratio(bandit, ones(64))
    assert ratio > 1.3
    return f"{ratio:.2f} × the claimed μ at 64 rounds"
