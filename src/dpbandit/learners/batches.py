"""Arms without features, the sum of each batch of their pulls shown once (DP-KL-UCB).

A context is a one-hot row that names its arm. An arm's mean is made of the noisy sums of all its
batches; its index is the largest mean under which so low a noisy sum is not too unlikely. How
unlikely is bounded by Chernoff's bound for rewards and noise together (docs/privacy.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from dpbandit.learners.arms import UNTRIED
from dpbandit.learners.learner import Clock, Learner, Pending, Spec
from dpbandit.privacy.grid import to_whole
from dpbandit.privacy.noise import find_noise
from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.release.batches import batch_end
from dpbandit.release.whole import WholeRows
from dpbandit.types import Matrix, Vector

# log E exp(−λZ) of noise of a scale, at s = λ·scale.
CUMULANTS: dict[str, Callable[[float], float]] = {
    "gaussian": lambda s: 0.5 * s * s,
    "laplace": lambda s: -math.log(1.0 - s * s),
}
# No rate λ is above it: exp(−λ) is nothing there. Nor above 1/scale, where Laplace's ψ ends.
MOST_RATE, BELOW_POLE = 64.0, 1.0 - 1e-12
# The rates that are searched reach down to e⁻³⁰ of the largest, in golden sections.
DECADES, SECTIONS, GOLDEN = 30.0, 48, 0.6180339887498949


def most_rate(noise: str, scale: float) -> float:
    """The largest rate λ that the search may take."""
    ends = noise == "laplace" and scale * MOST_RATE > BELOW_POLE
    return BELOW_POLE / scale if ends else MOST_RATE


def bound_at(
    rate: float,
    pulls: int,
    releases: int,
    mean: float,
    log: float,
    noise: str,
    scale: float,
    variance: float,
) -> float:
    """A mean that is not exceeded, but with probability exp(−log): Chernoff's bound at one rate λ.

    The released sum of n rewards has n·`mean`, with noise m = `releases` times. If rewards in [0, 1]
    have mean y, P(sum ≤ n·mean) ≤ exp(λ·n·mean + mψ(λ))·(1 − y(1 − e⁻λ))ⁿ. Where this is
    exp(−log), y is what is returned. Every rate gives a bound; the best one is looked for.
    With a variance, rewards are as Gaussian ones of that variance.
    """
    spread = log / pulls + releases / pulls * CUMULANTS[noise](rate * scale)
    if variance > 0.0:
        return mean + (spread + 0.5 * variance * rate * rate) / rate
    return math.expm1(-max(spread + rate * mean, 0.0)) / math.expm1(-rate)


@lru_cache(maxsize=1 << 14)
def upper(
    pulls: int,
    releases: int,
    mean: float,
    log: float,
    noise: str,
    scale: float,
    variance: float,
) -> float:
    """The lowest of these bounds, between the mean and 1. The means are of rewards in [0, 1].

    The bounds that lie below any y belong to an interval of rates, because Chernoff's exponent is
    concave in λ: so there is one valley, and golden sections find it.

    >>> round(upper(100, 0, 0.3, 3.0, "laplace", 0.0, 0.0), 6)  # 100·KL(0.3, y) = 3
    0.418582
    """
    least = min(max(mean, 0.0), 1.0)
    if log <= 0.0:
        return least

    def at(place: float) -> float:
        rate = most_rate(noise, scale) * math.exp(place)
        return bound_at(rate, pulls, releases, mean, log, noise, scale, variance)

    low, high = -DECADES, 0.0
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = at(left), at(right)
    for _ in range(SECTIONS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = at(right)
    return max(min(at_left, at_right, at(0.0), 1.0), least)


class BatchesLearner(Learner, Holder):
    """A noisy mean for each arm, and how far above it the arm may still be."""

    arrays = "theta pulls shown releases carry"
    arm = Number(int)  # the one pulled last

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        self.pending_size = 1
        self.noise = find_noise(spec["noise"], tuple(CUMULANTS)).name
        self.sums = WholeRows(1, self.dim)  # of the batches that are not over
        self.pulls = np.zeros(self.dim, dtype=np.int64)
        self.shown = np.zeros(self.dim, dtype=np.int64)  # those in batches that are over
        self.releases = np.zeros(self.dim, dtype=np.int64)  # batches that are over
        self.carry = np.zeros(self.dim)  # the noisy sum of these
        self.arm = 0

    def _ends(self, arm: int) -> bool:
        """Whether the coming pull ends its batch: a matter of pulls alone."""
        first, ratio = int(self.spec["first"]), float(self.spec["ratio"])
        return int(self.pulls[arm]) + 1 >= batch_end(int(self.shown[arm]), first, ratio)

    def quiet(self, x: Vector) -> bool:
        return not self._ends(int(np.argmax(x)))

    def prepare(self, x: Vector, reward: float) -> Pending | None:
        arm = self.arm = int(np.argmax(x))
        over = self._ends(arm)
        self.pulls[arm] += 1
        sums = self.sums[0]
        sums[arm] += to_whole(np.array([(reward - self.centre) / self.width]))[0]
        whole = sums[arm : arm + 1].copy()
        if over:
            sums[arm] = 0
        self.sums[0] = sums
        return Pending(whole, float(self.spec["scale"])) if over else None

    def commit(self, noisy: Vector) -> None:
        arm = self.arm
        self.shown[arm] = self.pulls[arm]
        self.releases[arm] += 1
        self.carry[arm] += noisy[0]
        within = min(max(self._mean(arm), 0.0), 1.0)  # of rewards in their range
        self.theta[arm] = self.low + self.width * within

    def _mean(self, arm: int) -> float:
        """Of rewards brought to [0, 1]."""
        return 0.5 + float(self.carry[arm]) / int(self.shown[arm])

    def matrix(self, alpha: float) -> Matrix:
        """Squared bonuses: √(xᵀMx) of a one-hot context is then its arm's bonus."""
        return np.diag([self.bonus(arm, alpha) ** 2 for arm in range(self.dim)])

    def bonus(self, arm: int, alpha: float) -> float:
        """What an arm's index has on top of its mean.

        Until its next release it changes only with the horizon: where that is unknown it is the
        power of two that the rounds have not reached, and not shared among the arms.
        """
        shown = int(self.shown[arm])
        if shown == 0:
            return UNTRIED  # arms that nothing is known of come first
        rounds = int(self.spec["horizon"]) / self.dim or 2.0 ** self.clock.rounds.bit_length()
        log = alpha * math.log(max(rounds / shown, 1.0))
        given = self.spec["scale"], self.spec["reward_variance"] / self.width**2
        mean = self._mean(arm)
        top = upper(shown, int(self.releases[arm]), mean, log, self.noise, *given)
        return self.width * (top - min(max(mean, 0.0), 1.0))

    def fields(self) -> Fields:
        sums = {name: row[0] for name, row in self.sums.fields("sums").items()}
        return {**Holder.fields(self), **sums}
