"""The Toeplitz factorisation against dense matrices, against the exact square root, and over a
million rounds."""

import importlib.util
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.signal import fftconvolve

from dpbandit.errors import BudgetError, OptionError
from dpbandit.privacy.grid import STEP
from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
from dpbandit.release import Toeplitz, toeplitz
from dpbandit.release.toeplitz import ToeplitzSums
from dpbandit.release.toeplitz_table import TABLE


def standard_error(t, horizon):
    """Of each coordinate of the sum shown at rounds t, for items of norm 1 and ρ = ½."""
    rows = toeplitz.squared_row(*toeplitz.decays_for(horizon), np.asarray(t, dtype=np.float64))
    return toeplitz.column_norm(horizon) * np.sqrt(rows)


TOOL = Path(__file__).parents[2] / "tools" / "fit_toeplitz.py"
HORIZONS = np.unique(np.rint(np.geomspace(1, 10**6, 300)).astype(np.int64))


def sums_for(dim, horizon):
    rates, weights = toeplitz.decays_for(horizon)
    return ToeplitzSums(dim, rates=rates, weights=weights)


def stream(state, items, noises):
    """Encoded values and released sums of a whole stream."""
    encoded, released = np.empty_like(items), np.empty_like(items)
    for t in range(len(items)):
        encoded[t] = state.encode(items[t])
        released[t] = state.publish(t + 1, encoded[t] + noises[t])
    return encoded, released


def coefficients(horizon, n):
    """c_0, …, c_{n−1} of the entry that serves a horizon, from the definition."""
    rates, weights = toeplitz.decays_for(horizon)
    return np.concatenate([[1.0], ((1 - rates) ** np.arange(n - 1)[:, None]) @ weights])


def lower_toeplitz(column):
    n = len(column)
    gap = np.arange(n)[:, None] - np.arange(n)
    return np.where(gap >= 0, column[np.maximum(gap, 0)], 0.0)


def square_root_column(n):
    """C(2k, k)/4^k."""
    k = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def square_root_errors(horizons):
    """Worst and root-mean-square error of the exact square root over the rounds of each horizon, ρ
    = ½."""
    squares = np.cumsum(square_root_column(int(horizons.max())) ** 2)
    column = squares[horizons - 1]
    return column, np.sqrt(column * np.cumsum(squares)[horizons - 1] / horizons)


def errors(horizons):
    """The same two errors of what is released, each horizon with its entry and its own
    sensitivity."""
    worst, rms = [], []
    for horizon in horizons:
        # every round of a short horizon; beyond, 400 rounds and the trapezoidal rule, good to 1e-4
        # for so smooth a function
        few = horizon <= 10**4
        t = np.arange(1, horizon + 1) if few else np.unique(np.rint(np.geomspace(1, horizon, 400)))
        error = standard_error(t, int(horizon))
        worst.append(error.max())
        rms.append(
            math.sqrt(np.mean(error**2) if few else np.trapezoid(error**2, t) / (horizon - 1))
        )
    return np.array(worst), np.array(rms)


@pytest.mark.parametrize("horizon", [7, 1000, 10_000, 10**5, 10**6, None])
def test_encoding_is_multiplication_by_the_dense_matrix_and_decoding_gives_prefix_sums(horizon):
    n, d = 60, 3
    items = np.random.default_rng(1).normal(size=(n, d))
    encoded, released = stream(sums_for(d, horizon), items, np.zeros((n, d)))
    np.testing.assert_allclose(
        encoded, lower_toeplitz(coefficients(horizon, n)) @ items, atol=1e-12
    )
    np.testing.assert_allclose(released, np.cumsum(items, axis=0), atol=1e-12)


