"""On a real Ray cluster of two nodes, started here, of which one is killed: the numbers are those of one machine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbandit as dpb
from dpbandit import spread
from dpbandit.errors import NormError, OptionError
from experiments.leaderboard import grid
from experiments.leaderboard import runner as leaderboard
from experiments.reproduction import runner as reproduction
from experiments.reproduction import setting

ray = pytest.importorskip("ray", reason="the extra 'cluster' is not installed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning"),
]

WORLD = dpb.worlds.Synthetic(arms=50, dim=4, shown=6)
OPTIONS = {"epsilon": 2.0, "delta": 1e-5, "reward_range": (-0.5, 1.5)}


def noting(log, pause=0.0):
    """An algorithm in plain Python that notes in a file where each of its runs begins and ends."""
    driver = os.getpid()

    class Noting:
        def __init__(self, dim, horizon, seed, **_):
            self.theta, self.left, self.seed = np.zeros(dim), horizon, seed
            self.note("begin")

        def note(self, what):
            import dpbandit

            node = "here" if os.getpid() == driver else ray.get_runtime_context().get_node_id()
            with open(log, "a") as file:
                file.write(json.dumps([what, self.seed, node, dpbandit.__file__]) + "\n")

        def select(self, contexts):
            return int(np.argmax(contexts @ self.theta))

        def update(self, context, reward):
            time.sleep(pause)
            self.theta = self.theta + reward * context
            self.left -= 1
            if not self.left:
                self.note("end")

    return Noting


def noted(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_run_whose_node_is_killed_midway_finishes_with_the_numbers_of_one_machine(
    nodes, tmp_path
):
    log, setting = tmp_path / "log", {"horizon": 100, "seeds": 8, **OPTIONS}
    names = ["linucb", "tree-gauss", "noting"]
    dpb.register("noting", noting(str(tmp_path / "elsewhere")))
    expected = dpb.run(WORLD, names, **setting)
    dpb.register("noting", noting(str(log), pause=0.02), replace=True)
    killed, shares, second = [], [], nodes.second.node_id

    def kill_once(done, total):
        shares.append(done / total)
        begun = {seed for what, seed, node, _ in noted(log) if what == "begin" and node == second}
        ended = {seed for what, seed, *_ in noted(log) if what == "end"}
        if not killed and done > total / 4 and begun - ended:
            nodes.kill_second()
            killed.append((done, begun - ended))

    found = dpb.run(WORLD, names, cluster=nodes.address, progress=kill_once, **setting)
    nodes.add_second()  # for the next test
    assert found.complete
    pd.testing.assert_frame_equal(found.frame(), expected.frame(), check_exact=True)
    ((done, lost),) = killed
    assert 0 < shares[0] <= done / (100 * 8 * 3) < 1
    assert shares[-1] == 1
    assert shares == sorted(shares)
    begins = Counter(
        seed for what, seed, node, _ in noted(log) if what == "begin" and node != "here"
    )
    assert set(begins) == set(range(8))
    assert {seed for seed, times in begins.items() if times > 1} == lost, (
        "only what was lost is done again"
    )
    assert {node for _, seed, node, _ in noted(log) if seed in lost} != {second}


def test_an_audit_gives_the_scores_of_one_machine_to_a_client_from_outside(nodes):
    setting = {"epsilon": 1.0, "delta": 0.01, "horizon": 8, "runs": 2_000}
    for name in ("local", "tree-gauss"):
        expected, found = (
            dpb.audit(name, **setting),
            dpb.audit(name, cluster=nodes.client, **setting),
        )
        assert np.array_equal(found.scores0, expected.scores0)
        assert np.array_equal(found.scores1, expected.scores1)
        assert found.to_dict() == expected.to_dict()
    assert not ray.is_initialized(), "a connection made for a call ends with it"


def test_a_real_audit_and_one_of_a_stranger_run_on_the_cluster(nodes, tmp_path):
    with spread.over(nodes.address) as place:
        real = dpb.audit("local", epsilon=1.0, horizon=4, runs=200, real=True, cluster=place)
        assert real.noise == "real"
        assert len(real.scores0) == len(real.scores1) == 200
        dpb.register("noting", noting(str(tmp_path / "log")))
        setting = {"horizon": 4, "runs": 200}
        assert np.array_equal(
            dpb.audit("noting", cluster=place, **setting).scores1,
            dpb.audit("noting", **setting).scores1,
        )
    assert {node for what, _, node, _ in noted(tmp_path / "log") if what == "end"} > {"here"}


def test_the_leaderboard_and_the_reproduction_are_those_of_one_machine(
    nodes, tmp_path, monkeypatch
):
    tiny = grid.Profile("tiny", {60: 2, 120: 2}, {60: 2, 120: 2}, (grid.Budget(2.0, 1e-5),))
    small = replace(
        setting.PAPER, name="tiny", horizon=160, seeds=2, change_rounds=30, change_runs=1
    )
    monkeypatch.setitem(setting.PROFILES, "tiny", small)
    lines = {"worlds": ["synthetic"], "algorithms": ["tree-gauss"]}
    with spread.over(nodes.address) as place:
        boards = [
            leaderboard.play(tmp_path / f, tiny, cluster=c, **lines)
            for f, c in (("a", None), ("b", place))
        ]
        for folder, where in (("a", None), ("b", place)):
            reproduction.reproduce(
                tmp_path / folder, size="tiny", figures=["1a", "2b"], cluster=where
            )
    assert boards[1].complete
    pd.testing.assert_frame_equal(boards[0].rows, boards[1].rows, check_exact=True)
    for name in ("simulation", "changed-arms"):
        one, two = (pd.read_parquet(tmp_path / f / "tables" / f"{name}.parquet") for f in "ab")
        pd.testing.assert_frame_equal(one, two, check_exact=True)


def test_ctrl_c_keeps_finished_seeds_and_the_cluster_goes_on(nodes, tmp_path):
    dpb.register("noting", noting(str(tmp_path / "log"), pause=0.02))

    def interrupt(done, total):
        if done > total / 4:
            raise KeyboardInterrupt

    with spread.over(nodes.address) as place:
        found = dpb.run(WORLD, ["noting"], horizon=50, seeds=8, cluster=place, progress=interrupt)
        assert not found.complete
        assert 1 <= len(found.rows) < 8
        again = dpb.run(WORLD, ["noting"], horizon=50, seeds=2, cluster=place)
    pd.testing.assert_frame_equal(
        again.frame(), dpb.run(WORLD, ["noting"], horizon=50, seeds=2).frame()
    )


def test_errors_on_a_node_are_those_of_one_machine(nodes):
    contexts = np.full((3, 2, 2), 0.1)
    contexts[2] = 7.0  # too long, and not seen before it is played
    world = dpb.worlds.Arrays(contexts, np.zeros((3, 2)))

    class Lost:
        def __init__(self, **_):
            pass

        def select(self, contexts):
            return 99

        def update(self, context, reward):
            pass

    dpb.register("lost", Lost)
    with spread.over(nodes.address) as place:
        for where in (None, place):
            with pytest.raises(NormError, match="norm"):
                dpb.run(world, ["tree-gauss"], seeds=2, cluster=where, **OPTIONS)
            with pytest.raises(OptionError, match="lost selected arm 99 of 6"):
                dpb.run(WORLD, ["lost"], horizon=3, seeds=2, cluster=where)


def test_dpbandit_is_sent_along_where_it_is_another_one(nodes, tmp_path, monkeypatch):
    from dpbandit.spread import cluster

    monkeypatch.setattr(cluster.Cluster, "_needs_code", lambda self: True)
    dpb.register("noting", noting(str(tmp_path / "log")))
    dpb.run(WORLD, ["noting"], horizon=3, seeds=2, cluster=nodes.address)
    files = {file for what, _, node, file in noted(tmp_path / "log") if node != "here"}
    assert files
    assert dpb.__file__ not in files


def dpbandit(*arguments, **kwargs):
    return subprocess.Popen(
        [sys.executable, "-m", "dpbandit.cli", *arguments],
        text=True,
        stdout=-1,
        stderr=-1,
        **kwargs,
    )


def test_the_command_line_joins_a_cluster(nodes):
    words = ["run", "linucb", "--horizon", "200", "--seeds", "2", "--json"]
    (one, _), (two, said) = (
        dpbandit(*words, *more).communicate() for more in ([], ["--cluster", nodes.client])
    )
    assert json.loads(two) == json.loads(one), said


INTERRUPTED = """
import dpbandit as dpb

found = dpb.run(
    dpb.worlds.Synthetic(), ["linucb"], horizon=20_000, seeds=100_000, cluster="local", workers=1,
    progress=lambda done, total: print(done // 20_000, flush=True) if done >= 20_000 else None,
)
print("complete" if found.complete else "interrupted", len(found.rows))
"""


def test_ctrl_c_at_a_terminal_ends_a_local_cluster_and_leaves_what_is_finished():
    running = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], text=True, stdout=-1, stderr=-1, start_new_session=True
    )
    assert int(running.stdout.readline()) > 0
    os.killpg(running.pid, signal.SIGINT)  # a terminal sends it to all processes in front
    shown, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    word, seeds = shown.splitlines()[-1].split()
    assert word == "interrupted"
    assert int(seeds) >= 1
