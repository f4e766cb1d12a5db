"""A θ* that moves: where it goes, and what is offered."""

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.errors import OptionError
from dpbandit.worlds import Moving

KINDS = ("abrupt", "walk", "seasonal", "new-arm", "worst-becomes-best")


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_do_not_depend_on_how_they_are_cut_and_pay_what_the_path_says(kind):
    world = Moving(kind, rounds=3001)
    whole, parts = world.episode(7).block(3001), world.episode(7)
    cut = [parts.block(count) for count in (1, 1022, 2, 1976)]
    for name in ("shown", "rewards", "means"):
        assert (np.concatenate([getattr(b, name) for b in cut]) == getattr(whole, name)).all()
    path = parts.spec["path"]
    theta = path[np.arange(3001) * len(path) // 3001]
    means = np.einsum("tai,ti->ta", whole.pool[whole.shown], theta)
    np.testing.assert_allclose(whole.means, means, atol=1e-12)
    noise = whole.rewards - whole.means
    assert np.abs(noise - noise[:, :1]).max() < 1e-12  # of a round, not of an arm
    assert abs(noise[:, 0].std() - 0.5) < 6 * 0.5 / np.sqrt(2 * 3001)
    assert parts.theta is None


def test_with_features_theta_has_norm_1_and_moves_as_its_kind_says():
    paths = {kind: Moving(kind, 10_000).episode(2).spec["path"] for kind in KINDS[:3]}
    for path in paths.values():
        np.testing.assert_allclose(np.linalg.norm(path, axis=1), 1.0)
        assert (path >= 0).all()
    assert len(paths["abrupt"]) == 2
    seasonal = paths["seasonal"]
    np.testing.assert_allclose(seasonal[:1000], seasonal[1000:], atol=1e-12)
    np.testing.assert_allclose(seasonal[1:500], seasonal[999:500:-1], atol=1e-12)
    # the first and the last are alike for "seasonal" alone
    ends = {kind: np.linalg.norm(path[0] - path[-1]) for kind, path in paths.items()}
    assert ends["seasonal"] < 1e-4
    assert min(ends["abrupt"], ends["walk"]) > 0.1
    assert np.linalg.norm(np.diff(paths["walk"], axis=0), axis=1).max() < 0.05


def test_the_worst_arm_becomes_the_best_at_half():
    before, after = Moving("worst-becomes-best", 10).episode(5).spec["path"]
    (moved,) = np.flatnonzero(before != after)
    assert moved == before.argmin() == after.argmax()
    assert after[moved] == before.max() + 0.3


def test_a_new_arm_is_offered_from_half_on_and_is_best_for_half_of_the_seeds():
    world = Moving("new-arm", 4000)
    episode = world.episode(1)
    assert episode.public_contexts is None  # they would tell of it
    shown = episode.block(4000).shown
    assert (np.diff(np.sort(shown, axis=1), axis=1) > 0).all()
    offered = (shown == 19).any(axis=1)
    assert not offered[:2000].any()
    # in 19 of 20 rounds: 6 standard deviations
    assert abs(offered[2000:].mean() - 0.95) < 6 * np.sqrt(0.95 * 0.05 / 2000)
    means = [world.episode(seed).spec["path"][1] for seed in range(400)]
    ahead = np.mean([one[-1] == one[:-1].max() + 0.3 for one in means])
    assert abs(ahead - 0.5) < 6 * 0.025


def test_bad_worlds_are_named():
    with pytest.raises(ValueError, match="one of abrupt, walk, seasonal"):
        Moving("sudden", 100)
    for rounds in (1, 2.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="2 to 2\\*\\*40 whole rounds"):
            Moving("walk", rounds)
    with pytest.raises(OptionError, match="has 100 rounds"):
        dpb.run(Moving("walk", 100), ["random"], horizon=101, seeds=1)


def test_who_forgets_follows_and_who_does_not_is_lost():
    """In six seeds regret was 3,036 to 3,855, and 310 to 1,091 with a memory of 3,333 rounds."""
    both = {"keeps": ("linucb", {}), "forgets": ("linucb", {"forget": 0.9997})}
    world, seeds = Moving("worst-becomes-best", 20_000), range(10_000, 10_003)
    found = dpb.run(world, both, seeds=seeds, alpha=1.0)
    last = found.summary()["regret"]
    assert last["forgets"] < 0.5 * last["keeps"]
