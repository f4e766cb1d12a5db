"""The anytime bandit's instruments and prior for contexts that are all public: `learners.prior` for
many pools, in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# As in learners.prior; a test compares what both make.
FAINTEST = 1e-4
DIFFERENCES = 1.0 / 256.0
INTERCEPT = 0.01


def instruments_and_prior(pools: Array, low: float, high: float) -> tuple[Array, Array]:
    """Unit instruments (pool, arm, d + 1), and precision (packed lower triangle) with pull (pool,
    …) of the prior."""
    count, arms, d = pools.shape
    second, first = np.einsum("gai,gak->gik", pools, pools) / arms, pools.mean(axis=1)
    size = np.trace(second, axis1=1, axis2=2)
    root = np.sqrt(size)
    length = (first**2).sum(axis=1)
    direction = first / root[:, None]
    moments = np.ones((count, d + 1, d + 1))
    moments[:, :d, :d] = second / size[:, None, None]
    moments[:, :d, d] = moments[:, d, :d] = direction
    faint = FAINTEST * np.abs(moments).sum(axis=2).max(axis=1)
    moments += faint[:, None, None] * np.eye(d + 1)
    factor = np.linalg.cholesky(moments)
    whitener = np.linalg.inv(factor)
    x = np.concatenate([pools / root[:, None, None], np.ones((count, arms, 1))], axis=2)
    raised = x @ whitener.transpose(0, 2, 1)
    raised /= np.linalg.norm(raised, axis=2, keepdims=True)
    # R² of a constant on the contexts, with the usual correction for fitting d numbers.
    square = ((whitener[:, :d, :d] @ direction[:, :, None])[:, :, 0] ** 2).sum(axis=1)
    explained = (
        1 - (1 - np.minimum(square, 1)) * (arms - 1) / (arms - d - 1)
        if arms > d + 1
        else np.zeros(count)
    )
    along = explained > 0.5
    width, middle = high - low, 0.5 * (low + high)
    variance = DIFFERENCES * width**2 / np.maximum(np.maximum(size - length, 0), 1e-9 * size)
    intercept = INTERCEPT * width**2 + np.where(along, 0.0, 0.25 * width**2)
    kappa = np.where(along, 0.25 * width**2 / size, 0.0)
    stiffness = variance + kappa * length / size
    precision = np.zeros((count, d + 1, d + 1))
    outer = direction[:, :, None] * direction[:, None, :]
    precision[:, :d, :d] = (np.eye(d) - (kappa / stiffness)[:, None, None] * outer) / variance[
        :, None, None
    ]
    precision[:, d, d] = 1 / intercept
    pull = np.zeros((count, d + 1))
    pull[:, :d] = np.where(
        along[:, None], middle * direction / root[:, None] / stiffness[:, None], 0.0
    )
    pull[:, d] = np.where(along, 0.0, middle / intercept)
    rows, columns = np.tril_indices(d + 1)
    return raised, np.concatenate([precision[:, rows, columns], pull], axis=1)
