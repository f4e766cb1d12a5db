"""The square-root Toeplitz factorisation for continual sums, streamed in constant memory (BLT:
Dvijotham, McMahan, Pillutla, Steinke & Thakurta 2024).

Prefix sums are A = BC. Round t shows the encoded value (Cg)_t with noise; decoding, B = AC⁻¹, is
post-processing. C has first column 1, c_k = Σ_i ω_i θ_i^{k−1} with 0 < θ_i < 1, a sum of few decays
that stands for the square root's c_k = C(2k, k)/4^k, so that a buffer per decay is all the memory
needed. The code keeps the rates 1 − θ_i: they say more digits about a slow decay. Fitted rates and
weights are in `toeplitz_table`, made by `tools/fit_toeplitz.py`. Gaussian noise only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.errors import BudgetError, OptionError
from dpbandit.privacy.grid import FLOAT_GRID_BITS, to_floats
from dpbandit.release.base import Charge, Clock, Release, Sums, check_horizon
from dpbandit.release.toeplitz_table import TABLE
from dpbandit.types import Matrix, Vector

# What rounding of the buffers adds grows with the rounds, so it is charged for this many when the
# horizon is unknown (4e-5 of the noise), and the round after them is refused: at a million a
# second, in 9 years.
MOST_ROUNDS = 2**48
# Items are of norm ½, and a little more: norms are checked to 1e-9 and items rounded to the grid.
ITEM_SIZE = 0.51


class ToeplitzSums(Sums):
    """A buffer for each decay, of clean items and of decoded ones, and what rounding lost of it."""

    def __init__(self, dim: int, *, rates: Vector, weights: Vector) -> None:
        self.rates, self.weights = rates[:, None], weights[:, None]  # 1 − θ, and ω
        self.clean, self.clean_low, self.noisy, self.noisy_low = np.zeros((4, len(rates), dim))
        self.total, self.total_low = np.zeros((2, dim))

    def add(self, t: int, item: Any) -> Vector:
        """The clean encoded value (Cg)_t."""
        return self.encode(to_floats(item))

    def encode(self, item: Vector) -> Vector:
        """The same for an item in floats."""
        value = item
        for row in self.clean:
            value = value + row
        self._advance(self.clean, self.clean_low, item)
        return value

    def publish(self, t: int, noisy: Vector) -> Vector:
        item = noisy
        for row in self.noisy:
            item = item - row
        self._advance(self.noisy, self.noisy_low, item)
        _add_up(self.total, self.total_low, item)
        return self.total.copy()

    def _advance(self, buffers: Matrix, low: Matrix, item: Vector) -> None:
        """s ← θs + ωg as s + (ωg − (1 − θ)s), in place, with the rounding of the addition kept: a
        slow buffer would add up a million roundings of its own size before it forgets the first."""
        _add_up(buffers, low, self.weights * item - self.rates * buffers)

    def fields(self) -> dict[str, NDArray[Any]]:
        return {
            "clean": self.clean,
            "clean_low": self.clean_low,
            "noisy_buffers": self.noisy,
            "noisy_low": self.noisy_low,
            "total": self.total,
            "total_low": self.total_low,
        }


def _add_up(total: Matrix, low: Matrix, change: Matrix) -> None:
    """total ← total + change + low, and low ← what rounding lost of it, in place."""
    change = change + low
    new = total + change
    back = new - total
    low[:] = (total - (new - back)) + (change - back)
    total[:] = new


@dataclass(frozen=True, eq=False)
class Toeplitz(Release):
    """Noise on an encoding of the stream, which decoding spreads over time."""

    name = "toeplitz"
    in_core = True
    log_field = "total"

    dim: int
    real: bool  # whether real noise, on its grid, is drawn

    def __post_init__(self) -> None:
        if self.noise.currency != "mu²":
            raise OptionError(f"toeplitz needs noise paid in μ², not {self.noise.name!r}")

    @staticmethod
    def draws(dim: int, horizon: int | None) -> int:
        return dim * ((horizon or MOST_ROUNDS) + 1)  # an item is in every release after it

    @cached_property
    def column(self) -> float:
        """How much longer a reward's shift is over all releases than in one, rounding included."""
        rounds = self.horizon or MOST_ROUNDS
        norm = column_norm(self.horizon)
        slack = encoding_slack(rounds, horizon=self.horizon, size=ITEM_SIZE / self.sensitivity)
        if slack > norm:
            raise OptionError(
                f"a sensitivity of {self.sensitivity:.3g} is lost in the rounding of items of norm "
                "1/2, which noise would have to cover: scale items so that a reward can move them "
                "by about 1"
            )
        norm += slack
        if self.real and math.isfinite(self.budget):
            # Each release is rounded to the grid, and a neighbour may fall to the other side of a
            # step. The step is a share of the noise, which must cover that too.
            share = math.sqrt(self.dim * float(rounds)) * 2.0**-FLOAT_GRID_BITS / self.budget
            if share > 0.5:
                raise OptionError(
                    f"the grid of real noise would take {share:.0%} of it in {rounds:.3g} rounds: "
                    "give a shorter horizon, or a larger epsilon"
                )
            norm /= 1 - share
        return norm

    @property
    def scale(self) -> float:
        """Of every release."""
        return self.noise.multiplier(self.budget, 1) * self.sensitivity * self.column

    def charge(self, engine: Clock, t: int) -> Charge:
        """The first reward has paid most: c_k² of the whole for the k-th release after its own."""
        rates, weights = decays_for(self.horizon)
        decay = float(weights @ (1 - rates) ** (t - 2)) if t > 1 else 1.0
        newest = self.whole_share / column_norm(self.horizon) ** 2
        shift = self.noise.shift_of(self.scale, newest)
        return Charge(newest * decay**2, "encoded sums", adds=True, shift=shift)

    def room(self, engine: Clock) -> None:
        if engine.rounds >= (self.horizon or MOST_ROUNDS):
            raise BudgetError(
                f"round {engine.rounds + 1} is more than the {self.horizon or MOST_ROUNDS} that "
                "rounding was charged for; make the bandit with a larger horizon"
            )

    def squares(self, t: ArrayLike) -> Vector:
        rounds = np.minimum(np.asarray(t, dtype=np.float64), self.horizon or math.inf)
        return np.asarray(self.scale**2 * squared_row(*decays_for(self.horizon), rounds))

    def core(self) -> dict[str, Any]:
        rates, weights = decays_for(self.horizon)
        longer = self.sensitivity * self.column
        return {**super().core(), "sensitivity": longer, "rates": rates, "weights": weights}