def test_two_rounds_by_hand():
    """θ = (1/2, 1/4), ω = (1/4, 1/8): c = 1, 3/8, 5/32. Items 8, 16: encoded 8, 16 + 3. Noisy
    values 9, 20 decode to items 9 and 20 − 27/8, so to sums 9 and 25.625."""
    state = ToeplitzSums(1, rates=np.array([0.5, 0.75]), weights=np.array([0.25, 0.125]))
    for item, value, encoded, total in ((8.0, 9.0, 8.0, 9.0), (16.0, 20.0, 19.0, 25.625)):
        whole = np.array([int(item / STEP)], dtype=object)
        assert state.add(1, whole)[0] == encoded
        assert state.publish(1, np.array([value]))[0] == total == state.total[0]


@pytest.mark.parametrize("horizon", [50, 10**6])
def test_noise_covariance_is_that_of_the_decoding_matrix(horizon):
    # With items 0 and unit basis noises the releases are the rows of B = AC⁻¹: inner products are
    # exact.
    n = 50
    _, rows = stream(sums_for(n, horizon), np.zeros((n, n)), np.eye(n))
    b = np.tril(np.ones((n, n))) @ np.linalg.inv(lower_toeplitz(coefficients(horizon, n)))
    np.testing.assert_allclose(rows, b, atol=1e-12)
    np.testing.assert_allclose(rows @ rows.T, b @ b.T, atol=1e-11)
    expected = toeplitz.column_norm(horizon) * np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(standard_error(np.arange(1, n + 1), horizon), expected, rtol=1e-11)


@pytest.mark.parametrize("horizon", [1, 2, 40, 300])
def test_the_column_norm_is_the_largest_over_all_positions_of_an_item(horizon):
    columns = np.linalg.norm(lower_toeplitz(coefficients(horizon, horizon)), axis=0)
    assert columns.argmax() == 0
    assert columns.max() <= toeplitz.column_norm(horizon) <= columns.max() * (1 + 1e-11)


@pytest.mark.parametrize("horizon", [2, 1000, 10**6, None])
def test_the_column_norm_is_rounded_up_and_barely(horizon):
    rates, weights = (
        [mpmath.mpf(float(v)) for v in values] for values in toeplitz.decays_for(horizon)
    )
    with mpmath.workdps(40):
        exact = mpmath.mpf(1)
        for r, w in zip(rates, weights, strict=True):
            for s, v in zip(rates, weights, strict=True):
                decay = (1 - r) * (1 - s)
                exact += (
                    w * v * (1 - (0 if horizon is None else decay ** (horizon - 1))) / (1 - decay)
                )
        exact = mpmath.sqrt(exact)
        assert exact <= toeplitz.column_norm(horizon) <= exact * (1 + mpmath.mpf("2e-12"))


def test_an_endless_stream_costs_little_more_than_the_longest_horizon():
    finite, endless = toeplitz.column_norm(10**6), toeplitz.column_norm(None)
    assert finite < endless < 1.01 * finite
    assert toeplitz.column_norm(10**7) == endless


def test_the_square_root_has_the_errors_of_the_design():
    worst, rms = square_root_errors(np.array([10**3, 10**4, 10**5, 10**6]))
    np.testing.assert_allclose(worst, [3.27, 4.00, 4.73, 5.46], atol=0.006)
    np.testing.assert_allclose(rms, [3.10, 3.84, 4.57, 5.30], atol=0.006)


def test_errors_are_within_a_percent_of_the_square_root_at_every_horizon():
    for ours, exact in zip(errors(HORIZONS), square_root_errors(HORIZONS), strict=True):
        assert (ours / exact).max() < 1.002
        assert (
            ours / exact
        ).min() > 0.99  # better than the square root is possible, but not by much
    decades = 10 ** np.arange(1, 7)
    for ours, exact in zip(errors(decades), square_root_errors(decades), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=0.01)


def test_errors_stay_above_the_lower_bound_of_any_factorisation():
    worst, _ = errors(10 ** np.arange(3, 7))
    assert (worst > [2.90, 3.63, 4.37, 5.10]).all()


