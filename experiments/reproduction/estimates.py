"""Estimates and tests that the verdicts rest on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, stats

PRECISE = 0.15  # an exponent with a larger standard error decides nothing


def last(frame: pd.DataFrame, name: str, column: str) -> Any:
    part = frame[(frame["algorithm"] == name) & (frame["round"] == frame["round"].max())]
    return part.sort_values("seed")[column].to_numpy()


def less(a: Any, b: Any) -> float:
    """p-value of 'a is smaller than b', paired; 1 where it is not even so on average. Few pairs:
    exact signs.
    """
    if np.mean(a) >= np.mean(b):
        return 1.0
    return float(stats.ttest_rel(a, b, alternative="less").pvalue) if len(a) > 1 else 0.5


def mean(values: Any) -> str:
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    digits = 0 if abs(np.mean(values)) >= 100 else 2 if abs(np.mean(values)) >= 1 else 3
    return f"{np.mean(values):,.{digits}f} ± {error:,.{digits}f}"


def supports(estimate: float, error: float, low: float, high: float) -> bool:
    """An exponent supports a claim if it lies in the range claimed and is known well enough to say
    so.

    A wide error is no support: it would let an experiment that saw nothing confirm anything.
    """
    return math.isfinite(error) and error <= PRECISE and low <= estimate <= high


def power(x: Any, y: Any, errors: Any, start: float) -> tuple[float, float]:
    """The exponent of y = c·x^p and its standard error, weighted by the errors of y. All points
    count, also those where noise made an added regret negative: leaving them out would be choosing
    data by their outcome.
    """
    try:
        found, covariance = optimize.curve_fit(
            lambda x, c, p: c * x**p,
            x,
            y,
            p0=(max(float(np.mean(y)), 1.0), start),
            sigma=np.maximum(errors, 1e-9),
            absolute_sigma=True,
            maxfev=20_000,
        )
    except RuntimeError:
        return math.nan, math.inf
    return float(found[1]), float(math.sqrt(covariance[1, 1]))


def added(frame: pd.DataFrame, name: str, base: pd.Series, by: str) -> pd.DataFrame:
    """Mean and standard error of regret over LinUCB's on the same seed."""
    part = frame[frame["algorithm"] == name].copy()
    keys = (
        part["seed"]
        if base.index.nlevels == 1
        else pd.MultiIndex.from_frame(part[[*base.index.names]])
    )
    part["added"] = part["regret"].to_numpy() - base.loc[keys].to_numpy()
    return part.groupby(by)["added"].agg(["mean", "sem"])
