"""With which probability arms are played, where that can be said."""

import time

import numpy as np
import pytest
from scipy.stats import norm

import dpbandit as dpb
from dpbandit.errors import NotFiniteError, OptionError, PropensityError
from dpbandit.policies import View
from dpbandit.policies.thompson import _highest as highest
from dpbandit.policies.thompson import chances


def unit_rows(rng, count, dim):
    x = rng.normal(size=(count, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def learned():
    """Thompson sampling that has learned a little, and a slate it is still undecided about."""
    rng = np.random.default_rng(2)
    bandit = dpb.make("private-ts", dim=3, epsilon=20.0, horizon=200, alpha=4.0, seed=3)
    for _ in range(30):
        x = unit_rows(rng, 4, 3)
        arm = bandit.select(x)
        bandit.update(x[arm], float(x[arm, 0]))
    return bandit, unit_rows(np.random.default_rng(5), 5, 3)


def test_they_are_the_frequencies_of_select(learned):
    bandit, x = learned
    found = bandit.propensities(x, draws=20_000, seed=0)
    assert found.probabilities.sum() == pytest.approx(1.0)
    assert found.probabilities.max() < 0.9  # undecided
    plays = 20_000
    played = np.bincount([bandit.select(x) for _ in range(plays)], minlength=len(x))
    expected = found.probabilities * plays
    likely = expected > 10
    chi_square = ((played - expected)[likely] ** 2 / expected[likely]).sum()
    assert chi_square < 25  # χ² with at most 5 degrees of freedom: exceeded once in 7,000


def test_the_standard_error_is_honest(learned):
    """Against a long run, each of 5 arms in 40 short ones is off by standard errors with mean square 1."""
    bandit, x = learned
    truth = bandit.propensities(x, draws=200_000, seed=99).probabilities
    runs = [bandit.propensities(x, draws=400, seed=seed) for seed in range(40)]
    likely = truth > 0.01
    scores = np.array(
        [(run.probabilities - truth)[likely] / run.standard_errors[likely] for run in runs]
    )
    assert 0.7 < np.sqrt((scores**2).mean()) < 1.4


def test_lines_need_fewer_draws_than_counting(learned):
    bandit, x = learned
    found = bandit.propensities(x, draws=1_000, seed=0)
    counting = np.sqrt(found.probabilities * (1 - found.probabilities) / 1_000)
    assert (found.standard_errors <= counting).all()
    assert found.standard_errors.max() < 0.8 * counting.max()


def test_two_arms_are_exact(learned):
    bandit, x = learned
    found = bandit.propensities(x[:2])
    apart = x[0] - x[1]
    spread = 4.0 * np.sqrt(apart @ bandit.model().view.matrix @ apart)
    assert found.probabilities[0] == pytest.approx(norm.cdf(apart @ bandit.theta / spread))
    assert found.standard_errors.tolist() == [0.0, 0.0]
    assert bandit.propensities(x[:1]).probabilities.tolist() == [1.0]


def test_equal_rows_share_as_ties_are_broken_by_lot(learned):
    bandit, x = learned
    three = bandit.propensities(x[[0, 1, 0]]).probabilities
    two = bandit.propensities(x[:2]).probabilities
    assert three == pytest.approx([two[0] / 2, two[1], two[0] / 2])


def test_the_highest_of_many_lines_are_those_of_a_comparison_of_all():
    rng = np.random.default_rng(3)
    heights, slopes = rng.normal(size=(20, 60)), rng.normal(size=(20, 60))
    slopes[:, 7] = slopes[:, 8]  # parallel: the higher one, if any
    arms, low, high = highest(heights, slopes)
    assert np.bincount(arms, minlength=60).max() <= 20
    between = np.clip(low, -1e3, 1e3) / 2 + np.clip(high, -1e3, 1e3) / 2
    assert (high > low).all()
    row = np.cumsum(low == -np.inf) - 1  # each begins with the line that is highest far left
    assert row[-1] == 19
    scores = heights[row] + between[:, None] * slopes[row]
    assert np.array_equal(scores.argmax(axis=1), arms)


def test_a_thousand_arms_take_a_moment():
    """Every one compared with every other took a minute: a caller of the service could ask for
    that."""
    rng = np.random.default_rng(0)
    began = time.process_time()
    found = chances(
        View(np.zeros(3), np.eye(3)), 1.0, rng.normal(size=(1000, 3)), draws=1000, seed=0
    )
    assert found.probabilities.sum() == pytest.approx(1.0)
    assert time.process_time() - began < 10


def test_one_dimension_has_no_error_at_all():
    view = View(np.array([0.3]), np.array([[0.25]]))
    found = chances(view, 1.0, np.array([[1.0], [0.5], [-1.0]]), draws=50, seed=0)
    assert found.probabilities == pytest.approx([norm.cdf(0.6), 0.0, norm.cdf(-0.6)])
    assert found.standard_errors.max() < 1e-8  # the root of what rounding leaves


def test_asking_changes_nothing_and_costs_nothing(learned):
    bandit, x = learned
    before = (
        bandit.receipt(),
        bandit.spent.epsilon,
        bandit.engine.decisions,
        bandit.theta.tolist(),
    )
    bandit.propensities(x)
    assert (
        bandit.receipt(),
        bandit.spent.epsilon,
        bandit.engine.decisions,
        bandit.theta.tolist(),
    ) == before


def test_an_exported_model_has_the_same(learned, tmp_path):
    bandit, x = learned
    bandit.export(tmp_path / "model.json")
    model = dpb.load(tmp_path / "model.json")
    assert model.propensities(x, seed=1).probabilities == pytest.approx(
        bandit.propensities(x, seed=1).probabilities
    )


def test_random_play_is_even():
    found = dpb.make("random", dim=2, seed=0).propensities(np.zeros((4, 2)))
    assert found.probabilities.tolist() == [0.25] * 4


@pytest.mark.parametrize(
    "name", ["linucb", "anytime", "dgs", "toeplitz", "joint", "local", "adac-oful"]
)
def test_ucb_has_none_and_says_so(name):
    bandit = dpb.make(name, dim=2, epsilon=1.0, delta=1e-5, horizon=10, seed=0)
    with pytest.raises(PropensityError, match="probability 1 and all others 0"):
        bandit.propensities(np.eye(2))


def test_what_cannot_be_said_is_refused(learned):
    bandit, x = learned
    with pytest.raises(OptionError, match="draws"):
        bandit.propensities(x, draws=0)
    with pytest.raises(NotFiniteError):
        bandit.propensities(x * np.nan)
    perturbed = dpb.make("private-ts", dim=3, epsilon=1.0, horizon=10, context_noise=0.1, seed=0)
    lots = dpb.make("linucb", dim=3, holdout=0.1, context_noise=0.5, seed=0)
    for bandit in (perturbed, lots):
        for call in (bandit.propensities, bandit.decide):
            with pytest.raises(PropensityError, match="context_noise"):
                call(x)


def test_a_log_of_thompson_sampling_values_another_policy():
    """Inverse propensity weighting of what private-ts logged: within three standard errors of the truth."""
    rng = np.random.default_rng(0)
    theta, slate = np.array([0.6, 0.2]), np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])
    bandit = dpb.make(
        "private-ts", dim=2, epsilon=8.0, alpha=1.0, horizon=300, reward_range=(0, 1), seed=1
    )
    weighted = []
    for _ in range(300):
        arm = bandit.select(slate)
        chance = bandit.propensities(slate, draws=200, seed=int(rng.integers(2**31))).probabilities[
            arm
        ]
        reward = float(rng.random() < slate[arm] @ theta)
        bandit.update(slate[arm], reward)
        weighted.append(
            (arm == 0) / chance * reward
        )  # the policy that always plays arm 0 earns 0.6 a round
    error = np.std(weighted) / np.sqrt(len(weighted))
    assert abs(np.mean(weighted) - 0.6) < 3 * error
