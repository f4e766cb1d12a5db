"""Planted bugs that show something clean: in models, choices, order and windows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bugs.bent import make, ones, redesigned, stepwise_cost
from dpbandit.auditor.verify import as_shipped
from dpbandit.bandit import Bandit
from dpbandit.learners.filter import FilterLearner
from dpbandit.model import ReleasedModel
from dpbandit.policies import View
from dpbandit.privacy.grid import STEP


class ClicksFirst(Bandit):
    """Learns a click when it comes and everything else at a time-out."""

    def update(self, contexts, rewards, *, user=None):
        waiting = self.__dict__.setdefault("waiting", [])
        if rewards > 0:
            super().update(contexts, rewards)
        else:
            waiting.append((contexts, rewards))
        if len(waiting) >= 4:
            for late in waiting:
                super().update(*late)
            waiting.clear()


def plant_learning_order() -> str:
    xs = ones(16) * np.linspace(0.5, 1, 16)[:, None]
    cost, why = stepwise_cost(lambda: redesigned(make(), ClicksFirst), xs, [1])
    assert math.isinf(cost)
    return why


class CleanExport(Bandit):
    """What it exports holds the last clean sum."""

    def model(self):
        found = super().model()
        return ReleasedModel(
            name=found.name,
            rounds=found.round,
            claim=found.claim,
            policy=found.policy,
            view=View(self.engine.pending(), found.view.matrix),
            alpha=found.alpha,
            gate=found.gate,
        )


def plant_clean_export() -> str:
    cost, why = stepwise_cost(lambda: redesigned(make(), CleanExport), ones(8), [3])
    assert math.isinf(cost)
    return why


class CleanChoices(Bandit):
    """Ranks by clean moments, and exports noisy ones."""

    def update(self, contexts, rewards, *, user=None):
        clean = self.__dict__.setdefault("clean", np.zeros(self.dim))
        clean += np.asarray(contexts) * float(np.clip(rewards, *self.options.reward_range))
        super().update(contexts, rewards, user=user)

    def select(self, contexts, k=None):
        order = np.argsort(-(np.asarray(contexts) @ self.clean), kind="stable")
        return int(order[0]) if k is None else order[:k]


def plant_clean_choices() -> str:
    cost, why = as_shipped(lambda: redesigned(make(dim=2), CleanChoices), ones(16, 2))
    assert math.isinf(cost)
    assert math.isfinite(as_shipped(lambda: make(dim=2), ones(16, 2))[0])
    return why


def clean_rate(learner: FilterLearner) -> None:
    """How often people click, and the prior with it, from the clean sum instead of the releases."""
    learner.rate = abs(float(np.sum(learner.sum.fields()["sums_low"].astype(float)))) * STEP


def plant_clean_rate() -> str:
    given = {"rewards": "clicks", "reward_range": (0, 1), "first_release": 2, "ratio": 1.2}
    more = {"backend": "reference", "public_contexts": np.random.default_rng(0).normal(size=(9, 2))}

    def shipped() -> float:
        return as_shipped(lambda: make("anytime", dim=2, **given, **more), ones(16, 2))

    assert math.isfinite(shipped()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "_note_rate", clean_rate)
        cost, why = shipped()
    assert math.isinf(cost)
    return why
