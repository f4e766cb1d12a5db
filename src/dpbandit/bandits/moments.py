"""Bandits with noise on the moments Σ x·r: what they share, whichever way the sums are published and arms are picked."""

from __future__ import annotations

import math
from typing import Any

from dpbandit import sensitivity
from dpbandit.bandits import presets, rounds, steps
from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.options import Options
from dpbandit.bandits.shapes import shape_of
from dpbandit.errors import OptionError
from dpbandit.noise import CODES, GRID_BITS, check_noise
from dpbandit.release import levels_for, toeplitz

NOISES = ("gaussian", "laplace", "laplace-l2")


def on_moments(
    name: str,
    options: Options,
    noise: str,
    *,
    release: int = steps.TREE,
    rule: int = steps.UCB,
    growth: float = math.inf,
) -> LinearBandit:
    """A bandit that publishes noisy sums of moments."""
    check_noise(noise, NOISES)
    wanted = options.take("shape", "round")
    if wanted != "round" and noise != "gaussian":
        raise OptionError(f"shape={wanted!r} is measured in L2: use noise='gaussian'")
    shape = shape_of(options, wanted)
    if release != steps.TREE:
        presets.refuse_pan_private(options, name, "only the plain tree keeps noise in every sum from the start")
    if release == steps.HONAKER and options.horizon is None:
        raise OptionError("honaker=True needs a horizon: every level of the tree is released in every round")
    norm = presets.norm_of(noise)
    # In L1 known contexts are worth knowing; perturbed contexts are not the known ones.
    public = options.public_contexts if norm == 1 and options.context_noise == 0 else None
    one = options.width  # how far one reward moves a sum; a shaped sum has terms of norm at most 1
    if wanted == "round":
        one = sensitivity.constant(
            reward_width=options.width, max_norm=options.max_norm, dim=options.dim, norm=norm, public_contexts=public
        )
    l1_limit = None if public is None else one / options.width
    drawn = options.dim * (levels_for(options.horizon) if release == steps.HONAKER else 1)
    budget = presets.budget_per_reward(options, noise, coordinates=drawn)
    multipliers = presets.shared_by_levels(budget, noise)
    more: dict[str, Any] = {}
    if release == steps.TOEPLITZ:
        one *= _column(options, one, budget)
    plan = presets.plan(
        options,
        rounds.MOMENTS,
        noise=CODES[noise],
        pan_private=options.pan_private,
        sensitivity=one * (1 + presets.rounding(options)),
        multipliers=presets.on_grid(multipliers, options.dim) if options.pan_private else multipliers,
        release=release,
        rule=rule,
        growth=growth,
        shape=shape.whitener,
        unshape=shape.inverse,
        floor=shape.floor,
        **more,
    )
    covers = (
        () if l1_limit is None else (f"contexts have L1 norm at most {l1_limit:.6g}, as the public contexts (checked)",)
    )
    claim = presets.claim(options, noise, budget, "proven", covers)
    return LinearBandit(name, options, plan, claim, presets.ledger(noise, budget), l1_limit=l1_limit)


def _column(options: Options, one: float, budget: float) -> float:
    """How much longer a reward's shift is over all Toeplitz releases than in one, with what rounding and the grid add."""
    rounds_ahead = options.horizon or 2**30
    size = max(abs(end) for end in options.reward_range) * max(options.max_norm, 1.0) / one
    norm = toeplitz.column_norm(options.horizon) + toeplitz.encoding_slack(
        rounds_ahead, horizon=options.horizon, size=size
    )
    if options.seed is None and math.isfinite(budget):
        # Every later release is rounded to the grid, and a neighbour may fall to the other side of a step in each.
        draws = options.dim * options.horizon if options.horizon else presets.UNKNOWN_COORDINATES
        norm *= 1 + math.sqrt(draws) * 2.0**-GRID_BITS / budget
    return norm
