"""Ctrl-C in the middle of the work: what is finished is kept and said, and the exit status is 130."""

import json
import subprocess
import sys
import time

from dpbandit.cli import progress


def test_run_keeps_the_seeds_that_are_finished(dpbandit_, ctrl_c, tmp_path):
    seen = ctrl_c(0.4)
    arguments = [
        "run",
        "linucb",
        "tree-gauss",
        "--horizon",
        "12000",
        "--seeds",
        "12",
        "--workers",
        "1",
        "--out",
        "kept",
    ]
    said = dpbandit_(*arguments, "--json")
    assert seen.sent
    assert said.status == 130
    found = json.loads(said.out)
    assert found["complete"] is False
    assert 1 <= found["algorithms"]["linucb"]["seeds"] < 12
    assert "only finished seeds are counted" in said.err
    assert (tmp_path / "kept" / "results.parquet").exists()


def test_audit_judges_by_the_runs_that_are_finished(dpbandit_, ctrl_c, tmp_path):
    ctrl_c(0.3)
    said = dpbandit_(
        "audit",
        "dgs-figure",
        "--delta",
        "0.1",
        "--horizon",
        "64",
        "--runs",
        "100000",
        "--out",
        "a",
        "--json",
    )
    assert said.status == 130
    found = json.loads(said.out)
    assert 100 <= found["runs"] < 100_000
    assert found["complete"] is False
    assert (
        json.loads((tmp_path / "a" / "audit-dgs-figure.json").read_text())["runs"] == found["runs"]
    )


def test_verify_keeps_the_cases_that_are_finished(dpbandit_, ctrl_c):
    ctrl_c(0.5)
    said = dpbandit_("verify", "tree-gauss", "--horizon", "32", "--runs", "0", "--json")
    assert said.status == 130
    found = json.loads(said.out)
    assert found["complete"] is False
    assert len(found["cases"]) == 4


def test_fuzz_keeps_the_stories_that_are_told(dpbandit_, ctrl_c):
    ctrl_c(0.02)
    said = dpbandit_("fuzz", "tree-gauss", "--cases", "1000", "--workers", "1", "--json")
    assert said.status == 130
    found = json.loads(said.out)
    assert (found["complete"], found["holds"]) == (False, True)
    assert found["cases"] == 20


def test_plan_keeps_the_predictions_that_are_finished(dpbandit_, ctrl_c):
    ctrl_c(0.7)
    said = dpbandit_(
        "plan", "toeplitz", "tree-gauss", "--dim", "3", "--arms", "4", "--horizon", "500", "--json"
    )
    assert said.status == 130
    found = json.loads(said.out)
    assert found["recommended"] == "toeplitz"
    assert found["algorithms"]["tree-gauss"]["note"] == "interrupted"
    assert found["complete"] is False


def test_the_search_for_an_epsilon_keeps_the_smallest_that_was_enough(dpbandit_, ctrl_c):
    ctrl_c(0.6)
    arguments = [
        "plan",
        "toeplitz",
        "--dim",
        "2",
        "--arms",
        "3",
        "--horizon",
        "200",
        "--afford",
        "100%",
    ]
    said = dpbandit_(*arguments, "--json")
    assert said.status == 130
    found = json.loads(said.out)
    assert found["complete"] is False
    assert found["epsilon"] > 0
    ctrl_c(2.0)  # never
    whole = json.loads(dpbandit_(*arguments, "--json").out)
    assert whole["complete"] is True
    assert whole["epsilon"] <= found["epsilon"]


def test_warm_start_releases_nothing_and_writes_nothing(dpbandit_, ctrl_c, log, tmp_path):
    ctrl_c(0.2)
    arguments = [
        "warm-start",
        "log.parquet",
        "--reward-range",
        "0",
        "1",
        "--delta",
        "1e-6",
        "--algorithm",
        "tree-gauss",
        "--workers",
        "1",
    ]
    said = dpbandit_(*arguments, "--out", "b.npz")
    assert said.status == 130
    assert "nothing was released and nothing written" in said.err
    assert not (tmp_path / "b.npz").exists()


def test_evaluate_keeps_what_it_read_in_the_clear_and_shows_nothing_of_a_release(
    dpbandit_, ctrl_c, log
):
    arguments = ["evaluate", "log.parquet", "--reward-range", "0", "1", "--delta", "1e-6"]
    arguments += ["--seed", "1", "--json"]
    ctrl_c(0.4)
    said = dpbandit_(*arguments)
    assert said.status == 130
    found = json.loads(said.out)
    assert found["complete"] is False
    assert 500 < found["rows"] < 1_500
    assert len(found["estimates"]) == 10
    ctrl_c(0.4)
    said = dpbandit_(*arguments, "--release-epsilon", "1", "--release-delta", "1e-6")
    assert (said.status, said.out) == (130, "")
    assert "nothing was shown" in said.err


def test_a_verification_without_a_case_says_nothing(dpbandit_, ctrl_c):
    ctrl_c(0.0)
    said = dpbandit_(
        "verify", "tree-gauss", "--horizon", "32", "--dim", "2", "--runs", "5", "--json"
    )
    assert (said.status, said.out) == (130, "")
    assert "nothing is kept" in said.err


def test_the_second_ctrl_c_leaves_at_once():
    code = """
import os, signal, time
from dpbandit.cli.progress import bar
signal.signal(signal.SIGINT, signal.default_int_handler)
with bar("work"):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
"""
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 130
    assert time.monotonic() - began < 30


def test_where_there_is_no_terminal_a_line_now_and_then_says_how_long(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    with progress.bar("starting") as show:
        show("playing", 0, 100)
        time.sleep(0.01)
        show("playing", 50, 100)
    assert capsys.readouterr().err.splitlines() == ["playing: 0%", "playing: 50%, 0:00 left"]
