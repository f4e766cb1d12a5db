"""Loops over rounds, for simulations and audits: the same rounds as one by one, in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit import codes
from dpbandit.privacy.noise import Noise
from dpbandit.reference.random import lot
from dpbandit.types import Matrix, Vector

if TYPE_CHECKING:
    from dpbandit.reference.engine import Engine

Known = NDArray[np.bool_] | None  # None: all contexts are


def play(
    engine: Engine,
    pool: Matrix,
    shown: NDArray[np.int64],
    rewards: Matrix,
    means: Matrix,
    *,
    alphas: ArrayLike,
    noise_key: int,
    start_key: int,
    in_public_set: Known = None,
    truth: Vector | None = None,
    record: NDArray[np.int64],
    totals: Vector,
    arms: NDArray[np.int64] | None = None,
) -> Matrix | int:
    """Play a block of rounds: choose, be paid, learn. Or say the code with which all are refused.

    `shown` has the rows of the pool that are the arms of each round; `rewards` and `means` what
    each of them pays, and pays on average. `totals`, reward and regret so far, are carried from
    block to block; `arms`, where given, takes the arm of each round. After the rounds in `record`,
    ascending: reward, regret and ‖θ − truth‖, NaN without a truth.
    """
    code = _code(engine, pool, rewards.ravel(), len(shown))
    if code != codes.LEARNED:
        return code
    widths = np.broadcast_to(np.asarray(alphas, dtype=np.float64), len(shown))
    wanted, out = {int(n): row for row, n in enumerate(record)}, np.zeros((len(record), 3))
    for n, rows in enumerate(shown):
        offered = engine._as_scored(pool[rows], engine.decisions)
        arm = engine._choose(offered, float(widths[n]), 1)[0]
        if arms is not None:
            arms[n] = arm
        totals[0] += rewards[n, arm]
        totals[1] += means[n].max() - means[n, arm]
        known = in_public_set is None or bool(in_public_set[rows[arm]])
        engine._simulate(offered[arm], float(rewards[n, arm]), known, noise_key, start_key)
        if n in wanted:
            off = np.nan if truth is None else np.linalg.norm(engine.theta() - truth)
            out[wanted[n]] = (*totals, off)
    return out


def trace(
    engine: Engine,
    xs: Matrix,
    rs: Vector,
    in_public_set: Known = None,
    *,
    noise_key: int,
    start_key: int,
    noisy: Matrix | None = None,
) -> tuple[Matrix, Matrix, Vector]:
    """Learn a stream from the start: noisy numbers, clean numbers and noise scale of every release.

    With `noisy`, an earlier run's, those are what is released: this is what a neighbouring stream
    looks like to someone who saw that run. In the clear, θ is what is released, at scale 0. A release of
    fewer numbers than others leaves zeros.
    """
    return _trace(engine, xs, rs, in_public_set, noise_key, start_key, noisy)[:3]


def _trace(
    engine: Engine,
    xs: Matrix,
    rs: Vector,
    in_public_set: Known,
    noise_key: int,
    start_key: int,
    noisy: Matrix | None = None,
) -> tuple[Matrix, Matrix, Vector, list[Noise]]:
    """The same, and the noise of every round's release."""
    code = _code(engine, xs, rs, 0)
    if code != codes.LEARNED:
        raise ValueError(f"contexts or rewards are not admitted: code {code}")
    runner = engine.copy()
    runner.reset()
    forced, size = noisy is not None, runner._learner.pending_size
    told = np.zeros((len(rs), size)) if noisy is None else noisy
    values, scales = np.zeros((len(rs), size)), np.zeros(len(rs))
    noises = [runner._noise] * len(rs)
    for t in range(len(rs)):
        runner.begin_simulated(start_key)
        known = in_public_set is None or bool(in_public_set[t])
        scales[t] = runner._prepare(xs[t], float(rs[t]), known)
        if runner._learner.in_the_clear:
            values[t], scales[t] = runner._learner.theta, 0.0
        elif scales[t] != codes.NO_RELEASE:
            clean, noises[t] = runner.pending(), runner.noise_now
            count = len(clean)
            values[t, :count] = clean
            if not forced:
                told[t, :count] = noises[t].simulate(noise_key, t + 1, float(scales[t]), clean)
            runner.commit(told[t, :count])
    return told, values, scales, noises


def scores(
    engine: Engine,
    xs: Matrix,
    rs: Vector,
    other_xs: Matrix,
    other_rs: Vector,
    in_public_set: Known = None,
    *,
    key: int,
    first: int,
    count: int,
) -> Vector:
    """log p(what was released | this stream) − log p(it | the other one), of runs from `first` on.

    The other stream is learned with the same noisy numbers, so both clean values are known.
    """
    out = np.zeros(count)
    for n in range(count):
        run = 2 * (first + n)
        keys = lot(key, run, 0), lot(key, run + 1, 0)
        told, values, scales, noises = _trace(engine, xs, rs, in_public_set, *keys)
        other = _trace(engine, other_xs, other_rs, in_public_set, *keys, told)
        if ((scales == codes.NO_RELEASE) != (other[2] == codes.NO_RELEASE)).any():
            raise ValueError(
                "the two streams release in different rounds: contexts must be the same"
            )
        seen = values if engine._learner.in_the_clear else told
        for t in np.flatnonzero(scales != codes.NO_RELEASE):
            out[n] += noises[t].log_ratio(seen[t], other[1][t], values[t], float(scales[t]))
    return out


def _code(engine: Engine, contexts: Matrix, rewards: Vector, more: int) -> int:
    """LEARNED, or the code with which these contexts, rewards or rounds are refused."""
    code = engine._gate.admit(contexts) or engine._gate.admit_rewards(rewards)
    if code == codes.LEARNED and engine.rounds + more > engine.most_rounds:
        code = codes.HORIZON
    return code
