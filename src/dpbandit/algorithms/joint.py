"""Contexts and rewards private together (Shariff & Sheffet 2018): a tree over their Gram matrix.

Everybody is protected except from themselves: the arm shown to a person may depend on that person's
own context, and on the others only through noisy sums (joint differential privacy). Only the noisy
Gram matrix and moments are published.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpbandit import theory
from dpbandit.algorithms import presets
from dpbandit.design import Design
from dpbandit.errors import OptionError
from dpbandit.options import Options, not_negative, positive
from dpbandit.policies import UCB
from dpbandit.privacy import wishart
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.grid import STEP
from dpbandit.privacy.noise import WISHART, Noise, find_noise
from dpbandit.privacy.wishart import calibrate_all
from dpbandit.release import GramTree, WishartTree, levels_for
from dpbandit.types import Vector

DESCRIPTION = (
    "Gaussian or Wishart tree on the Gram matrix of contexts and rewards: contexts are private too"
)
REFERENCE = "Shariff & Sheffet 2018"
CLAIM = "joint, as GDP ((ε, δ) with noise='wishart'), proven"
OPTIONS = ("reward_weight", "centre_rewards", "shift")
CONTEXTS_ARE_PRIVATE = True

# w, the squared size of the reward's coordinate beside the context's. Noise on Σ x·r is (1 + w)/√w,
# that on Σ xxᵀ 1 + w: at 1 the former is least, and no more than a tree on moments alone needs.
# Measured: ½ is within noise of it, ¼ is worse.
REWARD_WEIGHT = 1.0
# In units of the bound on the noise: 1 makes the Gram matrix positive definite; 2, the paper's
# choice, keeps it that far from 0 as well and has less regret (docs/privacy.md).
SHIFT = 2.0
# Tails of the noise that are bounded in every round (lowest and highest eigenvalue, moments, and for
# Wishart noise a length).
TAILS = 4.0
# Squared norms are checked to 2e-9, on either side.
CHECKED = 4e-9

OWN_ARM = (
    "joint notion: a person's own arm may depend on that person's own context and is shown to that "
    "person alone; everyone else's arms and all released numbers are covered"
)
BOUNDED = (
    "each context has norm at most {0:g} (checked); the offered arms enter through the played one "
    "alone"
)
TIMING = "the number and order of decisions and all timing are public and not protected"
OTHERS = (
    "other people's contexts and rewards do not react to the changed ones except through what was "
    "released"
)
WISHART_ASSUMES = "δ is evaluated by quadrature, with a margin for its rounding"


def design(name: str, options: Options) -> Design:
    noise = find_noise(options.noise or "gaussian", ("gaussian", "wishart"))
    presets.refuse_pan_private(options, name, "only sums of x·r have one here")
    presets.refuse_persons(options, name, presets.CONTEXTS_NOT_CAPPED)
    presets.check_range(options)
    if options.context_noise > 0:
        raise OptionError(f"{name} protects contexts itself: omit context_noise")
    low, high = options.reward_range
    centre = (low + high) / 2 if options.own_flag("centre_rewards") else 0.0
    furthest = max(abs(low - centre), abs(high - centre))
    share = positive("reward_weight", options.own("reward_weight", REWARD_WEIGHT))
    release, mu = _release(options, noise)
    # Wishart noise has no scale of its own, so there the margin is in the items.
    margin = _margin(options) + wishart.margin(options.dim + 1) if noise is WISHART else 0.0
    settings = {
        **release.core(),
        "size": options.max_norm**2 * (1 + share) * (1 + margin),
        "reward_weight": math.sqrt(share) * options.max_norm / furthest,
        "reward_centre": centre,
        "ridge": options.ridge,
        "shift": not_negative("shift", options.own("shift", SHIFT)),
        "log_rounds": math.log(TAILS * (options.horizon or 1) / options.zeta),
    }
    return Design(
        learner="joint",
        settings=settings,
        release=release,
        noise=noise,
        policy=UCB,
        claim=_claim(options, noise, mu),
        ledger=noise.ledger(release.budget),
        theory=radius(options, release, settings),
        contexts_are_private=True,
    )


def packed(dim: int) -> int:
    """How many numbers a packed matrix of (x; reward)(x; reward)ᵀ has.

    >>> packed(2)
    6
    """
    return (dim + 1) * (dim + 2) // 2


def _release(options: Options, noise: Noise) -> tuple[GramTree, float | None]:
    """The tree, and the μ of the claim."""
    numbers = packed(options.dim)
    if noise is WISHART:
        together = options.protects.cap or 1
        each = options.need_epsilon() / together
        known = levels_for(options.horizon)
        found = calibrate_all(
            epsilon=options.need_epsilon(),
            delta=options.need_delta(),
            rewards_per_unit=together,
            levels=[known] if options.horizon is not None else list(range(1, known + 1)),
            rows=options.dim + 1,
        )
        tree = WishartTree(noise, options.horizon, 1.0, each, dim=options.dim, calibrations=found)
        return tree, None
    budget = noise.budget(options, GramTree.draws(numbers, options.horizon))
    one = math.sqrt(2) * (1 + _margin(options))
    return GramTree(noise, options.horizon, one, budget), noise.mu(options, budget)


def _margin(options: Options) -> float:
    """How much the check of norms and the grid can add to a shift, relatively."""
    return CHECKED + 2 * math.sqrt(packed(options.dim)) * STEP


def radius(
    options: Options, release: GramTree, settings: dict[str, Any]
) -> Callable[[Vector], Vector]:
    """The paper's β_t for these regularisers.

    R·√(d·log(1 + tL²/ρ) + d·log(1/ζ)) + S·√ρ_max + γ, where the regulariser's eigenvalues lie in
    [ρ_min, ρ_max], the noise on the moments is at most γ·√ρ_min long, and ρ is the smallest ρ_min.
    With probability 1 − 2ζ it covers all rounds.
    """
    noise, shift, size = release.noise.matrices, settings["shift"], settings["size"]
    if noise is None:
        raise OptionError(f"noise {release.noise.name!r} is not for a Gram matrix")
    scales = release.multipliers * release.sensitivity

    def bound(kind: Callable[[float, int, float], float], t: int) -> float:
        """One of the noise's bounds on a matrix, for the sum of round t."""
        amount = math.fsum(noise.amount(float(scales[levels])) for _, levels in release.nodes(t))
        log = settings["log_rounds"]
        if release.unknown_horizon:
            log += math.log(t) + math.log(t + 1.0)
        return kind(amount, options.dim, math.sqrt(2.0 * log))

    def found(t: Vector) -> Vector:
        if shift < 1:
            raise OptionError(
                f"alpha='theory' needs shift ≥ 1, not {shift:g}: below it nothing bounds the noise"
            )
        # An arm in round t is chosen by the release of t − 1.
        seen = [max(int(v) - 1, 1) for v in t]
        low = size * np.array([bound(noise.lowest, v) for v in seen])
        high = size * np.array([bound(noise.highest, v) for v in seen])
        moments = np.array([bound(noise.moments, v) for v in seen])
        least, most = options.ridge + (shift - 1) * low, options.ridge + shift * low + high
        gamma = size * moments / settings["reward_weight"] / np.sqrt(least)
        radius = theory.confidence_radius(
            t,
            dim=options.dim,
            ridge=options.ridge + (shift - 1) * size * bound(noise.lowest, 1),
            max_norm=options.max_norm,
            theta_norm=0.0,
            zeta=options.zeta,
            reward_noise=options.reward_noise,
            noise=options.theta_norm * np.sqrt(most) + gamma,
        )
        return np.asarray(radius, dtype=np.float64)

    return found


def _claim(options: Options, noise: Noise, mu: float | None) -> Claim:
    infinite = math.isinf(options.need_epsilon())
    return Claim(
        unit=options.protects.words_with_contexts,
        notion="none" if infinite else "joint",
        epsilon=options.need_epsilon(),
        delta=options.need_delta(),
        mu=mu,
        status="none" if infinite else "proven",
        noise=presets.noise_kind(options),
        assumptions=(
            presets.clipped(options),
            BOUNDED.format(options.max_norm),
            OWN_ARM,
            TIMING,
            OTHERS,
            *((WISHART_ASSUMES,) if noise is WISHART else ()),
        ),
    )
