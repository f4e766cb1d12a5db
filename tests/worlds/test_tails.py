"""Worlds whose rewards have heavy tails."""

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.worlds import Tails
from dpbandit.worlds.tails import RANGES


@pytest.mark.parametrize("kind", RANGES)
def test_rounds_do_not_depend_on_how_they_are_cut(kind):
    one, two = Tails(kind).episode(7), Tails(kind).episode(7)
    whole, parts = one.block(2500), [two.block(count) for count in (1, 1023, 1, 1475)]
    for name in ("shown", "rewards", "means"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(getattr(whole, name), joined), name
    assert (Tails(kind).episode(8).block(50).rewards != whole.rewards[:50]).any()
    assert all(len(set(row)) == Tails(kind).arms for row in whole.shown.tolist())
    np.testing.assert_allclose(whole.means, (whole.pool @ one.theta)[whole.shown])


@pytest.mark.parametrize("kind", RANGES)
def test_means_are_means_and_tails_are_heavy(kind):
    world = Tails(kind)
    block = world.episode(3).block(60_000)
    off = block.rewards - block.means
    noise = off if kind == "money" else off[:, :1]  # the same for all arms
    error = noise.std() / np.sqrt(noise.size)
    assert abs(noise.mean()) < 4 * error  # a fresh seed fails once in 15,000
    assert ((noise / noise.std()) ** 4).mean() > 10, "3 for a Gaussian"
    low, high = world.reward_range
    assert 0.0005 < ((block.rewards < low) | (block.rewards > high)).mean() < 0.05


def test_bandits_learn_them_and_a_wrong_name_is_named():
    found = dpb.run(Tails("mixture"), ["linucb", "random"], horizon=600, seeds=2).summary()
    assert found["regret"]["linucb"] < found["regret"]["random"] / 2
    with pytest.raises(ValueError, match="did you mean 'student'"):
        Tails("studnt")
