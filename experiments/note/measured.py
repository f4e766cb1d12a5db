"""What is simulated, on seeds from 0, which nothing was tuned on. Some eight minutes of a core."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

import dpbandit as dpb
from dpbandit import worlds
from dpbandit.algorithms.anytime import PLAIN
from experiments.people import CLICKS, NARROW, RANGE, RATES, ROUNDS, UNITS, VISITS, WIDE, play
from experiments.rewards import FORGETS

Rivals = dict[str, tuple[str, dict[str, Any]]]
LONG_WIDE: dict[str, Any] = {"epsilon": 2.0, "delta": 0.1}  # the paper's
BUDGETS = {"a": WIDE, "b": LONG_WIDE, "c": NARROW}
SIMULATION: Rivals = {
    "linucb": ("linucb", {}),
    "random": ("random", {}),
    "anytime": ("anytime", {}),
    "anytime-joint": ("anytime-joint", {}),
    "toeplitz, instruments": ("toeplitz", {"shape": "instruments"}),
    "local": ("local", {}),
    "joint": ("joint", {}),
    "dgs": ("dgs", {}),
    "tree-gauss": ("tree-gauss", {}),
    "private-linucb-published": ("private-linucb-published", {}),
    "dgs-published": ("dgs-published", {}),
    "dgs-figure": ("dgs-figure", {}),
}
LONG = ("linucb", "random", "anytime", "anytime-joint", "joint")
DRAWN = (*LONG, "tree-gauss")
SEEDS = {"simulation": 200, "long": 40, "moving": 12, "blocks": 8, "scale": 48, "persons": 4}
# Of which runs the test repeats seed 0.
REPEATED = ("anytime", "anytime-joint", "joint", "dgs", "dgs-figure")


def cells(results: Any, column: str = "regret") -> dict[str, dict[str, float]]:
    """Mean, standard error and the first seed's value of each algorithm at the end."""
    frame = results.frame()
    last = frame[frame["round"] == frame["round"].max()]
    table: pd.DataFrame = last.pivot(index="seed", columns="algorithm", values=column)
    return {str(name): cell(table[name].to_numpy()) for name in table}


def cell(values: Any) -> dict[str, float]:
    values = np.asarray(values, dtype=np.float64)
    error = float(values.std(ddof=1) / len(values) ** 0.5)
    return {"mean": float(values.mean()), "se": error, "first": float(values[0])}


def compare(world: Any, rivals: Rivals, horizon: int, seeds: int, **given: Any) -> Any:
    given = {"reward_range": RANGE, "record": [], **given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpb.errors.PrivacyWarning)
        return dpb.run(world, rivals, horizon=horizon, seeds=seeds, **given)


def simulation(seeds: int) -> dict[str, Any]:
    """The paper's simulation at three budgets, T = 10⁴, and how regret grows at the first."""
    found: dict[str, Any] = {"horizon": 10_000, "rows": {}}
    for key, budget in BUDGETS.items():
        marks = [int(t) for t in np.geomspace(10, 10_000, 40)] if key == "a" else []
        results = compare(worlds.Synthetic(), SIMULATION, 10_000, seeds, record=marks, **budget)
        found["rows"][key] = cells(results)
        if marks:
            frame = results.frame()
            mean = frame.groupby(["algorithm", "round"])["regret"].mean()
            found["curves"] = {
                name: [[int(t), round(float(v), 3)] for t, v in mean[name].items()]
                for name in DRAWN
            }
    return found


def long(seeds: int) -> dict[str, Any]:
    rivals = {name: SIMULATION[name] for name in LONG}
    results = compare(worlds.Synthetic(), rivals, 100_000, seeds, **WIDE)
    return {"horizon": 100_000, "rows": cells(results)}


def moving(seeds: int) -> dict[str, Any]:
    """Where θ moves: the bank of memories, one memory, and LinUCB with and without forgetting."""
    rivals: Rivals = {
        "anytime": ("anytime", {}),
        "one memory": ("anytime", {"memories": ()}),
        "plain": ("anytime", PLAIN),
        "linucb": ("linucb", {}),
        "linucb that forgets": ("linucb", {"forget": FORGETS}),
        "random": ("random", {}),
    }
    rows = {"stationary": cells(compare(worlds.Synthetic(), rivals, 100_000, seeds, **WIDE))}
    for kind in ("abrupt", "walk", "seasonal", "worst-becomes-best"):
        world = worlds.Moving(kind, 100_000)
        rows[kind] = cells(compare(world, rivals, 100_000, seeds, **WIDE))
    return {"horizon": 100_000, "memory": round(1 / (1 - FORGETS)), "rows": rows}


def blocks(seeds: int) -> dict[str, Any]:
    """Where arms share no feature: answers first, sums alone, and answers alone."""
    rivals: Rivals = {
        "anytime": ("anytime", {}),
        "sums alone": ("anytime", {"local": "never"}),
        "local": ("local", {}),
        "linucb": ("linucb", {"alpha": 1.0}),
        "random": ("random", {}),
    }
    given = {**NARROW, "reward_range": (0.0, 1.0)}
    rows = {}
    for name, horizon in (("digits", 1_797), ("wine", 5_000), ("iris", 5_000)):
        results = compare(worlds.Labelled(name), rivals, horizon, seeds, **given)
        rows[name] = {"horizon": horizon, **cells(results)}
    return {"rows": rows}


def scale(seeds: int) -> dict[str, Any]:
    """Rewards with little noise: the window that follows what rides along, and the fixed one."""
    rivals: Rivals = {
        "found": ("anytime", {}),
        "fixed": ("anytime", {"find_scale": False}),
        "linucb": ("linucb", {}),
    }
    rows = {}
    for noise in (0.01, 0.1, 0.25):
        world = worlds.Synthetic(reward_noise=noise)
        rows[str(noise)] = cells(compare(world, rivals, 10_000, seeds, **WIDE))
    return {"horizon": 10_000, "rows": rows}


def persons(seeds: int) -> dict[str, Any]:
    """Gain over random play at real click rates, for four units; through the public object."""
    units = [name for name in UNITS if not name.startswith("contexts")]
    rows = {}
    for rate in RATES:
        row = {}
        for label in units:
            name, unit = UNITS[label]
            given: dict[str, Any] = {"unit": unit, **CLICKS}
            runs = [play(worlds.Clicks(rate), ROUNDS, seed, name, **given) for seed in range(seeds)]
            row[label] = cell([1.0 - lost / at_random for lost, at_random in runs])
        rows[f"{rate:.1%}"] = row
    return {"horizon": ROUNDS, "visits": VISITS, "rows": rows}


PARTS = {
    "simulation": simulation,
    "long": long,
    "moving": moving,
    "blocks": blocks,
    "scale": scale,
    "persons": persons,
}
