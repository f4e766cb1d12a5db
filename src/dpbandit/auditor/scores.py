"""The adversary's scores of many runs on either of two neighbouring streams: with the engine's
loops, with the object as it ships, and through `theta` alone. Runs are cut into blocks; which place
does a block changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit import spread
from dpbandit.algorithms import registry
from dpbandit.auditor.frozen import Frozen
from dpbandit.auditor.watch import Transcript, Watch
from dpbandit.codes import NO_RELEASE
from dpbandit.engine import Engine, has_core, new_engine
from dpbandit.privacy.grid import to_whole
from dpbandit.privacy.noise import Noise, find_noise
from dpbandit.reference.random import derive_key, lot
from dpbandit.spread import Place, Task, Tell, Work
from dpbandit.types import Matrix

Scores = NDArray[np.float64]
Progress = Callable[[float], None]

LEAST_RUNS = 100  # a side, for a bound to be worth anything
# Purposes of keys, apart from those of a bandit's own.
ENGINE_KEYS, RELEASE_KEYS = 100, 200


def both_sides(
    work: Work[Scores], sides: tuple[Any, Any], runs: int, place: Place, say: Progress
) -> tuple[Scores, Scores]:
    """What `work` finds for runs 0, 1, … on either side.

    Ctrl-C leaves those that are finished, if they are enough.
    """
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


# ---------------------------------------------------------------------------- the engine's loops


class Side(NamedTuple):
    """What all runs on one of the two streams have in common."""

    spec: dict[str, Any]
    backend: str
    streams: tuple[Matrix, Scores, Matrix, Scores]  # its own contexts and rewards, and the other's
    known: NDArray[np.bool_]
    key: int
    sign: int


def engine_scores(
    frozen: Frozen,
    positions: NDArray[np.int64],
    runs: int,
    seed: int,
    place: Place,
    say: Progress,
) -> tuple[Scores, Scores]:
    """With simulated noise, in the engine's loops: a twin learns the other stream and is told the
    same noisy values, so that the likelihood ratio of each transcript is known exactly."""
    bandit, other = frozen.bandit, frozen.neighbour(positions)
    both = (frozen.xs, frozen.rs), (other.xs, other.rs)

    def side(number: int) -> Side:
        streams = (*both[number], *both[1 - number])
        key = derive_key(seed, ENGINE_KEYS + number)
        return Side(bandit.spec, bandit.backend, streams, frozen.known, key, 2 * number - 1)

    return both_sides(_engine_block, (side(0), side(1)), runs, place, say)


def _engine_block(side: Side, block: range, tell: Tell) -> Scores:
    engine = new_engine(side.spec, side.backend)
    out = engine.scores(
        *side.streams, side.known, key=side.key, first=block.start, count=len(block)
    )
    tell(len(block))
    return out * side.sign


def scores_of_releases(
    noise: str | Noise,
    values0: Any,
    values1: Any,
    scales: Any,
    *,
    runs: int,
    seed: int = 0,
    workers: int | None = None,
) -> tuple[Scores, Scores]:
    """Scores for a mechanism described by its releases: values under both streams, and scales.

    For mechanisms that are not among ours, such as deliberately broken ones.
    """
    kind = noise if isinstance(noise, Noise) else find_noise(noise)
    v0 = np.ascontiguousarray(values0, dtype=np.float64)
    v1 = np.ascontiguousarray(values1, dtype=np.float64)
    scale = np.ascontiguousarray(scales, dtype=np.float64)
    draw = _in_core if kind.in_core and has_core() else _one_by_one

    def work(side: int, block: range, tell: Tell) -> Scores:
        key = derive_key(seed, RELEASE_KEYS + side)
        return draw(kind, (v0, v1)[side], v0, v1, scale, key, block)

    with spread.over(workers=workers) as place:
        return both_sides(work, (0, 1), runs, place, lambda done: None)


def _in_core(
    noise: Noise, value: Matrix, v0: Matrix, v1: Matrix, scales: Scores, key: int, runs: range
) -> Scores:
    from dpbandit import _core

    return _core.release_scores(noise.name, value, v0, v1, scales, key, runs.start, len(runs))


def _one_by_one(
    noise: Noise, value: Matrix, v0: Matrix, v1: Matrix, scales: Scores, key: int, runs: range
) -> Scores:
    """The same numbers, for noises that the core does not know."""
    out = np.zeros(len(runs))
    for n, run in enumerate(runs):
        own = lot(key, run, 0)
        for t, scale in enumerate(scales.tolist()):
            noisy = noise.simulate(own, t + 1, scale, value[t])
            out[n] += noise.log_ratio(noisy, v0[t], v1[t], scale)
    return out


# -------------------------------------------------------------------------- the object as it ships


class Shipped(NamedTuple):
    """What all runs of the shipped object on one of the two streams have in common."""

    name: str
    algorithm: registry.Algorithm
    given: dict[str, Any]
    streams: tuple[Matrix, Scores, Matrix, Scores]  # its own contexts and rewards, and the other's
    known: NDArray[np.bool_]
    users: list[str]
    sign: int


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
    other, algorithm = frozen.neighbour(positions), registry.find(name)
    both = (frozen.xs, frozen.rs), (other.xs, other.rs)

    def shipped(side: int) -> Shipped:
        streams = (*both[side], *both[1 - side])
        return Shipped(name, algorithm, given, streams, frozen.known, users, 2 * side - 1)

    return both_sides(_real_block, (shipped(0), shipped(1)), runs, place, say)


def _real_block(common: Shipped, block: range, tell: Tell) -> Scores:
    registry.know({common.name: common.algorithm})
    xs, rs, other_xs, other_rs = common.streams
    out = np.zeros(len(block))
    for run in range(len(block)):
        bandit = registry.construct(common.name, {**common.given, "seed": None})
        watch = Watch(bandit.source)
        bandit.source = watch
        thetas = []
        for x, reward, user in zip(xs, rs, common.users, strict=True):
            bandit.update(x, float(reward), user=user if bandit.counts_users else None)
            thetas.append(bandit.theta)
        # What the other stream's clean values would have been, given what was released here.
        twin = new_engine(bandit.spec, bandit.backend)
        values, other_thetas = _told(twin, watch.transcript, other_xs, other_rs, common.known)
        for made, value in zip(watch.transcript.releases, values, strict=True):
            out[run] += made.noise.log_ratio(made.noisy, value, made.value, made.scale)
        if bandit.design.in_the_clear:
            for own, other in zip(thetas, other_thetas, strict=True):
                out[run] += bandit.noise.log_ratio(own, other, own, 0.0)
        tell(1)
    return out * common.sign


def _told(
    engine: Engine, script: Transcript, xs: Matrix, rs: Scores, known: NDArray[np.bool_]
) -> tuple[list[Scores], list[Scores]]:
    """Clean values and θ of an engine that learns a stream and is told another run's noise."""
    values: list[Scores] = []
    thetas: list[Scores] = []
    starts = (noisy for _, noisy in script.starts)
    for x, reward, inside in zip(xs, rs, known, strict=True):
        for level in engine.starts():
            engine.begin(level, to_whole(next(starts)).tolist())
        if engine.prepare(x, float(reward), bool(inside)) != NO_RELEASE:
            values.append(engine.pending())
            engine.commit(script.releases[len(values) - 1].noisy)
        thetas.append(engine.theta())
    return values, thetas


