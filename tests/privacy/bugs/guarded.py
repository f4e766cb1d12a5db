"""Planted bugs that are not about the scale of noise: does the source repeat itself, do outputs lie
on its grid, is the claim true to it."""

from __future__ import annotations

import dataclasses
import multiprocessing

import numpy as np

from bugs.bent import make
from dpbandit.privacy.grid import FLOAT_GRID_BITS, STEP, grid_exponent
from dpbandit.privacy.noise import GAUSSIAN
from dpbandit.privacy.sources import Pending, Real, Simulation


def repeats_across_forks(source) -> bool:
    """Whether two forked children of this process draw the same noise: the difference of two
    releases would then be clean."""

    def draw() -> list[float]:
        pending = Pending(np.zeros(4), [0] * 4)
        return source.release(GAUSSIAN, pending, scale=1.0, shift=1.0, index=1).tolist()

    draw()  # whatever is set up lazily is set up now
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=lambda: queue.put(draw())) for _ in range(2)]
    for process in children:
        process.start()
    drawn = [queue.get(timeout=60) for _ in children]
    for process in children:
        process.join(timeout=60)
    return drawn[0] == drawn[1]


def on_grid(released, step) -> bool:
    """Whether every number is a multiple of the sampler's grid. Float noise added to a clean float
    is not: its low bits depend on the clean value and give it away."""
    return bool((released / step == np.rint(released / step)).all())


def claim_is_true_to_source(bandit) -> bool:
    """Whether the claim says 'real' exactly when the noise is."""
    if bandit.claim.noise == "real":
        return isinstance(bandit.source, Real)
    return bandit.claim.noise == "none" or isinstance(bandit.source, Simulation)


class NumPyNoise:
    """What many libraries do: a generator in the process, copied by fork."""

    kind = "real"

    def __init__(self):
        self.rng = np.random.default_rng()

    def release(self, noise, pending, *, scale, shift, index):
        return pending.values + scale * self.rng.normal(size=len(pending.values))


def plant_forked_noise() -> str:
    assert repeats_across_forks(NumPyNoise())
    assert not repeats_across_forks(Real())
    return "two forked children drew the same noise; with the real source they did not"


def plant_seeded_real_claim() -> str:
    bandit = make()
    bandit.claim = dataclasses.replace(bandit.claim, noise="real")
    assert not claim_is_true_to_source(bandit)
    assert claim_is_true_to_source(make())
    return "the claim says real, the source is a simulation"


def plant_float_noise() -> str:
    clean, given = np.array([1 / 3, 0.1]), {"scale": 1.0, "index": 1}
    floats, whole = Pending(clean), Pending(clean, [round(v * 2**40) for v in clean])
    step = 2.0 ** grid_exponent(1.0, FLOAT_GRID_BITS)  # of noise of scale 1 that is added to floats
    assert not on_grid(NumPyNoise().release("gaussian", floats, shift=1.0, **given), step)
    assert on_grid(Real().release("gaussian", floats, shift=1e-3, **given), step)
    assert on_grid(Real().release("gaussian", whole, shift=1.0, **given), STEP)
    return "outputs are off the sampler's grid; real ones are on it"
