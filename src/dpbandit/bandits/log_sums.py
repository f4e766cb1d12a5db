"""The sums that a log is boiled down to, compiled: one pass, a few numbers a row, in memory that does not grow.

Every row with context x and clipped reward r adds c·z·zᵀ, a second matrix and c·z·v, where z is x or (x/size, 1), v = (r − middle)/width
and c = 1/max(‖Pz‖, floor) for a public P, or 1 without one. Everything but the last is public. Sums are plain within CHUNK rows
and compensated beyond, and do not depend on how many threads read the log.
`Sums.moments` is clean: it may leave only through `warm.enter`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.numerics import split_product

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
    padded = -(-k // STRIP) * STRIP
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
    _merge(into.gram.ravel(), into.gram_low.ravel(), part.gram.ravel(), part.gram_low.ravel())
    _merge(into.second.ravel(), into.second_low.ravel(), part.second.ravel(), part.second_low.ravel())
    _merge(into.moments, into.moments_low, part.moments, part.moments_low)
    into.counts[:] += part.counts
    np.maximum(into.longest, part.longest, out=into.longest)


@kernel
def _merge(high: Vector, low: Vector, more: Vector, more_low: Vector) -> None:
    """high + low += more + more_low, with what rounding loses of the addition kept in low."""
    for i in range(high.shape[0]):
        total = high[i] + more[i]
        back = total - high[i]
        low[i] += ((high[i] - (total - back)) + (more[i] - back)) + more_low[i]
        high[i] = total


@kernel
def inspect(xs: Matrix, rs: Vector, status: Status, recipe: Recipe) -> None:
    """Find rows that cannot be learned from, as `update` would refuse them."""
    limit = (1.0 + recipe.tolerance) ** 2
    scale = 1.0 / recipe.max_norm
    for n in range(xs.shape[0]):
        if status[n] != GOOD:
            continue
        square = 0.0
        total = 0.0
        for i in range(recipe.dim):
            scaled = xs[n, i] * scale
            square += scaled * scaled
            total += abs(xs[n, i])
        if not square <= limit:
            status[n] = LONG
            for i in range(recipe.dim):
                if not math.isfinite(xs[n, i]):
                    status[n] = NOT_FINITE
        elif recipe.l1_limit > 0.0 and total > recipe.l1_limit * (1.0 + recipe.tolerance):
            status[n] = LONG_L1
        elif not math.isfinite(rs[n]):
            status[n] = REWARD_NOT_FINITE


@kernel
def absorb(xs: Matrix, rs: Vector, status: Status, recipe: Recipe, sums: Sums, chunk: Sums, work: Matrix) -> None:
    """Add all rows with status 0. `chunk` and `work`, of 5 rows as long as padded z, are scratch."""
    d, k = recipe.dim, recipe.dim + (1 if recipe.constant else 0)
    shaped, paired = recipe.whitener.shape[0] > 0, sums.second.shape[0] > 0
    work[:] = 0.0
    one = work[4]
    for begin in range(0, xs.shape[0], CHUNK):
        chunk.gram[:] = 0.0
        chunk.second[:] = 0.0
        chunk.moments[:] = 0.0
        filled = 0
        c0, c1, c2, c3 = 0.0, 0.0, 0.0, 0.0
        for n in range(begin, min(begin + CHUNK, xs.shape[0])):
            if status[n] == GOOD:
                z = work[filled]
                square, total = 0.0, 0.0
                for i in range(d):
                    z[i] = xs[n, i] / recipe.size
                    square += xs[n, i] * xs[n, i]
                    total += abs(xs[n, i])
                if recipe.constant:
                    z[d] = 1.0 if total > 0.0 else 0.0  # a context of zeros says nothing about θ
                # Squares of tiny numbers vanish; the L1 norm is no shorter.
                sums.longest[0] = max(sums.longest[0], math.sqrt(square) if square > 1e-280 else total)
                sums.longest[1] = max(sums.longest[1], total)
                reward = rs[n]
                if recipe.clips:
                    reward = min(max(reward, recipe.low), recipe.high)
                    if reward != rs[n]:
                        sums.counts[CLIPPED] += 1
                c = _weight(z, recipe, one, k) if shaped else 1.0
                value = c * ((reward - recipe.middle) / recipe.width)
                for i in range(k):
                    chunk.moments[i] += value * z[i]
                if filled == 0:
                    c0 = c
                elif filled == 1:
                    c1 = c
                elif filled == 2:
                    c2 = c
                else:
                    c3 = c
                filled += 1
            if filled == 4:
                _add_four(work, c0, c1, c2, c3, chunk.gram, k)
                if paired:
                    _add_four(work, _power(c0, recipe), _power(c1, recipe), _power(c2, recipe), _power(c3, recipe), chunk.second, k)
                filled = 0
        if filled > 0:
            c1, c2 = (c1 if filled > 1 else 0.0), (c2 if filled > 2 else 0.0)
            _add_four(work, c0, c1, c2, 0.0, chunk.gram, k)
            if paired:
                s1 = _power(c1, recipe) if filled > 1 else 0.0
                s2 = _power(c2, recipe) if filled > 2 else 0.0
                _add_four(work, _power(c0, recipe), s1, s2, 0.0, chunk.second, k)
        for i in range(k):
            _merge(sums.gram[i], sums.gram_low[i], chunk.gram[i], chunk.gram_low[i])
            if paired:
                _merge(sums.second[i], sums.second_low[i], chunk.second[i], chunk.second_low[i])
        _merge(sums.moments, sums.moments_low, chunk.moments, chunk.moments_low)
        sums.counts[CHUNKS] += 1
    for n in range(xs.shape[0]):
        sums.counts[status[n]] += 1


@kernel
def _power(c: float, recipe: Recipe) -> float:
    return c * c if recipe.power == 2 else 1.0


@kernel
def _weight(z: Vector, recipe: Recipe, image: Vector, k: int) -> float:
    """1/max(‖Pz‖, floor), so that the instrument c·P·z has norm at most 1; 0 where there is nothing to see."""
    for i in range(k):
        image[i] = 0.0
    largest = 0.0
    for j in range(k):
        factor = z[j]
        for i in range(k):
            image[i] += recipe.whitener[j, i] * factor  # stored by columns: see `warm`
    for i in range(k):
        largest = max(largest, abs(image[i]))
    if largest < 1e-150:
        return 1.0 / recipe.floor if recipe.floor > 0.0 else 0.0
    square = 0.0
    for i in range(k):
        square += (image[i] / largest) ** 2  # divided first: squares of tiny numbers vanish, and c would be too large
    return 1.0 / max(largest * math.sqrt(square), recipe.floor)


@kernel
def _add_four(z: Matrix, c0: float, c1: float, c2: float, c3: float, half: Matrix, k: int) -> None:
    """half += Σ c·z·zᵀ over four rows, up to the strip of the diagonal."""
    z0, z1, z2, z3 = z[0], z[1], z[2], z[3]
    for i in range(k):
        a0, a1, a2, a3 = c0 * z0[i], c1 * z1[i], c2 * z2[i], c3 * z3[i]
        for j in range((i // STRIP + 1) * STRIP):
            half[i, j] += (a0 * z0[j] + a1 * z1[j]) + (a2 * z2[j] + a3 * z3[j])


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
    out = np.empty(k)
    for i in range(k):
        terms: list[float] = []
        for j in range(k):
            factor = float(recipe.whitener[j, i])
            terms += split_product(factor, float(sums.moments[j]))
            terms += split_product(factor, float(sums.moments_low[j]))
        out[i] = math.fsum(terms)
    return out

