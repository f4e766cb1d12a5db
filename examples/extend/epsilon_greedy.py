"""A policy of your own: ε-greedy on private moments.

With probability α it plays any arm, each as likely as the others; otherwise the arm that looks best.
A policy sees released numbers alone, so whatever it does costs no privacy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import dpbandit as dpb
from dpbandit import policies
from dpbandit.algorithms.moments import on_moments
from dpbandit.design import Design
from dpbandit.errors import OptionError
from dpbandit.options import Options
from dpbandit.policies.policy import Matrix, Vector, matrix_record, view_of_matrix
from dpbandit.reference.random import uniforms

# The number that says whether to explore must not be one of those that break ties.
EXPLORES = 1 << 60
DEFAULT = 0.1


class EpsilonGreedy(policies.Policy):
    """Any arm with probability α, the best with 1 − α."""

    name = "epsilon-greedy"
    description = "any arm with probability α, the best with 1 − α"

    def scores(
        self, view: policies.View, contexts: Matrix, alpha: float, key: int, decision: int
    ) -> Vector:
        if uniforms(key, decision | EXPLORES, 1)[0] < alpha:
            return np.zeros(len(contexts))  # equal scores: one at random
        return contexts @ view.theta

    def propensities(
        self,
        view: policies.View,
        contexts: Matrix,
        alpha: float,
        *,
        draws: int,
        seed: int | None,
        name: str,
    ) -> policies.Propensities:
        scores = contexts @ view.theta
        highest = float(scores.max())
        best = scores >= highest - policies.tie_at(highest)
        chances = alpha / len(contexts) + (1 - alpha) * best / best.sum()
        return policies.Propensities(chances, np.zeros(len(contexts)))  # exact: no error

    def record(self, view: policies.View, alpha: float) -> dict[str, Any]:
        return matrix_record(view, alpha)

    def view_of(self, record: dict[str, Any]) -> tuple[policies.View, float]:
        view, alpha = view_of_matrix(record)
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha is a probability here, not {alpha}")
        return view, alpha


EPSILON_GREEDY = policies.add(EpsilonGreedy())


def design(name: str, options: Options) -> Design:
    """What the algorithm is made of: a tree of noisy moments, and this policy."""
    alpha = DEFAULT if options.alpha is None else options.alpha
    if isinstance(alpha, str) or not 0 <= alpha <= 1:
        raise OptionError(f"{name} explores with probability alpha, from 0 to 1, not {alpha!r}")
    made = on_moments(name, options, options.noise or "gaussian", policy=EPSILON_GREEDY)
    return replace(made, alpha=DEFAULT)


dpb.register(
    "epsilon-greedy",
    design=design,
    description="ε-greedy on a tree of private moments",
    claim="GDP (pure ε with noise='laplace'), proven",
)
