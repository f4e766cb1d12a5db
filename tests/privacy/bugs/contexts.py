"""Planted bugs where contexts are private: of slates, whiteners, shares, draws and logs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bugs.bent import Bent, bent, make, ones, over_claim, redesigned
from dpbandit.auditor import warm
from dpbandit.auditor.watch import joint_cost, record
from dpbandit.codes import DUE
from dpbandit.logs.record import People
from dpbandit.release.pair import largest_move

ROUNDS = 60


def private(**given):
    quick = {"knee": 4.0, "first_release": 6, "ratio": 1.05, "dim": 2, "horizon": None}
    return make("anytime-joint", **(quick | given))


def stream() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(ROUNDS, 2))
    xs /= np.maximum(np.linalg.norm(xs, axis=1, keepdims=True), 1.0)
    return xs, rng.uniform(-2, 2, size=ROUNDS)


def round_cost(factory, first, other, *, slates=None) -> tuple[float, str]:
    """What it costs that the first round has another context and reward; with `slates` what is
    offered after each round, which then differs too, in the sixth."""
    xs, rewards = stream()
    runs: list = []
    for context, reward, sign in ((first, 100.0, 1.0), (other, -100.0, -1.0)):
        xs[0], rewards[0] = context, reward

        def offers(bandit, t, sign=sign):
            if slates is not None:
                bandit.select(slates[t] * (sign if t == 5 else 1.0))
            return bandit

        script = runs[0] if runs else None
        runs.append(record(factory, xs, rewards, script=script, between=offers))
    return joint_cost(*runs)


def round_ratio(factory, first, other) -> float:
    return over_claim(factory(), round_cost(factory, first, other)[0])


def plant_slate_that_is_looked_at() -> str:
    class Looks(Bent):
        def select(self, contexts, *given):
            fields = {name: np.array(field) for name, field in self.inner.fields().items()}
            fields["estimate"] += 1e-3 * contexts.sum()
            self.inner.load_fields(fields)
            return self.inner.select(contexts, *given)

    slates = np.random.default_rng(4).normal(size=(ROUNDS, 3, 2)) / 4
    same = [0.6, 0.0]
    assert math.isfinite(round_cost(private, same, same, slates=slates)[0])
    broken, why = round_cost(lambda: bent(private(), Looks), same, same, slates=slates)
    assert math.isinf(broken)
    return why


class Whitens(Bent):
    """The first whitener is made of the first context, in the clear."""

    first = None

    def prepare(self, x, reward, inside=True, *counted):
        if self.first is None:
            self.first = np.array(x)
            fields = {name: np.array(field) for name, field in self.inner.fields().items()}
            fields["whiteners"][0, 0] = 1.0 + self.first[0]
            self.inner.load_fields(fields)
        return self.inner.prepare(x, reward, inside, *counted)

    def learn_many(self, xs, rs, told=None):
        return 0, DUE  # the long way: every round is prepared


def plant_whitener_of_clean_contexts() -> str:
    def broken():
        bandit = bent(private(), Whitens)
        bandit.short_way = False
        return bandit

    assert round_ratio(private, [0.9, 0.0], [-0.9, 0.0]) <= 1
    cost, why = round_cost(broken, [0.9, 0.0], [-0.9, 0.0])
    assert math.isinf(cost)
    return why


def plant_eta_too_large() -> str:
    """Directions weigh as η² = 1, with the noise of items which η² = ⅛ leaves at size 1."""
    heavy = {"first_eta2": 1.0, "later_eta2": 1.0}
    scale = private().spec["scale"] / math.sqrt(largest_move(1.0) / largest_move(0.125))
    nearly_square = [-0.75, math.sqrt(1 - 0.75**2)]  # u·u′ = ⅛, the worst angle for η² = 1
    ratio = round_ratio(
        lambda: redesigned(private(), settings={"scale": scale, **heavy}), [1.0, 0.0], nearly_square
    )
    sound = round_ratio(lambda: redesigned(private(), settings=heavy), [1.0, 0.0], nearly_square)
    assert ratio > 1.2
    assert sound <= 1
    return f"{ratio:.2f} × the claimed μ at the worst angle; {sound:.2f} × with the noise of that η"


class OneDraw:
    """The Gram matrix's first numbers get the moments' noise."""

    def __init__(self, inner):
        self.inner, self.kind = inner, inner.kind

    def release(self, noise, pending, **given):
        noisy = self.inner.release(noise, pending, **given)
        noisy[3:6] = pending.values[3:6] + (noisy - pending.values)[:3]
        return noisy


def plant_one_draw_for_both_sums() -> str:
    def broken():
        bandit = private()
        bandit.source = OneDraw(bandit.source)
        return bandit

    same = [0.6, 0.0]
    assert math.isfinite(round_cost(private, same, same)[0])
    cost, why = round_cost(broken, same, same)
    assert math.isinf(cost)
    return why


def plant_log_that_nobody_remembers() -> str:
    """Who was in the log is a stranger online, with a first visit and a cap once more."""

    def cost() -> float:
        def factory():
            return private(dim=1, unit=("person", 1), reward_range=(0.0, 1.0))

        mine = [0, 1, 2, *range(30, 36)]
        users = ["anna" if t in mine else f"u{t}" for t in range(ROUNDS)]
        xs, rewards = ones(ROUNDS), np.full(ROUNDS, 0.5)
        rewards[mine] = 1.0
        other, others = rewards.copy(), xs.copy()
        others[0], rewards[0], other[mine] = -1.0, 0.0, 0.0
        one = warm.record(factory, warm.Stream(xs, rewards, users, 30))
        two = warm.record(factory, warm.Stream(others, other, users, 30), script=one)
        return over_claim(factory(), joint_cost(one, two)[0])

    sound = cost()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(People, "count", lambda people, name: 0)
        broken = cost()
    assert broken > 1.05
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ for a person with three rows and six rounds; {sound:.2f} × as it ships"
