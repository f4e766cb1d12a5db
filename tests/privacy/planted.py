"""Broken mechanisms, one for each kind of bug, and who catches it.

Run as a script with --write, it puts the table into docs/privacy.md; the tests check that the table
there is this one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpbandit as dpb
from dpbandit import learning, state
from dpbandit.auditor import guards
from dpbandit.auditor import warm as warm_checks
from dpbandit.auditor import watch as watching
from dpbandit.auditor.bounds import lower_bound
from dpbandit.auditor.frozen import freeze
from dpbandit.auditor.scores import scores_of_releases
from dpbandit.auditor.verify import as_shipped, worst_of
from dpbandit.auditor.watch import TWICE, Watch, cost_of_releases, joint_cost, record
from dpbandit.bandit import Bandit
from dpbandit.engine import DUE, NO_RELEASE, new_engine
from dpbandit.errors import BudgetError
from dpbandit.evaluate import players as contestants
from dpbandit.evaluate import release as evaluations
from dpbandit.evaluate import replay as replays
from dpbandit.evaluate.release import _mu as mu_of_claim
from dpbandit.evaluate.tally import Range
from dpbandit.evaluate.tally import Tally as EvaluationTally
from dpbandit.files import unpack
from dpbandit.learners import scale as scales
from dpbandit.learners.filter import FilterLearner
from dpbandit.learners.pair import PairLearner
from dpbandit.logs import sums as log_sums
from dpbandit.logs.enter import INDEX
from dpbandit.logs.users import Tally
from dpbandit.model import ReleasedModel
from dpbandit.policies import View
from dpbandit.privacy.accounting import mu_of
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.grid import STEP
from dpbandit.privacy.sources import Pending, Real, Simulation
from dpbandit.privacy.unit import Spread, Taken, rows_of
from dpbandit.reference.random import normals
from dpbandit.release import anytime
from dpbandit.saving import pack
from dpbandit.service.measure import WHOLE
from dpbandit.warmstart import scan as scans
from dpbandit.warmstart import start as warm_starts

DOCS = Path(__file__).parents[2] / "docs" / "privacy.md"
START, END = "<!-- planted bugs: start -->", "<!-- planted bugs: end -->"
EPSILON, DELTA = 2.0, 1e-3


@dataclasses.dataclass(frozen=True)
class Bug:
    """`plant` returns the evidence that the bug was caught, or raises AssertionError."""

    name: str
    caught_by: str
    plant: Callable[[], str]


def make(name: str = "tree-gauss", *, horizon: int | None = 64, dim: int = 1, **given):
    return dpb.make(name, dim=dim, epsilon=EPSILON, delta=DELTA, horizon=horizon, seed=0, **given)


def redesigned(bandit, kind=Bandit, settings=None, **changes):
    """The same bandit with another design, or with other settings of its engine."""
    settings = {**bandit.design.settings, **(settings or {})}
    design = dataclasses.replace(bandit.design, settings=settings, **changes)
    return kind(bandit.name, bandit.options, design)


class Bent:
    """An engine that does everything like the one inside, but for what a subclass changes."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def draft(self):
        made = object.__new__(type(self))
        vars(made).update(vars(self), inner=self.inner.draft())
        return made


def bent(bandit, kind, *given):
    bandit.engine = kind(bandit.engine, *given)
    return bandit


def engine_ratio(bandit, xs) -> float:
    """Exact joint cost of the worst position over what was asked for, by the engine's trace."""
    _, cost, _why = worst_of(freeze(bandit, xs), 1)
    return over_claim(bandit, cost)


def over_claim(bandit, cost: float) -> float:
    """A cost in the noise's currency over the claim: μ of the pair (ε, δ) where that is the claim."""
    if bandit.noise.notion == "gdp":
        claimed = bandit.claim.mu or mu_of(epsilon=bandit.claim.epsilon, delta=bandit.claim.delta)
        return math.sqrt(cost) / claimed
    return cost / EPSILON


def stepwise_cost(factory, xs, positions, *, users=None, between=None) -> tuple[float, str]:
    """The same through the step-by-step object, with raw rewards far outside the range."""
    rewards = np.full(len(xs), -100.0)
    other = rewards.copy()
    other[positions] = 100.0
    one = record(factory, xs, rewards, users=users, between=between)
    two = record(factory, xs, other, users=users, between=between, script=one)
    return joint_cost(one, two)


def stepwise_ratio(factory, xs, positions, **given) -> float:
    cost, _why = stepwise_cost(factory, xs, positions, **given)
    return over_claim(factory(), cost)


def wholes(engine) -> list[list[int]]:
    """The clean sums, in whole numbers of STEP."""
    fields = engine.fields()
    words = zip(fields["sums_high"].tolist(), fields["sums_low"].tolist(), strict=True)
    return [[(h << 64) + low % 2**64 for h, low in zip(*row, strict=True)] for row in words]


def ones(rounds: int, dim: int = 1) -> np.ndarray:
    return np.full((rounds, dim), 1 / math.sqrt(dim))


# ------------------------------------------------------------------------------------------- bugs


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


class CountsNobody(dict):
    def get(self, name, default=None):
        return default


