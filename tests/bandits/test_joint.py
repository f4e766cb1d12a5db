"""`joint`: its arithmetic against a plain one, and what it keeps, shows and refuses."""

import math

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import _core
from dpbandit.auditor.watch import Watch
from dpbandit.errors import HorizonError, NoiseError, OptionError
from dpbandit.learners.joint import JointLearner
from dpbandit.learners.learner import Clock
from dpbandit.privacy.noise import find_noise
from dpbandit.privacy.wishart import calibrate
from dpbandit.reference.random import NOISE, derive_key

NOISES = ["gaussian", "wishart"]


def make(**given):
    return dpb.make(
        "joint", **({"dim": 3, "epsilon": 2.0, "delta": 1e-3, "horizon": 200, "seed": 5} | given)
    )


def contexts(rng, arms=5, dim=3):
    x = rng.normal(size=(arms, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def drive(bandit, rounds, seed=0):
    rng = np.random.default_rng(seed)
    arms = []
    for _ in range(rounds):
        x = contexts(rng, dim=bandit.dim)
        arms.append(bandit.select(x))
        bandit.update(x[arms[-1]], float(x[arms[-1], 0] + rng.normal() * 0.3))
    return arms


def unpacked(vector):
    p = int((math.sqrt(8 * len(vector) + 1) - 1) / 2)
    upper = np.zeros((p, p))
    upper[np.triu_indices(p)] = vector
    return (upper + upper.T) / math.sqrt(2) + np.diag(np.diag(upper)) * (1 - math.sqrt(2))


def nodes_at(t, horizon):
    """The nodes whose sum is that of rounds 1 to t, as (start, end, levels)."""
    found, start, levels = [], 0, 0 if horizon is None else horizon.bit_length()
    if horizon is None:
        block = t.bit_length() - 1
        found = [((1 << b) - 1, (2 << b) - 1, b + 1) for b in range(block)]
        start, levels = (1 << block) - 1, block + 1
    for bit in reversed(range((t - start).bit_length())):
        if t - start >= 1 << bit:
            found.append((start, start + (1 << bit), levels))
            start += 1 << bit
    return found


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("horizon", [21, None])
@pytest.mark.parametrize(
    "options", [{}, {"reward_weight": 0.3, "shift": 0.05, "centre_rewards": True, "max_norm": 2.0}]
)
def test_a_plain_implementation_gives_the_same_arms_and_parameters(noise, horizon, options):
    low, high, d, rounds, seed, alpha, ridge, zeta = -0.5, 1.5, 2, 21, 11, 0.7, 1.3, 0.05
    bandit = make(
        dim=d, horizon=horizon, noise=noise, seed=seed, alpha=alpha, ridge=ridge, zeta=zeta,
        reward_range=(low, high), epsilon=5.0, delta=0.01, **options,
    )  # fmt: skip
    share, reach = options.get("reward_weight", 1.0), options.get("max_norm", 1.0)
    centre = 0.5 if options.get("centre_rewards") else 0.0
    weight = math.sqrt(share) * reach / (1.0 if centre else 1.5)
    size = reach**2 * (1 + share)
    assert 1 <= bandit.spec["size"] / size <= 1 + 1e-8  # room for rounding
    size, sensitivity = bandit.spec["size"], bandit.spec["sensitivity"]
    one = math.sqrt(2) if noise == "gaussian" else 1.0
    assert 1 <= sensitivity / one <= 1 + 1e-8
    key = derive_key(seed, NOISE)
    mu = dpb.budget.mu_of(epsilon=5.0, delta=0.01)
    rng = np.random.default_rng(2)
    played, noises, theta, inverse = [], {}, np.zeros(d), np.eye(d) / ridge
    guarded = 0
    for t in range(1, rounds + 1):
        offered = reach * contexts(rng, arms=6, dim=d) * rng.uniform(0.2, 1, size=(6, 1))
        scores = offered @ theta + alpha * np.sqrt(
            np.einsum("ij,jk,ik->i", offered, inverse, offered)
        )
        arm = bandit.select(offered)
        assert scores[arm] >= scores.max() - 1e-9
        reward = rng.normal(offered[arm, 0], 1.0)
        bandit.update(offered[arm], reward)
        played.append(np.append(offered[arm], weight * (min(max(reward, low), high) - centre)))
        total, amount = np.zeros((d + 1, d + 1)), 0.0
        for start, end, levels in nodes_at(t, horizon):
            if noise == "gaussian":
                scale = sensitivity * math.sqrt(levels) / mu
                amount += scale**2
            else:
                scale = calibrate(epsilon=5.0, delta=0.01, levels=levels, rows=d + 1).degrees + d
                amount += scale
            if end not in noises:
                zero = np.zeros((d + 1) * (d + 2) // 2)
                noises[end] = find_noise(noise).simulate(key, end, scale, zero)
            total += size * unpacked(noises[end])
            total += sum(np.outer(v, v) for v in played[start:end])
        tail = math.sqrt(2 * math.log(4 / zeta * (horizon or t * (t + 1))))
        if noise == "gaussian":
            bound = math.sqrt(amount) * (math.sqrt(2 * d) + tail)
        else:
            bound = amount - max(math.sqrt(amount) - math.sqrt(d) - tail, 0) ** 2
            total -= size * amount * np.eye(d + 1)
        values, vectors = np.linalg.eigh(
            total[:d, :d] + (ridge + options.get("shift", 2.0) * size * bound) * np.eye(d)
        )
        guarded += values.min() < ridge / 2
        inverse = vectors @ np.diag(1 / np.maximum(values, ridge / 2)) @ vectors.T
        theta = inverse @ total[:d, d] / weight
        np.testing.assert_allclose(bandit.theta, theta, rtol=2e-7, atol=1e-9)
        np.testing.assert_allclose(bandit.model().view.matrix, inverse, rtol=2e-7, atol=1e-9)
    assert bandit.engine.fields()["raised"].item() == guarded
    assert (guarded > 0) == bool(options), "a small shift needs the guard, the default does not"


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("horizon", [200, None])
def test_without_noise_it_is_linucb_on_clipped_rewards(noise, horizon):
    reference = dpb.make("linucb", dim=3, seed=5, clip_rewards=True)
    bandit = make(epsilon=math.inf, noise=noise, horizon=horizon)
    assert drive(bandit, 200) == drive(reference, 200)
    np.testing.assert_allclose(bandit.theta, reference.theta, atol=1e-11)
    assert bandit.claim.status == "none"


def test_a_gram_matrix_that_noise_made_indefinite_has_its_eigenvalues_raised():
    bandit = make(shift=0, epsilon=0.1, ridge=3.0)
    for _ in range(50):
        drive(bandit, 1)
        fields = bandit.engine.fields()
        values = np.linalg.eigvalsh(fields["gram"])
        assert values.min() >= 1.5 * (1 - 1e-9)
        np.testing.assert_allclose(fields["gram"] @ fields["inverse"], np.eye(3), atol=1e-8)
    assert fields["raised"].item() > 40


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("horizon", [300, None])
def test_the_shift_of_one_bound_is_enough_without_the_guard(noise, horizon):
    # Each run needs the guard with probability ζ/4 = 0.025 at most; in truth far less. Contexts of length 0: noise alone.
    for seed in range(20):
        bandit = make(noise=noise, horizon=horizon, shift=1.0, zeta=0.1, epsilon=0.5, seed=seed)
        bandit.update(np.zeros((300, 3)), np.zeros(300))
        assert bandit.engine.fields()["raised"].item() == 0


@pytest.mark.parametrize("noise", NOISES)
def test_saved_in_the_middle_and_loaded_it_continues_bit_for_bit(noise, tmp_path):
    straight, broken = make(noise=noise, horizon=None), make(noise=noise, horizon=None)
    drive(straight, 37)
    drive(broken, 37)
    broken.save(tmp_path / "bandit.npz")
    loaded = dpb.load(tmp_path / "bandit.npz")
    assert drive(straight, 40, seed=1) == drive(loaded, 40, seed=1)
    for name, array in straight.engine.fields().items():
        assert (array == loaded.engine.fields()[name]).all(), name
    assert loaded.spent == straight.spent


@pytest.mark.parametrize(
    "options", [{}, {"horizon": None}, {"noise": "wishart"}, {"alpha": "theory"}, {"shift": 0.05}]
)
def test_the_engine_and_the_step_by_step_object_agree_bit_for_bit(options):
    world = dpb.worlds.Synthetic(arms=40, dim=4, shown=6)
    given = {"epsilon": 3.0, "delta": 1e-3, "reward_range": (-0.5, 1.5), **options}
    ran = dpb.run(
        world, {"it": ("joint", given)}, horizon=150, seeds=[3], record=[150], progress=False
    )
    bandit = dpb.make("joint", **({"dim": 4, "horizon": 150, "seed": 3} | given))
    episode = world.episode(3)
    block, regret = episode.block(150), 0.0
    for shown, rewards, means in zip(block.shown, block.rewards, block.means, strict=True):
        arm = bandit.select(block.pool[shown])
        regret += means.max() - means[arm]
        bandit.update(block.pool[shown[arm]], float(rewards[arm]))
    row = ran.frame().iloc[-1]
    assert row["regret"] == regret
    assert row["theta_error"] == pytest.approx(
        np.linalg.norm(bandit.theta - episode.theta), rel=1e-12
    )


@pytest.mark.parametrize("noise", NOISES)
def test_arms_depend_on_the_released_model_alone(noise, tmp_path):
    bandit, rng = make(noise=noise, epsilon=20.0), np.random.default_rng(1)
    drive(bandit, 60)
    bandit.export(tmp_path / "model.json")
    model = dpb.load(tmp_path / "model.json")
    for _ in range(200):
        x = contexts(rng, arms=8)
        assert bandit.select(x) == model.select(x)


@pytest.mark.parametrize("horizon", [64, None])
def test_nothing_clean_is_kept_outside_the_trees_sums(horizon):
    """Two different streams with the same noisy releases leave the same memory, but for the clean sums of nodes."""
    rng = np.random.default_rng(0)
    kept, script = [], None
    for _ in range(2):
        bandit = make(horizon=horizon)
        watch = Watch(bandit.source, script)
        bandit.source = watch
        bandit.update(contexts(rng, arms=45), rng.normal(size=45))
        script = watch.transcript
        kept.append(bandit.engine.fields())
    different = {name for name, array in kept[0].items() if (array != kept[1][name]).any()}
    assert {"sums_low"} <= different <= {"sums_low", "sums_high", "clipped"}


def test_a_wishart_draw_has_the_moments_of_the_distribution():
    p, degrees, draws = 3, 7.0, 20_000
    noise = find_noise("wishart")
    drawn = np.array(
        [unpacked(_core.noise("wishart", 4, i, degrees, np.zeros(6))) for i in range(draws)]
    )
    for i in range(3):
        reference = noise.simulate(4, i, degrees, np.zeros(6))
        np.testing.assert_allclose(drawn[i], unpacked(reference), rtol=1e-12)
    # E W = k·I, var W_ii = 2k, var W_ij = k: within 5 standard errors (of a variance: kurtosis below 6)
    assert np.abs(drawn.mean(axis=0) - degrees * np.eye(p)).max() < 5 * math.sqrt(
        2 * degrees / draws
    )
    spread = drawn.var(axis=0)
    expected = degrees * (1 + np.eye(p))
    assert (np.abs(spread / expected - 1) < 5 * math.sqrt(5 / draws)).all()
    # log det W is a sum of log χ²: mean Σ ψ((k − i)/2) + p·log 2, variance Σ ψ′((k − i)/2)
    from scipy.special import digamma, polygamma

    half = (degrees - np.arange(p)) / 2
    logs = np.linalg.slogdet(drawn)[1]
    error = math.sqrt(polygamma(1, half).sum() / draws)
    assert abs(logs.mean() - (digamma(half).sum() + p * math.log(2))) < 5 * error


def test_the_noise_it_can_have_and_what_it_refuses():
    with pytest.raises(OptionError, match="noise 'laplace' is not possible here"):
        make(noise="laplace")
    with pytest.raises(NoiseError, match="no exact sampler for 'wishart' noise: give a seed"):
        make(noise="wishart", seed=None)
    with pytest.raises(OptionError, match="has no pan-private form"):
        make(pan_private=True)
    with pytest.raises(OptionError, match="protects contexts itself: omit context_noise"):
        make(context_noise=0.1)
    with pytest.raises(OptionError, match="reward_weight must be a finite number above 0"):
        make(reward_weight=-1)
    with pytest.raises(OptionError, match="shift must be a finite number above 0"):
        make(shift=-1)
    with pytest.raises(OptionError, match="needs shift ≥ 1"):
        make(shift=0.5, alpha="theory")
    with pytest.raises(OptionError, match="leaves no δ for one"):
        make(noise="wishart", epsilon=1e4, unit=("user", 20))
    bandit = make(horizon=2)
    bandit.update(np.eye(3)[:2], [0.1, 0.2])
    with pytest.raises(HorizonError):
        bandit.update([0.0, 0.0, 1.0], 0.1)


def test_real_noise_is_drawn_without_a_seed():
    bandits = [make(seed=None, horizon=8) for _ in range(2)]
    for bandit in bandits:
        drive(bandit, 8)
        assert bandit.claim.noise == "real"
    assert (bandits[0].theta != bandits[1].theta).all()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("horizon", [100, None])
def test_the_theoretical_bonus_is_wider_than_without_privacy_and_equal_without_noise(
    noise, horizon
):
    plain = dpb.make("linucb", dim=3, seed=0, alpha="theory").alphas(1, 100)
    private = make(alpha="theory", noise=noise, horizon=horizon).alphas(1, 100)
    assert np.isfinite(private).all()
    assert (private > plain).all()
    quiet = make(alpha="theory", noise=noise, horizon=horizon, epsilon=math.inf).alphas(1, 100)
    np.testing.assert_allclose(quiet, plain, rtol=1e-12)


def test_the_theoretical_bonus_covers_the_truth():
    """In its norm the released parameter is within α_t of the truth in every round, but with probability 2ζ = 0.1 a run."""
    truth, rng, late = np.array([0.6, -0.3, 0.5]), np.random.default_rng(0), 0
    for seed in range(30):
        bandit = make(alpha="theory", seed=seed, reward_range=(-4, 4), reward_noise=0.5)
        alphas, outside = bandit.alphas(2, 150), False
        for t in range(150):
            x = contexts(rng, arms=1)[0]
            bandit.update(x, float(x @ truth + 0.5 * rng.normal()))
            error = bandit.theta - truth
            outside |= bool(math.sqrt(error @ bandit.engine.fields()["gram"] @ error) > alphas[t])
        late += outside
    assert (
        late <= 10
    )  # Binomial(30, 0.1) exceeds 10 with probability 2e-4; in truth the bound is loose


def test_a_user_with_several_rewards_gets_that_much_more_noise():
    one, three = make(), make(unit=("user", 3))
    assert three.spec["multipliers"][8] == pytest.approx(3 * one.spec["multipliers"][8])
    assert three.claim.mu == pytest.approx(one.claim.mu)
    assert three.claim.unit == "one user with at most 3 contexts and rewards"
    assert (
        make(noise="wishart", unit=("user", 2)).spec["multipliers"][8]
        > 3 * make(noise="wishart").spec["multipliers"][8]
    )


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("horizon", [64, None])
def test_what_is_spent_grows_and_ends_at_the_claim_or_below(noise, horizon):
    bandit, last = make(noise=noise, horizon=horizon), 0.0
    for _ in range(64):
        drive(bandit, 1)
        assert last <= bandit.spent.epsilon <= 2.0
        last = bandit.spent.epsilon
    assert last == pytest.approx(2.0, rel=1e-6 if noise == "gaussian" else 0.05)
    assert bandit.claim.notion == "joint"


def test_the_amount_of_noise_is_that_of_the_nodes_in_use():
    def amount(spec):
        return JointLearner(spec, Clock()).amount(13)

    known, unknown = make(horizon=20).spec, make(horizon=None).spec
    each = (math.sqrt(2) * known["multipliers"][5]) ** 2
    assert amount(known) == pytest.approx(3 * each, rel=1e-6)
    # 13 = blocks 1, 2, 4 and then 6 rounds of the block of 8, which are two nodes
    shares = (math.sqrt(2) * unknown["multipliers"]) ** 2
    blocks = shares[1] + shares[2] + shares[3] + 2 * shares[4]
    assert amount(unknown) == pytest.approx(blocks, rel=1e-6)


def test_no_message_says_what_is_in_a_private_context():
    bandit = dpb.make("joint", dim=2, epsilon=1.0, delta=1e-4, horizon=4, seed=0)
    with pytest.raises(dpb.errors.NormError) as caught:
        bandit.update([1.25, 0.0], 0.0)
    assert "1.25" not in str(caught.value)
