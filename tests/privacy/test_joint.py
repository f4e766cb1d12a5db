"""`joint`: neighbours differ in a whole (context, reward) pair. Exact costs, planted bugs, attacks,
and the Wishart derivation."""

import math
from dataclasses import replace

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.algorithms import registry
from dpbandit.auditor import streams
from dpbandit.auditor.attack import worst_stream
from dpbandit.auditor.bounds import lower_bound
from dpbandit.auditor.frozen import Change, freeze, other_pairs
from dpbandit.auditor.scores import engine_scores
from dpbandit.auditor.verify import as_shipped
from dpbandit.auditor.watch import OTHER_PUBLIC, joint_cost, record
from dpbandit.bandit import Bandit
from dpbandit.errors import OptionError
from dpbandit.learners.joint import pack
from dpbandit.model import ReleasedModel
from dpbandit.policies import View
from dpbandit.privacy import wishart
from dpbandit.spread.threads import Threads

pytestmark = pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning")


def make(**given):
    options = {"dim": 2, "epsilon": 2.0, "delta": 1e-3, "horizon": 64, "seed": 3} | given
    return registry.construct("joint", options)


def changed(bandit, **settings):
    """The same bandit with other settings of its engine."""
    design = replace(bandit.design, settings={**bandit.design.settings, **settings})
    return Bandit(bandit.name, bandit.options, design)


def worst_ratio(bandit, xs):
    costs = freeze(bandit, xs).costs(np.arange(len(xs))[:, None], 1)
    return math.sqrt(costs.max()) / bandit.claim.mu


def random_contexts(rounds, dim=2, seed=0):
    return streams.families(dim, rounds, seed)["random directions"]


# ---------------------------------------------------------------------------------- exact costs


def test_a_pair_moves_the_gram_matrix_by_at_most_root_two_and_orthogonal_pairs_attain_it():
    rng = np.random.default_rng(0)
    most = 0.0
    for _ in range(2000):
        pair = rng.normal(size=(2, 3))
        pair *= (rng.uniform(size=(2, 1)) ** 0.2) / np.linalg.norm(pair, axis=1, keepdims=True)
        most = max(most, float(np.linalg.norm(pack(pair[0]) - pack(pair[1]))))
    assert 1.3 < most <= math.sqrt(2)
    apart = pack(np.array([0.6, 0.8, 0.0])) - pack(np.array([0.0, 0.0, 1.0]))
    assert np.linalg.norm(apart) == pytest.approx(math.sqrt(2), rel=1e-15)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reward_range": (-0.5, 1.5)},
        {"reward_range": (0, 1), "centre_rewards": True},
        {"reward_range": (100, 101)},
        {"unknown_horizon": True},
        {"reward_weight": 0.25},
        {"max_norm": 3.0, "ridge": 1e-3},
        {"shift": 0.0},
    ],
)
def test_the_claim_holds_and_is_used_to_the_full(options):
    result = dpb.verify("joint", epsilon=2.0, delta=1e-3, horizon=64, dim=3, tries=10, **options)
    assert result.holds, str(result)
    assert result.worst.ratio > 0.999
    assert len(result.cases) == (9 if {"ridge", "reward_range"} & set(options) else 10)


def test_a_user_with_several_pairs_is_covered():
    result = dpb.verify(
        "joint", epsilon=2.0, delta=1e-3, horizon=64, dim=2, tries=10, unit=("user", 4)
    )
    assert result.holds, str(result)
    assert result.worst.ratio > 0.6


def test_with_a_small_reward_weight_the_worst_neighbour_has_another_context():
    """Changing the reward alone would miss a third of the cost."""
    bandit, xs = make(reward_weight=0.25), random_contexts(64)
    frozen = freeze(bandit, xs)
    assert (frozen.changes[0].xs != frozen.xs).any(axis=1).all()
    full = frozen.costs(np.array([[0]]), 1)[0]
    frozen.changes = (Change(frozen.xs, np.where(frozen.rs < 0, 1.0, -1.0)),)
    assert frozen.costs(np.array([[0]]), 1)[0] < 0.7 * full


def test_the_engines_cost_is_that_of_the_step_by_step_object():
    xs = random_contexts(20)
    frozen = freeze(make(horizon=20), xs)
    for k in (0, 3, 11, 19):
        found = []
        for change in frozen.changes:
            rewards, contexts = frozen.rs.copy(), xs.copy()
            rewards[k], contexts[k] = change.rs[k], change.xs[k]
            one = record(lambda: make(horizon=20), xs, frozen.rs)
            two = record(lambda: make(horizon=20), contexts, rewards, script=one)
            found.append(joint_cost(one, two)[0])
        assert frozen.costs(np.array([[k]])) == pytest.approx(max(found), rel=1e-9)


