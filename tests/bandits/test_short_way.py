"""The short way to the engine does what the long way does: in every bit, with threads and after forks.

There is one way on the reference. Here it stands in for the core, whose rounds may take the short one.
"""

import contextlib
import multiprocessing
import threading
import types

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import engine
from dpbandit.errors import BudgetError, OptionError, ShapeError
from dpbandit.options import Options
from dpbandit.policies import POLICIES, UCB, Policy
from dpbandit.policies.bounds import Ucb
from dpbandit.reference.engine import Engine

NAMES = [
    "linucb",
    "random",
    "tree-gauss",
    "private-linucb",
    "local",
    "anytime",
    "adac-oful",
    "toeplitz",
    "dgs",
    "joint",
]
X = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])


class Counting(Engine):
    """The reference, with a count of calls."""

    calls = 0

    def learn(self, x, reward, told=None):
        self.calls += 1
        return super().learn(x, reward, told)


@pytest.fixture
def core(monkeypatch):
    found = types.SimpleNamespace(Engine=Counting, arch=lambda: "v2")
    monkeypatch.setattr(engine, "_core", lambda: (found, ""))
    return found


def make(name, **given):
    return dpb.make(
        name, **({"dim": 2, "epsilon": 1.0, "delta": 1e-4, "horizon": 300, "seed": 2} | given)
    )


def play(bandit, rounds, seed=0, convert=lambda x: x):
    rng, arms = np.random.default_rng(seed), []
    for _ in range(rounds):
        x = rng.normal(size=(4, 2))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        arms.append(bandit.select(convert(x)))
        bandit.update(convert(x[arms[-1]]), float(rng.normal()))
    return arms


def state(bandit):
    fields = {name: field.tolist() for name, field in bandit.engine.fields().items()}
    return fields, bandit.ledger.to_dict(), bandit.clipped


@pytest.mark.parametrize("name", NAMES)
def test_both_ways_agree_in_every_bit(name, core):
    short, long = make(name), make(name)
    long.short_way = long._short_select = False
    assert short.backend == "core"
    assert play(short, 120) == play(long, 120)
    assert state(short) == state(long)
    assert short.short_way


def test_a_quiet_round_is_one_call(core):
    bandit = make("linucb")
    bandit.update(X[0], 0.5)  # the first is charged
    bandit.engine.calls = 0
    for t in range(50):
        bandit.update(X[t % 3], 0.5)
    assert bandit.engine.calls == 50


@pytest.mark.parametrize("name", ["linucb", "tree-gauss", "anytime"])
def test_whatever_is_no_array_goes_the_long_way_to_the_same_place(name, core):
    arrays, lists = make(name), make(name)
    assert play(arrays, 60) == play(lists, 60, convert=lambda x: x.tolist())
    assert state(arrays) == state(lists)
    strided = make(name)
    assert play(strided, 60, convert=np.asfortranarray) == play(make(name), 60)
    assert state(strided) == state(arrays)
    read_only = make(name)

    def frozen(x):
        x = x.copy()
        x.flags.writeable = False
        return x

    play(read_only, 60, convert=frozen)
    assert state(read_only) == state(arrays)


def test_linucb_charges_its_first_reward_and_no_other(core):
    bandit = make("linucb")
    assert not bandit.short_way
    with pytest.raises(ShapeError):
        bandit.update([1.0], 0.5)
    with pytest.raises(dpb.errors.NormError):
        bandit.update([3.0, 0.0], 0.5)
    assert bandit.ledger.releases == 0
    assert not bandit.short_way
    bandit.update(X[0], 0.5)
    assert bandit.short_way
    bandit.update(X, [0.1, 0.2, 0.3])
    assert (bandit.ledger.releases, bandit.rounds) == (1, 4)


def test_users_are_counted_on_every_way(core):
    bandit = make("linucb", unit=("user", 1))
    for _ in range(3):
        bandit.update(X[0], 0.5, user="anna")
    assert (bandit.rounds, bandit.over_cap, bandit.short_way) == (1, 2, False)


