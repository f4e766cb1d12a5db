"""The rows of a log, compiled: `inspect` finds those that cannot be learned from, `absorb` adds the others to `Sums`.

A few hundred numbers a row go into matrices that stay in the cache; nothing is allocated, and no lock is held.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandits.log_sums import (
    CHUNK,
    CHUNKS,
    CLIPPED,
    GOOD,
    LONG,
    LONG_L1,
    NOT_FINITE,
    REWARD_NOT_FINITE,
    STRIP,
    Recipe,
    Status,
    Sums,
    add,
)
from dpbandit.compiled import kernel

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Rows that are whitened side by side.
LANES = 64


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
            add(sums.gram[i], sums.gram_low[i], desk.gram[i], desk.nothing)
            if paired:
                add(sums.second[i], sums.second_low[i], desk.second[i], desk.nothing)
        add(sums.moments, sums.moments_low, desk.moments, desk.nothing)
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