def test_wishart_noise_is_sent_to_the_audit():
    with pytest.raises(OptionError, match="use audit"):
        dpb.verify("joint", noise="wishart", horizon=16, dim=2)


# ------------------------------------------------------------------------------------- planted bugs


def test_planted_sensitivity_without_root_two():
    """‖v‖² is how far one pair added or left out moves a sum; one replaced moves it by √2·‖v‖²."""
    bandit = changed(make(), sensitivity=1.0)
    assert worst_ratio(bandit, random_contexts(64)) == pytest.approx(math.sqrt(2), rel=1e-6)
    assert worst_ratio(make(), random_contexts(64)) == pytest.approx(1, abs=1e-6)


def test_planted_levels_forgotten():
    bandit = make()
    bandit = changed(bandit, multipliers=np.full(63, bandit.release.multipliers[1]))
    assert worst_ratio(bandit, random_contexts(64)) == pytest.approx(math.sqrt(7), rel=1e-6)


def test_planted_reward_weight_larger_than_the_noise_allows_for():
    bandit = make()
    bandit = changed(bandit, reward_weight=2 * bandit.spec["reward_weight"])
    assert worst_ratio(bandit, random_contexts(64)) > 1.4


class CleanGram(Bandit):
    """LinUCB's habit: A from the contexts themselves, and only the moments noisy."""

    def update(self, contexts, rewards, *, user=None):
        clean = self.__dict__.setdefault("clean", np.eye(2))
        super().update(contexts, rewards, user=user)
        clean += np.outer(contexts, contexts)

    def model(self):
        found = super().model()
        return ReleasedModel(
            name=found.name,
            rounds=found.round,
            claim=found.claim,
            policy=found.policy,
            view=View(found.theta, np.linalg.inv(self.clean)),
            alpha=found.alpha,
            gate=found.gate,
        )


def clean_gram():
    bandit = make(horizon=20)
    return CleanGram(bandit.name, bandit.options, bandit.design)


def test_planted_clean_gram_matrix_in_the_model():
    xs = random_contexts(20)
    rewards, (_, aside) = other_pairs(make(horizon=20), xs)
    other, raw = xs.copy(), rewards.copy()
    other[4], raw[4] = aside.xs[4], aside.rs[4]
    one = record(clean_gram, xs, rewards)
    two = record(clean_gram, other, raw, script=one)
    cost, why = joint_cost(one, two)
    assert math.isinf(cost)
    assert why.startswith(OTHER_PUBLIC)
    assert as_shipped(clean_gram, xs)[0] == math.inf
    sound = as_shipped(lambda: make(horizon=20), xs)[0]
    assert sound <= make(horizon=20).claim.mu ** 2 * (1 + 1e-9)


def test_planted_unclipped_rewards():
    bandit = make(horizon=24)
    design = replace(bandit.design, clips=False)
    broken = Bandit(bandit.name, bandit.options, design)
    assert worst_ratio(broken, random_contexts(24)) > 5


# ------------------------------------------------------------------------------------------ attacks


def attack(bandit, *, horizon, runs, seed=0):
    frozen, positions = worst_stream(bandit, horizon, seed, 1)
    scores = engine_scores(frozen, positions, runs, seed, Threads(1), lambda done: None)
    return lower_bound(*scores, delta=bandit.claim.delta)


@pytest.mark.parametrize("noise", ["gaussian", "wishart"])
def test_the_attack_finds_no_more_than_is_claimed_and_is_not_blind(noise):
    # two audits at 99.9%: 0.002 false alarms expected; the seed is fixed
    result = dpb.audit(
        "joint", epsilon=2.0, delta=0.1, horizon=16, dim=2, runs=40_000, noise=noise, workers=1
    )
    assert result.holds, str(result)
    assert result.bound.epsilon > (1.6 if noise == "gaussian" else 0.4)
    assert "context and reward 1 changed" in str(result)


