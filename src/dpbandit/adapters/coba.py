"""coba (version 8): a dpbandit algorithm as one of its learners, and our worlds as its environments.

Features are made by coba's own encoder with the same notation as its LinUCBLearner, so that both see the same numbers.
"""

from __future__ import annotations

from dpbandit.adapters import need

need("coba")  # before anything that takes time

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from coba.encodings import InteractionsEncoder
from coba.exceptions import CobaException
from coba.primitives import Environment, Learner, is_batch
from numpy.typing import NDArray

from dpbandit.adapters.deferred import DeferredBandit, shortened
from dpbandit.algorithms import registry
from dpbandit.errors import OptionError, PropensityError, ShapeError
from dpbandit.worlds.block import World

# Rounds that a world makes at a time.
BLOCK = 1024


class CobaLearner(Learner):
    """Any algorithm of `dpb.algorithms()` in coba's experiments.

    `features` lists the parts of an arm's context, in coba's notation: 1 is a constant, "a" the
    action's features, "x" the context's, "ax" their products. The default, [1, "a", "ax"], gives
    one model per action if actions are one-hot.

    A vector longer than `max_norm` is scaled down to it. If `max_norm` is at least the largest
    norm, the model is exactly linear; except for `anytime`, noise grows with it. Rewards are
    clipped to `reward_range` (not by `linucb` and `random`). Text and dictionaries need `hash_to`,
    the number of buckets that features are hashed into, with signs. Other options are those of
    `dpb.make`; without a `seed` the noise is real.

    If arms are sampled (policy="sampled", holdout, Thompson sampling, random play) propensities are reported; UCB
    algorithms have none, and report none.

    >>> learner = CobaLearner("anytime", epsilon=1.0, delta=1e-6, reward_range=(0, 1), seed=1)
    >>> learner.predict([0.5, 0.1], [(1, 0), (0, 1)])["action"] in [(1, 0), (0, 1)]
    True
    >>> learner.params["claim"]
    'GDP, proven; (ε, δ) where the first rewards may be released one by one'
    """

    def __init__(
        self,
        algorithm: str,
        *,
        reward_range: tuple[float, float],
        features: Sequence[str | float] = (1, "a", "ax"),
        max_norm: float = 1.0,
        hash_to: int | None = None,
        **options: Any,
    ) -> None:
        if options.get("unit", "reward") != "reward":
            raise OptionError(
                "coba does not say whose reward it is: only unit='reward' is possible here"
            )
        self._deferred = DeferredBandit(
            algorithm, {"reward_range": reward_range, "max_norm": max_norm, **options}
        )
        self._features, self._hash_to = list(features), hash_to
        self._encoder = InteractionsEncoder(self._features)

    @property
    def bandit(self) -> Any:
        """The dpbandit policy inside, with its `claim` and `spent`; None before the first round."""
        return self._deferred.bandit

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters that coba records with results; any ε comes with its claim."""
        options = {
            n: v
            for n, v in self._deferred.options.items()
            if v is not None and n != "public_contexts"
        }
        options = {n: list(v) if isinstance(v, tuple) else v for n, v in options.items()}
        claim = registry.find(self._deferred.algorithm).claim
        hashed = {} if self._hash_to is None else {"hash_to": self._hash_to}
        family = f"dpbandit {self._deferred.algorithm}"
        return {"family": family, "claim": claim, **options, "features": self._features, **hashed}

    def predict(self, context: Any, actions: Any) -> dict[str, Any]:
        """The action to take: with its propensity where the algorithm has one."""
        rows = self._rows(context, actions)
        bandit = self._deferred.of(rows.shape[1])
        if not self._deferred.draws_lots:
            return {"action": actions[int(bandit.select(rows))]}
        arm, propensity, _ = bandit.decide(rows)
        return {"action_prob": (actions[arm], propensity)}

    def score(self, context: Any, actions: Any, action: Any) -> float:
        """The propensity of an action."""
        if not self._deferred.draws_lots:
            raise PropensityError(
                f"{self._deferred.algorithm} has no score: it does not randomise, so it has no propensities"
            )
        rows = self._rows(context, actions)
        return float(
            self._deferred.of(rows.shape[1])
            .propensities(rows)
            .probabilities[list(actions).index(action)]
        )

    def learn(
        self, context: Any, action: Any, reward: Any, probability: Any, **kwargs: Any
    ) -> None:
        """Learn from one reward."""
        del probability, kwargs
        rows = self._rows(context, [action])
        self._deferred.of(rows.shape[1]).update(rows[0], float(reward))

    def _rows(self, context: Any, actions: Any) -> NDArray[np.float64]:
        if is_batch(context) or is_batch(actions):
            raise CobaException("one decision at a time")  # coba then takes a batch apart by itself
        if not actions:
            raise CobaException(
                "dpbandit chooses among given actions: a continuous action space has none"
            )
        encoded = [self._encoder.encode(x=context, a=action) for action in actions]
        if any(isinstance(row, Mapping) for row in encoded):
            encoded = [self._hashed(row) for row in encoded]
        try:
            rows = np.array(encoded, dtype=np.float64)
        except ValueError:
            raise ShapeError(
                "these actions have different numbers of features, or features that are not numbers"
            ) from None
        return shortened(rows, self._deferred.options["max_norm"])

    def _hashed(self, row: Any) -> list[float]:
        if self._hash_to is None:
            raise OptionError(
                "features are named or text here, not a list of numbers: give hash_to, for example hash_to=64"
            )
        buckets = [0.0] * self._hash_to
        for name, value in row.items():
            number = int.from_bytes(blake2b(str(name).encode(), digest_size=8).digest(), "big")
            buckets[(number >> 1) % self._hash_to] += float(value) * (1 if number & 1 else -1)
        return buckets


class CobaWorld(Environment):
    """One of our worlds in coba: actions are the arms' contexts, and there is no context beside them (`features=["a"]`).

    The same seed gives the rounds that `dpb.run` plays.

    >>> import dpbandit as dpb
    >>> first = next(iter(CobaWorld(dpb.worlds.Bernoulli(means=[0.2, 0.8]), rounds=5, seed=0).read()))
    >>> first["actions"], first["rewards"]
    ([(1.0, 0.0), (0.0, 1.0)], [1.0, 1.0])
    """

    def __init__(self, world: World, *, rounds: int | None = None, seed: int = 0) -> None:
        rounds = world.rounds if rounds is None else rounds
        if rounds is None:
            raise OptionError(
                f"{world!r} has no end: give a number of rounds, for example rounds=1_000"
            )
        self._world, self._rounds, self._seed = world, rounds, seed

    @property
    def params(self) -> Mapping[str, Any]:
        """What coba writes beside results."""
        return {
            "env_type": "dpbandit",
            "world": repr(self._world),
            "rounds": self._rounds,
            "seed": self._seed,
        }

    def read(self) -> Iterator[dict[str, Any]]:
        """The rounds, from the first."""
        episode = self._world.episode(self._seed)
        for start in range(0, self._rounds, BLOCK):
            block = episode.block(min(BLOCK, self._rounds - start))
            for shown, rewards in zip(block.shown, block.rewards, strict=True):
                actions = [tuple(row) for row in block.pool[shown].tolist()]
                yield {"context": None, "actions": actions, "rewards": rewards.tolist()}
