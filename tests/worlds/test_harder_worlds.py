"""Drifting and Degenerate: what their distributions are, and that nothing but the seed decides them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import dpbandit as dpb
from dpbandit.cli import app
from dpbandit.reference.worlds import LOT
from dpbandit.worlds import Degenerate, Drifting, Synthetic

WORLDS = [
    Drifting(),
    Degenerate(),
    Drifting(arms=30, dim=3, shown=7, period=500),
    Degenerate(arms=30, dim=4, shown=7),
]


def played(world, cuts, seed=4):
    """Contexts, rewards and means of all rounds, in the order in which they come."""
    episode = world.episode(seed)
    blocks = [episode.block(count) for count in cuts]
    parts = [(block.pool[block.shown], block.rewards, block.means) for block in blocks]
    return [np.concatenate(same) for same in zip(*parts, strict=True)]


def second_moment(contexts):
    rows = contexts.reshape(-1, contexts.shape[-1])
    return rows.T @ rows / len(rows)


@pytest.mark.parametrize("world", [Synthetic(), *WORLDS], ids=repr)
def test_rounds_do_not_depend_on_how_they_are_cut(world):
    whole = played(world, [3 * LOT + 100])
    for cuts in ([1, 0, LOT - 1, LOT, 1, 123, 1000], [100] * 31 + [72]):
        assert sum(cuts) == 3 * LOT + 100
        for one, other in zip(whole, played(world, cuts), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("world", WORLDS, ids=repr)
def test_a_seed_decides_everything_and_seeds_differ(world):
    first, again, other = played(world, [200]), played(world, [200]), played(world, [200], seed=5)
    for index in range(3):
        np.testing.assert_array_equal(first[index], again[index])
        assert not (first[index] == other[index]).any()
    np.testing.assert_array_equal(world.episode(4).theta, world.episode(4).theta)


@pytest.mark.parametrize("world", WORLDS, ids=repr)
def test_means_are_linear_and_noise_is_shared_by_the_arms_of_a_round(world):
    """Of 5,000 Gaussian draws, mean and deviation lie within 6 standard errors: false-alarm rate below 1e-8."""
    contexts, rewards, means = played(world, [5000])
    theta = world.episode(4).theta
    np.testing.assert_allclose(np.linalg.norm(contexts, axis=2), 1, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(theta), 1)
    np.testing.assert_allclose(means, contexts @ theta, atol=1e-14)
    noise = rewards - means
    np.testing.assert_allclose(noise, noise[:, :1].repeat(world.arms, axis=1), atol=1e-14)
    assert abs(noise[:, 0].mean()) < 6 * 0.5 / 5000**0.5
    assert abs(noise[:, 0].std() - 0.5) < 6 * 0.5 / 10_000**0.5


@pytest.mark.parametrize("world", WORLDS, ids=repr)
def test_nearly_all_mean_rewards_lie_between_0_and_1_and_choices_matter(world):
    for seed in range(5):
        _, _, means = played(world, [2000], seed=seed)
        assert ((means >= 0) & (means <= 1)).mean() > 0.999
        assert (means.max(axis=1) - means.mean(axis=1)).mean() > 0.05


@pytest.mark.parametrize("world", WORLDS, ids=repr)
def test_the_arms_of_a_round_are_distinct(world):
    contexts, _, _ = played(world, [1000])
    assert all(len(np.unique(row, axis=0)) == world.arms for row in contexts)


def test_early_contexts_have_another_covariance_than_late_ones():
    """A check of the drift's size, not of chance: at least 0.1 of 1 changes place, where 40,000 draws err by 0.002."""
    world = Drifting()
    contexts, _, _ = played(world, [10_000])
    early, late = second_moment(contexts[:1000]), second_moment(contexts[-1000:])
    centred = [np.cov(part.reshape(-1, 10).T) for part in (contexts[:1000], contexts[-1000:])]
    assert np.diag(early)[[0, 1, 9]].sum() > 0.5 > 0.05 > np.diag(late)[[0, 1, 9]].sum()
    assert np.diag(late)[[4, 5, 6]].sum() > 0.5 > 0.05 > np.diag(early)[[4, 5, 6]].sum()
    strongest = [np.linalg.eigh(part)[1][:, -1] for part in centred]
    assert abs(strongest[0] @ strongest[1]) < 0.5  # the direction of most variance has turned
    still, _, _ = played(Drifting(faded=1.0), [10_000])
    assert np.abs(second_moment(still[:1000]) - second_moment(still[-1000:])).max() < 0.01


