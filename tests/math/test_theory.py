"""The bounds in `dpbandit.theory`: numbers checked by hand, and Monte Carlo of what each form promises.

Statistical tests have fixed seeds. Their false-alarm rates are for a fresh seed: a tolerance of five standard
errors is passed by chance with probability below 1e-6.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpbandit.theory import (
    LONGEST_SUM,
    confidence_radius,
    noise_bound,
    noise_in_confidence_norm,
    perturbed_regret_bound,
    regret_bound,
)

E = math.e
# λ₀ = 0.1 is the largest that unit vectors in 10 dimensions can have, the kindest case for the paper.
NOISE: dict[str, Any] = {"horizon": 10_000, "epsilon": 2.0, "smallest_eigenvalue": 0.1}
REGRET: dict[str, Any] = {"dim": 10, "epsilon": 2.0, "delta": 0.1, "smallest_eigenvalue": 0.022}
PERTURBED: dict[str, Any] = {"context_noise": 0.5, "dim": 2, "epsilon": 2.0, "delta": 0.1}


def drawn_norms(
    t: int, *, dim: int, runs: int, seed: int, horizon: int, epsilon: float, smallest_eigenvalue: float,
    printed_index: bool = False,
) -> np.ndarray:  # fmt: skip
    """‖η_t‖₂ of Algorithm 1 with L = λ = 1, W = 2, straight from its loop over bits."""
    rng = np.random.default_rng(seed)
    noise = np.zeros((runs, dim))
    for i in range(t.bit_length()):
        if t & 2**i:
            index = t - 2**i + 1 if printed_index else t - t % 2**i
            sensitivity = min(2.0, 32 / (smallest_eigenvalue * index))
            noise += rng.laplace(scale=sensitivity * math.log2(horizon) / epsilon, size=(runs, dim))
    return np.linalg.norm(noise, axis=1)


def standard_error(rate: float, runs: int) -> float:
    return math.sqrt(rate * (1 - rate) / runs)


# Theorem 2


def test_published_noise_bound_is_the_printed_formula() -> None:
    # 32/32 · log e · log 8 / (1·1) · √(2·0 + 2) = 2.0794 · 1.4142 = 2.9407
    value = noise_bound(
        1, horizon=8, epsilon=1.0, smallest_eigenvalue=32.0, zeta=1 / E, as_published=True
    )
    assert value == pytest.approx(2.9407, abs=1e-4)


@pytest.mark.parametrize(
    ("t", "horizon", "dim", "zeta", "delta", "expected"),
    [
        # Δ_e = min(2, 32/(32e)) = 1/e throughout; ℓ = log(2d/ζ).
        # One node ending at 1, log₂2 = 1 level: b = 1; ℓ = 1: √8·max(1, 1).
        (1, 2, 1, 2 / E, None, math.sqrt(8)),
        # 3 = 11₂: nodes end at 2 and 3, 2 levels: b = 1, 2/3; √Σb² = √13/3 > b_max·√1: √8·√13/3.
        (3, 4, 1, 2 / E, None, math.sqrt(8 * 13) / 3),
        # Four coordinates, ℓ = 3: b_max·√3 > √13/3, so √4·√24·√3 = 12√2.
        (3, 4, 4, 8 / E**3, None, 12 * math.sqrt(2)),
        # δ = 2/e^2.5 puts Lemma 1's threshold at 32·2.5/32 = 2.5: the node ending at 2 keeps the cap 2, so
        # b = 4, 2/3 and √Σb² = √148/3.
        (3, 4, 1, 2 / E, 2 / E**2.5, math.sqrt(8 * 148) / 3),
    ],
)
def test_corrected_noise_bound_agrees_with_hand_computation(
    t: int, horizon: int, dim: int, zeta: float, delta: float | None, expected: float
) -> None:
    value = noise_bound(
        t, horizon=horizon, epsilon=1.0, smallest_eigenvalue=32.0, dim=dim, zeta=zeta, delta=delta
    )
    assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dim", [1, 10])
@pytest.mark.parametrize("t", [1, 1000, 1023, 1024, 8191])
def test_corrected_noise_bound_holds_with_the_stated_probability(t: int, dim: int) -> None:
    # False alarms: below 1e-6 a case even if the bound failed with probability exactly ζ.
    runs, zeta = 20_000, 0.05
    failures = drawn_norms(t, dim=dim, runs=runs, seed=1, **NOISE) > noise_bound(
        t, dim=dim, zeta=zeta, **NOISE
    )
    assert failures.mean() <= zeta + 5 * standard_error(zeta, runs)


def test_corrected_noise_bound_is_within_an_order_of_magnitude_of_the_noise() -> None:
    # A bound that holds because it is absurd is no use; measured ratios are 2.0 (d = 1) and 4.6 (d = 10).
    for dim, slack in ((1, 3.0), (10, 6.0)):
        norms = drawn_norms(1023, dim=dim, runs=20_000, seed=2, **NOISE)
        assert noise_bound(1023, dim=dim, **NOISE) < slack * np.quantile(norms, 0.95)


@pytest.mark.parametrize(
    ("t", "dim", "printed_index", "at_least"),
    [
        (
            1023,
            1,
            False,
            0.08,
        ),  # log₂T drawn, log T printed: measured 0.12 in one dimension already
        (1023, 10, False, 0.9),  # and √d is missing: measured 0.99
        (8192, 1, True, 0.6),  # the printed index asks for Δ₁ at a power of two: measured 0.83
    ],
)
def test_published_noise_bound_fails_more_often_than_it_says(
    t: int, dim: int, printed_index: bool, at_least: float
) -> None:
    # False alarms: below 1e-6 (the measured rates lie more than ten standard errors above `at_least`).
    norms = drawn_norms(t, dim=dim, runs=20_000, seed=3, printed_index=printed_index, **NOISE)
    rate = (norms > noise_bound(t, zeta=0.05, as_published=True, **NOISE)).mean()
    assert rate > at_least > 0.05


def test_corrected_noise_shrinks_like_one_over_t_at_powers_of_two() -> None:
    # One node each, scale ∝ 1/t once 32/(0.1·t) < 2, that is from t = 160 on.
    powers = 2 ** np.arange(8, 14)
    assert noise_bound(powers, **NOISE) * powers == pytest.approx(noise_bound(256, **NOISE) * 256)


def test_noise_bounds_fall_with_epsilon_and_zeta_and_rise_with_the_dimension() -> None:
    for published in (False, True):
        base = noise_bound(100, **NOISE, as_published=published)
        assert noise_bound(
            100, **{**NOISE, "epsilon": 4.0}, as_published=published
        ) == pytest.approx(base / 2)
        assert noise_bound(100, **NOISE, zeta=0.01, as_published=published) > base
    assert noise_bound(100, **NOISE, dim=4) > 2 * noise_bound(100, **NOISE)
    assert noise_bound(100, **NOISE, dim=4, as_published=True) == noise_bound(
        100, **NOISE, as_published=True
    )


def test_lemma_threshold_only_adds_noise_and_only_before_it() -> None:
    # 32·log(log₂10⁴/0.1)/0.1 = 320·log(132.9) = 1565: nodes ending at 1024 and 1536 keep the cap 2.
    rounds = np.array([100, 1024, 1600, 4096, 8191])
    ratio = np.asarray(noise_bound(rounds, delta=0.1, **NOISE)) / np.asarray(
        noise_bound(rounds, **NOISE)
    )
    assert ratio[[0, 3, 4]] == pytest.approx(1.0)
    assert (ratio[[1, 2]] > 2).all()


# Lemma 2


def test_corrected_radius_agrees_with_hand_computation() -> None:
    # log((1 + 4·1/4)/ζ) = log(2e/2) = 1: 1·√(2·1) + √4·3 + 0.5 = 7.9142
    value = confidence_radius(
        4, dim=2, ridge=4.0, theta_norm=3.0, zeta=2 / E, reward_noise=1.0, noise=0.5
    )
    assert value == pytest.approx(math.sqrt(2) + 6.5)


def test_published_radius_multiplies_by_the_ridge_where_it_should_divide() -> None:
    # log((1 + 4·4)/ζ) = log(17e/2) = 3.14007, √(2·3.14007) = 2.50602, + 6;
    # noise (1/2)·log 8·√log 4·log(e/2)/√4 = 0.5·2.07944·1.17741·0.30685/2 = 0.18782
    value = confidence_radius(
        4, dim=2, ridge=4.0, theta_norm=3.0, zeta=2 / E, epsilon=2.0, horizon=8, as_published=True
    )
    assert value == pytest.approx(8.69384, abs=1e-4)


def test_published_radius_grows_with_the_ridge_in_its_ellipsoid_and_the_corrected_one_shrinks() -> (
    None
):
    # With S = 0 only the ellipsoid is left (and a noise term without λ).
    published = [
        confidence_radius(
            100, dim=5, theta_norm=0.0, ridge=r, epsilon=2.0, horizon=100, as_published=True
        )
        for r in (0.1, 10.0)
    ]
    corrected = [confidence_radius(100, dim=5, theta_norm=0.0, ridge=r) for r in (0.1, 10.0)]
    assert published[0] < published[1]
    assert corrected[0] > corrected[1]


def test_published_radius_leaves_out_most_of_its_own_theorem_2() -> None:
    # Theorem 2's noise, carried into the A-norm, is 32/λ₀·√(2 + 2/log t)·√(1 + λ/t) times Lemma 2's.
    t, settings = 1000, {"dim": 10, "horizon": 10_000, "as_published": True}
    radius = confidence_radius(t, epsilon=2.0, **settings) - confidence_radius(
        t, epsilon=1e15, **settings
    )
    theorem = noise_in_confidence_norm(t, noise_bound(t, as_published=True, **NOISE))
    assert theorem / radius == pytest.approx(
        320 * math.sqrt(2 + 2 / math.log(t)) * math.sqrt(1.001), rel=1e-6
    )


def test_radius_holds_in_one_dimension_where_the_cited_closed_form_fails() -> None:
    # x = 1, θ* = 0, so ‖θ̂ − θ*‖_A = |Σ noise|/√(λ + t). Abbasi-Yadkori's closed form has d·log(1/ζ) where the
    # determinant form has 2·log(1/ζ). Measured failures: 0.03 and 0.17. False alarms: below 1e-6.
    runs, rounds, ridge, zeta = 2_000, 3_000, 10.0, 0.05
    t = np.arange(1, rounds + 1)
    sums = np.cumsum(np.random.default_rng(4).normal(size=(runs, rounds)), axis=1)
    error = np.abs(sums) / np.sqrt(ridge + t)
    ours = confidence_radius(t, dim=1, ridge=ridge, theta_norm=0.0, zeta=zeta, reward_noise=1.0)
    cited = np.sqrt(np.log((1 + t / ridge) / zeta))
    assert (error > ours).any(axis=1).mean() <= zeta + 5 * standard_error(zeta, runs)
    assert (error > cited).any(axis=1).mean() > 0.10


def test_radius_adds_the_given_noise_and_grows_with_t() -> None:
    t = np.arange(1, 50)
    noise = np.linspace(0.0, 1.0, t.size)
    plain = np.asarray(confidence_radius(t, dim=3))
    assert (np.diff(plain) > 0).all()
    assert confidence_radius(t, dim=3, noise=noise) == pytest.approx(plain + noise)


def test_noise_in_confidence_norm_bounds_the_norm_under_any_gram_matrix() -> None:
    # √(4 + 3·2²) = 4
    assert noise_in_confidence_norm(3, 0.5, ridge=4.0, max_norm=2.0) == pytest.approx(2.0)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    eta = rng.normal(size=3)
    gram = np.eye(3) + x.T @ x
    assert math.sqrt(eta @ gram @ eta) <= noise_in_confidence_norm(20, float(np.linalg.norm(eta)))


# Theorem 3


def test_published_regret_bound_is_the_printed_formula() -> None:
    # d = L = λ = S = λ₀ = ε = T = 1, ζ = 2/e, δ = 1/e: radius √log(2e/2) + 1 = 2, Q = √log 2 = 0.832555;
    # 2·2·Q = 3.330218; 2·(3/e)^1.5·log(e/2)·Q = 2·1.159409·0.306853·0.832555 = 0.592393; 32·1.
    value = regret_bound(
        1, dim=1, epsilon=1.0, delta=1 / E, smallest_eigenvalue=1.0, zeta=2 / E, as_published=True
    )
    assert value == pytest.approx(35.922611, abs=2e-5)


def test_corrected_regret_bound_without_noise_is_the_ellipsoid_part() -> None:
    # R = 0 leaves β = √λ·S = 1: 2·1·√(2·100·log 101) = 2·√923.024 = 60.7626
    value = regret_bound(
        100, dim=1, epsilon=1e15, delta=0.1, smallest_eigenvalue=0.5, reward_noise=0.0
    )
    assert value == pytest.approx(60.7626, abs=1e-3)


def test_a_ridge_below_the_squared_norm_pays_the_worst_gap_instead() -> None:
    # λ = 1/4 < L²: β = √λ·S = 1/2 < LS = 1, so 2·1·√(2·100·log 401) = 2·√1198.79 = 69.247
    value = regret_bound(
        100, dim=1, epsilon=1e15, delta=0.1, smallest_eigenvalue=0.5, reward_noise=0.0, ridge=0.25
    )
    assert value == pytest.approx(69.247, abs=1e-3)


def test_noise_adds_the_sum_of_its_bounds_over_the_rounds_that_act_on_it() -> None:
    settings: dict[str, Any] = {
        "dim": 2,
        "delta": 0.1,
        "smallest_eigenvalue": 0.5,
        "reward_noise": 0.1,
    }
    horizon, epsilon = 500, 1e4
    added = regret_bound(horizon, epsilon=epsilon, **settings) - regret_bound(
        horizon, epsilon=1e15, **settings
    )
    expected = sum(
        min(2.0, 2 * noise_bound(
            t, horizon=horizon, epsilon=epsilon, smallest_eigenvalue=0.5, dim=2, zeta=0.05 / 500, delta=0.1
        ))
        for t in range(1, horizon)
    )  # fmt: skip
    assert added == pytest.approx(expected, rel=1e-6)
    assert added > 0.1


def test_regret_bound_is_never_above_the_worst_possible_regret() -> None:
    horizons = np.array([1, 10, 1000])
    worst = 2 * 1.5 * 0.7 * horizons
    value = regret_bound(horizons, **REGRET, max_norm=1.5, theta_norm=0.7)
    assert (value <= worst).all()


def test_theorem_3_promises_nothing_in_the_papers_own_simulation() -> None:
    # T = 10⁴, d = 10, λ₀ = 0.022: no play can lose more than 2LST = 20,000; the print exceeds it too.
    assert regret_bound(10_000, **REGRET) == 20_000.0
    assert regret_bound(10_000, **REGRET, as_published=True) > 7 * 20_000


def test_theorem_3_noise_term_is_far_below_what_its_own_proof_gives() -> None:
    # The proof bounds it by 2·max‖η_t‖_A·Q over t beyond the threshold 32·log(10)/0.022 = 3,349. By Theorem 2
    # as printed, max 32·log T·√(2·log t + 2)/√t is 22 there; the print has (3/e)^1.5 = 1.16, no log T, no 32.
    horizon = 10_000
    printed = regret_bound(horizon, **REGRET, as_published=True) - regret_bound(
        horizon, **{**REGRET, "epsilon": 1e15}, as_published=True
    )
    t = np.arange(3_350, horizon + 1)
    norms = noise_in_confidence_norm(
        t, noise_bound(t, **{**NOISE, "smallest_eigenvalue": 0.022}, as_published=True)
    )
    spread = math.sqrt(10 * horizon * math.log(1 + horizon / 10))
    assert 15 < 2 * np.max(norms) * spread / printed < 25


def test_corrected_noise_cost_grows_with_the_log_of_the_horizon_it_was_built_for() -> None:
    settings: dict[str, Any] = {
        **REGRET,
        "dim": 2,
        "epsilon": 1e5,
        "reward_noise": 0.0,
        "delta": 0.5,
    }
    without = regret_bound(400, **{**settings, "epsilon": 1e15})
    short = regret_bound(400, **settings, mechanism_horizon=400) - without
    long = regret_bound(400, **settings, mechanism_horizon=160_000) - without
    # log₂ 160,000 = 2·log₂ 400, and ζ is split over more rounds.
    assert long > 2 * short > 0


def test_measured_regret_stays_below_the_corrected_bound_where_the_bound_says_something() -> None:
    # LinUCB with tree noise on θ and the bonus radius that the bound is for. It must hold in 90% of runs; the
    # regret is some 120 times below it, so no seed is expected to fail.
    horizon, dim, epsilon, delta, eigenvalue = 3_000, 2, 200.0, 0.1, 0.3
    rng = np.random.default_rng(6)
    theta = np.array([0.6, 0.8])
    levels = math.log2(horizon)
    threshold = 32 * math.log(levels / delta) / eigenvalue
    radius = np.asarray(confidence_radius(np.arange(1, horizon + 1), dim=dim))
    gram, moments, regret = np.eye(dim), np.zeros(dim), 0.0
    nodes: dict[int, np.ndarray] = {}
    for t in range(1, horizon + 1):
        arms = rng.normal(size=(5, dim))
        arms /= np.linalg.norm(arms, axis=1, keepdims=True)
        inverse = np.linalg.inv(gram)
        released = inverse @ moments + sum(nodes.values(), np.zeros(dim))
        width = np.sqrt(np.einsum("ij,jk,ik->i", arms, inverse, arms))
        x = arms[np.argmax(arms @ released + radius[t - 1] * width)]
        regret += float(np.max(arms @ theta) - x @ theta)
        gram += np.outer(x, x)
        moments += x * (x @ theta + rng.normal(scale=0.5))
        low = t & -t
        nodes = {bit: noise for bit, noise in nodes.items() if bit > low}
        sensitivity = min(2.0, 32 / (eigenvalue * t)) if t > threshold else 2.0
        nodes[low] = rng.laplace(scale=sensitivity * levels / epsilon, size=dim)
    bound = regret_bound(
        horizon, dim=dim, epsilon=epsilon, delta=delta, smallest_eigenvalue=eigenvalue
    )
    assert 10 < regret < bound < 2 * horizon


def test_published_regret_bound_is_undefined_where_its_logarithm_is_negative() -> None:
    # λ + LT/d = 0.5 + 1/10 < 1
    assert math.isnan(regret_bound(1, **REGRET, ridge=0.5, as_published=True))


# Corollary 1


def test_published_perturbed_bound_divides_every_term_by_the_variance() -> None:
    # σ² = 1/2 doubles each of the three terms of the hand-computed 35.922611 above.
    value = perturbed_regret_bound(
        1,
        context_noise=math.sqrt(0.5),
        dim=1,
        epsilon=1.0,
        delta=1 / E,
        zeta=2 / E,
        as_published=True,
    )
    assert value == pytest.approx(2 * 35.922611, abs=4e-5)


def test_only_the_trivial_bound_is_claimed_when_only_the_learner_sees_the_perturbation() -> None:
    assert (
        perturbed_regret_bound(10**8, **PERTURBED, max_norm=1.5, theta_norm=2.0)
        == 2 * 1.5 * 2.0 * 10**8
    )


def test_perturbation_by_nature_gives_theorem_3_with_the_variance_as_eigenvalue() -> None:
    settings: dict[str, Any] = {"dim": 2, "epsilon": 500.0, "delta": 0.1}
    for built_for in (None, 20_000):
        settings["mechanism_horizon"] = built_for
        perturbed = perturbed_regret_bound(5_000, context_noise=0.5, learner_only=False, **settings)
        assert perturbed == regret_bound(5_000, smallest_eigenvalue=0.25, **settings)
    assert perturbed < 10_000


def test_published_perturbed_bound_is_beaten_by_a_learner_who_knows_theta() -> None:
    # Arms e₁, e₂, θ* = e₁, gap 1; the learner ranks x + z, σ = 1, and z₁ − z₂ along θ* is N(0, 2): it plays
    # the wrong arm with probability Φ(−1/√2) = 0.2398, for ever: 20 times the "bound" at T = 10⁸.
    wrong = 0.5 * math.erfc(0.5)
    rng = np.random.default_rng(7)
    seen = np.array([1.0, 0.0]) + rng.normal(size=(20_000, 2))
    # False alarms: below 1e-6 (five standard errors).
    assert (seen[:, 1] > seen[:, 0]).mean() == pytest.approx(
        wrong, abs=5 * standard_error(wrong, 20_000)
    )
    horizon = 10**8
    published = perturbed_regret_bound(
        horizon, **{**PERTURBED, "context_noise": 1.0}, as_published=True
    )
    assert horizon * wrong > 20 * published


# All of them


@pytest.mark.parametrize("published", [False, True])
def test_scalars_give_floats_and_arrays_give_the_same_numbers(published: bool) -> None:
    functions = [
        lambda t: noise_bound(t, **NOISE, dim=3, delta=0.1, as_published=published),
        lambda t: confidence_radius(t, dim=3, epsilon=1.0, horizon=10_000, as_published=published),
        lambda t: noise_in_confidence_norm(t, 0.3),
        lambda t: regret_bound(t, **{**REGRET, "epsilon": 1e5}, as_published=published),
        lambda t: perturbed_regret_bound(
            t, **PERTURBED, learner_only=False, as_published=published
        ),
    ]
    grid = np.array([[1, 2, 3], [100, 777, 1024]])
    for function in functions:
        values = function(grid)
        assert isinstance(values, np.ndarray)
        assert values.shape == grid.shape
        for t, value in zip(grid.ravel(), values.ravel(), strict=True):
            scalar = function(int(t))
            assert type(scalar) is float
            assert scalar == pytest.approx(float(value), rel=1e-12)


@pytest.mark.parametrize("published", [False, True])
def test_regret_bounds_rise_with_the_horizon_and_fall_with_epsilon(published: bool) -> None:
    horizons = np.array([10, 100, 1_000, 10_000])
    settings = {**REGRET, "dim": 2, "smallest_eigenvalue": 0.3}
    curves = [
        np.asarray(regret_bound(horizons, **{**settings, "epsilon": e}, as_published=published))
        for e in (1e2, 1e3, 1e4)
    ]
    assert all((np.diff(curve) > 0).all() for curve in curves)
    assert curves[0][-1] > curves[1][-1] > curves[2][-1]


def test_the_curve_of_one_run_ends_where_the_bound_for_its_horizon_does() -> None:
    settings = {**REGRET, "dim": 2, "epsilon": 1e4}
    curve = np.asarray(regret_bound(np.arange(1, 2_001), **settings, mechanism_horizon=2_000))
    assert curve[-1] == regret_bound(2_000, **settings)
    assert (np.diff(curve) > 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noise_bound(0, **NOISE), r"t must be a whole number ≥ 1; got 0"),
        (lambda: noise_bound([1, 2.5], **NOISE), r"t must be a whole number ≥ 1; got \[1, 2.5\]"),
        (
            lambda: noise_bound(10_001, **NOISE),
            r"t must be at most the mechanism's horizon 10000; got 10001",
        ),
        (
            lambda: noise_bound(1, **{**NOISE, "epsilon": 0.0}),
            r"epsilon must be positive and finite; got 0.0",
        ),
        (
            lambda: noise_bound(1, **{**NOISE, "horizon": 0}),
            r"horizon must be a whole number ≥ 1; got 0",
        ),
        (
            lambda: noise_bound(1, **NOISE, zeta=1.0),
            r"zeta must lie strictly between 0 and 1; got 1.0",
        ),
        (
            lambda: noise_bound(1, **NOISE, delta=0.0),
            r"delta must lie strictly between 0 and 1; got 0.0",
        ),
        (lambda: noise_bound(1, **NOISE, dim=0), r"dim must be a whole number ≥ 1; got 0"),
        (lambda: confidence_radius(0, dim=2), r"t must be a whole number ≥ 1; got 0"),
        (
            lambda: confidence_radius(1, dim=2, ridge=-1.0),
            r"ridge must be positive and finite; got -1.0",
        ),
        (lambda: confidence_radius(1, dim=2, noise=-0.1), r"noise must be at least 0; got -0.1"),
        (
            lambda: confidence_radius(1, dim=2, as_published=True),
            r"needs epsilon and horizon; got epsilon=None",
        ),
        (
            lambda: confidence_radius(1, dim=2, epsilon=-2.0, horizon=9, as_published=True),
            r"epsilon must be positive and finite; got -2.0",
        ),
        (lambda: noise_in_confidence_norm(0, 1.0), r"t must be a whole number ≥ 1; got 0"),
        (lambda: noise_in_confidence_norm(1, math.nan), r"noise_l2 must be at least 0; got nan"),
        (lambda: regret_bound(0, **REGRET), r"horizon must be a whole number ≥ 1; got 0"),
        (
            lambda: regret_bound(1, **{**REGRET, "delta": 1.5}),
            r"delta must lie strictly between 0 and 1; got 1.5",
        ),
        (
            lambda: regret_bound(1, **{**REGRET, "epsilon": math.nan}),
            r"epsilon must be positive and finite; got nan",
        ),
        (
            lambda: regret_bound(9, **REGRET, mechanism_horizon=8),
            r"at most the mechanism's horizon 8; got 9",
        ),
        (
            lambda: regret_bound(LONGEST_SUM + 1, **REGRET),
            r"horizon must be at most 10000000 .* got 10000001",
        ),
        (
            lambda: perturbed_regret_bound(1, **{**PERTURBED, "context_noise": 0.0}),
            r"context_noise must be positive and finite; got 0.0",
        ),
        (
            lambda: perturbed_regret_bound(1, **{**PERTURBED, "epsilon": -1.0}),
            r"epsilon must be positive and finite; got -1.0",
        ),
    ],
)
def test_bad_arguments_are_refused_with_what_was_given_and_what_is_allowed(
    call: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call()