def plant_user_over_cap() -> str:
    users = ["one and the same"] * 8

    def broken():
        bandit = make(unit=("user", 2))
        bandit.counters = CountsNobody()
        return bandit

    ratio = stepwise_ratio(broken, ones(8), list(range(8)), users=users)
    sound = stepwise_ratio(lambda: make(unit=("user", 2)), ones(8), list(range(8)), users=users)
    assert ratio > 1.5
    assert sound <= 1 + 1e-9
    return f"{ratio:.2f} × the claimed μ for a user with 8 rewards; {sound:.2f} × with the cap of 2"


def capped(name: str = "tree-gauss", most: float = 1, **given):
    return make(name, unit=("person", most), reward_range=(0.0, 1.0), **given)


def person_ratio(factory, one, *, between=None) -> float:
    """Of a person who has these rewards in every second round, and in the others instead."""
    one = np.array(one)
    xs, users = ones(len(one)) * np.where(np.arange(len(one)) % 2, -1.0, 1.0)[:, None], "anna"
    told = {"users": [users] * len(one), "between": between}
    first = record(factory, xs, one, **told)
    two = one.reshape(-1, 2)[:, ::-1].ravel()
    cost, _why = joint_cost(first, record(factory, xs, two, script=first, **told))
    return math.sqrt(cost) / factory().claim.mu


CLICKS = [1.0, 0.0] * 8


def forgotten(bandit, t):
    """A save that leaves out what persons' rewards add up to."""
    again = unpack(pack(bandit))
    again.counters = {}
    return again


def plant_person_forgotten_by_a_save() -> str:
    def as_it_ships(bandit, t):
        return unpack(pack(bandit))

    broken = person_ratio(capped, CLICKS, between=forgotten)
    sound = person_ratio(capped, CLICKS, between=as_it_ships)
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ with a save after every round; {sound:.2f} × as it ships"


def plant_person_capped_by_the_day() -> str:
    def at_midnight(bandit, t):
        if t % 4 == 3:
            bandit.counters = {}
        return bandit

    broken, sound = person_ratio(capped, CLICKS, between=at_midnight), person_ratio(capped, CLICKS)
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ after four days; {sound:.2f} × with a cap for ever"


class TellsWhoClicked(Bandit):
    """What is counted of persons is shown like what is counted of users."""

    @property
    def user_counts(self):
        return self.counters


def plant_public_counter() -> str:
    users = ["anna"] * 2

    def cost(kind) -> tuple[float, str]:
        def factory():
            return redesigned(capped(), kind)

        first = record(factory, ones(2), [1.0, 0.0], users=users)
        return joint_cost(first, record(factory, ones(2), [0.0, 0.0], users=users, script=first))

    assert math.isfinite(cost(Bandit)[0])
    broken, why = cost(TellsWhoClicked)
    assert math.isinf(broken)
    return why


def plant_narrow_window_of_a_person() -> str:
    """Noise for the whole range, and residuals in a window: an item is then twice as large."""

    def shipped():
        known = np.array([[1e-3], [-1e-3]])  # so that instruments of 1 and −1 are nearly opposite
        given = {"first_release": 1, "ratio": 1.2, "knee": 4.0, "public_contexts": known}
        return capped("anytime", 1.5, horizon=None, **given)

    def narrow():
        return redesigned(shipped(), settings={"window": 0.25})

    rewards = [0.75, 0.0] * 2 + [0.0, 0.0] * 30
    broken, sound = person_ratio(narrow, rewards), person_ratio(shipped, rewards)
    assert broken > 1.1
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ in a window of half the range; {sound:.2f} × as it ships"


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


class NumPyNoise:
    """What many libraries do: a generator in the process, copied by fork."""

    kind = "real"

    def __init__(self):
        self.rng = np.random.default_rng()

    def release(self, noise, pending, *, scale, shift, index):
        return pending.values + scale * self.rng.normal(size=len(pending.values))


def plant_forked_noise() -> str:
    assert guards.repeats_across_forks(NumPyNoise())
    assert not guards.repeats_across_forks(Real())
    return "two forked children drew the same noise; with the real source they did not"


def plant_seeded_real_claim() -> str:
    bandit = make()
    bandit.claim = dataclasses.replace(bandit.claim, noise="real")
    assert not guards.claim_is_true_to_source(bandit)
    assert guards.claim_is_true_to_source(make())
    return "the claim says real, the source is a simulation"


class ClicksFirst(Bandit):
    """Learns a click when it comes and everything else at a time-out."""

    def update(self, contexts, rewards, *, user=None):
        waiting = self.__dict__.setdefault("waiting", [])
        if rewards > 0:
            super().update(contexts, rewards)
        else:
            waiting.append((contexts, rewards))
        if len(waiting) >= 4:
            for late in waiting:
                super().update(*late)
            waiting.clear()


def plant_learning_order() -> str:
    xs = ones(16) * np.linspace(0.5, 1, 16)[:, None]
    cost, why = stepwise_cost(lambda: redesigned(make(), ClicksFirst), xs, [1])
    assert math.isinf(cost)
    return why


