"""One algorithm on one seed: how rounds are played, and what is recorded of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cache
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.algorithms import registry
from dpbandit.bandit import Bandit
from dpbandit.codes import REWARD_NOT_FINITE
from dpbandit.engine import refuse
from dpbandit.errors import NotFiniteError, OptionError
from dpbandit.privacy.sources import Simulation
from dpbandit.reference.random import START
from dpbandit.simulate.jobs import Job
from dpbandit.types import Matrix, Vector
from dpbandit.worlds.block import Block, World

Rounds = NDArray[np.int64]


def new_player(
    job: Job, world: World, episode: Any, seed: int, horizon: int, rounds: Rounds
) -> Player:
    """The player of a job on one seed; `rounds` are those to record."""
    label, name, options = job

    def make(user: int) -> Any:
        # Each user's bandit has noise of its own; −1 stands for the bandit that all users share.
        own = seed if user < 0 else (seed + 1) * 1_000_003 + user
        return new_bandit(name, options, world, episode, own, horizon)

    if getattr(world, "per_user", False):
        return _PerUser(label, make, episode, rounds)
    return player_of(label, make(-1), episode, rounds)


def player_of(label: str, bandit: Any, episode: Any, rounds: Rounds) -> Player:
    """The player of a bandit; `episode` says what is true."""
    # A user's subclass may choose or learn in its own way: then its methods are called.
    kind = _InEngine if type(bandit) is Bandit else _StepByStep
    return kind(label, bandit, episode, rounds)


def new_bandit(
    name: str, options: dict[str, Any], world: World, episode: Any, seed: int, horizon: int
) -> Any:
    """A bandit for this world, which knows the contexts that are public there."""
    public = getattr(episode, "public_contexts", None)
    if public is None:
        public = getattr(world, "public_contexts", None)
    if registry.find(name).contexts_are_private:
        public = None  # they are people's, and not for this algorithm to see
    # public_contexts=None among the options means: as if none were known.
    given = {"horizon": horizon, "dim": world.dim, "public_contexts": public, **options}
    return registry.construct(name, {**given, "seed": seed})


def arms_played(bandit: Bandit, episode: Any, block: Block) -> NDArray[np.int64]:
    """The arms that a new bandit of ours plays in an episode's first block."""
    player = _InEngine(bandit.name, bandit, episode, np.empty(0, dtype=np.int64))
    arms = np.empty(len(block.shown), dtype=np.int64)
    player.play(block, 0, arms)
    return arms


class Player(ABC):
    """One algorithm on one seed, and what has been recorded of it."""

    def __init__(self, label: str, bandit: Any, episode: Any, rounds: Rounds) -> None:
        self.label, self.bandit, self.rounds = label, bandit, rounds
        truth = getattr(episode, "theta", None)
        self.truth: Vector | None = None
        if truth is not None:
            self.truth = np.ascontiguousarray(truth, dtype=np.float64)
        self.totals = np.zeros(2)
        self.recorded: list[Matrix] = []

    def due(self, start: int, count: int) -> Rounds:
        """Which of these rounds are recorded, counted from the first of them."""
        inside = self.rounds[(self.rounds > start) & (self.rounds <= start + count)]
        return np.asarray(inside - 1 - start)

    def columns(self) -> dict[str, Vector]:
        """What was recorded."""
        table = np.concatenate(self.recorded)
        return {"reward": table[:, 0], "regret": table[:, 1], "theta_error": table[:, 2]}

    def draws_itself(self, episode: Any) -> bool:
        """Whether it can play the episode inside the core, without blocks."""
        return False

    def play_episode(self, episode: Any, start: int, count: int) -> None:
        """Play rounds start + 1, … of an episode that it draws itself."""
        raise OptionError(f"{self.label} plays blocks")

    @abstractmethod
    def play(self, block: Block, start: int) -> None:
        """Play a block whose first round is number start + 1."""