@pytest.mark.parametrize("noise", ["gaussian", "wishart"])
def test_the_attack_refutes_noise_that_forgets_the_levels(noise):
    options = {"epsilon": 2.0, "delta": 0.01, "horizon": 31, "noise": noise}
    bandit = make(**options)
    fewer = bandit.release.multipliers / (math.sqrt(5) if noise == "gaussian" else 5)
    fewer = np.maximum(fewer, 5.0 if noise == "wishart" else 0.0)
    found = attack(changed(bandit, multipliers=fewer), horizon=31, runs=20_000)
    assert found.epsilon > 2.5, "2 is claimed"
    assert attack(make(**options), horizon=31, runs=20_000).epsilon <= 2.0


def test_the_scores_of_the_gaussian_attack_have_the_distribution_that_gdp_says():
    from scipy.stats import kstest, norm

    result = dpb.audit("joint", epsilon=2.0, delta=0.1, horizon=16, dim=2, runs=20_000, workers=1)
    mu = dpb.budget.mu_of(epsilon=2.0, delta=0.1)
    # Kolmogorov–Smirnov at 1e-5 each
    assert kstest(result.scores0, norm(-(mu**2) / 2, mu).cdf).pvalue > 1e-5
    assert kstest(result.scores1, norm(mu**2 / 2, mu).cdf).pvalue > 1e-5


def test_the_shipped_object_with_real_noise_is_attacked_too():
    # one audit at 99.9%: 0.001 false alarms expected
    result = dpb.audit("joint", epsilon=3.0, delta=0.1, horizon=4, runs=1_200, real=True, workers=1)
    assert result.holds, str(result)
    assert result.noise == "real"
    assert result.bound.epsilon > 0.8


# ------------------------------------------------------------------------------------------ Wishart


def losses(v, u, degrees, draws, seed):
    """Exact privacy losses of one release, and the bound F(X) + G(Y), with noise drawn by SciPy."""
    from scipy.stats import wishart as distribution

    p = len(v)
    noise = distribution(df=degrees, scale=np.eye(p)).rvs(draws, random_state=seed)
    moved = noise + np.outer(v, v) - np.outer(u, u)
    inside = np.linalg.eigvalsh(moved)[:, 0] > 0
    shape = (degrees - p - 1) / 2
    log_dets = np.linalg.slogdet(noise)[1], np.linalg.slogdet(moved)[1]
    loss = np.where(inside, shape * (log_dets[0] - log_dets[1]) + (v @ v - u @ u) / 2, math.inf)
    inverse = np.linalg.inv(noise)
    x, y = (
        1 / np.einsum("i,nij,j->n", w / np.linalg.norm(w), inverse, w / np.linalg.norm(w))
        for w in (v, u)
    )
    f = v @ v / 2 - shape * np.log1p(v @ v / x)
    g = -u @ u / 2 - shape * np.log1p(-np.minimum(u @ u / y, 1 - 1e-15))
    return loss, f, g, x, y


@pytest.mark.parametrize("lengths", [(1.0, 1.0), (0.5, 1.0), (1.0, 0.3)])
@pytest.mark.parametrize("cosine", [0.0, 0.6, -0.9, 1.0])
def test_the_loss_of_wishart_noise_is_below_the_derived_bound(lengths, cosine):
    from scipy.stats import chi2, kstest

    v = lengths[0] * np.array([1.0, 0.0, 0.0])
    u = lengths[1] * np.array([cosine, math.sqrt(1 - cosine**2), 0.0])
    degrees, draws = 22, 20_000
    loss, f, g, x, y = losses(v, u, degrees, draws, seed=1)
    assert (loss <= f + g + 1e-9)[np.isfinite(loss)].all()
    nu = degrees - 3 + 1
    for drawn in (x, y):
        assert kstest(drawn, chi2(nu).cdf).pvalue > 1e-5
    for rate in (1.0, 4.0):
        # X and Y are associated, so F and G are against each other: E e^{F+G} ≤ E e^F · E e^G,
        # within 4 standard errors
        both = np.exp(rate * (f + g))
        assert both.mean() <= np.exp(rate * f).mean() * np.exp(
            rate * g
        ).mean() + 4 * both.std() / math.sqrt(draws)


@pytest.mark.parametrize(
    ("epsilon", "delta", "levels"), [(1.0, 0.05, 1), (1.0, 0.02, 3), (2.0, 0.01, 5)]
)
def test_the_calibrated_degrees_of_freedom_are_enough_and_not_wildly_more(epsilon, delta, levels):
    nu = wishart.calibrate(epsilon=epsilon, delta=delta, levels=levels).degrees
    v, u = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])

    def profile(degrees):
        """δ(ε) of `levels` releases by Monte Carlo, with its standard error."""
        draws = 40_000
        total = sum(losses(v, u, degrees, draws, seed=level)[0] for level in range(levels))
        parts = np.where(
            np.isinf(total), 1.0, np.maximum(1 - np.exp(epsilon - np.minimum(total, 700)), 0)
        )
        return parts.mean(), parts.std() / math.sqrt(draws)

    found, error = profile(nu + 2)
    assert found + 5 * error <= delta
    found, error = profile(nu / 2.5 + 2)
    assert found - 5 * error > delta, "the bound asks for less than 2.5 times what is needed"