@pytest.mark.parametrize("name", ["linucb", "anytime", "tree-gauss"])
def test_a_forked_copy_ranks_and_refuses_to_learn(name, core):
    bandit = make(name)
    bandit.update(X[0], 0.5)
    bandit.lock.acquire()  # a thread of the parent that is learning just now
    queue = multiprocessing.get_context("fork").Queue()

    def child():
        try:
            queue.put(int(bandit.select(X)))
            bandit.update(X[0], 0.5)
            queue.put("learned")
        except BudgetError as error:
            queue.put(str(error))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    try:
        assert queue.get(timeout=60) in (0, 1, 2)
        assert "another process" in queue.get(timeout=60)
    finally:
        process.join(timeout=60)
        bandit.lock.release()
    bandit.update(X[0], 0.5)
    assert bandit.rounds == 2


def test_a_release_that_fails_takes_no_quiet_round_of_another_thread_along(core):
    """While an episode's end waits for its noise, quiet rounds of other threads wait too."""
    bandit = make("adac-oful", determinant_growth=100.5, horizon=None)
    waiting, go_on, learned = threading.Event(), threading.Event(), threading.Event()

    class Failing:
        kind = "simulation"

        def release(self, noise, pending, *, scale, shift, index):
            waiting.set()
            go_on.wait(timeout=60)
            raise KeyboardInterrupt

    source, bandit.source = bandit.source, Failing()

    def end_an_episode():
        with contextlib.suppress(KeyboardInterrupt):
            for _ in range(10_000):
                bandit.update(X[0], 0.1)

    def quietly():
        bandit.update(1e-3 * X[1], 0.1)
        learned.set()

    first = threading.Thread(target=end_an_episode)
    first.start()
    assert waiting.wait(timeout=60)
    before = bandit.rounds
    second = threading.Thread(target=quietly)
    second.start()
    assert not learned.wait(timeout=0.2)
    go_on.set()
    first.join(timeout=60)
    second.join(timeout=60)
    assert learned.is_set()
    assert bandit.rounds == before + 1
    bandit.source = source
    assert bandit.short_way


def test_which_engine_runs_is_said(core, monkeypatch):
    assert make("linucb").backend == "core"
    assert make("linucb", backend="reference").backend == "reference"
    assert "backend='reference'" in repr(make("linucb", backend="reference"))
    assert engine.core_status().startswith("the compiled core")
    monkeypatch.setattr(engine, "_core", lambda: (None, "No module named 'dpbandit._core'"))
    assert make("linucb").backend == "reference"
    assert "no compiled core" in engine.core_status()
    with pytest.raises(OptionError, match="there is no compiled core here"):
        make("linucb", backend="core")


class Greedy(Ucb):
    """A user's policy: no bonus at all."""

    name = "greedy-test"
    in_core = False

    def scores(self, view, contexts, alpha, key, decision):
        return contexts @ view.theta


def test_a_policy_that_the_core_does_not_know_runs_on_the_reference_and_everywhere(
    core, monkeypatch, tmp_path
):
    from dataclasses import replace

    monkeypatch.setitem(POLICIES, "greedy-test", Greedy())
    made = make("linucb")
    bandit = dpb.Bandit(
        "greedy", made.options, replace(made.design, policy=POLICIES["greedy-test"])
    )
    assert bandit.backend == "reference"
    assert "on the reference engine (the core has no policy 'greedy-test')" in repr(bandit)
    bandit.update(X[:2], [0.1, 0.2])
    assert bandit.select(X[:2]) == 1
    bandit.export(tmp_path / "model.json")
    assert dpb.load(tmp_path / "model.json").select(X[:2]) == 1
    monkeypatch.delitem(POLICIES, "greedy-test")
    with pytest.raises(dpb.errors.SaveError, match="no policy is called 'greedy-test'"):
        dpb.load(tmp_path / "model.json")
    options = Options(dim=2, backend="core", seed=1)
    with pytest.raises(OptionError, match="the core has no policy 'greedy-test'"):
        dpb.Bandit("greedy", options, bandit.design)


def test_a_policy_without_all_of_its_consequences_cannot_be_made():
    class Half(Policy):
        name = "half"

        def scores(self, view, contexts, alpha, key, decision):
            return contexts @ view.theta

    with pytest.raises(TypeError, match="abstract"):
        Half()
    assert UCB.in_core
