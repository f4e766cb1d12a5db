"""Ridge statistics of the core: incremental equals batch, and neither drifts. Its scores and ties."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpbandit as dpb


def linucb(d, lam, **options):
    """Plain ridge regression, on rewards of any size."""
    return dpb.make("linucb", dim=d, ridge=lam, max_norm=float(d), seed=0, **options)


def exact_theta(xs, rs, lam):
    """The ridge solution in 60 digits, from sums of which a part in 1e19 may be lost."""
    d = xs.shape[1]
    mpmath.mp.dps = 60
    gram = mpmath.matrix(d, d)
    b = mpmath.matrix(d, 1)
    # np.longdouble keeps 11 more bits than a float, and NumPy adds in pairs.
    wide = xs.astype(np.longdouble)
    for i in range(d):
        b[i] = _mp((wide[:, i] * rs).sum())
        for k in range(i + 1):
            gram[i, k] = gram[k, i] = _mp((wide[:, i] * wide[:, k]).sum())
        gram[i, i] += mpmath.mpf(lam)
    theta = mpmath.lu_solve(gram, b)
    eigenvalues = mpmath.eigsy(gram, eigvals_only=True)
    condition = float(eigenvalues[d - 1] / eigenvalues[0])
    return np.array([float(v) for v in theta]), condition


def _mp(value):
    high = float(value)
    return mpmath.mpf(high) + mpmath.mpf(float(value - np.longdouble(high)))


@pytest.mark.parametrize(
    ("decay", "lam", "least"),
    [
        (1.0, 1.0, 1.0),
        (0.05, 1.0, 2e2),
        (0.002, 1.0, 2e4),
        (4e-4, 0.03, 1e6),
        (1e-4, 1e-3, 2e7),
        (1e-6, 1e-6, 2e10),
    ],
)
def test_a_million_updates_agree_with_an_extended_precision_solve(decay, lam, least):
    rng = np.random.default_rng(5)
    d, n = 6, 1_000_000
    xs = rng.normal(size=(n, d)) * decay ** (np.arange(d) / (d - 1))
    xs /= np.linalg.norm(xs, axis=1).max()
    rs = xs @ rng.normal(size=d) + rng.normal(size=n) * 0.5
    bandit = linucb(d, lam)
    bandit.update(xs, rs)
    expected, condition = exact_theta(xs, rs, lam)
    assert condition >= least
    error = np.linalg.norm(bandit.theta - expected) / np.linalg.norm(expected)
    allowed = 1e-9 if condition <= 1e6 else 100 * condition * 2.0**-53
    assert error <= allowed, f"relative error {error:.2e} at condition number {condition:.2e}"


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 11), st.integers(1, 300), st.floats(0.01, 100.0), st.integers(0, 2**32 - 1))
def test_incremental_statistics_equal_batch_statistics(d, n, lam, seed):
    rng = np.random.default_rng(seed)
    # Longer than one vector, than three, and than what fits the first cache.
    d = d if d <= 8 else [13, 25, 70][d - 9]
    xs, rs = rng.uniform(-1, 1, size=(n, d)), rng.uniform(-1, 1, size=n)
    bandit = linucb(d, lam)
    bandit.update(xs, rs)
    fields = bandit.engine.fields()
    waiting = fields["recent"][: fields["waiting"].item()]
    full = lam * np.eye(d) + xs.T @ xs
    gram = fields["gram"] + fields["gram_low"] + waiting.T @ waiting
    np.testing.assert_allclose(gram, full, rtol=1e-12, atol=1e-12)
    moments = fields["moments"] + fields["moments_low"]
    np.testing.assert_allclose(moments, xs.T @ rs, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(fields["inverse"] @ full, np.eye(d), atol=1e-8)
    np.testing.assert_allclose(bandit.theta, np.linalg.solve(full, xs.T @ rs), rtol=1e-7, atol=1e-9)


def test_an_inverse_that_has_lost_its_sign_is_computed_anew():
    bandit, x = linucb(2, 1.0), np.array([0.6, 0.8])
    bandit.engine.fields()["inverse"][:] = -np.eye(2)
    bandit.update(x, 0.5)
    exact = np.linalg.inv(np.eye(2) + np.outer(x, x))
    np.testing.assert_allclose(bandit.engine.fields()["inverse"], exact, rtol=1e-14)
    np.testing.assert_allclose(bandit.theta, exact @ x * 0.5, rtol=1e-14)


def test_ties_are_broken_at_random_and_evenly():
    # A chi-square above 21.1 (3 degrees of freedom) has probability 1e-4; the key is fixed.
    bandit, slate = linucb(4, 1.0), np.eye(4)
    counts = np.bincount([bandit.select(slate) for _ in range(4000)], minlength=4)
    assert ((counts - 1000) ** 2 / 1000).sum() < 21.1


def test_the_highest_score_wins_when_there_is_no_tie():
    bandit = linucb(1, 1.0, alpha=0.0)
    for name in ("theta", "ridge_theta"):
        bandit.engine.fields()[name][:] = 1.0
    clear, tied = np.array([[0.1], [0.5], [0.5 - 1e-9]]), np.array([[0.1], [0.5], [0.5 - 1e-13]])
    assert {bandit.select(clear) for _ in range(60)} == {1}
    assert {bandit.select(tied) for _ in range(60)} == {1, 2}


def scored(policy, d, theta, matrix):
    """A bandit that ranks by this model."""
    name = {"ucb": "linucb", "centred-ucb": "anytime"}[policy]
    own = {} if name == "linucb" else {"epsilon": 1.0, "delta": 1e-6, "public_contexts": np.eye(d)}
    bandit = dpb.make(name, dim=d, max_norm=100.0, seed=0, alpha=0.3, **own)
    assert bandit.policy.name == policy
    fields = {key: array.copy() for key, array in bandit.engine.fields().items()}
    fields["theta"][:] = theta
    if name == "linucb":
        fields["ridge_theta"][:], fields["inverse"][:] = theta, matrix
    else:
        fields["estimate"][:d], fields["bonus"][:] = theta, matrix
    bandit.engine.load_fields(fields)
    return bandit


@pytest.mark.parametrize("policy", ["ucb", "centred-ucb"])
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_arms_are_ranked_as_in_plain_numpy_whatever_the_sizes(policy, d, arms, seed):
    rng = np.random.default_rng(seed)
    xs, theta, root = rng.normal(size=(arms, d)), rng.normal(size=d), rng.normal(size=(d, d + 3))
    matrix = root @ root.T
    ranked = scored(policy, d, theta, matrix).select(xs, k=arms)
    apart = xs if policy == "ucb" else xs - xs.mean(axis=0)
    widths = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", apart, matrix, apart), 0.0))
    scores = xs @ theta + 0.3 * widths
    assert sorted(ranked.tolist()) == list(range(arms))
    np.testing.assert_allclose(scores[ranked], np.sort(scores)[::-1], rtol=1e-10, atol=1e-9)


def test_an_arms_score_does_not_depend_on_what_stands_beside_it():
    """Scores near 1e9 tie in all their bits or not at all: 1e-12 is far below the last one. Equal
    arms must take turns wherever they stand; one that was a bit ahead would win every time."""
    rng, d = np.random.default_rng(0), 11
    theta, root = rng.normal(size=d) * 1e9, rng.normal(size=(d, d)) * 1e9
    bandit = scored("ucb", d, theta, root @ root.T)
    best, others = theta / np.linalg.norm(theta), rng.normal(size=(40, d)) * 1e-3
    for arms, copies in (
        (2, {0, 1}),
        (13, {0, 5, 12}),
        (17, {3, 4, 16}),
        (40, {0, 11, 12, 25, 39}),
    ):
        slate = others[:arms].copy()
        slate[sorted(copies)] = best
        assert {bandit.select(slate) for _ in range(200)} == copies


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@settings(max_examples=15, deadline=None)
@given(st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_the_scale_of_dgs_covers_the_largest_eigenvalue_and_is_not_much_above(noise, d, seed):
    rng = np.random.default_rng(seed)
    bandit = dpb.make("dgs", dim=d, epsilon=1.0, delta=1e-6, horizon=400, noise=noise, seed=0)
    engine, one = bandit.engine, bandit.spec["sensitivity"]
    unit = bandit.spec["multipliers"][bandit.spec["levels"]] * one
    for _ in range(300):
        x = rng.normal(size=d) * 0.5 ** np.arange(d)
        x /= max(np.linalg.norm(x), 1.0)
        reach = engine.prepare(x, 0.5) / unit
        largest = np.linalg.eigvalsh(engine.fields()["inverse"])[-1]
        largest *= np.sqrt(d) if noise == "laplace" else 1.0
        assert largest * (1 - 1e-12) <= reach <= 2 * largest
        engine.commit(engine.pending())
