"""Loops over rounds, for simulations and audits: the same rounds as one by one, in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.codes import HORIZON, LEARNED, NO_RELEASE
from dpbandit.reference.random import lot

if TYPE_CHECKING:
    from dpbandit.reference.engine import Engine

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
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
    """Play a block of rounds: choose, be paid, learn.

    Parameters
    ----------
    pool : array of shape (n, dim)
        Contexts.
    shown : array of shape (rounds, arms)
        For each round, the rows of the pool that are its arms.
    rewards, means : arrays of shape (rounds, arms)
        What each arm pays, and what it pays on average.
    alphas : float, or array of shape (rounds,)
        The width of the bonus.
    noise_key, start_key : int
        Of the noise, and of the noise that pan-private nodes begin with.
    in_public_set : array of shape (n,), optional
        Whether each row of the pool is one of the contexts that the noise was scaled for; all are
        if it is left out.
    truth : array of shape (dim,), optional
        What θ should be.
    record : array of int
        Rounds of this block, ascending, after which a row is returned.
    totals : array of shape (2,)
        Reward and regret so far; carried from block to block.
    arms : array of shape (rounds,), optional
        Where the arm played in each round is written to.

    Returns
    -------
    array of shape (len(record), 3), or int
        Reward, regret and ‖θ − truth‖ (NaN without a truth) after those rounds; or the code with
        which the block is refused. Nothing was played then.
    """
    code = _code(engine, pool, rewards.ravel(), len(shown))
    if code != LEARNED:
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
    """Learn a stream from the start: the noisy numbers, the clean numbers and the noise scale of
    every release.

    With `noisy`, an earlier run's, those are what is released: this is what a neighbouring stream
    looks like to someone who saw that run. In the clear, θ is what is released, at scale 0.
    """
    _refuse(engine, xs, rs, 0)
    runner = engine.copy()
    runner.reset()
    forced, size = noisy is not None, runner._learner.pending_size
    told = np.zeros((len(rs), size)) if noisy is None else noisy
    values, scales = np.zeros((len(rs), size)), np.zeros(len(rs))
    for t in range(len(rs)):
        runner.begin_simulated(start_key)
        known = in_public_set is None or bool(in_public_set[t])
        scales[t] = runner._prepare(xs[t], float(rs[t]), known)
        if runner._learner.in_the_clear:
            values[t], scales[t] = runner._learner.theta, 0.0
        elif scales[t] != NO_RELEASE:
            values[t] = runner.pending()
            if not forced:
                told[t] = runner._noise.simulate(noise_key, t + 1, float(scales[t]), values[t])
            runner.commit(told[t])
    return told, values, scales


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
    """log p(what was released | this stream) − log p(the same | the other one), for runs first,
    first + 1, …

    A twin learns the other stream and is told the same noisy numbers, so both clean values are
    known for the run at hand.
    """
    _refuse(engine, xs, rs, 0)
    _refuse(engine, other_xs, other_rs, 0)
    out = np.zeros(count)
    for n in range(count):
        run = first + n
        noise_key, start_key = lot(key, 2 * run, 0), lot(key, 2 * run + 1, 0)
        own, twin = engine.copy(), engine.copy()
        own.reset()
        twin.reset()
        for t in range(len(rs)):
            own.begin_simulated(start_key)
            twin.begin_simulated(start_key)
            known = in_public_set is None or bool(in_public_set[t])
            scale = own._prepare(xs[t], float(rs[t]), known)
            twin_scale = twin._prepare(other_xs[t], float(other_rs[t]), known)
            if own._learner.in_the_clear:
                shown = own._learner.theta
                out[n] += own._noise.log_ratio(shown, twin._learner.theta, shown, 0.0)
                continue
            if (scale == NO_RELEASE) != (twin_scale == NO_RELEASE):
                raise ValueError(
                    "the two streams release in different rounds: contexts must be the same"
                )
            if scale == NO_RELEASE:
                continue
            told = own._noise.simulate(noise_key, t + 1, scale, own.pending())
            out[n] += own._noise.log_ratio(told, twin.pending(), own.pending(), scale)
            own.commit(told)
            twin.commit(told)
    return out


def _code(engine: Engine, contexts: Matrix, rewards: Vector, more: int) -> int:
    """LEARNED, or the code with which these contexts, rewards or rounds are refused."""
    code = engine._gate.admit(contexts) or engine._gate.admit_rewards(rewards)
    if code == LEARNED and engine.rounds + more > engine.most_rounds:
        code = HORIZON
    return code


def _refuse(engine: Engine, contexts: Matrix, rewards: Vector, more: int) -> None:
    """ValueError with the code where a context or a reward is not allowed."""
    code = _code(engine, contexts, rewards, more)
    if code != LEARNED:
        raise ValueError(f"contexts or rewards are not admitted: code {code}")