def plant_float_noise() -> str:
    clean, given = np.array([1 / 3, 0.1]), {"scale": 1.0, "index": 1}
    floats, whole = Pending(clean), Pending(clean, [round(v * 2**40) for v in clean])
    assert not guards.on_grid(NumPyNoise().release("gaussian", floats, shift=1.0, **given), 1.0)
    assert guards.on_grid(Real().release("gaussian", floats, shift=1e-3, **given), 1.0)
    assert guards.on_grid(Real().release("gaussian", whole, shift=1.0, **given))
    return "outputs are off the sampler's grid; real ones are on it"


class CleanExport(Bandit):
    """What it exports holds the last clean sum."""

    def model(self):
        found = super().model()
        return ReleasedModel(
            name=found.name,
            rounds=found.round,
            claim=found.claim,
            policy=found.policy,
            view=View(self.engine.pending(), found.view.matrix),
            alpha=found.alpha,
            gate=found.gate,
        )


def plant_clean_export() -> str:
    cost, why = stepwise_cost(lambda: redesigned(make(), CleanExport), ones(8), [3])
    assert math.isinf(cost)
    return why


class CleanChoices(Bandit):
    """Ranks by clean moments, and exports noisy ones."""

    def update(self, contexts, rewards, *, user=None):
        clean = self.__dict__.setdefault("clean", np.zeros(self.dim))
        clean += np.asarray(contexts) * float(np.clip(rewards, *self.options.reward_range))
        super().update(contexts, rewards, user=user)

    def select(self, contexts, k=None):
        order = np.argsort(-(np.asarray(contexts) @ self.clean), kind="stable")
        return int(order[0]) if k is None else order[:k]


def plant_clean_choices() -> str:
    cost, why = as_shipped(lambda: redesigned(make(dim=2), CleanChoices), ones(16, 2))
    assert math.isinf(cost)
    assert math.isfinite(as_shipped(lambda: make(dim=2), ones(16, 2))[0])
    return why


def clean_rate(learner: FilterLearner) -> None:
    """How often people click, and the prior with it, from the clean sum instead of the releases."""
    learner.rate = abs(float(np.sum(learner.sum.fields()["sums_low"].astype(float)))) * STEP


def plant_clean_rate() -> str:
    given = {"rewards": "clicks", "reward_range": (0, 1), "first_release": 2, "ratio": 1.2}
    more = {"backend": "reference", "public_contexts": np.random.default_rng(0).normal(size=(9, 2))}

    def shipped() -> float:
        return as_shipped(lambda: make("anytime", dim=2, **given, **more), ones(16, 2))

    assert math.isfinite(shipped()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "_note_rate", clean_rate)
        cost, why = shipped()
    assert math.isinf(cost)
    return why


def free_cost(one: float, two: float, others: int = 200, knee: float = 20.0) -> tuple[float, str]:
    """A reward of one or two, then others that vary little: exact joint cost over the claim."""
    xs, rewards = ones(others + 1), 0.1 * (-1.0) ** np.arange(others + 1)
    given = {"knee": knee, "first_release": 4, "ratio": 1.1, "backend": "reference"}

    def shipped():
        return make("anytime", horizon=None, public_contexts=ones(1), reward_variance=0.05, **given)

    first, second = rewards.copy(), rewards.copy()
    first[0], second[0] = one, two
    watched = record(shipped, xs, first)
    cost, why = joint_cost(watched, record(shipped, xs, second, script=watched))
    return math.sqrt(cost) / shipped().claim.mu, why


def plant_free_numbers_too_large() -> str:
    """Two numbers that ride along with a residual, at the weight of one that has the room alone."""
    sound = free_cost(100.0, 0.0)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scales, "BY_DISTANCE", math.sqrt(0.75))
        broken = free_cost(100.0, 0.0)[0]
    assert sound <= 1 < broken
    return f"{broken:.3f} × the claimed μ for a reward that moves to its prediction; {sound:.3f} × as it ships"


def clean_window(
    scale: scales.Scale, size: float, half: float, variance: float, seen: Any = scales.Scale.see
) -> Any:
    """The window of later rounds follows the residuals themselves, not what was released of them."""
    scale.widened = max(scale.widened, 20 * size)
    return seen(scale, size, half, variance)


def plant_window_of_clean_residuals() -> str:
    sound = free_cost(100.0, 0.0)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scales.Scale, "see", clean_window)
        broken, why = free_cost(100.0, 0.0)
    assert sound <= 1
    assert math.isinf(broken)
    return why


def plant_window_changed_after_entering() -> str:
    """Residuals are kept as they are, and brought to the window of the day they are released on."""

    def later(learner: FilterLearner, noisy) -> None:
        before = learner.scale_of.window(0.0)
        commit(learner, noisy)
        share = before / learner.scale_of.window(0.0)
        if share > 1.0:
            learner.sum.sums[0] = [round(number * share) for number in learner.sum.sums[0]]

    given = {"others": 400, "knee": 300.0}
    commit, sound = FilterLearner.commit, free_cost(100.0, -100.0, **given)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "commit", later)
        broken = free_cost(100.0, -100.0, **given)[0]
    assert sound <= 1
    assert broken > 1.05
    return f"{broken:.2f} × the claimed μ when the window narrows; {sound:.2f} × as it ships"


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


