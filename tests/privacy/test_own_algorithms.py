"""Algorithms that a user makes of new parts are verified and attacked by those parts; a part that
leaves something out cannot be made."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.algorithms import moments, presets, registry
from dpbandit.auditor.attack import worst_stream
from dpbandit.auditor.bounds import lower_bound
from dpbandit.auditor.scores import scores_of_releases
from dpbandit.bandit import Bandit
from dpbandit.engine import new_engine
from dpbandit.errors import DpbanditError
from dpbandit.gpu.translation import plan_of
from dpbandit.options import build
from dpbandit.policies import POLICIES, UCB, Policy
from dpbandit.privacy.noise import GAUSSIAN, LAPLACE, NOISES, Noise
from dpbandit.privacy.noises.base import PaidInEpsilon, nothing_or_everything
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.reference.random import uniforms
from dpbandit.release import Tree
from dpbandit.release.base import Sums, ridge_keys

pytestmark = pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning")


class Logistic(PaidInEpsilon, Noise):
    """Logistic noise in every coordinate: log p moves by at most |shift|/scale, like Laplace's."""

    name = "logistic"
    description = "logistic noise in every coordinate"
    norm = 1
    notion = "pure"
    in_core = False
    matrices = None
    has_real_source = False

    def cost(self, shift, scale):
        return nothing_or_everything(shift, scale, float(np.abs(shift).sum()) / (scale or 1.0))

    def log_ratio(self, y, v0, v1, scale):
        def log_density(z):
            return float((-np.abs(z) - 2 * np.log1p(np.exp(-np.abs(z)))).sum())

        return log_density((y - v1) / scale) - log_density((y - v0) / scale)

    def tail(self, dim, zeta):
        return math.sqrt(8) * math.log(2 * dim / zeta)

    def standard_deviation(self, dim=1):
        return math.pi / math.sqrt(3)

    def simulate(self, key, index, scale, value):
        u = uniforms(key, index, len(value))
        return value + scale * np.log(u / (1 - u))

    def whole_sampler(self, dim, scale):
        return None

    def float_sampler(self, dim, scale, exponent):
        return None


class Greedy(Policy):
    """Plays the best arm, without a bonus."""

    name = "greedy"
    in_core = False

    def scores(self, view, contexts, alpha, key, decision):
        return contexts @ view.theta

    def propensities(self, view, contexts, alpha, *, draws, seed, name):
        return UCB.propensities(view, contexts, alpha, draws=draws, seed=seed, name=name)

    def record(self, view, alpha):
        return UCB.record(view, alpha)

    def view_of(self, record):
        return UCB.view_of(record)


class PrefixSums(Sums):
    def __init__(self, dim):
        self.total = np.zeros(dim, dtype=np.int64)

    def add(self, t, item):
        self.total += item.astype(np.int64)
        return self.total.astype(object)

    def publish(self, t, noisy):
        return noisy

    def fields(self):
        return {"total": self.total}


@dataclass(frozen=True, eq=False)
class FreshNoise(Tree):
    """Shows the whole sum in every round, with fresh noise of a tree's size: a classic mistake."""

    name = "fresh-noise"
    in_core = False

    def core(self):
        return ridge_keys(release=self, **self.tree_keys())

    def sums(self, dim):
        return PrefixSums(dim)


def algorithm(noise=LAPLACE, release=Tree, policy=UCB, scale=1.0):
    """A factory for `dpb.register`: noise on moments, made of these parts."""

    def factory(**options):
        given = build(options, (), "own")
        size = on_grid(math.sqrt(given.dim), dim=given.dim, norm=1)
        budget = noise.budget(given, release.draws(given.dim, given.horizon))
        shown = release(noise, given.horizon, size, budget)
        design = presets.ridge(
            given,
            "moments",
            shown,
            promise=presets.claim(given, noise, budget, "proven", ()),
            ledger=noise.ledger(budget),
            theory=lambda t: np.ones(len(t)),
            policy=policy,
        )
        settings = {**design.settings, "sensitivity": scale * size}
        return Bandit("own", given, replace(design, settings=settings))

    return factory


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setitem(NOISES, "logistic", Logistic())
    monkeypatch.setitem(POLICIES, "greedy", Greedy())
    return NOISES["logistic"], POLICIES["greedy"]


