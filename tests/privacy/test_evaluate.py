"""An estimate from a private log: the exact joint cost of learning and estimate for worst neighbours, an
attack, and who is refused."""

import math
import warnings

import numpy as np
import pytest
from bugs.evaluations import evaluated, evaluation_log, evaluation_ratio
from scipy.special import ndtri

import dpbandit as dpb
from dpbandit.auditor import watch
from dpbandit.auditor.bounds import lower_bound
from dpbandit.errors import BudgetError, LogWarning, OptionError
from dpbandit.evaluate.release import INDEX
from dpbandit.privacy.accounting import delta_of, mu_of
from dpbandit.privacy.grid import GRID_SHARE
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.sources import Real, Simulation

pytestmark = pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning")


@pytest.mark.parametrize(
    ("name", "options", "release"),
    [
        ("anytime", {}, (1.0, 1e-4)),
        ("anytime", {"unit": ("user", 3)}, (1.0, 1e-4)),
        ("anytime", {"unit": ("person", 2)}, (1.0, 1e-4)),
        ("tree-gauss", {"horizon": 64}, (0.3, 1e-4)),
        ("dgs", {"horizon": 64}, (3.0, 1e-4)),
        ("private-linucb", {}, 0.5),
        ("private-linucb", {"unit": ("user", 2)}, (1.0, 1e-4)),
        ("local", {}, 1.0),
        ("random", {}, 1.0),
    ],
)
def test_nobody_pays_more_than_the_claim_for_learning_and_estimate_together(name, options, release):
    ratio, why = evaluation_ratio(name, release=release, **options)
    assert ratio <= 1 + 1e-9, why
    assert ratio > 0.3


def test_a_reward_that_nobody_saw_pays_nothing():
    log, *_ = evaluation_log("reward")
    log["action"] = np.ones(48, dtype=int) * (np.arange(48) % 2)
    given = {"release": (1.0, 1e-4), "epsilon": 1.0, "delta": 1e-4, "items": np.eye(2)}
    one = evaluated(log, "anytime", **given)
    unseen = [matched for matched, _ in one.played].index(False)
    changed = {**log, "reward": log["reward"].copy()}
    changed["reward"][unseen] = 1.0
    two = evaluated(changed, "anytime", script=one.transcript, **given)
    cost, _ = watch.cost_of_releases(one.transcript, two.transcript)
    assert cost == 0


def test_all_that_is_public_is_the_same_for_neighbours_who_released_the_same():
    for unit in ("reward", ("user", 3), ("person", 2)):
        log, changed, _ = evaluation_log(unit)
        given = {"release": (1.0, 1e-4), "unit": unit, "epsilon": 1.0, "delta": 1e-4}
        one = evaluated(log, "anytime", **given)
        two = evaluated(changed, "anytime", script=one.transcript, **given)
        assert one.found.to_dict() == two.found.to_dict()
        assert one.played == two.played


def test_a_reward_that_is_no_number_shows_nothing():
    log, *_ = evaluation_log("reward")
    given = {"release": (1.0, 1e-4), "epsilon": 1.0, "delta": 1e-4, "first_release": 3, "knee": 9.0}
    one = evaluated(log, "anytime", **given)
    for strange in (math.nan, math.inf, -math.inf, 1e300):
        changed = {**log, "reward": log["reward"].copy()}
        changed["reward"][0] = strange
        two = evaluated(changed, "anytime", script=one.transcript, **given)
        assert one.found.to_dict() == two.found.to_dict()
        assert one.played == two.played


def test_the_claim_is_the_composition_written_out():
    given = {"items": np.eye(2), "reward_range": (0, 1), "seed": 1, "epsilon": 1.0, "delta": 1e-6}
    log = {"action": np.array([0, 1] * 50), "reward": np.ones(100)}
    players = {"anytime": ("anytime", {"local": "never"}), "random": "random"}
    found = dpb.replay(log, players, release=(0.5, 1e-7), **given)
    learning = dpb.budget.mu_of(epsilon=1.0, delta=0.99e-6)
    estimates = dpb.budget.mu_of(epsilon=0.5, delta=0.99e-7)
    mu = math.hypot(learning, estimates)
    claim = found.claim
    assert claim.mu == pytest.approx(mu, rel=2e-3)  # the bandit counts its own part of δ for grids
    assert claim.delta == pytest.approx(1.1e-6)
    assert delta_of(epsilon=claim.epsilon, mu=claim.mu) <= claim.delta
    assert claim.epsilon < 1.5
    assert found.ledger.total == pytest.approx(claim.mu**2)
    assert {row["what"] for row in found.ledger.table()} == {
        "anytime: learning", "anytime: estimate", "random: estimate"
    }  # fmt: skip
    # Where some rewards pay pure ε alone, ε and δ add up as they are, and μ is that of pure ε.
    both = dpb.replay(log, ["anytime", "random"], release=(0.5, 1e-7), **given).claim
    assert (both.epsilon, both.delta) == (1.5, pytest.approx(1.1e-6))
    answered = -2 * float(ndtri(1 / (1 + math.e)))
    assert both.mu == pytest.approx(math.hypot(answered, estimates), rel=1e-6)
    pure = dpb.replay(log, ["private-linucb", "random"], release=0.5, items=np.eye(2), reward_range=(0, 1), seed=1, epsilon=1.0)  # fmt: skip
    assert (pure.claim.epsilon, pure.claim.delta, pure.claim.notion) == (1.5, 0.0, "pure")