def test_theta_stays_while_contexts_drift():
    """Least squares on the first and on the last rounds find the same θ*: noiseless, so to rounding."""
    world = Drifting(reward_noise=0.0)
    contexts, rewards, _ = played(world, [10_000])
    for part in (slice(500), slice(-500, None)):
        found = np.linalg.lstsq(contexts[part].reshape(-1, 10), rewards[part].ravel(), rcond=None)[
            0
        ]
        np.testing.assert_allclose(found, world.episode(4).theta, atol=1e-9)


def test_seasons_return_after_a_period_and_are_opposite_after_half():
    world = Drifting(dim=4, period=100, faded=0.2)
    weights = world.weights(np.arange(301))
    np.testing.assert_allclose(weights[0], [1.0, 0.6, 0.2, 0.6])
    np.testing.assert_allclose(weights[50], [0.2, 0.6, 1.0, 0.6])
    np.testing.assert_array_equal(weights[:100], weights[200:300])
    assert weights.min() == pytest.approx(0.2)
    assert weights.max() == 1.0
    np.testing.assert_array_equal(Drifting(faded=1.0).weights(np.arange(5)), np.ones((5, 10)))


def test_without_drift_it_is_the_papers_simulation():
    """To rounding: Drifting multiplies by 1 and takes the norm in the same way, but products are summed in another order."""
    for one, other in zip(
        played(Drifting(faded=1.0), [3000]), played(Synthetic(), [3000]), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-14)


def test_drifting_has_no_public_contexts_and_degenerate_plays_from_its_public_pool():
    assert Drifting().episode(0).public_contexts is None
    episode = Degenerate().episode(0)
    first, second = episode.block(10), episode.block(5000)
    assert first.pool is second.pool is episode.public_contexts  # the engine checks a pool once


def test_nearly_all_of_degenerate_contexts_is_in_few_directions():
    for seed in range(5):
        contexts, _, _ = played(Degenerate(), [10_000], seed=seed)
        sizes = np.linalg.eigvalsh(second_moment(contexts))[::-1]
        assert sizes[:3].sum() > 0.99
        assert sizes[2] > 0.05
        assert 0.002 < sizes[3] < 0.01  # the rare direction
        assert 1e-5 < sizes[9] <= sizes[4] < 5e-4  # the faint ones, about faint²
    assert np.linalg.matrix_rank(Degenerate(faint=0.0).episode(0).public_contexts) == 4


def test_the_rare_direction_is_seen_as_often_as_promised():
    """Binomial with 40,000 rounds: 6 standard deviations, false-alarm rate below 1e-8."""
    for rare in (0.0, 0.02, 0.3, 1.0):
        world = Degenerate(rare=rare)
        episode = world.episode(1)
        seen = (episode.block(40_000).shown >= world.pool_size - world.rare_arms).mean(axis=1)
        assert set(np.unique(seen)) <= {0.0, 1.0}  # a round is rare as a whole
        assert abs(seen.mean() - rare) <= 6 * (rare * (1 - rare) / 40_000) ** 0.5
        part = np.abs(episode.public_contexts @ episode.directions[world.rank])
        assert part[: -world.rare_arms].mean() < 0.02 < 0.3 < part[-world.rare_arms :].mean()
    assert Degenerate().rare_arms == 20


