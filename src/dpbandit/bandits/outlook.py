"""What contexts alone say before any reward: how they are spread, and what a sensible prior on θ is.

Everything here is public. Statistics come from the public contexts, or grow from the contexts offered so far.
The prior says that rewards lie around the middle of their range. Where contexts can express a constant (a linear function of
x comes close to 1: R² = mᵀC⁻¹m above ½), that is said along the contexts' mean m; where they cannot, by an intercept.
Differences between arms are given a variance that is small against the range: an arm is rarely better than its neighbour by
more than a fraction of W.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit import factors
from dpbandit.compiled import kernel
from dpbandit.lanes import WIDTH, fma, load, over, plus, splat, store

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Directions that contexts hardly take would otherwise get instruments of their own.
FAINTEST = 1e-4
# The prior variance of differences between the arms of one slate, and of the intercept beside a mean direction, in W².
DIFFERENCES = 1.0 / 256.0
INTERCEPT = 0.01
# All arms of this many decisions are looked at, then those of every eighth.
LOOKED_AT = 64
# Different contexts are told apart by the cell of this many that they fall into: exact for few, which is when it matters.
CELLS = 4096


class Outlook(NamedTuple):
    """Statistics of contexts, and what follows from them."""

    second: Matrix  # Σ xxᵀ, each slate weighing 1
    first: Vector  # Σ x
    counts: Vector  # slates; different contexts; slates of at least two arms; their scatter; 1 if all of it is fixed; √E‖x‖²
    factor: Matrix  # L with LLᵀ the second moments of (x/√E‖x‖², 1): the whitener is L⁻¹
    precision: Matrix  # of the prior on (θ, intercept)
    pull: Vector  # precision · prior mean
    work: Matrix
    solved: Vector
    whitener: Matrix  # L⁻ᵀ
    cells: Vector  # 1 where a context has been seen


def new_outlook(dim: int, public: Matrix | None) -> Outlook:
    """What is known of the contexts before the first round.

    >>> new_outlook(2, None).counts.tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    """
    outlook = Outlook(
        np.zeros((dim, dim)),
        np.zeros(dim),
        np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]),
        np.eye(dim + 1),
        np.eye(dim + 1),
        np.zeros(dim + 1),
        np.zeros((dim + 1, dim + 1)),
        np.zeros(dim),
        np.eye(dim + 1),
        np.zeros(CELLS if public is None else 0),
    )
    if public is not None:
        outlook.second[:] = public.T @ public / len(public)
        outlook.first[:] = public.mean(axis=0)
        scatter = max(float(np.trace(outlook.second)) - float(outlook.first @ outlook.first), 0.0)
        outlook.counts[:] = (1.0, len(public), 1.0, scatter, 1.0, 1.0)
    return outlook


@kernel
def forget(outlook: Outlook) -> None:
    """Forget the contexts offered; public contexts stay."""
    if outlook.counts[4] == 0.0:
        outlook.second[:] = 0.0
        outlook.first[:] = 0.0
        outlook.counts[:5] = 0.0
        outlook.cells[:] = 0.0


@kernel
def _note(outlook: Outlook, contexts: Matrix, row: int) -> None:
    """Count a context that has not been seen before: a catalogue of four articles, offered a thousand times, says no more about
    contexts than four of them."""
    total, length = 0.0, 0.0
    for i in range(contexts.shape[1]):
        share = (i + 1) * 0.6180339887498949
        total += contexts[row, i] * (share - math.floor(share))
        length += abs(contexts[row, i])
    cell = 0
    if length > 0.0:  # by direction and size, so that it does not matter in which unit contexts are measured
        place = (total / length + math.log(length)) * 3141592.653589793
        cell = int((place - math.floor(place)) * CELLS)
    outlook.counts[1] += 1.0 - outlook.cells[cell]
    outlook.cells[cell] = 1.0


@kernel
def look(outlook: Outlook, contexts: Matrix, shown: NDArray[np.int64]) -> None:
    """A slate of contexts, those in rows `shown`, has been offered."""
    arms, d = shown.shape[0], contexts.shape[1]
    total = 0.0
    length = 0.0
    whole = d - d % WIDTH
    for i in range(d):
        mean = 0.0
        for j in range(arms):
            x = contexts[shown[j], i]
            mean += x
            total += x * x
        mean /= arms
        length += mean * mean
        outlook.first[i] += mean
        # All of a row, although half would do: both halves come out the same, term by term.
        for k in range(0, whole, WIDTH):
            products = splat(0.0)
            for j in range(arms):
                products = fma(splat(contexts[shown[j], i]), load(contexts, shown[j] * d + k), products)
            store(outlook.second, i * d + k, plus(load(outlook.second, i * d + k), over(products, splat(float(arms)))))
        for k in range(whole, d):
            inner = 0.0
            for j in range(arms):
                inner = fma(contexts[shown[j], i], contexts[shown[j], k], inner)
            outlook.second[i, k] += inner / arms
    outlook.counts[0] += 1.0
    for j in range(arms):
        _note(outlook, contexts, shown[j])
    if arms > 1:
        outlook.counts[2] += 1.0
        outlook.counts[3] += max(total - arms * length, 0.0) / (arms - 1)


@kernel
def look_at_one(outlook: Outlook, x: Vector) -> None:
    """A context was played of which no slate is known."""
    for i in range(x.shape[0]):
        outlook.first[i] += x[i]
        for k in range(x.shape[0]):
            outlook.second[i, k] += x[i] * x[k]
    outlook.counts[0] += 1.0
    _note(outlook, x.reshape(1, x.shape[0]), 0)


@kernel
def refresh(outlook: Outlook, low: float, high: float, variance_factor: float) -> None:
    """Bring the whitener and the prior up to date. `variance_factor` multiplies the variance of differences."""
    d = outlook.first.shape[0]
    counts, factor, work, solved = outlook.counts, outlook.factor, outlook.work, outlook.solved
    slates = max(counts[0], 1.0)
    own = 0.0 if counts[4] > 0.0 else 1.0  # what was not seen yet is taken to be round, with the weight of one slate
    size = 0.0
    for i in range(d):
        size += outlook.second[i, i] / slates
    if size < 1e-200:  # nothing seen yet, or nothing to see
        size = 1.0
    scale = slates / (slates + own)
    length = 0.0
    for i in range(d):
        length += (outlook.first[i] / slates) ** 2
    counts[5] = math.sqrt(size)
    largest = 0.0
    for i in range(d + 1):
        total = 0.0
        for k in range(d + 1):
            if i < d and k < d:
                entry = outlook.second[i, k] / slates / size * scale
                if i == k:
                    entry += (1.0 - scale) / d
            elif i == d and k == d:
                entry = 1.0
            else:
                entry = outlook.first[min(i, k)] / slates / counts[5] * scale
            work[i, k] = entry
            total += abs(entry)
        largest = max(largest, total)
    for i in range(d + 1):
        work[i, i] += FAINTEST * largest
    factors.cholesky(work, factor)
    factors.invert_lower(factor, outlook.whitener)
    # R² of a constant on the contexts, with the usual correction for fitting d numbers.
    square = 0.0
    for i in range(d):
        total = outlook.first[i] / slates / counts[5]
        for k in range(i):
            total -= factor[i, k] * solved[k]
        solved[i] = total / factor[i, i]
        square += solved[i] * solved[i]
    seen = counts[1]
    explained = 1.0 - (1.0 - min(square, 1.0)) * (seen - 1.0) / (seen - d - 1.0) if seen > d + 1.0 else 0.0
    along_mean = explained > 0.5
    width, middle = high - low, 0.5 * (low + high)
    scatter = counts[3] / counts[2] if counts[2] > 0.0 else size - length
    variance = variance_factor * DIFFERENCES * width * width / max(scatter, 1e-9 * size)
    intercept = INTERCEPT * width * width
    if not along_mean:
        intercept += 0.25 * width * width
    # V = v + κ·mmᵀ/E‖x‖² on θ, so V⁻¹ = (1 − mmᵀ·shrink/E‖x‖²)/v; the prior mean of θ is middle·m/E‖x‖².
    kappa = 0.25 * width * width / size if along_mean else 0.0
    stiffness = variance + kappa * (length / size)
    shrink = kappa / stiffness
    root = counts[5]
    for i in range(d):
        direction = outlook.first[i] / slates / root
        for k in range(d):
            mm = direction * (outlook.first[k] / slates / root)
            outlook.precision[i, k] = ((1.0 if i == k else 0.0) - shrink * mm) / variance
        outlook.precision[i, d] = 0.0
        outlook.precision[d, i] = 0.0
        # V⁻¹m = m/(v + κ‖m‖²/E‖x‖²)
        outlook.pull[i] = middle * direction / root / stiffness if along_mean else 0.0
    outlook.precision[d, d] = 1.0 / intercept
    outlook.pull[d] = 0.0 if along_mean else middle / intercept
