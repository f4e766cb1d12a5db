"""dpbandit's algorithms in river's evaluation loops."""

import numpy as np
import pytest
from river import bandit, stats

import dpbandit as dpb
from dpbandit.adapters import RiverPolicy, WorldEnv
from dpbandit.errors import BudgetError, OptionError, ShapeError

PRIVATE = {"epsilon": 2.0, "delta": 1e-5, "reward_range": (0, 1), "seed": 1}


def clicks(rounds, seed=0):
    """A log drawn uniformly: in the evening "film" is worth 0.9 and "news" 0.1, in the morning the reverse."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        evening, arm = float(rng.random() < 0.5), str(rng.choice(["film", "news"]))
        worth = 0.9 if (arm == "film") == (evening == 1.0) else 0.1
        yield ["film", "news"], {"evening": evening, "noon": 0.5}, arm, bool(rng.random() < worth)


def test_rivers_offline_loop_with_contexts():
    random, n_random = bandit.evaluate_offline(bandit.RandomPolicy(seed=1), clicks(2_000))
    ours, n_ours = bandit.evaluate_offline(
        RiverPolicy("anytime", max_norm=2.0, **PRIVATE), clicks(2_000)
    )
    assert n_random > 900
    assert n_ours > 900
    assert random.get() / n_random == pytest.approx(0.5, abs=0.05)
    assert ours.get() / n_ours > 0.8  # the best there is: 0.9


def test_rivers_loop_over_an_environment_of_ours():
    env = WorldEnv(dpb.worlds.Bernoulli(means=[0.1, 0.2, 0.9]), rounds=400)
    policies = [
        bandit.RandomPolicy(seed=1),
        RiverPolicy("private-ucb", horizon=400, epsilon=4.0, reward_range=(0, 1), seed=1),
    ]
    steps = list(bandit.evaluate(policies, env, n_episodes=2, seed=0, reward_stat=stats.Mean()))
    assert len(steps) == 2 * 2 * 400
    last = {(step["episode"], step["policy_idx"]): step["reward_stat"] for step in steps}
    for episode in (0, 1):
        assert last[episode, 0] == pytest.approx(0.4, abs=0.1)
        assert last[episode, 1] > 0.6


def test_it_is_the_same_bandit_as_dpbandits_own():
    policy = RiverPolicy("tree-gauss", horizon=50, **PRIVATE)
    mine = dpb.make("tree-gauss", dim=4, horizon=50, **PRIVATE)
    for evening in (0.0, 1.0) * 10:
        arm = policy.pull(["film", "news"], context={"evening": evening})
        rows = np.array([[1, evening, 0, 0], [0, 0, 1, evening]]) / np.sqrt(1 + evening)
        assert ["film", "news"][mine.select(rows)] == arm
        policy.update(arm, {"evening": evening}, 1.0)
        mine.update(rows[["film", "news"].index(arm)], 1.0)
    assert np.array_equal(policy.bandit.theta, mine.theta)


def test_no_clean_reward_is_kept_or_printed():
    policy = RiverPolicy("anytime", **PRIVATE)
    for _ in range(5):
        policy.update("film", {"evening": 1.0}, 0.123456)
    assert not policy._rewards
    assert "0.123" not in repr(policy) + str(policy.__dict__)
    assert "proven" in repr(policy)
    assert policy.ranking == ["film"]
    assert (policy._n, policy._counts["film"]) == (5, 5)


def test_clones_start_afresh_and_copies_of_what_has_learned_are_refused():
    policy = RiverPolicy("anytime", burn_in=1, features=["evening"], **PRIVATE)
    policy.update("film", {"evening": 1.0}, 1.0)
    clone = policy.clone()
    assert clone.bandit is None
    assert clone._get_params() == policy._get_params()
    with pytest.raises(BudgetError, match="spend their budget twice"):
        policy.clone(include_attributes=True)


def test_users_are_counted():
    policy = RiverPolicy("anytime", unit=("user", 1), **PRIVATE)
    for _ in range(3):
        policy.update("film", {"evening": 1.0}, 1.0, user="ada")
    assert (policy.bandit.rounds, policy.bandit.over_cap) == (1, 2)


def test_burn_in_is_rivers():
    policy = RiverPolicy("anytime", burn_in=2, **PRIVATE)
    pulled = []
    for _ in range(4):
        pulled.append(policy.pull(["film", "news"]))
        policy.update(pulled[-1], 0.0)
    assert pulled == ["film", "film", "news", "news"]


def test_what_the_first_round_did_not_have_is_an_error():
    policy = RiverPolicy("anytime", **PRIVATE)
    policy.pull(["film", "news"], context={"evening": 1.0})
    with pytest.raises(OptionError, match="arms="):
        policy.pull(["film", "chess"], context={"evening": 1.0})
    with pytest.raises(OptionError, match="features="):
        policy.pull(["film"], context={"noon": 1.0})
    with pytest.raises(ShapeError, match="OneHotEncoder"):
        policy.pull(["film"], context={"evening": "late"})
    with pytest.raises(ShapeError, match="not 4 things"):
        policy.update("film", {}, 1.0, 2.0)
    named = RiverPolicy(
        "anytime", arms=["film", "news", "chess"], features=["evening", "noon"], **PRIVATE
    )
    named.pull(["chess"], context={"noon": 1.0})
    assert named.bandit.dim == 9
