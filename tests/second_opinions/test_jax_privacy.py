"""jax-privacy (Google DeepMind): its test vectors for Toeplitz matrices, put to our release.

Theirs keep decays θ, ours rates 1 − θ; both have weights ω. Needs the extra `second-opinions`,
which `make test-all` installs: JAX alone takes some 400 MB.
"""

from __future__ import annotations

import importlib.metadata
import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.importorskip(
    "jax_privacy",
    reason="jax-privacy is not installed: `make test-all` installs 'dpbandit[second-opinions]'",
)

import jax
import theirs
from jax_privacy.matrix_factorization import buffered_toeplitz, dense, sensitivity, toeplitz

from dpbandit.privacy.noise import GAUSSIAN
from dpbandit.release import Toeplitz, Tree
from dpbandit.release import toeplitz as ours
from dpbandit.release.toeplitz_table import TABLE

pytestmark = pytest.mark.slow
PACKAGE = "jax-privacy"
FOLDER = "tests/matrix_factorization"
LENGTHS = (1, 2, 3, 10, 50, 777)


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def buffered():
    with jax.enable_x64(True):
        return theirs.shipped(PACKAGE, f"{FOLDER}/buffered_toeplitz_test.py")


@pytest.fixture(scope="module")
def banded():
    with jax.enable_x64(True):
        return theirs.shipped(PACKAGE, f"{FOLDER}/toeplitz_test.py")


def of(blt):
    """Rates and weights of one of their matrices, or that it is not of our kind."""
    decays, weights = np.asarray(blt.buf_decay), np.asarray(blt.output_scale)
    if not ((decays > 0).all() and (decays < 1).all() and (weights > 0).all()):
        raise theirs.OutOfScope("a decay outside (0, 1), or a weight that is not positive")
    # 1 − θ of their double θ: what their number says, exactly.
    return 1 - decays, weights


def our_sensitivity_squared(blt, n):
    return ours.squared_column(*of(blt), np.array(float(n))).item()


def our_max_error(inverse, n):
    """Theirs takes C⁻¹, ours C."""
    rates, weights = of(inverse.inverse())
    return ours.squared_row(rates, weights, np.array(float(n))).item()


def our_loss(blt, n):
    return our_sensitivity_squared(blt, n) * ours.squared_row(*of(blt), np.array(float(n))).item()


def in_scope(buffered):
    """Their published matrices that are of our kind, and how many are not."""
    found, others = [], 0
    for pair in buffered.BLT_TUPLES:
        try:
            of(buffered.make_blt(*pair))
        except theirs.OutOfScope:
            others += 1
        else:
            found.append(pair)
    return found, others


def test_most_of_their_matrices_are_of_our_kind(buffered):
    found, others = in_scope(buffered)
    assert (len(found), others) == (26, 6)


def test_column_norms_pass_their_tests(buffered, monkeypatch):
    """Their closed form is replaced by ours; their sum over coefficients decides."""
    monkeypatch.setattr(buffered_toeplitz, "sensitivity_squared", our_sensitivity_squared)
    case = buffered.ClosedFormsTest()
    finite = theirs.inner(buffered.ClosedFormsTest, "test_sensitivity")
    endless = theirs.inner(buffered.ClosedFormsTest, "test_limit_sensitivity")
    for pair in in_scope(buffered)[0]:
        for n in LENGTHS:
            finite(case, pair, n)
        endless(case, pair)


def test_errors_pass_their_tests(buffered, monkeypatch):
    monkeypatch.setattr(buffered_toeplitz, "max_error", our_max_error)
    case = buffered.ClosedFormsTest()
    body = theirs.inner(buffered.ClosedFormsTest, "test_max_error")
    for pair in in_scope(buffered)[0]:
        with_gaps = buffered.make_blt(*pair)
        if buffered_toeplitz.min_buf_decay_gap(with_gaps.buf_decay) <= 1e-8:
            continue  # their own inverse has no digits left
        inverse = with_gaps.inverse()
        as_pair = ([*map(float, inverse.buf_decay)], [*map(float, inverse.output_scale)])
        for n in (500, 1000):
            body(case, as_pair, n)


def test_sensitivity_times_error_passes_their_tests(buffered, monkeypatch):
    monkeypatch.setattr(buffered_toeplitz, "max_loss", our_loss)
    case = buffered.ClosedFormsTest()
    body = theirs.inner(buffered.ClosedFormsTest, "test_max_iter_loss")
    for pair in in_scope(buffered)[0]:
        for n in (1, 2, 17, 50):
            body(case, pair, n)


def test_geometric_sums_pass_their_tests(buffered, monkeypatch):
    def geometric(a, r, num=math.inf):
        if r == 1.0 and math.isinf(num):
            raise theirs.OutOfScope("a sum without end that does not decay")
        return a * ours.geometric(1.0 - r, np.array(float(num))).item()

    monkeypatch.setattr(buffered_toeplitz, "geometric_sum", geometric)
    near_one = theirs.inner(buffered.ClosedFormsTest, "test_geometric_sum_near_one")
    for power in range(1, 11):
        for n in (1, 2, 10, 1000):
            near_one(buffered.ClosedFormsTest(), n, power)
    # Their table of sums ends with one that ours does not have; what comes before is judged.
    with pytest.raises(theirs.OutOfScope):
        buffered.ClosedFormsTest("test_geometric_sum_basic").debug()


