"""`dpbandit bench speed` measures what it says. How fast anything is, no test decides: this machine
is noisy.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from experiments.speed import measure, page, tasks
from experiments.speed.contestants import CONTESTANTS, Contestant, Player

NAMES = [one.name for one in CONTESTANTS]


@pytest.mark.parametrize("one", CONTESTANTS, ids=NAMES)
def test_every_contestant_learns(one):
    """A peer that is called wrongly would be fast and learn nothing. Random play loses 0.14 a round.

    `anytime` draws real noise: over 60 runs of 6,000 rounds it lost 0.040 ± 0.011 (sd), at most
    0.063, so that a false alarm is 5 standard deviations away.
    """
    if not one.installed:
        pytest.skip(f"{one.name} is not installed")
    if one.name == "dpbandit tree-gauss":
        pytest.skip("private from few rounds: nothing to see yet")
    rounds = 6000 if one.name == "dpbandit anytime" else 1500
    turn = measure.play(tasks.w1(rounds), replace(one, share=1.0), warm=False)
    assert turn.rounds == rounds
    assert turn.microseconds > 0
    assert turn.regret < 0.09


def test_the_best_of_several_turns_counts():
    taken = iter([3.0, 1.0, 2.0])

    def make(dim, arms):
        pause = next(taken)

        def choose(contexts):
            deadline = measure.time.perf_counter() + pause * 1e-5
            while measure.time.perf_counter() < deadline:
                pass
            return 0

        return Player(choose, lambda x, reward: None)

    one = Contestant("a", make, "")
    first = measure.play(tasks.w1(200), one, warm=False)
    again = measure.decisions(
        [tasks.w1(200)],
        [Contestant("b", lambda d, k: Player(lambda c: 1, lambda x, r: None), "")],
        repeats=2,
    )
    assert first.microseconds >= 30
    assert again[0].microseconds < 30
    assert again[0].regret > 0.1


def test_tasks_are_the_same_for_everybody():
    one, two = tasks.w1(50), tasks.w1(50)
    assert np.array_equal(one.rewards, two.rewards)
    assert (one.dim, one.arms, one.pool.shape) == (10, 10, (1000, 10))
    assert np.allclose(np.linalg.norm(one.pool, axis=1), 1)
    axes = {
        axis: [at for a, at, _ in tasks.growth(20) if a == axis] for axis in ("features", "arms")
    }
    assert (min(axes["features"]), max(axes["features"])) == (5, 500)
    assert (min(axes["arms"]), max(axes["arms"])) == (10, 100_000)


def test_real_noise_is_timed_beside_a_seeded_twin_and_its_releases_are_counted():
    found = measure.noise_costs(
        ["linucb", "local", "anytime"], rounds=400, noisy_rounds=50, repeats=1
    )
    assert set(found) == {"local", "anytime"}  # linucb has no noise
    assert (found["local"]["rounds"], found["local"]["releases"]) == (50, 50)
    assert found["anytime"]["rounds"] == 400
    assert 1 < found["anytime"]["releases"] < 100
    assert all(
        0 < cost["seeded"] < float("inf") and 0 < cost["real"] < float("inf")
        for cost in found.values()
    )


def test_the_page_is_written_between_its_marks(tmp_path):
    turns = [
        measure.Turn("W1", "dpbandit linucb", "1", 2.0, 100, 0.1, True),
        measure.Turn("W1", "river", "0.2", 200.0, 100, 0.1, False),
    ]
    result = {
        "tasks": [{"name": "W1", "words": "small"}],
        "decisions": measure.rows(turns),
        "machine": {"processor": "p", "cores": "2", "python": "3"},
        "repeats": 1,
        "missing": ["VW"],
        "engine": {"linucb": 0.5, "anytime": 1.0},
        "noise": {"local": {"seeded": 5.0, "real": 60.0, "rounds": 1000, "releases": 1000}},
        "growth": [
            {"axis": a, "at": 10, "contestant": "river", "microseconds": 3.0}
            for a in ("features", "arms")
        ],
    }
    file = tmp_path / "page.md"
    file.write_text("# Title\n\nkept\n")
    page.put_into(file, page.markdown(result))
    page.put_into(file, page.markdown(result))
    text = file.read_text()
    assert text.count("river 0.2") == 1
    assert "kept" in text
    assert "| 200 | 100 |" in text
    assert "Not installed, so not here: VW." in text
    assert "| `anytime` | 1.00 | 2.00 |" in text
    assert "| `local` | 5.00 | 60.0 | 1,000 in 1,000 rounds |" in text
    page.draw(result, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 10_000
    json.dumps(result)
