"""The common part of bandits with noise on the moments Σ x·r, for any release and policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpbandit.algorithms import bonus, presets
from dpbandit.algorithms.shapes import shape_of
from dpbandit.design import Design
from dpbandit.errors import OptionError
from dpbandit.options import Options
from dpbandit.policies import UCB, Policy
from dpbandit.privacy.noise import Noise, find_noise
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.release import PanPrivate, Release, Tree

NOISES = ("gaussian", "laplace", "laplace-l2")


def on_moments(
    name: str,
    options: Options,
    noise_name: str | Noise,
    *,
    noises: tuple[str, ...] | None = None,
    release: type[Release] = Tree,
    more: Callable[[], dict[str, Any]] = dict,
    policy: Policy = UCB,
) -> Design:
    """A bandit that publishes noisy sums of moments.

    Parameters
    ----------
    name : str
        The algorithm's name, for errors.
    options : Options
        Its options.
    noise_name : str or Noise
        The noise by name, or an added noise of your own.
    noises : tuple of str, optional
        The allowed names; default: all that suit sums of vectors.
    release : type
        How the sums are released over time.
    more : callable
        Further arguments of that type, besides noise, horizon, sensitivity and budget.
    policy : Policy
        How arms are picked.
    """
    noise = find_noise(noise_name, noises or NOISES if isinstance(noise_name, str) else None)
    if noise.notion not in ("pure", "gdp"):
        raise OptionError(f"{noise.name!r} noise is not for sums of vectors")
    presets.check_range(options)
    wanted = options.own("shape", "round")
    if wanted != "round" and noise.norm != 2:
        raise OptionError(f"shape={wanted!r} is measured in L2: use noise='gaussian'")
    shape = shape_of(options, wanted)
    if options.pan_private:
        if release is not Tree:
            why = "only the plain tree keeps noise in every sum from the start"
            presets.refuse_pan_private(options, name, why)
        release = PanPrivate
    l1_limit = l1_limit_of(options) if noise.norm == 1 else None
    one = 1.0  # of an item's norm
    if noise.norm == 1:
        one = math.sqrt(options.dim) if l1_limit is None else l1_limit / options.max_norm
    budget = noise.budget(options, release.draws(options.dim, options.horizon))
    size = on_grid(one, dim=options.dim, norm=noise.norm, items=options.protects.items_per_move)
    shown = release(noise, options.horizon, size, budget, **more())
    # ‖Px‖ is about √d for a whitener P, so this is λ on the scale of shaped sums.
    weighted_ridge = options.ridge / max(math.sqrt(options.dim), shape.floor)
    covers = () if l1_limit is None else (L1_CHECKED.format(l1_limit),)
    return presets.ridge(
        options,
        "moments",
        shown,
        promise=presets.claim(options, noise, budget, assumptions=covers),
        theory=bonus.on_moments(options, shown, shape, weighted_ridge),
        policy=policy,
        l1_limit=l1_limit,
        shape=shape.whitener,
        unshape=shape.inverse,
        floor=shape.floor,
    )


L1_CHECKED = "contexts have L1 norm at most {0:.6g}, as the public contexts (checked)"


def l1_limit_of(options: Options) -> float | None:
    """The longest public context in L1, where that is less than any context of allowed norm.

    Perturbed contexts are not the public ones.
    """
    if options.public_contexts is None or options.context_noise > 0:
        return None
    longest = float(np.abs(options.public_contexts).sum(axis=1).max())
    return min(longest, math.sqrt(options.dim) * options.max_norm)
