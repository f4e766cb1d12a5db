"""Behaviour that all algorithms share, and what sets each apart."""

import math

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.errors import NoiseError, OptionError, PrivacyWarning

OURS = [
    "random",
    "linucb",
    "private-linucb",
    "private-linucb-published",
    "dgs",
    "dgs-published",
    "dgs-figure",
    "local",
    "tree-gauss",
    "toeplitz",
    "private-ts",
    "adac-oful",
    "anytime",
    "joint",
]
PRIVATE = OURS[2:]
# LinUCB but for the noise: the others pick arms in another way, or at other times.
LIKE_LINUCB = [name for name in PRIVATE if name not in ("private-ts", "adac-oful", "anytime")]
PROVEN = [
    "private-linucb",
    "dgs",
    "local",
    "tree-gauss",
    "toeplitz",
    "private-ts",
    "adac-oful",
    "anytime",
    "joint",
]


def contexts(rng, arms=5, dim=3):
    x = rng.normal(size=(arms, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def make(name, **given):
    options = {"dim": 3, "epsilon": 2.0, "delta": 1e-3, "horizon": 200, "seed": 5} | given
    if name in ("dgs-published",):
        options.setdefault("smallest_eigenvalue", 0.2)
    return dpb.make(name, **options)


def drive(bandit, rounds, seed=0, dim=3):
    rng = np.random.default_rng(seed)
    arms = []
    for _ in range(rounds):
        x = contexts(rng, dim=dim)
        arm = bandit.select(x)
        arms.append(arm)
        bandit.update(x[arm], float(x[arm, 0] + rng.normal() * 0.3))
    return arms


def noises_of(name):
    found = []
    for noise in ("gaussian", "laplace", "laplace-l2"):
        try:
            make(name, noise=noise)
            found.append(noise)
        except OptionError:
            pass
    return found


@pytest.mark.parametrize("name", OURS)
def test_the_same_seed_plays_the_same_arms(name):
    assert drive(make(name), 60) == drive(make(name), 60)


@pytest.mark.parametrize("name", LIKE_LINUCB)
@pytest.mark.parametrize("horizon", [200, None])
def test_without_noise_every_private_algorithm_plays_linucb_on_clipped_rewards(name, horizon):
    reference = make("linucb", clip_rewards=True, horizon=None)
    expected = drive(reference, 200)
    for noise in noises_of(name):
        bandit = make(name, epsilon=math.inf, horizon=horizon, noise=noise)
        assert drive(bandit, 200) == expected
        np.testing.assert_allclose(bandit.theta, reference.theta, atol=1e-12)


@pytest.mark.parametrize("name", LIKE_LINUCB)
def test_a_huge_epsilon_is_as_good_as_none(name):
    assert drive(make(name, epsilon=1e30), 200) == drive(make("linucb", clip_rewards=True), 200)


@pytest.mark.parametrize("name", ["private-linucb", "tree-gauss"])
def test_the_pan_private_form_is_the_same_sum_with_twice_the_variance(name):
    quiet = drive(make(name, epsilon=1e15, pan_private=True), 200)
    assert (
        np.mean(np.array(quiet) == np.array(drive(make("linucb", clip_rewards=True), 200))) > 0.98
    )
    x = np.array([1.0, 0.0, 0.0])
    plain, pan = [], []
    for seed in range(600):
        for store, pan_private in ((plain, False), (pan, True)):
            bandit = make(name, horizon=4, pan_private=pan_private, seed=seed)
            bandit.update([x, x, x], [0.0, 0.0, 0.0])
            store.append(bandit.theta)
    ratio = np.var(pan) / np.var(plain)
    # 1,800 draws a side: the log ratio has sd ≈ 0.1 even for Laplace's heavy tails; 2 ± 5 sd
    assert 1.2 < ratio < 3.3


@pytest.mark.parametrize(
    "name", ["dgs", "dgs-published", "dgs-figure", "local", "private-linucb-published"]
)
def test_algorithms_without_a_pan_private_form_say_why(name):
    with pytest.raises(
        OptionError, match=r"has no pan-private form: .+ use private-linucb or tree-gauss"
    ):
        make(name, pan_private=True)


@pytest.mark.parametrize("name", PROVEN)
def test_what_is_spent_ends_at_the_claim_and_never_above(name):
    bandit = make(name, horizon=64)
    last = 0.0
    for _ in range(64):
        drive(bandit, 1)
        assert bandit.spent.epsilon >= last
        last = bandit.spent.epsilon
        assert last <= 2.0
    if name != "anytime":  # which never comes to an end
        assert last == pytest.approx(2.0, rel=1e-6)
    assert f"of {bandit.claim.epsilon:g} at δ = " in str(bandit.spent)


def test_the_papers_level_count_overspends_and_the_ledger_shows_it():
    bandit = make("dgs-published", horizon=64)
    drive(bandit, 64)
    assert bandit.spent.epsilon == pytest.approx(2.0 * 7 / 6)


def test_linucb_spends_everything_and_random_nothing():
    linucb, random = make("linucb"), make("random")
    drive(linucb, 3)
    drive(random, 3)
    assert linucb.spent.epsilon == math.inf
    assert random.spent.epsilon == 0.0


@pytest.mark.parametrize("name", ["private-linucb", "tree-gauss", "dgs", "local"])
def test_real_noise_is_used_without_a_seed_and_the_claim_says_so(name):
    bandits = [make(name, seed=None, horizon=8) for _ in range(2)]
    for bandit in bandits:
        drive(bandit, 8)
        assert bandit.claim.noise == "real"
    assert (bandits[0].theta != bandits[1].theta).all()
    assert make(name).claim.noise == "simulation"


@pytest.mark.parametrize("name", ["private-linucb", "dgs"])
def test_noise_without_an_exact_sampler_needs_a_seed(name):
    with pytest.raises(NoiseError, match="give a seed"):
        make(name, noise="laplace-l2", seed=None)


def test_pan_private_real_noise_is_in_every_sum_in_whole_numbers():
    bandit = make("tree-gauss", seed=None, horizon=16, pan_private=True, delta=1e-3)
    rng = np.random.default_rng(0)
    for _ in range(11):
        bandit.update(contexts(rng)[0], float(rng.normal()))
    fields = bandit.engine.fields()
    assert fields["sums_high"].dtype == fields["sums_low"].dtype == np.int64
    assert (fields["sums_low"][:4] != 0).all(), "sums in progress must carry noise"
    assert (fields.get("moments", np.zeros(3)) == 0).all(), "clean moments must not be kept"


@pytest.mark.parametrize("name", ["tree-gauss", "dgs", "private-linucb", "linucb", "local"])
def test_a_batch_update_equals_single_updates(name):
    rng = np.random.default_rng(3)
    xs, rs = contexts(rng, arms=20), rng.normal(size=20)
    one, many = make(name), make(name)
    for x, r in zip(xs, rs, strict=True):
        one.update(x, r)
    many.update(xs, rs)
    assert (one.theta == many.theta).all()
    assert one.rounds == many.rounds == 20
    many.update(np.empty((0, 3)), np.empty(0))
    assert many.rounds == 20


def test_tree_gauss_theta_is_the_unshrunk_ridge_solution_with_noise():
    quiet = make("tree-gauss", epsilon=math.inf)
    x = np.array([0.6, 0.8, 0.0])
    quiet.update(x, 0.5)
    np.testing.assert_allclose(
        quiet.theta, np.linalg.solve(np.eye(3) + np.outer(x, x), 0.5 * x), atol=1e-15
    )


def test_rewards_outside_the_range_are_clipped_and_counted_on_the_trusted_side():
    a, b = make("tree-gauss", reward_range=(0, 1)), make("tree-gauss", reward_range=(0, 1))
    a.update([1.0, 0, 0], 7.0)
    b.update([1.0, 0, 0], 1.0)
    assert (a.theta == b.theta).all()
    assert (a.clipped, b.clipped) == (1, 0)


def test_linucb_never_clips_unless_asked():
    bandit = make("linucb")
    bandit.update([1.0, 0, 0], 7.0)
    assert bandit.theta[0] == 3.5


def test_slates_are_the_best_arms_in_order_without_repeats():
    bandit = make("linucb", alpha=0.0)
    bandit.update(np.eye(3), [0.1, 0.9, 0.5])
    assert bandit.select(np.eye(3), k=3).tolist() == [1, 2, 0]


def test_arm_sets_may_change_size_every_round():
    bandit, rng = make("dgs"), np.random.default_rng(0)
    for arms in (1, 7, 2, 30):
        x = contexts(rng, arms=arms)
        arm = bandit.select(x)
        assert 0 <= arm < arms
        bandit.update(x[arm], 0.1)


def test_a_users_rewards_beyond_the_cap_are_counted_and_not_learned_from():
    bandit = make("tree-gauss", unit=("user", 2), horizon=10)
    x = np.array([1.0, 0.0, 0.0])
    bandit.update([x, x, x], [0.5, 0.5, 0.5], user=["u1", "u1", "u1"])
    assert (bandit.rounds, bandit.over_cap) == (2, 1)
    bandit.update(x, 0.5, user="u2")
    assert bandit.rounds == 3
    assert bandit.claim.unit == "one user with at most 2 rewards"
    assert bandit.claim.mu == pytest.approx(make("tree-gauss").claim.mu)
    # each reward gets half the budget: twice the noise
    one = make("tree-gauss", horizon=10)
    assert bandit.spec["multipliers"][4] == pytest.approx(2 * one.spec["multipliers"][4])


@pytest.mark.filterwarnings("ignore:a context is not among")
def test_known_arms_need_less_noise_than_the_ball_and_a_stranger_among_them_is_covered():
    # pool of short vectors: the ball is much larger
    pool = 0.1 * contexts(np.random.default_rng(1), arms=20)
    known, ball = make("dgs", public_contexts=pool, epsilon=1e3), make("dgs", epsilon=1e3)
    for bandit in (known, ball):
        bandit.update(pool[:5], np.zeros(5))
    assert np.linalg.norm(known.theta) < 0.5 * np.linalg.norm(ball.theta)
    known.update([1.0, 0.0, 0.0], 0.0)
    assert known.engine.outside
    fields = known.engine.fields()
    assert fields["bound_bound"][0] >= np.linalg.eigvalsh(fields["inverse"])[-1]


def test_l1_noise_refuses_contexts_beyond_those_it_was_scaled_for():
    pool = np.eye(3)
    bandit = make("private-linucb", public_contexts=pool)
    with pytest.raises(dpb.errors.NormError, match=r"L1 norm 1.73205, above 1"):
        bandit.update(np.ones(3) / math.sqrt(3), 0.5)
    assert bandit.rounds == 0


@pytest.mark.parametrize("name", [n for n in OURS if n != "random"])
def test_the_theoretical_bonus_is_finite_positive_and_wider_than_without_privacy(name):
    bandit = make(
        name, alpha="theory", **({"smallest_eigenvalue": 0.2} if name.startswith("dgs") else {})
    )
    plain = make("linucb", alpha="theory")
    alphas, reference = bandit.alphas(1, 100), plain.alphas(1, 100)
    assert np.isfinite(alphas).all()
    if name != "anytime":  # whose covariance is a posterior's, with the noise in it
        assert (alphas >= reference).all()
    assert (np.diff(reference) > 0).all()
    drive(bandit, 20)


def test_the_theoretical_bonus_of_dgs_says_what_it_misses():
    with pytest.raises(OptionError, match="smallest_eigenvalue"):
        make("dgs", alpha="theory")


@pytest.mark.parametrize("name", ["dgs", "tree-gauss", "private-linucb", "linucb"])
def test_perturbed_contexts_stay_within_the_norm_and_are_what_is_learned(name):
    bandit = make(name, context_noise=0.5)
    x = contexts(np.random.default_rng(2))
    arm = bandit.select(x)
    bandit.update(x[arm], 0.3)
    outer = np.linalg.inv(bandit.engine.model()["matrix"]) - np.eye(3)
    values, vectors = np.linalg.eigh(outer)
    learned = np.sqrt(values[-1]) * vectors[:, -1]
    np.testing.assert_allclose(outer, np.outer(learned, learned), atol=1e-12)
    assert np.linalg.norm(learned) <= 1.0 + 1e-12
    assert np.abs(learned @ x[arm]) < np.linalg.norm(learned) * 0.9999


def test_the_printed_index_gives_huge_noise_at_powers_of_two():
    options = {"horizon": 4096, "smallest_eigenvalue": 1.0, "epsilon": 2.0, "delta": 0.1}
    with pytest.warns(PrivacyWarning, match="above 1/horizon"):
        end = dpb.make("dgs-published", dim=1, seed=0, **options)
    with pytest.warns(PrivacyWarning):
        printed = dpb.make("dgs-published", dim=1, seed=0, printed_index=True, **options)
    scales = {}
    for label, bandit in (("end", end), ("printed", printed)):
        for _ in range(1024):
            scales[label] = bandit.engine.simulate(np.ones(1), 0.0, True, 0, 0)
    assert scales["end"] == pytest.approx(2 / (1024 / 16) * 12 / 2)
    assert scales["printed"] == pytest.approx(2.0 * 12 / 2)  # Δ₁, the cap


def test_options_of_other_algorithms_and_misspelt_ones_are_named():
    with pytest.raises(
        OptionError, match="tree-gauss has no option 'horizont': did you mean 'horizon'"
    ):
        dpb.make("tree-gauss", dim=2, epsilon=1.0, delta=1e-5, horizont=5)
    with pytest.raises(OptionError, match="noise 'laplace' is not possible here"):
        make("tree-gauss", noise="laplace")
    with pytest.raises(OptionError, match="epsilon is missing"):
        dpb.make("dgs", dim=2)
    with pytest.raises(OptionError, match="delta is missing"):
        dpb.make("dgs", dim=2, epsilon=1.0)
    with pytest.raises(OptionError, match="λ₀"):
        dpb.make("dgs-published", dim=2, epsilon=1.0, delta=0.01)
    with pytest.raises(OptionError, match="delta = 1e-15 is too small for real noise"):
        dpb.make("toeplitz", dim=2, epsilon=1.0, delta=1e-15)


def test_claims_of_unproven_algorithms_say_what_is_missing():
    for name in ("dgs-published", "private-linucb-published"):
        claim = make(name).claim
        assert claim.status == "as-published"
        assert sum("NOT PROVEN" in line for line in claim.assumptions) >= 3
    figure = make("dgs-figure").claim
    assert (figure.status, figure.notion) == ("none", "none")
    assert "no claim: not private" in repr(make("dgs-figure"))
