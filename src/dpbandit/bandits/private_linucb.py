"""Private LinUCB (Neel & Roth 2018): tree noise on the moments b = Σ x r, with the sensitivity this noise needs.

Also its twin at the calibration of the paper that started this project, which halves the sensitivity, measures it in
the wrong norm and counts one level too few.
"""

from __future__ import annotations

import math

import numpy as np

from dpbandit.bandits import presets, rounds
from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.moments import on_moments
from dpbandit.bandits.options import Options
from dpbandit.budget import Ledger
from dpbandit.noise import CODES, check_noise

DESCRIPTION = "Laplace tree on moments, with the correct L1 sensitivity"
REFERENCE = "Neel & Roth 2018"
CLAIM = "pure ε (GDP with noise='gaussian'), proven"
OWN: tuple[str, ...] = ()

PUBLISHED_DESCRIPTION = "the same at the paper's calibration: sensitivity L, ε/log₂T per node"
PUBLISHED_REFERENCE = "the baseline of Wang, Zhao & Wang 2022"
PUBLISHED_CLAIM = "pure ε as published; not proven"
NOT_PROVEN = (
    "NOT PROVEN: a reward can move by the whole width of its range, not by half of it (sensitivity 2L, not L)",
    "NOT PROVEN: Laplace noise per coordinate needs the L1 sensitivity, up to √d times the L2 norm used here",
    "NOT PROVEN: a reward is in up to ⌊log₂T⌋ + 1 nodes, not log₂T",
)


def make(name: str, options: Options) -> LinearBandit:
    return on_moments(name, options, options.noise or "laplace")


def make_published(name: str, options: Options) -> LinearBandit:
    """Laplace noise of scale L·log₂T/ε per node, as in the paper's experiments."""
    noise = check_noise(options.noise or "laplace", ("laplace",))
    presets.refuse_pan_private(options, name, "it is kept as published")
    epsilon = options.need_epsilon() / options.rewards_per_unit
    plan = presets.plan(
        options,
        rounds.MOMENTS,
        noise=CODES[noise],
        sensitivity=options.max_norm,
        multipliers=published_multipliers(options, epsilon),
    )
    claim = presets.claim(options, noise, epsilon, "as-published", NOT_PROVEN)
    return LinearBandit(name, options, plan, claim, Ledger(limit=math.inf, currency="epsilon"))


def published_multipliers(options: Options, epsilon: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """log₂T/ε for a known horizon; for an unknown one, the levels of the block instead of log₂T."""
    multipliers = presets.shared_by_levels(epsilon, "laplace")
    if options.horizon is not None and math.isfinite(epsilon):
        multipliers[:] = max(math.log2(options.horizon), 1.0) / epsilon
    return multipliers
