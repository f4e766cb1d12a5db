"""The sums that a log is boiled down to: what they are, how those of its parts are merged, and how far rounding can reach.

Every row with context x and clipped reward r adds c·z·zᵀ, a second matrix and c·z·v, where z is x or (x/size, 1), v = (r − middle)/width
and c = 1/max(‖Pz‖, floor) for a public P, or 1 without one. Everything but the last is public. Sums are plain within CHUNK rows
and compensated beyond (`log_rows` adds the rows), and do not depend on how many threads or nodes read the log.
`Sums.moments` is clean: it may leave only through `warm.enter`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.products import split_product

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Status = NDArray[np.uint8]

# Rows that are added up plainly before rounding errors are caught: few enough for tight bounds, enough to hide the cost.
CHUNK = 4096
# Kernels go through matrices in strips of this many columns.
STRIP = 8

# What can be wrong with a row; the first that applies is counted.
GOOD, MISSING, LENGTH, NOT_FINITE, LONG, LONG_L1, NO_REWARD, REWARD_NOT_FINITE, NO_USER, OVER_CAP = range(10)
CLIPPED, CHUNKS = OVER_CAP + 1, OVER_CAP + 2
KINDS = {
    MISSING: "context missing",
    LENGTH: "context of another length",
    NOT_FINITE: "context not finite",
    LONG: "context longer than max_norm",
    LONG_L1: "context longer in L1 than public_contexts",
    NO_REWARD: "reward missing",
    REWARD_NOT_FINITE: "reward not finite",
    NO_USER: "user missing",
}


class Recipe(NamedTuple):
    """The public choices of a pass, fixed before it."""

    dim: int
    max_norm: float
    tolerance: float  # how far above max_norm is still rounding
    l1_limit: float  # 0: none
    low: float
    high: float
    clips: bool
    middle: float  # v = (r − middle)/width
    width: float
    constant: bool  # whether z ends with a 1
    size: float
    whitener: Matrix  # P; no rows: c = 1
    triangular: bool  # P is lower triangular
    floor: float
    power: int  # the second matrix is Σ c^power·z·zᵀ; −1: there is none

    @property
    def length(self) -> int:
        """Numbers in z."""
        return self.dim + self.constant


class Sums(NamedTuple):
    """What a part of the log adds up to. Matrices hold their lower halves in strips; see `whole`."""

    gram: Matrix
    gram_low: Matrix
    second: Matrix
    second_low: Matrix
    moments: Vector
    moments_low: Vector
    counts: NDArray[np.int64]  # by status; then rewards clipped (private); chunks added up
    longest: Vector  # the longest context learned from: L2, L1

    @property
    def learned(self) -> int:
        return int(self.counts[GOOD])

    @property
    def rows(self) -> int:
        return int(self.counts[: OVER_CAP + 1].sum())


def new_sums(recipe: Recipe) -> Sums:
    """Sums of nothing."""
    k = recipe.length
    padded = k + -k % STRIP
    second = (k, padded) if recipe.power >= 0 else (0, padded)
    return Sums(
        np.zeros((k, padded)),
        np.zeros((k, padded)),
        np.zeros(second),
        np.zeros(second),
        np.zeros(padded),
        np.zeros(padded),
        np.zeros(CHUNKS + 1, dtype=np.int64),
        np.zeros(2),
    )


def whole(half: Matrix) -> Matrix:
    """A symmetric matrix from its lower half.

    >>> whole(np.array([[1.0, 9.0], [2.0, 3.0]])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    k = len(half)
    lower = np.tril(half[:, :k])
    return np.asarray(lower + np.tril(lower, -1).T)


def merge(into: Sums, part: Sums) -> None:
    """Add the sums of another part of the log. Order matters in the last bits, so parts are merged in the log's."""
    add(into.gram.ravel(), into.gram_low.ravel(), part.gram.ravel(), part.gram_low.ravel())
    add(into.second.ravel(), into.second_low.ravel(), part.second.ravel(), part.second_low.ravel())
    add(into.moments, into.moments_low, part.moments, part.moments_low)
    into.counts[:] += part.counts
    np.maximum(into.longest, part.longest, out=into.longest)


@kernel
def add(high: Vector, low: Vector, more: Vector, more_low: Vector) -> None:
    """high + low += more + more_low, with what rounding loses of the addition kept in low."""
    for i in range(high.shape[0]):
        total = high[i] + more[i]
        back = total - high[i]
        low[i] += ((high[i] - (total - back)) + (more[i] - back)) + more_low[i]
        high[i] = total


def slack(recipe: Recipe, rows: int, chunks: int) -> float:
    """How much float rounding can add to the distance between neighbours in `exact_moments`, relatively (docs/privacy.md).

    Neighbours differ in one row, so in one chunk: adding up its B rows is off by at most (B + 4)·2⁻⁵³ of B terms, on either side. The
    compensated rest is off by the square of 2⁻⁵³ a chunk, and the final rounding by 2⁻⁵³ of the sum. With P all but the last may be stretched by g = ‖P‖·‖P⁻¹‖.
    """
    u, k = 2.0**-53, recipe.length
    ends = [(end - recipe.middle) / recipe.width for end in (recipe.low, recipe.high)]
    size = max(abs(end) for end in ends) / (ends[1] - ends[0])
    stretch = 1.0
    if len(recipe.whitener):
        stretch = float(np.linalg.norm(recipe.whitener) * np.linalg.norm(np.linalg.inv(recipe.whitener)))
    inside = (CHUNK + 4) * CHUNK * u + (chunks * u) ** 2 * rows
    return 2e-9 + 2 * size * k * (stretch * inside + 2 * rows * u)


def exact_moments(recipe: Recipe, sums: Sums) -> Vector:
    """The clean sums Σ c·P·z·v (without P: Σ z·v), rounded once."""
    k = recipe.length
    if not len(recipe.whitener):
        return sums.moments[:k] + sums.moments_low[:k]
    out, matrix = np.empty(k), recipe.whitener
    for i in range(k):
        terms: list[float] = []
        for j in range(k):
            factor = float(matrix[i, j])
            terms += split_product(factor, float(sums.moments[j]))
            terms += split_product(factor, float(sums.moments_low[j]))
        out[i] = math.fsum(terms)
    return out
