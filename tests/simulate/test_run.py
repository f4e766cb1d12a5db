"""Runs: the same numbers as step by step, as NumPy, on any number of cores, in memory that does not
grow.
"""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.bandit import Bandit
from dpbandit.errors import (
    DpbanditError,
    NormError,
    OptionError,
    PrivacyWarning,
    UnknownAlgorithmError,
)
from dpbandit.simulate import players, run
from dpbandit.spread import threads

OPTIONS = {"epsilon": 2.0, "delta": 1e-5, "reward_range": (-0.5, 1.5)}
CASES = {
    "random": ("random", {}),
    "linucb": ("linucb", {}),
    "private-linucb": ("private-linucb", {}),
    "published": ("private-linucb-published", {}),
    "dgs": ("dgs", {}),
    "dgs ball": ("dgs", {"public_contexts": None}),
    "dgs laplace, unknown horizon": ("dgs", {"noise": "laplace", "horizon": None}),
    "dgs-published": ("dgs-published", {}),
    "dgs-figure": ("dgs-figure", {}),
    "local gaussian": ("local", {"noise": "gaussian"}),
    "tree-gauss pan-private": ("tree-gauss", {"pan_private": True}),
    "tree-gauss unknown horizon": ("tree-gauss", {"horizon": None}),
    "tree-gauss, perturbed": ("tree-gauss", {"context_noise": 0.2}),
    "knorm": ("private-linucb", {"noise": "laplace-l2"}),
    "theory": ("tree-gauss", {"alpha": "theory"}),
}


def small_world():
    return dpb.worlds.Synthetic(arms=50, dim=4, shown=6)


def by_hand(world, name, own, horizon, seed):
    """The same run through the public step-by-step object."""
    episode = world.episode(seed)
    options = (
        {
            "dim": world.dim,
            "horizon": horizon,
            "seed": seed,
            "public_contexts": episode.public_contexts,
        }
        | OPTIONS
        | own
    )
    bandit = dpb.make(name, **options)
    block = episode.block(horizon)
    reward = regret = 0.0
    for t in range(horizon):
        x = block.pool[block.shown[t]]
        arm = bandit.select(x)
        reward += block.rewards[t, arm]
        regret += block.means[t].max() - block.means[t, arm]
        bandit.update(x[arm], block.rewards[t, arm])
    return reward, regret, float(np.linalg.norm(bandit.theta - episode.theta))


def test_the_engine_and_the_step_by_step_objects_agree_bit_for_bit():
    world = small_world()
    results = dpb.run(world, CASES, horizon=300, seeds=[3], **OPTIONS)
    last = results.frame().query("round == 300").set_index("algorithm")
    for label, (name, own) in CASES.items():
        expected = by_hand(world, name, own, 300, 3)
        assert tuple(last.loc[label, ["reward", "regret", "theta_error"]]) == pytest.approx(
            expected, rel=1e-12
        ), label


def test_linucb_chooses_the_arms_of_a_plain_numpy_implementation():
    world = dpb.worlds.Synthetic()
    episode = world.episode(0)
    block = episode.block(2000)
    gram, b, regret = np.eye(10), np.zeros(10), 0.0
    for t in range(2000):
        x = block.pool[block.shown[t]]
        inverse = np.linalg.inv(gram)
        scores = x @ inverse @ b + 0.3 * np.sqrt(np.einsum("ij,jk,ik->i", x, inverse, x))
        if t == 0:  # all scores tie up to rounding: take the engine's lot
            bandit = dpb.make("linucb", dim=10, seed=0)
            arm = bandit.select(x)
        else:
            arm = int(scores.argmax())
        regret += block.means[t].max() - block.means[t, arm]
        gram += np.outer(x[arm], x[arm])
        b += x[arm] * block.rewards[t, arm]
    results = dpb.run(world, ["linucb"], horizon=2000, seeds=[0])
    assert results.summary().loc["linucb", "regret"] == pytest.approx(regret, rel=1e-12)


