"""Lots with known probabilities: policy='sampled', and a holdout of random play."""

import warnings

import numpy as np
import pytest
from scipy.stats import chi2, norm

import dpbandit as dpb
from dpbandit.errors import OptionError, PropensityError, SaveError
from dpbandit.model import ReleasedModel
from dpbandit.policies import SAMPLED, View
from dpbandit.policies.thompson import chances

KINDS = [
    ("anytime", {"policy": "sampled"}),
    ("anytime-joint", {"policy": "sampled"}),
    ("anytime", {"holdout": 0.3}),
    ("linucb", {"holdout": 0.3}),
    ("anytime", {"policy": "sampled", "holdout": 0.2, "backend": "reference"}),
]


def made(name, options, seed=3):
    return dpb.make(
        name, dim=3, epsilon=1.0, delta=1e-5, reward_range=(-1, 1), seed=seed, **options
    )


def learned(name, options, rounds=60):
    """A bandit that has learned a little, and a slate it is undecided about."""
    rng = np.random.default_rng(2)
    bandit = made(name, options)
    for _ in range(rounds):
        x = rng.normal(size=(4, 3))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        arm = bandit.select(x)
        bandit.update(x[arm], float(x[arm, 0]))
    slate = np.array([[0.8, 0.1, 0.1], [0.8, 0.3, -0.2], [0.8, -0.2, 0.4], [0.1, 0.9, 0.1]])
    return bandit, slate


def agrees(arms, probabilities):
    """χ² of counts against probabilities; a right one fails once in 10,000."""
    expected = probabilities * len(arms)
    likely = expected > 5
    seen = np.bincount(arms, minlength=len(probabilities))
    rest = expected[~likely].sum()
    square = ((seen - expected)[likely] ** 2 / expected[likely]).sum()
    assert seen[~likely].sum() <= rest + 5 * np.sqrt(rest) + 5
    assert square < chi2.ppf(1 - 1e-4, max(likely.sum() - 1, 1)), (seen, expected)


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_they_are_the_frequencies_of_select_and_of_an_exported_model(name, options, tmp_path):
    bandit, slate = learned(name, options)
    found = bandit.propensities(slate)
    assert found.probabilities.sum() == pytest.approx(1.0)
    assert found.standard_errors.tolist() == [0.0] * 4
    assert 0 < found.probabilities.max() < 0.95
    plays = 300 if options.get("backend") else 8_000
    agrees([bandit.select(slate) for _ in range(plays)], found.probabilities)
    bandit.export(tmp_path / "model.json")
    model = dpb.load(tmp_path / "model.json")
    assert np.array_equal(model.propensities(slate).probabilities, found.probabilities)
    agrees([model.choose(slate) for _ in range(2_000)], found.probabilities)


def test_a_slate_is_drawn_without_putting_back():
    """Of k arms the second is drawn from what is left, in the same proportions."""
    bandit, slate = learned("anytime", {"policy": "sampled"})
    p = bandit.propensities(slate).probabilities
    pairs = [tuple(bandit.select(slate, k=2)) for _ in range(5_000)]
    first = int(p.argmax())
    rest = p.copy()
    rest[first] = 0.0
    agrees([two for one, two in pairs if one == first], rest / rest.sum())


@pytest.mark.parametrize("gap", [0.0, 0.05, 0.3, 1.0])
def test_two_arms_are_thompson_sampling(gap):
    view = View(np.array([gap, 0.0]), np.diag([0.2, 0.1]))
    found = SAMPLED.propensities(view, np.eye(2), 0.7, draws=1, seed=None, name="")
    exact = norm.cdf(gap / (0.7 * np.sqrt(0.3)))
    assert found.probabilities[0] == pytest.approx(exact, abs=2e-4)


def test_many_arms_without_features_are_near_thompson_sampling():
    rng = np.random.default_rng(0)
    view = View(rng.normal(size=8), np.diag(rng.uniform(0.2, 2.0, size=8)))
    exact = chances(view, 1.0, np.eye(8), draws=20_000, seed=1).probabilities
    found = SAMPLED.propensities(view, np.eye(8), 1.0, draws=1, seed=None, name="").probabilities
    assert np.abs(found - exact).sum() / 2 < 0.2  # in total variation


def test_equal_arms_are_equally_likely_and_no_width_means_certainty():
    view = View(np.array([1.0, 0.0]), np.zeros((2, 2)))
    arms = np.array([[0.5, 0.1], [0.5, 0.1], [0.4, 0.1]])
    found = SAMPLED.propensities(view, arms, 1.0, draws=1, seed=None, name="")
    assert found.probabilities.tolist() == [0.5, 0.5, 0.0]
    fresh = made("anytime", {"policy": "sampled"})
    assert fresh.propensities(np.eye(3)).probabilities == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("backend", ["core", "reference"])
