"""The window and the assumed variance follow how far rewards are from predictions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.learners.scale import AT_EDGE, BY_DISTANCE, LEAST_DEVIATION, Scale

GIVEN = {"dim": 3, "epsilon": 3.0, "delta": 1e-6, "reward_range": (-1.0, 1.0), "seed": 1}


def told(scale: Scale, residuals, *, variance: float = 0.0, noise: float = 1e-6) -> None:
    """One release that shows all of these, and keeps nothing."""
    shown = np.zeros(2)
    for residual in residuals:
        half = scale.window(variance)
        shown += scale.see(min(abs(residual), half), half, variance)
    scale.learn(shown, 1.0, 0.0, noise)


def test_gaussian_residuals_are_measured_and_the_window_is_theirs():
    rng = np.random.default_rng(0)
    scale = Scale(0.5, 0.75, 2.0)
    assert scale.window(0.0) == 0.75
    for _ in range(300):
        told(scale, rng.normal(0, 0.1, size=200))
    assert scale.reward_deviation == pytest.approx(0.1, rel=0.05)
    assert scale.window(0.0) == pytest.approx(0.225, rel=0.05)
    assert scale.window(0.03) == pytest.approx(2.25 * math.sqrt(0.04), rel=0.05)
    assert scale.window(4.0) == 0.75


def test_what_predictions_err_is_not_put_down_to_rewards():
    rng = np.random.default_rng(1)
    scale = Scale(0.5, 0.75, 2.0)
    for _ in range(200):
        told(scale, rng.normal(0, math.hypot(0.06, 0.08), size=200), variance=0.08**2)
    assert scale.residual_deviation == pytest.approx(0.1, rel=0.06)
    assert scale.reward_deviation == pytest.approx(0.06, rel=0.12)
    for _ in range(200):  # predictions are believed to err far more than they do
        told(scale, rng.normal(0, 0.05, size=200), variance=1.0)
    assert scale.reward_deviation >= 0.5 * scale.residual_deviation > 0.02


def test_a_crowd_at_the_edge_opens_the_window():
    """One residual in five is large: the others alone would leave a narrow window, and cut it off."""
    rng = np.random.default_rng(2)
    scale = Scale(0.5, 0.75, 2.0)
    for _ in range(200):
        told(scale, np.where(rng.random(300) < 0.2, 1.0, 0.02))
    assert scale.widened > 3
    assert scale.window(0.0) > 0.5


@pytest.mark.parametrize("backend", ["core", "reference"])
def test_where_all_residuals_reach_its_edge_the_window_is_the_whole_range(backend):
    """Labels are 0 or 1: any narrower window cuts them off. A window that was asked for stays."""
    rng = np.random.default_rng(5)
    given = {**GIVEN, "reward_range": (0.0, 1.0), "backend": backend, "epsilon": 20.0}
    rows = 600 if backend == "core" else 260
    labels, shades = (rng.random(rows) < 0.3).astype(float), rng.uniform(0.3, 0.7, size=rows)
    xs = rng.normal(size=(rows, 3)) / 4
    found = {}
    cases = {"labels": labels, "shades": shades, "asked": labels, "back": labels}
    for name in cases if backend == "core" else ("labels", "asked"):
        rewards = cases[name]
        bandit = dpb.make("anytime", **given, **({"window": 0.375} if name == "asked" else {}))
        bandit.update(xs, rewards)
        if name == "back":  # rewards are labels no more
            bandit.update(np.vstack([xs] * 4), np.tile(shades, 4))
        before = bandit.engine.fields()["distance_design"].item()
        bandit.update(np.array([0.1, 0.2, 0.1]), 0.4)
        found[name] = 1 / (bandit.engine.fields()["distance_design"].item() - before)
    assert found["labels"] == pytest.approx(0.5, rel=1e-9)
    assert found["asked"] == pytest.approx(0.375, rel=1e-9)
    if backend == "core":
        assert found["shades"] < 0.37
        assert found["back"] < 0.376


def test_a_sudden_crowd_opens_it_at_once_and_says_how_much_is_still_known():
    rng = np.random.default_rng(3)
    scale = Scale(0.5, 0.75, 2.0)
    for _ in range(100):
        told(scale, rng.normal(0, 0.02, size=200))
    assert scale.window(0.0) < 0.06
    half = scale.window(0.0)
    shown = sum(scale.see(half, half, 0.0) for _ in range(200))
    np.testing.assert_allclose(shown, [200 * BY_DISTANCE, 200 * AT_EDGE])
    known = scale.learn(shown, 1.0, 0.0, 1e-6)
    assert known < 0.2
    assert scale.window(0.0) == pytest.approx(0.75)


def test_nothing_is_narrower_than_the_least():
    scale = Scale(0.5, 0.75, 2.0)
    for _ in range(200):
        told(scale, np.zeros(500))
    assert scale.reward_deviation == LEAST_DEVIATION * 2.0


@pytest.mark.parametrize("backend", ["core", "reference"])
def test_little_noise_makes_a_better_parameter_for_the_same_budget(backend):
    rng = np.random.default_rng(4)
    xs = rng.normal(size=(3000, 3))
    xs /= np.maximum(np.linalg.norm(xs, axis=1, keepdims=True), 1.0)
    theta = np.array([0.5, -0.3, 0.2])
    rewards = xs @ theta + rng.normal(0, 0.02, size=3000)
    errors = {}
    for found in (True, False):
        bandit = dpb.make("anytime", **GIVEN, backend=backend, find_scale=found)
        bandit.update(xs, rewards)
        errors[found] = np.linalg.norm(bandit.theta - theta)
    assert errors[True] < 0.4 * errors[False]
    fields = dpb.make("anytime", **GIVEN, backend=backend, find_scale=False).engine.fields()
    assert "reward_deviation" not in fields
