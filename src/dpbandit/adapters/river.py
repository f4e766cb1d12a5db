"""river: a dpbandit algorithm as one of its bandit policies, for `bandit.evaluate`, `bandit.evaluate_offline` and your own loop.

river's policies keep a statistic of the clean rewards for each arm and print it; this one keeps none.
"""

from __future__ import annotations

from dpbandit.adapters import need

need("river")  # before anything that takes time

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river.bandit.base import ContextualPolicy

from dpbandit.adapters.deferred import DeferredBandit, shortened
from dpbandit.errors import OptionError, ShapeError


class RiverPolicy(ContextualPolicy):
    """Any algorithm of `dpb.algorithms()` as a policy of river, with or without contexts.

    Each arm has a linear model of its own: an arm's context is (1, features) in the block of that arm, zeros elsewhere.
    Without a context that is one number per arm, as `private-ucb` needs. A vector longer than
    `max_norm` is scaled down to it. `arms` and `features` fix the blocks; by default they are those
    of the first round. A feature that a context lacks is 0. Rewards are clipped to `reward_range`
    (not by `linucb` and `random`). Other options are those of `dpb.make`; `burn_in` is river's.

    >>> policy = RiverPolicy("anytime", epsilon=1.0, delta=1e-6, reward_range=(0, 1), seed=1)
    >>> arm = policy.pull(["left", "right"], context={"evening": 1.0})
    >>> policy.update(arm, {"evening": 1.0}, 1.0)
    >>> policy.bandit.claim.status, policy.bandit.dim
    ('proven', 4)
    """

    def __init__(
        self,
        algorithm: str,
        *,
        reward_range: tuple[float, float],
        arms: Sequence[Any] | None = None,
        features: Sequence[Any] | None = None,
        max_norm: float = 1.0,
        burn_in: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(burn_in=burn_in)
        # river clones a policy from the attributes named like these parameters
        self.algorithm, self.options = algorithm, options
        self.reward_range, self.arms, self.features, self.max_norm = (
            reward_range,
            arms,
            features,
            max_norm,
        )
        self._deferred = DeferredBandit(
            algorithm, {"reward_range": reward_range, "max_norm": max_norm, **options}
        )
        self._blocks: dict[Any, int] | None = None
        self._places: dict[Any, int] = {}

    @property
    def bandit(self) -> Any:
        """The dpbandit policy inside, with its `claim` and `spent`; None before the first round."""
        return self._deferred.bandit

    def pull(self, arm_ids: Sequence[Any], context: Mapping[Any, float] | None = None) -> Any:
        """The arm to play."""
        self._settle(arm_ids, context)  # before river's burn-in, which plays arms by itself
        return super().pull(arm_ids, context)

    def _pull(self, arm_ids: Sequence[Any], context: Mapping[Any, float] | None = None) -> Any:
        rows = self._rows(arm_ids, context)
        return arm_ids[int(self._deferred.of(rows.shape[1]).select(rows))]

    def update(self, arm_id: Any, *observed: Any, user: Any = None) -> None:
        """Learn from (context, reward), or from a reward alone; `user` with unit=('user', m)."""
        if len(observed) not in (1, 2):
            raise ShapeError(
                f"update takes an arm, a context and a reward, or an arm and a reward, not {1 + len(observed)} things"
            )
        context, reward = observed if len(observed) == 2 else (None, observed[0])
        rows = self._rows([arm_id], context)
        self._deferred.of(rows.shape[1]).update(rows[0], float(reward), user=user)
        self._counts[arm_id] += 1
        self._n += 1

    @property
    def ranking(self) -> list[Any]:
        """Arms by their released estimate with all features at 0, best first."""
        if self.bandit is None or self._blocks is None:
            return []
        estimates = self.bandit.theta.reshape(len(self._blocks), -1)[:, 0]
        return [
            arm
            for _, arm in sorted(
                zip(-estimates, self._blocks, strict=True), key=lambda pair: pair[0]
            )
        ]

    def __repr__(self) -> str:
        return repr(self.bandit) if self.bandit is not None else f"<{self.algorithm}: no round yet>"

    def _settle(
        self, arm_ids: Sequence[Any], context: Mapping[Any, float] | None
    ) -> dict[Any, int]:
        """The blocks of arms and features, fixed in the first round."""
        if self._blocks is None:
            arms = arm_ids if self.arms is None else self.arms
            names = sorted(context or {}, key=str) if self.features is None else self.features
            self._blocks = {arm: i for i, arm in enumerate(arms)}
            self._places = {name: i for i, name in enumerate(names, 1)}
        return self._blocks

    def _rows(
        self, arm_ids: Sequence[Any], context: Mapping[Any, float] | None
    ) -> NDArray[np.float64]:
        blocks = self._settle(arm_ids, context)
        size = 1 + len(self._places)
        x = np.zeros(size)
        x[0] = 1.0
        for name, value in (context or {}).items():
            if name not in self._places:
                raise OptionError(
                    f"the feature {name!r} was not in the first context: name all of them, features=[...]"
                )
            x[self._places[name]] = _number(name, value)
        rows = np.zeros((len(arm_ids), len(blocks) * size))
        for row, arm in zip(rows, arm_ids, strict=True):
            if arm not in blocks:
                raise OptionError(
                    f"the arm {arm!r} was not offered in the first round: name all of them, arms=[...]"
                )
            start = blocks[arm] * size
            row[start : start + size] = x
        return shortened(rows, self.max_norm)


def _number(name: Any, value: Any) -> float:
    if isinstance(value, str):
        raise ShapeError(
            f"the feature {name!r} is text: use river's preprocessing.OneHotEncoder first"
        )
    return float(value)
