"""The adversary's scores of many runs on either of two neighbouring streams: with the engine's loops, with the object as it
ships, and through `theta` alone. Runs are cut into blocks; which place does a block changes nothing.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit import spread
from dpbandit.auditing.joint_cost import Frozen
from dpbandit.auditing.kernels import learner_scores, log_ratio, paired_scores, release_scores
from dpbandit.auditing.releases import Release, Transcript, Watch
from dpbandit.bandits import registry, rounds
from dpbandit.noise import CODES, Real
from dpbandit.randomness import derive_key
from dpbandit.spread import Place, Task, Tell, Work

Scores = NDArray[np.float64]
Progress = Callable[[float], None]

LEAST_RUNS = 100  # a side, for a bound to be worth anything


def both_sides(
    work: Work[Scores], sides: tuple[Any, Any], runs: int, place: Place, say: Progress
) -> tuple[Scores, Scores]:
    """What `work` finds for runs 0, 1, … on either side. Ctrl-C leaves those that are finished, if they are enough."""
    edges = np.linspace(0, runs, min(runs, 16 * place.cores) + 1).astype(int)
    blocks = [range(int(a), int(b)) for a, b in pairwise(edges)]
    found: tuple[dict[int, Scores], dict[int, Scores]] = ({}, {})
    done, lock = 0, threading.Lock()

    def advance(_: int, amount: int) -> None:
        nonlocal done
        with lock:
            done += amount
            say(done / (2 * runs))

    # Side by side, so that an interruption leaves as many of both.
    tasks = [Task(side, block, len(block)) for block in blocks for side in sides]
    try:
        with closing(place.each(work, tasks, advance)) as results:
            for number, part in results:
                found[number % 2][number // 2] = part
    except KeyboardInterrupt:
        if min(sum(len(part) for part in side.values()) for side in found) < LEAST_RUNS:
            raise
    first, second = (np.concatenate([side[at] for at in sorted(side)]) for side in found)
    return first, second


# ------------------------------------------------------------------------------------------------------- the engine's loops


class Side(NamedTuple):
    """What all runs on one of the two streams have in common."""

    learner: Any
    plan: Any
    known: NDArray[np.bool_]
    key: np.uint64
    xs: Any
    rs: Scores
    other: Scores | None  # the other stream's rewards, where clean values depend on what was released before
    sign: int
    values0: Any
    values1: Any
    scales: Scores


def engine_scores(
    frozen: Frozen, positions: NDArray[np.int64], runs: int, seed: int, place: Place, say: Progress
) -> tuple[Scores, Scores]:
    """With simulated noise, in compiled loops."""
    xs1, rs1, values1 = frozen.neighbour(positions)
    bandit, paired = frozen.bandit, frozen.bandit.values_depend_on_releases

    def side(number: int, xs: Any, rs: Scores, other: Scores) -> Side:
        key = np.uint64(derive_key(seed, 100 + number))
        return Side(
            bandit.new_learner(),
            bandit.plan,
            frozen.known,
            key,
            frozen.xs if paired else xs,
            rs,
            other if paired else None,
            2 * number - 1,
            frozen.values,
            values1,
            frozen.scales,
        )

    sides = side(0, frozen.xs, frozen.rs, rs1), side(1, xs1, rs1, frozen.rs)
    return both_sides(_engine_block, sides, runs, place, say)


def _engine_block(side: Side, block: range, tell: Tell) -> Scores:
    learner, out = copy.deepcopy(side.learner), np.empty(len(block))
    noisy, x = np.empty_like(learner.pending), np.empty(side.xs.shape[1])
    played = (side.plan, side.xs, side.rs)
    if side.other is not None:
        twin = copy.deepcopy(side.learner)
        paired_scores(learner, twin, *played, side.other, side.known, side.key, block.start, out, noisy, x)
        out *= side.sign
    else:
        clean, size = (side.values0, side.values1, side.scales), 1 + len(x)
        work = np.empty((size, size))
        learner_scores(learner, *played, side.known, side.key, block.start, *clean, out, noisy, x, work)
    tell(len(block))
    return out


def scores_of_releases(
    noise: str, values0: Any, values1: Any, scales: Any, *, runs: int, seed: int = 0, workers: int | None = None
) -> tuple[Scores, Scores]:
    """Scores for a mechanism described by its releases: values under both streams, and noise scales.

    For mechanisms that are not among ours, such as deliberately broken ones.
    """
    v0, v1 = (np.ascontiguousarray(v, dtype=np.float64) for v in (values0, values1))
    scale = np.ascontiguousarray(scales, dtype=np.float64)

    def work(side: int, block: range, tell: Tell) -> Scores:
        out, key = np.empty(len(block)), np.uint64(derive_key(seed, 200 + side))
        value = (v0, v1)[side]
        release_scores(CODES[noise], key, block.start, value, v0, v1, scale, out, np.empty(v0.shape[1]))
        return out

    with spread.over(workers=workers) as place:
        return both_sides(work, (0, 1), runs, place, lambda done: None)


# -------------------------------------------------------------------------------------------------- the object as it ships


class Shipped(NamedTuple):
    """What all runs of the shipped object on one of the two streams have in common."""

    side: int
    name: str
    algorithm: registry.Algorithm
    given: dict[str, Any]
    streams: tuple[tuple[Any, Scores], tuple[Any, Scores]]
    users: list[str]
    published: list[int]
    values: tuple[Any, Any]
    scales: Scores


def real_scores(
    name: str,
    given: dict[str, Any],
    frozen: Frozen,
    positions: NDArray[np.int64],
    runs: int,
    place: Place,
    say: Progress,
) -> tuple[Scores, Scores]:
    """The shipped object, real noise, one fresh bandit per run."""
    users = ["target" if t in positions else f"other {t}" for t in range(len(frozen.xs))]
    private = frozen.bandit.plan.seat >= rounds.REWARD
    published = np.flatnonzero(private & (frozen.scales != rounds.NO_RELEASE)).tolist()
    xs1, rs1, values1 = frozen.neighbour(positions)
    streams, values = ((frozen.xs, frozen.rs), (xs1, rs1)), (frozen.values, values1)

    def shipped(side: int) -> Shipped:
        return Shipped(side, name, registry.find(name), given, streams, users, published, values, frozen.scales)

    return both_sides(_real_block, (shipped(0), shipped(1)), runs, place, say)


def _real_block(common: Shipped, block: range, tell: Tell) -> Scores:
    name, given, users, (values0, values1) = common.name, common.given, common.users, common.values
    registry.know({name: common.algorithm})
    out = np.empty(len(block))
    for run in range(len(block)):
        bandit = registry.construct(name, {**given, "seed": None})
        watch = Watch(bandit.source if isinstance(bandit.source, Real) else Real())
        bandit.source = watch
        code, score = bandit.plan.noise, 0.0
        for t, (x, reward) in enumerate(zip(*common.streams[common.side], strict=True)):
            bandit.update(x, float(reward), user=users[t])
            if bandit.plan.seat == rounds.NOTHING:
                score += log_ratio(code, bandit.theta, values0, values1, t, 0.0)
        made = watch.transcript.releases
        if bandit.values_depend_on_releases:
            # What the other stream's clean values would have been, given what was released here.
            twin = _told(name, given, watch.transcript, *common.streams[1 - common.side], users)
            for mine, theirs in zip(made, twin, strict=True):
                v0, v1 = (mine, theirs) if common.side == 0 else (theirs, mine)
                score += log_ratio(code, mine.noisy, v0.value[None], v1.value[None], 0, mine.scale)
        else:
            for at, release in zip(common.published, made, strict=True):
                score += log_ratio(code, release.noisy, values0, values1, at, common.scales[at])
        out[run] = score
        tell(1)
    return out


def _told(name: str, given: dict[str, Any], script: Transcript, xs: Any, rs: Scores, users: list[str]) -> list[Release]:
    """The releases of a bandit that learns this stream and is told the noisy values of another run."""
    bandit = registry.construct(name, {**given, "seed": 0})
    watch = Watch(script=script)
    bandit.source = watch
    for x, reward, user in zip(xs, rs, users, strict=True):
        bandit.update(x, float(reward), user=user)
    return watch.transcript.releases


# ---------------------------------------------------------------------------------------------------- through theta alone


class Stranger(NamedTuple):
    """What all runs of a user's own algorithm on one of the two streams have in common."""

    side: int
    name: str
    algorithm: registry.Algorithm
    given: dict[str, Any]
    xs: Any
    rs: Scores


