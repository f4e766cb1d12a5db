"""How far A⁻¹·x can reach, brought up to date only now and then.

`LazyBound` is a valid bound on max ‖A⁻¹x‖ over the public arms, or over the ball ‖x‖ ≤ max_norm,
and at most some per cent too large. It rests on A alone, which is public and fixed before noise is
drawn. Nothing here may look at a reward.
"""

from __future__ import annotations

import math

import numpy as np

from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.types import Matrix, Vector

# By how much the bound may be too large before it is computed anew: noise that is 2% larger on
# average is hardly seen.
TOO_LARGE = 0.05
# It waits until rounds have grown by this factor (A⁻¹ shrinks about as 1/t), unless it may be
# twice too large.
LATER = 1.05
MUCH_TOO_LARGE = 0.5
# Rounds in which the ball's eigenvalue is computed itself.
EARLY = 20.0
# What rounding can take off a computed length, and more.
SLACK = 1.0 + 1e-9


class LazyBound(Holder):
    """The bound and what it must remember; all of it is public."""

    bound = Number(float)  # when it was last computed; 0: never
    growth = Number(float)  # by what it may have grown since
    moved = Number(float)  # how far any length can have moved since, up or down
    rounds = Number(float)
    computed = Number(float)  # the round of that
    distrusted = Number(float)  # over the ball: A⁻¹ was computed anew since

    def __init__(self, *, max_norm: float, norm: int) -> None:
        self.max_norm, self.norm = max_norm, norm
        self.forget()

    def forget(self) -> None:
        """Start again: the set that x comes from is another one."""
        self.bound = self.growth = self.moved = 0.0
        self.rounds = self.computed = self.distrusted = 0.0

    def distrust(self) -> None:
        """A⁻¹ was computed anew, not updated: an old bound may fail in the last digit."""
        self.distrusted = 1.0

    def after(
        self,
        inverse: Matrix,
        arms: Matrix,
        x: Vector,
        step: Vector,
        quadratic: float,
        anew: float = 0.0,
    ) -> float:
        """The bound after xxᵀ was added to A: `inverse` is A⁻¹, `step` the old A⁻¹x and
        `quadratic` the old xᵀA⁻¹x; `anew` is the Frobenius distance of A⁻¹ from the update of the
        old one, where it was computed anew.
        """
        self.rounds += 1.0
        if len(arms) == 0:
            return self._over_ball(inverse, step, quadratic)
        return self._over_arms(inverse, arms, x, step, quadratic, anew)

    def _is_due(self) -> bool:
        moved = self.moved / self.bound
        return moved > MUCH_TOO_LARGE or (
            moved > TOO_LARGE and self.rounds >= LATER * self.computed
        )

    def _over_arms(
        self, inverse: Matrix, arms: Matrix, x: Vector, step: Vector, quadratic: float, anew: float
    ) -> float:
        """‖A⁻¹z‖ of one z can grow although A⁻¹ shrinks as a matrix, so an old maximum needs
        `growth` on top, and so does what rounding did to A⁻¹.
        """
        stale = self.bound <= 0.0
        if not stale:
            square = float(step @ step) / (1.0 + quadratic)
            apart = ((float(np.trace(inverse)) + square) * 2.0**-51 + anew) * self.max_norm
            factor, moved = growth(x, step, quadratic, self.max_norm, self.norm)
            if self.norm == 1:
                self.growth *= min(factor, 1.0 + moved / (self.bound * self.growth))
                self.growth += math.sqrt(len(x)) * apart / self.bound
            else:
                more = (lift(inverse, step, quadratic) + 2.0 * square * anew) * self.max_norm**2
                more += (2.0 * self.bound * self.growth + apart) * apart
                # √(1 + a) ≤ 1 + a/2, and growth is at least 1
                self.growth += more / (2.0 * self.bound**2)
            self.moved += moved
            stale = not self.growth <= 1.0 + TOO_LARGE or self._is_due()
        if stale:
            self.bound = float(np.linalg.norm(arms @ inverse, ord=self.norm, axis=1).max()) * SLACK
            self.growth, self.moved, self.computed = 1.0, 0.0, self.rounds
        self.distrusted = 0.0
        return self.bound * self.growth

    def _over_ball(self, inverse: Matrix, step: Vector, quadratic: float) -> float:
        """λ_max(A⁻¹)·max_norm only shrinks, by no more than ‖step‖²/(1 + quadratic) a round.

        When that adds up to 5%, it is time to try whether a bound 5% lower holds.
        """
        largest = float(np.linalg.eigvalsh(inverse)[-1])
        if self.distrusted > 0.0:
            self.distrusted = 0.0
            self.bound *= SLACK
            if largest >= self.bound:
                self.bound = 0.0
        if self.bound <= 0.0:
            self.bound = largest * SLACK
            self.moved = 0.0
        else:
            self.moved += float(step @ step) / (1.0 + quadratic)
            if self._is_due():
                self.moved, self.computed = 0.0, self.rounds
                if self.rounds <= EARLY:
                    self.bound = largest * SLACK
                while largest < self.bound * (1.0 - TOO_LARGE):
                    self.bound *= (1.0 - TOO_LARGE) * SLACK
        return self.bound * self.max_norm * (math.sqrt(len(step)) if self.norm == 1 else 1.0)

    def fields(self) -> Fields:
        """Everything that changes, by name."""
        return {f"bound_{name}": number for name, number in self.numbers.items()}


