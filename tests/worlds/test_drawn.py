"""Worlds are drawn by the core in lots; the reference draws the same rounds."""

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import _core
from dpbandit.reference.worlds import LOT
from dpbandit.reference.worlds import World as Reference

WORLDS = {
    "synthetic": dpb.worlds.Synthetic(),
    "synthetic, few arms: a deck is dealt": dpb.worlds.Synthetic(arms=12, dim=3, shown=7),
    "synthetic, all arms": dpb.worlds.Synthetic(arms=5, dim=2, shown=5, reward_noise=0.0),
    "synthetic, many shown": dpb.worlds.Synthetic(arms=3000, dim=2, shown=41),
    "bernoulli": dpb.worlds.Bernoulli(means=[0.1, 0.5, 0.9]),
    "clicks": dpb.worlds.Clicks(0.1, arms=50, dim=4, shown=3),
    "clicks, one-hot": dpb.worlds.Clicks(0.3, arms=6, one_hot=True),
    "logistic": dpb.worlds.Logistic(norm=4.0),
    "drifting": dpb.worlds.Drifting(arms=200, dim=7, shown=5, period=700, faded=0.2),
    **{
        f"moving, {kind}": dpb.worlds.Moving(kind, 1500)
        for kind in ("abrupt", "walk", "seasonal", "new-arm", "worst-becomes-best")
    },
    "gaussian": dpb.worlds.Gaussian(5),
    "degenerate": dpb.worlds.Degenerate(arms=300, dim=6, shown=4, rare=0.2),
    "degenerate, few arms": dpb.worlds.Degenerate(arms=30, dim=4, shown=7, rare=0.5),
}


def rounds_of(drawn, start, count):
    """All rounds from `start` on, put together from lots."""
    parts = []
    while count:
        contexts, shown, rewards, means = drawn.rounds(start, count)
        parts.append((contexts[shown], shown, rewards, means))
        start, count = start + len(shown), count - len(shown)
    return [np.concatenate(same) for same in zip(*parts, strict=True)]


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("start", [0, LOT - 7, (1 << 40) * LOT + 3])
def test_the_reference_draws_the_rounds_of_the_core(name, start):
    spec = WORLDS[name].episode(3).spec
    found = rounds_of(_core.World(spec), start, LOT + 5)
    expected = rounds_of(Reference(spec), start, LOT + 5)
    for what, one, other in zip(
        ("contexts", "shown", "rewards", "means"), found, expected, strict=True
    ):
        assert one.shape == other.shape
        if what == "shown" or (what == "rewards" and spec["world"] in ("bernoulli", "clicks")):
            np.testing.assert_array_equal(one, other, err_msg=what)
        else:
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12, err_msg=what)


@pytest.mark.parametrize(("size", "shown"), [(1, 1), (7, 7), (9, 4), (1000, 10), (1000, 40)])
def test_the_arms_of_a_round_are_distinct_and_every_arm_is_as_likely_in_every_place(size, shown):
    """Counts of 20 · 1024 rounds, 6 standard deviations: below 1e-8 a cell, 1e-4 for 10,000."""
    world = dpb.worlds.Synthetic(arms=size, dim=1, shown=shown)
    rows = world.episode(0).block(20 * LOT).shown
    assert (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()
    assert rows.min() >= 0
    assert rows.max() < size
    expected = len(rows) / size
    for place in range(min(shown, 10)):
        counts = np.bincount(rows[:, place], minlength=size)
        assert np.abs(counts - expected).max() <= 6 * np.sqrt(expected * (1 - 1 / size)) + 1


def test_a_lot_does_not_depend_on_what_was_drawn_before_it():
    spec = WORLDS["drifting"].episode(1).spec
    once, again = _core.World(spec), _core.World(spec)
    once.rounds(0, 5), once.rounds(7 * LOT, 9)
    for start in (3 * LOT + 11, 0):
        for one, other in zip(once.rounds(start, 20), again.rounds(start, 20), strict=True):
            np.testing.assert_array_equal(one, other)


def test_more_features_than_a_lot_has_rounds_have_room():
    world = dpb.worlds.Drifting(arms=6, dim=LOT + 500, shown=2, period=100)
    spec = world.episode(0).spec
    found, expected = rounds_of(_core.World(spec), 40, 30), rounds_of(Reference(spec), 40, 30)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"world": "seasonal"}, "seasonal"),
        ({"arms": 0}, "arms"),
        ({"arms": 201}, "arms"),
        ({"period": 0.0}, "period"),
        ({"theta": np.ones(3)}, "theta has dim numbers"),
        ({"pool": np.ones((4, 7))}, "pool_size × dim"),
        ({"colour": 1}, "colour"),
        ({"key": "seven"}, "key"),
    ],
)
def test_a_world_that_the_core_cannot_draw_is_refused_by_name(change, words):
    spec = WORLDS["drifting"].episode(1).spec
    with pytest.raises(ValueError, match=words):
        _core.World({**spec, **change})
    with pytest.raises(ValueError, match="lacks faded"):
        _core.World({name: value for name, value in spec.items() if name != "faded"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": np.zeros((0, 20))}, "the path has rows"),
        ({"path": np.zeros((2, 19))}, "the path has rows"),
        ({"path_rounds": 0}, "rounds to walk it in"),
        ({"path_rounds": 1 << 41}, "rounds to walk it in"),
        ({"hidden": 2}, "not hidden"),
        ({"hidden": -1}, "not hidden"),
    ],
)
def test_a_path_that_cannot_be_walked_is_refused_by_name(change, words):
    spec = WORLDS["moving, new-arm"].episode(1).spec
    with pytest.raises(ValueError, match=words):
        _core.World({**spec, **change})
