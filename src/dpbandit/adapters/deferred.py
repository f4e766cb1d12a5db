"""A bandit that is made once the first context shows the number of features.

Frameworks make learners before they know the problem, and copy or send them to other processes before they are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpbandit.algorithms import registry
from dpbandit.errors import BudgetError, DpbanditError, OptionError
from dpbandit.types import Matrix


class DeferredBandit:
    """The name and options of a bandit, and later the bandit. Wrong options are refused at once, not in the first round."""

    def __init__(self, algorithm: str, options: dict[str, Any]) -> None:
        if "dim" in options:
            raise OptionError("omit dim: it follows from the features")
        self.algorithm, self.options = algorithm, options
        self.bandit: Any = None
        known = options.get("public_contexts")
        dim = 1 if known is None else int(np.shape(known)[-1])
        self.draws_lots = _draws_lots(registry.construct(algorithm, {**options, "dim": dim}), dim)

    def of(self, dim: int) -> Any:
        """The bandit."""
        if self.bandit is None:
            self.bandit = registry.make_named(self.algorithm, **self.options, dim=dim)
        return self.bandit

    def __getstate__(self) -> dict[str, Any]:
        if getattr(self.bandit, "rounds", 0):
            raise BudgetError(
                "this bandit has learned: a copy would continue from the same rewards and spend their budget twice. Make a new "
                "learner, or save the bandit and load it elsewhere (bandit.save, dpb.load)"
            )
        return {**self.__dict__, "bandit": None}


def _draws_lots(bandit: Any, dim: int) -> bool:
    """Whether it has propensities: those of UCB algorithms do not exist."""
    if not hasattr(bandit, "decide"):
        return False
    try:
        bandit.propensities(
            np.eye(1, dim) if getattr(bandit, "one_hot", False) else np.zeros((1, dim))
        )
    except DpbanditError:
        return False
    return True


def shortened(rows: Matrix, max_norm: float) -> Matrix:
    """Scale rows longer than `max_norm` down to it: the noise covers only this norm.

    >>> shortened(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0).round(12).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    kept: Matrix = rows * np.minimum(1.0, max_norm / np.maximum(norms, np.finfo(np.float64).tiny))
    return kept
