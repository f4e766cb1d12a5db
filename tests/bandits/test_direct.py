"""The short way from Python to compiled code does what the long way does, to the last bit, or leaves it to the long way."""

import math
import multiprocessing
import threading
import tracemalloc

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import noise
from dpbandit.bandits import direct, linear
from dpbandit.bandits.base import Bandit
from dpbandit.bandits.registry import ALGORITHMS
from dpbandit.errors import BudgetError, DpbanditError, HorizonError, NormError, NotFiniteError, ShapeError

DIM, ARMS = 4, 5
OURS = [name for name, algorithm in ALGORITHMS.items() if not algorithm.registered_by_user]
WITH_QUIET_ROUNDS = ["linucb", "random", "adac-oful", "anytime"]


def make(name, **given):
    if name == "dgs-published":
        given["smallest_eigenvalue"] = 0.1
    return dpb.make(name, **({"dim": DIM, "epsilon": 2.0, "delta": 1e-5, "horizon": 2000, "seed": 3} | given))


def long_way(bandit):
    """The same bandit without a short way."""
    bandit._short_way = lambda: False
    return bandit


def slates(name, rounds, rng):
    if ALGORITHMS[name].one_hot:
        return np.stack([np.eye(DIM)[rng.permutation(DIM)] for _ in range(rounds)])
    contexts = rng.normal(size=(rounds, ARMS, DIM))
    return contexts / np.linalg.norm(contexts, axis=2, keepdims=True) * rng.uniform(0.1, 1.0, size=(rounds, ARMS, 1))


def state(bandit):
    return (
        {name: array.tobytes() for name, array in bandit._arrays().items()},
        bandit.ledger.to_dict(),
        bandit.clipped,
        bandit.over_cap,
    )


def goes_short(bandit):
    return isinstance(bandit._direct, direct.Direct)


@pytest.mark.parametrize("name", OURS)
def test_both_ways_agree_in_every_bit_of_a_long_stream(name):
    rng = np.random.default_rng(1)
    rounds = 600
    contexts, rewards = slates(name, rounds, rng), rng.normal(size=rounds)  # a third of them outside the range
    short, long = make(name), long_way(make(name))
    for t in range(rounds):
        arm = short.select(contexts[t])
        assert arm == long.select(contexts[t])
        assert type(arm) is int
        for bandit in (short, long):
            bandit.update(contexts[t, arm], float(rewards[t]))
        if t % 50 == 0:
            assert state(short) == state(long)
    assert state(short) == state(long)
    assert goes_short(short)
    assert not goes_short(long)


class Scripted:
    """The seeded noise from a source that is not known to be seeded: the ledger is asked, then noise is drawn, as for real."""

    kind = "simulation"

    def __init__(self, seed):
        self._noise = noise.Simulation(seed)

    def release(self, *given, **named):
        return self._noise.release(*given, **named)


@pytest.mark.parametrize("name", OURS)
def test_both_ways_agree_in_every_bit_with_noise_from_any_source(name):
    rng = np.random.default_rng(11)
    rounds = 150
    contexts, rewards = slates(name, rounds, rng), rng.normal(size=rounds)
    short, long = make(name), long_way(make(name))
    short.source, long.source = Scripted(3), Scripted(3)
    for t in range(rounds):
        arm = short.select(contexts[t])
        assert arm == long.select(contexts[t])
        for bandit in (short, long):
            bandit.update(contexts[t, arm], float(rewards[t]))
        assert state(short) == state(long)
    assert goes_short(short)
    assert short.ledger.releases == make_and_learn(name, contexts, rewards).ledger.releases


def make_and_learn(name, contexts, rewards):
    bandit = make(name)
    for slate, reward in zip(contexts, rewards, strict=True):
        bandit.update(slate[bandit.select(slate)], float(reward))
    return bandit


