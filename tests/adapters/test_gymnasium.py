"""Our worlds as Gymnasium environments."""

import copy
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import dpbandit as dpb
from dpbandit.adapters import WorldEnv
from dpbandit.errors import NormError, OptionError


@pytest.mark.parametrize(
    "world",
    [
        dpb.worlds.Synthetic(arms=30, dim=3, shown=4),
        dpb.worlds.Bernoulli(arms=3),
        dpb.worlds.Drifting(),
        dpb.worlds.Degenerate(),
        dpb.worlds.Arrays(np.full((5, 2, 3), 0.5), np.ones((5, 2))),
    ],
    ids=lambda world: type(world).__name__,
)
def test_gymnasiums_own_checker_finds_nothing(world):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(WorldEnv(world), skip_render_check=True)


def test_an_episode_is_what_run_plays_with_that_seed():
    world, rounds = dpb.worlds.Synthetic(arms=50, dim=4, shown=5), 700  # more than two blocks
    env, bandit = WorldEnv(world, rounds=rounds), dpb.make("linucb", dim=4, seed=3)
    contexts, _ = env.reset(seed=3)
    reward, regret, over = 0.0, 0.0, False
    while not over:
        arm = bandit.select(contexts)
        chosen = contexts[arm]
        contexts, earned, terminated, over, info = env.step(arm)
        assert not terminated
        bandit.update(chosen, earned)
        reward, regret = reward + earned, regret + info["regret"]
    row = dpb.run(world, ["linucb"], horizon=rounds, seeds=[3], workers=1).summary().loc["linucb"]
    assert (reward, regret) == pytest.approx((row["reward"], row["regret"]))
    with pytest.raises(OptionError, match="reset"):
        env.step(0)


def test_copies_of_an_environment_go_on_alike():
    env = WorldEnv(dpb.worlds.Synthetic(arms=30, dim=3, shown=4))
    env.reset(seed=1)
    twin = copy.deepcopy(env)
    for _ in range(300):
        one, other = env.step(2), twin.step(2)
        assert one[1] == other[1]
        assert np.array_equal(one[0], other[0])


def test_it_takes_gymnasiums_wrappers_and_vectors():
    made = [lambda: WorldEnv(dpb.worlds.Bernoulli(arms=3))] * 2
    vector = gymnasium.vector.SyncVectorEnv(made)
    contexts, _ = vector.reset(seed=[1, 2])
    assert contexts.shape == (2, 3, 3)
    _, rewards, _, _, info = vector.step(np.array([0, 1]))
    assert rewards.shape == (2,)
    assert set(info) == {"regret", "_regret"}
    limited = gymnasium.wrappers.TimeLimit(made[0](), 2)
    limited.reset(seed=0)
    assert [limited.step(0)[3] for _ in range(2)] == [False, True]


def test_reset_without_a_seed_is_another_episode_and_reproducible():
    env = WorldEnv(dpb.worlds.Synthetic(arms=30, dim=3, shown=4))
    runs = []
    for _ in range(2):
        env.reset(seed=1)
        runs.append([env.reset()[0], env.reset()[0]])
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0][0], runs[0][1])


def test_mistakes_are_named():
    env = WorldEnv(dpb.worlds.Arrays(np.full((5, 2, 3), 7.0), np.ones((5, 2))))
    with pytest.raises(NormError, match="max_norm"):
        env.reset(seed=0)
    with pytest.raises(OptionError, match="5 rounds"):
        WorldEnv(env.world, rounds=6)
    env = WorldEnv(env.world, max_norm=20.0)
    env.reset(seed=0)
    with pytest.raises(OptionError, match="arms 0 to 1"):
        env.step(2)
