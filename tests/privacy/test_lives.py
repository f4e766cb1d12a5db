"""Random lives of a bandit that is served, and of its neighbour: the exact joint cost of all that was
published, through the learner's own batches.

A life has batches of any size, learners that crash between the draw and the release, restarts from the
saved state, erasures on request, rewards that never came, shadows and holdouts, users and persons beyond
their cap. Both streams are told the same noisy values; what is public must be the same after every batch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from stretches import Stream

from dpbandit.auditor.stories import Fast
from dpbandit.auditor.watch import Watch, cost
from dpbandit.errors import OptionError
from dpbandit.privacy.accounting import mu_of
from dpbandit.service import blueprint
from dpbandit.service.batch import LearningBandit, learn_batch
from dpbandit.service.measure import WEIGHT_STEPS
from dpbandit.service.schema import ERASED_COUNT
from dpbandit.service.store import Line
from dpbandit.service.trusted import Learnable, NewRelease

TARGET = b"target".ljust(16, b"0")
CAN_BE_PURE = ("private-ucb", "dp-klucb", "local")
NAMES = (
    *("tree-gauss", "private-linucb", "dgs", "toeplitz", "anytime", "adac-oful", "private-ts"),
    *(*CAN_BE_PURE, "anytime-joint", "joint"),
)  # fmt: skip
PUBLIC = ("number", "position", "charged", "fingerprint", "privacy", "model", "noise_scale")


class Life(NamedTuple):
    """What happens to a bandit of this config, in rounds of two neighbours."""

    config: dict[str, Any]
    rounds: list[list[Learnable]]


class Lives(Stream):
    """What a learner asks of a store, with erasures on request."""

    def erase(self, person: bytes, after: int) -> None:
        if person in self.counts:
            self.counts[person] = ERASED_COUNT
        gone = {"context": b"", "person": None, "reward": None}
        for at in range(after, len(self.rounds)):
            if self.rounds[at].person == person:
                self.rounds[at] = self.rounds[at]._replace(**gone)

    def publish(self, people: dict[bytes, int]) -> None:
        self.counts |= {p: n for p, n in people.items() if self.counts[p] != ERASED_COUNT}


class Served:
    """One of the two, as its learner holds it."""

    def __init__(self, life: Life, number: int, made: dict[str, Any], watch: Watch) -> None:
        self.config, self.watch = life.config, watch
        self.stream = Lives(life.rounds[number])
        self.number = self.position = 0
        self.state, self.measure = made["state"], made["measure"]
        self.restart()

    def restart(self) -> None:
        line = Line(self.config, {}, 1, "x", "shop", "learning", "", 1, 0, 0, 0, 0, 0, None, 0)
        where = {"number": self.number, "position": self.position}
        self.held = LearningBandit.open(line, 1, state=self.state, measure=self.measure, **where)
        self.held.recorder.inner = self.watch

    def learn(self, most: int) -> tuple[NewRelease, str]:
        upto = min(self.position + most, len(self.stream.rounds))
        return learn_batch(self.held, upto, self.stream, keep_transcript=False)

    def publish(self, new: NewRelease) -> None:
        self.stream.publish(new.people)
        self.number, self.position, self.state = new.number, new.position, new.state
        self.measure = new.measure
        self.held.number, self.held.position = new.number, new.position


def drawn(rng: np.random.Generator) -> Life:
    """Most lives are short, many move a unit's rewards from end to end in one context."""

    def one(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    name, rows, dim = one(*NAMES), int(rng.integers(1, one(12, 40, 90))), int(rng.integers(1, 5))
    unit = one("reward", ("user", one(1, 2, 3)), ("person", one(1.0, 2.0, 1.5)))
    private, pure = name.endswith("joint"), name in CAN_BE_PURE and rng.random() < 0.5
    low = 0.0 if unit[0] == "person" else one(0.0, -0.5, 1e6)
    options: dict[str, Any] = {"noise": "laplace"} if pure else {}
    if name.startswith("anytime"):
        options |= {"first_release": int(rng.integers(1, 5)), "knee": 10.0 ** rng.uniform(-1, 2)}
    asked = {
        "name": "shop", "algorithm": name, "dim": dim, "unit": unit, "options": options,
        "epsilon": one(0.1, 1.0, 2.0, 8.0), "reward_range": (low, low + 1.0),
        "delta": None if pure or name == "private-linucb" else one(1e-6, 1e-5, 1e-2),
        "horizon": one(None, rows, 2 * rows),
    }  # fmt: skip
    measured = one("shadow", "holdout", "") if not private and unit[0] != "person" else ""
    if measured:
        asked |= {measured: one(True) if measured == "shadow" else 0.5}
        asked |= {"measure_every": int(rng.integers(1, 8)), "measure_share": one(0.01, 0.1, 0.5)}
    xs = rng.normal(size=(rows, dim))
    if name in ("private-ucb", "dp-klucb") or rng.random() < 0.3:
        xs = np.eye(dim)[rng.integers(dim, size=rows)]
    if rng.random() < 0.4:
        xs[:] = xs[0]
    xs /= np.linalg.norm(xs, axis=1, keepdims=True)
    others = [bytes([48 + n]) * 16 for n in range(int(rng.integers(1, 4)))]
    often = one(1.0, 0.4)
    people = [TARGET if rng.random() < often else one(*others) for _ in range(rows)]
    changed = [row for row in range(rows) if people[row] == TARGET]
    if unit == "reward":
        changed = [one(0, rows - 1, int(rng.integers(rows)))]
    usual = rng.choice([low, low + 1, low - 5, low + 5], size=rows)
    rewards = [usual, usual.copy()]
    ends, turns = np.array([low, low + 1.0]), one(0, 1)  # here in one stream, there in the other
    which = np.arange(len(changed)) * turns % 2
    rewards[0][changed], rewards[1][changed] = ends[which], ends[1 - which]
    contexts = [xs, xs.copy()]
    if private:
        contexts[1][changed] = rng.permutation(np.eye(dim))[0]
    weights = rng.choice([0, WEIGHT_STEPS // 3, WEIGHT_STEPS], size=rows).tolist()
    never = {row for row in range(rows) if rng.random() < 0.05} - set(changed)
    rounds = []
    for x, r in zip(contexts, rewards, strict=True):
        rounds.append(
            [
                Learnable(
                    row + 1,
                    x[row].tobytes(),
                    None if unit == "reward" else people[row],
                    None if row in never else float(r[row]),
                    weights[row] if measured == "shadow" else None,
                    weights[row] if measured == "holdout" else None,
                )
                for row in range(rows)
            ]
        )
    return Life(blueprint.normalised(blueprint.Request(**asked), max_dim=9), rounds)


def cost_over_claim(life: Life, rng: np.random.Generator) -> float:
    """μ or ε of all that both learners published, as a share of what the claim promises."""
    made = blueprint.records(blueprint.draft(life.config, allow_unproven=False), life.config)
    first = Watch(Fast(int(rng.integers(2**32)), 1.0))
    watches = [first, Watch(first.inner, first.transcript)]
    sides = [Served(life, number, made, watch) for number, watch in enumerate(watches)]
    released = [watch.transcript.releases for watch in watches]
    bandit, ended = sides[0].held.bandit, ""
    while sides[0].position < len(life.rounds[0]) and not ended:
        most, what, before = int(rng.integers(1, 9)), rng.random(), len(released[0])
        if rng.random() < 0.05 and life.config["unit"] != "reward":
            person = life.rounds[0][int(rng.integers(len(life.rounds[0])))].person
            for side in sides:
                side.stream.erase(person or TARGET, side.position)
                side.restart()
        (one, ended), (two, also) = (side.learn(most) for side in sides)
        assert ended == also
        for name in PUBLIC:
            assert getattr(one, name) == getattr(two, name), f"{name} depends on a reward"
        if what < 0.15 and not ended:  # nobody saw it: drawn anew
            for side, made_by in zip(sides, released, strict=True):
                del made_by[before:]
                side.restart()
            continue
        for side, new in zip(sides, (one, two), strict=True):
            side.publish(new)
            if what < 0.4:
                side.restart()
    total = 0.0
    for a, b in zip(*released, strict=True):
        assert a.has_noise_of(b), "noise depends on a reward"
        if a.pending.step == 1.0:  # of a stretch
            apart = np.subtract(b.pending.whole, a.pending.whole).astype(float)
            total += cost(a.noise, apart, a.scale)
        else:
            total += a.cost_of(b)
    claim = made["claim"]
    if bandit.noise.notion == "gdp":
        promised = mu_of(epsilon=claim["epsilon"], delta=claim["delta"])
        return math.sqrt(total) / min(promised, claim["mu"] or promised)
    return float(total / claim["epsilon"])


def told(seeds: range) -> tuple[int, float]:
    """How many lives there were, and the highest cost."""
    ratios = []
    for seed in seeds:
        rng = np.random.default_rng([77, seed])
        try:
            ratios.append(cost_over_claim(drawn(rng), rng))
        except OptionError:  # no such bandit is served
            continue
        assert ratios[-1] <= 1 + 1e-9, seed
    return len(ratios), max(ratios)


def test_no_life_costs_more_than_the_claim():
    lives, highest = told(range(40))
    assert lives > 30
    assert highest > 0.99


def test_a_store_that_forgets_people_is_seen(monkeypatch):
    monkeypatch.setattr(Lives, "publish", lambda self, people: None)
    with pytest.raises(AssertionError, match=r"^\d+\b"):
        told(range(40))


@pytest.mark.slow
def test_no_life_of_many_costs_more_than_the_claim():
    lives, highest = told(range(1_000, 3_000))
    assert lives > 1_800
    assert highest > 0.999999