@pytest.mark.parametrize(
    ("dim", "arms", "rounds"), [(10, 10, 3000), (25, 25, 3000), (100, 1000, 60)]
)
def test_every_arm_is_that_of_a_plain_numpy_implementation_with_fresh_contexts(dim, arms, rounds):
    rng = np.random.default_rng(dim)
    contexts = rng.uniform(size=(rounds, arms, dim))
    contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)
    theta = rng.uniform(size=dim)
    theta /= np.linalg.norm(theta)
    means = contexts @ theta
    # What an arm pays tells it from every other: equal sums of rewards mean equal arms.
    rewards = means + rng.normal(0.0, 0.5, size=(rounds, 1))
    world = dpb.worlds.Arrays(contexts, rewards, means=means)
    found = (
        dpb.run(world, ["linucb"], seeds=[0], workers=1, record=range(1, rounds + 1))
        .frame()["reward"]
        .to_numpy()
    )
    inverse, b, total = np.eye(dim), np.zeros(dim), 0.0
    for t, x in enumerate(contexts):
        scores = x @ (inverse @ b) + 0.3 * np.sqrt(np.einsum("ij,ij->i", x @ inverse, x))
        # In the first round all scores tie up to rounding: take the engine's lot.
        arm = int(scores.argmax()) if t else int(np.abs(rewards[0] - found[0]).argmin())
        total += rewards[t, arm]
        assert found[t] == pytest.approx(total, rel=1e-12), f"round {t + 1}"
        image = inverse @ x[arm]
        inverse -= np.outer(image, image) / (1 + x[arm] @ image)
        b += x[arm] * rewards[t, arm]


def test_results_do_not_depend_on_cores_chunks_or_company(monkeypatch):
    world, names = small_world(), ["linucb", "dgs", "local", "joint"]
    one = dpb.run(world, names, horizon=1500, seeds=3, workers=1, **OPTIONS).frame()
    many = dpb.run(world, names, horizon=1500, seeds=3, workers=8, **OPTIONS).frame()
    assert one.equals(many)
    monkeypatch.setattr(run, "CHUNK", 77)
    alone = dpb.run(world, ["dgs"], horizon=1500, seeds=[2], workers=4, **OPTIONS).frame()
    expected = one[(one.algorithm == "dgs") & (one.seed == 2)].reset_index(drop=True)
    assert alone.equals(expected)


WORLDS = [
    (small_world(), CASES),
    (dpb.worlds.Drifting(arms=60, dim=4, shown=6, period=900), CASES),
    (dpb.worlds.Degenerate(arms=60, dim=4, shown=6, rank=2), CASES),
    (dpb.worlds.Moving("new-arm", rounds=1100), {"forgets": ("linucb", {"forget": 0.99})}),
    (dpb.worlds.Bernoulli(4), {"private-ucb": ("private-ucb", {}), "linucb": ("linucb", {})}),
]


@pytest.mark.filterwarnings("ignore:a context is not among")
@pytest.mark.parametrize(("world", "cases"), WORLDS, ids=[repr(world) for world, _ in WORLDS])
def test_worlds_drawn_in_the_core_give_the_numbers_of_blocks_of_any_size(world, cases, monkeypatch):
    """`play_world` draws rounds itself, `play` is given them; lots have 1024 rounds."""
    given = {"horizon": 1100, "seeds": [5], "record": [1, 77, 1023, 1024, 1025, 1100], **OPTIONS}
    if "dgs-published" in cases and world.episode(5).public_contexts is None:
        cases = {**cases, "dgs-published": ("dgs-published", {"smallest_eigenvalue": 0.05})}
    drawn = dpb.run(world, cases, **given).frame()
    monkeypatch.setattr(players._InEngine, "draws_itself", lambda *_: False)
    for block in (4096, 333):
        monkeypatch.setattr(run, "BLOCK", block)
        assert dpb.run(world, cases, **given).frame().equals(drawn)


def test_the_reference_plays_the_same_run():
    world, names = small_world(), ["linucb", "tree-gauss", "dgs", "anytime", "joint"]
    given = {"horizon": 200, "seeds": [1], "record": [50, 200], **OPTIONS}
    ours = dpb.run(world, names, **given).frame()
    theirs = dpb.run(world, names, backend="reference", **given).frame()
    np.testing.assert_allclose(
        ours[["reward", "regret", "theta_error"]],
        theirs[["reward", "regret", "theta_error"]],
        rtol=1e-9,
    )


def test_what_is_recorded_does_not_depend_on_what_else_is():
    world = small_world()
    every = dpb.run(
        world, ["tree-gauss"], horizon=2100, seeds=1, record=range(1, 2101), **OPTIONS
    ).frame()
    assert (every["round"] == np.arange(1, 2101)).all()
    some = [1, 2, 1024, 1025, 2048, 2049]
    few = dpb.run(world, ["tree-gauss"], horizon=2100, seeds=1, record=some, **OPTIONS).frame()
    expected = every[every["round"].isin([*some, 2100])].reset_index(drop=True)
    assert few.equals(expected)
    assert (np.diff(every["regret"], prepend=0.0) >= 0).all()