def test_without_a_horizon_every_sum_is_noisier_by_the_longer_column_alone():
    t = HORIZONS[HORIZONS > 1]
    known = np.sqrt(np.cumsum(square_root_column(10**6) ** 2)[t - 1])
    growth = standard_error(t, None) / (toeplitz.column_norm(None) * known)
    assert growth.max() < 1.03


@pytest.mark.parametrize("entry", TABLE)
def test_rates_and_weights_make_a_stable_inverse(entry):
    rates, weights = toeplitz.decays_for(entry)
    assert (rates > 0).all()
    assert (rates < 1).all()
    assert (weights > 0).all()
    assert (np.diff(rates) < 0).all()
    poles, residues = toeplitz.inverse_decays(rates, weights)
    assert poles[0] == 0.0
    assert (np.abs(1 - poles[1:]) < 1).all()
    assert (residues > 0).all()
    assert residues.sum() == pytest.approx(1.0, rel=1e-12)
    assert residues[0] == pytest.approx(1 / (1 + (weights / rates).sum()), rel=1e-12)


@pytest.mark.parametrize("n", [20_000, pytest.param(10**6, marks=pytest.mark.slow)])
def test_rounds_lose_no_more_than_a_billionth_of_the_noise(n):
    rng = np.random.default_rng(8)
    spike = np.zeros(n)
    spike[0] = 1.0
    random = rng.integers(-1024, 1025, size=n) / 1024.0
    items = np.stack([np.ones(n), random, spike], axis=1)
    noises = toeplitz.column_norm(10**6) * rng.normal(size=(n, 3))
    _, released = stream(sums_for(3, 10**6), items, noises)
    poles, residues = toeplitz.inverse_decays(*toeplitz.decays_for(10**6))
    t = np.arange(n)
    b = sum(w * np.exp(t * math.log1p(-r)) for w, r in zip(residues, poles, strict=True))
    # sums of these items are exact in floats; the transform is good to about 1e-11
    decoded = np.stack([fftconvolve(b, column)[:n] for column in noises.T], axis=1)
    assert np.abs(released - (np.cumsum(items, axis=0) + decoded)).max() < 1e-9


def test_rounding_of_the_encoded_values_is_below_its_bound():
    n = 20_000
    encoded, _ = stream(sums_for(1, None), np.ones((n, 1)), np.zeros((n, 1)))
    rates, weights = (values.astype(np.longdouble) for values in toeplitz.decays_for(None))
    t = np.arange(n)[:, None]
    exact = 1 + (weights / rates * -np.expm1(t * np.log1p(-rates))).sum(axis=1)
    lost = float(np.sqrt(((encoded[:, 0] - exact) ** 2).sum()))
    assert 0 < 2 * lost <= toeplitz.encoding_slack(n, horizon=None, size=1.0)


def test_a_stream_far_past_its_table_stays_stable():
    n = 20_000  # twenty times the entry's horizon
    items = np.ones((n, 1))
    _, released = stream(sums_for(1, 1000), items, np.zeros((n, 1)))
    np.testing.assert_allclose(released[:, 0], np.arange(1, n + 1), rtol=0, atol=1e-9)
    rates, weights = toeplitz.decays_for(1000)
    t = np.array([1e6, 2e6])
    once, twice = toeplitz.squared_row(rates, weights, t)
    # what is left of old noise is constant: the variance grows linearly, and no faster
    forever = toeplitz.inverse_decays(rates, weights)[1][0] ** 2
    assert twice - once == pytest.approx(1e6 * forever, rel=1e-9)


def test_memory_does_not_grow():
    state = sums_for(4, None)
    before = {k: v.__array_interface__["data"] + v.shape for k, v in state.fields().items()}
    stream(state, np.ones((500, 4)), np.ones((500, 4)))
    after = {k: v.__array_interface__["data"] + v.shape for k, v in state.fields().items()}
    assert after == before
    assert sum(array.size for array in state.fields().values()) <= 8 * (4 * 4 + 2) + 2 * 4


