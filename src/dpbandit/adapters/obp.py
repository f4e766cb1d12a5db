"""Open Bandit Pipeline: a dpbandit algorithm as one of its policies, and its logs as rounds for `dpb.replay`.

Nothing of obp is imported before its simulator asks what kind of policy this is: its logs are dicts of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.adapters.deferred import DeferredBandit, shortened
from dpbandit.errors import LogError, ShapeError
from dpbandit.options import whole
from dpbandit.types import Matrix


class ObpPolicy:
    """Any algorithm of `dpb.algorithms()` as a contextual policy of obp, for `obp.simulator.run_bandit_simulation`.

    Each action has a linear model of its own: its context is (1, features) in the block of that action, zeros elsewhere. A
    vector longer than `max_norm` is scaled down to it. obp's policies keep the rewards of every
    action; this one keeps none. Other options are those of `dpb.make`.

    >>> policy = ObpPolicy("anytime", n_actions=3, epsilon=1.0, delta=1e-6, reward_range=(0, 1), seed=1)
    >>> chosen = policy.select_action(np.array([[0.5, -0.5]]))
    >>> policy.update_params(int(chosen[0]), 1.0, np.array([[0.5, -0.5]]))
    >>> policy.bandit.dim, policy.bandit.rounds
    (9, 1)
    """

    def __init__(
        self,
        algorithm: str,
        *,
        n_actions: int,
        reward_range: tuple[float, float],
        len_list: int = 1,
        max_norm: float = 1.0,
        **options: Any,
    ) -> None:
        self.n_actions = whole("n_actions", n_actions, least=2)
        self.len_list = whole("len_list", len_list, least=1)
        self.max_norm, self.policy_name = max_norm, algorithm
        given = {"reward_range": reward_range, "max_norm": max_norm, **options}
        self._deferred = DeferredBandit(algorithm, given)

    @property
    def bandit(self) -> Any:
        """The dpbandit policy inside, with its `claim` and `spent`; None before the first round."""
        return self._deferred.bandit

    @property
    def policy_type(self) -> Any:
        """For obp's simulator."""
        from obp.policy.policy_type import PolicyType

        return PolicyType.CONTEXTUAL

    def select_action(self, context: Any) -> NDArray[np.int64]:
        """The best `len_list` actions, best first."""
        rows = blocks(context, self.n_actions, self.max_norm)
        return np.asarray(self._deferred.of(rows.shape[1]).select(rows, k=self.len_list))

    def update_params(self, action: int, reward: float, context: Any, *, user: Any = None) -> None:
        """Learn from one action and its reward; `user` with unit=('user', m) or ('person', C)."""
        rows = blocks(context, self.n_actions, self.max_norm)
        self._deferred.of(rows.shape[1]).update(rows[action], float(reward), user=user)


def obp_rounds(feedback: Mapping[str, Any], *, max_norm: float = 1.0) -> Iterator[dict[str, Any]]:
    """The rounds of obp's logged bandit feedback, for `dpb.replay(obp_rounds(feedback), …, propensity="propensity")`.

    Contexts are those of `ObpPolicy`. A log with several positions shows them as rows of their own.

    >>> log = {"context": np.array([[0.5], [0.1]]), "action": np.array([0, 1]), "reward": np.array([1, 0]),
    ...        "pscore": np.array([0.5, 0.5]), "n_actions": 2}
    >>> [(one["action"], one["contexts"].shape) for one in obp_rounds(log)]
    [(0, (2, 4)), (1, (2, 4))]
    """
    for name in ("context", "action", "reward", "pscore", "n_actions"):
        if feedback.get(name) is None:
            raise LogError(f"obp's bandit feedback has no {name!r}")
    columns = [np.asarray(feedback[name]) for name in ("context", "action", "reward", "pscore")]
    for context, action, reward, chance in zip(*columns, strict=True):
        yield {
            "contexts": blocks(context, int(feedback["n_actions"]), max_norm),
            "action": int(action),
            "reward": float(reward),
            "propensity": float(chance),
        }


def blocks(context: Any, actions: int, max_norm: float) -> Matrix:
    """One row for each action: (1, features) in its block."""
    features = np.asarray(context, dtype=np.float64).reshape(-1)
    if not np.isfinite(features).all():
        raise ShapeError("a context of obp holds NaN or infinity")
    rows = np.kron(np.eye(actions), np.concatenate([[1.0], features]))
    return shortened(rows, max_norm)
