"""linucb with forget: what is kept, and who refuses it."""

import numpy as np
import pandas as pd
import pytest

import dpbandit as dpb
from dpbandit import _core
from dpbandit.errors import OptionError

GAMMA = 0.9


@pytest.mark.parametrize("backend", ["core", "reference"])
def test_every_round_leaves_a_share_of_the_design_and_of_the_moments_and_all_of_the_ridge(
    backend, tmp_path
):
    rng = np.random.default_rng(0)
    xs, rs = rng.normal(size=(30, 3)) / 4, rng.normal(size=30)
    bandit = dpb.make("linucb", dim=3, ridge=0.5, forget=GAMMA, seed=1, backend=backend)
    for x, r in zip(xs[:20], rs[:20], strict=True):
        bandit.update(x, r)
    bandit.save(tmp_path / "half.npz")
    bandit = dpb.load(tmp_path / "half.npz")
    for x, r in zip(xs[20:], rs[20:], strict=True):
        bandit.update(x, r)
    weights = GAMMA ** np.arange(29, -1, -1)
    gram = 0.5 * np.eye(3) + (xs * weights[:, None]).T @ xs
    theta = np.linalg.solve(gram, (xs * weights[:, None]).T @ rs)
    np.testing.assert_allclose(bandit.theta, theta, atol=1e-12)
    np.testing.assert_allclose(bandit.engine.model()["matrix"], np.linalg.inv(gram), atol=1e-12)


def test_without_it_nothing_is_forgotten():
    plain, one = (dpb.make("linucb", dim=2, seed=0, **given) for given in ({}, {"forget": 1}))
    for bandit in (plain, one):
        for _ in range(50):
            bandit.update([0.6, 0.8], 0.5)
    assert (plain.theta == one.theta).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"forget": 0.0}, "forget must be a finite number above 0"),
        ({"forget": 1.01}, "at most be 1"),
        ({"forget": "slowly"}, "forget must be"),
        ({"forget": 0.99, "alpha": "theory"}, "for a θ that stays"),
    ],
)
def test_bad_options_are_named(given, words):
    with pytest.raises(OptionError, match=words):
        dpb.make("linucb", dim=2, **given)


def test_what_has_noise_does_not_forget():
    spec = dpb.make("tree-gauss", dim=2, epsilon=1.0, delta=1e-5, horizon=9, seed=0).spec
    with pytest.raises(ValueError, match="in the clear alone"):
        _core.Engine({**spec, "forget": 0.99})
    with pytest.raises(OptionError, match="no option 'forget'"):
        dpb.make("tree-gauss", dim=2, epsilon=1.0, delta=1e-5, horizon=9, forget=0.99)


def test_a_log_has_no_ages():
    log = pd.DataFrame({"context": [[1.0, 0.0]], "reward": [1.0]})
    with pytest.raises(OptionError, match="a log's sums have none"):
        dpb.warm_start(log, "linucb", dim=2, forget=0.99)
