"""dp-accounting (Google): the test vectors that its wheel ships, put to our functions."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.importorskip(
    "dp_accounting", reason="dp-accounting is not installed: pip install 'dpbandit[audit]'"
)

import theirs
from dp_accounting import dp_event, gaussian_mechanism
from dp_accounting.pld import accountant, privacy_loss_mechanism
from dp_accounting.rdp import rdp_privacy_accountant
from theirs import OutOfScope

from dpbandit import budget
from dpbandit.privacy.grid import lattice_slack
from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
from dpbandit.release import Tree
from dpbandit.release.tree import levels_for

PACKAGE = "dp-accounting"
ADD = privacy_loss_mechanism.AdjacencyType.ADD
REMOVE = privacy_loss_mechanism.AdjacencyType.REMOVE
REPLACE = privacy_loss_mechanism.AdjacencyType.REPLACE


def our_epsilon(sigma, delta, tol=None):
    if not 0 < delta < 1:
        raise OutOfScope("δ is 0 or 1")
    return budget.epsilon_of(mu=1 / sigma, delta=delta)


def our_sigma(epsilon, delta, tol=None):
    if not 0 < delta < 1:
        raise OutOfScope("δ is 0 or 1")
    if epsilon == 0:
        raise OutOfScope("ε is 0")
    return 1 / budget.mu_of(epsilon=epsilon, delta=delta)


@pytest.fixture(scope="module")
def mechanisms():
    return theirs.shipped(PACKAGE, "dp_accounting/pld/privacy_loss_mechanism_test.py")


def test_the_gaussian_exchange_passes_their_tests():
    """ε ↔ σ over ten decades either way, and against their numerical accountant."""
    module = theirs.shipped(PACKAGE, "dp_accounting/gaussian_mechanism_test.py")
    names = theirs.methods(module.GaussianTest, "test")
    # Ours gives 10⁻¹⁰ of μ away each time, which near ε = 0 is more than their 10⁻⁷ of ε.
    looser = functools.partial(np.testing.assert_allclose, atol=1e-9)
    patches = [
        (gaussian_mechanism, "get_epsilon_gaussian", our_epsilon),
        (gaussian_mechanism, "get_sigma_gaussian", our_sigma),
        (np.testing, "assert_allclose", looser),
    ]
    found = theirs.judge(module.GaussianTest, names, patches)
    assert found == {"judged": 67, "not ours: δ is 0 or 1": 28, "not ours: ε is 0": 12}, found


@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e5])
def test_our_noise_is_never_below_theirs(epsilon, delta):
    """And above it by no more than what is given away on purpose."""
    exact = gaussian_mechanism.get_sigma_gaussian(epsilon, delta, tol=1e-15)
    ours = our_sigma(epsilon, delta)
    given_away = (
        1e-7 if epsilon * delta < 1e-14 else 1e-9
    )  # rounding weighs more where both are tiny
    assert exact * (1 - 1e-13) <= ours <= exact * (1 + given_away)
    spent = our_epsilon(exact, delta)
    assert spent >= gaussian_mechanism.get_epsilon_gaussian(exact, delta, tol=1e-15) * (1 - 1e-12)


class Ours:
    """A noise of ours behind the interface of their privacy losses."""

    noise = GAUSSIAN

    def __init__(self, scale, sensitivity=1, *_, sampling_prob=1.0, adjacency_type=ADD, **__):
        if sampling_prob != 1.0:
            raise OutOfScope("subsampling")
        self.scale, self.adjacency_type = scale, adjacency_type
        self.upper, self.lower = {
            ADD: (0.0, sensitivity),
            REMOVE: (-sensitivity, 0.0),
            REPLACE: (-sensitivity, sensitivity),
        }[adjacency_type]
        self.shift = float(self.lower - self.upper)

    def privacy_loss(self, x):
        """log p(x | one value) − log p(x | its neighbour)."""
        y, v0, v1 = (np.array([float(v)]) for v in (x, self.lower, self.upper))
        return self.noise.log_ratio(y, v0, v1, self.scale)


class OurGaussian(Ours):
    @property
    def standard_deviation(self):
        return self.scale

    def get_delta_for_epsilon(self, epsilon):
        if np.ndim(epsilon):
            epsilons = [e for e in epsilon if e >= 0]
            # Ours starts at ε = 0: what they ask below it is answered by them.
            theirs_too = THEIR_GAUSSIAN(self.scale, self.shift)
            below = [theirs_too.get_delta_for_epsilon(e) for e in epsilon if e < 0]
            return below + [self.get_delta_for_epsilon(e) for e in epsilons]
        if epsilon < 0:
            raise OutOfScope("ε is negative")
        mu = math.sqrt(self.noise.cost(np.array([self.shift]), self.scale))
        return budget.delta_of(epsilon=epsilon, mu=mu)

    @classmethod
    def from_privacy_guarantee(cls, asked, sensitivity, *_, **given):
        mu = budget.mu_of(epsilon=asked.epsilon, delta=asked.delta)
        unit = cls(1.0, sensitivity, **given)
        return cls(unit.shift * GAUSSIAN.multiplier(mu, 1), sensitivity, **given)


class OurLaplace(Ours):
    noise = LAPLACE

    @property
    def parameter(self):
        return self.scale

    def connect_dots_bounds(self):
        cost = LAPLACE.cost(np.array([self.shift]), self.scale)
        return privacy_loss_mechanism.ConnectDotsBounds(epsilon_upper=cost, epsilon_lower=-cost)

    @classmethod
    def from_privacy_guarantee(cls, asked, sensitivity, *_, **given):
        return cls(sensitivity * LAPLACE.multiplier(asked.epsilon, 1), sensitivity, **given)


class OurWholeLaplace(Ours):
    """Whole numbers, with the sampler that real noise is drawn from; their parameter is 1/scale."""

    noise = LAPLACE

    def __init__(self, parameter, sensitivity=1, *_, **given):
        super().__init__(1 / parameter, sensitivity, **given)
        self.parameter = parameter

    @classmethod
    def from_privacy_guarantee(cls, asked, sensitivity, *_, **given):
        return cls(1 / (sensitivity * LAPLACE.multiplier(asked.epsilon, 1)), sensitivity, **given)


class OurWholeGaussian(Ours):
    def privacy_loss(self, x):
        if abs(x) > 11.5 * self.scale:
            raise OutOfScope("they cut the noise off")
        return super().privacy_loss(x)


THEIR_GAUSSIAN = privacy_loss_mechanism.GaussianPrivacyLoss

LOSSES = [
    (
        "GaussianPrivacyLossTest",
        "GaussianPrivacyLoss",
        OurGaussian,
        (
            "test_gaussian_privacy_loss",
            "test_gaussian_get_delta_for_epsilon",
            "test_gaussian_from_privacy_parameters",
        ),
        {"judged": 45, "not ours: subsampling": 55},
    ),
    (
        "LaplacePrivacyLossTest",
        "LaplacePrivacyLoss",
        OurLaplace,
        (
            "test_laplace_privacy_loss",
            "test_laplace_connect_dots_bounds",
            "test_laplace_from_privacy_parameters",
        ),
        {"judged": 20, "not ours: subsampling": 16},
    ),
    (
        "DiscreteLaplacePrivacyLossDistributionTest",
        "DiscreteLaplacePrivacyLoss",
        OurWholeLaplace,
        (
            "test_discrete_laplace_privacy_loss",
            "test_discrete_laplace_from_privacy_parameters",
        ),
        {"judged": 14, "not ours: subsampling": 16},
    ),
    (
        "DiscreteGaussianPrivacyLossTest",
        "DiscreteGaussianPrivacyLoss",
        OurWholeGaussian,
        ("test_discrete_gaussian_privacy_loss",),
        {"judged": 12, "not ours: subsampling": 16, "not ours: they cut the noise off": 4},
    ),
]


@pytest.mark.parametrize(
    ("case", "replaced", "ours", "starts", "expected"), LOSSES, ids=[row[1] for row in LOSSES]
)
def test_densities_costs_and_calibrations_pass_their_tests(
    mechanisms, case, replaced, ours, starts, expected
):
    tests = getattr(mechanisms, case)
    names = [
        name
        for name in theirs.methods(tests, *starts)
        if "tail" not in name and "value_errors" not in name
    ]
    found = theirs.judge(tests, names, [(privacy_loss_mechanism, replaced, ours)])
    assert found == expected


def our_gaussian_noise(asked, count, sensitivity=1):
    mu = budget.mu_of(epsilon=asked.epsilon, delta=asked.delta)
    return sensitivity * GAUSSIAN.multiplier(mu, count)


def our_laplace_noise(asked, count, sensitivity=1):
    scale = sensitivity * LAPLACE.multiplier(asked.epsilon, count)
    if asked.delta > 0:
        assert scale >= THEIR_LAPLACE_NOISE(asked, count, sensitivity=sensitivity)
        raise OutOfScope("δ would buy less Laplace noise: ours is more")
    return scale


def our_whole_laplace_noise(asked, count, sensitivity=1):
    return 1 / our_laplace_noise(asked, count, sensitivity)


THEIR_LAPLACE_NOISE = accountant.get_smallest_laplace_noise


def test_noise_for_many_releases_passes_their_tests():
    module = theirs.shipped(PACKAGE, "dp_accounting/pld/accountant_test.py")
    names = theirs.methods(
        module.AccountantTest,
        "test_get_smallest_laplace_noise",
        "test_get_smallest_discrete_laplace_noise",
        "test_get_smallest_gaussian_noise",
    )
    patches = [
        (accountant, "get_smallest_gaussian_noise", our_gaussian_noise),
        (accountant, "get_smallest_laplace_noise", our_laplace_noise),
        (accountant, "get_smallest_discrete_laplace_noise", our_whole_laplace_noise),
    ]
    found = theirs.judge(module.AccountantTest, names, patches)
    assert found["judged"] == 4, found
    assert sum(found.values()) == len(names) == 9


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 7, 8, 100, 1023, 1024, 10**6])
def test_a_trees_levels_are_those_of_their_tree_aggregation(horizon):
    """One reward in a tree over T rounds: their Rényi divergence is that of ⌊log₂T⌋ + 1 nodes."""
    mu, order = 0.7, 3.0
    tree = Tree(GAUSSIAN, horizon, 1.0, mu)
    event = dp_event.SingleEpochTreeAggregationDpEvent(tree.scale(1), horizon)
    special = rdp_privacy_accountant.NeighborRel.REPLACE_SPECIAL
    counted = rdp_privacy_accountant.RdpAccountant([order], special).compose(event)
    assert counted._rdp[0] == pytest.approx(order * mu**2 / 2, rel=1e-12)
    assert levels_for(horizon) == round(counted._rdp[0] * 2 * tree.scale(1) ** 2 / order)


def test_trees_one_after_the_other_pass_their_tests():
    """Their published bound for a tree of 1,600 rounds holds for ours, restarted or not."""
    module = theirs.shipped(PACKAGE, "dp_accounting/rdp/rdp_privacy_accountant_test.py")
    case = module.RdpPrivacyAccountantTest

    class OurTree:
        """One reward is in one tree: the dearest one counts."""

        def __init__(self, noise_multiplier, step_counts):
            trees = [Tree(GAUSSIAN, n, 1.0, 1.0) for n in np.atleast_1d(step_counts).tolist()]
            worst = max(tree.multipliers[tree.levels] for tree in trees)
            self._rdp = [worst**2 / (2 * noise_multiplier**2)]
            self.mu = worst / noise_multiplier

        def get_epsilon(self, delta):
            return budget.epsilon_of(mu=self.mu, delta=delta)

    def ours(noise_multiplier, step_counts, orders):
        return OurTree(noise_multiplier, step_counts)

    names = theirs.methods(case, "test_compute_eps_tree_eps", "test_single_epoch_multi_tree_rdp")
    names = names or theirs.methods(case, "test_compute_eps_tree")
    found = theirs.judge(case, names, [(module, "_compose_trees_single_epoch", ours)])
    assert found == {"judged": 3}, found


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("rho", [0.01, 0.3, 2.0, 20.0])
def test_zcdp_is_what_their_accountant_makes_of_a_zcdp_event(rho, delta):
    orders = 1 + np.geomspace(1e-2, 1e4, 20_000)
    counted = rdp_privacy_accountant.RdpAccountant(orders).compose(dp_event.ZCDpEvent(rho))
    ours, other = budget.epsilon_of_rho(rho=rho, delta=delta), counted.get_epsilon(delta)
    assert ours == pytest.approx(other, rel=1e-5)
    sigma = 1 / math.sqrt(2 * rho)
    gaussian = rdp_privacy_accountant.RdpAccountant(orders).compose(dp_event.GaussianDpEvent(sigma))
    assert budget.mu_of_rho(rho=rho) == pytest.approx(1 / sigma, rel=1e-9)
    assert ours == pytest.approx(gaussian.get_epsilon(delta), rel=1e-5)
    # GDP knows that it is Gaussian, so it can only be better.
    assert budget.epsilon_of(mu=1 / sigma, delta=delta) <= ours * (1 + 1e-9)


@pytest.mark.parametrize("shift", [1, 2, 7])
@pytest.mark.parametrize("sigma", [1.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0])
def test_discrete_noise_charged_as_gdp_keeps_within_the_allowance(sigma, shift, epsilon):
    """`lattice_slack` is proven; here is the exact δ of discrete Gaussian noise, by their sum."""
    exact = privacy_loss_mechanism.DiscreteGaussianPrivacyLoss(sigma, sensitivity=shift)
    mu = math.sqrt(GAUSSIAN.cost(np.array([float(shift)]), sigma))
    allowed = budget.delta_of(epsilon=epsilon, mu=mu) + lattice_slack(1, epsilon, 1 / sigma)
    assert exact.get_delta_for_epsilon(epsilon) <= allowed


@pytest.mark.parametrize("shift", [1, 5])
@pytest.mark.parametrize("scale", [1.0, 4.0, 33.0])
def test_what_the_samplers_prove_is_what_they_compute(scale, shift):
    whole = privacy_loss_mechanism.DiscreteLaplacePrivacyLoss(1 / scale, sensitivity=shift)
    worst = max(whole.privacy_loss(x) for x in range(-shift - 3, shift + 4))
    proven = LAPLACE.whole_sampler(1, scale).cost(float(shift))
    assert worst <= proven * (1 + 1e-12)
    assert proven == pytest.approx(worst, rel=1e-9)
    gaussian = GAUSSIAN.whole_sampler(1, scale).cost(float(shift))
    rdp = rdp_privacy_accountant.RdpAccountant([2.0]).compose(
        dp_event.GaussianDpEvent(scale / shift)
    )
    assert gaussian == pytest.approx(rdp._rdp[0], rel=1e-9)  # 2ρ at order 2 is ρ·α


def test_the_wheel_ships_its_tests():
    """What the other tests here read. A version that leaves them out is not a second opinion."""
    files = [str(file) for file in importlib.metadata.files(PACKAGE) or []]
    tests = [file for file in files if file.endswith("_test.py")]
    assert len(tests) >= 12