def growth(
    x: Vector, step: Vector, quadratic: float, max_norm: float, norm: int
) -> tuple[float, float]:
    """By what adding xxᵀ to A can have multiplied ‖A⁻¹z‖, and moved it, for ‖z‖₂ ≤ max_norm.

    The new A⁻¹z is (1 − vxᵀ/(1 + q))·(the old one), v = `step`, q = `quadratic`. With a =
    ‖v‖‖x‖/(1 + q) that matrix has the L2 norm (a + √(a² + 4/(1 + q)))/2, because its singular
    values off 1 have the product 1/(1 + q) and squares that add up to a² + 2/(1 + q); in L1 its
    norm is the largest column's sum.
    """
    inside = 1.0 / (1.0 + quadratic)
    square, total = float(step @ step), float(np.abs(step).sum())
    if norm == 1:
        columns = np.abs(1.0 - step * inside * x) + np.abs(x) * inside * (total - np.abs(step))
        return max(float(columns.max()), 1.0), total * math.sqrt(square) * max_norm * inside
    a = math.sqrt(square * float(x @ x)) * inside
    factor = 0.5 * (a + math.sqrt(a * a + 4.0 * inside))
    return max(factor, 1.0), square * max_norm * inside


def lift(inverse: Matrix, step: Vector, quadratic: float) -> float:
    """By how much ‖A⁻¹z‖₂² can at most have grown when xxᵀ was added to A, for ‖z‖₂ ≤ 1.

    `inverse` is the new A⁻¹, v = `step`, q = `quadratic`. With w the old A⁻¹z the new square is
    ‖w‖² − 2(vᵀz)(vᵀw)/(1 + q) + (vᵀz)²‖v‖²/(1 + q)², which is ‖w‖² − 2(vᵀz)(hᵀz)/(1 + q) with
    h = A⁻¹v + ½‖v‖²v/(1 + q); and −2(vᵀz)(hᵀz) is at most ‖v‖‖h‖ − vᵀh.
    """
    inside, square = 1.0 / (1.0 + quadratic), float(step @ step)
    h = inverse @ step + 0.5 * inside * square * step
    found = max(math.sqrt(square * float(h @ h)) - float(step @ h), 0.0)
    whole = float(np.trace(inverse)) + inside * square  # the old trace
    return inside * (found + square * whole * (len(step) + 8) * 2.0**-50)
