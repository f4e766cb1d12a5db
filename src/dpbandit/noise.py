"""Noise for vectors: Gaussian, Laplace (per coordinate), and K-norm Laplace (density ∝ exp(−‖z‖₂/scale)); for symmetric
matrices packed into vectors also Wishart noise, whose `scale` is its degrees of freedom.

One rule decides the source. No seed: real noise from OpenDP, whose exact samplers do not leak through the low bits of
a float. A seed: simulation noise, reproducible and fast, which must never protect anyone.
The clean value always goes *into* the mechanism; noise is never drawn at zero and added in floats to what others see.
"""

from __future__ import annotations

import math
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dpbandit import sampler
from dpbandit.compiled import kernel
from dpbandit.errors import NoiseError, OptionError, nearest
from dpbandit.randomness import NOISE, add_laplaces, add_normals, derive_key, knorm_laplace, wishart
from dpbandit.sampler import Sampler

Vector = NDArray[np.float64]

GAUSSIAN, LAPLACE, LAPLACE_L2, WISHART = 0, 1, 2, 3
CODES = {"gaussian": GAUSSIAN, "laplace": LAPLACE, "laplace-l2": LAPLACE_L2, "wishart": WISHART}

# Real noise lives on a grid of 2⁻⁴⁰ of its scale or finer; sums that are kept noisy in memory on 2⁻³⁰, so that many
# terms still add up exactly in 53 bits.
GRID_BITS = 40
PAN_PRIVATE_GRID_BITS = 30


# Up to here, twice the slack is still nothing.
_COARSE = 2.0**-20


def check_noise(name: str, allowed: tuple[str, ...]) -> str:
    """The name, or an error that lists what this algorithm allows."""
    if name not in allowed:
        raise OptionError(
            f"noise {name!r} is not possible here: {nearest(name, allowed)} (allowed: {', '.join(allowed)})"
        )
    return name


@kernel
def add_simulated(kind: int, key: np.uint64, index: int, scale: float, value: Vector, out: Vector) -> None:
    """out = value + noise number `index`; a pure function of its arguments. `out` is another array than `value`."""
    d = value.shape[0]
    scale = float(scale)
    if kind == LAPLACE_L2:
        knorm_laplace(key, index, out)
        for i in range(d):
            out[i] = value[i] + scale * out[i]
    elif kind == LAPLACE:
        add_laplaces(key, index * d, scale, value, out)
    elif kind == WISHART:
        wishart(key, index, scale, out)
        for i in range(d):
            out[i] += value[i]
    else:
        add_normals(key, index * d, scale, value, out)


class Source(Protocol):
    """Where a bandit's noise comes from."""

    kind: Literal["real", "simulation"]

    def release(self, noise: str, value: Vector, *, scale: float, shift: float, index: int) -> Vector:
        """`value` with noise number `index`.

        `scale` is the standard deviation for Gaussian noise; `shift` is how far neighbouring values can be apart, in L2 for
        Gaussian and K-norm noise, in L1 for Laplace. (shift/scale)², or shift/scale, is what the release was charged.
        """


class Simulation:
    """Seeded noise. The same (seed, index) gives the same noise, so nothing needs to be stored to continue.

    >>> source, zero = Simulation(seed=7), np.zeros(3)
    >>> once = source.release("gaussian", zero, scale=1.0, shift=1.0, index=4)
    >>> bool((once == source.release("gaussian", zero, scale=1.0, shift=1.0, index=4)).all())
    True
    """

    kind: Literal["real", "simulation"] = "simulation"

    def __init__(self, seed: int | None = None, *, key: int | None = None) -> None:
        self.key = derive_key(seed or 0, NOISE) if key is None else key

    def release(self, noise: str, value: Vector, *, scale: float, shift: float, index: int) -> Vector:
        out = np.empty_like(value)
        add_simulated(CODES[noise], np.uint64(self.key), index, scale, value, out)
        return out


class Real:
    """OpenDP's exact samplers, seeded by the operating system: safe across forks, never reproducible."""

    kind: Literal["real", "simulation"] = "real"

    def __init__(self, bits: int = GRID_BITS) -> None:
        self.bits = bits

    def release(self, noise: str, value: Vector, *, scale: float, shift: float, index: int) -> Vector:
        """Real noise, after checking that the cost OpenDP itself proves for it is no more than what was charged."""
        del index  # real noise has no address: it is drawn once, and what was released is what is kept
        if scale == 0.0:
            raise NoiseError("real noise of scale 0 protects nobody: give a finite epsilon, or a seed for a simulation")
        dim = len(value)
        charged = (shift / scale) ** 2 if noise == "gaussian" else shift / scale
        scale = real_scale(scale, shift=shift, dim=dim, bits=self.bits)
        measure = _sampler(noise, dim, scale, self.bits)
        proven = measure.cost(shift)
        if not proven <= charged:
            raise NoiseError(
                f"the sampler proves cost {proven!r}, more than the {charged!r} that was charged: nothing released"
            )
        return measure.draw(value)


def grid_exponent(scale: float, bits: int = GRID_BITS) -> int:
    """k such that real noise of this scale lies on multiples of 2^k."""
    return math.floor(math.log2(scale)) - bits


def real_scale(scale: float, *, shift: float, dim: int, bits: int = GRID_BITS) -> float:
    """The scale that real noise needs where exact arithmetic would need `scale`.

    The clean value is rounded to the grid first, which can move neighbours apart by one step in every coordinate. What that
    takes is rounded up to a power of two, so that releases whose shifts differ a little share one sampler.

    >>> 1.0 < real_scale(1.0, shift=1.0, dim=10) < 1 + 1e-8
    True
    """
    slack = 1e-9 + 2 * dim * 2.0**-bits * scale / shift
    if slack < _COARSE:
        slack = 2.0 ** math.ceil(math.log2(slack))
    return scale * (1 + slack)


def proven_cost(noise: str, dim: int, scale: float, shift: float, bits: int = GRID_BITS) -> float:
    """What OpenDP itself proves for one release: μ² (as 2ρ) for Gaussian, ε for Laplace.

    `shift` is the L2 distance between neighbouring values for Gaussian noise, the L1 distance for Laplace.
    """
    return _sampler(noise, dim, scale, bits).cost(shift)


def _sampler(noise: str, dim: int, scale: float, bits: int) -> Sampler:
    if not real_source_exists(noise):
        raise NoiseError(
            f"there is no exact sampler for {noise!r} noise: give a seed for a simulation, or use 'laplace' or 'gaussian'"
        )
    make = sampler.gaussian if noise == "gaussian" else sampler.laplace
    return make(dim, scale, grid_exponent(scale, bits))


def lattice_slack(coordinates: float, epsilon: float, bits: int = GRID_BITS) -> float:
    """What the grid adds to δ when real Gaussian noise is charged as GDP, for this many coordinates drawn in all.

    A Gaussian rounded to the grid is post-processing of a Gaussian, so it is exactly GDP; OpenDP's discrete Gaussian
    differs from it by at most (h/σ)²/4 in total variation per coordinate (h the grid, σ the scale; docs/privacy.md),
    and n coordinates add up to (1 + e^ε)·n·that.

    >>> lattice_slack(10**7, 2.0) < 1e-15
    True
    """
    return (1 + math.exp(min(epsilon, 700.0))) * coordinates * 0.25 * 4.0**-bits


def real_source_exists(noise: str) -> bool:
    """Whether `seed=None` is possible with this noise."""
    return noise in ("gaussian", "laplace")
