"""Noise on θ̂ itself, node by node of a tree: dynamic global sensitivity, sound and as published.

An increment θ̂_e − θ̂_s moves with every earlier reward, not only with those of its node, so
`NoisyIncrements` is not proven. `NoisyOwn` releases only what the node's own rewards add to θ̂_e,
so a reward pays once for each level (docs/privacy.md).
"""

from __future__ import annotations

import math

import numpy as np

from dpbandit.learners.learner import Clock, Pending, Spec
from dpbandit.learners.ridge import RidgeLearner
from dpbandit.privacy.grid import STEP, to_floats, to_whole
from dpbandit.privacy.noise import find_noise
from dpbandit.privacy.sensitivity import lemma1
from dpbandit.reference.bound import LazyBound
from dpbandit.reference.fields import Fields
from dpbandit.types import Vector

VANISHED = 1e-150  # no square of a number above it underflows


class NoisyOwn(RidgeLearner):
    """Noise on what a node's own rewards add to θ̂ at its end: A⁻¹·Σ x·r over the node.

    A is public, so A·(noisy node) is a noisy sum of x·r again, and the noise of old nodes shrinks
    with A⁻¹ like all else.
    """

    keeps_moments = False

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        self.max_norm = float(spec["max_norm"])
        self.sums = self.tree(self.dim)
        self.bound = LazyBound(max_norm=self.max_norm, norm=find_noise(spec["noise"]).norm)
        self.arms = np.asarray(spec["public_arms"], dtype=np.float64).reshape(-1, self.dim)

    def leave_public_set(self) -> None:
        self.bound.forget()

    def prepare(self, x: Vector, reward: float) -> Pending:
        t, before = self.clock.rounds, self.ridge.inverse.copy()
        step, quadratic, due = self.ridge.add_context(x)
        inverse = self.ridge.inverse
        if due:
            self.bound.distrust()
        arms = self.arms[:0] if self.clock.outside else self.arms
        anew = float(np.linalg.norm(inverse - before + np.outer(step, step) / (1.0 + quadratic)))
        bound = self.bound.after(inverse, arms, x, step, quadratic, anew)
        self.context_sum += x
        node = self.sums.add(t, to_whole((reward - self.centre) / self.width * (x / self.max_norm)))
        numbers = self.width * self.max_norm * (inverse @ to_floats(node))
        place = self.place(t)
        reach = bound + self._rounding(1 << place.level)
        return Pending(numbers, self.scale(place.levels) * reach)

    def _rounding(self, items: int) -> float:
        """What rounding can add to how far a reward moves a node of so many items, in bounds.

        Of an item to the grid, of A⁻¹·s in floats, and of A⁻¹ since it was bounded, all through
        the trace of A⁻¹, which is no less than its norm; and of lengths whose squares vanish,
        which is no share of anything.
        """
        d, trace = self.dim, float(np.trace(self.ridge.inverse))
        ulps = (2.0 * (d + 4) * items + 512.0) * 2.0**-53
        entries = d if self.bound.norm == 1 else math.sqrt(d)
        return trace * self.max_norm * entries * (STEP + ulps) + VANISHED * entries

    def commit(self, noisy: Vector) -> None:
        prefix = self.sums.publish(self.clock.rounds, self.ridge.gram @ noisy)
        self.theta[:] = self.ridge.inverse @ (prefix + self.centre * self.context_sum)

    def conclude(self) -> bool:
        self.ridge.solve()
        self.bound.forget()
        moments = self.sums.carry + self.centre * self.context_sum
        self.theta[:] = self.ridge.inverse @ moments
        return True

    def fields(self) -> Fields:
        return {**super().fields(), **self.sums.fields(), **self.bound.fields()}


class NoisyIncrements(RidgeLearner):
    """Noise on θ̂_e − θ̂_s of each node, scaled by Lemma 1: as published, and not proven."""

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        self.sums = self.tree(self.dim, whole=False)

    def prepare(self, x: Vector, reward: float) -> Pending:
        t = self.clock.rounds
        before = self.ridge.theta.copy()
        self.ridge.add_context(x)
        self.ridge.add_reward(x, reward)
        numbers = self.sums.add(t, self.ridge.theta - before)
        place = self.place(t)
        end = t - (1 << place.level) + 1 if self.spec["printed_index"] else t
        delta = lemma1(
            float(end),
            form=self.spec["form"],
            smallest_eigenvalue=float(self.spec["smallest_eigenvalue"]),
            delta=float(self.spec["lemma_delta"]),
            width_times_norm=float(self.spec["sensitivity"]),
            ridge=float(self.spec["ridge"]),
        )
        return Pending(numbers, float(self.spec["multipliers"][place.levels]) * delta)

    def commit(self, noisy: Vector) -> None:
        self.theta[:] = self.sums.publish(self.clock.rounds, noisy)

    def fields(self) -> Fields:
        return {**super().fields(), **self.sums.fields()}
