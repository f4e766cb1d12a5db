"""Checks that are not about noise scales: does the source repeat itself, do outputs lie on its
grid, is the claim true to it."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbandit.privacy.grid import FLOAT_GRID_BITS, STEP, grid_exponent
from dpbandit.privacy.noise import GAUSSIAN
from dpbandit.privacy.sources import Pending, Real, Simulation, Source


def repeats_across_forks(source: Source, *, scale: float = 1.0) -> bool:
    """Whether two forked children of this process draw the same noise.

    The difference of two releases would then be clean.
    """

    def draw() -> list[float]:
        pending = Pending(np.zeros(4), [0] * 4)
        drawn = source.release(GAUSSIAN, pending, scale=scale, shift=1.0, index=1)
        return [float(number) for number in drawn]

    draw()  # whatever is set up lazily is set up now
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    children = [context.Process(target=lambda: queue.put(draw())) for _ in range(2)]
    for process in children:
        process.start()
    drawn = [queue.get(timeout=60) for _ in children]
    for process in children:
        process.join(timeout=60)
    return bool(drawn[0] == drawn[1])


def on_grid(released: ArrayLike, scale: float | None = None) -> bool:
    """Whether every released number is a multiple of the sampler's grid.

    Float noise added to a clean float is not: its low bits depend on the clean value and give it
    away.

    Parameters
    ----------
    released
        Numbers that were released.
    scale
        Of the noise, where the clean value was a float; None: sums of whole numbers, whose grid is
        the same at every scale.

    >>> on_grid([0.5, -2.0], 1.0), on_grid([0.1], 1.0), on_grid([STEP, 3 * STEP]), on_grid([1 / 3])
    (True, False, True, False)
    """
    step = STEP if scale is None else 2.0 ** grid_exponent(scale, FLOAT_GRID_BITS)
    steps = np.asarray(released, dtype=np.float64) / step
    return bool((steps == np.rint(steps)).all())


def claim_is_true_to_source(bandit: Any) -> bool:
    """Whether the claim says 'real' exactly when the noise is."""
    source = bandit.source
    if bandit.claim.noise == "real":
        return isinstance(source, Real)
    return bandit.claim.noise == "none" or isinstance(source, Simulation)