@pytest.mark.parametrize("name", ["tree-gauss", "anytime"])
def test_a_release_that_fails_on_the_short_way_leaves_no_trace(name):
    bandit, x = make(name, **({"first_release": 2} if name == "anytime" else {})), np.full(DIM, 0.3)
    for _ in range(2):
        bandit.select(np.eye(DIM))
        bandit.update(x, 0.5)
    before = state(bandit)

    class Fails(Scripted):
        def release(self, *given, **named):
            raise RuntimeError("no noise today")

    bandit.source = Fails(3)
    with pytest.raises(RuntimeError, match="no noise today"):
        bandit.update(x, 5.0)
    assert state(bandit) == before
    bandit.source = Scripted(3)
    bandit.update(x, 5.0)
    assert (bandit.rounds, bandit.clipped) == (3, 1)


@pytest.mark.parametrize("name", WITH_QUIET_ROUNDS)
@pytest.mark.parametrize("unit", ["reward", ("user", 3)])
def test_batches_agree_with_single_rewards(name, unit):
    rng = np.random.default_rng(2)
    xs, rs = slates(name, 700, rng)[:, 0], rng.normal(size=700)
    users = [f"u{n}" for n in rng.integers(0, 200, size=700)] if unit != "reward" else [None] * 700
    batch, single, long = make(name, unit=unit), make(name, unit=unit), long_way(make(name, unit=unit))
    for start in range(0, 700, 140):
        lot = slice(start, start + 140)
        batch.update(xs[lot], rs[lot], user=users[lot] if unit != "reward" else None)
    for x, r, user in zip(xs, rs, users, strict=True):
        single.update(x, float(r), user=user)
        long.update(x, float(r), user=user)
    assert state(batch) == state(single) == state(long)
    assert batch._user_counts == long._user_counts


def test_rewards_between_two_releases_are_learned_in_one_call():
    bandit, calls = make("anytime", first_release=30), []
    bandit.select(np.eye(DIM))
    learn = bandit._direct.learn
    bandit._direct.learn = lambda *given: calls.append(1) or learn(*given)
    bandit.update(np.full((29, DIM), 0.1), np.zeros(29))
    assert (bandit.rounds, len(calls)) == (29, 1)


WRONG_CONTEXTS = [
    (np.full((3, DIM), 0.1)[:, :-1].copy(), ShapeError),
    (np.zeros((0, DIM)), ShapeError),
    (np.zeros((2, 2, DIM)), ShapeError),
    (np.full(DIM, 0.1), ShapeError),
    (np.array([[0.1, math.nan, 0.0, 0.0]]), NotFiniteError),
    (np.array([[0.1, 0.0, 0.0, 0.0], [math.inf, 0.0, 0.0, 0.0]]), NotFiniteError),
    (np.array([[0.1, 0.0, 0.0, 0.0], [0.9, 0.9, 0.0, 0.0]]), NormError),
    (np.full((2, DIM), 1e300), NormError),
    (np.array([["a"] * DIM]), ShapeError),
]