class Failing(Bent):
    """Fails once after a reward went in."""

    def __init__(self, inner):
        super().__init__(inner)
        self.failed = []

    def prepare(self, x, reward, in_public_set=True):
        scale = self.inner.prepare(x, reward, in_public_set)
        if not self.failed:
            self.failed.append(True)
            raise MemoryError
        return scale


class FailingForGood(Failing):
    """And what went in stays: its draft is itself."""

    def draft(self):
        return self

    def prepare(self, x, reward, in_public_set=True):
        try:
            return super().prepare(x, reward, in_public_set)
        except MemoryError:
            self.inner.load_fields(dict(self.inner.fields()))  # nothing is pending any more
            raise


class Stubborn(Bandit):
    """Tries a failed update again."""

    def update(self, contexts, rewards, *, user=None):
        try:
            super().update(contexts, rewards)
        except MemoryError:
            super().update(contexts, rewards)


def plant_retry() -> str:
    """An update that fails after the reward went in, and is tried again."""

    def ratio(kind) -> float:
        return stepwise_ratio(lambda: bent(redesigned(make(), Stubborn), kind), ones(31), [0])

    broken, sound = ratio(FailingForGood), ratio(Failing)
    assert broken > 1.1
    assert sound <= 1 + 1e-9
    return f"{broken:.2f} × the claimed μ when nothing is put back; {sound:.2f} × as it ships"


def plant_early_release() -> str:
    """Weights 1/j² − 1/j′², where j′ is the planned time of the next release, and one that comes
    before j′."""

    def cost(planned: int, made: int) -> float:
        """What reward 100, released at 100 with weight 100, pays for that release and, from `made`
        on, for all later ones."""
        return 100**2 * ((1 / 100**2 - 1 / planned**2) + 1 / made**2)

    early = cost(105, 101)
    assert cost(105, 105) == pytest.approx(1)
    assert cost(105, 109) < 1
    assert early > 1.07
    # as it ships, a release spends a share of what is left, so its time does not matter
    given = {"first_release": 1, "ratio": 1.01, "knee": 1.0}
    shipped = stepwise_ratio(lambda: make("anytime", **given), ones(64), [0])
    assert shipped <= 1
    return (
        f"{early:.3f} × the budget when planned for 105 and made at 101; {shipped:.3f} × the μ as "
        "it ships"
    )


class Unshrunk(Bent):
    """An anytime release that shows its share and keeps the sum as it was."""

    def commit(self, noisy):
        self.inner.commit(noisy)
        t, fields = self.inner.rounds, self.inner.fields()
        rho = anytime.kept(t, anytime.next_time(t, 1.2), 10.0)
        for at, whole in enumerate(wholes(self.inner)[0]):
            high, low = divmod(round(whole / rho), 2**64)
            fields["sums_high"][0, at] = high
            fields["sums_low"][0, at] = low - 2**64 if low >> 63 else low


def plant_unshrunk_sum() -> str:
    def shipped():
        return make("anytime", first_release=2, ratio=1.2, knee=10.0)

    broken = stepwise_ratio(lambda: bent(shipped(), Unshrunk), ones(64), [0])
    sound = stepwise_ratio(shipped, ones(64), [0])
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ after 64 rounds; {sound:.3f} × as it ships"


def answering(**given):
    more = {
        "first_release": 1,
        "ratio": 1.2,
        "knee": 4.0,
        "backend": "reference",
        "find_scale": False,
    }
    return make("anytime", local=8, **more, **given)


