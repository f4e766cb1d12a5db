"""Runs through the kernels (compiled by g++ here): what comes back, that it agrees with the CPU
engine, and what is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.algorithms import registry
from dpbandit.algorithms.anytime import PLAIN
from dpbandit.errors import DeviceError, OptionError
from dpbandit.gpu import machines
from dpbandit.gpu.plans import load, save
from dpbandit.gpu.play import instruments_and_prior, pool_and_truths
from dpbandit.gpu.translation import plan_of
from dpbandit.learners.prior import Prior

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="g++ is not installed: nothing compiles the kernels here"
)

SETTING = {"epsilon": 2.0, "delta": 1e-3, "reward_range": (-0.5, 1.5)}


@needs_compiler
def test_regret_in_single_precision_agrees_with_the_cpu_engine():
    """Both means are over independent seeds; a gap of 4 standard errors has probability 6e-5 for
    each of 4 algorithms."""
    names, horizon = ["linucb", "tree-gauss", "dgs", "anytime"], 250
    options = {"horizon": horizon, "record": [horizon], **SETTING}
    given = [*names[:3], ("anytime", PLAIN)]
    gpu = dpb.run(dpb.worlds.Synthetic(), given, seeds=128, device="host", **options).summary()
    cpu = dpb.run(dpb.worlds.Synthetic(), given, seeds=range(1000, 1096), **options).summary()
    for name in names:
        for what in ("regret", "theta_error"):
            gap = gpu.loc[name, what] - cpu.loc[name, what]
            error = np.hypot(gpu.loc[name, f"{what}_se"], cpu.loc[name, f"{what}_se"])
            assert abs(gap) < 4 * error, (name, what)


@needs_compiler
def test_a_seed_gives_the_same_result_whatever_it_runs_beside():
    options = {"horizon": 50, "record": [10], "device": "host", **SETTING}
    some = dpb.run(dpb.worlds.Synthetic(), ["tree-gauss"], seeds=[130, 5], **options).frame()
    more = dpb.run(
        dpb.worlds.Synthetic(), ["linucb", "tree-gauss"], seeds=range(140), **options
    ).frame()
    assert list(some.columns) == list(more.columns)
    assert some[["seed", "round"]].values.tolist() == [[130, 10], [130, 50], [5, 10], [5, 50]]
    for seed in (5, 130):
        mine = some[some.seed == seed].drop(columns="algorithm").reset_index(drop=True)
        theirs = more[(more.seed == seed) & (more.algorithm == "tree-gauss")].drop(
            columns="algorithm"
        )
        assert mine.equals(theirs.reset_index(drop=True))


@needs_compiler
def test_every_slate_has_distinct_arms_and_every_arm_its_share():
    """`random` earns what a mean arm earns: regret per round as the CPU engine's, within 4 standard
    errors (6e-5)."""
    options = {"horizon": 200, "record": [200], **SETTING}
    gpu = dpb.run(
        dpb.worlds.Synthetic(arms=12), ["random"], seeds=128 * 4, device="host", **options
    ).summary()
    cpu = dpb.run(dpb.worlds.Synthetic(arms=12), ["random"], seeds=200, **options).summary()
    # Replications of a group share their twelve arms, so the pools are what is independent here:
    # four of them.
    error = np.hypot(gpu.loc["random", "regret_se"] * np.sqrt(128), cpu.loc["random", "regret_se"])
    assert abs(gpu.loc["random", "regret"] - cpu.loc["random", "regret"]) < 4 * error


def bandit(name, **options):
    pool, _ = pool_and_truths(dpb.worlds.Synthetic(), 0)
    given = {
        "dim": 10,
        "horizon": 1000,
        "public_contexts": pool,
        "epsilon": 2.0,
        "delta": 0.1,
        "seed": 0,
    }
    return registry.construct(name, {**given, "reward_range": (-0.5, 1.5), **options})


def test_instruments_and_priors_are_those_of_the_learner():
    pool, _ = pool_and_truths(dpb.worlds.Synthetic(), 3)
    instruments, prior = instruments_and_prior(pool[None], -0.5, 1.5)
    ours = Prior(10, pool)
    ours.refresh(0.5, 2.0)
    u = ours.whitener.T @ np.append(pool[7] / ours.context_size, 1.0)
    assert instruments[0, 7] == pytest.approx(u / np.linalg.norm(u), abs=1e-12)
    assert prior[0, :66] == pytest.approx(ours.precision[np.tril_indices(11)], rel=1e-9)
    assert prior[0, 66:] == pytest.approx(ours.pull, rel=1e-9)


def test_plans_travel(tmp_path):
    own = {"toeplitz": {}, "anytime": PLAIN, "dgs-figure": {}}
    plans = {name: plan_of(bandit(name, **given), 100) for name, given in own.items()}
    save(tmp_path / "plans.json", plans)
    assert load(tmp_path / "plans.json") == plans


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("private-ts", {}),
        ("joint", {}),
        ("private-ucb", {"dim": 10, "public_contexts": None}),
        ("dp-klucb", {"dim": 10, "public_contexts": None}),
        ("tree-gauss", {"honaker": True}),
        ("tree-gauss", {"horizon": None}),
        ("private-linucb", {"pan_private": True}),
        ("linucb", {"context_noise": 0.1}),
        ("linucb", {"forget": 0.99}),
        ("dgs", {"public_contexts": None}),
        ("anytime", {**PLAIN, "public_contexts": None}),
        ("anytime", {**PLAIN, "empirical_bayes": True}),
        ("anytime", {**PLAIN, "memories": (900,)}),
        ("anytime", {**PLAIN, "life": 900}),
        ("anytime", {**PLAIN, "explore": "neglected"}),
        ("private-linucb", {"noise": "laplace-l2"}),
    ],
)
def test_what_the_kernels_do_not_play_is_refused_with_the_way_out(name, options):
    with pytest.raises(OptionError, match="device='cpu'"):
        plan_of(bandit(name, **options), 1000)


def test_what_is_new_elsewhere_is_refused_here_by_name():
    """A policy, a release, a noise or a choice of a learner that the kernels have not heard of."""
    ours = bandit("tree-gauss")
    for key, value, words in (
        ("policy", "epsilon-greedy", "its policy is 'epsilon-greedy'"),
        ("noise", "logistic", "no 'logistic' noise"),
        ("release", "sparse", "no release 'sparse'"),
        ("site", "elsewhere", "at site 'elsewhere'"),
        ("learner", "forest", "another kind, 'forest'"),
        ("forgetting", 0.99, "its choice 'forgetting'"),
    ):
        changed = bandit("tree-gauss")
        changed.spec = {**ours.spec, key: value}
        with pytest.raises(OptionError, match=words):
            plan_of(changed, 1000)


def test_other_worlds_and_devices_are_refused():
    with pytest.raises(OptionError, match="Synthetic alone"):
        dpb.run(dpb.worlds.Drifting(), ["linucb"], horizon=5, seeds=1, device="host")
    with pytest.raises(OptionError, match="'cpu' or 'cuda'"):
        dpb.run(dpb.worlds.Synthetic(), ["linucb"], horizon=5, seeds=1, device="tpu")
    with pytest.raises(OptionError, match="at most 16 dimensions"):
        dpb.run(
            dpb.worlds.Synthetic(dim=17),
            [("anytime", PLAIN)],
            horizon=5,
            seeds=1,
            device="host",
            **SETTING,
        )


def test_without_cupy_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"pip install 'dpbandit\[gpu\]'"):
        machines.Cuda()


@needs_compiler
def test_the_module_needs_numpy_alone(tmp_path):
    """Where SciPy, OpenDP, the core and the rest cannot be imported, `python -m dpbandit.gpu run`
    still plays."""
    blocker = """
import runpy, sys
for name in ("scipy", "opendp", "pandas", "pyarrow", "typer", "rich", "dpbandit._core"):
    sys.modules[name] = None
sys.argv = ["gpu", "run", "--device", "host", "--seeds", "3", "--horizon", "20"]
runpy.run_module("dpbandit.gpu", run_name="__main__")
"""
    source = str(Path(dpb.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", blocker],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "linucb",
        "tree-gauss",
        "dgs",
        "anytime",
    ]
