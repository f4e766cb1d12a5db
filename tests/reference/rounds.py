"""Specs of every algorithm in plain values, and worlds to play them in: for the reference alone
and beside the core.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

DIM, ARMS = 4, 5


class World(NamedTuple):
    """Rounds as tables, and what is known of the contexts in advance."""

    pool: np.ndarray
    shown: np.ndarray
    rewards: np.ndarray
    means: np.ndarray
    truth: np.ndarray
    public: np.ndarray  # no rows: nothing is known


def _world(
    pool: np.ndarray, shown: np.ndarray, truth: np.ndarray, public: np.ndarray, rng
) -> World:
    means = (pool @ truth)[shown]
    rewards = means + 0.3 * rng.normal(size=means.shape)  # some are outside [−1, 1] and are clipped
    return World(pool, shown, rewards, means, truth, public)


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _some(rng, rounds: int, pool: int) -> np.ndarray:
    return np.array([rng.choice(pool, ARMS, replace=False) for _ in range(rounds)], dtype=np.int64)


def synthetic(rounds: int) -> World:
    """Some of a known pool in each round."""
    rng = np.random.default_rng(1)
    pool, truth = _unit(rng.normal(size=(40, DIM))), _unit(rng.normal(size=(1, DIM)))[0]
    return _world(pool, _some(rng, rounds, 40), truth, pool, rng)


def one_hot(rounds: int) -> World:
    """Arms without features, all of them in every round."""
    rng = np.random.default_rng(2)
    pool, truth = np.eye(DIM), rng.uniform(-0.8, 0.8, size=DIM)
    return _world(pool, np.tile(np.arange(DIM, dtype=np.int64), (rounds, 1)), truth, pool, rng)


def drifting(rounds: int) -> World:
    """New contexts in every round, whose lengths and directions drift; nothing is known of them."""
    rng = np.random.default_rng(3)
    angles = np.linspace(0.0, 3.0, rounds)[:, None, None] + np.arange(DIM)
    rows = (rng.normal(size=(rounds, ARMS, DIM)) + 2.0 * np.cos(angles)).reshape(-1, DIM)
    pool = _unit(rows) * rng.uniform(0.2, 1.0, size=(len(rows), 1))
    shown = np.arange(rounds * ARMS, dtype=np.int64).reshape(rounds, ARMS)
    return _world(pool, shown, _unit(rng.normal(size=(1, DIM)))[0], np.empty((0, DIM)), rng)


def collinear(rounds: int) -> World:
    """Contexts on a plane, but for one part in a million."""
    rng = np.random.default_rng(4)
    flat = rng.normal(size=(30, 2)) @ rng.normal(size=(2, DIM)) + 1e-6 * rng.normal(size=(30, DIM))
    pool = _unit(flat)
    return _world(pool, _some(rng, rounds, 30), _unit(rng.normal(size=(1, DIM)))[0], pool, rng)


def blocks(rounds: int, until: int | None = None) -> World:
    """Two arms with features of their own; from round `until` on they share them."""
    rng = np.random.default_rng(5)
    rows = _unit(rng.normal(size=(rounds, DIM // 2)))
    pool = np.zeros((rounds, 2, DIM))
    pool[:, 0, : DIM // 2] = pool[:, 1, DIM // 2 :] = rows
    if until is not None:
        pool[until:] = pool[until:].sum(axis=1, keepdims=True) / 2
        pool[until:, 1] *= -1
    shown = np.arange(2 * rounds, dtype=np.int64).reshape(rounds, 2)
    truth = _unit(rng.normal(size=(1, DIM)))[0]
    return _world(pool.reshape(-1, DIM), shown, truth, np.empty((0, DIM)), rng)


WORLDS = {"synthetic": synthetic, "one-hot": one_hot, "drifting": drifting, "collinear": collinear}


def _levels(rounds: int) -> int:
    return rounds.bit_length()


def _gaussian(mu: float) -> np.ndarray:
    return np.sqrt(np.arange(63.0)) / mu


def _laplace(epsilon: float) -> np.ndarray:
    return np.arange(63.0) / epsilon


def common(rounds: int, **given: Any) -> dict[str, Any]:
    """What every spec has."""
    return {
        "policy": "ucb",
        "noise": "gaussian",
        "dim": DIM,
        "max_norm": 1.0,
        "l1_limit": float("inf"),
        "one_hot": False,
        "low": -1.0,
        "high": 1.0,
        "clips": True,
        "horizon": rounds,
        "alpha": 0.3,
        "ties_key": 11,
        "context_noise": 0.0,
        "holdout": 0.0,
        "contexts_key": 12,
        **given,
    }


def ridge(rounds: int, **given: Any) -> dict[str, Any]:
    """A ridge regression."""
    noise = given.get("noise", "gaussian")
    unknown = given.get("horizon", rounds) == 0
    return {
        **common(rounds),
        "learner": "ridge",
        "site": "moments",
        "release": "tree",
        "ridge": 1.0,
        "levels": 62 if unknown else _levels(rounds),
        "unknown_horizon": unknown,
        "sensitivity": 2.0 if noise == "laplace" else 1.0,
        "multipliers": _gaussian(2.0) if noise == "gaussian" else _laplace(4.0),
        "growth": math.inf,
        "shape": np.empty((0, 0)),
        "unshape": np.empty((0, 0)),
        "floor": 0.0,
        "public_arms": np.empty((0, DIM)),
        "rates": np.empty(0),
        "weights": np.empty(0),
        "form": "simplified",
        "smallest_eigenvalue": 0.2,
        "lemma_delta": 0.1,
        "printed_index": False,
        "forget": 1.0,
        **given,
    }


def _second_of(pool: Any) -> Any:
    longer = np.column_stack([pool, np.ones(len(pool))])
    return longer.T @ longer / len(longer)


def algorithms(rounds: int, world: World) -> dict[str, dict[str, Any]]:
    """The spec of every algorithm that can be played in this world."""
    known = {"public_arms": world.public}
    found = {
        "random": {**common(rounds), "learner": "none", "policy": "uniform"},
        "linucb": ridge(rounds, site="nothing", release="once"),
        "private-linucb": ridge(rounds, noise="laplace"),
        "private-linucb-published": ridge(rounds, noise="laplace", sensitivity=0.5),
        "tree-gauss": ridge(rounds),
        "toeplitz": ridge(rounds, release="toeplitz", **_decays()),
        "adac-oful": ridge(rounds, release="episodes", growth=math.log(2.0)),
        "private-ts": ridge(rounds, policy="thompson", noise="laplace"),
        "local": ridge(rounds, site="reward", release="once", noise="laplace", sensitivity=1.0),
        "dgs": ridge(rounds, site="own", sensitivity=2.0, **known),
        "dgs-published": ridge(rounds, site="increment", noise="laplace", sensitivity=2.0),
        "dgs-figure": ridge(rounds, site="increment", noise="laplace", form="figure"),
        "anytime": anytime(rounds, public_contexts=world.public),
        "joint": joint(rounds),
        "anytime-joint": pair(rounds),
    }
    if len(world.pool) == DIM:
        found["private-ucb"] = arms(rounds, noise="laplace")
        found["dp-klucb"] = batches(rounds, noise="laplace")
    return found


def variants(rounds: int, world: World) -> dict[str, dict[str, Any]]:
    """The other forms of the algorithms: each branch of the engine is in one of them or above."""
    second = world.pool.T @ world.pool / len(world.pool)
    values, vectors = np.linalg.eigh(second)
    roots = np.sqrt(np.maximum(values, 0.0) + 1e-4 * values.mean())
    shape = {
        "shape": np.ascontiguousarray(vectors / roots @ vectors.T),
        "unshape": np.ascontiguousarray(vectors * roots @ vectors.T),
    }
    known, ahead = {"public_arms": world.public}, {"horizon": 0}
    rewards = {"low": 0.25, "high": 1.0}
    found = {
        "linucb, thompson": ridge(rounds, site="nothing", release="once", policy="thompson"),
        "linucb, unclipped": ridge(rounds, site="nothing", release="once", clips=False),
        "linucb, forgetting": ridge(rounds, site="nothing", release="once", forget=0.97),
        "linucb, perturbed contexts": ridge(
            rounds, site="nothing", release="once", context_noise=0.3
        ),
        "tree, no horizon": ridge(rounds, **ahead),
        "tree, uncentred rewards": ridge(rounds, **rewards),
        "tree, laplace-l2": ridge(rounds, noise="laplace-l2"),
        "tree, shaped": ridge(rounds, **shape),
        "tree, shaped with a floor": ridge(rounds, floor=3.0, **rewards, **shape),
        "tree, centred bonus": ridge(rounds, policy="centred-ucb"),
        "honaker": ridge(rounds, release="honaker"),
        "pan-private": ridge(rounds, release="pan-private"),
        "pan-private, no horizon": ridge(rounds, release="pan-private", noise="laplace", **ahead),
        "toeplitz, uncentred rewards": ridge(rounds, release="toeplitz", **_decays(), **rewards),
        "episodes, shaped": ridge(rounds, release="episodes", growth=1.0, **rewards, **shape),
        "anytime-joint, persons": pair(rounds, reach=1.5, persons=True),
        "anytime-joint, a public start": pair(rounds, known_second=_second_of(world.pool)),
        "local, gaussian": ridge(rounds, site="reward", release="once", **rewards),
        "dgs, ball": ridge(rounds, site="own", sensitivity=2.0),
        "dgs, laplace": ridge(rounds, site="own", sensitivity=2.0, noise="laplace", **known),
        "dgs, laplace, ball": ridge(rounds, site="own", sensitivity=2.0, noise="laplace"),
        "dgs, no horizon": ridge(rounds, site="own", sensitivity=2.0, **known, **ahead, **rewards),
        "dgs-published, full": ridge(rounds, site="increment", form="full", **ahead),
        "dgs-figure, printed index": ridge(
            rounds, site="increment", form="figure", printed_index=True
        ),
        "anytime, contexts unknown": anytime(rounds),
        "anytime, plain": anytime(rounds, **PLAIN, public_contexts=world.public),
        "anytime, other rewards": anytime(rounds, window=0.3, **rewards),
        "anytime, clicks": anytime(rounds, **CLICKS, public_contexts=world.public),
        "anytime, clicks, contexts unknown": anytime(rounds, **CLICKS),
        # The window opens: hardly a residual is in it.
        "anytime, all at the edge": anytime(rounds, scale=0.05, window=1e-4, widest=2e-4),
        "anytime, little noise": anytime(
            rounds,
            scale=0.3,
            knee=9.0,
            low=-3.0,
            high=5.0,
            window=3.0,
            public_contexts=world.public,
        ),
        "anytime, one memory": anytime(
            rounds, memories=np.array([40.0]), memory_alone=True, life=40.0
        ),
        "anytime, local first": anytime(rounds, **LOCAL, local_anyhow=True),
        "anytime, local in blocks": anytime(rounds, **LOCAL),
        "anytime, thompson": anytime(rounds, policy="thompson"),
        "anytime, sampled": anytime(rounds, policy="sampled", neglected=False, alpha=0.8),
        "anytime, a holdout": anytime(rounds, holdout=0.2),
        "pair, sampled": pair(rounds, policy="sampled"),
        "joint, no horizon": joint(rounds, **ahead),
        "pair, one whitener": pair(rounds, versions=1, low=0.25, high=1.0, window=0.3),
        "joint, wishart": joint(rounds, noise="wishart", multipliers=np.full(63, 60.0)),
        "joint, eigenvalues raised": joint(rounds, shift=0.0),
    }
    if len(world.pool) == DIM:
        found |= {
            "arms, gaussian": arms(rounds),
            "arms, published term": arms(rounds, noise="laplace", published_term=True),
            "arms, no horizon": arms(rounds, **ahead),
            "arms, a holdout": arms(rounds, holdout=0.2),
            "batches, a holdout": batches(rounds, holdout=0.2),
            "arms, published, no horizon": arms(rounds, published_term=True, **ahead),
            "batches, gaussian": batches(rounds, **rewards),
            "batches, no horizon": batches(rounds, noise="laplace", scale=0.01, **ahead),
            "batches, a variance": batches(rounds, noise="laplace", reward_variance=0.05),
        }
    return found


def _decays() -> dict[str, np.ndarray]:
    return {
        "rates": np.array([0.7, 0.15, 0.02, 0.001]),
        "weights": np.array([0.2, 0.15, 0.08, 0.03]),
    }


CLICKS = {"rewards": "clicks", "find_scale": False, "low": 0.0, "high": 0.5, "window": 0.25}
# One hypothesis, one prior, one sum for ever.
PLAIN = {
    "empirical_bayes": False,
    "life": np.inf,
    "memories": np.empty(0),
    "memory_alone": False,
    "neglected": False,
    "find_scale": False,
}


LOCAL = {"local": 60, "local_scale": 2.2, "local_variance": 2.7}


def anytime(rounds: int, **given: Any) -> dict[str, Any]:
    """The anytime bandit."""
    own = {
        "scale": 1.5,
        "window": 0.75,
        "knee": 60.0,
        "ratio": 1.025,
        "first": 3,
        "reward_variance": 0.25,
        "rewards": "numbers",
        "empirical_bayes": True,
        "life": 50.0,  # generations end within the rounds of a test
        "memories": np.array([300.0, 40.0]),
        "memory_alone": False,
        "neglected": True,
        "find_scale": True,
        "widest": given.get("window", 0.75),
        "local": 0,
        "local_anyhow": False,
        "local_scale": 1.0,
        "local_variance": 1.0,
        "public_contexts": np.empty((0, DIM)),
    }
    return {**common(0), "learner": "filter", "policy": "centred-ucb", **own, **given}


def pair(rounds: int, **given: Any) -> dict[str, Any]:
    """The anytime bandit with private contexts."""
    own = {
        "scale": 1.5,
        "window": 0.75,
        "knee": 60.0,
        "ratio": 1.025,
        "first": 5,
        "change": 11,
        "growth": 3.0,
        "versions": 8,
        "first_eta2": 0.25,
        "later_eta2": 0.125,
        "reward_variance": 0.25,
        "known_second": np.empty((0, 0)),
        "reach": 0.75,
        "persons": False,
    }
    return {**common(0), "learner": "pair", "policy": "thompson", **own, **given}


def joint(rounds: int, **given: Any) -> dict[str, Any]:
    """Contexts private too."""
    unknown = given.get("horizon", rounds) == 0
    own = {
        "levels": 62 if unknown else _levels(rounds),
        "unknown_horizon": unknown,
        "sensitivity": 1.0 if given.get("noise") == "wishart" else math.sqrt(2.0),
        "multipliers": _gaussian(2.0),
        "size": 2.0,
        "reward_weight": 1.0,
        "reward_centre": 0.0,
        "ridge": 1.0,
        "shift": 2.0,
        "log_rounds": math.log(4.0 * (1 if unknown else rounds) / 0.05),
    }
    return {**common(rounds), "learner": "joint", **own, **given}


def arms(rounds: int, **given: Any) -> dict[str, Any]:
    """Arms without features."""
    unknown = given.get("horizon", rounds) == 0
    noise = given.get("noise", "gaussian")
    own = {
        "levels": 62 if unknown else _levels(rounds),
        "unknown_horizon": unknown,
        "sensitivity": 1.0,
        "multipliers": _gaussian(2.0) if noise == "gaussian" else _laplace(4.0),
        "published_term": False,
        "privacy_bonus": 0.75,
        "failure": 0.05,
    }
    return {**common(rounds, one_hot=True), "learner": "arms", "policy": "index", **own, **given}


def batches(rounds: int, **given: Any) -> dict[str, Any]:
    """Arms without features, in batches."""
    own = {"scale": 0.5, "first": 2, "ratio": 1.3, "reward_variance": 0.0}
    usual = {"learner": "batches", "policy": "index", "alpha": 1.0}
    return {**common(rounds, one_hot=True), **usual, **own, **given}