def test_evaluations_of_one_log_share_a_ledger():
    given = {"items": np.eye(2), "reward_range": (0, 1), "seed": 1, "release": (0.5, 1e-7)}
    log = {"action": np.array([0, 1] * 50), "reward": np.ones(100)}
    mu = dpb.budget.mu_of(epsilon=0.5, delta=0.99e-7)
    ledger = dpb.Ledger(limit=2.5 * mu**2, currency="mu²")
    for spent in (1, 2):
        ledger = dpb.replay(log, "random", ledger=ledger, **given).ledger
        assert ledger.total == pytest.approx(spent * mu**2)
    with pytest.raises(BudgetError):
        dpb.replay(log, "random", ledger=ledger, **given)
    with pytest.raises(OptionError, match="the ledger counts"):
        dpb.replay(log, "random", ledger=dpb.Ledger(1.0, "epsilon"), **given)


def test_a_ledger_that_is_given_again_goes_on_from_its_charges():
    """Once only the evaluation's own copy was charged: one ledger for all calls was never full."""
    given = {"items": np.eye(2), "reward_range": (0, 1), "seed": 1, "release": (0.5, 1e-7)}
    log = {"action": np.array([0, 1] * 50), "reward": np.ones(100)}
    mu = dpb.budget.mu_of(epsilon=0.5, delta=0.99e-7)
    ledger = dpb.Ledger(limit=2.5 * mu**2, currency="mu²")
    for spent in (1, 2):
        found = dpb.replay(log, "random", ledger=ledger, **given)
        assert ledger.total == pytest.approx(spent * mu**2)
        assert found.ledger.to_dict() == ledger.to_dict()
    before = ledger.to_dict()
    with pytest.raises(BudgetError):
        dpb.replay(log, "random", ledger=ledger, **given)
    assert ledger.to_dict() == before


@pytest.mark.parametrize("clip", [1.5, 1e15])
def test_what_follows_from_learning_is_said_after_it_is_charged(clip):
    """Which rows matched, and so how heavy they are, follows from what was learned: neither a warning
    that is an error nor one of too coarse a grid may say it for nothing."""
    rows = [{"action": i % 2, "reward": 1.0, "p": 0.5} for i in range(60)]
    learning = {"epsilon": 1.0, "delta": 1e-6, "reward_range": (0, 1), "items": np.eye(2)}
    ledger = Ledger(limit=10.0, currency="mu²")
    with warnings.catch_warnings():
        warnings.simplefilter("error", LogWarning)
        with pytest.raises((LogWarning, OptionError), match="clip"):
            dpb.replay(
                rows,
                "anytime",
                propensity="p",
                clip=clip,
                release=(1.0, 1e-6),
                ledger=ledger,
                **learning,
            )
    assert ledger.total > mu_of(epsilon=1.0, delta=1e-6) ** 2  # the estimate, and learning


def test_pure_epsilon_is_that_much_gdp():
    """The trade-off curve of μ lies below that of ε at every type-I error."""
    from scipy.special import ndtr, ndtri

    from dpbandit.evaluate.release import _mu
    from dpbandit.privacy.claim import Claim

    alpha = np.linspace(1e-6, 1 - 1e-6, 20_001)
    for epsilon in (0.01, 0.5, 2.0, 8.0):
        alpha[0] = 1 / (1 + math.exp(epsilon))  # where they touch
        mu = _mu(Claim("one reward", "pure", epsilon, 0.0, None, "proven", "real"))
        gaussian = ndtr(ndtri(1 - alpha) - mu)
        pure = np.maximum(1 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - alpha))
        assert (gaussian <= np.maximum(pure, 0) + 1e-12).all()
        assert (gaussian > np.maximum(pure, 0) - 1e-9).any()  # and touches it


@pytest.mark.parametrize(
    ("words", "algorithms", "more"),
    [
        ("nothing is proven", "linucb", {}),
        ("nothing is proven", "dgs-published", {"horizon": 9, "epsilon": 1.0, "delta": 1e-5, "smallest_eigenvalue": 0.1}),
        ("protects contexts", "anytime-joint", {"epsilon": 1.0, "delta": 1e-5}),
        ("protects contexts", "joint", {"epsilon": 1.0, "delta": 1e-5, "horizon": 9}),
        ("pan-private", "tree-gauss", {"epsilon": 1.0, "delta": 1e-5, "horizon": 9, "pan_private": True}),
        ("with unit=.*spread", "anytime", {"epsilon": 1.0, "delta": 1e-5, "unit": ("spread", 2)}),
        ("name the log's column of users", "random", {"unit": ("user", 2)}),
        ("one claim needs one unit", [("random", {"unit": ("user", 2)})], {}),
        ("nothing is proven", "anytime", {"epsilon": math.inf, "delta": 1e-5}),
        ("finite ε", "random", {"release": math.inf}),
        ("is pure", "anytime", {"epsilon": 1.0, "delta": 1e-5, "release": 1.0}),
    ],
)  # fmt: skip
def test_what_is_not_proven_is_refused_before_a_row_is_learned(words, algorithms, more):
    log = {"action": np.array([0, 1]), "reward": np.ones(2)}
    given = {"release": (1.0, 1e-6), "items": np.eye(2), "reward_range": (0, 1), "seed": 1, **more}
    with pytest.raises(OptionError, match=words):
        dpb.replay(log, algorithms, **given)


