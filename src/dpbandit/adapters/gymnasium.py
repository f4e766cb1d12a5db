"""Gymnasium: our worlds as environments. An observation is the arms' contexts; an action is an
arm's number."""

from __future__ import annotations

from dpbandit.adapters import need

need("gymnasium")  # before anything that takes time

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from dpbandit.errors import NormError, OptionError
from dpbandit.worlds.block import Block, Episode, World

# Rounds that a world makes at a time.
BLOCK = 256

Observation = NDArray[np.float64]


class WorldEnv(gymnasium.Env[Observation, np.int64]):
    """A world, one arm per step. `reset(seed=7)` starts the episode that `dpb.run` plays with seed 7.

    Steps do not influence each other. The episode is truncated after `rounds` (the world's, if it
    has an end), and its last observation is zeros. `info` holds the step's regret if the world
    knows the arms' means.

    >>> import dpbandit as dpb
    >>> env = WorldEnv(dpb.worlds.Synthetic(), rounds=100)
    >>> contexts, info = env.reset(seed=7)
    >>> bandit = dpb.make("anytime", dim=10, epsilon=2.0, delta=1e-5, reward_range=(-0.5, 1.5), seed=7)
    >>> arm = bandit.select(contexts)
    >>> contexts, reward, terminated, truncated, info = env.step(arm)
    >>> contexts.shape, sorted(info)
    ((10, 10), ['regret'])
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own name and place for it

    def __init__(self, world: World, *, rounds: int | None = None, max_norm: float = 1.0) -> None:
        if rounds is not None and world.rounds is not None and rounds > world.rounds:
            raise OptionError(f"{world!r} has {world.rounds} rounds, not {rounds}")
        self.world, self.max_norm = world, max_norm
        self.rounds = world.rounds if rounds is None else rounds
        self.observation_space = spaces.Box(
            -max_norm, max_norm, (world.arms, world.dim), np.float64
        )
        self.action_space = spaces.Discrete(world.arms)
        self._episode: Episode | None = None
        self._block: Block | None = None
        self._at = 0  # the round to be played, from 0
        self._start = 0  # of the block

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start again: from this seed, or from one that the last seed leads to."""
        super().reset(seed=seed, options=options)
        number = int(self.np_random.integers(2**31)) if seed is None else seed
        self._episode, self._block, self._at, self._start = self.world.episode(number), None, 0, 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play an arm."""
        if self._block is None or (self.rounds is not None and self._at >= self.rounds):
            raise OptionError("the episode is over, or has not begun: call reset first")
        if not 0 <= int(action) < self.world.arms:
            raise OptionError(f"there are arms 0 to {self.world.arms - 1}, not {action!r}")
        row = self._at - self._start
        means = self._block.means[row]
        info = {} if np.isnan(means).any() else {"regret": float(means.max() - means[action])}
        reward = float(self._block.rewards[row, action])
        self._at += 1
        over = self.rounds is not None and self._at >= self.rounds
        contexts = np.zeros((self.world.arms, self.world.dim)) if over else self._observe()
        return contexts, reward, False, over, info

    def _observe(self) -> Observation:
        assert self._episode is not None
        if self._block is None or self._at - self._start >= len(self._block.shown):
            count = BLOCK if self.rounds is None else min(BLOCK, self.rounds - self._at)
            self._block, self._start = self._episode.block(count), self._at
        contexts = np.array(
            self._block.pool[self._block.shown[self._at - self._start]], dtype=np.float64
        )
        if np.abs(contexts).max() > self.max_norm:
            raise NormError(
                f"a context is longer than max_norm = {self.max_norm:g}: make the environment with a larger one"
            )
        return contexts
