"""Random play: all arms score the same, and ties are broken at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpbandit.policies.policy import Matrix, Policy, Propensities, Vector, View


class Uniform(Policy):
    """Every arm with the same probability."""

    name = "uniform"
    in_core = exact = True
    description = "every arm with the same probability"

    def scores(self, view: View, contexts: Matrix, alpha: float, key: int, decision: int) -> Vector:
        return np.zeros(len(contexts))

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
        arms = len(contexts)
        return Propensities(np.full(arms, 1 / arms), np.zeros(arms))

    def record(self, view: View, alpha: float) -> dict[str, Any]:
        return {}

    def view_of(self, record: dict[str, Any]) -> tuple[View, float]:
        dim = int(record["dim"])
        return View(np.zeros(dim), np.zeros((dim, dim))), 0.0
