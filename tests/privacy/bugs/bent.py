"""How a bug is planted, and what it then costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

import dpbandit as dpb
from dpbandit.auditor.frozen import freeze
from dpbandit.auditor.verify import worst_of
from dpbandit.auditor.watch import joint_cost, record
from dpbandit.bandit import Bandit
from dpbandit.privacy.accounting import mu_of

EPSILON, DELTA = 2.0, 1e-3


@dataclasses.dataclass(frozen=True)
class Bug:
    """`plant` returns the evidence that the bug was caught, or raises AssertionError."""

    name: str
    caught_by: str
    plant: Callable[[], str]


def make(name: str = "tree-gauss", *, horizon: int | None = 64, dim: int = 1, **given):
    return dpb.make(name, dim=dim, epsilon=EPSILON, delta=DELTA, horizon=horizon, seed=0, **given)


def redesigned(bandit, kind=Bandit, settings=None, **changes):
    """The same bandit with another design, or with other settings of its engine."""
    settings = {**bandit.design.settings, **(settings or {})}
    design = dataclasses.replace(bandit.design, settings=settings, **changes)
    return kind(bandit.name, bandit.options, design)


class Bent:
    """An engine that does everything like the one inside, but for what a subclass changes."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def draft(self):
        made = object.__new__(type(self))
        vars(made).update(vars(self), inner=self.inner.draft())
        return made


def bent(bandit, kind, *given):
    bandit.engine = kind(bandit.engine, *given)
    return bandit


def engine_ratio(bandit, xs) -> float:
    """Exact joint cost of the worst position over what was asked for, by the engine's trace."""
    _, cost, _why = worst_of(freeze(bandit, xs), 1)
    return over_claim(bandit, cost)


def over_claim(bandit, cost: float) -> float:
    """A cost in the noise's currency over the claim: μ of the pair (ε, δ) where that is the claim."""
    if bandit.noise.notion == "gdp":
        claimed = bandit.claim.mu or mu_of(epsilon=bandit.claim.epsilon, delta=bandit.claim.delta)
        return math.sqrt(cost) / claimed
    return cost / EPSILON


def stepwise_cost(factory, xs, positions, *, users=None, between=None) -> tuple[float, str]:
    """The same through the step-by-step object, with raw rewards far outside the range."""
    rewards = np.full(len(xs), -100.0)
    other = rewards.copy()
    other[positions] = 100.0
    one = record(factory, xs, rewards, users=users, between=between)
    two = record(factory, xs, other, users=users, between=between, script=one)
    return joint_cost(one, two)


def stepwise_ratio(factory, xs, positions, **given) -> float:
    cost, _why = stepwise_cost(factory, xs, positions, **given)
    return over_claim(factory(), cost)


def wholes(engine) -> list[list[int]]:
    """The clean sums, in whole numbers of STEP."""
    fields = engine.fields()
    words = zip(fields["sums_high"].tolist(), fields["sums_low"].tolist(), strict=True)
    return [[(h << 64) + low % 2**64 for h, low in zip(*row, strict=True)] for row in words]


def ones(rounds: int, dim: int = 1) -> np.ndarray:
    return np.full((rounds, dim), 1 / math.sqrt(dim))
