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
from collections.abc import Callable

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
from dpbandit.service.loops import words_of
from dpbandit.service.settings import Settings
from dpbandit.service.store import DELETED, FAILED, LEARNING, RESTORED, SPENT, Kept, Line
from dpbandit.service.trusted import StreamError, TrustedStore
from dpbandit.service.witness import (
    BrokenWitnessError,
    Mark,
    Seen,
    Witness,
    WitnessError,
    default_place,
)

log = logging.getLogger("dpbandit.learner")

ERASE_SECONDS = 5.0
# Of those five, for all bandits together. A lot of decisions and rewards takes some 32 ms: 15,000
# decisions a second, more than can be learned.
ERASE_AT_MOST = 0.5
LOOK_SECONDS = 60.0
WAIT_SECONDS = 5.0
# Leases that are taken by one transaction, and for how long in a turn.
TAKE_LOT = 64
TAKE_SECONDS = 0.5
# Bandits with nothing to learn that are kept in memory all the same.
HELD_IDLE = 256
# Looking at thousands of bandits takes a while; with nothing to learn, no more than this part of
# the time, though it is done every so often.
SHARE = 0.05
LOOKS_SECONDS = 1.0
# A decision that is not due is looked at again after so long at the latest: clocks may jump.
LOOK_AGAIN_SECONDS = 5.0
# A batch is learned in half a second, and a store may let a statement wait for 20 s (PATIENCE in
# `database`). A learner that shows no sign of life for three times as long is stuck: another may
# have its bandits.
STUCK_SECONDS = 60.0
# One whose every turn fails for so long needs somebody to look.
FAILING_SECONDS = 10.0
# Leases are prolonged three times while they last. One that was not prolonged for three times as
# long as it should last is nobody's.
SILENT_LEASES = 3.0
UNREADABLE = (
    "learning stopped, because the saved state cannot be used: {}. It ranks with its latest model, "
    "and its decisions and models stay. To keep learning, make a new bandit under another name"
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
        # Leases in other hands as they were seen first: bandit → ((holder, end), when)
        self._watched: dict[int, tuple[tuple[str | None, int], float]] = {}
        self._again: dict[int, float] = {}  # bandits that wait for something: until when
        self._not_before: dict[int, float] = {}  # bandits whose next decision is due then
        self._fresh: dict[int, Line] = {}  # those whose lease was taken in this turn
        self._followed: dict[int, tuple[int, int]] = {}  # the marks last noted for others
        self._clean: dict[int, tuple[int, str]] = {}  # those that have nothing to erase
        self._at_all: tuple[dict[str, float] | None, bool, str | None] = (None, True, None)
        self._looked_at_all = -math.inf
        self._said: dict[int, str] = {}
        self._erased = 0.0
        self._erase_next = 0  # the bandit with which erasing goes on
        # Those deleted before this learner began: who deleted one may have crashed while doing it.
        self._deleted: set[int] | None = None
        self._looked = -math.inf
        self._looking = 0.0  # seconds that a look at all bandits takes
        self._moved = time.monotonic()
        self._failing = math.inf  # since when every turn has failed

    # ------------------------------------------------------------------ life

    @property
    def healthy(self) -> bool:
        """Whether it has shown a sign of life lately, and its turns do not fail."""
        now = time.monotonic()
        return now - self._moved < STUCK_SECONDS and now - self._failing < FAILING_SECONDS

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
                    pause, self._failing = self.settings.release_seconds, math.inf
                except Exception as error:
                    log.warning("learning fails: %s; trying again", words_of(error))
                    self._failing = min(self._failing, time.monotonic())
                    self._forget_all()
                    with contextlib.suppress(Exception):
                        self.store.close()
                        self.store = TrustedStore(self.settings.store)
                    busy, pause = False, min(2 * pause, 5.0)
                if not busy:
                    stop.wait(max(pause, min(self._looking / SHARE, LOOKS_SECONDS)))
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
            except Exception as error:  # or nobody would prolong them any more
                log.warning("leases could not be prolonged: %s", words_of(error))
        kept.close()

    def stop(self) -> None:
        """Give the leases back, so that the next learner need not wait."""
        with contextlib.suppress(DpbanditError):
            if self._tokens:
                self.store.give_up(self._tokens)
        self._forget_all()
        self.store.close()

    def turn(self) -> bool:
        """One look at every bandit. True if there is more to do at once."""
        busy = False
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            with contextlib.suppress(WitnessError):  # looked for again before anything new is begun
                self._look_for_lost()
        wanted, began = self.settings.bandits, time.monotonic()
        lines = [line for line in self.store.lines() if not wanted or line.name in wanted]
        self._looking = time.monotonic() - began
        for line in lines:
            if line.status != LEARNING:
                self._forget(line.id)
        now = time.monotonic()
        ours = [
            line
            for line in lines
            if line.status == LEARNING and now >= self._again.get(line.id, 0.0)
        ]
        busy = self._take_some([line for line in ours if line.id not in self._leases])
        for line in ours:
            if line.id in self._leases and line.decisions > line.learned:
                busy |= self._serve(self._fresh.pop(line.id, line))
            elif len(self._held) > HELD_IDLE:
                self._held.pop(line.id, None)
        self._fresh.clear()
        if time.monotonic() - self._erased > min(ERASE_SECONDS, self.settings.retain_rewards + 0.5):
            # Always: whether a turn fails must not show that there were rewards to erase.
            self.store.set_meta("erased", str(self.store.connection.now()))
            self.store.erase_access_log(self.settings.retain_access_log)
            if self._deleted is None:
                self._deleted = {line.id for line in lines if line.status == DELETED}
            self._erase(
                [line for line in lines if line.status != DELETED or line.id in self._deleted]
            )
            self.store.connection.empty_log()
            self._erased = time.monotonic()
        self._moved = time.monotonic()
        return busy

    def _take_some(self, lines: list[Line]) -> bool:
        """Take leases, for those first who have something to learn; True if there are more to take,
        which those who learn need not wait for."""
        until = time.monotonic() + TAKE_SECONDS
        lines.sort(key=lambda line: line.decisions == line.learned)
        for at in range(0, len(lines), TAKE_LOT):
            if time.monotonic() > until:
                return True
            self._take(lines[at : at + TAKE_LOT])
        return False

    def _erase(self, lines: list[Line]) -> None:
        """All that is old enough, as long as learning need not wait for it; then on from there."""
        rewards, decisions = self.settings.retain_rewards, self.settings.retain_decisions
        first = next((n for n, line in enumerate(lines) if line.id >= self._erase_next), 0)
        until = math.inf  # at least one lot
        for line in (*lines[first:], *lines[:first]):
            if self._clean.get(line.id) == (line.decisions, line.status):
                continue
            self._erase_next = line.id + 1
            erased: int | None = 1
            while erased:
                if time.monotonic() > until:
                    return
                self._moved = began = time.monotonic()
                until = min(until, began + ERASE_AT_MOST)
                erased = self.store.erase(line.id, rewards_after=rewards, decisions_after=decisions)
            if erased is None:  # until there is another decision
                self._clean[line.id] = (line.decisions, line.status)

    def _serve(self, line: Line) -> bool:
        """Learn what is due of this bandit, if its lease can be had; True if there is more."""
        if line.id not in self._leases:
            self._take([line])
            line = self._fresh.pop(line.id, line)
        return line.id in self._leases and self._guarded(line, self._learn)

    def _guarded(self, line: Line, action: Callable[[Line], bool]) -> bool:
        """What `action` says; False if it fails. What happens to one bandit is no other's
        concern."""
        self._moved = time.monotonic()
        try:
            return action(line)
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
            self.store.give_up({bandit: token})

    def _forget(self, bandit: int) -> None:
        for kept in (self._held, self._leases, self._tokens, self._not_before):
            kept.pop(bandit, None)

    def _forget_all(self) -> None:
        for kept in (self._held, self._leases, self._tokens, self._not_before):
            kept.clear()

    # ------------------------------------------------------------------ the right to learn

    def _take(self, lines: list[Line]) -> None:
        """The leases of some bandits, each of which this machine's witness agrees with. How they
        are by then is in `_fresh`."""
        self._moved, now = time.monotonic(), self.store.connection.now()
        wanted: dict[int, int | None] = {}
        for line in lines:
            if line.lease_until <= now or line.holder == self.holder:
                wanted[line.id] = None
            elif self._silent(line):
                wanted[line.id] = line.lease_until
            else:
                self._guarded(line, self._follow)
        if not wanted:
            return
        # No longer than it takes to compare: whoever sees a lease that lasts may believe what its
        # holder publishes.
        tokens = self.store.acquire_all(wanted, self.holder, 0.0)
        self._tokens |= tokens
        for line in lines:
            if line.id in wanted and line.id not in tokens:
                self._say(line, "refused: another learner has the lease")
        fresh = self.store.lines(only=list(tokens)) if tokens else []
        agreed = self._agreed(fresh)
        ours = {bandit: tokens[bandit] for bandit in agreed}
        lost = self.store.renew(ours, self.settings.lease_seconds) if ours else []
        for bandit, line in agreed.items():
            if bandit in lost:
                log.warning("%s: another learner has taken the lease", line.name)
                self._forget(bandit)
                continue
            self._leases[bandit] = ours[bandit]
            self._fresh[bandit] = line
            # A state that cannot be used is said at once, not when there is something to learn.
            if line.version == 0 or self._guarded(line, self._open):
                self._say(line, f"learning from decision {line.learned + 1}, lease {ours[bandit]}")

    def _agreed(self, lines: list[Line]) -> dict[int, Line]:
        """Those of which the witness says that this store may be learned from. By then it knows all
        of them."""
        news: dict[str, Seen] = {}
        with contextlib.ExitStack() as locks:

            def agrees(line: Line) -> bool:
                if line.version == 0:
                    self._may_begin(line)
                locks.enter_context(self.witness.locked(line.identity))
                self._compare(line)
                new = self.witness.news(
                    line.identity, name=line.name, claim=line.claim, mark=self._mark(line)
                )
                if new is not None:
                    news[line.identity] = new
                return True

            agreed = [line for line in lines if self._guarded(line, agrees)]
            try:
                self.witness.write_all(news)
            except WitnessError as error:
                why = error

                def fails(_: Line) -> bool:
                    raise why

                agreed = [
                    line
                    for line in agreed
                    if line.identity not in news or self._guarded(line, fails)
                ]
        return {line.id: line for line in agreed}

    def _mark(self, line: Line) -> Mark:
        return restore.mark_of(self.store, line)

    def _silent(self, line: Line) -> bool:
        """Whether nobody has prolonged this lease for far longer than a learner takes. Its end may
        be hours away all the same: a clock was put back."""
        lease, now = (line.holder, line.lease_until), time.monotonic()
        if self._watched.get(line.id, (lease, now))[0] != lease:
            del self._watched[line.id]
        _, since = self._watched.setdefault(line.id, (lease, now))
        return now - since > SILENT_LEASES * self.settings.lease_seconds

    def _follow(self, line: Line) -> bool:
        """Another learner has the lease. One that keeps renewing it is alive and has checked its
        own witness, so what it publishes is the truth, and goes into this one's witness for the day
        it has to take over."""
        self._say(line, f"refused: the lease is held by {line.holder}; standing by")
        before = self._refused.get(line.id)
        self._refused[line.id] = line.lease_until
        mark = (line.timelines, line.version)
        if before is None or line.lease_until == before or self._followed.get(line.id) == mark:
            return False
        with self.witness.locked(line.identity):
            seen = self.witness.seen(line.identity)
            if seen is None or not restore.contradiction(self.store, line, seen):
                self._note(line)
                self._followed[line.id] = mark
        return False

    def _may_begin(self, line: Line) -> None:
        """A bandit that has released nothing may have been made by a ranker that did not know the
        store is an old copy."""
        cap, roomy, restored = self._beginnings()
        if restored is not None:
            raise _Waits(
                f"the store is {restored}. An operator must say (dpbandit store accept-restore "
                "--lost)"
            )
        if roomy:
            return
        others = [
            (other.claim, other.timelines)
            for other in self.store.lines()
            if other.version > 0 or other.status == DELETED or other.id < line.id
        ]
        budgets.check_cap(others, line.claim, cap, again=line.timelines)

    def _beginnings(self) -> tuple[dict[str, float] | None, bool, str | None]:
        """(cap, whether all bandits together fit under it, what the store lacks). Thousands may
        begin at once: looked at once a second."""
        if time.monotonic() - self._looked_at_all > 1.0 or self._at_all[2] is not None:
            self._look_for_lost()
            cap, total = self.store.cap(), True
            if cap is not None:
                every = budgets.add_up(self.store.claims(), delta=cap["delta"])
                total = every.proven and every.epsilon <= cap["epsilon"]
            self._at_all = (cap, total, self.store.meta("restored"))
            self._looked_at_all = time.monotonic()
        return self._at_all

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
        mark = self._mark(line)
        self.witness.note(line.identity, name=line.name, claim=line.claim, mark=mark)

    def _say(self, line: Line, words: str, level: int = logging.INFO) -> None:
        """Once, not at every turn."""
        if self._said.get(line.id) != words:
            self._said[line.id] = words
            log.log(level, "%s: %s", line.name, words)

    # ------------------------------------------------------------------ learning

    def _learn(self, line: Line) -> bool:
        """What is due of a bandit whose lease this learner has; True if there is more."""
        held, token, store = self._held.get(line.id), self._leases[line.id], self.store
        seconds = self.settings.lease_seconds
        window, limit = float(line.config["reward_window"]), self.settings.batch
        if time.monotonic() < self._not_before.get(line.id, 0.0):
            return False
        held = None if held is None or held.token != token else held
        wait = store.due_in(line.id, held.position if held else line.learned, window=window)
        if wait > 0:
            self._not_before[line.id] = time.monotonic() + min(wait, LOOK_AGAIN_SECONDS)
            return False
        if held is None:
            self._open(line)
            held = self._held[line.id]
        line = held.line
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
                held.line = line = line._replace(version=new.number)
                held.number, held.position = new.number, new.position
                self._note(line)
        if ended:
            log.warning("%s: %s", line.name, ended)
            self._forget(line.id)
            store.end(line.id, held.token, SPENT, ended)
        return not ended and (full or new.position < upto)

    def _open(self, line: Line) -> bool:
        number, position, state = self.store.state(line.id)
        self._held[line.id] = LearningBandit.open(
            line,
            self._leases[line.id],
            number=number,
            position=position,
            state=state,
            measure=self.store.measure(line.id),
        )
        return True

    def before_publishing(self, held: LearningBandit) -> None:
        """For tests that stop a learner at its worst moment."""