def answers_ratio(prepare) -> float:
    """What the first reward pays where a learner prepares its rounds in this way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "prepare", prepare)
        return stepwise_ratio(answering, ones(24), [0])


PREPARE = FilterLearner.prepare


def answered_and_summed(learner, x, reward):
    found = PREPARE(learner, x, reward)
    if learner.local.has(learner.clock.rounds):
        item = learner.instrument * found.numbers[0]
        learner.sum.sums[0] = learner.sum.sums[0] + np.array([int(one) for one in item], object)
    return found


def plant_answer_that_is_summed() -> str:
    broken, sound = answers_ratio(answered_and_summed), answers_ratio(PREPARE)
    assert broken > 1.2
    assert sound <= 1 + 1e-12
    return f"{broken:.2f} × the claimed μ for a reward that is answered and summed; {sound:.2f} × as it ships"


def plant_answer_drawn_twice() -> str:
    before = {}

    def prepare(learner, x, reward):
        found, t = PREPARE(learner, x, reward), learner.clock.rounds
        if learner.local.has(t):
            before[t] = found.numbers
            return found._replace(numbers=before[t - (t % 2 == 0)])
        return found

    broken = answers_ratio(prepare)
    assert broken > 1.4
    return (
        f"{broken:.2f} × the claimed μ for a reward that is answered in its round and in the next"
    )


def plant_phase_that_a_reward_ends() -> str:
    shipped = FilterLearner.prepare

    def prepare(learner, x, reward):
        found = shipped(learner, x, reward)
        t = learner.clock.rounds
        if learner.local.has(t) and reward > learner.centre:
            learner.local.central_from = t
        return found

    def found() -> tuple[float, str]:
        return stepwise_cost(answering, ones(24), [2])

    assert math.isfinite(found()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "prepare", prepare)
        cost, why = found()
    assert math.isinf(cost)
    return why


def predicted_from_the_clean_sum(learner, x, reward):
    found = PREPARE(learner, x, reward)
    clean = float(np.sum(learner.sum.fields()["sums_low"].astype(float))) * STEP
    learner.estimate[-1] = learner.centre + 0.1 * clean
    return found


def plant_prediction_from_the_clean_sum() -> str:
    def found() -> tuple[float, str]:
        return stepwise_cost(lambda: answering(window=0.25), ones(24), [9])

    assert math.isfinite(found()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "prepare", predicted_from_the_clean_sum)
        cost, why = found()
    assert math.isinf(cost)
    return why


def plant_toeplitz_without_column() -> str:
    """Noise for what a reward moves in its own round, although encoding moves every later one."""
    bandit = redesigned(make("toeplitz", horizon=64), settings={"sensitivity": 1.0})
    ratio = engine_ratio(bandit, ones(64))
    assert ratio > 1.3
    return f"{ratio:.2f} × the claimed μ at 64 rounds"


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


# ------------------------------------------------------------ users whose contexts are spread


def spread_user(most: float = 2):
    """Public contexts so short that instruments are contexts, at norm 1."""
    given = {"first_release": 1, "ratio": 1.1, "knee": 4.0, "dim": 4, "horizon": None}
    given["public_contexts"] = 1e-3 * np.concatenate([np.eye(4), -np.eye(4)])
    return make("anytime", unit=("spread", most), **given)


def spread_ratio(factory=spread_user, xs=None) -> float:
    """Of a user in these contexts, again and again, whose rewards all move the same way."""
    xs = np.tile(np.eye(4), (3, 1)) if xs is None else xs
    xs = np.concatenate([xs, np.eye(4)[np.arange(60) % 4]])
    users = ["anna"] * (len(xs) - 60) + [f"u{t}" for t in range(60)]
    return stepwise_ratio(factory, xs, list(range(len(xs) - 60)), users=users)


def without_number(unit, reward, before, width, bits, instrument):
    """λ_max of the Gram matrix bounds one direction; the user's N rewards are N times that."""
    learned = np.vstack([rows_of(before, len(instrument)), instrument])
    fits = np.linalg.eigvalsh(learned.T @ learned)[-1] <= unit.option[1] ** 2
    return Taken(reward, instrument.tobytes().hex() if fits else "", fits)


def plant_eigenvalue_for_a_group() -> str:
    sound = spread_ratio()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spread, "take", without_number)
        broken = spread_ratio()
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ for a user with twelve rewards; {sound:.2f} × as it ships"


# ------------------------------------------------------------ persons whose contexts are private


def visitor():
    given = {"knee": 4.0, "first_release": 6, "ratio": 1.05, "backend": "reference"}
    return make("anytime-joint", unit=("person", 1), reward_range=(0.0, 1.0), horizon=None, **given)


def visitor_ratio(factory=visitor, turned: int = 1, batch: int = 1) -> float:
    """All of a person's ten visits are others: over the claim.

    In the first ones the context is turned at right angles, and the reward is what was predicted; then
    it is all in one stream and nothing in the other. Fifty others come after them.
    """
    rng = np.random.default_rng(4)
    xs, one = rng.uniform(-1, 1, size=(60, 1)), rng.uniform(0, 1, size=60)
    users = ["anna"] * 10 + [f"u{t}" for t in range(50)]
    xs[:10], one[:10] = 1.0, 1.0
    one[:turned] = 0.5
    others, two = xs.copy(), one.copy()
    others[:turned], two[turned:10] = -1.0, 0.0
    watched = None
    for contexts, rewards in ((xs, one), (others, two)):
        bandit = factory()
        watch = Watch(bandit.source, watched)
        bandit.source = watch
        for first in range(0, 60, batch):
            rows = slice(first, first + batch)
            with contextlib.suppress(KeyboardInterrupt):
                bandit.update(contexts[rows], rewards[rows], user=users[rows])
        before, watched = watched, watch.transcript
    cost, _why = cost_of_releases(before, watched)
    return math.sqrt(cost) / factory().claim.mu


def plant_second_visit_in_the_gram_matrix() -> str:
    sound = visitor_ratio(turned=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PairLearner, "_is_new", lambda learner: True)
        broken = visitor_ratio(turned=5)
    assert broken > 1.5
    assert visitor_ratio() <= 1
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ for a person who lies elsewhere in five visits; {sound:.2f} × as it ships"


def plant_interrupt_that_is_not_charged() -> str:
    """What is counted comes after what is learned, and Ctrl-C between the two."""

    def in_two_steps(bandit, x, reward, user, told):
        learning.learn_with_release(bandit, x, reward, told, state.Counted(user.name, user.before))
        bandit.counters = {**bandit.counters, user.name: user.before}
        raise KeyboardInterrupt

    sound = visitor_ratio()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "learn_of_user", in_two_steps)
        broken = visitor_ratio()
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ after ten interrupts; {sound:.2f} × as it ships"


