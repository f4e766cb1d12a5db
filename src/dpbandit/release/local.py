"""The local phase: the first rewards are answered by themselves, once each, and enter no sum.

A reward is answered or summed, never both, and which of them is public: a reward pays pure ε, or what
a sum costs. So together they are (ε, δ), by parallel composition (docs/privacy.md). An answer teaches
as much at once as it ever will, where sums teach little at first and then t²: the phase ends when
sums would be ahead.
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
        """What a claim says of it."""
        if not self.rounds:
            return ()
        return (
            f"a reward is answered once, by itself, at the claim's ε = {self.epsilon:g} alone (of the first "
            f"{self.rounds:,} at most), or it is summed, never both; which of them, is public",
        )
