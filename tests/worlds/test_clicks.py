"""The worlds of clicks."""

import numpy as np
import pytest

import dpbandit as dpb


@pytest.mark.parametrize(
    "world",
    [dpb.worlds.Clicks(0.1), dpb.worlds.Clicks(0.1, arms=8, one_hot=True), dpb.worlds.Logistic()],
)
def test_rounds_do_not_depend_on_how_they_are_cut(world):
    whole, parts = world.episode(7).block(3000), world.episode(7)
    cut = [parts.block(count) for count in (1, 1022, 2, 1975)]
    for name in ("shown", "rewards", "means"):
        assert (np.concatenate([getattr(b, name) for b in cut]) == getattr(whole, name)).all()
    assert all(block.pool is cut[0].pool for block in cut)
    assert (world.episode(8).block(3000).rewards != whole.rewards).any()


@pytest.mark.parametrize("rate", [0.005, 0.1])
def test_articles_have_the_rate_and_are_clicked_with_their_chance(rate):
    episode = dpb.worlds.Clicks(rate).episode(3)
    chances = episode.spec["chances"]
    assert np.isclose(chances.mean(), rate, rtol=1e-9)
    assert np.isclose(np.log(chances / (1 - chances)).std(), 0.5, rtol=1e-9)
    assert np.isclose(np.linalg.norm(episode.public_contexts, axis=1).max(), 1.0)
    block = episode.block(50_000)
    # one uniform a round: the mean of 10 coupled clicks has at most the variance of one
    sd = np.sqrt(rate * (1 - rate) / 50_000)
    assert abs(block.rewards.mean() - block.means.mean()) < 6 * sd


def test_logistic_is_the_environment_of_the_paper():
    episode = dpb.worlds.Logistic(norm=3.5).episode(1)
    pool, chances = episode.spec["pool"], episode.spec["chances"]
    assert episode.public_contexts is None
    # the log-odds are x·θ*, with ‖θ*‖ = 3.5, and |x|³ is uniform in a ball of three dimensions
    theta = np.linalg.lstsq(pool, np.log(chances / (1 - chances)), rcond=None)[0]
    assert np.isclose(np.linalg.norm(theta), 3.5, rtol=1e-9)
    lengths = np.linalg.norm(pool, axis=1)
    assert abs((lengths**3).mean() - 0.5) < 6 * np.sqrt(1 / 12 / len(pool))
    assert np.abs(pool.mean(axis=0)).max() < 6 * np.sqrt(0.2 / len(pool))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dpb.worlds.Clicks(0.0), "rate"),
        (lambda: dpb.worlds.Clicks(spread=-1.0), "spread"),
        (lambda: dpb.worlds.Clicks(arms=3, shown=4), "shown"),
        (lambda: dpb.worlds.Logistic(norm=-1.0), "norm"),
        (lambda: dpb.worlds.Logistic(shown=0), "shown"),
    ],
)
def test_bad_worlds_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
