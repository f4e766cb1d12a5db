"""Where a bandit's noise comes from.

One rule decides it. No seed: real noise from OpenDP, whose exact samplers do not leak through the
low bits of a float. A seed: simulation noise, reproducible and fast, which must never protect
anyone."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import numpy as np

from dpbandit.errors import NoiseError
from dpbandit.privacy.grid import PROVEN_SLACK, STEP, grid_exponent, real_scale
from dpbandit.privacy.noise import Noise, Response, find_noise
from dpbandit.privacy.opendp import Sampler
from dpbandit.reference.random import NOISE, derive_key
from dpbandit.types import Vector


class Pending(NamedTuple):
    """A clean value about to be released. Trusted side only."""

    values: Vector  # as floats
    whole: list[int] | None = None  # exactly, in units of `step`; None: it is not a whole number
    step: float = STEP


class Source(Protocol):
    """Where a bandit's noise comes from."""

    kind: Literal["real", "simulation"]

    def release(
        self, noise: Noise | str, pending: Pending, *, scale: float, shift: float, index: int
    ) -> Vector:
        """The pending value with noise of this scale; NoiseError if none can be drawn.

        `shift` bounds the distance of neighbouring values, in the noise's norm; with `scale` it
        determines the charge. `index` is the round of the release, from 1.
        """


class Simulation:
    """Seeded noise: the same (seed, index) gives the same noise, so continuing needs no stored
    state."""

    kind: Literal["real", "simulation"] = "simulation"

    def __init__(self, seed: int | None = None, *, key: int | None = None) -> None:
        self.key = derive_key(seed or 0, NOISE) if key is None else key

    def release(
        self, noise: Noise | str, pending: Pending, *, scale: float, shift: float, index: int
    ) -> Vector:
        return find_noise(noise).simulate(self.key, index, scale, pending.values)


class Real:
    """OpenDP's exact samplers, seeded by the system: safe across forks, never reproducible."""

    kind: Literal["real", "simulation"] = "real"

    def release(
        self, noise: Noise | str, pending: Pending, *, scale: float, shift: float, index: int
    ) -> Vector:
        """Real noise, if the cost that OpenDP proves for it is no more than what was charged."""
        del index  # real noise has no address: it is drawn once, and what was released is kept
        noise = find_noise(noise)
        _refuse_without_noise(scale)
        if isinstance(noise, Response):
            if pending.whole is None:
                raise NoiseError("an answer is of a whole number of steps: nothing released")
            answer, proven = noise.answer(pending.whole, scale=scale, step=pending.step)
            _check(proven, noise.cost(np.array([shift]), scale))
            return answer
        if pending.whole is None:
            return self._release_floats(noise, pending.values, scale=scale, shift=shift)
        whole = add_whole_noise(noise, pending.whole, scale=scale, shift=shift, step=pending.step)
        # Each whole number becomes the nearest double; a step is a power of two, so that is exact.
        return np.array(whole, dtype=np.float64) * pending.step

    @staticmethod
    def _release_floats(noise: Noise, value: Vector, *, scale: float, shift: float) -> Vector:
        safe = real_scale(scale, shift=shift, dim=len(value))
        sampler = _needed(noise, noise.float_sampler(len(value), safe, grid_exponent(safe)))
        _check(sampler.cost(shift), noise.share(scale / shift))
        return sampler.draw(value)


def add_whole_noise(
    noise: Noise, whole: list[int], *, scale: float, shift: float, step: float = STEP
) -> list[int]:
    """Whole numbers of `step` with real noise, exactly. What pan-private nodes begin with, too.

    The noise is drawn for zeros and added in Python's own integers: nothing is ever rounded.
    NoiseError if there is no exact sampler, or noise so large might not fit 64 bits.
    """
    _refuse_without_noise(scale)
    sampler = _needed(noise, noise.whole_sampler(len(whole), scale * (1 + PROVEN_SLACK) / step))
    _check(sampler.cost(shift / step), noise.share(scale / shift))
    drawn = sampler.draw_whole()
    return [number + extra for number, extra in zip(whole, drawn, strict=True)]


def _refuse_without_noise(scale: float) -> None:
    if scale == 0.0:
        raise NoiseError(
            "real noise of scale 0 protects nobody: give a finite epsilon, or a seed for a "
            "simulation"
        )


def _needed(noise: Noise, sampler: Sampler | None) -> Sampler:
    if sampler is None:
        raise NoiseError(
            f"there is no exact sampler for {noise.name!r} noise: give a seed for a simulation, or "
            "use 'laplace' or 'gaussian'"
        )
    return sampler


def _check(proven: float, charged: float) -> None:
    if not proven <= charged:
        raise NoiseError(
            f"the sampler proves cost {proven!r}, more than the {charged!r} that was charged: "
            "nothing released"
        )
