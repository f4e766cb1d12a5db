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
# Rows that are whitened side by side.
LANES = 64

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


class Desk(NamedTuple):
    """Scratch of one pass. It holds rewards: it must not outlive it."""

    z: Matrix  # some rows' z
    lanes: Matrix  # the same, rows side by side
    values: Vector  # their v
    weights: Vector  # their c
    image: Vector
    squares: Vector
    sizes: Vector
    gram: Matrix  # the chunk's sums
    second: Matrix
    moments: Vector
    nothing: Vector


def new_desk(recipe: Recipe) -> Desk:
    """A desk with nothing on it."""
    k = recipe.length
    padded = k + -k % STRIP
    return Desk(
        z=np.zeros((LANES, padded)),
        lanes=np.zeros((k, LANES)),
        values=np.zeros(LANES),
        weights=np.zeros(LANES),
        image=np.zeros(LANES),
        squares=np.zeros(LANES),
        sizes=np.zeros(LANES),
        gram=np.zeros((k, padded)),
        second=np.zeros((k if recipe.power >= 0 else 0, padded)),
        moments=np.zeros(padded),
        nothing=np.zeros(padded),
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
def absorb(xs: Matrix, rs: Vector, status: Status, recipe: Recipe, sums: Sums, desk: Desk) -> None:
    """Add all rows with status 0."""
    d, k = recipe.dim, recipe.dim + (1 if recipe.constant else 0)
    shaped, paired = recipe.whitener.shape[0] > 0, sums.second.shape[0] > 0
    rows, n = xs.shape[0], 0
    while n < rows:
        desk.gram[:] = 0.0
        desk.second[:] = 0.0
        desk.moments[:] = 0.0
        end = min(n + CHUNK, rows)
        while n < end:
            filled = 0
            while n < end and filled < LANES:
                if status[n] == GOOD:
                    _take(xs[n], rs[n], recipe, sums, desk.z[filled], desk.values, filled, d)
                    filled += 1
                n += 1
            for r in range(LANES):
                desk.weights[r] = 1.0 if r < filled else 0.0
            if shaped:
                _weigh(desk, recipe, filled, k)
            for r in range(filled):
                value = desk.weights[r] * desk.values[r]
                for i in range(k):
                    desk.moments[i] += value * desk.z[r, i]
            _add_rows(desk.z, desk.weights, filled, desk.gram, k)
            if paired:
                for r in range(filled):
                    desk.weights[r] = desk.weights[r] ** 2 if recipe.power == 2 else 1.0
                _add_rows(desk.z, desk.weights, filled, desk.second, k)
        for i in range(k):
            _merge(sums.gram[i], sums.gram_low[i], desk.gram[i], desk.nothing)
            if paired:
                _merge(sums.second[i], sums.second_low[i], desk.second[i], desk.nothing)
        _merge(sums.moments, sums.moments_low, desk.moments, desk.nothing)
        sums.counts[CHUNKS] += 1
    for n in range(rows):
        sums.counts[status[n]] += 1


@kernel
def _take(x: Vector, given: float, recipe: Recipe, sums: Sums, z: Vector, values: Vector, place: int, d: int) -> None:
    """One row's z and v, and what is to be known about it."""
    square, total = 0.0, 0.0
    for i in range(d):
        z[i] = x[i] / recipe.size
        square += x[i] * x[i]
        total += abs(x[i])
    if recipe.constant:
        z[d] = 1.0 if total > 0.0 else 0.0  # a context of zeros says nothing about θ
    # Squares of tiny numbers vanish; the L1 norm is no shorter.
    sums.longest[0] = max(sums.longest[0], math.sqrt(square) if square > 1e-280 else total)
    sums.longest[1] = max(sums.longest[1], total)
    reward = given
    if recipe.clips:
        reward = min(max(given, recipe.low), recipe.high)
        if reward != given:
            sums.counts[CLIPPED] += 1
    values[place] = (reward - recipe.middle) / recipe.width


@kernel
def _weigh(desk: Desk, recipe: Recipe, filled: int, k: int) -> None:
    """c = 1/max(‖Pz‖, floor) for each row, so that the instrument c·P·z has norm at most 1; 0 where there is nothing to see.

    Rows lie side by side, so that the innermost loops run over rows, where nothing depends on the order of additions.
    """
    matrix, lanes, image, squares, sizes = recipe.whitener, desk.lanes, desk.image, desk.squares, desk.sizes
    for i in range(k):
        for r in range(LANES):
            lanes[i, r] = desk.z[r, i]
    for r in range(LANES):
        squares[r] = 0.0
        sizes[r] = 0.0
    for i in range(k):
        for r in range(LANES):
            image[r] = 0.0
        for j in range(i + 1 if recipe.triangular else k):
            entry, lane = matrix[i, j], lanes[j]
            for r in range(LANES):
                image[r] += entry * lane[r]
        for r in range(LANES):
            squares[r] += image[r] * image[r]
            sizes[r] += abs(image[r])
    for r in range(filled):
        # Squares of tiny numbers vanish, and c would be too large; the sum of sizes is no shorter than the norm.
        size = max(math.sqrt(squares[r]) if squares[r] > 1e-280 else sizes[r], recipe.floor)
        desk.weights[r] = 1.0 / size if size >= 1e-150 else 0.0


@kernel
def _add_rows(z: Matrix, weights: Vector, filled: int, half: Matrix, k: int) -> None:
    """half += Σ c·z·zᵀ, four rows at a time, up to the strip of the diagonal. Weights beyond `filled` are 0."""
    for r in range(0, filled, 4):
        z0, z1, z2, z3 = z[r], z[r + 1], z[r + 2], z[r + 3]
        for i in range(k):
            a0, a1 = weights[r] * z0[i], weights[r + 1] * z1[i]
            a2, a3 = weights[r + 2] * z2[i], weights[r + 3] * z3[i]
            row = half[i]
            for j in range((i // STRIP + 1) * STRIP):
                row[j] += (a0 * z0[j] + a1 * z1[j]) + (a2 * z2[j] + a3 * z3[j])


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
