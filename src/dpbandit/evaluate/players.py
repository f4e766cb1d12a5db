"""Who is evaluated: algorithms that learn from the log as they would online, and models that do not.

A player chooses, and learns from a row only where it would have seen its reward. What it chooses
follows from what it released before. `release` relies on that, and refuses players for which it is not so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbandit.algorithms import registry
from dpbandit.bandit import Bandit
from dpbandit.errors import OptionError
from dpbandit.evaluate.rounds import Round
from dpbandit.model import ReleasedModel
from dpbandit.privacy.claim import Claim
from dpbandit.types import Matrix, Vector

# Options that `replay` itself goes by, also where nobody learns.
OURS = {"reward_range", "unit"}

Wanted = list[tuple[str, Any, dict[str, Any]]]  # label, name or model, options


class Player:
    """One contestant."""

    def __init__(self, label: str, policy: Any, *, learns: bool) -> None:
        self.label, self.policy, self.learns = label, policy, learns
        self.claim: Claim | None = getattr(policy, "claim", None) if learns else None
        self._theta: Vector | None = None

    def choose(self, contexts: Matrix) -> int:
        """The row that it plays."""
        arm = int(self.policy.select(contexts))
        if not 0 <= arm < len(contexts):
            raise OptionError(
                f"{self.label} selected arm {arm} of {len(contexts)}: select must return an index "
                "of a row"
            )
        return arm

    def learn(self, played: Round) -> None:
        """One reward, of the row that both it and the log chose."""
        if not self.learns:
            return
        x = np.ascontiguousarray(played.contexts[played.action])
        if isinstance(self.policy, Bandit) and self.policy.counts_users:
            self.policy.update(x, played.reward, user=played.user)
        else:
            self.policy.update(x, played.reward)
        self._theta = None

    def expects(self, context: Vector, low: float, high: float) -> float:
        """The reward that its released parameter says, a constant aside; 0 if it has none."""
        if self._theta is None:
            theta = getattr(self.policy, "theta", None)
            self._theta = np.zeros(len(context)) if theta is None else np.asarray(theta)
        width = high - low
        return min(max(float(context @ self._theta), low - width), high + width)


def wanted(algorithms: Any, options: Mapping[str, Any]) -> Wanted:
    """What was asked for, as `dpb.run` takes it: names, pairs, or labels with either or a model."""
    given: list[tuple[str | None, Any]]
    if isinstance(algorithms, Mapping):
        given = list(algorithms.items())
    elif isinstance(algorithms, (str, ReleasedModel)) or not isinstance(algorithms, Sequence):
        given = [(None, algorithms)]
    else:
        given = [(None, one) for one in algorithms]
    found: Wanted = []
    for label, one in given:
        own: dict[str, Any] = {}
        if isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], Mapping):
            one, own = one[0], dict(one[1])
        if isinstance(one, Bandit):
            raise OptionError(
                "a bandit would learn from the log and spend its budget: give its name and options, "
                "or bandit.model(), which does not learn"
            )
        if not isinstance(one, (str, ReleasedModel)):
            raise OptionError(
                "an algorithm is a name, (name, options) or a released model (bandit.model(), or "
                f"dpb.load of an export), not {type(one).__name__}"
            )
        if label is None:
            label = one if isinstance(one, str) else one.name
        if isinstance(one, str):
            registry.find(one)
        found.append((str(label), one, own))
    labels = [label for label, _, _ in found]
    if not found or len(set(labels)) < len(labels):
        raise OptionError(
            f"the labels {labels} repeat, or there is none: use a mapping {{label: (name, options)}}"
        )
    used = {key for _, one, own in found if isinstance(one, str) for key in (*own, *_takes(one))}
    if unknown := sorted(set(options) - used - OURS):
        raise OptionError(f"none of these algorithms has an option {unknown[0]!r}")
    return [(label, one, {**_shared(one, options), **own}) for label, one, own in found]


def _takes(name: str) -> tuple[str, ...]:
    from dpbandit.options import SHARED

    return (*SHARED, *registry.find(name).own_options)


def _shared(one: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(one, str) or registry.find(one).black_box:
        return dict(options) if isinstance(one, str) else {}
    return {key: value for key, value in options.items() if key in _takes(one)}


def players(chosen: Wanted, dim: int, encoder: Any, seed: int | None) -> list[Player]:
    """The contestants, none of whom has learned yet."""
    found = []
    for label, one, options in chosen:
        if isinstance(one, ReleasedModel):
            if one.dim != dim:
                raise OptionError(f"{label} has {one.dim} columns, and the log {dim}")
            if one.encoder is not None and one.encoder != encoder:
                raise OptionError(f"{label} has another encoder: give encoder=model.encoder")
            found.append(Player(label, one, learns=False))
            continue
        given = {"dim": dim, **options, "seed": seed}
        if encoder is not None and not registry.find(one).black_box:
            given["encoder"] = encoder
        found.append(Player(label, registry.construct_with_encoder(one, given), learns=True))
    return found