def test_who_ignores_the_rare_direction_is_fine_in_most_rounds_and_like_random_play_in_the_rare_ones():
    """Averages over 20 seeds. Measured on three sets of 20: 0.013 to 0.015 in common rounds, 1.06 to 1.13 in rare ones."""
    blind, chance = np.zeros(2), np.zeros(2)
    for seed in range(20):
        world = Degenerate()
        episode = world.episode(seed)
        block = episode.block(10_000)
        direction = episode.directions[world.rank]
        guess = (
            episode.public_contexts @ (episode.theta - (episode.theta @ direction) * direction)
        )[block.shown]
        lost = block.means.max(axis=1, keepdims=True) - block.means
        picked = lost[np.arange(len(lost)), guess.argmax(axis=1)]
        rare = block.shown[:, 0] >= world.pool_size - world.rare_arms
        blind += [picked[~rare].mean(), picked[rare].mean()]
        chance += [lost[~rare].mean(), lost[rare].mean()]
    assert blind[0] < 0.05 * chance[0]
    assert blind[1] > 0.8 * chance[1]


@pytest.mark.parametrize("shape", [(2, 1), (5, 2), (5, 4)])
def test_directions_are_orthonormal_and_theta_is_split_as_promised(shape):
    dim, rank = shape
    episode = Degenerate(dim=dim, rank=rank).episode(0)
    np.testing.assert_allclose(episode.directions @ episode.directions.T, np.eye(dim), atol=1e-12)
    inside = episode.directions @ episode.theta
    assert (inside > 0).all()
    assert np.linalg.norm(inside[:rank]) == pytest.approx(inside[rank])
    if rank + 1 < dim:
        assert inside[rank] == pytest.approx(2 / 3)
        assert np.linalg.norm(inside[rank + 1 :]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("world", "options", "advice"),
    [
        (Drifting, {"shown": 11, "arms": 10}, "shown ≤ arms"),
        (Drifting, {"shown": 0}, "1 ≤ shown"),
        (Drifting, {"dim": 1}, "dim ≥ 2"),
        (Drifting, {"reward_noise": -1.0}, "reward_noise must be"),
        (Drifting, {"reward_noise": float("nan")}, "reward_noise must be"),
        (Drifting, {"period": 0}, "twice the horizon"),
        (Drifting, {"period": float("inf")}, "twice the horizon"),
        (Drifting, {"faded": 1.5}, "1 \\(no drift\\)"),
        (Drifting, {"faded": float("nan")}, "faded must lie"),
        (Degenerate, {"shown": 6, "arms": 10}, "shown ≤ arms/2"),
        (Degenerate, {"shown": 0}, "1 ≤ shown"),
        (Degenerate, {"rank": 10}, "rank < dim"),
        (Degenerate, {"rank": 0}, "1 ≤ rank"),
        (Degenerate, {"reward_noise": float("inf")}, "reward_noise must be"),
        (Degenerate, {"faint": -0.1}, "faint must lie"),
        (Degenerate, {"rare": 1.1}, "rare must be a share"),
    ],
)
def test_options_out_of_range_are_refused_with_advice(world, options, advice):
    with pytest.raises(ValueError, match=advice):
        world(**options)


@pytest.mark.parametrize("world", [Drifting(), Degenerate()], ids=repr)
def test_linucb_learns_and_private_bandits_run(world):
    """Over 5 seeds and 10,000 rounds LinUCB's regret is 7 % (drifting) and 2 % (degenerate) of random play's (measured)."""
    names = ["random", "linucb", "dgs", "tree-gauss"]
    results = dpb.run(world, names, horizon=5000, seeds=2, epsilon=2.0, delta=1e-5, workers=1)
    regret = results.summary()["regret"]
    assert regret["linucb"] < regret["random"] / 3
    assert regret[["dgs", "tree-gauss"]].between(0, 2 * regret["random"]).all()
    assert repr(world) == results.world == repr(eval(repr(world)))


@pytest.mark.parametrize(("name", "leaves_out"), [("drifting", True), ("degenerate", False)])
def test_the_command_line_knows_the_worlds(name, leaves_out):
    ran = CliRunner().invoke(
        app, ["run", "--world", name, "--horizon", "50", "--seeds", "1", "--json", "--workers", "1"]
    )
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout)
    assert report["world"].lower().startswith(name)
    assert ("dgs-published" not in report["algorithms"]) == leaves_out
    wrong = CliRunner().invoke(app, ["run", "linucb", "--world", "drift"])
    assert wrong.exit_code != 0
    assert "did you mean 'drifting'" in str(wrong.exception)
