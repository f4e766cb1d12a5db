"""Reproducing the paper: resumable, repeatable, honest about what is missing."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dpbandit.errors import OptionError
from dpbandit.spread import threads
from experiments.reproduction import estimates, parts, runner, setting, verdicts
from experiments.reproduction.drawings import DRAW, figure_1b
from experiments.reproduction.report import CAPTIONS

DATA = os.environ.get("DPBANDIT_DATA") or str(Path(__file__).parents[2].parent / "shared" / "data")
HERE = Path(DATA, "lastfm").exists()
needs_lastfm = pytest.mark.skipif(not HERE, reason="LastFM is not on this machine")
TINY = replace(
    setting.PAPER,
    name="tiny",
    horizon=600,
    seeds=3,
    lastfm_horizon=400,
    lastfm_seeds=2,
    epsilons=(0.5, 2.0, 5.0),
    change_rounds=220,
    lastfm_change_rounds=60,
    change_runs=2,
    lastfm_change_runs=1,
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.setitem(setting.PROFILES, "tiny", TINY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DPBANDIT_DATA", str(tmp_path / "nothing here"))
    monkeypatch.setattr("dpbandit.worlds.data.download", _no_network)


def _no_network(*_args, **_kwargs):
    raise OSError("no network in tests")


def test_without_lastfm_the_simulation_parts_run_and_the_rest_is_said_to_be_left_out(
    tmp_path, request, monkeypatch
):
    if HERE:  # the test with LastFM draws every figure
        request.getfixturevalue("plain_figures")
        monkeypatch.setitem(DRAW, "1b", figure_1b)
    result = runner.reproduce(tmp_path / "out", size="tiny")
    assert result.complete
    assert any("lastfm" in text.lower() for text in result.left_out)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {
        "figure-1a.svg",
        "figure-1c.png",
        "figure-2a.svg",
        "figure-2b.svg",
        "figure-noise.svg",
        "report.html",
        "verdicts.json",
    } <= names
    assert "figure-1b.svg" not in names
    judged = {v.where: v.verdict for v in result.verdicts}
    assert judged["Figure 1(b)"] == verdicts.LEFT_OUT
    assert judged["Figure 1(a)"] != verdicts.LEFT_OUT
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Left out" in page
    assert not re.search(r"(src|href)=['\"]?http", page), "the page must not need a network"


def test_running_again_uses_what_is_there_and_gives_the_same_numbers(tmp_path, plain_figures):
    first = runner.reproduce(tmp_path / "a", size="tiny", figures=["1a", "2b"])
    again = runner.reproduce(tmp_path / "b", size="tiny", figures=["1a", "2b"])
    for name in ("simulation", "changed-arms"):
        one, two = (pd.read_parquet(tmp_path / f / "tables" / f"{name}.parquet") for f in "ab")
        assert one.equals(two)
        assert (tmp_path / "a" / "tables" / f"{name}.csv").exists()
    assert [v.to_dict() for v in first.verdicts] == [v.to_dict() for v in again.verdicts]
    made = []
    runner.reproduce(
        tmp_path / "a",
        size="tiny",
        figures=["1a", "2b"],
        progress=lambda what, *_: made.append(what),
    )
    assert made == []


def test_interrupting_keeps_finished_parts_and_says_so(tmp_path, monkeypatch, plain_figures):
    def stop(*_):
        raise KeyboardInterrupt

    broken = tuple(
        replace(e, make=stop) if e.name == "privacy-levels" else e for e in parts.EXPERIMENTS
    )
    monkeypatch.setattr(runner, "EXPERIMENTS", broken)
    result = runner.reproduce(tmp_path, size="tiny")
    assert not result.complete
    assert (tmp_path / "tables" / "simulation.parquet").exists()
    assert "interrupted" in (tmp_path / "report.html").read_text()


def test_a_table_that_was_cut_short_is_not_kept(tmp_path, monkeypatch, plain_figures):
    wait = threads.wait

    def interrupted(*args, **kwargs):
        wait(*args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threads, "wait", interrupted)
        result = runner.reproduce(tmp_path, size="tiny", figures=["1a"])
    assert not result.complete
    assert not list((tmp_path / "tables").iterdir())
    assert runner.reproduce(tmp_path, size="tiny", figures=["1a"]).complete


@needs_lastfm
def test_with_lastfm_every_figure_is_drawn_and_every_claim_judged(tmp_path, monkeypatch):
    monkeypatch.setenv("DPBANDIT_DATA", DATA)
    result = runner.reproduce(tmp_path, size="tiny")
    assert result.left_out == []
    for name in parts.FIGURES:
        assert (tmp_path / f"figure-{name}.svg").exists()
    assert all(v.verdict != verdicts.LEFT_OUT for v in result.verdicts)
    assert {v.verdict for v in result.verdicts} <= {
        verdicts.REPRODUCED,
        verdicts.FIGURE_ONLY,
        verdicts.NOT,
    }
    assert json.loads((tmp_path / "config.json").read_text())["versions"]["dpbandit"]
    assert set(DRAW) == set(CAPTIONS) == set(parts.FIGURES)


def test_unknown_figures_and_profiles_are_named(tmp_path):
    with pytest.raises(OptionError, match="no figure is called '1d'"):
        runner.reproduce(tmp_path, size="tiny", figures=["1d"])
    with pytest.raises(OptionError, match="did you mean 'quick'"):
        runner.reproduce(tmp_path, size="quik")


@needs_lastfm
def test_one_model_per_user_learns_each_user_apart(monkeypatch):
    import dpbandit as dpb

    monkeypatch.setenv("DPBANDIT_DATA", DATA)
    frame = dpb.run(
        dpb.worlds.LastFM(per_user=True), ["random", "linucb"], horizon=300, seeds=1
    ).frame()
    assert frame["round"].max() == 300
    assert frame["reward"].notna().all()


def test_an_exponent_that_is_hardly_known_supports_nothing():
    assert estimates.supports(-1.0, 0.05, -1.25, -0.75)
    assert not estimates.supports(-1.68, 0.48, -1.25, -0.75)
    assert not estimates.supports(-1.0, 0.48, -1.25, -0.75)
    assert not estimates.supports(float("nan"), float("inf"), -1.25, -0.75)


def test_the_exponent_is_found_also_where_noise_made_added_regret_negative():
    import numpy as np

    x = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    y = 40 / x + np.array([0.5, -0.5, 1.0, -12.0, -7.0])
    exponent, error = estimates.power(x, y, np.array([1.0, 1.0, 2.0, 8.0, 8.0]), -1.0)
    assert exponent == pytest.approx(-1.0, abs=3 * error)
