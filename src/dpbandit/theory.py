"""The paper's bounds (Theorems 2 and 3, Lemma 2, Corollary 1) as plain functions of the round or the horizon.
Below them, lower bounds that others have published: what no algorithm can do better than, somewhere.

Follows Wang, Zhao and Wang (RecSys 2022). Each function gives a form whose proof is in its docstring, for the
mechanism as we run it; `as_published=True` gives the printed one, which may be false. Logs are natural unless
marked log₂. A bound on regret or noise is never a privacy claim: nothing here may feed an accountant.

Symbols: dim d, epsilon ε, delta δ, ridge λ, max_norm L (‖x‖ ≤ L), theta_norm S (‖θ*‖ ≤ S), zeta ζ,
smallest_eigenvalue λ₀, horizon T, reward_noise R (sub-Gaussian scale), reward_width W, context_noise σ.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = float | NDArray[np.float64]

# The corrected regret bound adds up one term per round; beyond this it would need gigabytes.
LONGEST_SUM = 10**7


def noise_bound(
    t: ArrayLike, *, horizon: int, epsilon: float, smallest_eigenvalue: float, zeta: float = 0.05,
    max_norm: float = 1.0, ridge: float = 1.0, dim: int = 1, reward_width: float = 2.0,
    delta: float | None = None, as_published: bool = False,
) -> Values:  # fmt: skip
    """Bound on ‖η_t‖₂, the tree noise in θ^p after t rewards, at one t with probability ≥ 1 − ζ (Theorem 2).

    `reward_width` is how far one reward can move. With `delta`, nodes ending by Lemma 1's threshold
    32·log(log₂T/δ)/λ₀ keep the cap W·L/λ (Algorithm 1's δ' = δ/log₂T); without it the smaller of cap and
    simplified lemma holds from the start. A mechanism on the lemma's full λ'(t) is not covered.

    Corrected. Each set bit of t is a node; the one ending at e carries per-coordinate Laplace noise of scale
    b_e = Δ_e·log₂T/ε with Δ_e = min(W·L/λ, 16·W·L/(λ₀e)). By Chernoff, with E exp(hY) = 1/(1 − h²b²) ≤
    exp(2h²b²) for h²b² ≤ 1/2 (the proof of Lemma 2.8 in Chan et al. 2011), a sum of Laplace variables exceeds
    √(8ℓ)·max(√Σb², b_max·√ℓ) in absolute value with probability ≤ 2e^−ℓ. With ℓ = log(2d/ζ) that holds in all
    d coordinates at once, so ‖η_t‖₂ ≤ √d·√(8ℓ)·max(√Σb², b_max·√ℓ). It needs no assumption on the contexts:
    it bounds the noise that is drawn, whether or not Lemma 1 justifies its scale.

    As published (last line of the proof): (32L/λ₀)·log(1/ζ)·(log T/(tε))·√(2·log t + 2). It has no √d and no
    cap, W = 2, the natural log T where Algorithm 1 draws with log₂T (1.44 times more), and 1 for the constant
    in O(√Σb²·log(1/ζ)).

    >>> common = dict(horizon=10_000, epsilon=2.0, smallest_eigenvalue=0.1, dim=10)
    >>> round(noise_bound(1023, **common), 1), round(noise_bound(1023, **common, as_published=True), 1)
    (222.5, 17.2)
    """
    rounds = _whole_numbers(most=horizon, t=t)
    _positive(epsilon=epsilon, smallest_eigenvalue=smallest_eigenvalue, max_norm=max_norm, ridge=ridge,
              reward_width=reward_width)  # fmt: skip
    _whole_numbers(dim=dim)
    _probabilities(zeta=zeta)
    if as_published:
        leading = (
            32 * max_norm / smallest_eigenvalue * math.log(1 / zeta) * math.log(horizon) / epsilon
        )
        return _shaped_like(t, leading / rounds * np.sqrt(2 * np.log(rounds) + 2))

    levels = max(math.log2(horizon), 1.0)  # at least 1: a horizon of 1 must not promise zero noise
    threshold = 0.0
    if delta is not None:
        _probabilities(delta=delta)
        threshold = 32 * math.log(levels / delta) / smallest_eigenvalue
    cap = reward_width * max_norm / ridge
    sum_of_squares, largest = np.zeros(rounds.shape), np.zeros(rounds.shape)
    for bit in range(int(horizon).bit_length()):
        end = np.maximum((rounds >> bit) << bit, 1)  # 0 where t has no bit this high: masked below
        lemma = 16 * reward_width * max_norm / (smallest_eigenvalue * end)
        sensitivity = np.where(end > threshold, np.minimum(cap, lemma), cap)
        scale = np.where((rounds >> bit) & 1, sensitivity * levels / epsilon, 0.0)
        sum_of_squares += scale**2
        largest = np.maximum(largest, scale)
    log_term = math.log(2 * dim / zeta)
    spread = np.maximum(np.sqrt(sum_of_squares), largest * math.sqrt(log_term))
    return _shaped_like(t, math.sqrt(dim) * math.sqrt(8 * log_term) * spread)


def confidence_radius(
    t: ArrayLike, *, dim: int, ridge: float = 1.0, max_norm: float = 1.0, theta_norm: float = 1.0,
    zeta: float = 0.05, reward_noise: float = 0.5, noise: ArrayLike = 0.0, epsilon: float | None = None,
    horizon: int | None = None, as_published: bool = False,
) -> Values:  # fmt: skip
    """Radius α_t with ‖θ^p − θ*‖_A ≤ α_t, where A holds t plays (Lemma 2).

    `noise` bounds ‖θ^p − θ̂‖_A for the mechanism in use (`noise_in_confidence_norm`), 0 for none. `epsilon`
    and `horizon` are used by the published form only, `noise` and `reward_noise` by the corrected one only.

    Corrected: R·√(d·log(1 + tL²/λ) + max(d, 2)·log(1/ζ)) + √λ·S + noise; without `noise` it holds at all t
    together with probability ≥ 1 − ζ (Abbasi-Yadkori et al. 2011, Theorem 2). For d ≥ 2 that is their printed
    R·√(d·log((1 + tL²/λ)/ζ)) + √λ·S. For d = 1 their determinant form has 2·log(1/ζ), which the printed one
    halves: at ζ = 0.05 it fails in 17% of runs (λ = 10). Rewards must be linear: clipping must be idle.

    As published: (L/ε)·log T·√(log t)·log(1/ζ)/√t + √(d·log((1 + tL²λ)/ζ)) + √λ·S. λ multiplies where it
    should divide, R is taken as 1, and the noise term has lost Theorem 2's 32/λ₀ and √2, A's own L, and √d.

    >>> round(confidence_radius(10_000, dim=10), 3)
    6.524
    >>> round(confidence_radius(10_000, dim=10, epsilon=2.0, horizon=10_000, as_published=True), 3)
    12.467
    """
    rounds = _whole_numbers(t=t)
    _whole_numbers(dim=dim)
    _positive(ridge=ridge, max_norm=max_norm)
    _not_negative(theta_norm=theta_norm, reward_noise=reward_noise, noise=noise)
    _probabilities(zeta=zeta)
    bias = math.sqrt(ridge) * theta_norm
    if as_published:
        if epsilon is None or horizon is None:
            raise ValueError(
                f"the published radius needs epsilon and horizon; got {epsilon=}, {horizon=}"
            )
        _positive(epsilon=epsilon)
        _whole_numbers(most=horizon, t=t)
        leading = max_norm / epsilon * math.log(horizon) * math.log(1 / zeta)
        ellipsoid = np.sqrt(dim * np.log((1 + rounds * max_norm**2 * ridge) / zeta))
        return _shaped_like(
            t, leading * np.sqrt(np.log(rounds)) / np.sqrt(rounds) + ellipsoid + bias
        )
    growth = dim * np.log1p(rounds * max_norm**2 / ridge)
    ellipsoid = reward_noise * np.sqrt(growth + max(dim, 2) * math.log(1 / zeta))
    return _shaped_like(t, ellipsoid + bias + np.asarray(noise, dtype=np.float64))


def noise_in_confidence_norm(
    t: ArrayLike, noise_l2: ArrayLike, *, ridge: float = 1.0, max_norm: float = 1.0
) -> Values:
    """Bound on ‖η‖_A from a bound on ‖η‖₂ after t plays: noise_l2·√(λ + t·L²).

    A's largest eigenvalue is at most λ + t·L². The paper prints no such step; its radius implies √t here.

    >>> noise_in_confidence_norm(8, 2.0)
    6.0
    """
    rounds = _whole_numbers(t=t)
    _positive(ridge=ridge, max_norm=max_norm)
    _not_negative(noise_l2=noise_l2)
    values = np.asarray(noise_l2, dtype=np.float64) * np.sqrt(ridge + rounds * max_norm**2)
    return _shaped_like(t, values)


def regret_bound(
    horizon: ArrayLike, *, dim: int, epsilon: float, delta: float, smallest_eigenvalue: float,
    ridge: float = 1.0, max_norm: float = 1.0, theta_norm: float = 1.0, zeta: float = 0.05,
    reward_noise: float = 0.5, reward_width: float = 2.0, mechanism_horizon: int | None = None,
    as_published: bool = False,
) -> Values:  # fmt: skip
    """Bound on the pseudo-regret after `horizon` rounds, with probability ≥ 1 − 2ζ (Theorem 3).

    `mechanism_horizon` is the T the tree was built for, by default each horizon itself. Give it to draw the
    curve of one run: all points then hold together, and one sum serves them all. It, `reward_width` and
    `reward_noise` are used by the corrected form only.

    Corrected, for the bonus radius β_t = `confidence_radius(t, noise=0)`: by optimism round t costs at most
    2β_t·w_t + (x_t − x*)·η_{t−1}, with w_t = ‖x_t‖ in A_t⁻¹, and never more than 2LS. So
    - min(2LS, 2β_t·w_t) ≤ 2·max(β_T, LS)·min(1, w_t) (for λ ≥ L² the maximum is β_T) and Σ min(1, w_t²) ≤
      2d·log(1 + TL²/(dλ)) (Abbasi-Yadkori et al. 2011, Lemma 11), so Cauchy–Schwarz bounds the sum over t;
    - noise costs Σ min(2LS, 2L·n_t), n_t = `noise_bound` at t < T with ζ/T each: a union bound over t.
    Regret ≤ min(2LST, 2·max(β_T, LS)·√(2dT·log(1 + TL²/(dλ))) + Σ_{t<T} min(2LS, 2L·n_t)).
    No assumption on contexts is used. A bonus widened by the noise (Lemma 2's α_t) is NOT covered: it pays
    ‖η‖_A·w_t ≥ |x·η| for the same noise. Rewards must be linear with R-sub-Gaussian noise, clipping idle.

    As published: 2(√(d·log((1+TL²λ)/ζ)) + √λS)·Q + 2·(3/e)^1.5·L/(λ₀ε)·log(1/ζ)·Q + 32·log(1/δ)/λ₀ with
    Q = √(dT·log(λ + LT/d)); NaN where that log is negative. The noise term reads Theorem 2's log T as log t,
    so that log^1.5 t/√t has a maximum and no log T is left, and drops 32, √2, √d and A's own L; Q drops Lemma
    11's 2, has L for L² and lacks the division by λ; early rounds cost up to 2LS each, not 1 (the proof: L).

    >>> common = dict(dim=10, epsilon=2.0, delta=0.1, smallest_eigenvalue=0.022)
    >>> regret_bound(10_000, **common)  # no better than 2LST: the corrected theorem promises nothing here
    20000.0
    >>> round(regret_bound(10_000, **common, as_published=True))
    154604
    """
    horizons = _whole_numbers(most=mechanism_horizon, horizon=horizon)
    _whole_numbers(dim=dim)
    _positive(epsilon=epsilon, smallest_eigenvalue=smallest_eigenvalue, ridge=ridge, max_norm=max_norm,
              theta_norm=theta_norm, reward_width=reward_width)  # fmt: skip
    _not_negative(reward_noise=reward_noise)
    _probabilities(delta=delta, zeta=zeta)
    if as_published:
        radius, spread = _published_ellipsoid(horizons, dim, ridge, max_norm, theta_norm, zeta)
        added = (
            (3 / math.e) ** 1.5 * max_norm / (smallest_eigenvalue * epsilon) * math.log(1 / zeta)
        )
        early_rounds = 32 * math.log(1 / delta) / smallest_eigenvalue
        return _shaped_like(horizon, 2 * radius * spread + 2 * added * spread + early_rounds)

    worst_gap = 2 * max_norm * theta_norm
    beta = confidence_radius(horizons, dim=dim, ridge=ridge, max_norm=max_norm, theta_norm=theta_norm,
                             zeta=zeta, reward_noise=reward_noise)  # fmt: skip
    potential = 2 * dim * np.log1p(horizons * max_norm**2 / (dim * ridge))
    ellipsoid = np.maximum(2 * np.asarray(beta), worst_gap) * np.sqrt(horizons * potential)

    flat = horizons.ravel()
    if flat.size and flat.max() > LONGEST_SUM:
        raise ValueError(
            f"horizon must be at most {LONGEST_SUM} for the corrected form; got {flat.max()}"
        )
    built_for = flat if mechanism_horizon is None else np.full_like(flat, mechanism_horizon)
    added_by_noise = np.zeros(flat.shape)
    for built in np.unique(built_for).tolist():
        mine = built_for == built
        # Round t acts on η_{t−1}: the first round has no noise, and the last draw is never acted on.
        noisy_rounds = np.arange(1, flat[mine].max())
        drawn = noise_bound(noisy_rounds, horizon=built, epsilon=epsilon, zeta=zeta / built, dim=dim,
                            smallest_eigenvalue=smallest_eigenvalue, max_norm=max_norm, ridge=ridge,
                            reward_width=reward_width, delta=delta)  # fmt: skip
        total = np.cumsum(np.minimum(worst_gap, 2 * max_norm * np.asarray(drawn)))
        added_by_noise[mine] = np.concatenate(([0.0], total))[flat[mine] - 1]
    bound = np.minimum(worst_gap * horizons, ellipsoid + added_by_noise.reshape(horizons.shape))
    return _shaped_like(horizon, bound)


def perturbed_regret_bound(
    horizon: ArrayLike, *, context_noise: float, dim: int, epsilon: float, delta: float, ridge: float = 1.0,
    max_norm: float = 1.0, theta_norm: float = 1.0, zeta: float = 0.05, reward_noise: float = 0.5,
    reward_width: float = 2.0, mechanism_horizon: int | None = None, learner_only: bool = True,
    as_published: bool = False,
) -> Values:  # fmt: skip
    """Bound on the pseudo-regret when contexts are perturbed by N(0, σ²I), σ = `context_noise` (Corollary 1).

    `learner_only`: True if only the learner sees x + z and rewards come from x, which is what perturbing a
    real context means; False if rewards are earned at x + z (nature perturbs: Kannan et al. 2018). `max_norm`
    must bound what the learner is fed, x + z after rescaling: x + z itself exceeds L.

    Corrected, learner only: 2LST, true of any play. Nothing better is claimed, and nothing sublinear can be:
    regressing on x + z leaves θ̂ biased for ever (errors in variables), and even with θ* known, two arms whose
    means differ by g are swapped with probability Φ(−g/(√2·σS)) in every round, so regret is linear in T.
    Corrected, nature perturbs: `regret_bound` with the mechanism's λ₀ set to σ², against the best x + z.

    As published: Theorem 3's print with λ₀ = σ² and its first term divided by σ² as well. It is false for the
    learner-only reading.

    >>> common = dict(context_noise=0.5, dim=2, epsilon=2.0, delta=0.1)
    >>> perturbed_regret_bound(1000, **common)
    2000.0
    >>> round(perturbed_regret_bound(1000, **common, as_published=True))
    6706
    """
    _positive(context_noise=context_noise)
    variance = context_noise**2
    theorem = regret_bound(
        horizon, dim=dim, epsilon=epsilon, delta=delta, smallest_eigenvalue=variance, ridge=ridge,
        max_norm=max_norm, theta_norm=theta_norm, zeta=zeta, reward_noise=reward_noise,
        reward_width=reward_width, mechanism_horizon=mechanism_horizon,
        as_published=as_published or learner_only,  # the cheap form, where only its argument checks matter
    )  # fmt: skip
    horizons = _whole_numbers(horizon=horizon)
    if as_published:
        radius, spread = _published_ellipsoid(horizons, dim, ridge, max_norm, theta_norm, zeta)
        return _shaped_like(horizon, theorem + 2 * radius * (1 / variance - 1) * spread)
    return _shaped_like(horizon, 2 * max_norm * theta_norm * horizons) if learner_only else theorem


def worst_case_regret(horizon: ArrayLike, *, dim: int, reward_noise: float = 0.5) -> Values:
    """What every algorithm, private or not, loses in T rounds on some θ: at least R·d·√T/(16√3).

    Lattimore & Szepesvári 2020, Theorem 24.2, for arms that fill the unit ball in every round, d ≤ 2T and Gaussian
    noise of standard deviation R; θ is as long as R·d/√(48T). The constant is known. It is a worst case: with few
    arms drawn at random, as in `worlds.Synthetic`, an algorithm may lose less.

    >>> round(worst_case_regret(10_000, dim=10), 2)
    18.04
    """
    horizons = _whole_numbers(horizon=horizon)
    _whole_numbers(dim=dim)
    _not_negative(reward_noise=reward_noise)
    if np.any(dim > 2 * horizons):
        raise ValueError(f"the theorem needs dim ≤ 2·horizon; got {dim=}, {horizon=}")
    return _shaped_like(horizon, reward_noise * dim * np.sqrt(horizons) / (16 * math.sqrt(3)))


def privacy_order(*, dim: int, mu: float, reward_width: float = 1.0) -> float:
    """Order of what privacy of rewards costs in the worst case: W·d/√ρ with ρ = μ²/2, up to an unknown constant.

    Azize & Basu 2024, linear bandits under ρ-zCDP with respect to rewards: regret is at least of the order of
    max(d√T, d/√ρ) on some instance, after their result for pure ε (2022): max(d√T, d/ε). What is μ-GDP is
    μ²/2-zCDP. The constant is NOT known here and taken as 1: compare slopes and ratios, never levels. It is a bound
    on all of the regret, not on what is added to it: once ρ exceeds 1/T, the non-private term is the larger one.

    >>> privacy_order(dim=10, mu=0.5) / privacy_order(dim=10, mu=1.0)
    2.0
    """
    _whole_numbers(dim=dim)
    _positive(mu=mu, reward_width=reward_width)
    return reward_width * dim * math.sqrt(2) / mu


def arms_privacy_order(horizon: ArrayLike, *, arms: int, epsilon: float) -> Values:
    """Order of what pure ε adds for K arms without features: K·log T/ε, up to an unknown constant.

    Shariff & Sheffet 2018 (section 5): some instance costs every ε-DP algorithm that much. The constant is NOT known
    here and taken as 1. It says nothing about (ε, δ), nor about arms that share a parameter.

    >>> round(arms_privacy_order(10_000, arms=10, epsilon=1.0), 1)
    92.1
    """
    horizons = _whole_numbers(horizon=horizon)
    _whole_numbers(arms=arms)
    _positive(epsilon=epsilon)
    return _shaped_like(horizon, arms * np.log(horizons) / epsilon)


def _published_ellipsoid(
    horizons: NDArray[np.int64],
    dim: int,
    ridge: float,
    max_norm: float,
    theta_norm: float,
    zeta: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The printed radius √(d·log((1+TL²λ)/ζ)) + √λ·S and the printed Q = √(dT·log(λ + LT/d))."""
    ellipsoid = np.sqrt(dim * np.log((1 + horizons * max_norm**2 * ridge) / zeta))
    with np.errstate(invalid="ignore"):
        potential = np.sqrt(dim * horizons * np.log(ridge + max_norm * horizons / dim))
    return ellipsoid + math.sqrt(ridge) * theta_norm, potential


def _shaped_like(given: ArrayLike, values: ArrayLike) -> Values:
    result = np.asarray(values, dtype=np.float64)
    return result if np.ndim(given) or result.ndim else float(result)


def _whole_numbers(most: int | None = None, **named: ArrayLike) -> NDArray[np.int64]:
    """The last of the named values as integers, each of them checked to be whole, ≥ 1 and ≤ `most`."""
    if most is not None and not (most >= 1 and most == int(most)):
        raise ValueError(f"the horizon must be a whole number ≥ 1; got {most!r}")
    for name, value in named.items():
        numbers = np.asarray(value, dtype=np.float64)
        if not np.all(np.isfinite(numbers) & (numbers >= 1) & (numbers == np.floor(numbers))):
            raise ValueError(f"{name} must be a whole number ≥ 1; got {value!r}")
        if most is not None and np.any(numbers > most):
            raise ValueError(
                f"{name} must be at most the mechanism's horizon {most}; got {value!r}"
            )
    return np.asarray(numbers.astype(np.int64))


def _positive(**named: float) -> None:
    for name, value in named.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite; got {value!r}")


def _not_negative(**named: ArrayLike) -> None:
    for name, value in named.items():
        if not np.all(np.asarray(value, dtype=np.float64) >= 0):
            raise ValueError(f"{name} must be at least 0; got {value!r}")


def _probabilities(**named: float) -> None:
    for name, value in named.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} must lie strictly between 0 and 1; got {value!r}")
