"""Private LinUCB (Neel & Roth 2018): tree noise on the moments b = Σ x r, with the sensitivity this noise needs.

Also its twin at the calibration of the paper that started this project, which halves the sensitivity, measures it in
the wrong norm and counts one level too few.
"""

from __future__ import annotations

import math

import numpy as np

from dpbandit import sensitivity
from dpbandit.bandits import presets, rounds
from dpbandit.bandits.linear import LinearBandit
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


def on_moments(name: str, options: Options, noise: str) -> LinearBandit:
    """A tree on moments with any of the noises: also what `tree-gauss` is."""
    check_noise(noise, ("gaussian", "laplace", "laplace-l2"))
    norm = presets.norm_of(noise)
    # In L1 known contexts are worth knowing; perturbed contexts are not the known ones.
    public = options.public_contexts if norm == 1 and options.context_noise == 0 else None
    width_times_norm = sensitivity.constant(
        reward_width=options.width, max_norm=options.max_norm, dim=options.dim, norm=norm, public_contexts=public
    )
    l1_limit = None if public is None else width_times_norm / options.width
    budget = presets.budget_per_reward(options, noise)
    multipliers = presets.shared_by_levels(budget, noise)
    plan = presets.plan(
        options,
        rounds.MOMENTS,
        noise=CODES[noise],
        pan_private=options.pan_private,
        sensitivity=width_times_norm * (1 + presets.rounding(options)),
        multipliers=presets.on_grid(multipliers, options.dim) if options.pan_private else multipliers,
    )
    covers = (
        () if l1_limit is None else (f"contexts have L1 norm at most {l1_limit:.6g}, as the public contexts (checked)",)
    )
    claim = presets.claim(options, noise, budget, "proven", covers)
    return LinearBandit(name, options, plan, claim, presets.ledger(noise, budget), l1_limit=l1_limit)


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
