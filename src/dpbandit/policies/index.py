"""The index of arms without features: a mean and a bonus for each (Mishra & Thakurta 2015).

Contexts are one-hot, so √(xᵀMx) with a diagonal M is the root of one entry: any bonus.
"""

from __future__ import annotations

from dpbandit.policies.policy import BoundPolicy, Matrix, Vector, View, widths


class Index(BoundPolicy):
    """An arm's released mean and its bonus as of the coming round; M holds the squared bonuses."""

    name = "index"
    in_core = True
    description = "an arm's mean and its bonus"

    def scores(self, view: View, contexts: Matrix, alpha: float, key: int, decision: int) -> Vector:
        del alpha  # it is in the bonus
        scores = widths(view.matrix, contexts)
        scores += contexts @ view.theta
        return scores