def test_nothing_of_the_trusted_side_is_needed_to_decode():
    n, d = 200, 2
    rng = np.random.default_rng(3)
    whole = sums_for(d, n)
    encoded, released = stream(whole, rng.normal(size=(n, d)), noises := rng.normal(size=(n, d)))
    reader = sums_for(d, n)
    for t in range(n):
        np.testing.assert_array_equal(reader.publish(t + 1, encoded[t] + noises[t]), released[t])
    assert not reader.clean.any()


@pytest.mark.parametrize("horizon", [0, -3])
def test_a_bad_horizon_is_named(horizon):
    for call in (toeplitz.column_norm, toeplitz.decays_for):
        with pytest.raises(OptionError, match="horizon must be at least 1"):
            call(horizon)


@pytest.mark.parametrize("horizon", [50, None])
def test_all_releases_together_cost_the_first_reward_no_more_than_the_budget(horizon):
    release, ledger = Toeplitz(GAUSSIAN, horizon, 1.0, 0.7, 3, True), GAUSSIAN.ledger(0.7)
    for t in range(1, 51):
        charge = release.charge(None, t)
        ledger.charge(charge.share, when=t, what=charge.what, adds=charge.adds)
        # each release's own shift is that of the newest item, and never below what is summed
        assert charge.shift >= 1.0
    assert ledger.total <= ledger.limit
    if horizon is not None:
        assert ledger.total == pytest.approx(ledger.limit, rel=1e-9)


def test_rounding_is_charged_for_rounds_that_do_not_end_and_the_next_one_is_refused():
    class Clock:
        rounds = 2**48 - 1

    release = Toeplitz(GAUSSIAN, None, 1.0, 0.5, 10, True)
    assert 1 < release.column / toeplitz.column_norm(None) < 1 + 2e-4
    release.room(Clock)
    Clock.rounds = 2**48
    with pytest.raises(BudgetError, match=f"round {2**48 + 1} is more than"):
        release.room(Clock)


def test_the_squared_scales_are_the_errors_at_this_budget():
    release, t = Toeplitz(GAUSSIAN, 1000, 1.0, 0.5, 2, False), np.arange(1, 1001)
    expected = standard_error(t, 1000) / 0.5
    np.testing.assert_allclose(np.sqrt(release.squares(t)), expected, rtol=1e-6)


def test_toeplitz_takes_gaussian_noise_alone():
    with pytest.raises(OptionError, match="paid in μ²"):
        Toeplitz(LAPLACE, 100, 1.0, 0.5, 2, False)


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("fit_toeplitz", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generators_losses_are_the_errors_by_definition(generator):
    horizons = np.array([2, 30, 1000])
    rates, weights = toeplitz.decays_for(1000)
    for ours, theirs in zip(
        errors(horizons), generator.errors(rates, weights, horizons), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    for ours, theirs in zip(
        square_root_errors(horizons), generator.square_root_errors(horizons), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("entry", TABLE)
def test_the_table_is_at_a_minimum_of_its_generators_loss(generator, entry):
    loss = generator.objective(entry)
    x = generator.pack(*toeplitz.decays_for(entry))
    assert len(x) == 2 * generator.BUFFERS[entry]
    here, rng = loss(x), np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1):
        directions = rng.normal(size=(40, len(x)))
        around = [loss(x + size * step / np.linalg.norm(step)) for step in directions]
        assert here <= min(around) + 1e-9


def test_the_shortest_entry_is_made_again_by_its_generator(generator, capsys, monkeypatch):
    monkeypatch.setattr(generator, "STARTS", 1)
    rates, weights = generator.fit(1000)
    assert "start 0" in capsys.readouterr().out
    for ours, made in zip(toeplitz.decays_for(1000), (rates, weights), strict=True):
        np.testing.assert_allclose(made, ours, rtol=1e-3)
