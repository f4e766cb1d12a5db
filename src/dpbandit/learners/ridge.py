"""LinUCB's regression, and the two simplest sites of privacy noise: nowhere, and on each reward.

The other sites are in `moments` (on sums of x·r) and `own` (on what a node of a tree adds to θ̂).
"""

from __future__ import annotations

import numpy as np

from dpbandit.learners.learner import Clock, Learner, Pending, Spec
from dpbandit.privacy.grid import to_whole
from dpbandit.reference.algebra import inverse, solved
from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.types import Matrix, Vector

# The core adds contexts to A in batches of this many; here none ever waits.
RECENT = 16


class Ridge(Holder):
    """A = λI + Σ xxᵀ, b = Σ x·r, and A⁻¹ and θ̂ = A⁻¹b, solved anew in every round."""

    arrays = "inverse gram gram_low recent"
    age = Number(int)  # updates since the core computes A⁻¹ from A again; here it always is
    waiting = Number(int)

    def __init__(self, dim: int, strength: float) -> None:
        self.strength = strength
        self.gram, self.inverse = strength * np.eye(dim), np.eye(dim) / strength
        self.moments, self.theta = np.zeros(dim), np.zeros(dim)
        # What the core keeps beside: what rounding lost, and contexts that wait for A.
        self.gram_low, self.moments_low = np.zeros((dim, dim)), np.zeros(dim)
        self.recent = np.zeros((RECENT, dim))
        self.age = self.waiting = 0

    def add_context(self, x: Vector) -> tuple[Vector, float, bool]:
        """A ← A + xxᵀ. The old A⁻¹x, the old xᵀA⁻¹x, and whether the core computes A⁻¹ anew now."""
        step: Vector = self.inverse @ x
        self.gram += np.outer(x, x)
        self.inverse[:] = inverse(self.gram)
        self.age += 1
        due = self.age >= max(256, 2 * len(x))
        if due:
            self.age = 0
        return step, float(step @ x), due

    def add_reward(self, x: Vector, reward: float) -> None:
        """b ← b + x·r."""
        self.moments += x * reward
        self.theta[:] = solved(self.gram, self.moments)

    def fade(self, gamma: float) -> None:
        """A ← λI + γ(A − λI), b ← γb. A⁻¹ and θ̂ are then those of before."""
        self.gram *= gamma
        self.gram[np.diag_indices_from(self.gram)] += (1.0 - gamma) * self.strength
        self.moments *= gamma

    def solve(self) -> None:
        """A⁻¹ and θ̂ from A and b."""
        self.inverse[:] = inverse(self.gram)
        self.theta[:] = solved(self.gram, self.moments)

    def settle(self) -> None:
        """Take in what the core keeps beside A and b."""
        waiting = self.recent[: self.waiting]
        self.gram += self.gram_low + waiting.T @ waiting
        self.moments += self.moments_low
        self.gram_low[:] = 0.0
        self.moments_low[:] = 0.0
        self.waiting = 0

    def moment_fields(self) -> Fields:
        """What there is beside where the regression itself sees rewards."""
        low = {"moments_low": self.moments_low, "ridge_theta": self.theta}
        return {"moments": self.moments, **low}


class RidgeLearner(Learner):
    """What all sites share."""

    # Whether the regression sees rewards, noisy or not. Otherwise sums of x·r are kept elsewhere,
    # with the middle of the range taken off, and Σx brings it back.
    keeps_moments = True

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        self.pending_size = self.dim
        self.ridge = Ridge(self.dim, float(spec["ridge"]))
        # The core keeps what rounding lost beside it.
        self.context_sum, self.context_sum_low = np.zeros((2, self.dim))

    def matrix(self, alpha: float) -> Matrix:
        return self.ridge.inverse

    def quiet(self, x: Vector) -> bool:
        return False

    def fields(self) -> Fields:
        sums = {"context_sum": self.context_sum, "context_sum_low": self.context_sum_low}
        rest = self.ridge.moment_fields() if self.keeps_moments else sums
        return {"theta": self.theta, **self.ridge.fields(), **rest}

    def loaded(self) -> None:
        self.ridge.settle()
        self.context_sum += self.context_sum_low
        self.context_sum_low[:] = 0.0


class InTheClear(RidgeLearner):
    """Plain LinUCB: nothing is private, so nothing is released with noise. With `forget` below 1
    every round leaves that share of what was learned before."""

    in_the_clear = True

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        self.forget = float(spec["forget"])

    def quiet(self, x: Vector) -> bool:
        return True

    def conclude(self) -> bool:
        self.ridge.solve()
        self.theta[:] = self.ridge.theta
        return True

    def prepare(self, x: Vector, reward: float) -> None:
        if self.forget < 1.0:
            self.ridge.fade(self.forget)
        self.ridge.add_context(x)
        self.ridge.add_reward(x, reward)
        self.theta[:] = self.ridge.theta

    def commit(self, noisy: Vector) -> None:
        raise ValueError("nothing is released with noise here")


class NoisyRewards(RidgeLearner):
    """Noise on each reward. The regression sees noisy rewards only."""

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        self.pending_size = 1
        self.context = np.zeros(self.dim)

    def prepare(self, x: Vector, reward: float) -> Pending:
        self.context[:] = x
        item = to_whole(np.array([(reward - self.centre) / self.width]))
        return Pending(item, self.scale(1))

    def commit(self, noisy: Vector) -> None:
        self.ridge.add_context(self.context)
        self.ridge.add_reward(self.context, self.centre + self.width * float(noisy[0]))
        self.theta[:] = self.ridge.theta
