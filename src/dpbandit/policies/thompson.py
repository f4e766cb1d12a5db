"""Thompson sampling: arms are scored by one draw from the posterior N(θ, α²M).

One draw serves all arms of a slate, so the arm played has the posterior's probability of being
best. The draw's randomness is its own, so it is post-processing of what was released.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpbandit.policies.policy import Matrix, MatrixPolicy, Propensities, Vector, View

# Draws × arms held at a time: 8 MB in each of a few arrays.
CHUNK = 1 << 20


class Thompson(MatrixPolicy):
    """x·(θ + α·L·z) with LLᵀ = M, L lower triangular, and one normal z for the whole slate."""

    name = "thompson"
    in_core = True
    description = "x·(θ + α·L·z), LLᵀ = M, z normal"

    def scores(self, view: View, contexts: Matrix, alpha: float, key: int, decision: int) -> Vector:
        from dpbandit.reference.random import (
            OWN_LOTS,
            normals,
        )  # a ranker loads nothing else that learns

        z = normals(key, decision | OWN_LOTS, len(view.theta))
        drawn: Vector = contexts @ (view.theta + alpha * (view.lower @ z))
        return drawn

    def propensities(
        self,
        view: View,
        contexts: Matrix,
        alpha: float,
        *,
        draws: int,
        seed: int | None,
        name: str,
    ) -> Propensities:
        return chances(view, alpha, contexts, draws=draws, seed=seed)


def chances(
    view: View, alpha: float, contexts: Matrix, *, draws: int, seed: int | None
) -> Propensities:
    """How likely each row scores highest under θ' ~ N(θ, α²M). Equal rows share evenly.

    One or two different rows: exactly. More: θ' = θ + L(z + s·u) with a random direction u, z
    orthogonal to it and s normal. Given z and u the scores are straight lines in s, so each row is
    highest on one interval, whose normal probability is known. Their mean over draws of (z, u) is
    unbiased, with less variance than counting winners (Rao and Blackwell).

    >>> view = View(np.array([1.0, 0.0]), 2.0 * np.eye(2))
    >>> far = chances(view, 0.5, np.eye(2), draws=1, seed=0)
    >>> far.probabilities.round(4).tolist(), far.standard_errors.tolist()
    ([0.8413, 0.1587], [0.0, 0.0])
    """
    from scipy.special import ndtr

    rows, where, counts = np.unique(contexts, axis=0, return_inverse=True, return_counts=True)
    where, share = where.ravel(), 1.0 / counts
    if len(rows) == 1:
        found, errors = np.ones(1), np.zeros(1)
    elif len(rows) == 2:
        apart = rows[0] - rows[1]
        spread = alpha * float(np.sqrt(max(apart @ view.matrix @ apart, 0.0)))
        lead = float(apart @ view.theta)
        first = float(ndtr(lead / spread)) if spread > 0 else 0.5 + 0.5 * np.sign(lead)
        found, errors = np.array([first, 1.0 - first]), np.zeros(2)
    else:
        rng = np.random.default_rng(seed)
        loadings = rows @ (alpha * view.half)
        if len(rows) < len(view.theta):  # few scores need few normals
            loadings = np.asarray(np.linalg.qr(loadings.T, mode="r")).T
        found, errors = _by_lines(rows @ view.theta, loadings, draws, rng)
    return Propensities((found * share)[where], (errors * share)[where])


def _by_lines(
    means: Vector, loadings: Matrix, draws: int, rng: np.random.Generator
) -> tuple[Vector, Vector]:
    from scipy.special import ndtr

    k, d = loadings.shape
    total, squares = np.zeros(k), np.zeros(k)
    step = max(1, CHUNK // k)
    for start in range(0, draws, step):
        count = min(step, draws - start)
        u = rng.normal(size=(count, d))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        z = rng.normal(size=(count, d))
        z -= (z * u).sum(axis=1, keepdims=True) * u
        arms, low, high = _highest(means + z @ loadings.T, u @ loadings.T)
        chance = np.maximum(ndtr(high) - ndtr(low), 0.0)
        total += np.bincount(arms, chance, k)
        squares += np.bincount(arms, chance**2, k)
    found = total / draws
    variance = np.maximum(squares / draws - found**2, 0.0) * draws / max(draws - 1, 1)
    errors = np.sqrt(variance / draws) if draws > 1 else np.full(k, np.nan)
    return found, errors


def _highest(heights: Matrix, slopes: Matrix) -> tuple[NDArray[np.intp], Vector, Vector]:
    """Of the lines `heights + s·slopes` in each row: those that are highest somewhere, and from
    where to where. Of equal lines it is the last.

    By rising slope each new line takes over from those below it (the convex hull trick), in all
    rows at once: comparing every line with every other takes a minute for a thousand arms.
    """
    count, k = heights.shape
    every = np.arange(count)
    order = np.argsort(heights, axis=1, kind="stable")
    order = np.take_along_axis(
        order, np.argsort(np.take_along_axis(slopes, order, 1), axis=1, kind="stable"), 1
    )
    heights = np.take_along_axis(heights, order, 1)
    slopes = np.take_along_axis(slopes, order, 1)
    kept = np.zeros((count, k), dtype=np.intp)  # a stack for each row, and where each line begins
    begins = np.full((count, k + 1), np.inf)
    depth = np.zeros(count, dtype=np.intp)
    for line in range(k):
        begin = np.full(count, -np.inf)
        some = every[depth > 0]
        while len(some):
            at = depth[some] - 1
            top = kept[some, at]
            gain = slopes[some, line] - slopes[some, top]
            behind = heights[some, top] - heights[some, line]
            with np.errstate(divide="ignore", invalid="ignore"):
                crossing = np.where(gain > 0, behind / gain, -np.inf)
            over = crossing > begins[some, at]  # the line on top stays, up to here
            begin[some[over]] = crossing[over]
            some = some[~over]
            begins[some, depth[some]] = np.inf
            depth[some] -= 1
            some = some[depth[some] > 0]
        kept[every, depth], begins[every, depth] = line, begin
        depth += 1
    begins[every, depth] = np.inf
    row, at = np.nonzero(np.arange(k) < depth[:, None])
    return order[row, kept[row, at]], begins[row, at], begins[row, at + 1]
