"""The ways to publish moments and to shape them, against plain NumPy written from their definitions."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import dpbandit as dpb
from dpbandit.algorithms.shapes import whitener
from dpbandit.auditor.watch import Watch
from dpbandit.errors import OptionError
from dpbandit.release import toeplitz

DIM, ROUNDS = 4, 90
# Rewards lie in [−1, 1]: what is summed is x·r over the width of that, 2, in steps of 2⁻⁴⁰.
WIDTH, STEP = 2.0, 2.0**-40


def stream(seed=0, rounds=ROUNDS):
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(rounds, DIM)) * [1.0, 0.5, 0.2, 0.05]
    xs /= np.maximum(np.linalg.norm(xs, axis=1, keepdims=True), 1.0)
    return xs, rng.uniform(-1, 1, rounds)


def watched(name, **options):
    given = {"dim": DIM, "epsilon": 1.0, "delta": 1e-4, "horizon": ROUNDS, "seed": 3} | options
    bandit = dpb.make(name, **given)
    watch = Watch(bandit.source)
    bandit.source = watch
    return bandit, watch.transcript.releases


def by_definition(xs, rs, noise_in_moments, shape=None, ridge=1.0):
    """θ from all rounds, with this much noise on the (shaped) sum."""
    if shape is None:
        return np.linalg.solve(ridge * np.eye(DIM) + xs.T @ xs, xs.T @ rs + noise_in_moments)
    whiten, floor = shape
    sizes = np.maximum(np.linalg.norm(xs @ whiten, axis=1), floor)
    gram = ridge / max(math.sqrt(DIM), floor) * np.eye(DIM) + (xs / sizes[:, None]).T @ xs
    total = ((xs @ whiten) / sizes[:, None] * rs[:, None]).sum(axis=0) + noise_in_moments
    return np.linalg.solve(gram, np.linalg.solve(whiten, total))


def shapes(xs):
    whiten, _ = whitener(xs.T @ xs / len(xs))
    longest = np.linalg.norm(xs @ whiten, axis=1).max()
    return {"round": None, "ellipsoid": (whiten, longest), "instruments": (whiten, 0.0)}


@pytest.mark.parametrize("shape", ["round", "ellipsoid", "instruments"])
@pytest.mark.parametrize("horizon", [ROUNDS, None])
def test_toeplitz_is_the_factorisation(shape, horizon):
    xs, rs = stream()
    bandit, releases = watched("toeplitz", shape=shape, public_contexts=xs, horizon=horizon)
    bandit.update(xs, rs)
    rates, weights = toeplitz.decays_for(horizon)
    c = np.array([1.0, *(weights @ (1 - rates) ** k for k in range(ROUNDS - 1))])
    encoder = np.array(
        [[c[i - j] if i >= j else 0.0 for j in range(ROUNDS)] for i in range(ROUNDS)]
    )
    decoder = np.tril(np.ones((ROUNDS, ROUNDS))) @ np.linalg.inv(encoder)
    noise = np.array([release.noisy - release.value for release in releases])
    expected = by_definition(xs, rs, WIDTH * (decoder @ noise)[-1], shapes(xs)[shape])
    assert np.allclose(bandit.theta, expected, rtol=0, atol=1e-9)
    # One scale for all rounds: the column's norm over μ, and what is charged for rounding. An item
    # is at most 1 from its neighbour.
    (scale,) = {release.scale for release in releases}
    assert 1 <= scale * bandit.claim.mu / toeplitz.column_norm(horizon) <= 1 + 3e-5
    assert bandit.ledger.total <= bandit.ledger.limit
    if horizon:
        assert bandit.ledger.total == pytest.approx(bandit.ledger.limit, rel=1e-9)


@pytest.mark.parametrize("shape", ["ellipsoid", "instruments"])
def test_a_shaped_tree_solves_for_the_same_parameter(shape):
    xs, rs = stream()
    bandit, releases = watched("tree-gauss", shape=shape, public_contexts=xs, epsilon=math.inf)
    bandit.update(xs, rs)
    assert len(releases) == ROUNDS
    assert np.allclose(bandit.theta, by_definition(xs, rs, 0.0, shapes(xs)[shape]), atol=1e-10)


def test_a_context_outside_the_ellipsoid_counts_less_and_never_costs_more():
    xs, _ = stream()
    bandit, releases = watched("tree-gauss", shape="ellipsoid", public_contexts=xs * 0.1)
    bandit.update(xs[0], 1.0)
    assert 0.4 < np.linalg.norm(releases[0].value) <= 0.5 + DIM * STEP


def test_honaker_combines_every_node_of_the_tree():
    xs, rs = stream(rounds=8)
    bandit, releases = watched("tree-gauss", honaker=True, horizon=8)
    bandit.update(xs, rs)
    nodes = [release.noisy.reshape(4, DIM) for release in releases]
    noisy = {
        (end - (1 << level), end): nodes[end - 1][level]
        for level in range(4)
        for end in range(1 << level, 9, 1 << level)
    }

    def estimate(start, end):
        """Inverse-variance mean of a node's own value and its children's estimates, and its variance."""
        own = noisy[start, end]
        if end - start == 1:
            return own, 1.0
        middle = (start + end) // 2
        (left, a), (right, b) = estimate(start, middle), estimate(middle, end)
        variance = 1 / (1 + 1 / (a + b))
        return variance * (own + (left + right) / (a + b)), variance

    gram = np.eye(DIM) + xs.T @ xs
    assert np.allclose(bandit.theta, np.linalg.solve(gram, WIDTH * estimate(0, 8)[0]), atol=1e-10)
    assert bandit.ledger.total == pytest.approx(bandit.ledger.limit)
    with pytest.raises(OptionError, match="needs a horizon"):
        watched("tree-gauss", honaker=True, horizon=None)


def test_adac_oful_releases_when_the_determinant_has_doubled_and_keeps_the_ellipsoid_between():
    xs, rs = stream(rounds=60)
    bandit, releases = watched("adac-oful", horizon=None)
    gram, total, start, anchor = np.eye(DIM), np.zeros(DIM), 0, np.eye(DIM)
    last = np.linalg.slogdet(gram)[1]
    for t in range(60):
        offered = xs[[t, (t + 7) % 60, (t + 13) % 60]]
        widths = np.sqrt(np.einsum("ij,jk,ik->i", offered, anchor, offered))
        assert bandit.select(offered) == int(
            np.argmax(offered @ bandit.theta + bandit.alpha * widths)
        )
        bandit.update(xs[t], rs[t])
        gram += np.outer(xs[t], xs[t])
        if np.linalg.slogdet(gram)[1] - last >= math.log(2):
            clean = xs[start : t + 1].T @ rs[start : t + 1] / WIDTH
            assert np.allclose(releases[-1].value, clean, rtol=0, atol=60 * STEP)
            total = total + WIDTH * releases[-1].noisy
            last, start, anchor = np.linalg.slogdet(gram)[1], t + 1, np.linalg.inv(gram)
            assert np.allclose(bandit.theta, np.linalg.solve(gram, total))
    assert 2 < len(releases) < 20
    assert bandit.ledger.total == pytest.approx(bandit.ledger.limit)
    assert bandit.ledger.releases == len(releases)


def test_thompson_draws_have_the_posteriors_covariance_and_are_not_the_privacy_noise():
    bandit = dpb.make("private-ts", dim=2, epsilon=1.0, horizon=64, seed=1, alpha=40.0)
    rng = np.random.default_rng(0)
    for _ in range(40):
        x = rng.normal(size=2)
        bandit.update(x / np.linalg.norm(x), 0.3)
    # P(arm 0 is drawn as better) = Φ((x₀ − x₁)·θ / (α‖x₀ − x₁‖_{A⁻¹})); 4,000 draws, five standard errors: 6e-7
    arms = np.array([[0.9, 0.1], [0.2, 0.8]])
    difference = arms[0] - arms[1]
    spread = 40.0 * math.sqrt(difference @ bandit.model().view.matrix @ difference)
    expected = norm.cdf(difference @ bandit.theta / spread)
    seen = np.mean([bandit.select(arms) == 0 for _ in range(4000)])
    assert abs(seen - expected) < 5 * math.sqrt(expected * (1 - expected) / 4000)
    assert 0.05 < expected < 0.95


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("toeplitz", {"shape": "elipsoid"}, "did you mean 'ellipsoid'"),
        ("toeplitz", {"shape": "instruments"}, "needs public_contexts"),
        ("toeplitz", {"noise": "laplace"}, "not possible here"),
        ("toeplitz", {"pan_private": True}, "no pan-private form"),
        (
            "private-ts",
            {"shape": "instruments", "public_contexts": np.eye(4)},
            "use noise='gaussian'",
        ),
        ("adac-oful", {"determinant_growth": 0}, "above 0"),
    ],
)
def test_what_does_not_fit_together_is_said(name, options, words):
    with pytest.raises(OptionError, match=words):
        watched(name, **options)


def test_real_noise_goes_through_every_release():
    xs, rs = stream(rounds=12)
    for name, options in [
        ("toeplitz", {"shape": "instruments", "public_contexts": xs}),
        ("toeplitz", {"horizon": None}),
        ("tree-gauss", {"honaker": True}),
        ("adac-oful", {}),
        ("private-ts", {}),
    ]:
        bandit = dpb.make(
            name, dim=DIM, **({"epsilon": 1.0, "delta": 1e-4, "horizon": 12} | options)
        )
        bandit.update(xs, rs)
        assert bandit.claim.noise == "real"
        assert np.isfinite(bandit.theta).all()
        assert 0 < bandit.ledger.total <= bandit.ledger.limit * (1 + 1e-12)


def test_an_episodes_sum_is_exact_and_a_reward_moves_it_by_its_own_item():
    """Many items of ½ and many of about one step: a sum in floats would lose the small ones."""
    n, tiny = 1 << 12, 1.6 * STEP
    values = []
    for first in (-1.0, 1.0):
        bandit, released = watched("adac-oful", horizon=None, determinant_growth=10.0 * n, dim=1)
        xs = np.concatenate([np.ones((n, 1)), np.full((n, 1), tiny), np.ones((10 * n, 1))])
        rs = np.ones(len(xs))
        rs[0] = first
        for start in range(0, len(xs), 1000):
            bandit.update(xs[start : start + 1000], rs[start : start + 1000])
        values.append(released[0].value[0])
    assert values[1] - values[0] == 1.0
    ones, steps = divmod(int(values[1] / STEP), 1 << 39)
    assert (ones > n, steps) == (True, n)  # 0.8 of a step is one step


def test_a_bandit_at_its_horizon_still_ranks_and_exports_with_the_theoretical_bonus(tmp_path):
    xs, rs = stream(rounds=3)
    for options in ({}, {"honaker": True}):
        name = "tree-gauss" if options else "toeplitz"
        bandit, _ = watched(name, horizon=3, alpha="theory", **options)
        bandit.update(xs, rs)
        chosen = bandit.select(xs)
        bandit.export(tmp_path / "model.json")
        assert dpb.load(tmp_path / "model.json").select(xs) == chosen


def test_exported_models_rank_by_the_rule_of_their_bandit(tmp_path):
    xs, rs = stream(rounds=50)
    bandit, _ = watched("adac-oful", horizon=None)
    bandit.update(xs, rs)
    bandit.export(tmp_path / "model.json")
    model = dpb.load(tmp_path / "model.json")
    assert (model.view.matrix == bandit.engine.fields()["anchor"]).all()
    thompson, _ = watched("private-ts", alpha=50.0)
    thompson.update(xs, rs)
    thompson.export(tmp_path / "ts.json")
    drawn = {dpb.load(tmp_path / "ts.json").select(xs[:4]) for _ in range(60)}
    assert len(drawn) > 1
