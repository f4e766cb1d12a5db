"""What is computed of the anytime release: what an item pays, and what releases tell."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpbandit as dpb
from dpbandit.release.anytime import kept, shown, times
from dpbandit.release.tree import levels_for

Vector = NDArray[np.float64]
ROUNDS = 100_000  # of the curves


def nodes(horizon: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the node that is due in each round starts and ends."""
    ends = np.arange(1, horizon + 1)
    return ends - (ends & -ends), ends


def anytime() -> dict[str, Any]:
    bandit = dpb.make("anytime", dim=10, epsilon=2.0, delta=1e-5, reward_range=(0, 1), seed=0)
    engine: Any = bandit.release
    knee, ratio, life = float(engine.knee), float(engine.ratio), float(engine.life)
    today = times(int(engine.first), ratio, 3 * ROUNDS, life)
    told = information(today, 2.0, knee, life)
    one, other = np.searchsorted(today, [ROUNDS, 2 * ROUNDS])
    at = times(int(engine.first), ratio, 100 * ROUNDS)
    share, weight = fading(at, 2.0, knee, 1)
    paid = np.cumsum((share * weight) ** 2)
    fine = times(1, 1.0001, 20_000)
    return {
        "knee": knee,
        "ratio": ratio,
        "first": int(engine.first),
        "life": life,
        # What a round adds long after a life, over the knee and the life.
        "slope": float((told[other] - told[one]) / (today[other] - today[one]) / (knee + life)),
        "releases": len(times(int(engine.first), ratio, 1_000_000, life)),
        "paid_by": float(paid[np.searchsorted(at, 10_000)]),
        "paid": float(paid[-1]),
        # Right after a release, and right before the next one.
        "fourth": float(information(at, 2.0, knee)[-1] / at[-2] ** 2),
        "fourth_least": float(information(at, 2.0, knee)[-1] / at[-1] ** 2),
        "square": float(information(fine, 1.0, 0.0)[-1] / fine[-2] ** 2),
        "worst": worst_triangle(),
        "rounds": ROUNDS,
        "curves": curves(knee, ratio, life, int(engine.first)),
    }


def fading(at: NDArray[np.int64], power: float, knee: float, start: int) -> tuple[Vector, Vector]:
    """Shares q that releases show, and the weights ω that an item of round `start` has left then."""
    if power == 2.0:  # as shipped
        rho = np.array([kept(j, k, knee) for j, k in pairwise(at.tolist())] + [0.0])
    else:
        rho = np.append(((knee + at[:-1]) / (knee + at[1:])) ** power, 0.0)
    share = np.array([shown(float(one)) for one in rho])
    left = np.concatenate([[1.0], np.cumprod(rho[:-1])])
    first = int(np.searchsorted(at, start))
    weight = np.where(at >= start, left / left[first], 0.0)
    return share[:-1], weight[:-1]


def information(at: NDArray[np.int64], power: float, knee: float, life: float = math.inf) -> Vector:
    """Σ (q_k·S_k)² after each release, S the sum of the weights of all items: the information on θ
    where every x is 1, in μ² and counting privacy noise alone."""
    total, told, found = 0.0, 0.0, []
    before = 0
    for here, later in pairwise(at.tolist()):
        total += here - before
        rho = ((knee + here) / (knee + later)) ** power
        if power == 2.0:
            rho = kept(here, later, knee, life)
        told += (shown(rho) * total) ** 2
        total, before = rho * total, here
        found.append(told)
    return np.array(found)


