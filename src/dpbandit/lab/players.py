"""One algorithm on one seed: how a block of rounds is played, and what is recorded of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandits import registry
from dpbandit.bandits.linear import LinearBandit, is_compiled
from dpbandit.errors import NotFiniteError, OptionError
from dpbandit.lab.loops import all_finite, longest_square, play
from dpbandit.randomness import CONTEXTS, START, TIES
from dpbandit.scoring import new_work
from dpbandit.worlds.block import Block, World

Job = tuple[str, str, dict[str, Any]]  # label, algorithm, options


def new_player(job: Job, world: World, episode: Any, seed: int, horizon: int, rounds: NDArray[np.int64]) -> Player:
    label, name, options = job

    def make(user: int) -> Any:
        # Each user's bandit has noise of its own; −1 stands for the bandit that all users share.
        return new_bandit(name, options, world, episode, seed if user < 0 else (seed + 1) * 1_000_003 + user, horizon)

    if getattr(world, "per_user", False):
        return _PerUser(label, make, episode, rounds)
    bandit = make(-1)
    # A user's subclass may choose or learn in its own way: then its methods are called.
    kind = _Compiled if is_compiled(bandit) else _StepByStep
    return kind(label, bandit, episode, rounds)


def new_bandit(name: str, options: dict[str, Any], world: World, episode: Any, seed: int, horizon: int) -> Any:
    public = getattr(episode, "public_contexts", None)
    if public is None:
        public = getattr(world, "public_contexts", None)
    # public_contexts=None among the options means: as if none were known.
    given = {"horizon": horizon, "dim": world.dim, "public_contexts": public, **options}
    return registry.construct(name, {**given, "seed": seed})


class Player(ABC):
    """One algorithm on one seed, and what has been recorded of it."""

    def __init__(self, label: str, bandit: Any, episode: Any, rounds: NDArray[np.int64]) -> None:
        self.label, self.bandit, self.rounds = label, bandit, rounds
        truth = getattr(episode, "theta", None)
        self.truth = np.full(0, np.nan) if truth is None else np.ascontiguousarray(truth, dtype=np.float64)
        self.checked: NDArray[np.float64] | None = None
        self.pool = np.empty((0, 0))
        self.known = np.ones(0, dtype=np.bool_)
        self.totals = np.zeros(2)
        self.recorded: list[NDArray[np.float64]] = []

    def due(self, start: int, count: int) -> NDArray[np.int64]:
        """Which rounds of this block are recorded, counted from its start."""
        inside = self.rounds[(self.rounds > start) & (self.rounds <= start + count)]
        return inside - 1 - start

    def columns(self) -> dict[str, NDArray[np.float64]]:
        table = np.concatenate(self.recorded)
        return {"reward": table[:, 0], "regret": table[:, 1], "theta_error": table[:, 2]}

    @abstractmethod
    def play(self, block: Block, start: int) -> None:
        """Play a block whose first round is number start + 1."""


class _Compiled(Player):
    bandit: LinearBandit

    def play(self, block: Block, start: int) -> None:
        bandit, d = self.bandit, self.bandit.dim
        bandit._check_horizon(len(block.shown))  # kernels do not look where they write
        if block.pool is not self.checked:
            self.checked, self.pool = block.pool, np.ascontiguousarray(block.pool, dtype=np.float64)
            if not longest_square(self.pool) <= bandit.options.max_norm**2 or bandit.l1_limit is not None:
                bandit.check_contexts(self.pool)  # allows for a little rounding, and says what is wrong
            self.known = bandit.known_rows(self.pool)
        rewards = np.ascontiguousarray(block.rewards)
        if not all_finite(rewards):
            raise NotFiniteError("the world pays a reward that is NaN or infinite")
        low, high = bandit.options.reward_range if bandit._clips else (-np.inf, np.inf)
        truth = self.truth if len(self.truth) else np.full(d, np.nan)
        record = self.due(start, len(block.shown))
        out = np.empty((len(record), 3))
        noise_key = getattr(bandit.source, "key")  # noqa: B009 - only simulations run here
        keys = (
            np.uint64(noise_key),
            np.uint64(bandit.keys[TIES]),
            np.uint64(bandit.keys[CONTEXTS]),
            np.uint64(bandit.keys[START]),
        )
        play(
            bandit.learner,
            bandit.plan,
            self.pool,
            block.shown,
            rewards,
            block.means,
            bandit.alphas(start + 1, len(block.shown)),
            (float(low), float(high)),
            self.known,
            keys,
            truth,
            record,
            self.totals,
            out,
            *self._scratch(d, block.shown.shape[1]),
        )
        self.recorded.append(out)

    def _scratch(self, d: int, arms: int) -> tuple[NDArray[Any], ...]:
        noisy = np.empty_like(self.bandit.learner.pending)
        return np.empty((arms, d)), np.arange(arms), new_work(d), np.empty(arms), noisy


class _StepByStep(Player):
    """A user's own algorithm, in plain Python."""

    def play(self, block: Block, start: int) -> None:
        record = self.due(start, len(block.shown))
        out = np.empty((len(record), 3))
        row = 0
        for n, shown in enumerate(block.shown):
            contexts = block.pool[shown]
            arm = int(self.bandit.select(contexts))
            if not 0 <= arm < len(shown):
                raise OptionError(
                    f"{self.label} selected arm {arm} of {len(shown)}: select must return an index of a row"
                )
            self.totals[0] += block.rewards[n, arm]
            self.totals[1] += block.means[n].max() - block.means[n, arm]
            self.bandit.update(contexts[arm], float(block.rewards[n, arm]))
            if row < len(record) and record[row] == n:
                theta = getattr(self.bandit, "theta", None)
                known = theta is not None and len(self.truth)
                error = float(np.linalg.norm(np.asarray(theta) - self.truth)) if known else np.nan
                out[row] = (*self.totals, error)
                row += 1
        self.recorded.append(out)


class _PerUser(Player):
    """One bandit for every user, each made when the user first appears."""

    def __init__(self, label: str, make: Callable[[int], Any], episode: Any, rounds: NDArray[np.int64]) -> None:
        super().__init__(label, None, episode, rounds)
        self._make, self._episode = make, episode
        self._bandits: dict[int, Any] = {}

    def play(self, block: Block, start: int) -> None:
        record = set(self.due(start, len(block.shown)).tolist())
        out = []
        for n, (shown, user) in enumerate(zip(block.shown, self._episode.users_of_last_block(), strict=True)):
            if user not in self._bandits:
                self._bandits[user] = self._make(int(user))
            contexts = block.pool[shown]
            arm = int(self._bandits[user].select(contexts))
            self.totals[0] += block.rewards[n, arm]
            self.totals[1] += block.means[n].max() - block.means[n, arm]
            self._bandits[user].update(contexts[arm], float(block.rewards[n, arm]))
            if n in record:
                out.append((*self.totals, np.nan))
        self.recorded.append(np.array(out).reshape(-1, 3))
