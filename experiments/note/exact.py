"""What is computed: joint costs, information, and the moves that lemmas bound, by brute force."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import dpbandit as dpb
from dpbandit.budget import mu_of
from dpbandit.learners.scale import AT_EDGE, BY_DISTANCE
from dpbandit.privacy.grid import STEP, lattice_slack
from dpbandit.privacy.noise import RESPONSE
from dpbandit.privacy.sensitivity import estimate_bounds
from dpbandit.release.anytime import kept, most_releases, rounding, shown, times
from dpbandit.release.pair import largest_move, most_move
from dpbandit.release.tree import levels_for

Vector = NDArray[np.float64]
HORIZONS = (1_000, 10_000, 100_000, 1_000_000)
BUDGETS = {"a": (2.0, 1e-5), "b": (2.0, 0.1), "c": (1.0, 1e-6)}
ROUNDS = 100_000  # of the curves


def everything() -> dict[str, Any]:
    """All of it: a second or two."""
    return {
        "budgets": {
            key: {"epsilon": epsilon, "delta": delta, "mu": mu_of(epsilon=epsilon, delta=delta)}
            for key, (epsilon, delta) in BUDGETS.items()
        },
        "increments": [increments(horizon) for horizon in HORIZONS],
        "late": late_direction(),
        "lemma1": lemma1(),
        "anytime": anytime(),
        "joint": contexts(),
        "scale": scale(),
        "local": local(),
        "clicks": clicks(),
        "whole": whole(),
    }


def nodes(horizon: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the node that is due in each round starts and ends."""
    ends = np.arange(1, horizon + 1)
    return ends - (ends & -ends), ends


def increments(horizon: int) -> dict[str, float]:
    """What the first reward pays when increments of θ̂ are shown, each paid for as if it were alone.

    d = 1, x = 1 and λ = 1, so A_t = 1 + t. The node (s, e] has noise for W/(1 + e); it moves by W/(1 + e)
    if it holds the reward, and by W·(1/(1 + s) − 1/(1 + e)) if it comes later.
    """
    starts, ends = nodes(horizon)
    share = np.where(starts == 0, 1.0, (ends - starts) / (1.0 + starts))
    levels = levels_for(horizon)
    return {
        "horizon": horizon,
        "laplace_printed": float(share.sum() / math.log2(horizon)),
        "laplace": float(share.sum() / levels),
        "gauss": float(np.sum(share**2) / levels),
    }


def late_direction() -> dict[str, float]:
    """The same where contexts are short at first and long later, in costs of one node."""
    half = 2_048
    lengths = np.repeat([0.02, 1.0], half)
    gram = 1.0 + np.concatenate([[0.0], np.cumsum(lengths**2)])
    starts, ends = nodes(2 * half)
    longest = np.array([lengths[s:e].max() for s, e in zip(starts, ends, strict=True)])
    own = lengths[0] / gram[ends]
    later = lengths[0] * (1 / gram[starts] - 1 / gram[ends])
    moves = np.where(starts == 0, own, later) / (longest / gram[ends])
    levels = levels_for(2 * half)
    return {
        "half": half,
        "short": 0.02,
        "levels": levels,
        "reserved": levels * (1 + math.pi**2 / 24),
        "cost": float(np.sum(moves**2)),
    }


def lemma1() -> dict[str, float]:
    """From which round on the paper's sensitivity applies on its own simulation, and what it is."""
    horizon, (epsilon, delta) = 10_000, BUDGETS["b"]
    pool = np.asarray(dpb.worlds.Synthetic().episode(0).public_contexts)
    longest, smallest = estimate_bounds(pool)
    threshold = 32 * math.log(math.log2(horizon) / delta) / smallest
    return {
        "horizon": horizon,
        "epsilon": epsilon,
        "delta": delta,
        "smallest": smallest,
        "threshold": math.ceil(threshold),
        "times_t": 32 * longest / smallest,
        "trivial_until": math.floor(16 * longest / smallest),
    }


def fading(at: NDArray[np.int64], power: float, knee: float, start: int) -> tuple[Vector, Vector]:
    """Shares q that releases show, and the weights ω that an item of round `start` has left then."""
    if power == 2.0:  # as shipped
        pairs = pairwise(at)
        rho = np.array([kept(int(j), int(k), knee) for j, k in pairs] + [0.0])
    else:
        rho = np.append(((knee + at[:-1]) / (knee + at[1:])) ** power, 0.0)
    share = np.array([shown(float(one)) for one in rho])
    left = np.concatenate([[1.0], np.cumprod(rho[:-1])])
    first = int(np.searchsorted(at, start))
    weight = np.where(at >= start, left / left[first], 0.0)
    return share[:-1], weight[:-1]


def information(at: NDArray[np.int64], power: float, knee: float) -> Vector:
    """Σ (q_k·S_k)² after each release, S the sum of the weights of all items: the information on θ
    where every x is 1, in μ² and counting privacy noise alone."""
    total, told, found = 0.0, 0.0, []
    before = 0
    for here, later in zip(at[:-1].tolist(), at[1:].tolist(), strict=True):
        total += here - before
        rho = kept(here, later, knee) if power == 2.0 else ((knee + here) / (knee + later)) ** power
        told += (shown(rho) * total) ** 2
        total, before = rho * total, here
        found.append(told)
    return np.array(found)


