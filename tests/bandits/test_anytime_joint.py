"""`anytime-joint` learns at any dimension without tuning, and is not trapped where contexts differ."""

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import worlds
from dpbandit.learners.pair import ALIKE, CLOSE, DIFFERENT

BUDGET = {"epsilon": 2.0, "delta": 1e-5}
SEEDS = range(10_000, 10_012)
CLICKS = {"reward_range": (0.0, 1.0), "rewards": "clicks"}


def shares_of_random(world, seeds, **given):
    """Regret of each seed over that of random play."""
    both = {"it": ("anytime-joint", given), "random": ("random", {})}
    found = dpb.run(world, both, horizon=10_000, seeds=seeds, record=[], **BUDGET).frame()
    last = found.pivot(index="seed", columns="algorithm", values="regret")
    return (last["it"] / last["random"]).to_numpy()


# Measured on these seeds: 0.07, 0.07, 0.60 and 0.74 of random play.
@pytest.mark.parametrize(("dim", "most"), [(2, 0.12), (5, 0.12), (50, 0.7), (100, 0.85)])
def test_it_learns_at_any_dimension_without_tuning(dim, most):
    seeds = SEEDS if dim < 50 else SEEDS[:3]
    shares = shares_of_random(worlds.Synthetic(dim=dim), seeds, reward_range=(-0.5, 1.5))
    assert shares.mean() < most


def test_it_is_not_trapped_by_arms_without_features():
    """Of runs that lock in on a wrong arm more than a third of random play's regret is left."""
    shares = shares_of_random(worlds.Bernoulli(10), range(10_000, 10_040), **CLICKS)
    assert shares.mean() < 0.15
    assert (shares > 1 / 3).sum() <= 5


@pytest.mark.parametrize(
    ("world", "alike"), [(worlds.Bernoulli(6), DIFFERENT), (worlds.Synthetic(dim=3), ALIKE)]
)
def test_whether_contexts_are_alike_is_decided_by_releases_and_both_engines_agree(world, alike):
    """Where they differ and come close to a constant, both priors go on competing."""
    episode = world.episode(10_001)
    pool, block = np.asarray(episode.public_contexts), episode.block(1_000)
    given = {"dim": world.dim, "epsilon": 30.0, "delta": 1e-5, "seed": 3}
    given |= {"reward_range": (-0.5, 1.5)}
    one, two = (dpb.make("anytime-joint", backend=b, **given) for b in ("core", "reference"))
    for t in range(1_000):
        slate = pool[block.shown[t]]
        arm = one.select(slate)
        assert arm == two.select(slate)
        for bandit in (one, two):
            bandit.update(slate[arm], block.rewards[t, arm])
    assert np.abs(one.theta - two.theta).max() < 1e-9
    fields, d = one.engine.fields(), world.dim
    assert fields["alike"][0] == alike
    assert float(fields["prior_second"][:d, d] @ fields["constant"]) > CLOSE
