"""Planted bugs of shadows and holdouts."""

from __future__ import annotations

import dataclasses

import pytest

from dpbandit.bandit import Bandit
from dpbandit.service.measure import WHOLE


def _stretches(kind, **change):
    """What a shadow's releases cost a unit all of whose rewards differ, times what was set aside."""
    import stretches

    people = [b"ann"] * 8
    one = stretches.rounds_of([0.0] * 8, kinds=[stretches.FULL] * 8, people=people)
    if "unit" not in change:
        other = [one[0]._replace(reward=1.0), *one[1:]]
    else:
        other = [row._replace(reward=1.0) for row in one]
    config = stretches.config_of(**{"measure_every": 2, **change})
    paid, may, _, _ = stretches.cost(config, one, other, kind)
    return paid / may


def plant_stretch_that_goes_on() -> str:
    from dpbandit.service.measure import Measure

    class Goes(Measure):
        def release(self, kind, source, rounds):
            tally = self.open[kind]
            kept = list(tally.sums)
            super().release(kind, source, rounds)
            self.open[kind] = dataclasses.replace(tally, rounds=0, stretches=0, sums=kept)

    bad, good = _stretches(Goes), _stretches(Measure)
    assert good <= 1 + 1e-12 < bad
    return f"{bad:.2f} × what was set aside for a reward that is in four releases"


def plant_stretches_for_one_reward() -> str:
    from dpbandit.service.measure import Measure

    class One(Measure):
        @classmethod
        def from_text(cls, text):
            measure = super().from_text(text)
            if measure.shift > WHOLE:  # of all of a user's rewards: here of one
                measure.scale *= WHOLE / measure.shift
                measure.shift = float(WHOLE)
            return measure

    bad, good = (_stretches(kind, unit=("user", 4)) for kind in (One, Measure))
    assert good <= 1 + 1e-12 < bad
    return f"{bad:.2f} × what was set aside for a user with 4 rewards; {good:.2f} × as it ships"


def plant_measured_beyond_the_cap() -> str:
    from dpbandit.service import batch
    from dpbandit.service.measure import Measure

    def all_of_them(held, taken, rewards):
        for one, reward in zip(taken, rewards, strict=True):
            if held.measure.learned("holdout", one.by_lot, reward, 0.0, 1.0):
                held.measure.release("holdout", held.recorder.inner, held.bandit.rounds)

    update = Bandit.update

    def told(self, contexts, rewards, *, user=None):
        update(self, contexts, rewards, user=user)
        all_of_them(told.held, told.rows, rewards)

    good = _stretches(Measure, unit=("user", 2))
    opened = batch.LearningBandit.measured
    with pytest.MonkeyPatch.context() as patch:
        learn = batch.learn_batch

        def learn_batch(held, upto, store, *, keep_transcript):
            told.held, told.rows = held, store.batch(1, held.position, upto)[:1]
            return learn(held, min(upto, held.position + 1), store, keep_transcript=keep_transcript)

        patch.setattr(batch.LearningBandit, "measured", lambda *_: None)
        patch.setattr(Bandit, "update", told)
        patch.setattr("stretches.learn_batch", learn_batch)
        bad = _stretches(Measure, unit=("user", 2))
    assert batch.LearningBandit.measured is opened
    assert good <= 1 + 1e-12 < bad
    return (
        f"{bad:.2f} × what was set aside for a user with 8 rewards; {good:.2f} × with the cap of 2"
    )