def complaint(call):
    with pytest.raises(DpbanditError) as caught:
        call()
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("name", ["linucb", "anytime", "joint", "private-ucb", "private-linucb"])
@pytest.mark.parametrize("number", range(len(WRONG_CONTEXTS)))
def test_both_ways_refuse_contexts_in_the_same_words_and_change_nothing(name, number):
    wrong, kind = WRONG_CONTEXTS[number]
    good = slates(name, 1, np.random.default_rng(0))[0]
    said = []
    for bandit in (make(name), long_way(make(name))):
        bandit.update(good[0], 0.1)
        bandit.select(good)
        before = state(bandit)
        said.append(complaint(lambda b=bandit: b.select(wrong)))
        if wrong.ndim == 2 and len(wrong):
            said.append(complaint(lambda b=bandit: b.update(wrong[-1], 0.1)))
        assert state(bandit) == before
    assert said[: len(said) // 2] == said[len(said) // 2 :]
    assert issubclass(said[0][0], kind) or ALGORITHMS[name].one_hot


@pytest.mark.parametrize("name", WITH_QUIET_ROUNDS)
def test_both_ways_refuse_rewards_and_more_rounds_than_the_horizon(name):
    x = np.full(DIM, 0.3)
    said = []
    for bandit in (make(name, horizon=5), long_way(make(name, horizon=5))):
        for wrong in (math.nan, math.inf, np.array([0.1, 0.2]), "much"):
            said.append(complaint(lambda b=bandit, w=wrong: b.update(x, w)))
        for _ in range(5):
            bandit.update(x, 0.5)
        before = state(bandit)
        said.append(complaint(lambda b=bandit: b.update(x, 0.5)))
        assert said[-1][0] is HorizonError
        assert state(bandit) == before
    assert said[:5] == said[5:]


def test_one_hot_contexts_and_l1_limits_are_checked_on_the_short_way_too():
    arms = make("private-ucb")
    arms.select(np.eye(DIM))
    with pytest.raises(ShapeError, match="one-hot"):
        arms.select(np.full((2, DIM), 0.25))
    with pytest.raises(ShapeError, match="one-hot"):
        arms.select(np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    limited = make("private-linucb", public_contexts=0.5 * np.eye(DIM))
    limited.select(0.5 * np.eye(DIM))
    assert goes_short(limited)
    with pytest.raises(NormError, match="L1 norm"):
        limited.select(np.full((1, DIM), 0.4))


@pytest.mark.parametrize("excess", [0.0, 0.5e-9, 1e-9 - 1e-15, 1e-9 + 1e-15, 2e-9])
def test_a_hair_above_the_norm_is_judged_alike(excess):
    contexts = np.eye(DIM) * (1 + excess)
    outcomes = []
    for bandit in (make("linucb"), long_way(make("linucb"))):
        try:
            outcomes.append(bandit.select(contexts))
        except NormError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_arrays_of_any_kind_are_read_alike():
    rng = np.random.default_rng(4)
    given = np.round(slates("linucb", 1, rng)[0] * 64) / 128
    frozen = given.copy()
    frozen.flags.writeable = False
    unaligned = np.frombuffer(b"x" + given.tobytes(), offset=1).reshape(given.shape)
    assert not unaligned.flags.aligned
    kinds = [
        given,
        frozen,
        unaligned,
        np.repeat(given, 2, axis=1)[:, ::2],
        given[::-1].copy()[::-1],
        given.astype(">f8"),
        given.astype(np.float32),
        np.asfortranarray(given),
        np.repeat(given, 2, axis=0)[::2],
        given.tolist(),
    ]
    for name in ("linucb", "tree-gauss", "anytime"):
        arms, thetas = [], []
        for contexts in kinds:
            bandit = make(name)
            bandit.update(given[1], 0.5)
            for _ in range(3):
                arm = bandit.select(contexts)
                bandit.update(contexts[arm], 0.25)
            arms.append(arm)
            thetas.append(bandit.theta.tobytes())
        assert len(set(arms)) == 1
        assert len(set(thetas)) == 1


def test_any_number_of_arms_fits():
    rng = np.random.default_rng(5)
    short, long = make("linucb"), long_way(make("linucb"))
    for arms in (1, 3, 700, 2, 5000, direct.MOST_ROOM // (DIM + 3) + 1, 4):
        contexts = rng.normal(size=(arms, DIM))
        contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
        for _ in range(2):
            arm = short.select(contexts)
            assert arm == long.select(contexts)
            short.update(contexts[arm], 0.5)
            long.update(contexts[arm], 0.5)
    assert state(short) == state(long)


def test_what_is_replaced_is_used_from_then_on():
    contexts = slates("linucb", 1, np.random.default_rng(6))[0]
    bandit = make("linucb", clip_rewards=True)
    for _ in range(3):
        bandit.update(contexts[bandit.select(contexts)], 0.5)
    assert goes_short(bandit)
    bandit.plan = bandit.plan._replace(seat=0)  # plays at random
    assert len({bandit.select(contexts) for _ in range(60)}) == ARMS  # one of five never drawn: probability 8e-6
    bandit._clip = lambda reward: 0.125
    bandit.plan = bandit.plan._replace(seat=1)
    before = bandit.learner.ridge.moments.copy()
    bandit.update(contexts[0], 5.0)
    assert bandit.learner.ridge.moments - before == pytest.approx(0.125 * contexts[0])
    assert bandit.clipped == 0
    del bandit._clip
    bandit.update(contexts[0], 5.0)
    assert bandit.clipped == 1


def test_a_subclass_that_chooses_checks_or_learns_in_its_own_way_is_asked(monkeypatch):
    contexts = np.eye(DIM)

    class Own(linear.LinearBandit):
        def _choose(self, contexts, k):
            return np.full(k, 2)

        def check_contexts(self, contexts):
            checked.append(1)
            return super().check_contexts(contexts)

        def _learn(self, x, reward):
            learned.append(reward)

    checked, learned = [], []
    bandit = make("linucb")
    bandit.select(contexts)
    bandit.update(contexts[0], 0.1)
    bandit.__class__ = Own
    assert bandit.select(contexts) == 2
    bandit.update(contexts[0], 0.25)
    assert (len(checked), learned) == (2, [0.25])
    monkeypatch.setattr(Bandit, "_clip", lambda self, reward: 0.0)
    unclipped = make("anytime")
    unclipped.update(contexts[0], 0.5)
    unclipped.update(contexts[0], 0.5)
    assert not goes_short(unclipped)


@pytest.mark.parametrize("name", ["linucb", "anytime"])
def test_a_forked_copy_ranks_and_refuses_to_learn(name):
    contexts = np.eye(DIM)
    bandit, unused = make(name), make(name)
    for _ in range(3):
        bandit.update(contexts[bandit.select(contexts)], 0.5)
    assert goes_short(bandit)
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()

    def child():
        for copy in (bandit, unused):
            try:
                queue.put(int(copy.select(contexts)))
                copy.update(contexts[0], 0.5)
                queue.put("learned")
            except BudgetError as error:
                queue.put(str(error))

    process = fork.Process(target=child)
    process.start()
    answers = [queue.get(timeout=120) for _ in range(4)]
    process.join(timeout=120)
    assert answers[0] in range(DIM)
    assert "another process" in answers[1]
    assert "another process" in answers[3]
    bandit.update(contexts[0], 0.5)  # the original goes on
    assert bandit.rounds == 4


@pytest.mark.parametrize("name", WITH_QUIET_ROUNDS)
def test_a_saved_bandit_goes_on_in_the_same_bits(name, tmp_path):
    rng = np.random.default_rng(7)
    contexts, rewards = slates(name, 200, rng), rng.uniform(-1, 1, size=200)
    bandit = make(name)
    for t in range(100):
        bandit.update(contexts[t, bandit.select(contexts[t])], float(rewards[t]))
    bandit.save(tmp_path / "b")
    copy = dpb.load(tmp_path / "b")
    for t in range(100, 200):
        arm = bandit.select(contexts[t])
        assert arm == copy.select(contexts[t])
        bandit.update(contexts[t, arm], float(rewards[t]))
        copy.update(contexts[t, arm], float(rewards[t]))
    assert state(bandit) == state(copy)
    assert goes_short(copy)


def test_threads_take_turns_on_the_short_way():
    bandit = make("linucb", horizon=None)
    contexts = slates("linucb", 1, np.random.default_rng(8))[0]
    bandit.update(contexts[0], 0.1)

    def play():
        for _ in range(500):
            bandit.update(contexts[bandit.select(contexts)], 5.0)

    threads = [threading.Thread(target=play) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bandit.rounds == 2001
    assert bandit.learner.clock[1] == 2000
    assert np.trace(bandit.learner.ridge.gram) <= DIM + 2001


@pytest.mark.parametrize("name", ["linucb", "anytime"])
def test_memory_stays_flat_over_a_hundred_thousand_rounds(name):
    bandit = make(name, horizon=None)
    contexts = slates(name, 100, np.random.default_rng(9))

    def play(rounds):
        for t in range(rounds):
            slate = contexts[t % 100]
            bandit.update(slate[bandit.select(slate)], 0.5)

    play(2_000)
    tracemalloc.start()
    try:
        play(1_000)
        before = tracemalloc.get_traced_memory()[0]
        play(100_000)
        assert (
            tracemalloc.get_traced_memory()[0] - before < 64_000
        )  # what a release keeps is bounded: the ledger's lanes
    finally:
        tracemalloc.stop()