def plant_room_before_commit() -> str:
    """What is left of a person is read for a whole batch before the first row of it is learned."""

    def factory():
        bandit = visitor()
        bandit.__class__ = ReadsAhead
        return bandit

    class ReadsAhead(Bandit):
        def update(self, contexts, rewards, *, user=None):
            before = self.counters
            for x, reward, name in zip(contexts, rewards, user, strict=True):
                counts = self.counters
                self.counters = {**counts, name: before.get(name, 0)}
                super().update(x, reward, user=name)

    broken, sound = visitor_ratio(factory, batch=10), visitor_ratio(batch=10)
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ for a batch of ten visits; {sound:.2f} × as it ships"


@dataclasses.dataclass
class Evaluated:
    """One evaluation, with all that its noise was drawn for."""

    found: Any
    transcript: watching.Transcript
    played: list[tuple[bool, int]]


def evaluation_log(unit: Any, rows: int = 48) -> tuple[dict[str, Any], dict[str, Any], list[int]]:
    """A log of one arm, so that every row matches, and one in which all rewards of a unit are others.

    Rows weigh 4, 2 or 1; those that change weigh 4, so that they are always learned from.
    """
    kind, most = (unit, 1) if isinstance(unit, str) else unit
    changed = [0] if kind == "reward" else [0, 5, 9, 13][: most if kind == "user" else 4]
    chances = np.tile([0.25, 0.5, 1.0], rows)[:rows]
    chances[changed] = 0.25
    users = [f"u{i}" for i in range(rows)]
    for at in changed:
        users[at] = "somebody"
    log = {"action": np.zeros(rows, dtype=int), "reward": np.zeros(rows), "p": chances}
    other = {**log, "reward": log["reward"].copy(), "who": users}
    other["reward"][changed] = 50.0  # far above the range, so that forgotten clipping shows
    return {**log, "who": users}, other, changed


def evaluated(log, name, *, release, unit="reward", script=None, seed=1, **options) -> Evaluated:
    """An evaluation that is watched; with a script it is told that one's noisy values."""
    learning = Watch(Simulation(seed), script)
    estimate = Watch(Simulation(seed + 77), script)
    estimate.transcript = learning.transcript
    played = []
    players, agree, choose = contestants.players, replays.agree, contestants.Player.choose

    def watched(*given):
        found = players(*given)
        for player in found:
            player.policy.source = learning
        return found

    def chosen(player, contexts):
        arm = choose(player, contexts)
        played.append((arm == log["action"][len(played)], arm))
        return arm

    def agreed(*given, **more):
        terms = agree(*given, **more)
        return dataclasses.replace(terms, source=tuple(estimate for _ in terms.source))

    given = {"items": np.eye(1), "reward_range": (0, 1), "unit": unit, "seed": seed, **options}
    if unit != "reward":
        given["user"] = "who"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contestants, "players", watched)
        patch.setattr(contestants.Player, "choose", chosen)
        patch.setattr(replays, "agree", agreed)
        found = dpb.replay(log, name, propensity="p", clip=4.0, release=release, **given)
    return Evaluated(found, learning.transcript, played)


def evaluation_ratio(name="anytime", *, release=(1.0, 1e-4), unit="reward", **given):
    """The exact joint cost of learning and estimate, over the claim, and why if it is infinite."""
    if name != "random":
        given["epsilon"] = 1.0
    if name in ("anytime", "tree-gauss", "dgs"):
        given["delta"] = 1e-4
    if name == "anytime":
        given |= {"first_release": 3, "knee": 20.0}
    log, changed, _ = evaluation_log(unit)
    one = evaluated(log, name, release=release, unit=unit, **given)
    two = evaluated(changed, name, release=release, unit=unit, script=one.transcript, **given)
    if one.found.to_dict() != two.found.to_dict() or one.played != two.played:
        return math.inf, "what is shown depends on a reward beside its noise"
    costs = {"mu²": 0.0, "epsilon": 0.0}
    if len(one.transcript.releases) != len(two.transcript.releases):
        return math.inf, watching.OTHER_RELEASES
    for mine, theirs in zip(one.transcript.releases, two.transcript.releases, strict=True):
        if not mine.has_noise_of(theirs):
            return math.inf, watching.OTHER_SCALE
        costs[mine.noise.currency] += mine.cost_of(theirs)
    claim = one.found.claim
    if claim.mu is None:
        assert costs["mu²"] == 0
        return costs["epsilon"] / claim.epsilon, "in ε"
    pure = Claim("", "pure", costs["epsilon"], 0.0, None, "proven", "none")
    return math.sqrt(costs["mu²"] + mu_of_claim(pure) ** 2) / claim.mu, "in μ"


