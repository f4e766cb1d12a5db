"""What rides along beside an instrument sum costs nothing: the diameter of items, in full and as shipped."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from test_exact_cost import BACKENDS, BUDGET, Exact

import dpbandit as dpb
from dpbandit.errors import OptionError
from dpbandit.learners.scale import AT_EDGE, BY_DISTANCE

EARLY = {"first_release": 1, "ratio": 1.2, "knee": 4.0}


def item(residual: float, u: np.ndarray) -> np.ndarray:
    """Of a residual in units of the window."""
    size = abs(residual)
    return np.array([*(residual / 2 * u), BY_DISTANCE * size, AT_EDGE * max(2 * size - 1, 0.0)])


def test_no_two_items_of_one_context_are_further_apart_than_the_ends_of_the_window():
    """Between kinks the squared distance is convex in both residuals: corners are the worst."""
    u = np.array([0.6, -0.8])
    corners = [-1.0, -0.5, 0.0, 0.5, 1.0]
    squares = {
        (a, b): float(((item(a, u) - item(b, u)) ** 2).sum())
        for a, b in itertools.product(corners, corners)
    }
    assert max(squares.values()) == squares[-1.0, 1.0] == pytest.approx(1.0, abs=1e-15)
    assert squares[0.0, 1.0] == pytest.approx(0.25 + BY_DISTANCE**2 + AT_EDGE**2)
    assert squares[-0.5, 1.0] == pytest.approx(9 / 16 + BY_DISTANCE**2 / 4 + AT_EDGE**2)
    grid = np.linspace(-1, 1, 161)
    items = np.array([item(e, u) for e in grid])
    apart = ((items[:, None] - items[None]) ** 2).sum(axis=2)
    assert apart.max() <= 1 + 1e-12


def cost_of(
    backend: str, rs: np.ndarray, pair: tuple[float, float], changed: int
) -> tuple[float, list[float]]:
    """Over all releases, in fractions, with both streams told the same noisy values: the share of the claim,
    and half the windows at the end."""
    xs = np.random.default_rng(1).normal(size=(len(rs), 2)) / 4
    runs: list[Exact] = []
    halves = []
    for reward in pair:
        bandit = dpb.make(
            "anytime",
            dim=2,
            backend=backend,
            reward_range=(-1, 1),
            **{**BUDGET, "epsilon": 60.0},
            **EARLY,
        )
        bandit.source = Exact(runs[0].made if runs else None)
        runs.append(bandit.source)
        for t, x in enumerate(xs):
            bandit.update(x, float(reward if t == changed else rs[t]))
        halves.append(half_window(bandit, xs[0]))
    total = 0
    for (a, scale, _), (b, same, _) in zip(runs[0].made, runs[1].made, strict=True):
        assert scale == same > 0
        total += sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) / scale**2
    return math.sqrt(float(total) / bandit.ledger.limit), halves


def half_window(bandit: dpb.Bandit, x: np.ndarray) -> float:
    """Of one more round, which releases nothing: what it adds to Σ 1/c."""
    before = bandit.engine.fields()["distance_design"].item()
    bandit.update(x, 0.0)
    return 1 / (bandit.engine.fields()["distance_design"].item() - before)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("pair", "changed"), [((9, -9), 0), ((9, 0), 30), ((-9, 0.2), 55)])
def test_a_window_that_opens_costs_no_more_than_the_claim(backend, pair, changed):
    """All residuals reach the edge, so the window becomes the whole range: the same for both streams."""
    rs = np.where(np.random.default_rng(2).random(150) < 0.3, 1.0, -1.0)
    ratio, halves = cost_of(backend, rs, pair, changed)
    assert halves == pytest.approx([1.0, 1.0], rel=1e-9)
    assert ratio <= 1
    if (pair, changed) == ((9, -9), 0):
        assert ratio > 0.99


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("one", "two"), [(9, -9), (9, 0), (9, -0.375), (0.375, 0), (0.3, -0.75)])
@pytest.mark.parametrize("changed", [0, 30])
def test_all_releases_together_cost_no_more_than_the_claim(backend, one, two, changed):
    """In fractions: over all releases, with both streams told the same noisy values."""
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(70, 2)) / 4
    rs = 0.02 * rng.normal(size=70)
    runs: list[Exact] = []
    windows = []
    for reward in (one, two):
        bandit = dpb.make(
            "anytime", dim=2, backend=backend, reward_range=(-1, 1), **BUDGET, **EARLY
        )
        bandit.source = Exact(runs[0].made if runs else None)
        runs.append(bandit.source)
        for t, x in enumerate(xs):
            bandit.update(x, float(reward if t == changed else rs[t]))
        windows.append(bandit.engine.fields()["residual_deviation"].item())
    assert windows[0] == windows[1]  # of releases alone
    total = 0
    for (a, scale, _), (b, same, _) in zip(runs[0].made, runs[1].made, strict=True):
        assert scale == same > 0
        total += sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) / scale**2
    ratio = math.sqrt(float(total) / bandit.ledger.limit)
    assert ratio <= 1
    if (one, two, changed) == (9, -9, 0):
        assert ratio > 0.99


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"unit": ("spread", 2)}, r"find_scale=True does not go with unit=\('spread', 2\)"),
        (
            {"unit": ("person", 1), "public_contexts": np.eye(2)},
            r"find_scale=True does not go with unit=\('person', 1\)",
        ),
        ({"rewards": "clicks"}, "find_scale=True does not go with rewards='clicks'"),
        ({"window": 0.5}, "find_scale=True does not go with window=0.5"),
    ],
)
def test_where_it_cannot_be_it_is_off_and_refused_by_name(given, words):
    usual = {"dim": 2, "reward_range": (0, 1), **BUDGET, **given}
    assert dpb.make("anytime", **usual).spec["find_scale"] is False
    with pytest.raises(OptionError, match=words):
        dpb.make("anytime", **usual, find_scale=True)


def test_a_user_with_rewards_that_all_move_alike_is_within_the_claim():
    found = dpb.verify(
        "anytime", epsilon=1.0, delta=1e-6, horizon=96, dim=2, tries=10, unit=("user", 4), **EARLY
    )
    assert found.holds
    assert found.worst.ratio > 0.9


def test_a_bandit_saved_without_what_rides_along_is_refused(tmp_path):
    bandit = dpb.make("anytime", dim=2, reward_range=(-1, 1), **BUDGET, **EARLY)
    bandit.update(np.eye(2), np.array([0.1, 0.2]))
    bandit.save(tmp_path / "with.npz")
    with np.load(tmp_path / "with.npz", allow_pickle=False) as file:
        kept = {name: file[name] for name in file.files if "edge_target" not in name}
    assert len(kept) < len(np.load(tmp_path / "with.npz").files)
    np.savez(tmp_path / "without.npz", **kept)
    with pytest.raises(dpb.errors.DpbanditError, match="edge_target"):
        dpb.load(tmp_path / "without.npz")
