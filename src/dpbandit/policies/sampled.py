"""Lots with probabilities in closed form: what Thompson sampling does, nearly, and exact by construction.

The leader is the arm with the highest mean x·θ. An arm that lies g standard deviations of the difference
behind it has the weight Φ(−g)/Φ(g), by Page's formula (1977): exp(−1.5976·g − 0.07056·g³). Probabilities
are shares of the weights. For two arms that is Thompson sampling itself, to 2·10⁻⁴; for any number it is
one pass over the arms, with no integral over the posterior. The lot is drawn from those very numbers, so
they are the propensities.
"""

from __future__ import annotations

import numpy as np

from dpbandit.policies.policy import (
    Matrix,
    MatrixPolicy,
    Propensities,
    Vector,
    View,
    tie_at,
    widths,
)


class Sampled(MatrixPolicy):
    """A random arm: the closer to the leader, in standard deviations, the likelier."""

    name = "sampled"
    in_core = exact = True
    description = "random, as likely as to beat the leader, of N(θ, α²M)"

    def scores(self, view: View, contexts: Matrix, alpha: float, key: int, decision: int) -> Vector:
        """Logarithms of weights plus Gumbel numbers: the highest is drawn with its weight's share."""
        from dpbandit.reference.random import OWN_LOTS, log, uniforms  # a ranker loads no learner

        lots = uniforms(key, decision | OWN_LOTS, len(contexts))
        drawn: Vector = log_weights(view, contexts, alpha) - log(-log(lots))
        return drawn

    def propensities(
        self,
        view: View,
        contexts: Matrix,
        alpha: float,
        *,
        draws: int,
        seed: int | None,
        name: str,
    ) -> Propensities:
        weights = np.exp(log_weights(view, contexts, alpha))
        return Propensities(weights / weights.sum(), np.zeros(len(contexts)))


def log_weights(view: View, contexts: Matrix, alpha: float) -> Vector:
    """The logarithm of each row's weight; the leader's is 0.

    >>> view = View(np.array([1.0, 0.0]), 0.5 * np.eye(2))
    >>> (log_weights(view, np.eye(2), 1.0).round(4) + 0.0).tolist()
    [0.0, -1.6682]
    """
    means = contexts @ view.theta
    best = means.max()
    tie = tie_at(float(best))
    leader = contexts[np.argmax(means >= best - tie)]
    behind = best - means
    spread = alpha * widths(view.matrix, contexts - leader)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        g = np.where(behind > tie, behind / spread, 0.0)
        return -g * (1.5976 + 0.07056 * g * g)
