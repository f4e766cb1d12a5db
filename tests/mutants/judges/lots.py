"""Judges of arms drawn by lot: probabilities in closed form, shares of random play, what is logged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from judges.bandits import made, play, slates
from judges.common import close, judge, refused

DRAWS = 600


def shares_of(model: Any, slate: Any, share: float, sampled: bool) -> Any:
    """What each row's probability must be, by the formula in plain words."""
    means = slate @ model.view.theta
    if not sampled:
        scores = model.policy.scores(model.view, slate, model.alpha, 1, 0)
        best = (scores >= scores.max() - 1e-12).astype(float)
        return (1 - share) * best / best.sum() + share / len(slate)
    leader, weights = slate[int(np.argmax(means))], []
    for row, mean in zip(slate, means, strict=True):
        apart = row - leader
        spread = model.alpha * math.sqrt(float(apart @ model.view.matrix @ apart))
        g = (means.max() - mean) / spread if spread > 0 else 0.0
        weights.append(math.exp(-1.5976 * g - 0.07056 * g**3))
    return (1 - share) * np.array(weights) / sum(weights) + share / len(slate)


def about(picked: Any, chances: Any) -> None:
    """By chance further off once in 10⁶ times."""
    counts = np.bincount(picked, minlength=len(chances)) / len(picked)
    room = 5 * np.sqrt(chances * (1 - chances) / len(picked)) + 1e-12
    assert (np.abs(counts - chances) <= room).all(), (counts, chances)


@judge
def lots_fall_as_propensities_say() -> Any:
    seen: list[Any] = []
    for label, more in (
        ("anytime", {"policy": "sampled"}),
        ("anytime", {"policy": "sampled", "holdout": 0.4}),
        ("pair", {"policy": "sampled", "holdout": 0.25}),
        ("laplace", {"holdout": 0.4}),
        ("gauss", {"holdout": 0.5}),
    ):
        share, sampled = more.get("holdout", 0.0), "policy" in more
        both = [made(label, backend=backend, **more) for backend in ("reference", "core")]
        slate = slates(both[0], 1)[0]
        arms = []
        for bandit in both:
            play(bandit, 9)
            arms.append([bandit.select(slate) for _ in range(DRAWS)])
        assert arms[0] == arms[1]
        bandit, model = both[1], both[1].model()
        expected = shares_of(model, slate, share, sampled)
        found = bandit.propensities(slate)
        close(found.probabilities, expected, 1e-9)
        assert not found.standard_errors.any()
        about(arms[1], expected)
        about([model.select(slate) for _ in range(DRAWS)], expected)
        if sampled:
            pairs = [model.pick(slate) for _ in range(20)]
            assert all(propensity == found.probabilities[arm] for arm, propensity in pairs)
        for who in (bandit, model):
            decisions = [who.decide(slate) for _ in range(60)]
            for arm, propensity, error in decisions:
                assert (propensity, error) == (found.probabilities[arm], 0.0)
                assert isinstance(arm, int)
        again = type(model).from_record(model.to_record())
        assert again.holdout == share
        assert ("holdout" in model.to_record()) == (share > 0)
        assert again.same_as(model)
        assert not again.same_as(made(label, **more).model())
        seen += [arms[0][:50], expected]
    thompson = made("thompson", holdout=0.3)
    play(thompson, 6)
    slate = slates(thompson, 1)[0]
    found = thompson.propensities(slate, seed=2)
    close(found.probabilities.sum(), 1.0, 1e-12)
    assert (found.probabilities >= 0.3 / len(slate)).all()
    model = thompson.model()
    usual = model.policy.propensities(
        model.view, slate, model.alpha, draws=1000, seed=2, name="private-ts"
    )
    close(found.probabilities, 0.7 * usual.probabilities + 0.3 / len(slate), 1e-12)
    close(found.standard_errors, 0.7 * usual.standard_errors, 1e-12)
    assert model.pick(slate)[1] is None
    refused("PropensityError", lambda: made("gauss").decide(slate))
    for changed in (
        {"alpha": 0.7},
        {"holdout": 0.0},
        {"seed": 6},
    ):
        other = made("anytime", policy="sampled", **changed)
        one = made("anytime", policy="sampled")
        play(other, 6)
        play(one, 6)
        assert one.model().same_as(other.model()) == (changed == {"holdout": 0.0})
    return [*seen, found.probabilities]
