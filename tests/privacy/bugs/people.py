"""Planted bugs of users and persons: whose rewards are counted, and how often."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest

from bugs.bent import make, ones, redesigned, stepwise_ratio
from dpbandit import learning, state
from dpbandit.auditor.watch import Watch, cost_of_releases, joint_cost, record
from dpbandit.bandit import Bandit
from dpbandit.files import unpack
from dpbandit.learners.pair import PairLearner
from dpbandit.privacy.unit import Spread, Taken, rows_of
from dpbandit.saving import pack


class CountsNobody(dict):
    def get(self, name, default=None):
        return default


def plant_user_over_cap() -> str:
    users = ["one and the same"] * 8

    def broken():
        bandit = make(unit=("user", 2))
        bandit.counters = CountsNobody()
        return bandit

    ratio = stepwise_ratio(broken, ones(8), list(range(8)), users=users)
    sound = stepwise_ratio(lambda: make(unit=("user", 2)), ones(8), list(range(8)), users=users)
    assert ratio > 1.5
    assert sound <= 1 + 1e-9
    return f"{ratio:.2f} × the claimed μ for a user with 8 rewards; {sound:.2f} × with the cap of 2"


def capped(name: str = "tree-gauss", most: float = 1, **given):
    return make(name, unit=("person", most), reward_range=(0.0, 1.0), **given)


def person_ratio(factory, one, *, between=None) -> float:
    """Of a person who has these rewards in every second round, and in the others instead."""
    one = np.array(one)
    xs, users = ones(len(one)) * np.where(np.arange(len(one)) % 2, -1.0, 1.0)[:, None], "anna"
    told = {"users": [users] * len(one), "between": between}
    first = record(factory, xs, one, **told)
    two = one.reshape(-1, 2)[:, ::-1].ravel()
    cost, _why = joint_cost(first, record(factory, xs, two, script=first, **told))
    return math.sqrt(cost) / factory().claim.mu


CLICKS = [1.0, 0.0] * 8


def forgotten(bandit, t):
    """A save that leaves out what persons' rewards add up to."""
    again = unpack(pack(bandit))
    again.counters = {}
    return again


def plant_person_forgotten_by_a_save() -> str:
    def as_it_ships(bandit, t):
        return unpack(pack(bandit))

    broken = person_ratio(capped, CLICKS, between=forgotten)
    sound = person_ratio(capped, CLICKS, between=as_it_ships)
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ with a save after every round; {sound:.2f} × as it ships"


def plant_person_capped_by_the_day() -> str:
    def at_midnight(bandit, t):
        if t % 4 == 3:
            bandit.counters = {}
        return bandit

    broken, sound = person_ratio(capped, CLICKS, between=at_midnight), person_ratio(capped, CLICKS)
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ after four days; {sound:.2f} × with a cap for ever"


class TellsWhoClicked(Bandit):
    """What is counted of persons is shown like what is counted of users."""

    @property
    def user_counts(self):
        return self.counters


def plant_public_counter() -> str:
    users = ["anna"] * 2

    def cost(kind) -> tuple[float, str]:
        def factory():
            return redesigned(capped(), kind)

        first = record(factory, ones(2), [1.0, 0.0], users=users)
        return joint_cost(first, record(factory, ones(2), [0.0, 0.0], users=users, script=first))

    assert math.isfinite(cost(Bandit)[0])
    broken, why = cost(TellsWhoClicked)
    assert math.isinf(broken)
    return why


def plant_narrow_window_of_a_person() -> str:
    """Noise for the whole range, and residuals in a window: an item is then twice as large."""

    def shipped():
        known = np.array([[1e-3], [-1e-3]])  # so that instruments of 1 and −1 are nearly opposite
        given = {"first_release": 1, "ratio": 1.2, "knee": 4.0, "public_contexts": known}
        return capped("anytime", 1.5, horizon=None, **given)

    def narrow():
        return redesigned(shipped(), settings={"window": 0.25})

    rewards = [0.75, 0.0] * 2 + [0.0, 0.0] * 30
    broken, sound = person_ratio(narrow, rewards), person_ratio(shipped, rewards)
    assert broken > 1.1
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ in a window of half the range; {sound:.2f} × as it ships"


