"""The shape in which worlds hand out rounds."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Block(NamedTuple):
    """Consecutive rounds. Arm j of round t is `pool[shown[t, j]]`; playing it pays `rewards[t, j]`.

    `means` are the expected rewards, from which regret is computed; NaN if they are unknown.
    """

    pool: NDArray[np.float64]
    shown: NDArray[np.int64]
    rewards: NDArray[np.float64]
    means: NDArray[np.float64]


class Episode(Protocol):
    """One seed's run through a world."""

    @property
    def theta(self) -> NDArray[np.float64] | None:
        """The true parameter, if there is one and it is known."""

    @property
    def public_contexts(self) -> NDArray[np.float64] | None:
        """Contexts that everyone knows before the first round, if there are any."""

    def block(self, count: int) -> Block:
        """The next `count` rounds."""


class World(Protocol):
    """The members that `dpb.run` needs; define them to write your own world."""

    @property
    def dim(self) -> int:
        """Number of features of a context."""

    @property
    def arms(self) -> int:
        """Arms shown in a round."""

    @property
    def rounds(self) -> int | None:
        """Number of rounds; None if unlimited."""

    def episode(self, seed: int) -> Episode:
        """A fresh start from this seed."""
