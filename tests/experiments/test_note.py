"""The technical note: its numbers are the code's, none is typed by hand, and the PDF is of these sources."""

import importlib.util
import json
import math
import re

import numpy as np
import pytest

from dpbandit import worlds
from experiments.note import board, checked, exact, measured, paper
from experiments.note.__main__ import DATA

NOTE = paper.NOTE / "note.typ"
# Lines that lay out and say nothing.
LAYOUT = re.compile(
    r"^\s*(//|#set |#show |#let |table\.|align:|columns:|#block\(|#v\(|let |block\(|if value )"
)


@pytest.fixture(scope="module")
def data():
    return json.loads(DATA.read_text())


def test_what_is_computed_is_computed_again(data):
    same(exact.everything(), data["exact"], "exact")


def test_what_is_read_is_read_again(data):
    same(board.everything(), data["board"], "board")


def test_runs_of_the_first_seed_give_what_is_in_the_file(data):
    rivals = {name: measured.SIMULATION[name] for name in measured.REPEATED}
    frame = measured.compare(worlds.Synthetic(), rivals, 10_000, 1, **measured.WIDE).frame()
    for name in measured.REPEATED:
        (found,) = frame.loc[frame["algorithm"] == name, "regret"]
        first = data["measured"]["simulation"]["rows"]["a"][name]["first"]
        assert math.isclose(found, first, rel_tol=1e-6), (
            f"{name} plays otherwise than when the note was made: python -m experiments.note measured"
        )


def test_what_verify_says_is_what_is_in_the_file(data):
    same(checked.case("dgs-published"), data["checked"]["rows"]["dgs-published"], "checked")


def test_every_part_was_played_with_all_of_its_seeds(data):
    assert {part: data["measured"][part]["seeds"] for part in measured.PARTS} == measured.SEEDS


@pytest.mark.slow
def test_all_that_verify_says_is_in_the_file(data):
    same(checked.everything(), data["checked"], "checked")


@pytest.mark.slow
def test_all_runs_of_the_first_seeds_are_in_the_file(data):
    for part in ("moving", "blocks", "scale", "persons"):
        found = measured.PARTS[part](2)["rows"]
        for kind, row in data["measured"][part]["rows"].items():
            for name, cell in row.items():
                if name != "horizon":
                    first = found[kind][name]["first"]
                    assert math.isclose(first, cell["first"], rel_tol=1e-6), (part, kind, name)


def test_no_number_is_typed_by_hand():
    found = []
    for number, line in enumerate(NOTE.read_text().splitlines(), 1):
        if LAYOUT.match(line):
            continue
        prose = re.sub(
            r"\w+\.at\(\"[^\"]*\"|digits: \d+|at\(\d+\)|\d+(?:\.\d+)?(?:pt|em|cm)\b|width: \d+%|> 100 ",
            "",
            line,
        )
        typed = re.findall(r"\d+\.\d+|\d{3,}|±\s*\d|\d\s*±|\d%", prose)
        found += [f"line {number}: {one}" for one in typed if one not in ("128", "2011")]
    assert not found, found


def test_a_number_that_is_typed_is_found(monkeypatch, tmp_path):
    page = tmp_path / "note.typ"
    page.write_text("Regret is 158 ± 3.\n")
    monkeypatch.setitem(globals(), "NOTE", page)
    with pytest.raises(AssertionError, match="line 1: 158"):
        test_no_number_is_typed_by_hand()


def test_the_same_sources_give_the_same_pdf():
    if importlib.util.find_spec("typst") is None:
        pytest.skip("the extra note, a compiler of 34 MB, is not installed: make note")
    made = paper.pages()
    assert made.startswith(b"%PDF")
    assert len(made) < 500_000
    assert paper.pages() == made


def test_the_guarantee_that_was_climbed_to_is_below_what_is_proven(data):
    """Theorem: for all t at once, information is at most ¼(1 + 3/(2H − 3))·t², H the harmonic number."""
    worst = data["exact"]["anytime"]["worst"]
    harmonic = sum(1 / t for t in range(1, worst["rounds"] + 1))
    assert 0.3 < worst["found"] <= worst["allowed"] <= 0.25 * (1 + 3 / (2 * harmonic - 3))


def test_lemmas_hold_where_they_were_tried(data):
    of = data["exact"]
    for eta in ("eighth", "quarter"):
        tried, proven = of["joint"][f"tried_{eta}"], of["joint"][f"s2_{eta}"]
        assert proven * (1 - 1e-4) < tried <= proven * (1 + 1e-12)
    assert 0.999 < of["scale"]["tried"] <= 1 + 1e-12
    assert of["clicks"]["worst"] <= 1 < of["clicks"]["attained"] + 1e-4
    assert of["clicks"]["attained"] <= 1
    assert math.isclose(of["local"]["ratio"], 1, rel_tol=1e-12)
    assert all(0 < row["exact"] < row["bound"] for row in of["whole"]["apart"])


@pytest.mark.parametrize("horizon", [64, 1000])
def test_increments_cost_what_moving_a_reward_by_hand_says(horizon):
    """Every increment of θ̂ computed twice, with the first reward 1 and 0."""

    def increments(first):
        rewards = np.full(horizon, 0.3)
        rewards[0] = first
        sums = np.concatenate([[0.0], np.cumsum(rewards)])
        theta = sums / (1.0 + np.arange(horizon + 1))
        return theta[ends] - theta[starts]

    starts, ends = exact.nodes(horizon)
    moves = np.abs(increments(1.0) - increments(0.0)) * (1.0 + ends)
    levels = horizon.bit_length()
    found = exact.increments(horizon)
    assert math.isclose(found["laplace"], moves.sum() / levels)
    assert math.isclose(found["gauss"], np.sum(moves**2) / levels)
    assert found["gauss"] < 1 + math.pi**2 / 24


def same(found, known, where):
    if isinstance(known, dict):
        assert set(found) == set(known), where
        for key, value in known.items():
            same(found[key], value, f"{where}.{key}")
    elif isinstance(known, list):
        assert len(found) == len(known), where
        for number, (one, other) in enumerate(zip(found, known, strict=True)):
            same(one, other, f"{where}[{number}]")
    elif isinstance(known, float):
        assert math.isclose(found, known, rel_tol=1e-6, abs_tol=1e-9), (
            f"{where}: {found}, not {known}"
        )
    else:
        assert found == known, f"{where}: {found}, not {known}"
