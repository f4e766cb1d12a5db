"""Rewards of the local phase: an equation each, of known variance, that waits until θ is read anew.

Which rewards these are is public: rounds up to `central_from`, which slates may bring forward.
"""

from __future__ import annotations

import math

import numpy as np

from dpbandit.learners.learner import Spec
from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.types import Matrix, Vector

# What play teaches anyway while answers come: so many times what is known (information grows like t,
# so that this is less than later), and three times as many answers as an item has numbers, spread like
# what was played of late, of which round j counts (j/t)⁵.
TAUGHT = 10.0
AHEAD = 3 * 6.0


class LocalPhase(Holder):
    """What is known of the phase, and equations rows·θ⁺ = values of variance 1."""

    central_from = Number(int)  # rounds before the first that is summed
    local_waiting = Number(int)
    local_due = Number(int)  # when θ is read next
    blocks_seen = Number(int)  # slates

    def __init__(self, size: int, spec: Spec) -> None:
        self.rows, self.values = np.zeros((size, size)), np.zeros(size)
        self.central_from, self.local_due = int(spec["local"]), 1
        self.local_waiting = self.blocks_seen = 0
        self.anyhow, self.ratio = bool(spec["local_anyhow"]), float(spec["ratio"])
        self.scale, self.variance = float(spec["local_scale"]), float(spec["local_variance"])
        self.unit = 1 / math.sqrt(float(spec["local_variance"]))

    def has(self, t: int) -> bool:
        """Whether round t was, or would be, answered by itself."""
        return 1 <= t <= self.central_from

    def takes(self, t: int) -> bool:
        """Whether round t is, as slates were so far."""
        return self.has(t) and (self.anyhow or self.blocks_seen > 0)

    def summed(self, t: int) -> int:
        """How many rewards are summed up to round t, if it is; a phase that does not take it is over."""
        return 1 if self.has(t) else t - self.central_from

    def looks(self, rounds: int) -> bool:
        """Whether slates still matter."""
        return not self.anyhow and rounds < self.central_from

    def look(self, contexts: Matrix) -> bool:
        """Whether no feature is shared by two arms of a slate, and arms are more than names."""
        used = contexts != 0
        apart = bool((used.sum(axis=1) > 1).any() and (used.sum(axis=0) <= 1).all())
        self.blocks_seen += apart
        return apart

    def ask(self, longer: Vector, prediction: float) -> None:
        """The equation of a round, of variance 1, without its answer."""
        self.rows[self.local_waiting] = longer * self.unit
        self.values[self.local_waiting] = prediction * self.unit

    def add(self, t: int, answer: float) -> bool:
        """Its answer. Whether it is time to read θ anew."""
        self.values[self.local_waiting] += answer * self.unit
        self.local_waiting += 1
        full = self.local_waiting == len(self.values)
        if t < self.local_due and not full and t < self.central_from:
            return False
        self.local_due = max(math.ceil(t * self.ratio), t + 1)
        return True

    def taught(self, t: int, known: float, traced: float) -> float:
        """How many times what was played of late play will teach."""
        return TAUGHT * known / traced + AHEAD * len(self.values) / (t * self.variance)

    def forget(self) -> None:
        """The equations were taken."""
        self.rows[:] = self.values[:] = 0.0
        self.local_waiting = 0

    def fields(self) -> Fields:
        return {**super().fields(), "local_rows": self.rows, "local_values": self.values}
