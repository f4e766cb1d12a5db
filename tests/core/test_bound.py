"""dgs's bound on how far A⁻¹x reaches over the public arms: never below the largest length of the
very A⁻¹ in use, also when that is computed anew, and seldom much above it.
"""

from __future__ import annotations

import numpy as np
import pytest

import dpbandit as dpb

pytest.importorskip("dpbandit._core", reason="there is no compiled core here")

# Features, arms, ridge, and how much weaker the last feature is than the first.
CASES = [
    (1, 3, 1.0, 1.0),
    (3, 40, 1.0, 1.0),
    (10, 200, 1e-3, 100.0),
    (26, 100, 0.1, 10.0),
    (5, 30, 1e-8, 1e4),
    (2, 6, 1e-10, 1e6),
]
ROUNDS = 700  # A⁻¹ is computed anew in every 256th


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("backend", ["core", "reference"])
@pytest.mark.parametrize(("dim", "count", "ridge", "weaker"), CASES)
def test_no_arm_reaches_further_than_the_bound(
    dim: int, count: int, ridge: float, weaker: float, backend: str, noise: str
) -> None:
    rng = np.random.default_rng(dim)
    arms = rng.normal(size=(count, dim)) * np.geomspace(1.0, 1.0 / weaker, dim)
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    budget = {"epsilon": 1.0} if noise == "laplace" else {"epsilon": 1.0, "delta": 1e-6}
    bandit = dpb.make(
        "dgs", dim=dim, horizon=ROUNDS, ridge=ridge, public_contexts=arms, seed=0, noise=noise,
        backend=backend, **budget,
    )  # fmt: skip
    ratios = []
    for t in range(ROUNDS):
        # A few arms often, as a bandit plays them, and others in between.
        bandit.update(arms[rng.integers(count) if t % 3 else t % min(count, 3)], 0.5)
        fields = bandit.engine.fields()
        images = arms @ np.asarray(fields["inverse"], dtype=np.longdouble)
        lengths = np.abs(images).sum(1) if noise == "laplace" else np.sqrt((images**2).sum(1))
        ratios.append(float(fields["bound_bound"][0] * fields["bound_growth"][0] / lengths.max()))
    assert min(ratios) >= 1.0
    assert np.mean(ratios) < 1.06
