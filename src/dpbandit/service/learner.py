"""The learner: the one role that reads rewards and draws noise. One per bandit, by a lease with a
fencing token.

A stretch of the stream is closed (no more rewards for it), learned in order, and published: model,
ledger entry, position and the learner's own state in one transaction that also checks the token.
Noise of a transaction that failed was seen by nobody.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import socket
import threading
import time
from dataclasses import replace

from dpbandit.errors import (
    CapError,
    DpbanditError,
    LeaseError,
    RollbackError,
    SaveError,
    StoreError,
)
from dpbandit.service import budgets, restore
from dpbandit.service.batch import LearningBandit, learn_batch
from dpbandit.service.settings import Settings
from dpbandit.service.store import DELETED, FAILED, LEARNING, RESTORED, SPENT, Kept, Line
from dpbandit.service.trusted import StreamError, TrustedStore
from dpbandit.service.witness import BrokenWitnessError, Witness, WitnessError, default_place

log = logging.getLogger("dpbandit.learner")

ERASE_SECONDS = 5.0
# Of those five. A lot of decisions and rewards takes some 32 ms: 15,000 decisions a second, more
# than can be learned.
ERASE_AT_MOST = 0.5
LOOK_SECONDS = 60.0
WAIT_SECONDS = 5.0
# A batch is learned in half a second, and a store may let a statement wait for 20 s (BUSY_SECONDS
# in `database`). A learner that shows no sign of life for three times as long is stuck: another may
# have its bandits.
STUCK_SECONDS = 60.0
UNREADABLE = (
    "learning stopped, because the saved state cannot be used: {}. It ranks with its latest model, "
    "and its decisions and models stay. To go on learning, make a new bandit under another name"
)


class _Waits(Exception):  # noqa: N818 - nothing has failed
    """A bandit whose learning may not begin yet."""


class Learner:
    """All the bandits one process learns for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = TrustedStore(settings.store)
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        folder = settings.witness or default_place(self.store.meta("store") or "")
        self.witness = Witness(folder)
        self._tokens: dict[int, int] = {}  # bandit → token, of all leases that were taken
        # Those to be prolonged: their stores were found to be the newest.
        self._leases: dict[int, int] = {}
        self._held: dict[int, LearningBandit] = {}
        self._refused: dict[int, int] = {}  # leases in other hands: bandit → when they would expire
        self._again: dict[int, float] = {}  # bandits that wait for something: until when
        self._said: dict[int, str] = {}
        self._erased = 0.0
        self._looked = -math.inf
        self._moved = time.monotonic()

    # ------------------------------------------------------------------ life

    @property
    def healthy(self) -> bool:
        """Whether it has shown a sign of life lately."""
        return time.monotonic() - self._moved < STUCK_SECONDS

    def run(self, stop: threading.Event) -> None:
        """Learn until told to stop; a store that cannot be reached is tried again."""
        pause = self.settings.release_seconds
        over = threading.Event()
        heart = threading.Thread(target=self._keep_leases, args=(over,), name="leases", daemon=True)
        heart.start()
        try:
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
        finally:
            over.set()
            heart.join(10.0)  # or it might prolong a lease that was given back
            self.stop()

    def _keep_leases(self, over: threading.Event) -> None:
        """Prolong the leases, whatever keeps the learner busy. That a lease lasts proves nothing: a
        token does, at every write."""
        kept = Kept(self.settings.store, TrustedStore)
        while not over.wait(self.settings.lease_seconds / 3):
            leases = dict(self._leases)
            if not leases or not self.healthy:
                continue
            try:
                with kept.opened() as store:
                    lost = store.renew(leases, self.settings.lease_seconds)
                for bandit in lost:
                    if self._leases.get(bandit) == leases[bandit]:
                        self._leases.pop(bandit, None)
            except StoreError as error:
                log.warning("leases could not be prolonged: %s", error)
        kept.close()

    def stop(self) -> None:
        """Give the leases back, so that the next learner need not wait."""
        for bandit in list(self._tokens):
            with contextlib.suppress(DpbanditError):
                self._give_up(bandit)
        self._forget_all()
        self.store.close()

    def turn(self) -> bool:
        """One look at every bandit. True if there is more to do at once."""
        busy = False
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            with contextlib.suppress(WitnessError):  # looked for again before anything new is begun
                self._look_for_lost()
        wanted = self.settings.bandits
        lines = [line for line in self.store.lines() if not wanted or line.name in wanted]
        for line in lines:
            self._moved = time.monotonic()
            if line.status != LEARNING:
                self._forget(line.id)
            elif time.monotonic() >= self._again.get(line.id, 0.0):
                busy |= self._serve(line)
        if time.monotonic() - self._erased > min(ERASE_SECONDS, self.settings.retain_rewards + 0.5):
            self.store.erase_access_log(self.settings.retain_access_log)
            for line in lines:
                # Deleted ones at the start only: whoever deleted one may have died over it.
                if line.status != DELETED or not self._erased:
                    self._erase(line)
            self._erased = time.monotonic()
        self._moved = time.monotonic()
        return busy

    def _erase(self, line: Line) -> None:
        """All that is old enough, as long as learning need not wait for it."""
        self._moved = time.monotonic()
        until = self._moved + ERASE_AT_MOST
        rewards, decisions = self.settings.retain_rewards, self.settings.retain_decisions
        while self.store.erase(line.id, rewards_after=rewards, decisions_after=decisions):
            if time.monotonic() > until:
                break

    def _serve(self, line: Line) -> bool:
        held = self._held.get(line.id)
        if held is not None and held.token != self._leases.get(line.id):
            held = None  # the lease was lost
        try:
            held = held or self._take(line)
            return held is not None and self._learn(held)
        except LeaseError as error:
            log.warning("%s: %s", line.name, error)
            self._forget(line.id)
        except (RollbackError, BrokenWitnessError) as error:
            self._end(line, RESTORED, str(error))
        except (_Waits, WitnessError) as error:
            self._say(line, f"learning waits: {error}", logging.ERROR)
            self._again[line.id] = time.monotonic() + WAIT_SECONDS
            self._give_up(line.id)  # a learner on another machine may do better
        except SaveError as error:  # its words name a format or a field, never a number
            self._end(line, FAILED, UNREADABLE.format(error))
        except (StreamError, CapError) as error:
            self._end(line, FAILED, str(error))
        except StoreError:
            self._forget(line.id)
            raise
        except Exception as error:
            # The type alone: a message might quote a reward. Learning stops rather than skip a
            # decision.
            self._end(line, FAILED, f"learning stopped by {type(error).__name__}")
        return False

    def _end(self, line: Line, status: str, reason: str) -> None:
        log.error("%s: %s", line.name, reason)
        token = self._tokens.get(line.id)
        self._forget(line.id)
        if token is not None:
            with contextlib.suppress(LeaseError):  # then it is for another learner to judge
                self.store.end(line.id, token, status, reason)

    def _give_up(self, bandit: int) -> None:
        token = self._tokens.get(bandit)
        self._forget(bandit)
        if token is not None:
            self.store.give_up(bandit, token)

    def _forget(self, bandit: int) -> None:
        for kept in (self._held, self._leases, self._tokens):
            kept.pop(bandit, None)

    def _forget_all(self) -> None:
        for kept in (self._held, self._leases, self._tokens):
            kept.clear()

    # ------------------------------------------------------------------ the right to learn

    def _take(self, line: Line) -> LearningBandit | None:
        if line.lease_until > self.store.connection.now() and line.holder != self.holder:
            self._follow(line)
            return None
        # No longer than it takes to compare: whoever sees a lease that lasts may believe what its
        # holder publishes.
        token = self.store.acquire(line.id, self.holder, 0.0)
        if token is None:
            self._say(line, "refused: another learner has the lease")
            return None
        self._tokens[line.id] = token
        line = next(fresh for fresh in self.store.lines() if fresh.id == line.id)
        if line.version == 0:
            self._may_begin(line)
        with self.witness.locked(line.identity):
            self._compare(line)
            self._note(line)
        if self.store.renew({line.id: token}, self.settings.lease_seconds):
            raise LeaseError("another learner has taken the lease")
        self._leases[line.id] = token
        number, position, state = self.store.state(line.id)
        held = LearningBandit.open(line, token, number=number, position=position, state=state)
        self._held[line.id] = held
        self._say(line, f"learning from decision {position + 1}, lease {token}")
        return held

    def _follow(self, line: Line) -> None:
        """Another learner has the lease. One that keeps renewing it is alive and has checked its
        own witness, so what it publishes is the truth, and goes into this one's witness for the day
        it has to take over."""
        self._say(line, f"refused: the lease is held by {line.holder}; standing by")
        before = self._refused.get(line.id)
        self._refused[line.id] = line.lease_until
        if before is None or line.lease_until <= before:
            return
        with self.witness.locked(line.identity):
            seen = self.witness.seen(line.identity)
            if seen is None or not restore.contradiction(self.store, line, seen):
                self._note(line)

    def _may_begin(self, line: Line) -> None:
        """A bandit that has released nothing may have been made by a ranker that did not know the
        store is an old copy."""
        self._look_for_lost()
        restored = self.store.meta("restored")
        if restored is not None:
            raise _Waits(
                f"the store is {restored}. An operator must say (dpbandit store accept-restore "
                "--lost)"
            )
        others = [
            (other.claim, other.timelines)
            for other in self.store.lines()
            if other.version > 0 or other.status == DELETED or other.id < line.id
        ]
        budgets.check_cap(others, line.claim, self.store.cap(), again=line.timelines)

    def _compare(self, line: Line) -> None:
        """Raise RollbackError unless the store is as new as all that this machine has seen."""
        seen = self.witness.seen(line.identity)
        problem = "" if seen is None else restore.contradiction(self.store, line, seen)
        if seen is None and line.version > 0:
            problem = (
                "this machine has no witness of a bandit that has made releases: the store may be "
                "an old copy. An operator must say (dpbandit store trust, or accept-restore)"
            )
        if problem:
            raise RollbackError(problem)

    def _look_for_lost(self) -> None:
        for name in restore.report_lost(self.store, restore.find_lost(self.store, self.witness)):
            log.error("the store is an old copy: it lacks %s", name)

    def _note(self, line: Line) -> None:
        mark = restore.mark_of(self.store, line)
        self.witness.note(line.identity, name=line.name, claim=line.claim, mark=mark)

    def _say(self, line: Line, words: str, level: int = logging.INFO) -> None:
        """Once, not at every turn."""
        if self._said.get(line.id) != words:
            self._said[line.id] = words
            log.log(level, "%s: %s", line.name, words)

    # ------------------------------------------------------------------ learning

    def _learn(self, held: LearningBandit) -> bool:
        line, store = held.line, self.store
        seconds = self.settings.lease_seconds
        window, limit = float(line.config["reward_window"]), self.settings.batch
        upto = store.due(line.id, held.position, window=window, limit=limit)
        if upto == held.position:
            return False
        store.close_up_to(line.id, upto, held.token, seconds)
        new, ended = learn_batch(held, upto, store, keep_transcript=self.settings.keep_transcript)
        full = upto - held.position == limit
        if new.position > held.position:
            self.before_publishing(held)
            # Two copies of a store that share a witness: while one publishes the other waits, and
            # then finds itself behind.
            with self.witness.locked(line.identity):
                self._compare(line)
                store.publish(line.id, new, held.token, seconds)
                held.line = line = replace(line, version=new.number)
                held.number, held.position = new.number, new.position
                self._note(line)
        if ended:
            log.warning("%s: %s", line.name, ended)
            self._forget(line.id)
            store.end(line.id, held.token, SPENT, ended)
        return not ended and (full or new.position < upto)

    def before_publishing(self, held: LearningBandit) -> None:
        """For tests that stop a learner at its worst moment."""
