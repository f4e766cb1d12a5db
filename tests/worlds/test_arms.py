"""The worlds of arms without features."""

import numpy as np
import pytest

import dpbandit as dpb


def test_rounds_do_not_depend_on_how_they_are_cut():
    world = dpb.worlds.Bernoulli(arms=5)
    whole, parts = world.episode(7).block(3000), world.episode(7)
    cut = [parts.block(count) for count in (1, 1022, 2, 1975)]
    assert (np.concatenate([block.rewards for block in cut]) == whole.rewards).all()
    assert (np.concatenate([block.means for block in cut]) == whole.means).all()
    assert (world.episode(8).block(3000).rewards != whole.rewards).any()


def test_arms_pay_with_their_probability_and_independently():
    means = [0.0, 0.1, 0.5, 1.0]
    block = dpb.worlds.Bernoulli(means=means).episode(0).block(20_000)
    assert set(np.unique(block.rewards)) == {0.0, 1.0}
    # sd at most 0.0036: six sd, false-alarm rate below 1e-8
    np.testing.assert_allclose(block.rewards.mean(axis=0), means, atol=0.022)
    assert abs(np.corrcoef(block.rewards[:, 1], block.rewards[:, 2])[0, 1]) < 6 / np.sqrt(20_000)
    assert (block.means == means).all()
    assert (block.pool[block.shown[0]] == np.eye(4)).all()


def test_every_seed_draws_its_own_means_unless_they_are_given():
    world = dpb.worlds.Bernoulli()
    assert (world.arms, world.dim, world.rounds) == (10, 10, None)
    assert (world.episode(0).theta != world.episode(1).theta).all()
    fixed = dpb.worlds.Bernoulli(means=[0.25, 0.75])
    assert fixed.episode(0).theta.tolist() == fixed.episode(1).theta.tolist() == [0.25, 0.75]
    assert repr(fixed) == "Bernoulli(means=[0.25, 0.75])"
    assert repr(world) == "Bernoulli(arms=10)"


def test_regret_is_known():
    world = dpb.worlds.Bernoulli(means=[0.25, 0.75])
    results = dpb.run(world, ["random"], horizon=4000, seeds=4)
    final = results.frame().groupby("seed")["regret"].last()
    # 16,000 coin tosses of 0 or 0.5 in all: mean 1,000 a seed, sd 16; six sd of the mean
    assert abs(final.mean() - 1000) < 6 * 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"means": []}, "probabilities"),
        ({"means": [0.5, 1.5]}, "probabilities"),
        ({"means": [[0.5]]}, "probabilities"),
        ({"means": [0.5, float("nan")]}, "probabilities"),
        ({"means": [0.5], "arms": 2}, "there are 1 means"),
        ({"arms": 0}, "at least one arm"),
    ],
)
def test_bad_worlds_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        dpb.worlds.Bernoulli(**options)


def test_gaussian_arms_pay_their_mean_and_the_noise_of_the_round():
    world = dpb.worlds.Gaussian()
    assert (world.arms, world.dim, world.rounds) == (20, 20, None)
    episode = world.episode(3)
    assert episode.theta.min() >= 0
    assert episode.theta.max() <= 0.6
    block = episode.block(5000)
    assert (np.sort(block.shown, axis=1) == np.arange(20)).all()
    assert (block.means == episode.theta[block.shown]).all()
    noise = (block.rewards - block.means)[:, 0]
    assert abs(noise.mean()) < 6 * 0.5 / np.sqrt(5000)
    assert abs(noise.std() - 0.5) < 6 * 0.5 / np.sqrt(2 * 5000)
    assert repr(dpb.worlds.Gaussian(means=[1, 2])) == "Gaussian(means=[1.0, 2.0], reward_noise=0.5)"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"means": []}, "one for each arm"),
        ({"means": [0.5, float("inf")]}, "one for each arm"),
        ({"arms": 0}, "at least one arm"),
        ({"reward_noise": -0.5}, "reward_noise"),
    ],
)
def test_bad_gaussian_worlds_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        dpb.worlds.Gaussian(**options)