def test_the_frame_has_the_promised_columns_and_always_the_last_round():
    results = dpb.run(small_world(), ["linucb"], horizon=123, seeds=2, record=[5, 50])
    frame = results.frame()
    assert list(frame.columns) == ["algorithm", "seed", "round", "reward", "regret", "theta_error"]
    assert sorted(set(frame["round"])) == [5, 50, 123]
    assert results.summary().loc["linucb", "seeds"] == 2
    assert (frame.groupby("seed")["regret"].diff().dropna() >= 0).all()


def test_worlds_from_arrays_play_the_given_rounds_and_leave_the_unknown_nan():
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(40, 3, 2))
    contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)
    rewards = contexts[:, :, 0]
    world = dpb.worlds.Arrays(contexts, rewards)
    frame = dpb.run(
        world, ["linucb", "tree-gauss", "dgs"], seeds=2, epsilon=1.0, delta=1e-3
    ).frame()
    assert frame["round"].max() == 40
    assert frame["regret"].isna().all()
    assert frame["theta_error"].isna().all()
    known = dpb.worlds.Arrays(contexts, rewards, means=rewards, theta=[1.0, 0.0])
    frame = dpb.run(known, ["linucb"], seeds=1).frame()
    assert frame[["regret", "theta_error"]].notna().all().all()
    with pytest.raises(OptionError, match="has 40 rounds"):
        dpb.run(world, ["linucb"], horizon=41)


def test_a_users_own_algorithm_runs_beside_ours():
    class Greedy:
        def __init__(self, *, dim, **_):
            self.gram, self.b = np.eye(dim), np.zeros(dim)

        @property
        def theta(self):
            return np.linalg.solve(self.gram, self.b)

        def select(self, contexts):
            return int(np.argmax(contexts @ self.theta))

        def update(self, context, reward):
            self.gram += np.outer(context, context)
            self.b += context * reward

    dpb.register("greedy-test", Greedy, replace=True)
    results = dpb.run(
        small_world(), ["linucb", "greedy-test", "random"], horizon=400, seeds=2, epsilon=1.0
    )
    summary = results.summary()
    assert summary.loc["greedy-test", "regret"] < summary.loc["random", "regret"]
    assert np.isfinite(summary.loc["greedy-test", "theta_error"])
    with pytest.raises(OptionError, match="exists"):
        dpb.register("linucb", Greedy)
    with pytest.raises(OptionError, match="can be called"):
        dpb.register("nothing", None)


def test_the_methods_of_a_users_subclass_are_called():
    calls = []

    class Counting(Bandit):
        def update(self, contexts, rewards, **kwargs):
            calls.append(float(rewards))
            super().update(contexts, rewards, **kwargs)

    class Blind(Bandit):
        def select(self, contexts, k=None):
            return 0

    def subclass(kind):
        def make(**options):
            known = {name: value for name, value in options.items() if name != "public_contexts"}
            bandit = dpb.make("tree-gauss", **known)
            bandit.__class__ = kind
            return bandit

        return make

    dpb.register("counting-test", subclass(Counting), replace=True)
    dpb.register("blind-test", subclass(Blind), replace=True)
    names = ["tree-gauss", "counting-test", "blind-test"]
    given = {"horizon": 300, "seeds": [3], "public_contexts": None, **OPTIONS}
    frame = dpb.run(small_world(), names, **given).frame().set_index("algorithm")
    assert len(calls) == 300
    columns = ["round", "reward", "regret", "theta_error"]
    plain, counting = frame.loc["tree-gauss", columns], frame.loc["counting-test", columns]
    np.testing.assert_allclose(plain, counting, rtol=1e-12)
    assert (frame.loc["blind-test", "reward"].to_numpy() != plain["reward"].to_numpy()).any()


def test_a_users_algorithm_that_returns_nonsense_is_named():
    class Wrong:
        def __init__(self, **_): ...
        def select(self, contexts):
            return 99

        def update(self, context, reward): ...

    dpb.register("wrong-test", Wrong, replace=True)
    with pytest.raises(OptionError, match="wrong-test selected arm 99 of 6"):
        dpb.run(small_world(), ["wrong-test"], horizon=5, seeds=1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ({"algorithms": ["lincub"]}, UnknownAlgorithmError, "did you mean 'linucb'"),
        ({"algorithms": []}, OptionError, "no algorithm"),
        ({"algorithms": ["linucb", "linucb"]}, OptionError, "repeat"),
        ({"seeds": 0}, OptionError, "seeds"),
        ({"seeds": [1, 1]}, OptionError, "different"),
        ({"horizon": None}, OptionError, "give a horizon"),
        ({"horizon": 0}, OptionError, "horizon"),
        ({"epsilonn": 2}, OptionError, "did you mean 'epsilon'"),
        ({"seed": 3}, OptionError, "run sets 'seed' itself"),
        ({"record": [0]}, OptionError, "record"),
        (
            {"algorithms": [("tree-gauss", {"horizon": 1})]},
            OptionError,
            "run sets 'horizon' itself",
        ),
        ({"max_norm": 0.5}, NormError, "above max_norm"),
    ],
)
def test_bad_calls_are_named(call, error, words):
    given = {"algorithms": ["linucb"], "horizon": 10, "seeds": 1} | call
    with pytest.raises(error, match=words):
        dpb.run(small_world(), given.pop("algorithms"), **given)


