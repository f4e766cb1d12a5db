"""The local phase: the first rewards are answered by themselves, once each, and enter no sum.

A reward is answered or summed, never both, and which of the two is public. So a reward pays pure ε,
or the cost of a sum. Together that is (ε, δ), by parallel composition (docs/privacy.md). An answer
teaches everything at once; sums teach little at first, and then like t². The phase ends when sums
would be ahead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpbandit.privacy.noise import RESPONSE

NEVER = "never"  # of the option `local`; `algorithms.phase` reads it


@dataclass(frozen=True)
class LocalPhase:
    """How many rewards are answered, and how."""

    rounds: int = 0  # at most
    anyhow: bool = False  # whatever slates look like
    epsilon: float = math.inf
    delta: float = 0.0

    @property
    def scale(self) -> float:
        """Of an answer's noise."""
        return RESPONSE.multiplier(self.epsilon, 1) if self.rounds else 1.0

    def core(self, half: float) -> dict[str, Any]:
        """What an engine must know, where residuals are clipped to ±half."""
        return {
            "local": self.rounds,
            "local_anyhow": self.anyhow,
            "local_scale": self.scale,
            # Of an answer ±scale·half, whatever its mean.
            "local_variance": (self.scale * half) * (self.scale * half),
        }

    @property
    def words(self) -> tuple[str, ...]:
        """Its assumptions, for the claim."""
        if not self.rounds:
            return ()
        return (
            f"each reward is either answered once by itself, at pure ε = {self.epsilon:g} (only among the "
            f"first {self.rounds:,}), or summed, never both; which of the two is public",
        )