def black_box_scores(
    name: str, given: dict[str, Any], xs: Any, runs: int, place: Place, say: Progress
) -> tuple[Scores, Scores]:
    """Scores for an algorithm of which only `theta` is known: a linear discriminant trained on the first half."""
    low, high = given.get("reward_range", (-1.0, 1.0))

    def stranger(side: int, first: float) -> Stranger:
        rs = np.full(len(xs), (low + high) / 2)
        rs[0] = first
        return Stranger(side, name, registry.find(name), given, xs, rs)

    sides = both_sides(_black_box_block, (stranger(0, low), stranger(1, high)), runs, place, say)
    direction = discriminant(*(side[: len(side) // 2] for side in sides))
    return sides[0] @ direction, sides[1] @ direction


def _black_box_block(common: Stranger, block: range, tell: Tell) -> Scores:
    registry.know({common.name: common.algorithm})
    rows = []
    for run in block:
        bandit = registry.construct(common.name, {**common.given, "seed": 2 * run + common.side})
        thetas = []
        for x, reward in zip(common.xs, common.rs, strict=True):
            bandit.update(x, float(reward))
            thetas.append(np.array(bandit.theta, dtype=np.float64))
        rows.append(np.concatenate(thetas))
        tell(1)
    return np.array(rows)


def discriminant(features0: Any, features1: Any) -> NDArray[np.float64]:
    """Fisher's linear discriminant with a little ridge: the trained statistic."""
    centred = np.concatenate([features0 - features0.mean(axis=0), features1 - features1.mean(axis=0)])
    covariance = centred.T @ centred / len(centred)
    ridge = 1e-9 + 1e-6 * np.trace(covariance) / len(covariance)
    difference = features1.mean(axis=0) - features0.mean(axis=0)
    return np.linalg.solve(covariance + ridge * np.eye(len(covariance)), difference)
