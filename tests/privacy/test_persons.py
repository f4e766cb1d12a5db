"""A person as the unit: rewards count until they add up to the cap, and nothing else changes."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbandit as dpb
from dpbandit import files, saving
from dpbandit.auditor import warm
from dpbandit.auditor.watch import fixed_slate, joint_cost, record, shown
from dpbandit.errors import OptionError
from dpbandit.logs.users import Steps, persons_of
from dpbandit.privacy.unit import person
from dpbandit.spread import Place

PUBLIC = ["anytime", "tree-gauss", "private-linucb", "local", "toeplitz", "dgs", "adac-oful",
          "private-ts", "private-ucb", "dp-klucb"]  # fmt: skip
ARMS = ["private-ucb", "dp-klucb"]
BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def make(name="tree-gauss", most=1, **given):
    usual = {"dim": 2, "horizon": 64, "seed": 0, "reward_range": (0.0, 1.0)} | BUDGET
    if name == "anytime":
        usual |= {"first_release": 1, "ratio": 1.05, "knee": 4.0, "horizon": None}
    return dpb.make(name, unit=("person", most), **(usual | given))


def ratio(name, xs, one, two, most=1.0, **given):
    """The exact joint cost of telling two streams of one person apart, over the claim."""
    users = ["anna"] * len(xs)

    def new():
        return make(name, most, **given)

    first = record(new, xs, one, users=users)
    cost, why = joint_cost(first, record(new, xs, two, users=users, script=first))
    assert not why, why
    claim = new().claim
    return math.sqrt(cost) / claim.mu if claim.mu is not None else cost / claim.epsilon


def opposite(rows, name):
    """A context and its reverse, in turns; arms have none, but others."""
    odd = np.arange(rows) % 2
    signs = np.where(odd, -1.0, 1.0)[:, None]
    return np.eye(2)[odd] if name in ARMS else signs * math.sqrt(0.5) * np.ones(2)


# With which a person's two opposite contexts are worst, or share their releases.
WORST = {
    "anytime": {"public_contexts": np.array([[1e-3, 1e-3], [1e-3, -1e-3], [-1e-3, 1e-3]])},
    "dgs": {"ridge": 10.0, "public_contexts": opposite(2, "dgs")},
    "adac-oful": {"determinant_growth": 20.0},
    "dp-klucb": {"first_release": 2},
}


# ------------------------------------------------------------------ what is learned of a person


def test_rewards_count_until_they_add_up_to_the_cap_and_rounds_go_on():
    bandit = make(most=2.5)
    for reward in (1.0, 0.75, 1.0, 1.0, 5.0):
        bandit.update([1.0, 0.0], reward, user="anna")
    bandit.update([1.0, 0.0], -3.0, user="bert")
    assert bandit.counters == {"anna": 5 << 19}  # 2.5, in steps of 2⁻²⁰; bert has nothing
    assert (bandit.rounds, bandit.over_cap) == (6, 0)
    clean = make(most=2.5)
    for number, reward in enumerate((1.0, 0.75, 0.75, 0.0, 0.0, 0.0)):
        clean.update([1.0, 0.0], reward, user=number)
    assert np.array_equal(bandit.theta, clean.theta)


def test_what_is_counted_is_whole_and_a_reward_is_brought_down_to_a_step():
    unit, step = person(1), 2.0**-20
    for reward in (0.3, step, 1.9 * step, 0.999 * step, 1.0, 7.0, -1.0):
        taken = unit.take(reward, 0, 1.0, 20)
        assert taken.reward == taken.counts * step <= max(reward, 0.0)
    assert unit.take(0.7, (1 << 20) - 3, 1.0, 20) == (3 * step, 3, True)


@pytest.mark.parametrize("backend", ["core", "reference"])
def test_a_batch_counts_like_one_row_after_the_other(backend):
    rng = np.random.default_rng(3)
    xs, rewards = rng.normal(size=(40, 2)) / 4, rng.random(40)
    users = [f"u{i}" for i in rng.integers(4, size=40)]
    one, many = make(backend=backend), make(backend=backend)
    many.update(xs, rewards, user=users)
    for x, reward, name in zip(xs, rewards, users, strict=True):
        one.update(x, reward, user=name)
    assert one.counters == many.counters
    assert np.array_equal(one.theta, many.theta)


def test_the_order_of_learning_decides_what_counts_and_a_save_keeps_it(tmp_path):
    bandit = make()
    bandit.update([1.0, 0.0], 0.75, user="anna")
    bandit.save(tmp_path / "b.npz")
    again = dpb.load(tmp_path / "b.npz")
    for each in (bandit, again):
        each.update([0.0, 1.0], 0.75, user="anna")
    assert again.counters == bandit.counters == {"anna": 1 << 20}
    assert np.array_equal(again.theta, bandit.theta)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"reward_range": (-1.0, 1.0)}, "must start at 0"),
        ({"reward_range": (0.0, 2.0)}, "at least"),
        ({"most": 0}, "above 0"),
        ({"most": math.nan}, "above 0"),
        ({"most": 10**400}, "above 0"),
        ({"pan_private": True}, "memory is inspected"),
        ({"name": "joint"}, "contexts are private"),
        ({"name": "anytime", "window": 0.375}, "the whole range"),
    ],
)
def test_what_is_not_proven_is_refused(given, words):
    with pytest.raises(OptionError, match=words):
        make(**given)


# ------------------------------------------------------------------ what it costs


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("most", [1, 3])
def test_all_of_a_persons_rewards_cost_what_is_claimed_and_nearly_that(name, most):
    """Clicks here in one stream and there in the other, on opposite contexts; more than count."""
    rows = 64
    odd = np.arange(rows) % 2 == 1
    xs = opposite(rows, name)
    one, two = np.where(odd, 1.0, 0.0), np.where(odd, 0.0, 1.0)
    found = ratio(name, xs, one, two, most, **WORST.get(name, {}))
    assert found <= 1 + 1e-9
    # Of a tree's levels neighbouring rounds share all but one, and six rounds fewer.
    assert found > (0.85 if most == 1 else 0.75)


@pytest.mark.parametrize("name", ["anytime", "tree-gauss", "private-linucb", "local", "toeplitz"])
def test_many_small_rewards_cost_no_more_although_each_is_rounded(name):
    """Each lies on its own step of the grid: rounding adds up, and is paid for."""
    rows, step = 64, 2.0**-20
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(rows, 2))
    xs /= np.linalg.norm(xs, axis=1, keepdims=True)
    one = np.where(rng.random(rows) < 0.5, step, 0.0)
    found = ratio(name, xs, one, step - one, horizon=rows)
    # 64 steps of the 2²¹ that two streams may be apart by.
    assert 0 < found <= rows * step / 2 * (1 + math.sqrt(2) * 2.0**-19)


def test_a_log_and_what_comes_online_count_together():
    for name in ("anytime", "tree-gauss", "private-linucb", "toeplitz", "adac-oful", "dgs"):
        for most in (1, 2.5):
            given = {"dim": 2, "rows": 16, "horizon": 8, "unit": ("person", most)}
            found = warm.verify_warm_start(name, reward_range=(0.0, 1.0), **given, **BUDGET)
            assert found.holds
            if name != "anytime":  # whose instruments of opposite contexts are not
                assert found.worst.ratio > (0.99 if most == 1 else 0.79)


# ------------------------------------------------------------------ what shows


@pytest.mark.parametrize("name", ["anytime", "tree-gauss", "private-linucb"])
def test_nothing_that_is_public_depends_on_what_is_counted(name):
    """Two bandits that differ in their counters alone look the same, and say the same."""
    one, two = make(name), make(name)
    two.counters = {"anna": 1 << 20}
    slate = fixed_slate(one)
    assert shown(one, slate) == shown(two, slate)
    assert repr(one) == repr(two)
    assert one.user_counts == two.user_counts == {}
    assert one.model().to_record() == two.model().to_record()
    assert one.receipt().keys() == two.receipt().keys()
    for bad in (([9.0, 9.0], 1.0), ([1.0, 0.0], math.nan), ([1.0], 1.0)):
        words = []
        for each in (one, two):
            with pytest.raises(dpb.errors.DpbanditError) as error:
                each.update(*bad, user="anna")
            words.append(str(error.value))
        assert words[0] == words[1]
    assert two.counters == {"anna": 1 << 20}  # what was refused was not counted


def test_the_record_of_a_log_does_not_say_how_many_have_clicked():
    for clicks in (0.0, 1.0):
        xs = pa.FixedSizeListArray.from_arrays(pa.array(np.tile([0.5, 0.1], 6)), 2)
        table = {"context": xs, "reward": [clicks, 0.0] * 3, "who": list("abcabc")}
        log = pa.table(table)
        given = {"unit": ("person", 1), "reward_range": (0, 1), "seed": 0, **BUDGET}
        bandit = dpb.warm_start(log, user="who", **given)
        assert str(bandit.log) == "6 of 6 rows learned from; left out: none"
        again = files.unpack(saving.pack(bandit))
        for each in (bandit, again):
            each.update([0.5, 0.1], 1.0, user="a")
        # "a" has clicked in row 1: what comes online counts for nothing.
        assert list(bandit.counters.values()) == ([] if clicks else [1 << 20])
        assert again.counters == bandit.counters


def test_one_pass_over_a_log_takes_what_updates_would_take():
    rng = np.random.default_rng(5)
    names = rng.integers(30, size=2000).astype(np.uint64)
    rewards = np.where(rng.random(2000) < 0.3, rng.random(2000) * 1.2, 0.0)
    unit, steps = person(1.5), Steps(1.0, 20)
    persons, taken = persons_of(unit, 1.0, 20), []
    assert (persons.steps, persons.cap) == (steps, 3 << 19)
    for start in range(0, 2000, 170):  # in batches
        part = slice(start, start + 170)
        taken += persons.take(names[part], steps.of(rewards[part])).tolist()
    sums: dict[int, int] = {}
    for name, reward, found in zip(names.tolist(), rewards.tolist(), taken, strict=True):
        expected = unit.take(reward, sums.get(name, 0), 1.0, 20)
        sums[name] = sums.get(name, 0) + expected.counts
        assert found == expected.counts
        assert steps.worth(np.array([found]))[0] == expected.reward
    people = persons.people()
    assert {int(h): int(c) for h, c in zip(people.hashes, people.counts, strict=True)} == sums


def test_one_pass_over_a_log_with_private_contexts_takes_first_visits_and_whole_steps_of_the_cap():
    rng = np.random.default_rng(2)
    names = rng.integers(1, 60, 1000).astype(np.uint64)
    rewards = np.where(rng.random(1000) < 0.3, rng.random(1000) * 1.2, 0.0)
    visitors, taken = persons_of(person(1.5).with_contexts(), 1.0, 20), []
    for start in range(0, 1000, 170):
        part = slice(start, start + 170)
        taken += visitors.take(names[part], visitors.steps.of(rewards[part])).tolist()
    left: dict[int, int] = {}
    for name, reward, found in zip(names.tolist(), rewards.tolist(), taken, strict=True):
        learned = min(int(min(reward, 1.0) / 1.5 * 2**20), left.get(name, 1 << 20))
        assert divmod(found, 2) == (learned, name not in left)
        left[name] = left.get(name, 1 << 20) - learned
    for name, rest in left.items():
        assert visitors.people().count_of_hash(name) == 1 + (1 << 20) - rest


class Elsewhere(Place):
    """Tasks that see nothing of this process but what travels, done in another order."""

    elsewhere, cores = True, 2

    def each(self, work, tasks, advance):
        parcels = [pickle.dumps((work, task)) for task in tasks]
        for number in reversed(range(len(parcels))):
            does, task = pickle.loads(parcels[number])
            yield number, pickle.loads(pickle.dumps(does(task.common, task.own, lambda _: None)))


@pytest.mark.parametrize("name", ["anytime", "private-linucb"])
def test_a_cluster_caps_persons_in_the_logs_order_to_the_last_bit(name, tmp_path):
    rng = np.random.default_rng(8)
    given = {"unit": ("person", 1.5), "reward_range": (0.0, 1.0), "seed": 0, **BUDGET}
    for number in range(4):  # parts, which the same people are in
        x = rng.normal(size=(500, 3)) / 4
        x[rng.random(500) < 0.05] *= 40  # too long: left out, and not counted
        rewards = np.where(rng.random(500) < 0.2, rng.random(500), 0.0)
        rewards[::97] = math.nan
        contexts = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 3)
        people = rng.integers(60, size=500)
        table = pa.table({"context": contexts, "reward": rewards, "who": people})
        pq.write_table(table, tmp_path / f"{number}.parquet")

    def start(**more):
        return dpb.warm_start(tmp_path, name, user="who", missing_reward=0.0, **given, **more)

    here, there = start(), start(cluster=Elsewhere())
    assert np.array_equal(here.theta, there.theta)
    assert here.people.hashes.tolist() == there.people.hashes.tolist()
    assert here.people.counts.tolist() == there.people.counts.tolist()
    assert max(here.people.counts) == 3 << 19
    assert here.log == there.log


def test_an_attack_on_a_person_finds_much_of_what_is_claimed_and_no_more():
    given = {"unit": ("person", 1), "reward_range": (0.0, 1.0), "horizon": 4, "dim": 1}
    found = dpb.audit("local", epsilon=1.0, runs=20_000, **given)
    assert found.holds
    assert found.bound.epsilon > 0.6
    cheap = {**given, "unit": ("user", 1)}  # noise for one reward, where two of a person's change
    bandit = dpb.make("local", epsilon=1.0, seed=0, **cheap)
    xs, one, two = np.array([[1.0], [-1.0]]), [1.0, 0.0], [0.0, 1.0]
    first = record(lambda: bandit, xs, one, users=["a", "b"])
    again = dpb.make("local", epsilon=1.0, seed=0, **cheap)
    cost, _why = joint_cost(first, record(lambda: again, xs, two, users=["a", "b"], script=first))
    assert cost == pytest.approx(2.0, rel=1e-6)


def test_a_plan_says_that_it_does_not_know_what_the_cap_leaves_out():
    given = {"dim": 2, "arms": 3, "horizon": 200, "particles": 2, "reward_range": (0.0, 1.0)}
    given |= {"algorithms": ["anytime"], **BUDGET}
    found = dpb.plan(unit=("person", 1), **given)
    assert any("as if nobody exceeded the cap" in note for note in found.notes)
    assert not any("cap" in note for note in dpb.plan(**given).notes)


def test_a_claim_counts_clicks_as_they_are_paid():
    """Of clicks that are worth ½, a total of 1 is two: the claim once said at most one."""
    for top, words in (
        (0.5, "at most 2 of their clicks (or rewards of 1 in total) are learned from"),
        (1.0, "at most 1 of their clicks (or rewards of 1 in total) is learned from"),
    ):
        bandit = dpb.make(
            "anytime", dim=2, epsilon=1.0, delta=1e-6, reward_range=(0, top), rewards="clicks",
            unit=("person", 1), seed=0,
        )  # fmt: skip
        assert words in bandit.claim.unit
        for _ in range(5):
            bandit.update([1.0, 0.0], top, user="ann")
        assert bandit.counters["ann"] * 2.0**-20 * top == 1.0  # in steps of the top: 1/top clicks
