"""Planted bugs of real noise, which guards catch."""

from __future__ import annotations

import dataclasses

import numpy as np

from bugs.bent import make
from dpbandit.auditor import guards
from dpbandit.privacy.sources import Pending, Real


class NumPyNoise:
    """What many libraries do: a generator in the process, copied by fork."""

    kind = "real"

    def __init__(self):
        self.rng = np.random.default_rng()

    def release(self, noise, pending, *, scale, shift, index):
        return pending.values + scale * self.rng.normal(size=len(pending.values))


def plant_forked_noise() -> str:
    assert guards.repeats_across_forks(NumPyNoise())
    assert not guards.repeats_across_forks(Real())
    return "two forked children drew the same noise; with the real source they did not"


def plant_seeded_real_claim() -> str:
    bandit = make()
    bandit.claim = dataclasses.replace(bandit.claim, noise="real")
    assert not guards.claim_is_true_to_source(bandit)
    assert guards.claim_is_true_to_source(make())
    return "the claim says real, the source is a simulation"


def plant_float_noise() -> str:
    clean, given = np.array([1 / 3, 0.1]), {"scale": 1.0, "index": 1}
    floats, whole = Pending(clean), Pending(clean, [round(v * 2**40) for v in clean])
    assert not guards.on_grid(NumPyNoise().release("gaussian", floats, shift=1.0, **given), 1.0)
    assert guards.on_grid(Real().release("gaussian", floats, shift=1e-3, **given), 1.0)
    assert guards.on_grid(Real().release("gaussian", whole, shift=1.0, **given))
    return "outputs are off the sampler's grid; real ones are on it"
