"""Tastes that change: the paper's simulation and arms without features, with a θ* that moves. Not in the paper.

θ* is a path, a row after another; regret is against the best arm of the moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpbandit.worlds.drawn import DrawnEpisode

Path = NDArray[np.float64]
Setup = np.random.Generator

# The paper's simulation.
POOL, DIM, SHOWN, NOISE = 1000, 10, 10, 0.5
# Arms without features: how many, the most that one pays at first, and by how much a new best one is ahead.
ARMS, MOST, AHEAD = 20, 0.6, 0.3
# What moves all the time moves in so many steps.
STEPS = 2000
# A random walk starts at distance 2 from 0; each coordinate moves by a standard deviation of 0.58 in all, and is then
# taken without its sign.
START, WALKED = 2.0, 0.58


class Moving:
    """A θ* that moves once, or all the time, in `rounds` rounds.

    With features, as in `Synthetic` (1,000 public arms, 10 features, 10 arms a round, noise 0.5); every θ* has norm 1:

    - "abrupt": at half of the rounds another θ*, drawn like the first;
    - "walk": a random walk;
    - "seasonal": from one θ* to another and back, twice.

    With 20 arms without features, whose means are U(0, 0.6), and the same noise:

    - "worst-becomes-best": halfway, the worst arm's mean becomes the best arm's plus 0.3. The other
      arms pay as before, so a bandit that no longer plays that arm learns nothing of it. The arms
      are public;
    - "new-arm": a round offers 19 of the 20 arms, and until halfway never the last one. Then it is,
      with probability ½, ahead of all others by 0.3, or one like the others. Nothing is known in
      advance.

    An episode's `theta` is None, because θ* is not constant. Rewards fit reward_range=(-0.5, 1.5).

    >>> world = Moving("worst-becomes-best", rounds=2_000)
    >>> block = world.episode(seed=0).block(2_000)
    >>> [round(float(means.max()), 2) for means in block.means[[0, 999, 1000, 1999]]]
    [0.56, 0.56, 0.86, 0.86]
    """

    reward_range = (-0.5, 1.5)

    def __init__(
        self,
        kind: Literal["abrupt", "walk", "seasonal", "new-arm", "worst-becomes-best"],
        rounds: int,
    ) -> None:
        if kind not in (*FEATURES, *WITHOUT):
            raise ValueError(
                f"kind must be one of {', '.join((*FEATURES, *WITHOUT))}, not {kind!r}"
            )
        if not 2 <= rounds <= 1 << 40 or rounds != int(rounds):
            raise ValueError(f"Moving needs 2 to 2**40 whole rounds to move in, not {rounds!r}")
        self.kind, self.rounds = kind, int(rounds)
        self.hidden = int(kind == "new-arm")
        self.dim = DIM if kind in FEATURES else ARMS
        self.arms = SHOWN if kind in FEATURES else ARMS - self.hidden

    def episode(self, seed: int) -> DrawnEpisode:
        """A fresh start from this seed."""
        setup = np.random.default_rng([seed, 0])
        if self.kind in FEATURES:
            pool = _unit(setup.uniform(size=(POOL, DIM)))
            path = _unit(FEATURES[self.kind](setup, min(STEPS, self.rounds)))
        else:
            pool, path = np.eye(ARMS), WITHOUT[self.kind](setup)
        return DrawnEpisode(
            "moving",
            seed,
            pool=pool,
            path=path,
            arms=self.arms,
            public=not self.hidden,
            reward_noise=NOISE,
            path_rounds=self.rounds,
            hidden=self.hidden,
        )

    def __repr__(self) -> str:
        return f"Moving({self.kind!r}, rounds={self.rounds})"


def _abrupt(setup: Setup, steps: int) -> Path:
    return _unit(setup.uniform(size=(2, DIM)))


def _walk(setup: Setup, steps: int) -> Path:
    first = START * _unit(setup.uniform(size=(1, DIM)))
    moves = setup.normal(scale=WALKED / np.sqrt(steps), size=(steps - 1, DIM))
    return np.asarray(np.abs(np.concatenate([first, moves]).cumsum(axis=0)))


def _seasonal(setup: Setup, steps: int) -> Path:
    one, other = _unit(setup.uniform(size=(2, DIM)))
    share = (1 - np.cos(4 * np.pi * np.arange(steps) / steps)) / 2
    return np.asarray(one + share[:, None] * (other - one))


def _worst_becomes_best(setup: Setup) -> Path:
    before = setup.uniform(0, MOST, size=ARMS)
    after = before.copy()
    after[before.argmin()] = before.max() + AHEAD
    return np.stack([before, after])


def _new_arm(setup: Setup) -> Path:
    means = setup.uniform(0, MOST, size=ARMS)
    if setup.uniform() < 0.5:
        means[-1] = means[:-1].max() + AHEAD
    return np.stack([means, means])


def _unit(rows: Path) -> Path:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


FEATURES: dict[str, Callable[[Setup, int], Path]] = {
    "abrupt": _abrupt,
    "walk": _walk,
    "seasonal": _seasonal,
}
WITHOUT: dict[str, Callable[[Setup], Path]] = {
    "new-arm": _new_arm,
    "worst-becomes-best": _worst_becomes_best,
}