SHORT = {"epsilon": 2.0, "delta": 1e-3, "horizon": 12, "dim": 2}


def test_a_new_noise_is_verified_and_attacked_by_its_own_object(known):
    dpb.register("own", algorithm(noise=known[0]))
    assert "the core has no noise 'logistic'" in repr(dpb.make("own", dim=2, epsilon=1.0, seed=0))
    found = dpb.verify("own", tries=3, **SHORT)
    assert found.holds, str(found)
    assert found.worst.ratio == pytest.approx(1, abs=1e-6)
    assert len(found.cases) == 9
    # One audit at 99.9%: 0.001 false alarms expected; the seed is fixed.
    result = dpb.audit("own", epsilon=2.0, horizon=1, dim=1, runs=1_500, workers=1)
    assert result.holds, str(result)
    assert "likelihood ratio" in result.statistic
    assert result.bound.epsilon > 0.5


def test_too_little_of_a_new_noise_is_seen_by_verify_and_by_audit(known):
    dpb.register("own", algorithm(noise=known[0], scale=0.1))
    assert dpb.verify("own", tries=0, **SHORT).worst.ratio == pytest.approx(10, abs=1e-6)
    result = dpb.audit("own", epsilon=0.5, horizon=1, dim=1, runs=1_000, workers=1)
    assert not result.holds, "it is 5"


def test_a_new_policy_is_verified_with_what_it_picks(known):
    dpb.register("own", algorithm(policy=known[1]))
    found = dpb.verify("own", tries=0, **SHORT)
    assert found.holds, str(found)
    assert dpb.make("own", dim=2, epsilon=1.0, horizon=4, seed=0).backend == "reference"


def test_a_new_release_is_verified_by_what_it_shows():
    """Its ledger is told of a tree; what it shows is every prefix."""
    dpb.register("own", algorithm(release=FreshNoise))
    found = dpb.verify("own", tries=0, **SHORT)
    assert found.worst.ratio == pytest.approx(12 / 4, abs=1e-6)  # in twelve sums, paid for four


def test_the_gpu_refuses_parts_that_it_does_not_have(known):
    for parts in ({"noise": known[0]}, {"policy": known[1]}, {"release": FreshNoise}):
        bandit = algorithm(**parts)(dim=2, epsilon=1.0, horizon=8, seed=0)
        with pytest.raises(DpbanditError, match="device='cpu'"):
            plan_of(bandit, 8)


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "laplace-l2"])
def test_scores_of_a_mechanism_are_the_same_in_the_core_and_in_python(noise):
    from dpbandit.auditor.scores import _in_core, _one_by_one

    rng = np.random.default_rng(0)
    v0, v1 = rng.normal(size=(2, 3, 4))
    given = (NOISES[noise], v1, v0, v1, np.array([0.5, 1.0, 2.0]), 7, range(5, 9))
    assert _in_core(*given) == pytest.approx(_one_by_one(*given), rel=1e-12)


def test_scores_of_a_mechanism_with_a_noise_that_the_core_lacks(known):
    """One release of shift 1: 1.0 is true. False alarms: probability 0.001; the seed is fixed."""
    both = scores_of_releases(known[0], [[0.0]], [[1.0]], [1.0], runs=2_000, workers=1)
    assert 0.3 < lower_bound(*both, delta=0.0).epsilon <= 1.0


# ------------------------------------------------------------------------------- the bogus noise


