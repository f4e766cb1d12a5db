"""Private LinUCB (Neel & Roth 2018): tree noise on b = Σ x·r, with the sensitivity it needs.

Also its twin at the calibration of the paper that started this project, which halves the
sensitivity, measures it in the wrong norm and counts one level too few.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpbandit.algorithms import bonus, presets
from dpbandit.algorithms.moments import on_moments
from dpbandit.algorithms.shapes import ROUND
from dpbandit.design import Design
from dpbandit.options import Options
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.noise import find_noise
from dpbandit.release import MAX_LEVELS, Tree
from dpbandit.types import Vector

DESCRIPTION = "Laplace tree on moments, with the correct L1 sensitivity"
REFERENCE = "Neel & Roth 2018"
CLAIM = "pure ε (GDP with noise='gaussian'), proven"
OPTIONS: tuple[str, ...] = ()

PUBLISHED_DESCRIPTION = (
    "Laplace tree on moments at the paper's calibration: sensitivity L, ε/log₂T per node"
)
PUBLISHED_REFERENCE = "the baseline of Wang, Zhao & Wang 2022"
PUBLISHED_CLAIM = "pure ε as published; not proven"
NOT_PROVEN = (
    "NOT PROVEN: a reward can move by the whole width of its range, not by half of it (sensitivity "
    "2L, not L)",
    "NOT PROVEN: Laplace noise per coordinate needs the L1 sensitivity, up to √d times the L2 norm "
    "used here",
    "NOT PROVEN: a reward is in up to ⌊log₂T⌋ + 1 nodes, not log₂T",
)


def design(name: str, options: Options) -> Design:
    return on_moments(name, options, options.noise or "laplace")


def published_design(name: str, options: Options) -> Design:
    """Laplace noise of scale L·log₂T/ε per node, as in the paper's experiments."""
    noise = find_noise(options.noise or "laplace", ("laplace",))
    presets.refuse_pan_private(options, name, "it is kept as published")
    presets.check_range(options)
    epsilon = options.need_epsilon() / options.moves_per_unit
    # An item is x·r over L and the width, so L is 1/width.
    multipliers = published_multipliers(options, lambda levels: levels / epsilon)
    release = Tree(noise, options.horizon, 1 / options.width, epsilon, multipliers)
    return presets.ridge(
        options,
        "moments",
        release,
        promise=presets.claim(options, noise, epsilon, "as-published", NOT_PROVEN),
        ledger=Ledger(limit=math.inf, currency="epsilon"),
        theory=bonus.on_moments(options, release, ROUND, options.ridge),
    )


def published_multipliers(options: Options, scale: Callable[[float], float]) -> Vector:
    """The scale for log₂T levels; where the horizon is unknown, for those of a block."""
    if options.horizon is not None:
        return np.full(MAX_LEVELS + 1, scale(max(math.log2(options.horizon), 1.0)))
    return np.array([0.0, *(scale(levels) for levels in range(1, MAX_LEVELS + 1))])
