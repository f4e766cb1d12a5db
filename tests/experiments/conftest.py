"""Profiles that take a second where the real ones take minutes."""

from dataclasses import replace

import pytest

from dpbandit.algorithms import registry
from experiments.leaderboard import grid
from experiments.reproduction import setting
from experiments.reproduction.drawings import DRAW
from experiments.speed import measure


@pytest.fixture(autouse=True)
def nothing_registered_stays():
    """The leaderboard registers a reference of its own, which other tests need not meet."""
    yield
    registry.ALGORITHMS.pop(grid.LOGISTIC, None)


@pytest.fixture
def plain_figures(monkeypatch):
    """Drawing takes longer than all else; `test_reproduction.py` draws every figure once."""
    from matplotlib.figure import Figure

    for name in DRAW:
        monkeypatch.setitem(DRAW, name, lambda tables: Figure(figsize=(1, 1)))


@pytest.fixture
def small(monkeypatch, plain_figures):
    tiny = grid.Profile("tiny", {100: 4}, {100: 4}, (grid.Budget(2.0, 1e-5),))
    monkeypatch.setattr(grid, "profile", lambda name: tiny)
    shrunk = replace(setting.PROFILES["quick"], horizon=200, seeds=4)
    monkeypatch.setitem(setting.PROFILES, "quick", shrunk)
    engine, decisions = measure.engine, measure.decisions
    few = [one for one in measure.CONTESTANTS if one.name in ("dpbandit linucb", "NumPy, by hand")]
    monkeypatch.setattr(
        measure, "engine", lambda names, **more: engine(["linucb"], rounds=500, **more)
    )
    monkeypatch.setattr(
        measure, "decisions", lambda tasks, who=None, **more: decisions(tasks, few, **more)
    )
    monkeypatch.setattr(measure, "noise_costs", lambda say: {})
