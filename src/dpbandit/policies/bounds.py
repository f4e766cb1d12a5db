"""Policies that play the highest bound: given what was released, their arm is certain."""

from __future__ import annotations

from dpbandit.policies.policy import BoundPolicy, Matrix, Vector, View, widths


class Ucb(BoundPolicy):
    """The arm that could be best: what is known of it, and α times how little that is."""

    name = "ucb"
    in_core = True
    description = "x·θ + α√(xᵀMx)"

    def scores(self, view: View, contexts: Matrix, alpha: float, key: int, decision: int) -> Vector:
        scores = widths(view.matrix, contexts)
        scores *= alpha
        scores += contexts @ view.theta
        return scores


class CentredUcb(BoundPolicy):
    """The bonus is about how an arm differs from the mean of those offered.

    What all arms of a slate share cannot decide between them, so doubt about it earns no bonus.
    """

    name = "centred-ucb"
    in_core = True
    description = "x·θ + α√((x − x̄)ᵀM(x − x̄)), x̄ the slate's mean"

    def scores(self, view: View, contexts: Matrix, alpha: float, key: int, decision: int) -> Vector:
        scores = widths(view.matrix, contexts - contexts.mean(axis=0))
        scores *= alpha
        scores += contexts @ view.theta
        return scores


class Index(BoundPolicy):
    """The index of arms without features: a mean and a bonus for each (Mishra & Thakurta 2015).

    Contexts are one-hot and M holds the squared bonuses of the coming round on its diagonal, so
    √(xᵀMx) is the root of one entry: any bonus.
    """

    name = "index"
    in_core = True
    description = "an arm's mean and its bonus"

    def scores(self, view: View, contexts: Matrix, alpha: float, key: int, decision: int) -> Vector:
        del alpha  # it is in the bonus
        scores = widths(view.matrix, contexts)
        scores += contexts @ view.theta
        return scores