def test_a_rounded_item_is_no_vvt_and_what_that_adds_to_the_loss_is_charged(monkeypatch):
    """On a grid so coarse that it shows: the exact loss, with the worst rounding there can be."""
    from scipy.stats import wishart as distribution

    monkeypatch.setattr(wishart, "STEP", 2.0**-7)
    p, degrees, draws = 3, 22, 20_000
    nu, error = degrees - p + 1, wishart.rounding(p)
    noise = distribution(df=degrees, scale=np.eye(p)).rvs(draws, random_state=3)
    lambdas = np.linalg.eigvalsh(noise)[:, 0]
    # Two items apart by vvᵀ − uuᵀ and by rounding that takes away as much as it can.
    most = 2 * error * p / (p * lambdas)
    v, u = np.array([0.9, 0.0, 0.0]), np.array([0.0, 0.9, 0.0])
    taken = 2 * error / math.sqrt(p) * np.eye(p)
    moved = noise + np.outer(v, v) - np.outer(u, u) - taken
    inside = (np.linalg.eigvalsh(moved)[:, 0] > 0) & (most < 0.15)
    shape = nu / 2 - 1
    log_dets = np.linalg.slogdet(noise)[1], np.linalg.slogdet(moved)[1]
    loss = (
        shape * (log_dets[0] - log_dets[1]) + np.trace(np.outer(v, v) - np.outer(u, u) - taken) / 2
    )
    inverse = np.linalg.inv(noise)
    x, y = 1 / inverse[:, 0, 0], 1 / inverse[:, 1, 1]
    longer = 0.81 / (1 - most)  # ‖v‖² and ‖u‖², and they must not exceed 1
    inside &= (longer <= 1) & (longer < y)
    with np.errstate(invalid="ignore"):
        bound = -shape * np.log1p(longer / x) - shape * np.log1p(-longer / y)
    charged = [wishart.added_by_rounding(nu, least=p * one, rows=p) for one in lambdas]
    assert inside.mean() > 0.5
    assert (loss - bound)[inside].max() > 0.01  # without the charge the bound does not hold
    assert (loss <= bound + charged)[inside].all()


def test_the_claim_of_wishart_noise_counts_the_grid():
    exact = wishart.losses(73, delta=1e-5, levels=14)
    rounded = wishart.losses(73, delta=1e-5, levels=14, rows=201)
    assert rounded.first + 14 * rounded.each > exact.first + 14 * exact.each
    bandit = dpb.make(
        "joint", dim=40, noise="wishart", epsilon=2.0, delta=1e-5, horizon=1000, seed=0
    )
    found = wishart.calibrate(epsilon=2.0, delta=1e-5, levels=10, rows=41)
    assert bandit.release.calibrations == {10: found}
    # ‖v‖² stays below 1 − η, whatever the check of norms lets through.
    longest = 2 * (1 + 2e-9) / bandit.spec["size"]
    assert longest <= 1 - wishart.margin(41)


def test_fewer_levels_more_epsilon_or_more_delta_need_less_noise():
    base = wishart.calibrate(epsilon=1.0, delta=1e-4, levels=8)
    assert base.first + 8 * base.each <= 1.0
    assert wishart.calibrate(epsilon=1.0, delta=1e-4, levels=4).degrees < base.degrees
    assert wishart.calibrate(epsilon=2.0, delta=1e-4, levels=8).degrees < base.degrees
    assert wishart.calibrate(epsilon=1.0, delta=1e-2, levels=8).degrees < base.degrees
    # a Gaussian tree needs h/μ²; the bound stays within 40% of it where there are many degrees of
    # freedom
    for epsilon, delta in ((0.5, 1e-5), (0.1, 1e-6)):
        gauss = 14 / dpb.budget.mu_of(epsilon=epsilon, delta=delta) ** 2
        assert (
            gauss < wishart.calibrate(epsilon=epsilon, delta=delta, levels=14).degrees < 1.4 * gauss
        )
