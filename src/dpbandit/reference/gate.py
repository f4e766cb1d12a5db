"""The one gate: what a context and a reward must satisfy, and what is done to a reward."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpbandit import codes
from dpbandit.types import Matrix, Vector

# Contexts are normalised in floats: a hair above is rounding, and noise scales allow for it.
TOLERANCE = 1e-9


class Gate:
    """The public limits of one bandit."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.dim, self.max_norm = int(spec["dim"]), float(spec["max_norm"])
        self.l1_limit, self.one_hot = float(spec["l1_limit"]), bool(spec["one_hot"])
        self.clips = bool(spec["clips"])
        self.low, self.high = float(spec["low"]), float(spec["high"])

    def admit(self, contexts: Matrix) -> int:
        """0, or the code of the first thing that is wrong."""
        if contexts.shape[1] != self.dim:
            return codes.DIMENSION
        if not np.isfinite(contexts).all():
            return codes.NOT_FINITE
        scaled = contexts / self.max_norm  # so that squares neither overflow nor vanish
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->i", scaled, scaled)
        if not (squares <= (1.0 + TOLERANCE) ** 2).all():
            return codes.TOO_LONG
        named = ((contexts == 0.0) | (contexts == 1.0)).all(axis=1) & (contexts.sum(axis=1) == 1.0)
        if self.one_hot and not named.all():
            return codes.NOT_ONE_HOT
        most = self.l1_limit * (1.0 + TOLERANCE)
        if not (np.abs(contexts).sum(axis=1) <= most).all():
            return codes.TOO_LONG_L1
        return codes.LEARNED

    def admit_rewards(self, rewards: Vector) -> int:
        """0, or REWARD_NOT_FINITE."""
        return codes.LEARNED if np.isfinite(rewards).all() else codes.REWARD_NOT_FINITE

    def clip(self, reward: float) -> float:
        """The reward, brought into its range."""
        return min(max(reward, self.low), self.high) if self.clips else reward
