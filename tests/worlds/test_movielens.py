"""MovieLens: what a round is, where the data comes from, and from a log to a launch."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.worlds import DataMissing, MovieLens, movielens

# Found once, before any test changes the environment.
try:
    FOLDER = movielens.find()
except DataMissing:
    FOLDER = Path(os.devnull)


def released():
    """The released files; without them the test is skipped."""
    try:
        return movielens.find()
    except DataMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def world():
    released()
    return MovieLens()


def test_counts_are_those_of_the_data_set(world):
    assert (world.people, len(world.films), len(world.table.rated)) == (943, 1682, 100_000)
    assert world.table.liked.sum() == 55_375
    assert np.linalg.norm(world.public_contexts, axis=1).max() <= 1
    assert {"film": "1", "title": "Toy Story", "year": 1995, "Comedy": 1.0}.items() <= (
        world.films[0].items()
    )


def test_a_round_shows_films_that_the_person_rated(world):
    folder = released()
    ratings = {
        (row[0], row[1]): float(row[2]) >= 4
        for row in (
            line.split("\t")
            for line in (folder / "ml-100k.inter").read_text("latin-1").split("\n")[1:]
            if line
        )
    }
    names = sorted({int(person) for person, _ in ratings})
    block = (episode := world.episode(3)).block(300)
    people = episode.users_of_last_block()
    for person, shown, rewards in zip(people, block.shown, block.rewards, strict=True):
        assert len(set(shown.tolist())) == world.arms
        for number, reward in zip(shown, rewards, strict=True):
            assert ratings[str(names[person]), world.films[number]["film"]] == reward


def test_rounds_do_not_depend_on_how_they_are_cut(world):
    one, two = world.episode(7), world.episode(7)
    whole = one.block(2500)
    parts = [two.block(count) for count in (1, 1023, 1, 1475)]
    for name in ("shown", "rewards"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(getattr(whole, name), joined)
    assert (world.episode(8).block(50).shown != whole.shown[:50]).any()


def test_records_are_rounds_with_one_film_shown_at_random(world):
    rows = list(world.records(5, 3000))
    block = (episode := world.episode(5)).block(3000)
    people = episode.users_of_last_block().tolist()
    places = []
    for row, person, shown, rewards in zip(rows, people, block.shown, block.rewards, strict=True):
        assert row["person"] == person
        places.append(row["offered"].index(row["film"]))
        assert row["liked"] == rewards[places[-1]]
        assert [world.films[n]["film"] for n in shown] == row["offered"]
    assert np.bincount(places).min() > 240


def test_it_runs_in_the_lab_and_without_data_it_says_where_to_get_them(
    world, monkeypatch, tmp_path
):
    results = dpb.run(world, ["random"], horizon=2000, seeds=1)
    assert 1080 < results.summary().loc["random", "reward"] < 1230
    monkeypatch.setenv("DPBANDIT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(movielens, "find_spec", lambda name: None)
    with pytest.raises(DataMissing, match="pip install --no-deps recbole"):
        MovieLens()
    copied = shutil.copytree(FOLDER, tmp_path / "ml-100k")
    (copied / "ml-100k.user").write_text("other")
    with pytest.raises(ValueError, match=r"ml-100k.user is not the file"):
        MovieLens()


def test_from_a_log_to_a_launch(world):
    """One seed of what docs/how-to/from-a-table.md has figures of."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from experiments.movielens import REWARDS, play

    run = play(world, 10_000, ("user", REWARDS), learns=True)
    assert run["epsilon"] <= 1
    assert run["delta"] <= 1e-6 * (1 + 1e-9)
    assert run["launched"] > run["random"] + 0.08
    assert run["low"] <= run["launched"] <= run["high"]
    assert run["low"] > run["random"]