@pytest.mark.parametrize("top", [1e-6, 1.0, 1e6, 1e9])
@pytest.mark.parametrize(
    ("name", "options"), [("anytime", {"policy": "sampled"}), ("linucb", {"holdout": 0.1})]
)
def test_the_same_arm_twice_is_equally_likely_in_any_currency(name, options, top, backend):
    """Rounding is a part of a score: of a million it once told twins apart, and not for all alike."""
    rng = np.random.default_rng(0)
    bandit = dpb.make(
        name, dim=40, epsilon=1.0, delta=1e-6, reward_range=(0, top), seed=1, backend=backend,
        **options,
    )  # fmt: skip
    x = rng.normal(size=(200, 40))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    bandit.update(x, top * (0.5 + 0.3 * x[:, 0]))
    for slate in x.reshape(20, 10, 40):
        both = np.concatenate([slate, slate[:5]])
        p = bandit.propensities(both).probabilities
        assert p[:5] == pytest.approx(p[10:], rel=1e-9)
        plays = [bandit.select(both) for _ in range(20)]
        assert np.prod(p[plays]) > 0
        assert (p[plays] > p.max() / 1e3).mean() > 0.5  # played where it was said to be likely


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_decide_is_select_with_its_propensity(name, options):
    bandit, slate = learned(name, options)
    other, _ = learned(name, options)
    for _ in range(5):
        p = bandit.propensities(slate).probabilities
        arm, propensity, error = bandit.decide(slate)
        assert (arm, propensity, error) == (other.select(slate), p[arm], 0.0)


def test_a_log_of_lots_values_another_policy():
    """`dpb.replay` finds what random play earns from the log of a bandit that learned."""
    rng = np.random.default_rng(0)
    arms = np.eye(3)
    bandit = dpb.make(
        "anytime", dim=3, epsilon=4.0, delta=1e-5, reward_range=(0, 1), policy="sampled",
        holdout=0.1, seed=1,
    )  # fmt: skip
    rows = []
    for _ in range(3_000):
        arm, propensity, _ = bandit.decide(arms)
        reward = float(rng.random() < (0.2, 0.5, 0.6)[arm])
        bandit.update(arms[arm], reward)
        rows.append({"x": 1.0, "arm": str(arm), "reward": reward, "p": propensity})
    weights = np.array([(1 / 3) / row["p"] * row["reward"] for row in rows])
    error = weights.std() / np.sqrt(len(weights))
    assert abs(weights.mean() - 1.3 / 3) < 3.5 * error
    assert error < 0.03  # weights are at most 1/holdout


def test_a_holdout_is_a_share_of_lots_and_repeats_with_its_seed():
    slate = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])

    def arms(seed, holdout):
        bandit = dpb.make("linucb", dim=3, holdout=holdout, seed=seed)
        bandit.update(slate[0], 1.0)
        return [bandit.select(slate) for _ in range(2_000)]

    assert arms(0, 0.2) == arms(0, 0.2) != arms(1, 0.2)
    assert np.mean(arms(0, 0.2)) == pytest.approx(0.1, abs=0.03)
    assert set(arms(0, 0.0)) == {0}
    assert np.mean(arms(0, 1.0)) == pytest.approx(0.5, abs=0.05)


def test_a_saved_bandit_goes_on_with_the_same_lots(tmp_path):
    bandit, slate = learned("anytime", {"policy": "sampled", "holdout": 0.2})
    bandit.save(tmp_path / "bandit.npz")
    receipt = bandit.receipt()
    ours = [bandit.select(slate) for _ in range(50)]
    other = dpb.load(tmp_path / "bandit.npz", receipt=receipt)
    assert [other.select(slate) for _ in range(50)] == ours
    assert other.get_params()["policy"] == "sampled"
    assert other.get_params()["holdout"] == 0.2


def test_bounds_alone_still_have_none_and_say_what_has():
    with pytest.raises(PropensityError, match=r"holdout=0\.02.*policy='sampled'"):
        made("anytime", {}).decide(np.eye(3))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("anytime", {"policy": "thompson"}, "no policy is called 'thompson'"),
        ("anytime-joint", {"policy": "ucb"}, "no policy is called 'ucb'"),
        ("anytime", {"policy": "sampled", "explore": "neglected"}, "does not go with it"),
        ("anytime", {"policy": "sampled", "alpha": "theory"}, "width of a bound"),
        ("linucb", {"policy": "sampled"}, "has no option 'policy'"),
        ("linucb", {"holdout": 1.5}, "from 0 to 1"),
        ("linucb", {"holdout": -0.1}, "holdout must be"),
    ],
)
def test_what_does_not_go_together_is_refused(name, options, words):
    with pytest.raises(OptionError, match=words):
        made(name, options)


def test_a_model_with_an_impossible_holdout_is_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record = made("linucb", {"holdout": 0.1}).model().to_record()
    assert ReleasedModel.from_record(record).holdout == 0.1
    with pytest.raises(SaveError, match="holdout is a share"):
        ReleasedModel.from_record({**record, "holdout": 3.0})
