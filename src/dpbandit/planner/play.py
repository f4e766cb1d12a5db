"""A prediction is a simulation: the real bandit with seeded noise, on problems from the prior.

All algorithms of a particle meet the same rounds. Engines of the core hold no lock of Python's, so
particles are played in threads; a bandit in plain Python is played step by step in this one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from dpbandit.bandit import Bandit
from dpbandit.engine import new_engine
from dpbandit.errors import DpbanditError
from dpbandit.planner.course import RATIO, Course, Matrix, Times, Vector, course_of, geometric_steps
from dpbandit.planner.problem import BLOCK, Problem
from dpbandit.reference.random import CONTEXTS, NOISE, START, TIES, derive_key

Tell = Callable[[float], None]


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """Raised in a thread whose result is no longer wanted."""


class Unplayable(DpbanditError):  # noqa: N818 - the bandit is, and nothing else went wrong
    """A bandit cannot be run on this problem; the message says why."""


def seed_of(problem: Problem, particle: int) -> int:
    """What a particle's bandit is seeded with."""
    return problem.seed * 100_003 + particle


def predict(
    make: Callable[[int], Any], problem: Problem, particles: int, rounds: int, tell: Tell
) -> Course:
    """Play one algorithm.

    Parameters
    ----------
    make : callable
        Makes the bandit of a seed.
    problem : Problem
        What is assumed.
    particles, rounds : int
        How much to play; what is missing to the problem's rounds is extrapolated.
    tell : callable
        Told which share is done.

    Raises
    ------
    Unplayable
        If the bandit cannot be run on this problem.
    """
    times = geometric_steps(rounds, RATIO)[1:]
    first = make(seed_of(problem, 0))
    if isinstance(first, Bandit):
        found = _in_threads(_Engines(first, problem, times), particles, tell)
    else:
        found = _step_by_step(first, make, problem, times, particles, tell)
    regrets, errors = (np.array([one[k] for one in found]) for k in (0, 1))
    return course_of(times, regrets, errors, problem.rounds)


class _Engines:
    """Plays the particles of one design, each on an engine of its own."""

    def __init__(self, bandit: Bandit, problem: Problem, times: Times) -> None:
        self.bandit, self.problem, self.times = bandit, problem, times
        self.pool = problem.contexts
        try:
            bandit.gate.check(self.pool)
        except DpbanditError as error:
            raise Unplayable(f"not with these contexts: {error}") from None
        self.known = bandit.in_public_set(self.pool)
        self.rounds = int(times[-1])
        # What theory says differs from round to round.
        count = self.rounds if isinstance(bandit.alpha, str) else 1
        self.alphas = bandit.alphas(1, count)

    def __call__(self, particle: int, tell: Callable[[int], None]) -> tuple[Vector, Vector]:
        """Regret and parameter error at the times."""
        keys = {
            k: derive_key(seed_of(self.problem, particle), k)
            for k in (NOISE, TIES, CONTEXTS, START)
        }
        spec = {**self.bandit.spec, "ties_key": keys[TIES], "contexts_key": keys[CONTEXTS]}
        engine: Any = new_engine(spec, self.bandit.backend)
        totals, rows, theta = np.zeros(2), [], self.problem.thetas[particle]
        for start in range(0, self.rounds, BLOCK):
            count = min(BLOCK, self.rounds - start)
            shown, means, rewards = self.problem.block(particle, start, count)
            inside = self.times[(self.times > start) & (self.times <= start + count)]
            out = engine.play(
                self.pool,
                shown,
                rewards,
                means,
                alphas=self.alphas[start : start + count] if len(self.alphas) > 1 else self.alphas,
                noise_key=keys[NOISE],
                start_key=keys[START],
                in_public_set=self.known,
                truth=theta,
                record=inside - start - 1,
                totals=totals,
            )
            if isinstance(out, int):
                raise Unplayable(f"the engine refused a round of the simulation (code {out})")
            rows.append(out)
            tell(count)
        table: Matrix = np.concatenate(rows)
        return np.ascontiguousarray(table[:, 1]), np.ascontiguousarray(table[:, 2])


def _in_threads(play: _Engines, particles: int, tell: Tell) -> list[tuple[Vector, Vector]]:
    """All particles, in order. The calling thread waits, tells, and can be interrupted."""
    stop, done, total = threading.Event(), [0] * particles, particles * play.rounds

    def one(particle: int) -> tuple[Vector, Vector]:
        def advance(count: int) -> None:
            done[particle] += count
            if stop.is_set():
                raise Stopped

        return play(particle, advance)

    with ThreadPoolExecutor(_cores()) as executor:
        futures = [executor.submit(one, particle) for particle in range(particles)]
        waiting: set[Future[tuple[Vector, Vector]]] = set(futures)
        try:
            while waiting:
                finished, waiting = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                tell(sum(done) / total)
        finally:
            stop.set()
            for future in waiting:
                future.cancel()
    return [future.result() for future in futures]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _step_by_step(
    first: Any,
    make: Callable[[int], Any],
    problem: Problem,
    times: Times,
    particles: int,
    tell: Tell,
) -> list[tuple[Vector, Vector]]:
    """A bandit with select and update, and theta if it has one."""
    missing = [name for name in ("select", "update") if not callable(getattr(first, name, None))]
    if missing:
        raise Unplayable(f"it has no {' and no '.join(missing)}, so it cannot be run")
    found = []
    for particle in range(particles):
        bandit = first if particle == 0 else make(seed_of(problem, particle))
        try:
            found.append(_one_by_one(bandit, problem, times, particle))
        except Exception as error:  # a user's code may raise anything, and the plan says what
            words = f"{type(error).__name__}: {error}"
            raise Unplayable(f"it failed when it was run: {words}") from error
        tell((particle + 1) / particles)
    return found


def _one_by_one(
    bandit: Any, problem: Problem, times: Times, particle: int
) -> tuple[Vector, Vector]:
    rounds, pool, theta = int(times[-1]), problem.contexts, problem.thetas[particle]
    regrets, errors, total = [], [], 0.0
    wanted = set(times.tolist())
    for start in range(0, rounds, BLOCK):
        count = min(BLOCK, rounds - start)
        shown, means, rewards = problem.block(particle, start, count)
        for n in range(count):
            slate = pool[shown[n]]
            arm = int(bandit.select(slate))
            if not 0 <= arm < len(slate):
                raise ValueError(f"select said {arm}, which is none of {len(slate)} arms")
            total += float(means[n].max() - means[n, arm])
            bandit.update(slate[arm], float(rewards[n, arm]))
            if start + n + 1 in wanted:
                known = getattr(bandit, "theta", None)
                off = np.nan if known is None else np.linalg.norm(np.asarray(known) - theta)
                regrets.append(total)
                errors.append(float(off))
    return np.array(regrets), np.array(errors)
