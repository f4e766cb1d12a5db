"""`dpbandit reproduce` and `dpbandit bench`: found in a clone, JSON, and what Ctrl-C leaves."""

import json

import pytest

from experiments import cli
from experiments.leaderboard import grid, runner
from experiments.reproduction import parts

QUICK = {
    "reproduce": ["--figure", "1a"],
    "bench privacy-cost": ["--worlds", "synthetic", "--algorithms", "tree-gauss"],
    "bench speed": ["--rounds", "1000", "--repeats", "1", "--no-growth"],
}


@pytest.mark.parametrize("name", QUICK)
def test_json_is_one_document_and_what_is_printed_says_where_the_files_are(
    name, dpbandit_, small, tmp_path
):
    said = dpbandit_(*name.split(), *QUICK[name], "--out", "made", "--json")
    assert said.status == 0, said
    assert json.loads(said.out)
    assert "\x1b" not in said.out + said.err
    assert any((tmp_path / "made").iterdir())
    again = dpbandit_(*name.split(), *QUICK[name], "--out", "made")
    assert again.status == 0, again
    assert "made" in again.out


def test_names_that_are_completed_are_those_of_the_modules():
    assert set(cli.PLACES) == set(grid.PLACES)
    assert set(cli.SECTIONS) == set(runner.SECTIONS)
    assert cli.FIGURES == parts.FIGURES


def test_one_ctrl_c_ends_all_parts_of_bench_speed(dpbandit_, ctrl_c, small, tmp_path):
    ctrl_c(0.3)
    page = tmp_path / "page.md"
    page.write_text("as it was\n")
    said = dpbandit_(
        "bench", "speed", "--rounds", "1000", "--repeats", "1", "--docs", page, "--json"
    )
    assert said.status == 130
    found = json.loads(said.out)
    assert found["complete"] is False
    assert found["decisions"]
    assert not found["engine"]
    assert not found["growth"]
    assert page.read_text() == "as it was\n"


def test_the_leaderboard_goes_on_where_it_was_stopped(dpbandit_, ctrl_c, small, tmp_path):
    arguments = [
        "bench",
        "privacy-cost",
        "--worlds",
        "synthetic",
        "--algorithms",
        "tree-gauss",
        "--workers",
        "1",
        "--json",
    ]
    all_of_it = ctrl_c(0.9)
    first = dpbandit_(*arguments)
    assert first.status == 130
    assert list((tmp_path / "out/leaderboard/cells").iterdir())
    the_rest = ctrl_c(2.0)  # never
    second = dpbandit_(*arguments)
    assert second.status == 0
    assert json.loads(second.out)
    assert the_rest.most < all_of_it.most, "what was finished was played again"


def test_reproduce_goes_on_where_it_was_stopped(dpbandit_, ctrl_c, small, tmp_path):
    seen = ctrl_c(0.5)
    first = dpbandit_("reproduce", "--figure", "1a", "--json")
    assert (first.status, seen.sent[0]) == (130, "simulation (part 1 of 1)")
    assert json.loads(first.out)["complete"] is False
    assert (tmp_path / "out" / "report.html").exists()
    ctrl_c(2.0)
    second = dpbandit_("reproduce", "--figure", "1a", "--json")
    assert second.status == 0
    stored = (tmp_path / "out/tables/simulation.parquet").stat().st_mtime_ns
    dpbandit_("reproduce", "--figure", "1a", "--json")
    assert (tmp_path / "out/tables/simulation.parquet").stat().st_mtime_ns == stored