# ------------------------------------------------------------------ how much noise, how good


def decays_for(horizon: int | None) -> tuple[Vector, Vector]:
    """The rates 1 − θ and the weights ω for this horizon: the shortest entry that covers it.

    >>> rates, weights = decays_for(500)
    >>> len(rates), bool((rates > 0).all() and (rates < 1).all() and (weights > 0).all())
    (4, True)
    """
    check_horizon(horizon)
    last = max(TABLE)
    covers = [length for length in TABLE if horizon is not None and length >= horizon]
    rates, weights = TABLE[min(covers, default=last)]
    return np.array(rates), np.array(weights)


@lru_cache(maxsize=256)
def column_norm(horizon: int | None) -> float:
    """The L2 sensitivity of the encoded stream to an item of norm 1 in any round, rounded up.

    Beyond the table, that of a stream that never ends: √(1 + Σ_ij ω_i ω_j/(1 − θ_i θ_j)).

    >>> column_norm(1) < 1 + 1e-11, round(column_norm(1000), 3), round(column_norm(None), 3)
    (True, 1.751, 2.324)
    """
    check_horizon(horizon)
    endless = horizon is None or horizon > max(TABLE)
    length = np.array(math.inf if endless else float(horizon or 0))
    norm = squared_column(*decays_for(horizon), length)
    return math.sqrt(norm.item()) * (1 + 1e-12)  # a sum of positive terms, each good to a few ulps


def encoding_slack(rounds: int, *, horizon: int | None, size: float) -> float:
    """By how much rounding can lengthen a column, L2, in so many rounds of items of norm ≤ `size`.

    A rounding in a buffer's change is at most 8·2⁻⁵³ of ω·size and dies with its rate, so a buffer
    is off by 8·2⁻⁵³ of its largest value ω·size/(1 − θ), and by one more for what is kept beside
    it; adding up m buffers costs m. Twice, for the neighbour's stream. Items are measured in units
    of the distance between neighbours.

    >>> encoding_slack(10**6, horizon=10**6, size=1.0) < 1e-7
    True
    """
    rates, weights = decays_for(horizon)
    largest = 1 + float((weights / rates).sum())
    return 2 * math.sqrt(rounds) * (len(rates) + 9) * 2.0**-53 * largest * size


def squared_column(rates: Vector, weights: Vector, n: Vector) -> Vector:
    """Σ_{k<n} c_k².

    >>> float(squared_column(np.array([0.5]), np.array([0.5]), np.array(3.0)))  # 1 + 1/4 + 1/16
    1.3125
    """
    later = _quadratic(rates, weights, np.maximum(n - 1, 0.0))
    return np.where(n > 0, 1 + later, 0.0)


def squared_row(rates: Vector, weights: Vector, n: Vector) -> Vector:
    """Σ_{k<n} b_k² of B's coefficients: what n rounds of unit noise add to the variance of a sum.

    >>> float(squared_row(np.array([0.5]), np.array([0.5]), np.array(3.0)))  # b = 1, 1/2, 1/2, …
    1.5
    """
    return _quadratic(*inverse_decays(rates, weights), n)


def inverse_decays(rates: Vector, weights: Vector) -> tuple[Vector, Vector]:
    """B's coefficients as b_k = Σ_i β_i (1 − r_i)^k: r, where r_0 = 0 never decays, and β > 0.

    C's generating function vanishes at 1/φ where 1 + Σ ω_i/(φ − θ_i) = 0: one φ between
    neighbouring θ's and one below all, so 1 − φ are the eigenvalues of diag(1 − θ) + √ω√ωᵀ, and the
    residues at them are all positive.

    >>> rates, weights = inverse_decays(np.array([0.5]), np.array([0.5]))
    >>> rates.tolist(), weights.tolist()
    ([0.0, 1.0], [0.5, 0.5])
    """
    root = np.sqrt(weights)
    zeros = np.linalg.eigvalsh(np.diag(rates) + np.outer(root, root))
    for _ in range(2):  # good to an ulp of the largest; Newton makes the smallest as good
        gaps = rates[:, None] - zeros
        value = (weights[:, None] / gaps).sum(axis=0)
        slope = (weights[:, None] / gaps**2).sum(axis=0)
        zeros = zeros - (1 + value) / slope
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