def test_a_word_in_the_tables_makes_no_noise(monkeypatch):
    """Once 'logistic' was a number in a table; the bandit then drew Gaussian numbers, claimed pure
    ε, and `verify` said HOLDS."""
    monkeypatch.setitem(NOISES, "logistic", 4)
    monkeypatch.setattr(moments, "NOISES", (*moments.NOISES, "logistic"))
    for check in (
        lambda: dpb.make("private-linucb", dim=2, epsilon=1.0, noise="logistic", seed=0),
        lambda: dpb.verify("private-linucb", noise="logistic", horizon=8, dim=2, tries=0),
        lambda: dpb.audit("private-linucb", noise="logistic", horizon=8, runs=100),
    ):
        with pytest.raises((AttributeError, TypeError, DpbanditError)):
            check()


@pytest.mark.parametrize("missing", ["cost", "log_ratio", "simulate", "whole_sampler", "tail"])
def test_a_noise_that_leaves_something_out_cannot_be_made(missing):
    words = {name: value for name, value in vars(Logistic).items() if name != missing}
    with pytest.raises(TypeError, match=missing):
        type("Lacking", (PaidInEpsilon, Noise), words)()


@pytest.mark.parametrize("missing", ["norm", "currency", "notion", "in_core"])
def test_a_noise_that_does_not_say_what_it_is_cannot_be_written(missing):
    words = {name: value for name, value in vars(Logistic).items() if name != missing}
    kinds = (Noise,) if missing == "currency" else (PaidInEpsilon, Noise)
    with pytest.raises(TypeError, match=missing):
        type("Lacking", kinds, words)


def test_another_noise_under_the_name_says_what_it_really_is(monkeypatch):
    monkeypatch.setitem(NOISES, "logistic", GAUSSIAN)
    monkeypatch.setattr(moments, "NOISES", (*moments.NOISES, "logistic"))
    given = {"dim": 2, "epsilon": 1.0, "delta": 1e-3, "horizon": 8, "seed": 0}
    try:
        bandit = registry.construct("private-linucb", {**given, "noise": "logistic"})
    except DpbanditError:
        return
    assert bandit.claim.notion == "gdp"
    assert bandit.spec["noise"] == "gaussian"


@pytest.mark.parametrize("backend", ["core", "reference"])
def test_no_engine_takes_a_name_that_it_does_not_know(backend):
    spec = dpb.make("private-linucb", dim=2, epsilon=1.0, seed=0).spec
    for key in ("noise", "policy", "release", "site", "learner"):
        with pytest.raises(ValueError, match="logistic"):
            new_engine({**spec, key: "logistic"}, backend)


def test_a_class_with_a_cost_of_its_own_has_no_other_classs_arithmetic():
    class Dearer(type(GAUSSIAN)):
        name = "dearer"

        def cost(self, shift, scale):
            return 2 * super().cost(shift, scale)

    shifts, scales = np.array([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]]), np.array([5.0, 0.0, 0.0])
    assert Dearer().costs(shifts, scales).tolist() == [2.0, 0.0, math.inf]


@pytest.mark.parametrize("noise", NOISES.values(), ids=lambda noise: noise.name)
def test_costs_of_many_releases_are_those_of_each(noise):
    rng = np.random.default_rng(0)
    shifts, scales = rng.normal(size=(50, 3)), rng.uniform(0.0, 5.0, size=50)
    shifts[:5], scales[3:8] = 0.0, 0.0
    each = [noise.cost(shift, scale) for shift, scale in zip(shifts, scales.tolist(), strict=True)]
    assert noise.costs(shifts, scales) == pytest.approx(each, rel=1e-14)


def test_an_audit_sees_the_worst_of_a_new_noise(known):
    bandit = algorithm(noise=known[0])(dim=1, epsilon=2.0, horizon=4, seed=0)
    frozen, positions = worst_stream(bandit, 4, 0, 1)
    assert frozen.costs(positions[None]) == pytest.approx(2.0, rel=1e-6)
