"""The grid that private numbers live on, and what it costs.

A private item is brought to whole numbers of `STEP` when it enters, sums are exact, and the noise
is drawn in whole numbers too: a neighbour's shift is then a whole number that the proof states.
Releases that are not sums (`dgs`, `toeplitz`) are floats; OpenDP brings those to a grid relative to
the noise."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dpbandit.types import Vector

GRID_BITS = 40
STEP = 2.0**-GRID_BITS
# Noise on floats lies on multiples of 2⁻⁴⁴ of its scale or finer: fine enough for 2⁴⁸ releases that
# all have one reward in them (`lattice_slack`), coarse enough that a sum 500 times the scale is
# exact.
FLOAT_GRID_BITS = 44

# What OpenDP's own rounding can add to a proven cost, and much more; noise is larger by this.
PROVEN_SLACK = 1e-9
# Real Gaussian noise lives on a grid: a claim sets aside at most this part of its δ for it.
GRID_SHARE = 0.01
# Up to here, twice the slack of a float release is still nothing.
_COARSE = 2.0**-20


def to_whole(item: Vector) -> NDArray[np.object_]:
    """The item in whole numbers of STEP, as Python's own: ties to even.

    >>> to_whole(np.array([0.5, -1.5 * STEP])).tolist()
    [549755813888, -2]
    """
    return np.array([int(number) for number in np.rint(item * 2.0**GRID_BITS)], dtype=object)


def to_floats(whole: Iterable[int]) -> Vector:
    """Whole numbers of STEP as doubles, each rounded once.

    >>> to_floats([549755813888, -2]).tolist() == [0.5, -2 * STEP]
    True
    """
    return np.array([float(number) for number in whole], dtype=np.float64) * STEP


def lattice_slack(draws: float, epsilon: float, step_in_scales: float) -> float:
    """What the grid adds to δ when discrete Gaussian noise is charged as GDP.

    A Gaussian rounded to the grid is post-processing of a Gaussian, so it is exactly GDP. OpenDP's
    discrete Gaussian differs from it by at most (h/σ)²/4 in total variation per coordinate (h the
    grid, σ the scale; docs/privacy.md).

    `draws` counts the coordinates of the releases that *one unit's rewards* are in, and no others.
    Take two neighbours, and change, in both, the noise of just those releases from discrete to
    rounded. The two changed runs are then apart by GDP alone: every other release has, given what
    was released before, the same law in both, whatever its noise. Each change moves a run by at
    most τ = draws·(h/σ)²/4 in total variation, and δ grows by τ on one side and e^ε·τ on the other.
    So a tree adds a few levels' worth, for ever, however many releases there are.

    >>> lattice_slack(62 * 10, 2.0, STEP) < 1e-20
    True
    """
    return (1 + math.exp(min(epsilon, 700.0))) * draws * 0.25 * step_in_scales**2


def grid_exponent(scale: float, bits: int = FLOAT_GRID_BITS) -> int:
    """k such that real noise on floats of this scale lies on multiples of 2^k."""
    return math.floor(math.log2(scale)) - bits


def real_scale(scale: float, *, shift: float, dim: int, bits: int = FLOAT_GRID_BITS) -> float:
    """The scale that real noise on floats needs where exact arithmetic would need `scale`.

    The clean value is rounded to the grid first, which can move neighbours apart by one step in
    every coordinate. What that takes is rounded up to a power of two, so that releases whose shifts
    differ a little share one sampler.

    >>> 1.0 < real_scale(1.0, shift=1.0, dim=10) < 1 + 1e-8
    True
    """
    slack = PROVEN_SLACK + 2 * dim * 2.0**-bits * scale / shift
    if slack < _COARSE:
        slack = 2.0 ** math.ceil(math.log2(slack))
    return scale * (1 + slack)