def curves(knee: float, ratio: float, life: float, first: int) -> dict[str, list[list[float]]]:
    """Information over t², for what is shown of a sum of `ROUNDS` items."""
    t = np.arange(1, ROUNDS + 1, dtype=np.float64)
    marks = np.unique(np.geomspace(1, ROUNDS, 160).astype(int)) - 1
    starts, ends = nodes(ROUNDS)
    root = np.cumprod(np.concatenate([[1.0], 1 - 0.5 / t[:-1]]))  # C(2k, k)/4^k
    lines = {
        "tree": np.cumsum((ends - starts) ** 2.0) / levels_for(ROUNDS),
        "toeplitz": np.cumsum(np.cumsum(root) ** 2) / np.sum(root**2),
        "local": t,
    }
    found = {
        name: [[t[m], float(line[m] / t[m] ** 2)] for m in marks] for name, line in lines.items()
    }
    for name, power, bend, end, begin in (
        ("shipped", 2.0, knee, life, first),
        ("fourth", 2.0, knee, math.inf, first),
        ("square", 1.0, 0.0, math.inf, 1),
    ):
        at = times(begin, ratio, 2 * ROUNDS, end)
        # Right before the next release.
        told = information(at, power, bend, end)[: len(at) - 1] / at[1:] ** 2.0
        found[name] = [
            [float(j), float(v)] for j, v in zip(at[1:], told, strict=True) if j <= ROUNDS
        ]
    return {name: [[x, round(y, 9)] for x, y in line] for name, line in found.items()}


def worst_triangle(rounds: int = 24, tries: int = 200) -> dict[str, float]:
    """The best guarantee min I_t/t² that climbing from random matrices finds, and what the proof allows.

    Columns of a lower-triangular matrix have norm 1; row sums are what is told. A soft minimum over t
    is climbed, with the columns brought back to norm 1 after each step.
    """
    rng = np.random.default_rng(0)
    t = np.arange(1.0, rounds + 1)
    best = 0.0
    for _ in range(3):
        c = np.tril(rng.random((rounds, rounds))) + np.eye(rounds)
        for step in range(tries):
            c /= np.linalg.norm(c, axis=0)
            rows = c.sum(axis=1)
            told = np.cumsum(rows**2) / t**2
            best = max(best, float(told.min()))
            soft = np.exp(-(told - told.min()) * (20 + step))
            soft /= soft.sum()
            pull = np.cumsum((soft / t**2)[::-1])[::-1] * 2 * rows
            c = np.tril(c + 4.0 * pull[:, None])
    return {"rounds": rounds, "found": best, "allowed": most_guaranteed(rounds)}


def most_guaranteed(rounds: int) -> float:
    """The proof's sums as they are: ¼·H/(H − 3/2 + 3/(2(T + 1))), H = 1 + 1/2 + … + 1/T."""
    harmonic = float(np.sum(1 / np.arange(1.0, rounds + 1)))
    return 0.25 * harmonic / (harmonic - 1.5 + 1.5 / (rounds + 1))


def clicks() -> dict[str, float]:
    """A person's joint cost over what the theorem allows, exactly, in the schedule as shipped."""
    knee, at = 100.0, times(5, 1.025, 3_000)
    share, _ = fading(at, 2.0, knee, 1)
    rng, worst = np.random.default_rng(0), 0.0
    for cap in (1, 2, 4):
        for _ in range(40):
            visits = rng.integers(1, 12)
            when = np.sort(rng.integers(1, 2_000, size=visits))
            u = rng.normal(size=(visits, 3))
            u /= np.linalg.norm(u, axis=1, keepdims=True)
            one, two = (_capped(rng.random(visits), cap) for _ in range(2))
            weights = np.stack([fading(at, 2.0, knee, int(j))[1] for j in when])
            moves = (weights * (one - two)[:, None]).T @ u
            cost = math.sqrt(float(np.sum((share[:, None] * moves) ** 2)))
            worst = max(worst, cost / (2 * cap))
    # A click on x in one stream, on −x in the next round of the other.
    weight = fading(at, 2.0, knee, 3)[1] + fading(at, 2.0, knee, 4)[1]
    attained = math.sqrt(float(np.sum((share * weight) ** 2))) / 2
    return {"attained": attained, "worst": worst, "streams": 120}


def _capped(rewards: Vector, cap: float) -> Vector:
    before = np.concatenate([[0.0], np.cumsum(rewards)[:-1]])
    return np.minimum(rewards, np.maximum(cap - before, 0.0))
