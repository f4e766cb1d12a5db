"""How far a release can move when one reward moves from one end of its range to the other.

Two answers: a constant for noise on sums; and Lemma 1 of the paper, which shrinks like 1/t and
rests on an assumption about the contexts. What the public matrix A_t itself says needs none: that
is `reference.bound`. Nothing here may look at a reward."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dpbandit.errors import OptionError, ShapeError, nearest
from dpbandit.privacy.grid import STEP

FORMS = ("figure", "simplified", "full")

# Norms of contexts are checked to 1e-9, and items are products of a few floats.
CHECKED = 2e-9


# An item's own float arithmetic errs by less than this, in steps; CHECKED covers it once.
FLOATS = 1e-3


def on_grid(one: float, *, dim: int, norm: Literal[1, 2], items: int = 1) -> float:
    """How far an item in whole numbers of STEP can move where an exact one moves by `one`.

    Both ends are rounded, each by half a step in every coordinate: √d steps in L2, d in L1. Where a
    move may be divided among so many items, each of them is rounded.

    >>> 1 < on_grid(1.0, dim=100, norm=2) < 1 + 3e-9 < on_grid(1.0, dim=4, norm=2, items=2**20)
    True
    """
    steps = 1.0 if items == 1 else items * (1 + FLOATS)
    return one * (1 + CHECKED) + steps * STEP * (dim if norm == 1 else math.sqrt(dim))


def smallest_eigenvalue_bound(
    t: float, form: str, smallest_eigenvalue: float, delta: float
) -> float:
    """λ'(t), the paper's bound on λ_min(A_t) from below; not positive where it says nothing.

    Full: λ₀t/4 − 8 log((t+3)/δ) − 2√(t log((t+3)/δ)). Simplified: λ₀t/16, t > 32 log(1/δ)/λ₀.
    """
    if form == "full":
        log = math.log((t + 3.0) / delta)
        return smallest_eigenvalue * t / 4.0 - 8.0 * log - 2.0 * math.sqrt(t * log)
    if form == "simplified":
        begins = 32.0 * math.log(1.0 / delta) / smallest_eigenvalue
        return smallest_eigenvalue * t / 16.0 if t > begins else 0.0
    raise OptionError(f"no bound on eigenvalues is called {form!r}: {nearest(form, FORMS[1:])}")


def lemma1(
    t: float,
    form: str,
    smallest_eigenvalue: float,
    delta: float,
    width_times_norm: float,
    ridge: float,
) -> float:
    """Δ_t as published: reward_width·max_norm/λ'(t), never above reward_width·max_norm/ridge, which
    always holds because λ_min(A_t) ≥ ridge. The form 'figure' is 1/t, behind the published figures.

    >>> lemma1(50.0, "figure", 1.0, 0.1, 2.0, 1.0)
    0.02
    """
    if form == "figure":
        return 1.0 / t
    eigenvalue = smallest_eigenvalue_bound(t, form, smallest_eigenvalue, delta)
    return width_times_norm / max(eigenvalue, ridge)


def estimate_bounds(contexts: ArrayLike) -> tuple[float, float]:
    """L and λ₀ from sample contexts: the longest norm, and the least eigenvalue of the mean of xxᵀ.

    Contexts are public, so this costs nothing; it is an estimate, not a bound on contexts yet to
    come.

    Parameters
    ----------
    contexts : array of shape (n, d)
        The sample.

    Returns
    -------
    (float, float)
        L and λ₀.

    Raises
    ------
    ShapeError, OptionError
        If the sample is not an array of shape (n, d) of finite numbers with n ≥ 1.

    >>> estimate_bounds([[1.0, 0.0], [0.0, 1.0]])
    (1.0, 0.5)
    """
    sample = np.asarray(contexts, dtype=np.float64)
    if sample.ndim != 2 or len(sample) == 0:
        raise ShapeError(
            f"sample contexts must be an array of shape (n, d) with n ≥ 1, not {sample.shape}"
        )
    if not np.isfinite(sample).all():
        raise OptionError("sample contexts hold NaN or infinity: give finite numbers")
    longest = float(np.linalg.norm(sample, axis=1).max())
    return longest, max(float(np.linalg.eigvalsh(sample.T @ sample / len(sample))[0]), 0.0)