def test_worlds_name_what_is_wrong_with_them():
    for bad in (
        lambda: dpb.worlds.Synthetic(arms=5, shown=6),
        lambda: dpb.worlds.Arrays([[1.0]], [1.0]),
        lambda: dpb.worlds.Arrays([[[np.nan]]], [[1.0]]),
    ):
        with pytest.raises(ValueError, match=r"must|needs|NaN"):
            bad()


def test_a_large_delta_is_said_once_for_a_run():
    with pytest.warns(PrivacyWarning) as caught:
        dpb.run(small_world(), ["dgs", "tree-gauss"], horizon=50, seeds=3, epsilon=2.0, delta=0.1)
    assert len([w for w in caught if w.category is PrivacyWarning]) == 1


def test_shown_arms_are_distinct_and_uniform():
    block = dpb.worlds.Synthetic(arms=12, shown=5).episode(1).block(4000)
    assert all(len(set(row)) == 5 for row in block.shown)
    counts = np.bincount(block.shown.ravel(), minlength=12)
    # 12 cells of expectation 1667, sd ≈ 31: 6 sd, false-alarm rate below 1e-7
    assert abs(counts - 20000 / 12).max() < 6 * 31


MILLION = """
import resource, dpbandit as dpb, warnings
warnings.simplefilter("ignore")
names = [name for name, algorithm in dpb.algorithms().items() if not algorithm.one_hot]
def peak(T):
    dpb.run(dpb.worlds.Synthetic(arms=50, dim=3, shown=3), names, horizon=T, seeds=1, epsilon=2.0, delta=1e-7)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small = peak(20_000)
print(peak(1_000_000) - small)
"""


def test_a_million_rounds_of_every_algorithm_need_no_more_memory_than_a_few_thousand():
    grown = int(
        subprocess.run(
            [sys.executable, "-c", MILLION], capture_output=True, text=True, check=True
        ).stdout
    )
    assert grown < 20_000, (
        f"{grown} KiB more"
    )  # a million rounds of anything kept would be at least 8,000 per column


def test_interrupting_a_run_keeps_the_finished_seeds(monkeypatch):
    calls = []
    real_wait = threads.wait

    def interrupted(*args, **kwargs):
        done = real_wait(*args, **kwargs)
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(threads, "wait", interrupted)
    results = dpb.run(small_world(), ["linucb"], horizon=30_000, seeds=40, workers=1)
    assert not results.complete
    assert 0 < len(results.rows) < 40


def test_ctrl_c_is_heard_within_a_long_run():
    """A hundred million rounds take a minute; the signal comes after the first part of them."""
    sent = []

    def interrupt(done, total):
        if not sent:
            sent.append(done)
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    try:
        results = dpb.run(
            small_world(), ["linucb"], horizon=100_000_000, seeds=1, workers=1, progress=interrupt
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert sent == [run.CHUNK]
    assert not results.complete
    assert results.rows == []
    assert time.monotonic() - start < 10


def test_progress_counts_every_round():
    seen = []
    dpb.run(
        small_world(),
        ["linucb", "random"],
        horizon=5000,
        seeds=2,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (20_000, 20_000)
    assert [d for d, _ in seen] == sorted(d for d, _ in seen)


def test_errors_of_this_library_share_one_base():
    assert all(
        issubclass(e, DpbanditError) for e in (NormError, OptionError, UnknownAlgorithmError)
    )


def test_public_contexts_none_means_none_even_where_the_world_knows_them():
    class Known(dpb.worlds.Drifting):  # whose episodes know none
        public_contexts = np.eye(4) * 0.5

    def theta_error(**options):
        results = dpb.run(
            Known(arms=20, dim=4, shown=5),
            ["anytime"],
            horizon=300,
            seeds=1,
            epsilon=4.0,
            delta=1e-4,
            **options,
        )
        return results.frame().theta_error.iloc[-1]

    known, unknown = theta_error(), theta_error(public_contexts=None)
    assert known == theta_error(public_contexts=np.eye(4) * 0.5)
    assert unknown != known
