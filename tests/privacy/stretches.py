"""Two neighbouring streams through the learner's own batch, and what all releases of a shadow or a
holdout cost together: the exact joint cost, from every clean value that was about to be shown."""

import json
import math
from collections import Counter

import numpy as np

from dpbandit.service import blueprint
from dpbandit.service.batch import LearningBandit, learn_batch
from dpbandit.service.measure import WEIGHT_STEPS, Measure
from dpbandit.service.store import Line
from dpbandit.service.trusted import Learnable

EPSILON, DELTA = 1.0, 1e-5


class Watched:
    """The real source, and every clean value it is given."""

    kind = "real"

    def __init__(self, inner):
        self.inner, self.seen = inner, []

    def release(self, noise, pending, *, scale, shift, index):
        noisy = self.inner.release(noise, pending, scale=scale, shift=shift, index=index)
        if pending.step == 1.0:  # of a stretch; the bandit's own are in other steps
            self.seen.append((str(noise), list(pending.whole), scale, shift))
            # What is released is the same in both streams: costs are of one transcript.
            return np.zeros(len(noisy))
        return noisy


class Stream:
    """What `learn_batch` asks of a store."""

    def __init__(self, rounds):
        self.rounds, self.counts = rounds, Counter()

    def batch(self, bandit, after, upto):
        return self.rounds[after:upto]

    def people(self, bandit, who):
        return {person: self.counts[person] for person in who}


def config_of(algorithm="tree-gauss", **change):
    asked = {
        "name": "shop",
        "algorithm": algorithm,
        "dim": 2,
        "epsilon": EPSILON,
        "delta": DELTA if algorithm != "private-linucb" else None,
        "reward_range": (0.0, 1.0),
        "holdout": 0.5,
        "measure_every": 5,
        **change,
    }
    return blueprint.normalised(blueprint.Request(**asked), max_dim=9)


def held_of(config, kind=Measure):
    """A learner's bandit, as it is made and opened, and the claim it was made with."""
    made = blueprint.records(blueprint.draft(config, allow_unproven=False), config)
    claim = made["claim"]
    line = Line(config, claim, 1, "x", "shop", "learning", "", 1, 0, 0, 0, 0, 0, None, 0)
    held = LearningBandit.open(
        line, 1, number=0, position=0, state=made["state"], measure=made["measure"]
    )
    held.measure = kind.from_text(made["measure"])
    held.recorder.inner = held.bandit.source.inner = Watched(held.recorder.inner)
    return held, claim


def rounds_of(rewards, *, kinds, people=None):
    """A stream: (weight in the shadow, weight for a holdout) and a reward for each round."""
    context = np.array([1.0, 0.0]).tobytes()
    people = people or [None] * len(rewards)
    return [
        Learnable(number, context, person, reward, *weights)
        for number, (reward, weights, person) in enumerate(
            zip(rewards, kinds, people, strict=True), 1
        )
    ]


def released(config, rounds, kind=Measure, lots=3):
    """Every clean value of a stretch, learned in lots as the learner learns them."""
    held, claim = held_of(config, kind)
    stream = Stream(rounds)
    while held.position < len(rounds):
        upto = min(held.position + lots, len(rounds))
        new, ended = learn_batch(held, upto, stream, keep_transcript=False)
        assert not ended
        stream.counts.update(
            {person: n - stream.counts[person] for person, n in new.people.items()}
        )
        held.position, held.number = new.position, new.number
        held.measure = kind.from_text(new.measure)  # as after a restart
    return held, claim, held.recorder.inner.seen, json.loads(new.privacy)


def cost(config, one, other, kind=Measure):
    """(joint cost of the stretches to two neighbours, what they may cost, the claim, the account):
    μ for Gaussian noise, ε for Laplace."""
    held, claim, first, account = released(config, one, kind)
    _, _, second, _ = released(config, other, kind)
    assert len(first) == len(second), "how many releases there are depends on a reward"
    total = 0.0
    for (noise, a, scale, _), (_, b, same, _) in zip(first, second, strict=True):
        assert scale == same, "a scale depends on a reward"
        apart = np.array([x - y for x, y in zip(a, b, strict=True)], dtype=float) / scale
        total += float(apart @ apart) if noise == "gaussian" else float(np.abs(apart).sum())
    moves = held.bandit.options.moves_per_unit
    if held.measure.noise == "gaussian":
        return math.sqrt(total), moves * math.sqrt(held.measure.cost), claim, account
    return total, moves * held.measure.cost, claim, account


FULL, NONE = (None, WEIGHT_STEPS), (None, 0)