def plant_evaluation_of_single_rows() -> str:
    """The noise of an estimate is scaled to one row where a user with three is protected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvaluationTally, "shift", lambda tally, by_user: tally.heaviest)
        broken, _ = evaluation_ratio("random", unit=("user", 3))
    sound, _ = evaluation_ratio("random", unit=("user", 3))
    assert broken > 2.9
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ for a user with three rows; {sound:.2f} × as it ships"


def plant_learning_that_is_not_charged() -> str:
    """An evaluation claims what its estimate costs, and not what its bandit released on the way."""

    def alone(claims, epsilon, delta, mu):
        return joint([], epsilon, delta, mu_of(epsilon=epsilon, delta=delta * 0.99))

    joint = evaluations._joint
    given = {"release": (0.3, 1e-4), "horizon": 64}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluations, "_joint", alone)
        broken, _ = evaluation_ratio("tree-gauss", **given)
    sound, _ = evaluation_ratio("tree-gauss", **given)
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ at (1, 10⁻⁴) for learning and (0.3, 10⁻⁴) for the estimate; {sound:.2f} × as it ships"


def plant_unclipped_evaluation() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Range, "share", lambda given, reward: reward)
        broken, _ = evaluation_ratio("random")
    sound, _ = evaluation_ratio("random")
    assert broken > 40
    assert sound <= 1
    return f"{broken:.0f} × the claimed μ for a reward of 50 in a range up to 1; {sound:.2f} × as it ships"


def _stretches(kind, **change):
    """What a shadow's releases cost a unit all of whose rewards differ, times what was set aside."""
    import stretches

    people = [b"ann"] * 8
    one = stretches.rounds_of([0.0] * 8, kinds=[stretches.FULL] * 8, people=people)
    if "unit" not in change:
        other = [one[0]._replace(reward=1.0), *one[1:]]
    else:
        other = [row._replace(reward=1.0) for row in one]
    config = stretches.config_of(**{"measure_every": 2, **change})
    paid, may, _, _ = stretches.cost(config, one, other, kind)
    return paid / may


def plant_stretch_that_goes_on() -> str:
    from dpbandit.service.measure import Measure

    class Goes(Measure):
        def release(self, kind, source, rounds):
            tally = self.open[kind]
            kept = list(tally.sums)
            super().release(kind, source, rounds)
            self.open[kind] = dataclasses.replace(tally, rounds=0, stretches=0, sums=kept)

    bad, good = _stretches(Goes), _stretches(Measure)
    assert good <= 1 + 1e-12 < bad
    return f"{bad:.2f} × what was set aside for a reward that is in four releases"


def plant_stretches_for_one_reward() -> str:
    from dpbandit.service.measure import Measure

    class One(Measure):
        @classmethod
        def from_text(cls, text):
            measure = super().from_text(text)
            if measure.shift > WHOLE:  # of all of a user's rewards: here of one
                measure.scale *= WHOLE / measure.shift
                measure.shift = float(WHOLE)
            return measure

    bad, good = (_stretches(kind, unit=("user", 4)) for kind in (One, Measure))
    assert good <= 1 + 1e-12 < bad
    return f"{bad:.2f} × what was set aside for a user with 4 rewards; {good:.2f} × as it ships"


def plant_measured_beyond_the_cap() -> str:
    from dpbandit.service import batch
    from dpbandit.service.measure import Measure

    def all_of_them(held, taken, rewards):
        for one, reward in zip(taken, rewards, strict=True):
            if held.measure.learned("holdout", one.by_lot, reward, 0.0, 1.0):
                held.measure.release("holdout", held.recorder.inner, held.bandit.rounds)

    update = Bandit.update

    def told(self, contexts, rewards, *, user=None):
        update(self, contexts, rewards, user=user)
        all_of_them(told.held, told.rows, rewards)

    good = _stretches(Measure, unit=("user", 2))
    opened = batch.LearningBandit.measured
    with pytest.MonkeyPatch.context() as patch:
        learn = batch.learn_batch

        def learn_batch(held, upto, store, *, keep_transcript):
            told.held, told.rows = held, store.batch(1, held.position, upto)[:1]
            return learn(held, min(upto, held.position + 1), store, keep_transcript=keep_transcript)

        patch.setattr(batch.LearningBandit, "measured", lambda *_: None)
        patch.setattr(Bandit, "update", told)
        patch.setattr("stretches.learn_batch", learn_batch)
        bad = _stretches(Measure, unit=("user", 2))
    assert batch.LearningBandit.measured is opened
    assert good <= 1 + 1e-12 < bad
    return (
        f"{bad:.2f} × what was set aside for a user with 8 rewards; {good:.2f} × with the cap of 2"
    )