# ---------------------------------------------------------------------------- through theta alone


class Stranger(NamedTuple):
    """What all runs of a user's own algorithm on one of the two streams have in common."""

    side: int
    name: str
    algorithm: registry.Algorithm
    given: dict[str, Any]
    xs: Matrix
    rs: Scores


def black_box_scores(
    name: str, given: dict[str, Any], xs: Matrix, runs: int, place: Place, say: Progress
) -> tuple[Scores, Scores]:
    """Scores for an algorithm of which only `theta` is known: a linear discriminant trained on the
    first half."""
    low, high = given.get("reward_range", (-1.0, 1.0))

    def stranger(side: int, first: float) -> Stranger:
        rs = np.full(len(xs), (low + high) / 2)
        rs[0] = first
        return Stranger(side, name, registry.find(name), given, xs, rs)

    both = (stranger(0, low), stranger(1, high))
    sides = both_sides(_black_box_block, both, runs, place, say)
    direction = discriminant(*(side[: len(side) // 2] for side in sides))
    return sides[0] @ direction, sides[1] @ direction


def _black_box_block(common: Stranger, block: range, tell: Tell) -> Scores:
    registry.know({common.name: common.algorithm})
    rows = []
    for run in block:
        seed = 2 * run + common.side
        bandit = registry.construct(common.name, {**common.given, "seed": seed})
        thetas = []
        for x, reward in zip(common.xs, common.rs, strict=True):
            bandit.update(x, float(reward))
            thetas.append(np.array(bandit.theta, dtype=np.float64))
        rows.append(np.concatenate(thetas))
        tell(1)
    return np.array(rows)


def discriminant(features0: Matrix, features1: Matrix) -> Scores:
    """Fisher's linear discriminant with a little ridge: the trained statistic."""
    means = features0.mean(axis=0), features1.mean(axis=0)
    centred = np.concatenate([features0 - means[0], features1 - means[1]])
    covariance = centred.T @ centred / len(centred)
    ridge = 1e-9 + 1e-6 * np.trace(covariance) / len(covariance)
    found: Scores = np.linalg.solve(
        covariance + ridge * np.eye(len(covariance)), means[1] - means[0]
    )
    return found
