"""Attacks. Seeds are fixed; the confidence of every bound is stated, and with it the expected
number of false alarms."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import dpbandit as dpb
from dpbandit.auditor.bounds import Bound, lower_bound
from dpbandit.auditor.scores import discriminant, scores_of_releases
from dpbandit.budget import epsilon_of, mu_of
from dpbandit.errors import OptionError

pytestmark = pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning")


def per_node_releases(rounds, per_level):
    """The 'exact Δ, per-node accounting' mutant in closed form: d = 1, x = 1, λ = 1, first reward
    changed by 2."""
    t = np.arange(1, rounds + 1)
    start = t - (t & -t)
    shift = 2 * (1 / (1 + t) - np.where(start > 0, 1 / (1 + start), 0))
    return np.zeros((rounds, 1)), shift[:, None], 2 / (1 + t) * per_level


def test_the_attack_refutes_per_node_accounting_with_laplace_noise():
    v0, v1, scales = per_node_releases(16, math.log2(16) / 2.0)
    found = lower_bound(*scores_of_releases("laplace", v0, v1, scales, runs=200_000), delta=0.0)
    assert found.epsilon > 2.2, "claimed 2, truly 3.62"


def test_the_attack_refutes_per_node_accounting_with_gaussian_noise():
    v0, v1, scales = per_node_releases(256, math.sqrt(9) / mu_of(epsilon=2.0, delta=0.1))
    found = lower_bound(*scores_of_releases("gaussian", v0, v1, scales, runs=100_000), delta=0.1)
    assert 2.1 < found.epsilon < 2.41, "claimed 2, truly 2.40"


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "laplace-l2"])
def test_the_attack_on_one_release_finds_nearly_all_there_is_and_never_more(noise):
    d = 1 if noise == "laplace" else 3
    v0, v1 = np.zeros((1, d)), np.zeros((1, d))
    v1[0, 0] = 1.0
    found = lower_bound(*scores_of_releases(noise, v0, v1, [1.0], runs=200_000), delta=0.01)
    if noise == "gaussian":
        true = epsilon_of(mu=1.0, delta=0.01)
    elif noise == "laplace":
        true = 1 + 2 * math.log(1 - 0.01)  # δ = 1 − e^{(ε−1)/2}
    else:
        true = 1.0
    assert found.epsilon <= true * 1.0001 + 1e-9
    assert found.epsilon > 0.75 * true if noise != "laplace-l2" else found.epsilon > 0.3


def test_the_bound_is_valid_when_there_is_nothing_to_find():
    # 40 tries at 99.9%: 0.04 false alarms expected; 2 or more have probability 8e-4
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        alarms += lower_bound(rng.normal(size=4000), rng.normal(size=4000), delta=1e-3).epsilon > 0
    assert alarms < 2


def test_the_attack_on_fresh_noise_and_on_dgs_figure_is_far_above_the_claim():
    figure = dpb.audit("dgs-figure", epsilon=2.0, delta=0.1, horizon=128, runs=20_000)
    assert not figure.holds
    assert figure.bound.epsilon > 6
    published = dpb.audit("private-linucb-published", epsilon=2.0, horizon=64, runs=100_000)
    assert published.bound.epsilon > 3


@pytest.mark.parametrize(
    "name",
    [
        "private-linucb",
        "tree-gauss",
        "dgs",
        "local",
        "toeplitz",
        "private-ts",
        "adac-oful",
        "anytime",
    ],
)
def test_proven_algorithms_are_not_refuted_and_the_attack_is_not_blind(name):
    # 8 audits at 99.9%: 0.008 false alarms expected
    runs = 4_000 if name == "anytime" else 20_000  # its rounds take thirty times as long
    result = dpb.audit(name, epsilon=2.0, delta=0.1, horizon=32, runs=runs, seed=1)
    assert result.holds, str(result)
    assert result.bound.epsilon > 1.0
    assert result.claim.status == "proven"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["private-linucb", "tree-gauss", "dgs"])
def test_twenty_seeds_find_nothing_above_the_claim(name):
    # 60 audits in all at 99.9%: 0.06 false alarms expected
    for seed in range(20):
        result = dpb.audit(name, epsilon=2.0, delta=0.1, horizon=256, runs=100_000, seed=seed)
        assert result.holds, f"seed {seed}: {result}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["private-linucb", "tree-gauss", "dgs", "local", "toeplitz", "adac-oful", "anytime"]
)
def test_ten_thousand_runs_of_the_shipped_object_with_real_noise_find_nothing(name):
    result = dpb.audit(name, epsilon=2.0, delta=0.1, horizon=16, runs=10_000, real=True)
    assert result.holds, str(result)
    assert result.claim.noise == "real"
    assert result.bound.epsilon > 0.8


def test_a_user_is_attacked_with_all_rewards_changed():
    one = dpb.audit("tree-gauss", epsilon=2.0, delta=0.1, horizon=16, runs=40_000, unit=("user", 4))
    assert one.holds
    assert one.bound.epsilon > 1.0
    assert one.claim.unit == "one user with at most 4 rewards"
    changed = f"rewards {one.position} to {one.position + 3}, all of one unit, changed"
    assert changed in str(one)
    assert one.to_dict()["changed"] == 4


def test_the_shipped_object_with_real_noise_is_attacked_too_and_scores_as_the_simulated_one():
    real = dpb.audit("tree-gauss", epsilon=3.0, delta=0.1, horizon=4, runs=1_500, real=True)
    assert real.holds
    assert real.noise == "real"
    assert real.bound.epsilon > 0.8
    engine = dpb.audit("tree-gauss", epsilon=3.0, delta=0.1, horizon=4, runs=20_000)
    # a likelihood ratio of μ-GDP is N(∓μ²/2, μ²); Kolmogorov–Smirnov at 1e-5 each
    from scipy.stats import kstest

    mu = mu_of(epsilon=3.0, delta=0.1)
    for result in (real, engine):
        assert kstest(result.scores0, norm(-(mu**2) / 2, mu).cdf).pvalue > 1e-5
        assert kstest(result.scores1, norm(mu**2 / 2, mu).cdf).pvalue > 1e-5


def test_an_algorithm_of_ones_own_is_attacked_through_its_theta():
    class Leaky:
        """Adds far too little noise to the mean reward."""

        def __init__(self, *, seed, **_):
            self.rng, self.total, self.n = np.random.default_rng(seed), 0.0, 0
            self.theta = np.zeros(1)

        def select(self, contexts):
            return 0

        def update(self, context, reward):
            self.total += reward
            self.n += 1
            self.theta = np.array([self.total / self.n + 0.05 * self.rng.normal()])

    dpb.register("leaky-test", Leaky, replace=True)
    result = dpb.audit("leaky-test", epsilon=1.0, delta=1e-3, horizon=4, runs=600)
    assert not result.holds
    assert result.bound.epsilon > 2
    assert "trained" in result.statistic
    assert result.delta == 1e-3  # it has no claim of its own: judged by what was asked for


def test_the_trained_statistic_separates_what_can_be_separated():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(500, 6)), rng.normal(size=(500, 6)) + np.array([0, 0, 2.0, 0, 0, 0])
    direction = discriminant(a, b)
    assert np.abs(direction).argmax() == 2


def test_an_audit_says_what_it_found_and_draws_it(tmp_path):
    result = dpb.audit("local", epsilon=1.0, horizon=4, runs=5_000)
    assert "no violation found" in str(result)
    assert result.to_dict()["found_epsilon"] == result.bound.epsilon
    result.plot().savefig(tmp_path / "audit.png")
    assert (tmp_path / "audit.png").stat().st_size > 10_000
    assert isinstance(result.bound, Bound)


def test_real_runs_of_an_algorithm_without_noise_are_told_apart():
    result = dpb.audit("linucb", epsilon=2.0, horizon=4, runs=400, real=True)
    assert not result.holds


def test_bad_calls_are_named():
    with pytest.raises(OptionError, match="runs"):
        dpb.audit("local", runs=5)
    with pytest.raises(OptionError, match="confidence"):
        dpb.audit("local", confidence=1.0, horizon=4, runs=100)


@pytest.mark.parametrize(("noise", "delta"), [("laplace", 1e-5), ("gaussian", 0.1)])
@pytest.mark.parametrize(
    ("name", "options"), [("private-ucb", {}), ("dp-klucb", {"first_release": 2})]
)
def test_plain_arms_are_not_refuted_one_or_several_and_the_attack_is_not_blind(
    name, options, noise, delta
):
    # 8 audits at 99.9%, seed fixed: each has a false-alarm rate of 0.1%, 0.008 expected in all
    for arms in (1, 3):
        result = dpb.audit(
            name,
            **options,
            epsilon=2.0,
            delta=delta,
            horizon=16,
            dim=arms,
            runs=40_000,
            noise=noise,
            seed=1,
        )
        assert result.holds, str(result)
        assert result.bound.epsilon > 1.0
        assert result.claim.status == "proven"


@pytest.mark.parametrize(
    ("name", "options"), [("private-ucb", {}), ("dp-klucb", {"first_release": 1})]
)
def test_plain_arms_as_they_ship_with_real_noise_are_attacked_too(name, options):
    result = dpb.audit(name, **options, epsilon=3.0, horizon=4, dim=2, runs=1_000, real=True)
    assert result.holds, (
        "99.9% confidence: a false-alarm rate of 0.1%, and the noise is new every time"
    )
    assert result.bound.epsilon > 0.5
