"""How the learner handles one batch of one stream: learn in order, and return what to publish.

Nothing is written here. If a batch's release is refused, nobody has seen its noise, and it is
thrown away.
"""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpbandit.bandit import Bandit
from dpbandit.errors import BudgetError, HorizonError, PrivacyWarning
from dpbandit.files import unpack
from dpbandit.logs.record import hash_name
from dpbandit.privacy.noise import Noise
from dpbandit.privacy.sources import Pending, Source
from dpbandit.saving import pack
from dpbandit.service import blueprint
from dpbandit.service.measure import HOLDOUT, SHADOW, Measure
from dpbandit.service.records import BY_LOG
from dpbandit.service.schema import ERASED_COUNT
from dpbandit.service.store import Line
from dpbandit.service.trusted import Learnable, NewRelease, StreamError, TrustedStore
from dpbandit.types import Vector

# Learning holds a batch for about this long, so that rankers get a new model every second while it
# catches up.
BATCH_SECONDS = 0.5
# So many rewards go to the bandit at once: those between two releases are then learned together.
ROWS = 64

HORIZON_REACHED = "this bandit's horizon is reached: it keeps ranking, but learns no more"
BUDGET_SPENT = "the privacy budget is spent: it keeps ranking, but learns no more"


class Recorder:
    """Passes on what a source releases and remembers it until the batch is published."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner
        self.kind: Literal["real", "simulation"] = inner.kind
        self.scale: float | None = None
        self.noisy: list[Vector] = []

    def release(
        self, noise: Noise | str, pending: Pending, *, scale: float, shift: float, index: int
    ) -> Vector:
        noisy = self.inner.release(noise, pending, scale=scale, shift=shift, index=index)
        self.scale = scale
        self.noisy.append(noisy.copy())
        return noisy


@dataclass
class LearningBandit:
    """A bandit this learner has the lease of."""

    line: Line
    token: int
    number: int
    position: int
    bandit: Bandit
    recorder: Recorder
    measure: Measure | None = None  # of a shadow or a holdout

    @classmethod
    def open(
        cls,
        line: Line,
        token: int,
        *,
        number: int,
        position: int,
        state: bytes,
        measure: str | None = None,
    ) -> LearningBandit:
        """The bandit that a saved state holds, with a source that records its releases.

        Raises
        ------
        SaveError
            If the state cannot be read, or not by this version.
        StreamError
            If its noise would not be real.
        """
        bandit = unpack(state)
        recorder = Recorder(bandit.source)
        if recorder.kind != "real":
            raise StreamError("only real noise is served")
        if bandit.log is not None and (len(bandit.people.hashes) or "log" not in line.config):
            # Else the log's users would have their whole cap again.
            raise StreamError("the store does not count the users of this bandit's log")
        bandit.source = recorder
        measured = None if measure is None else Measure.from_text(measure)
        return cls(line, token, number, position, bandit, recorder, measured)

    def measured(self, learned: list[Learnable], rewards: list[float]) -> None:
        """What was just learned counts for a shadow or a holdout, if it is a round of one."""
        if self.measure is None:
            return
        low, high = self.line.config["reward_range"]
        for one, reward in zip(learned, rewards, strict=True):
            counts = _counts_for(one)
            if counts is not None and self.measure.learned(*counts, reward, low, high):
                self.measure.release(counts[0], self.recorder.inner, self.bandit.rounds)


def _counts_for(one: Learnable) -> tuple[str, int] | None:
    """The one kind that a round counts for, and its weight. No reward is in two stretches: each
    would cost the whole of what was set aside."""
    if one.agreed is not None and one.by_lot is not None:
        raise StreamError(
            f"decision {one.seq} counts for a shadow and for a holdout: a reward pays for one alone"
        )
    if one.agreed is not None:
        return SHADOW, one.agreed
    return None if one.by_lot is None else (HOLDOUT, one.by_lot)


def _name_of(bandit: Bandit, person: bytes) -> str:
    """What a bandit calls a person of the store, in its counters. Two that it cannot tell apart share
    a count: of neither more is learned than the cap."""
    if bandit.log is not None and len(person) != BY_LOG:
        raise StreamError("somebody who may be in the log is known here by another name than there")
    name = person.hex()
    apart = bandit.log is None or bandit.options.protects.counts_are_public
    return name if apart else f"{hash_name(name):016x}"


def learn_batch(
    held: LearningBandit, upto: int, store: TrustedStore, *, keep_transcript: bool
) -> tuple[NewRelease, str]:
    """Learn (position, upto] in order, as far as time and budget allow.

    Returns
    -------
    (NewRelease, str)
        What to publish; and why that is the end of learning, if it is.
    """
    line, bandit, recorder = held.line, held.bandit, held.recorder
    closed = store.batch(line.id, held.position, upto)
    # Those erased on request, or never shown, keep a place in the stream: nothing is learned of
    # them.
    batch = [one for one in closed if one.context]
    default = float(line.config["default_reward"])
    gone: set[bytes] = set()  # those whose records were erased on request
    by_user = line.config["unit"] != "reward"
    names: dict[bytes, str] = {}  # what the bandit counts these people by
    if by_user:
        names = {
            person: _name_of(bandit, person) for person in {one.person or b"" for one in batch}
        }
        counts = store.people(line.id, set(names))
        gone = {person for person, count in counts.items() if count == ERASED_COUNT}
        full = bandit.options.protects.full(bandit.options.width, bandit.design.reward_bits)
        for person in gone:
            counts[person] = full
        most = sorted(counts.items(), key=lambda pair: pair[1])  # of two of one name, the larger
        bandit.counters = {names[person]: count for person, count in most}
    recorder.noisy.clear()
    ended, began = "", time.monotonic()
    done, rows = 0, 1 if by_user else ROWS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        while done < len(batch) and not ended and time.monotonic() - began <= BATCH_SECONDS:
            taken, learned = batch[done : done + rows], bandit.rounds
            contexts = np.frombuffer(b"".join(one.context for one in taken))
            rewards = [default if one.reward is None else one.reward for one in taken]
            user = (taken[0].person or b"").hex() if by_user else None
            try:
                bandit.update(contexts.reshape(-1, bandit.dim), rewards, user=user)
                done += len(taken)
                # Nothing beyond a user's cap is measured: it is not learned either.
                if bandit.rounds - learned == len(taken):
                    held.measured(taken, rewards)
            except HorizonError:
                if rows > 1:  # none of them was learned: as many as fit, then
                    rows = 1
                    continue
                ended = HORIZON_REACHED
            except BudgetError:
                done += (some := bandit.rounds - learned)
                held.measured(taken[:some], rewards[:some])
                ended = BUDGET_SPENT
    counted = bandit.counters
    people = {p: counted[name] for p, name in names.items() if name in counted and p not in gone}
    bandit.counters = {}
    last = closed[-1].seq if closed else held.position
    noisy = recorder.noisy if keep_transcript else []
    new = NewRelease(
        number=held.number + 1,
        position=batch[done].seq - 1 if done < len(batch) else last,
        fingerprint=bandit.ledger.fingerprint,
        charged=bandit.ledger.releases,
        privacy=json.dumps(blueprint.privacy_record(bandit, held.measure)),
        noise_scale=recorder.scale,
        model=json.dumps(bandit.model().to_record()),
        noisy=np.concatenate(noisy).tobytes() if noisy else None,
        state=pack(bandit),
        people=people,
        measure=None if held.measure is None else held.measure.to_text(),
    )
    return new, ended
