"""Checks that are not about noise scales: does the source repeat itself, do outputs lie on its grid, is the claim true to it."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbandit.noise import GRID_BITS, Real, Simulation, Source, grid_exponent


def repeats_across_forks(source: Source, *, scale: float = 1.0) -> bool:
    """Whether two forked children of this process draw the same noise: then the difference of two releases is clean."""
    source.release("gaussian", np.zeros(4), scale=scale, shift=1.0, index=1)  # whatever is set up lazily is set up now
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()

    def child() -> None:
        queue.put(source.release("gaussian", np.zeros(4), scale=scale, shift=1.0, index=1).tolist())

    children = [context.Process(target=child) for _ in range(2)]
    for process in children:
        process.start()
    drawn = [queue.get(timeout=60) for _ in children]
    for process in children:
        process.join(timeout=60)
    return bool(drawn[0] == drawn[1])


def on_grid(released: ArrayLike, scale: float, bits: int = GRID_BITS) -> bool:
    """Whether every released number is a multiple of the sampler's grid.

    Float noise added to a clean float is not: its low bits depend on the clean value and give it away.

    >>> on_grid([0.5, -2.0], 1.0), on_grid([0.1], 1.0)
    (True, False)
    """
    steps = np.asarray(released, dtype=np.float64) / 2.0 ** grid_exponent(scale, bits)
    return bool((steps == np.rint(steps)).all())


def claim_is_true_to_source(bandit: Any) -> bool:
    """Whether the claim says 'real' exactly when the noise is."""
    source = bandit.source
    if bandit.claim.noise == "real":
        return isinstance(source, Real)
    return bandit.claim.noise == "none" or isinstance(source, Simulation)
