"""The learner: the one role that reads rewards and draws noise. One per bandit, by a lease with a fencing token.

A stretch of the stream is closed (no more rewards for it), learned in order, and published: model, ledger entry, position and
the learner's own state in one transaction that also checks the token. Noise of a transaction that failed was seen by nobody.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
import socket
import threading
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandits.files import pack, unpack
from dpbandit.errors import BudgetError, DpbanditError, HorizonError, LeaseError, PrivacyWarning, StoreError
from dpbandit.noise import Simulation, Source
from dpbandit.service import blueprint
from dpbandit.service.settings import Settings
from dpbandit.service.store import DELETED, FAILED, LEARNING, RESTORED, SPENT, Line
from dpbandit.service.trusted import NewRelease, TrustedStore
from dpbandit.service.witness import Witness, default_place

log = logging.getLogger("dpbandit.learner")

Vector = NDArray[np.float64]

# Learning holds a batch for about this long, so that rankers get a new model every second while it catches up.
BATCH_SECONDS = 0.5
# So many rewards go to the bandit at once: those between two releases are then learned together.
LOT = 64
ERASE_SECONDS = 5.0
# Of those five. A lot of decisions and rewards takes some 32 ms: 15,000 decisions a second, more than can be learned.
ERASE_AT_MOST = 0.5
LOOK_SECONDS = 60.0


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
    renewed: float = field(default_factory=time.monotonic)


class Learner:
    """All the bandits one process learns for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = TrustedStore(settings.store)
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        folder = settings.witness or default_place(self.store.meta("store") or "")
        self.witness = Witness(folder)
        self._held: dict[int, Held] = {}
        self._refused: dict[int, int] = {}  # leases seen in other hands: bandit → when they would expire
        self._said: dict[int, str] = {}
        self._erased = 0.0
        self._looked = -math.inf
        self._warm: set[str] = set()  # algorithms whose rounds are compiled

    # ------------------------------------------------------------------ life

    def run(self, stop: threading.Event) -> None:
        """Learn until told to stop; a store that cannot be reached is tried again."""
        pause = self.settings.release_seconds
        while not stop.is_set():
            try:
                busy = self.turn()
                pause = self.settings.release_seconds
            except StoreError as error:
                log.warning("the store cannot be used: %s; trying again", error)
                self._forget_all()
                with contextlib.suppress(StoreError):
                    self.store.close()
                    self.store = TrustedStore(self.settings.store)
                busy, pause = False, min(2 * pause, 5.0)
            if not busy:
                stop.wait(pause)
        self.stop()

    def stop(self) -> None:
        """Give the leases back, so that the next learner need not wait."""
        for held in list(self._held.values()):
            with contextlib.suppress(DpbanditError):
                self.store.give_up(held.line.id, held.token)
        self._held.clear()
        self.store.close()

    def turn(self) -> bool:
        """One look at every bandit. True if there is more to do at once."""
        busy = False
        lines = [line for line in self.store.lines() if not self.settings.bandits or line.name in self.settings.bandits]
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            self._look_for_lost(lines)
        for line in lines:
            if line.status == LEARNING:
                busy |= self._serve(line)
            else:
                self._held.pop(line.id, None)
        if time.monotonic() - self._erased > min(ERASE_SECONDS, self.settings.retain_rewards + 0.5):
            self._erased = time.monotonic()
            self.store.erase_access_log(self.settings.retain_access_log)
            for line in lines:
                if line.status != DELETED:
                    self._erase(line)
        return busy

    def _erase(self, line: Line) -> None:
        """All that is old enough, as long as learning need not wait for it."""
        until = time.monotonic() + ERASE_AT_MOST
        rewards, decisions = self.settings.retain_rewards, self.settings.retain_decisions
        while self.store.erase(line.id, rewards_after=rewards, decisions_after=decisions):
            if time.monotonic() > until:
                break

    def _serve(self, line: Line) -> bool:
        held = self._held.get(line.id)
        try:
            if held is None:
                held = self._take(line)
                if held is None:
                    return False
            return self._learn(held)
        except LeaseError as error:
            log.warning("%s: %s", line.name, error)
            self._held.pop(line.id, None)
        except StoreError:
            self._held.pop(line.id, None)
            raise
        except Exception as error:
            # The type alone: a message might quote a reward. Learning stops rather than skip a decision.
            self._held.pop(line.id, None)
            log.error("%s: learning stopped by %s", line.name, type(error).__name__)
            self.store.set_status(line.id, FAILED, f"learning stopped by {type(error).__name__}")
        return False

    def _forget_all(self) -> None:
        self._held.clear()

    # ------------------------------------------------------------------ the right to learn

    def _take(self, line: Line) -> Held | None:
        if line.lease_until > self.store.now():
            self._follow(line)
            return None
        if not self._witnessed(line):
            return None
        if line.config["algorithm"] not in self._warm:
            self._warm_up(line)
        token = self.store.acquire(line.id, self.holder, self.settings.lease_seconds)
        if token is None:
            self._say(line, "refused: another learner has the lease")
            return None
        number, position, packed = self.store.state(line.id)
        bandit: Any = unpack(packed)
        source = getattr(bandit, "source", None)
        recorder = None if source is None else Recorder(source)
        if recorder is not None:
            if recorder.kind != "real":
                raise LeaseError("only real noise is served")
            bandit.source = recorder
        held = Held(line, token, number, position, bandit, recorder)
        self._held[line.id] = held
        self._say(line, f"learning from decision {position + 1}, lease {token}")
        return held

    def _follow(self, line: Line) -> None:
        """Another learner has the lease. One that keeps renewing it is alive and has checked its own witness, so what it
        publishes is the truth, and goes into this one's witness for the day it has to take over."""
        self._say(line, f"refused: the lease is held by {line.holder}; standing by")
        before = self._refused.get(line.id)
        self._refused[line.id] = line.lease_until
        if before is not None and line.lease_until > before:
            self._note(line, line.version)

    def _witnessed(self, line: Line) -> bool:
        """Whether the store is at least as new as all that this machine has seen."""
        seen = self.witness.seen(line.identity)
        if seen is None:
            if line.version == 0:
                self._note(line, 0)
                return True
            problem = (
                "this machine has no witness of a bandit that has made releases: the store may be an old copy. An operator must "
                "say (dpbandit store trust, or accept-restore)"
            )
        elif line.version < seen["number"]:
            problem = f"the store is an old copy: {seen['number']} releases were seen, it has {line.version}"
        elif self.store.release_seal(line.id, seen["number"]) != seen["fingerprint"]:
            problem = "the store has another history than the one that was seen: two copies have been learning"
        else:
            return True
        log.error("%s: %s", line.name, problem)
        self.store.set_status(line.id, RESTORED, problem)
        return False

    def _look_for_lost(self, lines: list[Line]) -> None:
        """Bandits that were seen and are gone: the store is a copy from before they were made."""
        if self.settings.bandits:
            return
        there = {line.identity for line in lines}
        lost = sorted(seen["name"] for identity, seen in self.witness.everything().items() if identity not in there)
        if lost and self.store.meta("restored") is None:
            log.error("the store is an old copy: it lacks %s", ", ".join(lost))
            self.store.set_meta("restored", f"an old copy: it lacks {', '.join(lost)}")

    def _note(self, line: Line, number: int) -> None:
        seal = self.store.release_seal(line.id, number)
        if seal is not None:
            self.witness.note(line.identity, name=line.name, claim=line.claim, number=number, fingerprint=seal)

    def _warm_up(self, line: Line) -> None:
        """Compile before taking a lease: the first round can take longer than a lease lasts."""
        bandit: Any = unpack(self.store.state(line.id)[2])
        if hasattr(bandit, "source"):
            bandit.source = Recorder(Simulation(seed=0))  # this copy is thrown away; nothing of it is released
        bandit.ledger.limit = float("inf")
        with warnings.catch_warnings(), contextlib.suppress(DpbanditError):
            warnings.simplefilter("ignore", PrivacyWarning)
            first = np.zeros(bandit.dim)
            first[0] = min(
                1.0, bandit.options.max_norm, getattr(bandit, "l1_limit", None) or 1.0
            )  # one-hot, for algorithms that take no other
            bandit.update(first, line.config["default_reward"], user="nobody")
        self._warm.add(line.config["algorithm"])

    def _say(self, line: Line, words: str) -> None:
        """Once, not at every turn."""
        if self._said.get(line.id) != words:
            self._said[line.id] = words
            log.info("%s: %s", line.name, words)

    # ------------------------------------------------------------------ learning

    def _learn(self, held: Held) -> bool:
        line, store = held.line, self.store
        seconds = self.settings.lease_seconds
        upto = store.due(line.id, held.position, window=float(line.config["reward_window"]), limit=self.settings.batch)
        if upto == held.position:
            if time.monotonic() - held.renewed > seconds / 3:
                store.renew(line.id, held.token, seconds)
                held.renewed = time.monotonic()
            return False
        store.close_up_to(line.id, upto, held.token, seconds)
        held.renewed = time.monotonic()
        new, ended = self._digest(held, upto)
        full = upto - held.position == self.settings.batch
        if new.position > held.position:
            self.before_publishing(held)
            store.publish(line.id, new, held.token, seconds)
            held.number, held.position, held.renewed = new.number, new.position, time.monotonic()
            self._note(line, new.number)
        if ended:
            log.warning("%s: %s", line.name, ended)
            store.set_status(line.id, SPENT, ended)
            self._held.pop(line.id, None)
        return not ended and (full or new.position < upto)

    def before_publishing(self, held: Held) -> None:
        """For tests that stop a learner at its worst moment."""

    def _digest(self, held: Held, upto: int) -> tuple[NewRelease, str]:
        """Learn (position, upto] in order, as far as time and budget allow. Nothing is written here."""
        line, bandit = held.line, held.bandit
        batch = self.store.batch(line.id, held.position, upto)
        default = float(line.config["default_reward"])
        by_user = line.config["unit"] != "reward"
        if by_user:
            counts = self.store.people(line.id, {person for person in batch.people if person is not None})
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
        keep = recorder is not None and self.settings.keep_transcript
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
