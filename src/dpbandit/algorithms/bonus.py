"""Lemma 2's α_t: LinUCB's confidence radius plus a bound on what the privacy noise adds to it.

The bound is each release's own: `Release.squares` says how much noise is in the sum of round t, and
`Noise.tail` how far it reaches. Where the noise is on the parameter, λ_min(A_t) comes from the
paper's Lemma 1, which rests on its assumption about contexts; that concerns how well they explore,
never how private they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dpbandit import theory
from dpbandit.algorithms.shapes import Shape
from dpbandit.errors import OptionError
from dpbandit.options import Options, positive
from dpbandit.privacy.sensitivity import estimate_bounds, lemma1
from dpbandit.release import Release, Tree
from dpbandit.types import Vector

Theory = Callable[[Vector], Vector]


def in_the_clear(options: Options) -> Theory:
    """Without privacy noise."""
    return lambda t: radius(options, t)


def on_rewards(options: Options, release: Release) -> Theory:
    """Noise on a reward is more noise in the reward; it counts by its standard deviation."""
    variance = options.width**2 * float(release.variance(np.ones(1))[0])
    spread = math.hypot(options.reward_noise, math.sqrt(variance))
    return lambda t: radius(options, t, reward_noise=spread)


def on_moments(options: Options, release: Release, shape: Shape, weighted_ridge: float) -> Theory:
    """Noise on Σ x·r: ‖A⁻¹n‖_A = ‖n‖_{A⁻¹} ≤ ‖n‖/√λ."""

    def found(t: Vector) -> Vector:
        size = options.width * reach(options, release, release.squares(t))
        if not len(shape.whitener):
            return radius(options, t, options.max_norm * size / math.sqrt(options.ridge))
        # θ = M⁻¹P⁻¹n with M ⪰ A/far and M ⪰ λ_M, so ‖θ‖_A ≤ √far·‖P⁻¹n‖/√λ_M.
        far = max(float(np.linalg.norm(shape.whitener, 2)) * options.max_norm, shape.floor)
        size = size * math.sqrt(far) * np.linalg.norm(shape.inverse, 2)
        return radius(options, t, size / math.sqrt(weighted_ridge))

    return found


def on_parameter(
    options: Options, release: Tree, *, width_times_norm: float, form: str, lemma_delta: float
) -> Theory:
    """Noise on what each node of a tree adds to θ, with Lemma 1's bound on how far that moves."""

    def found(t: Vector) -> Vector:
        least = 1.0 if form == "figure" else smallest_eigenvalue(options, "alpha='theory'")

        def scale(end: int, levels: int) -> float:
            delta = lemma1(
                float(end),
                form=form,
                smallest_eigenvalue=least,
                delta=lemma_delta,
                width_times_norm=width_times_norm,
                ridge=options.ridge,
            )
            return float(release.multipliers[levels]) * delta

        squares = [math.fsum(scale(*node) ** 2 for node in release.nodes(int(v))) for v in t]
        size = reach(options, release, np.array(squares))
        noise = theory.noise_in_confidence_norm(
            t, size, ridge=options.ridge, max_norm=options.max_norm
        )
        return radius(options, t, noise)

    return found


def reach(options: Options, release: Release, squares: Vector) -> Vector:
    """A length that the noise in a released vector exceeds with probability ζ at most."""
    return np.sqrt(squares * options.dim) * release.noise.tail(options.dim, options.zeta)


def radius(
    options: Options, t: Vector, noise: ArrayLike = 0.0, *, reward_noise: float | None = None
) -> Vector:
    """LinUCB's confidence radius with so much more for privacy noise."""
    found = theory.confidence_radius(
        t,
        dim=options.dim,
        ridge=options.ridge,
        max_norm=options.max_norm,
        theta_norm=options.theta_norm,
        zeta=options.zeta,
        reward_noise=options.reward_noise if reward_noise is None else reward_noise,
        noise=noise,
    )
    return np.asarray(found, dtype=np.float64)


def smallest_eigenvalue(options: Options, who: str) -> float:
    """The paper's λ₀: given, or estimated from public contexts."""
    given = options.own("smallest_eigenvalue", None)
    if given is not None:
        return positive("smallest_eigenvalue", given)
    if options.public_contexts is None:
        raise OptionError(
            f"{who} needs smallest_eigenvalue (the paper's λ₀), or public_contexts to estimate it "
            "from"
        )
    found = estimate_bounds(options.public_contexts)[1]
    if found <= 0:
        raise OptionError(
            "public_contexts do not span all dimensions: λ₀ = 0, so Lemma 1 says nothing"
        )
    return found