BUGS = [
    Bug("fresh noise each round", "verify, audit", plant_fresh_noise),
    Bug("L2 sensitivity where L1 is needed (a missing √d)", "verify", plant_l2_for_l1),
    Bug("log₂T levels instead of h = ⌊log₂T⌋ + 1", "verify", plant_log_levels),
    Bug("per-node instead of joint accounting, exact Δ", "verify", plant_per_node),
    Bug("a noise scale that depends on rewards", "verify", plant_reward_scale),
    Bug("a schedule that depends on rewards", "verify", plant_reward_schedule),
    Bug("noise redrawn after load", "verify", plant_redraw_after_load),
    Bug("unclipped rewards", "verify", plant_unclipped),
    Bug("a user over the cap", "verify", plant_user_over_cap),
    Bug("a person whom a save forgets", "verify", plant_person_forgotten_by_a_save),
    Bug("a person's cap for a day, not for ever", "verify", plant_person_capped_by_the_day),
    Bug("what is counted of persons, shown", "verify", plant_public_counter),
    Bug(
        "a narrow window with a person's noise for the whole range",
        "verify",
        plant_narrow_window_of_a_person,
    ),
    Bug(
        "a spread user's λ_max without the number of rewards",
        "verify",
        plant_eigenvalue_for_a_group,
    ),
    Bug(
        "contexts private: a person's second visit in the Gram matrix too",
        "verify",
        plant_second_visit_in_the_gram_matrix,
    ),
    Bug(
        "contexts private: an interrupt that leaves a person's count behind the sums",
        "verify",
        plant_interrupt_that_is_not_charged,
    ),
    Bug(
        "contexts private: what a person has left, read before the last round came true",
        "verify",
        plant_room_before_commit,
    ),
    Bug("a shadow's stretch that goes on after its release", "verify", plant_stretch_that_goes_on),
    Bug("a shadow's noise for one reward of a user", "verify", plant_stretches_for_one_reward),
    Bug("a shadow that counts a user beyond the cap", "verify", plant_measured_beyond_the_cap),
    Bug("running past the horizon", "ledger", plant_horizon_overrun),
    Bug("forked processes sharing noise", "guard", plant_forked_noise),
    Bug("a seeded bandit whose claim says real noise", "guard", plant_seeded_real_claim),
    Bug("clicks learned on arrival, non-clicks at a time-out", "verify", plant_learning_order),
    Bug("float noise added to a clean value", "guard", plant_float_noise),
    Bug("a clean statistic in the exported model", "verify", plant_clean_export),
    Bug("arms picked by clean sums", "verify", plant_clean_choices),
    Bug("a click rate read off the clean sum", "verify", plant_clean_rate),
    Bug(
        "free numbers beside a residual that are too large", "verify", plant_free_numbers_too_large
    ),
    Bug("a window that follows clean residuals", "verify", plant_window_of_clean_residuals),
    Bug(
        "a window that changes after an item entered", "verify", plant_window_changed_after_entering
    ),
    Bug("an accountant that rounds down", "verify", plant_rounded_down),
    Bug("one noise for two releases", "verify", plant_repeated_noise),
    Bug("windows of noise that overlap", "verify", plant_overlapping_noise),
    Bug(
        "noise numbered within an arm's tree, so that arms share it",
        "verify, audit",
        plant_noise_shared_by_arms,
    ),
    Bug("log₂T levels in an arm's tree", "verify", plant_log_levels_of_arms),
    Bug("batches that share a reward", "verify", plant_overlapping_batches),
    Bug("noise drawn once for all batches", "verify", plant_batches_with_one_noise),
    Bug("batches that end after so many clicks", "verify", plant_batches_of_clicks),
    Bug("a failed update tried again counts a reward twice", "verify", plant_retry),
    Bug("a release earlier than its weights were planned for", "verify", plant_early_release),
    Bug("an anytime release that does not shrink what is left", "verify", plant_unshrunk_sum),
    Bug("a reward that is answered and summed as well", "verify", plant_answer_that_is_summed),
    Bug("a reward that is answered twice", "verify", plant_answer_drawn_twice),
    Bug("a local phase that a reward ends", "verify", plant_phase_that_a_reward_ends),
    Bug("a prediction made of the clean sum", "verify", plant_prediction_from_the_clean_sum),
    Bug("encoded sums with the sensitivity of one round", "verify", plant_toeplitz_without_column),
    Bug("a log whose sums are released without noise", "verify", plant_noiseless_log),
    Bug("a log whose rewards are not clipped", "engine", plant_unclipped_log),
    Bug("a log that ignores users' caps", "verify", plant_log_without_cap),
    Bug("a logged reward that is learned online as well", "verify", plant_log_charged_to_nobody),
    Bug(
        "a log whose rows are left out for their rewards",
        "count",
        plant_rows_left_out_by_their_rewards,
    ),
    Bug(
        "an estimate with noise for one row of a user",
        "joint cost",
        plant_evaluation_of_single_rows,
    ),
    Bug(
        "an evaluation that claims the estimate alone",
        "joint cost",
        plant_learning_that_is_not_charged,
    ),
    Bug("an estimate of rewards that are not clipped", "joint cost", plant_unclipped_evaluation),
]


@functools.cache
def evidence(bug: Bug) -> str:
    """That the bug was caught."""
    return bug.plant()


def table() -> str:
    rows = [f"| {bug.name} | {bug.caught_by} | {evidence(bug)} |" for bug in BUGS]
    return "\n".join(["| planted bug | caught by | evidence |", "|---|---|---|", *rows])


def main() -> None:
    text = DOCS.read_text()
    before, rest = text.split(START)
    after = rest.split(END)[1]
    DOCS.write_text(f"{before}{START}\n{table()}\n{END}{after}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        main()
    else:
        print(table())
