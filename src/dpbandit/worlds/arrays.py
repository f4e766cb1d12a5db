"""A world from a user's own arrays: logged contexts, and the reward of every arm in every round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit import frames
from dpbandit.worlds.block import Block


class Arrays:
    """Contexts of shape (T, k, d) and rewards of shape (T, k), played in the given order.

    `means`, if given, are the expected rewards and make regret known; `theta` makes the parameter error known.
    `public_contexts` are contexts known before the first round; None unless given.

    >>> world = Arrays([[[1.0], [0.5]], [[0.2], [0.9]]], [[1.0, 0.0], [0.0, 1.0]])
    >>> world.rounds, world.arms, world.dim
    (2, 2, 1)
    """

    def __init__(
        self,
        contexts: ArrayLike,
        rewards: ArrayLike,
        *,
        means: ArrayLike | None = None,
        theta: ArrayLike | None = None,
        public_contexts: ArrayLike | None = None,
    ) -> None:
        self.contexts = np.ascontiguousarray(contexts, dtype=np.float64)
        self.rewards = np.ascontiguousarray(rewards, dtype=np.float64)
        if (
            self.contexts.ndim != 3
            or self.rewards.shape != self.contexts.shape[:2]
            or self.rewards.size == 0
        ):
            raise ValueError(
                f"contexts must have shape (T, k, d) and rewards (T, k), with T and k at least 1, not "
                f"{self.contexts.shape} and {self.rewards.shape}"
            )
        if not (np.isfinite(self.contexts).all() and np.isfinite(self.rewards).all()):
            raise ValueError("contexts or rewards hold NaN or infinity: clean the arrays first")
        self.means = np.full_like(self.rewards, np.nan)
        if means is not None:
            self.means = np.ascontiguousarray(means, dtype=np.float64)
            if self.means.shape != self.rewards.shape:
                raise ValueError(
                    f"means must have the shape of rewards, {self.rewards.shape}, not {self.means.shape}"
                )
        self.rounds, self.arms, self.dim = self.contexts.shape
        self.theta = None if theta is None else np.asarray(theta, dtype=np.float64)
        self.public_contexts: NDArray[np.float64] | None = None
        if public_contexts is not None:
            self.public_contexts = np.asarray(public_contexts, dtype=np.float64)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        context: str | Sequence[str],
        reward: str = "reward",
        round: str = "round",
        mean: str | None = None,
    ) -> Arrays:
        """From a frame of pandas or polars, or an Arrow table, with one row per arm and round.

        `context` names one column of lists or several of numbers. Rounds are played in the order of `round`; all must offer
        the same number of arms, in the order of their rows.

        >>> import pandas as pd
        >>> log = pd.DataFrame({"round": [1, 1, 2, 2], "x": [1.0, 0.5, 0.2, 0.9], "reward": [1, 0, 0, 1]})
        >>> Arrays.from_frame(log, context=["x"])
        Arrays(2 rounds, 2 arms, dim=1)
        """
        if isinstance(context, str):
            features = _numbers(frame, context)
            features = features[:, None] if features.ndim == 1 else features
        else:
            features = np.stack([_numbers(frame, name) for name in context], axis=1)
        numbers = _numbers(frame, round)
        order = np.argsort(numbers, kind="stable")
        counts = np.unique(numbers, return_counts=True)[1]
        if len(counts) == 0 or counts.min() != counts.max():
            found = (
                f"rounds with {counts.min()} to {counts.max()} arms" if len(counts) else "no round"
            )
            raise ValueError(
                f"every round must offer the same number of arms: the frame has {found}"
            )
        shape = (len(counts), int(counts[0]))
        return cls(
            features[order].reshape(*shape, -1),
            _numbers(frame, reward)[order].reshape(shape),
            means=None if mean is None else _numbers(frame, mean)[order].reshape(shape),
        )

    def episode(self, seed: int) -> ArraysEpisode:
        """A fresh start; every seed plays the same rounds, with its own privacy noise."""
        del seed
        return ArraysEpisode(self)

    def __repr__(self) -> str:
        return f"Arrays({self.rounds} rounds, {self.arms} arms, dim={self.dim})"


def _numbers(frame: Any, name: str) -> NDArray[np.float64]:
    return frames.numbers(frames.column(frame, name), f"column {name!r}")


class ArraysEpisode:
    """A walk through the arrays."""

    def __init__(self, world: Arrays) -> None:
        self._world = world
        self._at = 0
        self.theta: NDArray[np.float64] | None = world.theta
        self.public_contexts: NDArray[np.float64] | None = world.public_contexts

    def block(self, count: int) -> Block:
        """The next `count` rounds."""
        if self._at + count > self._world.rounds:
            raise ValueError(
                f"the arrays hold {self._world.rounds} rounds; {self._at + count} were requested"
            )
        now = slice(self._at, self._at + count)
        self._at += count
        shown = np.arange(count * self._world.arms, dtype=np.int64).reshape(count, -1)
        contexts = self._world.contexts[now].reshape(-1, self._world.dim)
        return Block(contexts, shown, self._world.rewards[now], self._world.means[now])
