"""Rewards with heavy tails: noise that is now and then large, and money, where a few amounts are large. Not in the paper."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import nearest
from dpbandit.types import Matrix, Vector
from dpbandit.worlds.block import Block

POOL, DIM, SHOWN = 1000, 10, 10  # as in the paper's simulation
DEGREES, SCALE = 2.5, 0.1  # of Student's t: its variance is finite, no higher moment is
LARGE, RARE, SMALL = 0.7, 0.05, 0.05  # one reward in twenty is off by ± 0.7, the others by ± 0.05
ARMS, DEVIATION = (
    5,
    1.2,
)  # of money: how many articles, and the spread of the logarithm of an amount
RANGES = {"student": (-0.5, 1.5), "mixture": (-0.5, 1.5), "money": (0.0, 90.0)}


class Tails:
    """One of three laws of rewards:

    - "student": the paper's simulation with noise of Student's t, 2.5 degrees of freedom, scale 0.1;
    - "mixture": the same with noise ± 0.05, but ± 0.7 in one round of twenty;
    - "money": five articles without features. An article is bought with a chance of 10% to 20%. It then brings a
      lognormal amount with a median of 12 to 20; a few amounts are in the hundreds. Every seed draws its own.
      `reward_range` is what `dpb.clipping` recommends at (1, 1e-6) for 10,000 rounds: it clips 1%.

    Regret uses the means of unclipped rewards. All arms of a round share its noise, as in the paper, except for
    money.

    >>> block = Tails("money").episode(seed=0).block(20_000)
    >>> bool(block.rewards.max() > 500), round(float((block.rewards == 0).mean()), 1)
    (True, 0.9)
    """

    rounds = None

    def __init__(self, kind: Literal["student", "mixture", "money"]) -> None:
        if kind not in RANGES:
            raise ValueError(f"no law of rewards is called {kind!r}: {nearest(kind, RANGES)}")
        self.kind, self.reward_range = kind, RANGES[kind]
        self.dim, self.arms = (ARMS, ARMS) if kind == "money" else (DIM, SHOWN)

    def episode(self, seed: int) -> TailsEpisode:
        """A fresh start from this seed."""
        return TailsEpisode(self.kind, seed)

    def __repr__(self) -> str:
        return f"Tails({self.kind!r})"


class Piece(NamedTuple):
    """Rounds that are drawn together: which contexts are shown, and what they pay."""

    shown: NDArray[np.int64]
    rewards: Matrix


class TailsEpisode:
    """One seed's run. Rounds are drawn in pieces of a fixed size, so that blocks of any size give the same rounds."""

    PIECE = 1024

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._seed, self._drawn = kind, seed, 0
        setup = np.random.default_rng([seed, 0])
        if kind == "money":
            pool, self._chances = np.eye(ARMS), setup.uniform(0.1, 0.2, size=ARMS)
            self._middle = setup.uniform(2.5, 3.0, size=ARMS)  # of the logarithm of an amount
            theta = self._chances * np.exp(self._middle + DEVIATION**2 / 2)
        else:
            pool, theta = (_unit(setup.uniform(size=size)) for size in ((POOL, DIM), DIM))
        self.theta: Vector = theta
        self.public_contexts: Matrix = pool
        self._means = pool @ theta
        arms = ARMS if kind == "money" else SHOWN
        self._left = Piece(np.empty((0, arms), dtype=np.int64), np.empty((0, arms)))

    def block(self, count: int) -> Block:
        """The next `count` rounds."""
        parts = [self._left]
        while sum(len(part.shown) for part in parts) < count:
            parts.append(self._piece(np.random.default_rng([self._seed, 1, self._drawn])))
            self._drawn += 1
        shown, rewards = (np.concatenate(column) for column in zip(*parts, strict=True))
        self._left = Piece(shown[count:], rewards[count:])
        means = self._means[shown[:count]]
        return Block(self.public_contexts, shown[:count], rewards[:count], means)

    def _piece(self, rng: np.random.Generator) -> Piece:
        size = self.PIECE
        if self._kind == "money":
            shown = np.tile(np.arange(ARMS), (size, 1))
            bought = rng.random((size, ARMS)) < self._chances
            return Piece(
                shown, np.where(bought, rng.lognormal(self._middle, DEVIATION, (size, ARMS)), 0.0)
            )
        shown = rng.random((size, POOL)).argpartition(SHOWN, axis=1)[:, :SHOWN].astype(np.int64)
        noise = self._noise(rng, size)
        return Piece(shown, self._means[shown] + noise[:, None])

    def _noise(self, rng: np.random.Generator, size: int) -> Vector:
        match self._kind:
            case "student":
                return SCALE * rng.standard_t(DEGREES, size)
            case "mixture":
                large = np.where(rng.random(size) < RARE, LARGE, SMALL)
                return np.asarray(large * rng.choice((-1.0, 1.0), size))
            case other:
                raise ValueError(f"nobody said what noise {other!r} has")


def _unit(rows: Vector) -> Vector:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))