def spread_user(most: float = 2):
    """Public contexts so short that instruments are contexts, at norm 1."""
    given = {"first_release": 1, "ratio": 1.1, "knee": 4.0, "dim": 4, "horizon": None}
    given["public_contexts"] = 1e-3 * np.concatenate([np.eye(4), -np.eye(4)])
    return make("anytime", unit=("spread", most), **given)


def spread_ratio(factory=spread_user, xs=None) -> float:
    """Of a user in these contexts, again and again, whose rewards all move the same way."""
    xs = np.tile(np.eye(4), (3, 1)) if xs is None else xs
    xs = np.concatenate([xs, np.eye(4)[np.arange(60) % 4]])
    users = ["anna"] * (len(xs) - 60) + [f"u{t}" for t in range(60)]
    return stepwise_ratio(factory, xs, list(range(len(xs) - 60)), users=users)


def without_number(unit, reward, before, width, bits, instrument):
    """λ_max of the Gram matrix bounds one direction; the user's N rewards are N times that."""
    learned = np.vstack([rows_of(before, len(instrument)), instrument])
    fits = np.linalg.eigvalsh(learned.T @ learned)[-1] <= unit.option[1] ** 2
    return Taken(reward, instrument.tobytes().hex() if fits else "", fits)


def plant_eigenvalue_for_a_group() -> str:
    sound = spread_ratio()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spread, "take", without_number)
        broken = spread_ratio()
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ for a user with twelve rewards; {sound:.2f} × as it ships"


def visitor():
    given = {"knee": 4.0, "first_release": 6, "ratio": 1.05, "backend": "reference"}
    return make("anytime-joint", unit=("person", 1), reward_range=(0.0, 1.0), horizon=None, **given)


def visitor_ratio(factory=visitor, turned: int = 1, batch: int = 1) -> float:
    """All of a person's ten visits are others: over the claim.

    In the first ones the context is turned at right angles, and the reward is what was predicted; then
    it is all in one stream and nothing in the other. Fifty others come after them.
    """
    rng = np.random.default_rng(4)
    xs, one = rng.uniform(-1, 1, size=(60, 1)), rng.uniform(0, 1, size=60)
    users = ["anna"] * 10 + [f"u{t}" for t in range(50)]
    xs[:10], one[:10] = 1.0, 1.0
    one[:turned] = 0.5
    others, two = xs.copy(), one.copy()
    others[:turned], two[turned:10] = -1.0, 0.0
    watched = None
    for contexts, rewards in ((xs, one), (others, two)):
        bandit = factory()
        watch = Watch(bandit.source, watched)
        bandit.source = watch
        for first in range(0, 60, batch):
            rows = slice(first, first + batch)
            with contextlib.suppress(KeyboardInterrupt):
                bandit.update(contexts[rows], rewards[rows], user=users[rows])
        before, watched = watched, watch.transcript
    cost, _why = cost_of_releases(before, watched)
    return math.sqrt(cost) / factory().claim.mu


def plant_second_visit_in_the_gram_matrix() -> str:
    sound = visitor_ratio(turned=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PairLearner, "_is_new", lambda learner: True)
        broken = visitor_ratio(turned=5)
    assert broken > 1.5
    assert visitor_ratio() <= 1
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ for a person who lies elsewhere in five visits; {sound:.2f} × as it ships"


def plant_interrupt_that_is_not_charged() -> str:
    """What is counted comes after what is learned, and Ctrl-C between the two."""

    def in_two_steps(bandit, x, reward, user, told):
        learning.learn_with_release(bandit, x, reward, told, state.Counted(user.name, user.before))
        bandit.counters = {**bandit.counters, user.name: user.before}
        raise KeyboardInterrupt

    sound = visitor_ratio()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "learn_of_user", in_two_steps)
        broken = visitor_ratio()
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ after ten interrupts; {sound:.2f} × as it ships"


def plant_room_before_commit() -> str:
    """What is left of a person is read for a whole batch before the first row of it is learned."""

    def factory():
        bandit = visitor()
        bandit.__class__ = ReadsAhead
        return bandit

    class ReadsAhead(Bandit):
        def update(self, contexts, rewards, *, user=None):
            before = self.counters
            for x, reward, name in zip(contexts, rewards, user, strict=True):
                counts = self.counters
                self.counters = {**counts, name: before.get(name, 0)}
                super().update(x, reward, user=name)

    broken, sound = visitor_ratio(factory, batch=10), visitor_ratio(batch=10)
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ for a batch of ten visits; {sound:.2f} × as it ships"
