"""The upper confidence bound: x·θ + α√(xᵀMx)."""

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
