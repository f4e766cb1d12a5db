"""The upper confidence bound with a bonus about how an arm differs from the others offered.

What all arms of a slate share cannot decide between them, so doubt about it earns no bonus.
"""

from __future__ import annotations

from dpbandit.policies.policy import BoundPolicy, Matrix, Vector, View, widths


class CentredUcb(BoundPolicy):
    """x·θ + α√((x − x̄)ᵀM(x − x̄)), where x̄ is the mean of the contexts offered."""

    name = "centred-ucb"
    in_core = True
    description = "x·θ + α√((x − x̄)ᵀM(x − x̄)), x̄ the slate's mean"

    def scores(self, view: View, contexts: Matrix, alpha: float, key: int, decision: int) -> Vector:
        scores = widths(view.matrix, contexts - contexts.mean(axis=0))
        scores *= alpha
        scores += contexts @ view.theta
        return scores
