"""What the learner does with one stretch of one stream: unpack the bandit, learn in order, and say what to publish.

Nothing is written here. Noise that was drawn for a stretch whose release is refused was seen by nobody, and is thrown away.
"""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandits.files import pack, unpack
from dpbandit.errors import BudgetError, DpbanditError, HorizonError, PrivacyWarning
from dpbandit.noise import Simulation, Source
from dpbandit.service import blueprint
from dpbandit.service.store import Line
from dpbandit.service.trusted import NewRelease, StreamError, TrustedStore

Vector = NDArray[np.float64]

# Learning holds a batch for about this long, so that rankers get a new model every second while it catches up.
BATCH_SECONDS = 0.5
# So many rewards go to the bandit at once: those between two releases are then learned together.
LOT = 64
# Most algorithms release in the first round, some after hundreds.
WARM_ROUNDS = 4096


class Recorder:
    """Passes on what a source releases and remembers it until the batch is published."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner
        self.kind: Literal["real", "simulation"] = inner.kind
        self.scale: float | None = None
        self.noisy: list[Vector] = []

    def release(self, noise: str, value: Vector, *, scale: float, shift: float, index: int) -> Vector:
        noisy = self.inner.release(noise, value, scale=scale, shift=shift, index=index)
        self.scale = scale
        self.noisy.append(noisy.copy())
        return noisy


@dataclass
class Held:
    """A bandit this learner has the lease of."""

    line: Line
    token: int
    number: int
    position: int
    bandit: Any
    recorder: Recorder | None


def opened(packed: bytes) -> tuple[Any, Recorder | None]:
    """The bandit, and what records its releases; None if it makes none."""
    bandit: Any = unpack(packed)
    source = getattr(bandit, "source", None)
    if source is None:
        return bandit, None
    recorder = Recorder(source)
    if recorder.kind != "real":
        raise StreamError("only real noise is served")
    bandit.source = recorder
    return bandit, recorder


def warm_up(config: dict[str, Any], packed: bytes) -> None:
    """Compile before a decision is closed: the first round can take minutes."""
    bandit: Any = unpack(packed)
    recorder = Recorder(Simulation(seed=0))  # this copy is thrown away; nothing of it is released
    if hasattr(bandit, "source"):
        bandit.source = recorder
    bandit.ledger.limit = float("inf")
    first = np.zeros(bandit.dim)  # one-hot where norms allow it: some algorithms take no other
    first[0] = min(1.0, bandit.options.max_norm, getattr(bandit, "l1_limit", None) or 1.0)
    with warnings.catch_warnings(), contextlib.suppress(DpbanditError):
        warnings.simplefilter("ignore", PrivacyWarning)
        for number in range(WARM_ROUNDS):
            # In the shapes that `digest` gives: other shapes are compiled apart.
            if config["unit"] == "reward":
                bandit.update(np.tile(first, (2, 1)), [config["default_reward"]] * 2)
            else:
                bandit.update(first[None, :], [config["default_reward"]], user=f"nobody {number}")
            if recorder.noisy and number > 1:
                break


def digest(held: Held, upto: int, store: TrustedStore, *, keep_transcript: bool) -> tuple[NewRelease, str]:
    """Learn (position, upto] in order, as far as time and budget allow; and why that is the end, if it is."""
    line, bandit = held.line, held.bandit
    batch = store.batch(line.id, held.position, upto)
    default = float(line.config["default_reward"])
    by_user = line.config["unit"] != "reward"
    if by_user:
        counts = store.people(line.id, {person for person in batch.people if person is not None})
        bandit._user_counts = {person.hex(): count for person, count in counts.items()}
    if held.recorder is not None:
        held.recorder.noisy.clear()
    position, ended, began = held.position, "", time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        at, lot = 0, 1 if by_user else LOT
        while at < len(batch.seqs) and not ended and time.monotonic() - began <= BATCH_SECONDS:
            rows, learned = slice(at, at + lot), bandit.rounds
            contexts = np.frombuffer(b"".join(batch.contexts[rows])).reshape(-1, bandit.dim)
            rewards = [default if reward is None else reward for reward in batch.rewards[rows]]
            user = {"user": (batch.people[at] or b"").hex()} if by_user else {}
            try:
                bandit.update(contexts, rewards, **user)
                at += len(rewards)
            except HorizonError:
                if lot > 1:  # none of them was learned: as many as fit, then
                    lot = 1
                    continue
                ended = "the horizon this bandit was made for is reached: it ranks, and learns no more"
            except BudgetError:
                at += bandit.rounds - learned
                ended = "the privacy budget is spent: it ranks, and learns no more"
        if at > 0:
            position = batch.seqs[at - 1]
    people = {}
    if by_user:
        people = {bytes.fromhex(person): count for person, count in bandit._user_counts.items()}
        bandit._user_counts = {}
    recorder = held.recorder
    keep = recorder is not None and keep_transcript
    return (
        NewRelease(
            number=held.number + 1,
            position=position,
            fingerprint=bandit.ledger.fingerprint,
            charged=bandit.ledger.releases,
            privacy=json.dumps(blueprint.privacy_record(bandit)),
            noise_scale=None if recorder is None else recorder.scale,
            model=json.dumps(blueprint.model_record(bandit)),
            noisy=np.concatenate(recorder.noisy).tobytes() if keep and recorder and recorder.noisy else None,
            state=pack(bandit),
            people=people,
        ),
        ended,
    )
