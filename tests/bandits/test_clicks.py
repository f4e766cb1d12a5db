"""rewards="clicks": variances from the released rate, and refusals."""

import math

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.errors import OptionError

GIVEN = {"dim": 10, "epsilon": 1.0, "delta": 1e-6, "seed": 0, "reward_range": (0, 1)}


@pytest.mark.parametrize("name", ["anytime", "anytime-joint"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rewards": "click"}, "'clicks'"),
        ({"rewards": 7}, "kind of rewards"),
        ({"rewards": "clicks", "reward_range": (-1, 2)}, r"reward_range=\(0, 2\)"),
        ({"rewards": "clicks", "reward_range": (-2, -1)}, r"reward_range=\(0, 1\)"),
        ({"rewards": "clicks", "reward_variance": 0.1}, "leave reward_variance out"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_do(name, options, words):
    with pytest.raises(OptionError, match=words):
        dpb.make(name, **{**GIVEN, **options})


def test_clicks_change_the_window_and_nothing_of_the_promise():
    for name, window in (("anytime", 0.5), ("anytime-joint", 1.0)):
        numbers, clicks = (dpb.make(name, **GIVEN, rewards=kind) for kind in ("numbers", "clicks"))
        assert clicks.spec["window"] == window
        # Numbers have two that ride along, so rounding is a hair more.
        assert clicks.spec["scale"] == pytest.approx(numbers.spec["scale"], rel=1e-8)
        assert clicks.claim == numbers.claim
        assert dpb.make(name, **GIVEN).spec["window"] == numbers.spec["window"] == 0.375


@pytest.mark.parametrize("width", [1.0, 40.0])
def test_the_rate_and_the_prior_follow_the_clicks(width):
    """Without noise the rate is the share of clicks, and the prior of differences half of it."""
    rng = np.random.default_rng(0)
    contexts = np.column_stack([np.ones(300), rng.normal(size=(300, 2)) / 9])
    given = {**GIVEN, "dim": 3, "epsilon": math.inf, "reward_range": (0, width), "max_norm": 3.0}
    bandit = dpb.make("anytime", **given, rewards="clicks", public_contexts=contexts)
    xs = contexts[rng.integers(300, size=40_000)]
    bandit.update(xs, width * (rng.random(40_000) < 0.03))
    fields = bandit.engine.fields()
    # its standard deviation is 0.0009, and one of them is added
    assert abs(float(fields["rate"][0]) / width - 0.031) < 0.005
    scatter = float(contexts.var(axis=0).sum())
    deviation = math.sqrt(scatter / fields["precision"][1, 1]) / width
    assert abs(deviation / 0.0155 - 1) < 0.2


def test_arms_without_features_keep_the_wide_prior():
    given = {**GIVEN, "public_contexts": np.eye(10), "first_release": 5}
    clicks, numbers = (dpb.make("anytime", **given, rewards=k) for k in ("clicks", "numbers"))
    for bandit in (clicks, numbers):
        bandit.update(np.eye(10), np.zeros(10))
        assert bandit.engine.fields()["releases"][0] > 0
    one, other = (bandit.engine.fields()["precision"] for bandit in (clicks, numbers))
    assert (one == other).all()


def test_clicks_are_learned_faster_when_known_to_be_clicks():
    """2%, T = 20,000: regret was 0.55 of what it is otherwise, ± 0.05."""
    both = {"numbers": ("anytime", {}), "clicks": ("anytime", {"rewards": "clicks"})}
    given = {"epsilon": 1.0, "delta": 1e-6, "reward_range": (0, 1), "record": [20_000]}
    seeds = range(10_000, 10_040)
    found = dpb.run(dpb.worlds.Clicks(0.02), both, horizon=20_000, seeds=seeds, **given)
    wide = found.frame().pivot_table(index="seed", columns="algorithm", values="regret")
    assert wide["clicks"].mean() < 0.8 * wide["numbers"].mean()


def test_a_saved_bandit_goes_on_alike(tmp_path):
    world = dpb.worlds.Clicks(0.2, dim=4)
    block = world.episode(0).block(600)
    given = {**GIVEN, "dim": 4, "first_release": 10, "public_contexts": block.pool}
    whole = dpb.make("anytime", **given, rewards="clicks")
    xs, rs = block.pool[block.shown[:, 0]], block.rewards[:, 0]
    whole.update(xs[:300], rs[:300])
    whole.save(tmp_path / "bandit")
    again = dpb.load(tmp_path / "bandit")
    for bandit in (whole, again):
        bandit.update(xs[300:], rs[300:])
    assert (whole.theta == again.theta).all()
    assert whole.engine.fields()["rate"] == again.engine.fields()["rate"]