def test_a_black_box_is_refused():
    class First:
        def __init__(self, **options):
            pass

        def select(self, contexts):
            return 0

        def update(self, context, reward):
            pass

    dpb.register("first-of-evaluate", First, replace=True)
    log = {"action": np.array([0, 1]), "reward": np.ones(2)}
    assert (
        dpb.replay(log, "first-of-evaluate", items=np.eye(2), reward_range=(0, 1))
        .of("first-of-evaluate")
        .matched
        == 1
    )
    with pytest.raises(OptionError, match="nothing is proven"):
        dpb.replay(
            log, "first-of-evaluate", items=np.eye(2), reward_range=(0, 1), release=(1.0, 1e-6)
        )


def test_real_noise_is_on_the_grid_and_of_the_charged_scale():
    log = {"action": np.zeros(200, dtype=int), "reward": np.ones(200)}
    given = {"items": np.eye(1), "reward_range": (0, 1), "release": (1.0, 1e-6)}
    seen = []

    class Kept(Real):
        def release(self, noise, pending, *, scale, shift, index):
            noisy = super().release(noise, pending, scale=scale, shift=shift, index=index)
            seen.append((noisy[0] - pending.values[0], scale))
            return noisy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpbandit.evaluate.release.Real", Kept)
        for _ in range(300):
            found = dpb.replay(log, "random", **given)
    drawn, scale = np.array([d for d, _ in seen]), seen[0][1]
    assert found.claim.noise == "real"
    assert np.std(drawn) == pytest.approx(scale, rel=0.15)
    assert (drawn * 2.0**40 == np.rint(drawn * 2.0**40)).all()


@pytest.mark.slow
def test_an_attack_on_the_estimate_finds_no_more_than_is_claimed():
    """With the weights of the log, the noisy sum is all that a reward shows in: told apart by it."""
    log, changed, _ = evaluation_log("reward", rows=16)
    runs = 3000
    scores = [
        np.array(
            [
                evaluated(one, "random", release=2.0, seed=10_000 * side + run)
                .transcript.releases[-1]
                .noisy[0]
                for run in range(runs)
            ]
        )
        for side, one in enumerate((log, changed))
    ]
    found = lower_bound(*scores, delta=0.0)
    assert 0.5 < found.epsilon <= 2.0


def test_the_index_of_an_estimate_is_no_negative_one():
    assert INDEX > 0  # a watcher takes negative ones for noise that stays in memory
    assert Simulation(1).key != Simulation(2).key


@pytest.mark.parametrize("reward", [10**400, math.inf, math.nan])
def test_no_reward_ends_an_evaluation(reward):
    """An error would say of one person's reward that it was such: it stands in the middle."""
    log = [{"action": i % 2, "reward": float(i % 2)} for i in range(40)]
    log[7]["reward"] = reward
    given = {
        "items": np.eye(2),
        "reward_range": (0, 1),
        "epsilon": 1.0,
        "delta": 1e-6,
        "seed": 20_005,
    }
    found = dpb.replay(log, "anytime", release=(0.5, 1e-7), **given)
    log[7]["reward"] = 0.5
    again = dpb.replay(log, "anytime", release=(0.5, 1e-7), **given)
    assert (found.used, found.estimates) == (again.used, again.estimates)


def test_answers_and_sums_count_as_the_dearer_of_both():
    """A reward of `anytime` is answered at pure ε or summed: an answer is the dearer one here."""
    log = [{"action": i % 2, "reward": float(i % 2)} for i in range(40)]
    given = {"items": np.eye(2), "reward_range": (0, 1), "delta": 1e-6, "seed": 20_005}
    for epsilon in (0.5, 40.0):
        answer = -2 * ndtri(1 / (1 + math.exp(epsilon)))
        own = mu_of(epsilon=0.5, delta=1e-7 * (1 - GRID_SHARE))
        mu = mu_of(epsilon=epsilon, delta=1e-6)
        found = dpb.replay(log, "anytime", release=(0.5, 1e-7), epsilon=epsilon, local=5, **given)
        sums = dpb.replay(
            log, "anytime", release=(0.5, 1e-7), epsilon=epsilon, local="never", **given
        )
        assert found.claim.mu == pytest.approx(math.hypot(max(answer, mu), own), rel=1e-9)
        assert answer > mu
        assert sums.claim.mu == pytest.approx(math.hypot(mu, own), rel=1e-3)
        assert found.ledger.total == pytest.approx(found.claim.mu**2, rel=1e-9)
