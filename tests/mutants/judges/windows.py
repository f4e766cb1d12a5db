"""The judge of the window of residuals, which follows what was released of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from judges.common import close, judge

SHARE, EDGE = 0.7, 0.95  # of docs/privacy.md: b₁, and from where the window is the whole range
ROUNDS, LABELS = 150, 105


@judge
def windows_open_where_all_residuals_reach_their_edge() -> Any:
    """Labels are 0 or 1, later all in between. A window that was asked for stays as it is."""
    import dpbandit as dpb

    seen: list[Any] = []
    rng = np.random.default_rng(14)
    xs = rng.normal(size=(ROUNDS, 3)) / 5
    rewards = 2.0 * (rng.random(ROUNDS) < 0.3)
    rewards[LABELS:] = rng.uniform(0.6, 1.4, size=ROUNDS - LABELS)
    for asked in ({}, {"window": 0.375}, {"reward_variance": 0.2}):
        bandits = [
            dpb.make(
                "anytime", dim=3, epsilon=200.0, delta=1e-4, reward_range=(0.0, 2.0), seed=5,
                first_release=2, ratio=1.15, knee=6.0, backend=backend, **asked,
            )
            for backend in ("reference", "core")
        ]  # fmt: skip
        halves = np.empty((2, ROUNDS))
        opened = np.zeros(ROUNDS, dtype=bool)
        for t, (x, reward) in enumerate(zip(xs, rewards.tolist(), strict=True)):
            for number, bandit in enumerate(bandits):
                before, released = _fields(bandit), bandit.ledger.releases
                bandit.update(x, reward)
                after = _fields(bandit)
                if bandit.ledger.releases > released:  # what a release keeps is another sum
                    halves[number, t] = math.nan
                    continue
                halves[number, t] = 1.0 / (after["distance_design"] - before["distance_design"])
                known = before["share_information"]
                opened[t] = not asked and known > 0 and (
                    before["share_target"] / known - 1.0 / (SHARE * math.sqrt(known)) > EDGE
                )  # fmt: skip
            close(*(bandit.theta for bandit in bandits), 1e-7, 1e-9)
            assert np.isnan(halves[0, t]) == np.isnan(halves[1, t])
        quiet = ~np.isnan(halves[0])
        close(halves[0, quiet], halves[1, quiet], 1e-7)
        assert np.allclose(halves[:, quiet & opened], 1.0, rtol=1e-9)
        assert (halves[:, quiet & ~opened] <= 0.75 * (1 + 1e-9)).all()
        if not asked:  # closed at first, then open, and closed again
            assert not opened[:3].any()
            assert (quiet & opened)[:LABELS].sum() > 5
            assert not opened[-5:].any()
        seen.append(halves[:, quiet])
    return seen


def _fields(bandit: Any) -> dict[str, float]:
    names = ("distance_design", "share_information", "share_target")
    return {name: bandit.engine.fields()[name].item() for name in names}


@judge
def a_sudden_crowd_makes_old_sums_doubtful() -> Any:
    """Rewards that hardly varied are suddenly the ends of the range: both engines open the window at
    once, and believe what windows may have cut off."""
    import dpbandit as dpb

    rng = np.random.default_rng(15)
    xs = rng.normal(size=(100, 3)) / 5
    rewards = rng.normal(1.0, 0.01, size=100)
    rewards[60:] = 2.0 * rng.integers(2, size=40)
    seen, wider = [], [1.0, 1.0]
    bandits = [
        dpb.make(
            "anytime", dim=3, epsilon=200.0, delta=1e-4, reward_range=(0.0, 2.0), seed=5,
            first_release=2, ratio=1.3, knee=2.0, memories=90.0, backend=backend,
        )
        for backend in ("reference", "core")
    ]  # fmt: skip
    for x, reward in zip(xs, rewards.tolist(), strict=True):
        before, wider = wider, []
        for bandit in bandits:
            bandit.update(x, reward)
            wider.append(bandit.engine.fields()["widened"].item())
        close(*(bandit.theta for bandit in bandits), 1e-6, 1e-8)
        close(wider[0], wider[1], 1e-6)
        seen.append(wider[0] / before[0])
    assert max(seen) > 9.0  # more than a release widens it by otherwise
    return seen
