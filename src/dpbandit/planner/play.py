"""A prediction is a simulation: the real bandit with seeded noise, on problems from the prior.

All algorithms of a particle meet the same rounds, as those of a seed do in `dpb.run`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from dpbandit import spread
from dpbandit.bandit import Bandit
from dpbandit.errors import DpbanditError
from dpbandit.planner.course import RATIO, Course, Times, course_of, geometric_steps
from dpbandit.planner.problem import BLOCK, Problem
from dpbandit.planner.visits import EVERYTHING, Learned
from dpbandit.simulate.players import player_of
from dpbandit.spread import Task
from dpbandit.types import Vector
from dpbandit.worlds.block import Block


class Unplayable(DpbanditError):  # noqa: N818 - the bandit is, and nothing else went wrong
    """A bandit cannot be run on this problem; the message says why."""


class Game(NamedTuple):
    """The settings shared by the particles of one algorithm."""

    make: Callable[[int], Any]  # the bandit of a seed
    problem: Problem
    times: Times  # when regret and error are recorded; the last one ends the game
    learned: Learned


def seed_of(problem: Problem, particle: int) -> int:
    """The seed of a particle's bandit."""
    return problem.seed * 100_003 + particle


def predict(
    make: Callable[[int], Any],
    problem: Problem,
    particles: int,
    rounds: int,
    tell: Callable[[float], None],
    learned: Learned = EVERYTHING,
) -> Course:
    """Play one algorithm, and extrapolate to the problem's rounds.

    `make` makes the bandit of a seed; `tell` gets the share done. A bandit that cannot run on this
    problem raises Unplayable.

    Only rounds that are learned from are played. Their cost stands for the rounds around them, in
    which the same model picks. Of clicks, a random share is kept, as large as the cap leaves: whom
    the cap has silenced does not depend on what is shown next.
    """
    asked, all_rounds = rounds, problem.rounds
    part = float(learned.rounds_learned(np.array([asked / all_rounds]))[0])
    rounds = max(1, round(part * all_rounds))
    game = Game(make, problem, geometric_steps(rounds, RATIO)[1:], learned)
    advance = spread.adding_up(lambda done: tell(done / (particles * rounds)))
    with spread.over() as place:
        ours = type(make(seed_of(problem, 0))) is Bandit
        tasks = [Task(game, particle, rounds) for particle in range(particles)]
        where = place if ours else place.for_python
        with closing(where.stream(_play, tasks, lambda _, count: advance(count))) as found:
            played = list(found)
    regrets, errors = (np.array([one[which] for one in played]) for which in (0, 1))
    if rounds == asked:
        return course_of(game.times, regrets, errors, all_rounds)
    times = learned.rounds_over(game.times / all_rounds) * all_rounds
    times = np.maximum(np.ceil(times * (asked / times[-1])).astype(np.int64), game.times)
    times[-1] = asked
    longer = np.diff(times, prepend=0) / np.diff(game.times, prepend=0)
    stretched = np.cumsum(np.diff(regrets, prepend=0.0) * longer, axis=1)
    return course_of(times, stretched, errors, all_rounds)


def _play(game: Game, particle: int, tell: Callable[[int], None]) -> tuple[Vector, Vector]:
    """A task: regret and parameter error of one particle at the times."""
    make, problem, times, learned = game
    bandit = make(seed_of(problem, particle))
    missing = [name for name in ("select", "update") if not callable(getattr(bandit, name, None))]
    if missing:
        raise Unplayable(f"it has no {' and no '.join(missing)}, so it cannot be run")
    truth = problem.thetas[particle] if problem.bases is None else None
    player = player_of("it", bandit, SimpleNamespace(theta=truth), times)
    rounds, pool = int(times[-1]), problem.contexts
    for start in range(0, rounds, BLOCK):
        count = min(BLOCK, rounds - start)
        shown, means, rewards = problem.block(particle, start, count)
        if learned.clicks < 1:
            lots = np.random.default_rng([problem.seed, 3, particle, start]).random(count)
            now = np.arange(start, start + count) / problem.rounds
            rewards = rewards * (lots < learned.clicks_at(now))[:, None]
        try:
            player.play(Block(pool, shown, rewards, means), start)
        except Exception as error:
            if type(bandit) is not Bandit:  # a user's code may raise anything
                words = f"it failed when it was run: {type(error).__name__}: {error}"
                raise Unplayable(words) from error
            if isinstance(error, DpbanditError):
                raise Unplayable(f"not with these contexts: {error}") from None
            raise
        tell(count)
    recorded = player.columns()
    return recorded["regret"], recorded["theta_error"]