def streamed(rates, weights, n):
    """C as our release encodes: what it shows of each unit item."""
    columns = []
    for at in range(n):
        state = ours.ToeplitzSums(1, rates=rates, weights=weights)
        columns.append([state.encode(np.array([float(t == at)])).item() for t in range(n)])
    return np.array(columns).T


def decoded(rates, weights, n):
    """B as our release decodes: the sums that it makes of each unit of noise."""
    columns = []
    for at in range(n):
        state = ours.ToeplitzSums(1, rates=rates, weights=weights)
        columns.append([state.publish(t + 1, np.array([float(t == at)])).item() for t in range(n)])
    return np.array(columns).T


def test_what_is_encoded_and_decoded_is_their_matrix(buffered):
    n = 24
    for pair in in_scope(buffered)[0]:
        blt = buffered.make_blt(*pair)
        rates, weights = of(blt)
        dense_c = np.asarray(blt.materialize(n))
        np.testing.assert_allclose(streamed(rates, weights, n), dense_c, atol=1e-12)
        b = np.tril(np.ones((n, n))) @ np.linalg.inv(dense_c)
        np.testing.assert_allclose(decoded(rates, weights, n), b, atol=1e-9)


@pytest.mark.parametrize("horizon", [1, 2, 10, 300, 1_000, 3_000])
def test_our_noise_is_scaled_to_their_sensitivity(horizon):
    """The very table that ships, in dense matrices of theirs."""
    rates, weights = ours.decays_for(horizon)
    blt = buffered_toeplitz.BufferedToeplitz.build(buf_decay=1 - rates, output_scale=weights)
    coefficients = blt.toeplitz_coefs(horizon)
    exact = math.sqrt(float(toeplitz.sensitivity_squared(coefficients)))
    norm = ours.column_norm(horizon)
    assert exact <= norm <= exact * (1 + 1e-9)
    error = np.asarray(toeplitz.per_query_error(strategy_coef=coefficients))
    t = np.arange(1, horizon + 1)
    np.testing.assert_allclose(ours.squared_row(rates, weights, t.astype(float)), error, rtol=1e-8)
    release = Toeplitz(GAUSSIAN, horizon, 1.0, 0.5, 1, False)
    np.testing.assert_allclose(release.squares(t), release.scale**2 * error, rtol=1e-8)
    assert release.scale * 0.5 >= exact


@pytest.mark.parametrize("length", [1_000, 10_000])
def test_the_fitted_tables_lose_little_to_their_optimum(length):
    """Against the best of all Toeplitz matrices for the worst round, which they compute."""
    best = toeplitz.optimal_max_error_strategy_coefs(length)
    exact = float(toeplitz.loss(strategy_coef=best, reduction_fn=jax.numpy.max))
    rates, weights = (np.array(part) for part in TABLE[length])
    at = np.array(float(length))
    mine = ours.squared_column(rates, weights, at) * ours.squared_row(rates, weights, at)
    assert exact * (1 - 1e-9) <= mine.item() <= exact * 1.004


@pytest.mark.parametrize("n", [1, 2, 10, 100])
def test_the_square_root_has_their_coefficients(banded, n):
    """The matrix that the tables stand for: c_k = C(2k, k)/4^k."""
    k = np.arange(1, n)
    column = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    np.testing.assert_allclose(toeplitz.optimal_max_error_strategy_coefs(n), column, rtol=1e-12)


@pytest.mark.parametrize("horizon", [1, 2, 3, 8, 21, 64])
def test_a_trees_sensitivity_is_that_of_its_dense_matrix(horizon):
    """The binary tree as a strategy matrix, in their dense functions: a reward's column has norm
    √h at most, and the error is what `squares` says."""
    tree = Tree(GAUSSIAN, horizon, 1.0, 1.0)
    rows, reads = [], np.zeros((horizon, horizon))
    for t in range(1, horizon + 1):
        row = np.zeros(horizon)
        row[t - (t & -t) : t] = 1.0
        rows.append(row)
        for end, _levels in tree.nodes(t):
            reads[t - 1, end - 1] = 1.0
    strategy = np.array(rows)
    np.testing.assert_allclose(reads @ strategy, np.tril(np.ones((horizon, horizon))))
    worst = float(sensitivity.single_participation_sensitivity(strategy))
    sigma = tree.scale(1)
    assert worst <= math.sqrt(tree.levels) * (1 + 1e-12)
    assert worst / sigma <= 1 + 1e-12
    if horizon & (horizon - 1) == 0:
        assert worst == pytest.approx(math.sqrt(tree.levels))
    noise = np.asarray(dense.per_query_error(strategy_matrix=strategy)) * sigma**2
    np.testing.assert_allclose(tree.squares(np.arange(1, horizon + 1)), noise, rtol=1e-9)


def test_the_wheel_ships_its_tests_beside_the_package():
    files = [str(file) for file in importlib.metadata.files(PACKAGE) or []]
    assert sum(file.startswith(FOLDER) and file.endswith("_test.py") for file in files) == 8
    assert not any(file == "tests/__init__.py" for file in files), "it would hide our own tests/"
