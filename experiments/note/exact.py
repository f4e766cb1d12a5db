"""What is computed: joint costs, and the moves that lemmas bound, by brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import dpbandit as dpb
from dpbandit.algorithms.anytime_joint import GROWTH
from dpbandit.budget import mu_of
from dpbandit.design import DEFAULT_ALPHA
from dpbandit.learners.scale import AT_EDGE, BY_DISTANCE
from dpbandit.privacy.grid import STEP, lattice_slack
from dpbandit.privacy.noise import RESPONSE
from dpbandit.privacy.sensitivity import estimate_bounds
from dpbandit.release.anytime import most_releases, rounding
from dpbandit.release.pair import largest_move, most_move
from dpbandit.release.tree import levels_for
from experiments.note.release import anytime, clicks, nodes

Vector = NDArray[np.float64]
HORIZONS = (1_000, 10_000, 100_000, 1_000_000)
BUDGETS = {"a": (2.0, 1e-5), "b": (2.0, 0.1), "c": (1.0, 1e-6)}


def everything() -> dict[str, Any]:
    """All of it: a second or two."""
    return {
        "version": dpb.__version__,
        "budgets": {
            key: {"epsilon": epsilon, "delta": delta, "mu": mu_of(epsilon=epsilon, delta=delta)}
            for key, (epsilon, delta) in BUDGETS.items()
        },
        "simulation": simulation(),
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


def simulation() -> dict[str, float]:
    world = dpb.worlds.Synthetic()
    return {"dim": world.dim, "arms": world.pool_size, "shown": world.arms, "alpha": DEFAULT_ALPHA}


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


def contexts() -> dict[str, float]:
    """How far an item of `anytime-joint` can move: the package's s², and matrices multiplied out."""
    return {
        "s2_eighth": largest_move(1 / 8),
        "s2_quarter": largest_move(1 / 4),
        "tried_eighth": _move(1 / 8),
        "tried_quarter": _move(1 / 4),
        "growth": GROWTH,
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
