"""Arms without features, a binary tree each (Mishra & Thakurta 2015, private UCB).

A context is a one-hot row that names its arm. An arm's tree counts that arm's own pulls, so a
reward enters one tree only; which arm was pulled, and when, is public. An arm's mean is centre +
width·(noisy sum)/pulls.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpbandit.learners.learner import Clock, Learner, Pending, Spec
from dpbandit.privacy.grid import to_whole
from dpbandit.privacy.noise import find_noise
from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.types import Matrix, Vector

# The bonus of an arm that was never pulled: above every other, and its square is still a float.
UNTRIED = 1e140
# How many tails of K arms' trees over T rounds must not fail: sums of Gaussian noise, to either
# side; or every Laplace node.
PUBLISHED_EVENTS: dict[str, Callable[[int, float, int], float]] = {
    "gaussian": lambda arms, rounds, levels: 2.0 * arms * rounds,
    "laplace": lambda arms, rounds, levels: arms * rounds * levels,
}


class ArmsLearner(Learner, Holder):
    """A noisy mean for each arm, and a bonus."""

    arrays = "theta pulls spread"
    arm = Number(int)  # the one pulled last

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        self.pending_size = 1
        self.noise = find_noise(spec["noise"], tuple(PUBLISHED_EVENTS))
        self.trees = [self.tree(1) for _ in range(self.dim)]
        self.pulls = np.zeros(self.dim, dtype=np.int64)
        self.spread = np.zeros(self.dim)  # how far the noise in each arm's sum reaches
        self.arm = 0
        self._gather()

    def _gather(self) -> None:
        """All trees in few arrays, of which each has its part."""
        self.sums_high = np.stack([tree.sums.high for tree in self.trees])
        self.sums_low = np.stack([tree.sums.low for tree in self.trees])
        self.noisy = np.stack([tree.noisy for tree in self.trees])
        self.carry = np.stack([tree.carry for tree in self.trees])
        for arm, tree in enumerate(self.trees):
            tree.sums.high, tree.sums.low = self.sums_high[arm], self.sums_low[arm]
            tree.noisy, tree.carry = self.noisy[arm], self.carry[arm]

    def matrix(self, alpha: float) -> Matrix:
        """Squared bonuses: √(xᵀMx) of a one-hot context is then its arm's bonus."""
        return np.diag([self.bonus(arm, alpha) ** 2 for arm in range(self.dim)])

    def quiet(self, x: Vector) -> bool:
        return False

    def prepare(self, x: Vector, reward: float) -> Pending:
        self.arm = int(np.argmax(x))
        self.pulls[self.arm] += 1
        pull = int(self.pulls[self.arm])
        item = to_whole(np.array([(reward - self.centre) / self.width]))
        return Pending(self.trees[self.arm].add(pull, item), self.scale(self.place(pull).levels))

    def commit(self, noisy: Vector) -> None:
        arm, pull = self.arm, int(self.pulls[self.arm])
        total = float(self.trees[arm].publish(pull, noisy)[0])
        self.theta[arm] = self.centre + self.width * total / pull
        self.spread[arm] = self.width * self._spread(pull)

    def _spread(self, pull: int) -> float:
        """How far the noise reaches after so many pulls, in units of an item: √Σ scale².

        For the paper's Γ, as many nodes as can be in use at once, added up as that noise's bound
        in the paper has it.
        """
        if self.spec["published_term"]:
            return self.noise.published_spread(np.array(self.scales_in_use(pull, at_once=True)))
        return float(np.linalg.norm(self.scales_in_use(pull)))

    def privacy_weight(self, t: int) -> float:
        """What `spread` is multiplied by in round t.

        `privacy_bonus` times the noise's tail at probability 1/t, or the tail that all nodes of T
        rounds keep to. It grows with t: otherwise an arm that was unlucky early on may never be
        pulled again.
        """
        if not self.spec["published_term"]:
            return float(self.spec["privacy_bonus"]) * self.noise.tail_at(math.log(t))
        rounds, levels = float(self.spec["horizon"]), int(self.spec["levels"])
        if self.spec["unknown_horizon"]:
            rounds, levels = float(t), t.bit_length()
        events = PUBLISHED_EVENTS[self.noise.name](self.dim, rounds, levels)
        return self.noise.tail_at(math.log(events / float(self.spec["failure"])))

    def bonus(self, arm: int, alpha: float) -> float:
        """What an arm's index has on top of its mean in the coming round."""
        pulls, t = int(self.pulls[arm]), self.clock.rounds + 1
        if pulls == 0:
            return UNTRIED  # arms that were never pulled come first
        explore = alpha * self.width * math.sqrt(2.0 * math.log(t) / pulls)
        return explore + self.privacy_weight(t) * float(self.spread[arm]) / pulls

    def fields(self) -> Fields:
        one = {name: getattr(self, name)[:, :, 0] for name in ("sums_high", "sums_low", "noisy")}
        return {**Holder.fields(self), **one, "carry": self.carry[:, 0]}