class _InEngine(Player):
    """One of our bandits: its engine plays, with no Python in between."""

    bandit: Bandit

    def __init__(self, label: str, bandit: Bandit, episode: Any, rounds: Rounds) -> None:
        super().__init__(label, bandit, episode, rounds)
        self._checked: Matrix | None = None
        self._inside: NDArray[np.bool_] | None = None
        self._world: Any = None

    def draws_itself(self, episode: Any) -> bool:
        if self.bandit.backend != "core" or not hasattr(episode, "new_world"):
            return False
        public = self.bandit.design.public_set
        return len(public) == 0 or public is episode.public_contexts

    def play_episode(self, episode: Any, start: int, count: int) -> None:
        if self._world is None:
            self._world = episode.new_world()
        self.bandit.check_horizon(count)
        engine: Any = self.bandit.engine
        found = engine.play_world(self._world, start, count, **self._given(start, count))
        self._keep(found, episode.spec["pool"])

    def play(self, block: Block, start: int, arms: NDArray[np.int64] | None = None) -> None:
        self.bandit.check_horizon(len(block.shown))
        if block.pool is not self._checked:
            self._checked = block.pool
            self.bandit.check_contexts(block.pool)
            self._inside = None
            if len(self.bandit.design.public_set):
                self._inside = self.bandit.in_public_set(np.ascontiguousarray(block.pool))
        engine: Any = self.bandit.engine
        found = engine.play(
            np.ascontiguousarray(block.pool, dtype=np.float64),
            np.ascontiguousarray(block.shown, dtype=np.int64),
            np.ascontiguousarray(block.rewards, dtype=np.float64),
            np.ascontiguousarray(block.means, dtype=np.float64),
            in_public_set=self._inside,
            arms=arms,
            **self._given(start, len(block.shown)),
        )
        self._keep(found, block.pool)

    def _given(self, start: int, count: int) -> dict[str, Any]:
        bandit = self.bandit
        if not isinstance(bandit.source, Simulation):
            raise OptionError(f"{self.label} draws real noise: a run is a simulation")
        fixed = bandit.fixed_alpha
        return {
            "alphas": bandit.alphas(start + 1, count) if fixed is None else np.array([fixed]),
            "noise_key": bandit.source.key,
            "start_key": bandit.keys[START],
            "truth": self.truth,
            "record": self.due(start, count),
            "totals": self.totals,
        }

    def _keep(self, found: Any, contexts: Matrix) -> None:
        if isinstance(found, int):
            if found == REWARD_NOT_FINITE:
                raise NotFiniteError("the world pays a reward that is NaN or infinite")
            refuse(self.bandit, found, contexts, 1)
        self.recorded.append(found)


class _StepByStep(Player):
    """A user's own algorithm, in plain Python."""

    def bandits(self, count: int) -> Iterator[Any]:
        """Whose turn it is in each of the coming rounds."""
        return repeat(self.bandit, count)

    def play(self, block: Block, start: int) -> None:
        record = set(self.due(start, len(block.shown)).tolist())
        rows = []
        for n, bandit in enumerate(self.bandits(len(block.shown))):
            contexts, rewards, means = block.pool[block.shown[n]], block.rewards[n], block.means[n]
            arm = int(bandit.select(contexts))
            if not 0 <= arm < len(contexts):
                raise OptionError(
                    f"{self.label} selected arm {arm} of {len(contexts)}: select must return an "
                    "index of a row"
                )
            self.totals += rewards[arm], means.max() - means[arm]
            bandit.update(contexts[arm], float(rewards[arm]))
            if n in record:
                theta = None if self.truth is None else getattr(bandit, "theta", None)
                error = np.nan if theta is None else np.linalg.norm(np.asarray(theta) - self.truth)
                rows.append((*self.totals, error))
        self.recorded.append(np.array(rows).reshape(-1, 3))


class _PerUser(_StepByStep):
    """One bandit for every user, each made when the user first appears. No one θ stands for all."""

    def __init__(
        self, label: str, make: Callable[[int], Any], episode: Any, rounds: Rounds
    ) -> None:
        super().__init__(label, None, SimpleNamespace(theta=None), rounds)
        self._bandit_of = cache(make)
        self._episode = episode

    def bandits(self, count: int) -> Iterator[Any]:
        return map(self._bandit_of, self._episode.users_of_last_block().tolist())
