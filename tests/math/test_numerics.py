"""Ridge statistics: incremental equals batch, and neither drifts."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from dpbandit import factors, numerics, scoring


@njit
def feed(ridge, xs, rs):
    for t in range(len(xs)):
        quadratic = numerics.add_context(ridge, xs[t])
        numerics.add_reward(ridge, xs[t], rs[t], quadratic)
        numerics.refresh_when_due(ridge, quadratic)


def exact_theta(xs, rs, lam):
    """The ridge solution in 80 digits, from sums in 113 or so exact bits (two floats)."""
    d = xs.shape[1]
    mpmath.mp.dps = 60
    gram = mpmath.matrix(d, d)
    b = mpmath.matrix(d, 1)
    # np.longdouble keeps 11 more bits than a float: pairwise sums of a million terms are then good to 1e-19 or so.
    wide = xs.astype(np.longdouble)
    for i in range(d):
        b[i] = _mp((wide[:, i] * rs).sum())
        for k in range(d):
            gram[i, k] = _mp((wide[:, i] * wide[:, k]).sum()) + (mpmath.mpf(lam) if i == k else 0)
    theta = mpmath.lu_solve(gram, b)
    eigenvalues = mpmath.eigsy(gram, eigvals_only=True)
    condition = float(eigenvalues[d - 1] / eigenvalues[0])
    return np.array([float(v) for v in theta]), condition


def _mp(value):
    high = float(value)
    return mpmath.mpf(high) + mpmath.mpf(float(value - np.longdouble(high)))


@pytest.mark.parametrize(
    ("decay", "lam"), [(1.0, 1.0), (0.05, 1.0), (0.002, 1.0), (4e-4, 0.03), (1e-4, 1e-3), (1e-6, 1e-6)]
)
def test_a_million_updates_agree_with_an_extended_precision_solve(decay, lam):
    rng = np.random.default_rng(5)
    d, n = 6, 1_000_000
    xs = rng.normal(size=(n, d)) * decay ** (np.arange(d) / (d - 1))
    xs /= np.linalg.norm(xs, axis=1).max()
    rs = xs @ rng.normal(size=d) + rng.normal(size=n) * 0.5
    ridge = numerics.new_ridge(d, lam)
    feed(ridge, xs, rs)
    expected, condition = exact_theta(xs, rs, lam)
    error = np.linalg.norm(ridge.theta - expected) / np.linalg.norm(expected)
    allowed = 1e-9 if condition <= 1e6 else 100 * condition * 2.0**-53
    assert error <= allowed, f"relative error {error:.2e} at condition number {condition:.2e}"


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 11), st.integers(1, 300), st.floats(0.01, 100.0), st.integers(0, 2**32 - 1))
def test_incremental_statistics_equal_batch_statistics(d, n, lam, seed):
    rng = np.random.default_rng(seed)
    d = d if d <= 8 else [13, 25, 70][d - 9]  # longer than one vector, than three, and than what fits the first cache
    xs, rs = rng.uniform(-1, 1, size=(n, d)), rng.uniform(-1, 1, size=n)
    ridge = numerics.new_ridge(d, lam)
    feed(ridge, xs, rs)
    numerics.settle(ridge)
    inverse, gram, b, theta = ridge.inverse, ridge.gram, ridge.moments, ridge.theta
    full = lam * np.eye(d) + xs.T @ xs
    np.testing.assert_allclose(gram, full, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(b, xs.T @ rs, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(inverse @ full, np.eye(d), atol=1e-8)
    np.testing.assert_allclose(theta, np.linalg.solve(full, xs.T @ rs), rtol=1e-7, atol=1e-9)


def test_a_refresh_repairs_an_inverse_that_has_lost_its_sign():
    ridge = numerics.new_ridge(2, 1.0)
    ridge.inverse[:] = -np.eye(2)
    assert numerics.refresh_when_due(ridge, -1.0)
    np.testing.assert_allclose(ridge.inverse, np.eye(2))


def test_ties_are_broken_at_random_and_evenly():
    # 4 arms, 4,000 ties: a chi-square above 21.1 (3 degrees of freedom) has probability 1e-4; the key is fixed.
    counts = np.bincount([numerics.pick(np.zeros(4), np.uint64(99), t) for t in range(4000)], minlength=4)
    assert ((counts - 1000) ** 2 / 1000).sum() < 21.1


def test_the_highest_score_wins_when_there_is_no_tie():
    assert numerics.pick(np.array([0.1, 0.5, 0.5 - 1e-9]), np.uint64(1), 0) == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_scores_are_those_of_plain_numpy_whatever_the_sizes(d, arms, seed):
    rng = np.random.default_rng(seed)
    pool, shown, theta = rng.normal(size=(80, d)), rng.permutation(80)[:arms], rng.normal(size=d)
    root = rng.normal(size=(d, d + 3))
    matrix = root @ root.T
    scores, mean = np.empty(arms), np.empty(d)
    scoring.score(matrix, theta, pool, shown, 0.3, scoring.new_work(d), scores)
    xs = pool[shown]
    widths = np.sqrt(np.einsum("ij,jk,ik->i", xs, matrix, xs))
    np.testing.assert_allclose(scores, xs @ theta + 0.3 * widths, rtol=1e-12, atol=1e-11)
    scoring.score_about_mean(matrix, theta, pool, shown, 0.3, scoring.new_work(d), scores, mean)
    apart = xs - xs.mean(axis=0)
    widths = np.sqrt(np.einsum("ij,jk,ik->i", apart, matrix, apart))
    np.testing.assert_allclose(scores, xs @ theta + 0.3 * widths, rtol=1e-10, atol=1e-6)


def test_an_arms_score_does_not_depend_on_what_stands_beside_it():
    rng = np.random.default_rng(0)
    d = 11
    pool, theta, root = rng.normal(size=(40, d)), rng.normal(size=d), rng.normal(size=(d, d))
    matrix, all_of_them = root @ root.T, np.empty(40)
    scoring.score(matrix, theta, pool, np.arange(40), 0.3, scoring.new_work(d), all_of_them)
    for arms in (1, 2, 5, 13):
        scores, shown = np.empty(arms), rng.permutation(40)[:arms]
        scoring.score(matrix, theta, pool, shown, 0.3, scoring.new_work(d), scores)
        assert (scores == all_of_them[shown]).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_a_factor_exists_just_above_the_largest_eigenvalue_and_not_below(d, seed):
    root = np.random.default_rng(seed).normal(size=(d, d + 2))
    matrix = root @ root.T
    largest = np.linalg.eigvalsh(matrix)[-1]
    assert factors.has_no_eigenvalue_above(matrix, largest * (1 + 1e-9), np.empty((d, d)))
    assert not factors.has_no_eigenvalue_above(matrix, largest * (1 - 1e-9), np.empty((d, d)))
