"""The square-root Toeplitz factorisation for continual sums, streamed in constant memory (BLT: Dvijotham, McMahan,
Pillutla, Steinke & Thakurta 2024).

Prefix sums are A = BC. Round t releases the encoded value (Cg)_t with noise; decoding, B = AC⁻¹, is post-processing.
C has first column 1, c_k = Σ_i ω_i θ_i^{k−1} with 0 < θ_i < 1, a sum of few decays that stands for the square root's
c_k = C(2k, k)/4^k, so that a buffer per decay is all the memory needed. The code keeps the rates 1 − θ_i: they say more
digits about a slow decay. Fitted rates and weights are in `toeplitz_table`, made by `tools/fit_toeplitz.py`.
Gaussian noise only. `Toeplitz.clean` holds clean sums; nothing outside the trusted side may read it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.compiled import kernel
from dpbandit.errors import OptionError
from dpbandit.lanes import WIDTH, load, minus, plus, splat, store, times
from dpbandit.release.toeplitz_table import TABLE

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Toeplitz(NamedTuple):
    """The state of one stream: everything needed to continue, in arrays that do not grow."""

    rates: Vector  # 1 − θ
    weights: Vector  # ω
    clean: Matrix  # Σ_k ω θ^{t−1−k} g_k, one row a decay
    clean_low: Matrix  # what rounding lost of `clean`
    noisy: Matrix  # the same sums of the decoded items
    noisy_low: Matrix
    total: Vector  # the released prefix sum
    total_low: Vector


def new_toeplitz(dim: int, horizon: int | None) -> Toeplitz:
    """An empty stream of vectors, for at most `horizon` rounds (None: for ever).

    >>> state = new_toeplitz(3, horizon=10_000)
    >>> state.clean.shape, state.total.tolist()
    ((5, 3), [0.0, 0.0, 0.0])
    """
    rates, weights = decays_for(horizon)
    rows = (len(rates), dim)
    return Toeplitz(
        rates.copy(),
        weights.copy(),
        np.zeros(rows),
        np.zeros(rows),
        np.zeros(rows),
        np.zeros(rows),
        np.zeros(dim),
        np.zeros(dim),
    )


@kernel(inline="always")
def _advance(old: Any, low: Any, item: Any, rate: Any, weight: Any) -> Any:
    """s ← θs + ωg as s + (ωg − (1 − θ)s), with the rounding of the addition kept: a slow buffer would add up a million
    roundings of its own size before it forgets the first."""
    return _kept_sum(old, plus(minus(times(weight, item), times(rate, old)), low))


@kernel(inline="always")
def _kept_sum(old: Any, change: Any) -> Any:
    new = plus(old, change)
    back = minus(new, old)
    return new, plus(minus(old, minus(new, back)), minus(change, back))


@kernel(inline="late")
def encode(state: Toeplitz, item: Vector, out: Vector) -> None:
    """Add this round's vector and put its clean encoded value (Cg)_t into `out`, another array than `item`.

    >>> state, out = new_toeplitz(1, horizon=1000), np.zeros(1)
    >>> encode(state, np.ones(1), out)
    >>> encode(state, np.zeros(1), out)
    >>> bool(out[0] == state.weights.sum())
    True
    """
    clean, low, rates, weights = state.clean, state.clean_low, state.rates, state.weights
    d = item.shape[0]
    whole = d - d % WIDTH
    for k in range(0, whole, WIDTH):
        g = load(item, k)
        total = g
        for i in range(rates.shape[0]):
            at = i * d + k
            old = load(clean, at)
            total = plus(total, old)
            new, rest = _advance(old, load(low, at), g, splat(rates[i]), splat(weights[i]))
            store(clean, at, new)
            store(low, at, rest)
        store(out, k, total)
    for k in range(whole, d):
        sum_ = item[k]
        for i in range(rates.shape[0]):
            sum_ += clean[i, k]
            clean[i, k], low[i, k] = _advance(clean[i, k], low[i, k], item[k], rates[i], weights[i])
        out[k] = sum_


@kernel(inline="late")
def decode(state: Toeplitz, value: Vector, out: Vector) -> None:
    """Take this round's noisy encoded value and put the noisy sum of all rounds so far into `out` (which may be `value`).

    >>> state, out = new_toeplitz(1, horizon=1000), np.zeros(1)
    >>> for item in (3.0, 4.0, 5.0):
    ...     encode(state, np.array([item]), out)
    ...     decode(state, out, out)
    >>> round(float(out[0]), 12)
    12.0
    """
    noisy, low, rates, weights = state.noisy, state.noisy_low, state.rates, state.weights
    d = value.shape[0]
    whole = d - d % WIDTH
    for k in range(0, whole, WIDTH):
        g = load(value, k)
        for i in range(rates.shape[0]):
            g = minus(g, load(noisy, i * d + k))
        for i in range(rates.shape[0]):
            at = i * d + k
            new, rest = _advance(load(noisy, at), load(low, at), g, splat(rates[i]), splat(weights[i]))
            store(noisy, at, new)
            store(low, at, rest)
        new, rest = _kept_sum(load(state.total, k), plus(g, load(state.total_low, k)))
        store(state.total, k, new)
        store(state.total_low, k, rest)
        store(out, k, new)
    for k in range(whole, d):
        item = value[k]
        for i in range(rates.shape[0]):
            item -= noisy[i, k]
        for i in range(rates.shape[0]):
            noisy[i, k], low[i, k] = _advance(noisy[i, k], low[i, k], item, rates[i], weights[i])
        state.total[k], state.total_low[k] = _kept_sum(state.total[k], item + state.total_low[k])
        out[k] = state.total[k]


@kernel
def forget(state: Toeplitz) -> None:
    """Back to an empty stream.

    >>> state, out = new_toeplitz(1, horizon=1000), np.zeros(1)
    >>> encode(state, np.ones(1), out)
    >>> forget(state)
    >>> bool(state.clean.any())
    False
    """
    state.clean[:] = 0.0
    state.clean_low[:] = 0.0
    state.noisy[:] = 0.0
    state.noisy_low[:] = 0.0
    state.total[:] = 0.0
    state.total_low[:] = 0.0


# ------------------------------------------------------------------ how much noise, and how good the sums are


def decays_for(horizon: int | None) -> tuple[Vector, Vector]:
    """The rates 1 − θ and the weights ω for this horizon: the shortest entry of the table that covers it.

    >>> rates, weights = decays_for(500)
    >>> len(rates), bool((rates > 0).all() and (rates < 1).all() and (weights > 0).all())
    (4, True)
    """
    _check(horizon)
    last = max(TABLE)
    entry = last if horizon is None else min((length for length in TABLE if length >= horizon), default=last)
    rates, weights = TABLE[entry]
    return np.array(rates), np.array(weights)


@lru_cache(maxsize=256)
def column_norm(horizon: int | None) -> float:
    """The L2 sensitivity of the encoded stream to one item of norm 1, whatever its round; rounded up.

    A horizon beyond the table has the norm of a stream that never ends: √(1 + Σ_ij ω_i ω_j/(1 − θ_i θ_j)).

    >>> column_norm(1) < 1 + 1e-11, round(column_norm(1000), 3), round(column_norm(None), 3)
    (True, 1.751, 2.324)
    """
    _check(horizon)
    endless = horizon is None or horizon > max(TABLE)
    norm = squared_column(*decays_for(horizon), np.array(math.inf if endless else float(horizon or 0)))
    return math.sqrt(norm.item()) * (1 + 1e-12)  # a sum of positive terms, each good to a few ulps


def encoding_slack(rounds: int, *, horizon: int | None, size: float) -> float:
    """By how much float rounding can lengthen a column, L2, in this many rounds of items of norm ≤ `size`.

    A rounding in a buffer's change is at most 8·2⁻⁵³ of ω·size and dies with its rate, so a buffer is off by 8·2⁻⁵³ of its
    largest value ω·size/(1 − θ), and by one more for what is kept beside it; adding up m buffers costs m. Twice, for the
    neighbour's stream. Items are measured in units of the distance between neighbours.

    >>> encoding_slack(10**6, horizon=10**6, size=1.0) < 1e-7
    True
    """
    rates, weights = decays_for(horizon)
    largest = 1 + float((weights / rates).sum())
    return 2 * math.sqrt(rounds) * (len(rates) + 9) * 2.0**-53 * largest * size


def standard_error(t: ArrayLike, horizon: int | None) -> Vector:
    """The standard error of each coordinate of the sum released at round t (or rounds t), for items of norm 1 and ρ = ½.

    For another budget multiply by the sensitivity and divide by √(2ρ).

    >>> standard_error([1, 1000], horizon=1000).round(2).tolist()
    [1.75, 3.27]
    """
    rounds = np.asarray(t, dtype=np.float64)
    last = math.inf if horizon is None else horizon
    if not ((rounds >= 0) & (rounds <= last)).all():
        raise OptionError(f"t must lie between 0 and the horizon, {horizon!r}, not {t!r}")
    return column_norm(horizon) * np.sqrt(squared_row(*decays_for(horizon), rounds))


def squared_column(rates: Vector, weights: Vector, n: Vector) -> Vector:
    """Σ_{k<n} c_k².

    >>> float(squared_column(np.array([0.5]), np.array([0.5]), np.array(3.0)))  # 1 + 1/4 + 1/16
    1.3125
    """
    later = _quadratic(rates, weights, np.maximum(n - 1, 0.0))
    return np.where(n > 0, 1 + later, 0.0)


def squared_row(rates: Vector, weights: Vector, n: Vector) -> Vector:
    """Σ_{k<n} b_k², where b_k are the coefficients of B: what n rounds of unit noise add to the variance of a sum.

    >>> float(squared_row(np.array([0.5]), np.array([0.5]), np.array(3.0)))  # b = 1, 1/2, 1/2, …
    1.5
    """
    return _quadratic(*inverse_decays(rates, weights), n)


def inverse_decays(rates: Vector, weights: Vector) -> tuple[Vector, Vector]:
    """B's coefficients as b_k = Σ_i β_i (1 − r_i)^k: the rates r, with r_0 = 0 for what never decays, and β > 0.

    C's generating function vanishes at 1/φ where 1 + Σ ω_i/(φ − θ_i) = 0: one φ between neighbouring θ's and one below
    all, so 1 − φ are the eigenvalues of diag(1 − θ) + √ω√ωᵀ, and the residues at them are all positive.

    >>> rates, weights = inverse_decays(np.array([0.5]), np.array([0.5]))
    >>> rates.tolist(), weights.tolist()
    ([0.0, 1.0], [0.5, 0.5])
    """
    root = np.sqrt(weights)
    zeros = np.linalg.eigvalsh(np.diag(rates) + np.outer(root, root))
    for _ in range(2):  # eigenvalues are good to an ulp of the largest; Newton makes the smallest as good
        gaps = rates[:, None] - zeros
        zeros = zeros - (1 + (weights[:, None] / gaps).sum(axis=0)) / (weights[:, None] / gaps**2).sum(axis=0)
    poles = np.concatenate([[0.0], zeros])
    others = poles[:, None] - poles + np.eye(len(poles))
    return poles, (rates[:, None] - poles).prod(axis=0) / others.prod(axis=0)


def _quadratic(rates: Vector, weights: Vector, n: Vector) -> Vector:
    """Σ_{k<n} (Σ_i w_i (1 − r_i)^k)²."""
    total = np.zeros_like(n)
    for i in range(len(rates)):
        for j in range(i + 1):
            pair = weights[i] * weights[j] * (1 if i == j else 2)
            total = total + pair * geometric(rates[i] + rates[j] - rates[i] * rates[j], n)
    return total


def geometric(rate: float, n: Vector) -> Vector:
    """Σ_{k<n} (1 − rate)^k, without the cancellation of slow decays.

    >>> geometric(0.5, np.array([1.0, 2.0, np.inf])).tolist()
    [1.0, 1.5, 2.0]
    """
    if rate == 0.0:
        return n.copy()
    if rate < 0.5:
        return -np.expm1(n * math.log1p(-rate)) / rate
    return (1 - np.power(1 - rate, n)) / rate


def _check(horizon: int | None) -> None:
    if horizon is not None and horizon < 1:
        raise OptionError(f"horizon must be at least 1 (or None for unknown), not {horizon!r}")
