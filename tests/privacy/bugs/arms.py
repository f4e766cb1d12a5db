"""Planted bugs of arms without features: noise that arms share, batches that overlap."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bugs.bent import EPSILON, Bent, bent, engine_ratio, make, redesigned, stepwise_ratio
from bugs.trees import Forgetful, with_source
from dpbandit.auditor.bounds import lower_bound
from dpbandit.auditor.verify import as_shipped
from dpbandit.auditor.watch import TWICE, Watch, joint_cost, record
from dpbandit.codes import DUE, NO_RELEASE
from dpbandit.privacy.grid import STEP
from dpbandit.privacy.sources import Simulation


def arms(horizon: int = 64, **given):
    return make("private-ucb", horizon=horizon, dim=2, **given)


class PerArm(Simulation):
    """The noise of a node numbered within its arm's tree: two arms, by turns, share their noises."""

    def release(self, noise, pending, *, scale, shift, index):
        pull = (index + 1) // 2
        return super().release(noise, pending, scale=scale, shift=shift, index=pull)


def plant_noise_shared_by_arms() -> str:
    xs = np.eye(2)[np.arange(16) % 2]

    def broken(seed=0):
        return with_source(arms(), PerArm(seed))

    assert as_shipped(broken, xs) == (math.inf, TWICE)
    assert as_shipped(arms, xs)[1] == ""
    # The adversary's score is the difference of the two means after one pull each.
    scores = []
    for first in (-1.0, 1.0):
        differences = []
        for seed in range(1_000):
            bandit = broken(seed)
            bandit.source = Watch(bandit.source)
            bandit.update(np.eye(2), [first, 0.0])
            differences.append(bandit.theta[0] - bandit.theta[1])
        scores.append(np.array(differences))
    found = lower_bound(*scores, delta=0.0)
    assert found.epsilon > 2 * EPSILON
    return f"{TWICE}; attacked: ε ≥ {found.epsilon:.1f} where 2 is claimed"


def plant_log_levels_of_arms() -> str:
    few, one_arm = np.full(63, math.log2(1024) / EPSILON), np.eye(2)[np.zeros(1024, dtype=int)]
    ratio = engine_ratio(redesigned(arms(horizon=1024), settings={"multipliers": few}), one_arm)
    assert ratio > 1.09
    assert engine_ratio(arms(horizon=1024), one_arm) <= 1
    return f"{ratio:.2f} × the claimed ε when all pulls are of one arm"


def batches(**given):
    return make("dp-klucb", dim=2, **({"first_release": 4, "ratio": 1.5} | given))


class OneByOne(Bent):
    """Every round goes by `prepare`."""

    def learn(self, x, reward, told=None):
        return DUE

    def learn_many(self, xs, rs, told=None):
        return 0, DUE


class OverlappingBatches(OneByOne):
    """The reward that ends a batch is in the next one too."""

    def prepare(self, x, reward, in_public_set=True):
        fields, arm = self.inner.fields(), int(np.argmax(x))
        scale = self.inner.prepare(x, reward, in_public_set)
        if scale != NO_RELEASE:
            item = round(max(min(reward, 1), -1) / 2 / STEP)
            fields["sums_low"][arm], fields["sums_high"][arm] = item, item >> 63
        return scale


def plant_overlapping_batches() -> str:
    one_arm = np.eye(2)[np.zeros(32, dtype=int)]
    ratio = stepwise_ratio(lambda: bent(batches(), OverlappingBatches), one_arm, [3])
    assert ratio == pytest.approx(2)
    assert stepwise_ratio(batches, one_arm, [3]) <= 1
    return f"{ratio:.2f} × the claimed ε for the reward that two batches share"


def plant_batches_with_one_noise() -> str:
    xs = np.eye(2)[np.arange(32) % 2]
    assert as_shipped(lambda: with_source(batches(), Forgetful(0)), xs) == (math.inf, TWICE)
    assert as_shipped(batches, xs)[1] == ""
    return TWICE


class CountsClicks(OneByOne):
    """A batch ends when it has had so many clicks, not so many pulls."""

    def prepare(self, x, reward, in_public_set=True):
        pulls, arm = self.inner.fields()["pulls"], int(np.argmax(x))
        scale = self.inner.prepare(x, reward, in_public_set)
        if scale == NO_RELEASE and reward <= 0:
            pulls[arm] -= 1
        return scale


def plant_batches_of_clicks() -> str:
    xs = np.eye(2)[np.zeros(64, dtype=int)]

    def cost(factory) -> tuple[float, str]:
        clicks = np.tile([1.0, -1.0], 32)
        first, other = record(factory, xs, clicks), clicks.copy()
        other[0] = -1.0
        return joint_cost(first, record(factory, xs, other, script=first))

    assert math.isfinite(cost(batches)[0])
    broken, why = cost(lambda: bent(batches(), CountsClicks))
    assert math.isinf(broken)
    return why