def anytime() -> dict[str, Any]:
    bandit = dpb.make("anytime", dim=10, epsilon=2.0, delta=1e-5, reward_range=(0, 1), seed=0)
    engine: Any = bandit.release
    knee, ratio = float(engine.knee), float(engine.ratio)
    at = times(int(engine.first), ratio, 100 * ROUNDS)
    share, weight = fading(at, 2.0, knee, 1)
    paid = np.cumsum((share * weight) ** 2)
    fine = times(1, 1.0001, 20_000)
    return {
        "knee": knee,
        "ratio": ratio,
        "first": int(engine.first),
        "releases": len(times(int(engine.first), ratio, 1_000_000)),
        "paid_by": float(paid[np.searchsorted(at, 10_000)]),
        "paid": float(paid[-1]),
        # Right after a release, and right before the next one.
        "shipped": float(information(at, 2.0, knee)[-1] / at[-2] ** 2),
        "shipped_least": float(information(at, 2.0, knee)[-1] / at[-1] ** 2),
        "square": float(information(fine, 1.0, 0.0)[-1] / fine[-2] ** 2),
        "bound": {
            str(horizon): 0.25 * (1 + (1 + math.pi**2 / 6) / math.log(horizon))
            for horizon in (10_000, 1_000_000)
        },
        "worst": worst_triangle(),
        "curves": curves(knee, ratio, int(engine.first)),
    }


def curves(knee: float, ratio: float, first: int) -> dict[str, list[list[float]]]:
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
    for name, power, bend, begin in (("shipped", 2.0, knee, first), ("square", 1.0, 0.0, 1)):
        at = times(begin, ratio, 2 * ROUNDS)
        told = information(at, power, bend) / at[1:] ** 2.0  # right before the next release
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
    # The proof's sums as they are, before they are rounded up to logarithms.
    allowed = 0.25 * np.sum(1 / t + 1 / t**2) / math.log(rounds)
    return {"rounds": rounds, "found": best, "allowed": float(allowed)}


def contexts() -> dict[str, float]:
    """How far an item of `anytime-joint` can move: the package's s², and matrices multiplied out."""
    return {
        "s2_eighth": largest_move(1 / 8),
        "s2_quarter": largest_move(1 / 4),
        "tried_eighth": _move(1 / 8),
        "tried_quarter": _move(1 / 4),
        "person_s2": most_move(1 / 8, 1 / 8, persons=True),
    }


def _move(eta2: float) -> float:
    """The largest ‖Δa‖² + ‖Δg‖² over a grid of angles and residuals, c = ½ and s = 1."""
    most, ends = 0.0, np.linspace(-0.5, 0.5, 5)
    u = np.array([1.0, 0.0])
    for angle in np.linspace(0, math.pi, 721):
        v = np.array([math.cos(angle), math.sin(angle)])
        grams = eta2 * np.sum((np.outer(u, u) - np.outer(v, v)) ** 2)
        moved = max(float(np.sum((u * e - v * f) ** 2)) for e in ends for f in ends)
        most = max(most, moved + grams)
    return most


def scale() -> dict[str, float]:
    """The largest move of an item with the two numbers that ride along, over a grid of residuals."""
    a = np.linspace(-1, 1, 801)
    edge = np.maximum(2 * np.abs(a) - 1, 0)
    items = np.stack([a / 2, BY_DISTANCE * np.abs(a), AT_EDGE * edge])
    moves = np.sum((items[:, :, None] - items[:, None, :]) ** 2, axis=0)
    three = items[:, [0, 400]]
    return {
        "by_distance": BY_DISTANCE,
        "at_edge": AT_EDGE,
        "tried": float(moves.max()),
        "to_prediction": float(np.sum((three[:, 0] - three[:, 1]) ** 2)),
    }


def local() -> dict[str, float]:
    """The answers of blocks of features: digits at (1, 10⁻⁶)."""
    epsilon, delta = BUDGETS["c"]
    made: dict[str, Any] = {"dim": 90, "epsilon": epsilon, "delta": delta, "reward_range": (0, 1)}
    bandit = dpb.make("anytime", seed=0, **made)
    release: Any = bandit.release
    factor = RESPONSE.multiplier(epsilon, 1)
    alone = 2 * float(stats.norm.ppf(math.exp(epsilon) / (1 + math.exp(epsilon))))
    return {
        "dim": 90,
        "factor": factor,
        "ratio": (factor + 1) / (factor - 1) / math.exp(epsilon),
        "variance": factor**2 / 4,
        "rounds": release.local.rounds,
        "mu": mu_of(epsilon=epsilon, delta=delta),
        "alone": alone,
    }


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


def whole() -> dict[str, Any]:
    """What whole numbers cost: steps, and how far discrete noise is from a rounded Gaussian."""
    numbers = 13  # d = 10, a constant, and what rides along
    draws = numbers * most_releases(1.025)
    mu = mu_of(epsilon=2.0, delta=1e-5)
    return {
        "step_bits": -round(math.log2(STEP)),
        "releases": most_releases(1.025),
        "slack": rounding(1.025, numbers),
        "delta": lattice_slack(draws, 2.0, STEP * mu),
        "apart": [
            {"sigma": sigma, "exact": total_variation(sigma), "bound": 0.25 / sigma**2}
            for sigma in (1.0, 2.0, 8.0, 32.0)
        ],
    }


def total_variation(sigma: float) -> float:
    """Between a discrete Gaussian and a Gaussian rounded to whole numbers, σ in steps of the grid."""
    k = np.arange(-math.ceil(12 * sigma) - 2, math.ceil(12 * sigma) + 3)
    discrete = np.exp(-(k**2) / (2 * sigma**2))
    discrete /= discrete.sum()
    rounded = stats.norm.cdf((k + 0.5) / sigma) - stats.norm.cdf((k - 0.5) / sigma)
    return float(0.5 * np.abs(discrete - rounded).sum())
