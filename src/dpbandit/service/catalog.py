"""A ranker's copy of the store, refreshed several times a second: bandits, released models, keys.

All of it is public or a hash. Nothing here ever reads a reward or a learner's state.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from dpbandit.errors import StoreError
from dpbandit.model import ReleasedModel
from dpbandit.service.keys import KeyRing
from dpbandit.service.loops import Lane, Loop, Remembered, words_of
from dpbandit.service.records import Decision
from dpbandit.service.store import DELETED, Line, Store

log = logging.getLogger("dpbandit.service")

T = TypeVar("T")

REFRESH_SECONDS = 0.25
# Reading a store with thousands of bandits takes a while; no more than this part of the time,
# though it is done every so often.
SHARE = 0.05
READS_SECONDS = 1.0
# Asking for what is not there makes the catalog look again, at most this often.
ASK_AGAIN_SECONDS = 0.02
# No key is taken that was not seen in force so lately.
KEYS_SECONDS = 1.5
# A learner prolongs its lease three times while it lasts. One that was not prolonged for so long is
# dead, whatever the clock says.
LEASE_SECONDS = 60.0
# So many arms are counted by name; what is offered besides is counted together.
MOST_ARMS, OTHER_ARMS = 1_000, "all others"


class Served:
    """A bandit as the hot endpoints need it."""

    def __init__(self, line: Line, version: int, model: ReleasedModel) -> None:
        self.id = line.id
        self.line = line
        self.version, self.model = version, model
        self.needs_user = line.config["unit"] != "reward"
        self.counted_by_log = self.needs_user and line.config.get("log") is not None
        self.window = float(line.config["reward_window"])
        low, high = line.config["reward_range"]
        self.reward_range = (float(low), float(high))
        self.holdout = float(line.config.get("holdout") or 0.0)
        self.traffic: deque[tuple[float, int]] = deque(maxlen=241)  # (when, decisions so far)
        self.offers: Counter[str] = Counter()  # by this process, since it started
        self._prolonged = (0, 0.0)  # (the lease's end, when it was first seen)

    def see(self, line: Line, now: float) -> None:
        """What the store says of it at this moment."""
        if line.lease_until != self._prolonged[0]:
            self._prolonged = (line.lease_until, now)
        self.line = line
        self.traffic.append((now, line.decisions))
        while len(self.traffic) > 2 and now - self.traffic[0][0] > 60:
            self.traffic.popleft()

    def offered(self, decisions: Iterable[Decision]) -> None:
        """Count what was offered. Public, since decisions are; where contexts are private, arms are
        too, and nothing is counted."""
        if self.model.gate.private:
            return
        for _, arm, name, *_ in decisions:
            shown = f"arm {arm}" if name is None else name
            known = shown in self.offers or len(self.offers) < MOST_ARMS
            self.offers[shown if known else OTHER_ARMS] += 1

    @property
    def plain(self) -> bool:
        """Whether the model alone decides."""
        return not self.holdout and not self.shadow

    @property
    def shadow(self) -> bool:
        """Whether another system decides, and this one learns from what that shows."""
        return bool(self.line.config.get("shadow")) and self.line.live is None

    def learner_up(self, store_now: int) -> bool:
        """Whether a learner holds the lease, and prolongs it."""
        alive = time.monotonic() - self._prolonged[1] < LEASE_SECONDS
        return alive and self.line.lease_until > store_now

    def rate(self) -> float:
        """Decisions a second over the last minute."""
        if len(self.traffic) < 2:
            return 0.0
        (start, before), (end, now) = self.traffic[0], self.traffic[-1]
        return (now - before) / max(end - start, 1e-9)


def _older(served: Served, line: Line) -> bool:
    """Whether the store has a newer model. One that goes on from an old copy of the store counts
    releases from there anew."""
    return served.line.timelines < line.timelines or served.version < line.version


class _Reading(NamedTuple):
    """What the store said."""

    lines: list[Line]
    models: dict[int, tuple[int, ReleasedModel]]  # bandit → (version, model), where one is newer
    person_key: bytes
    now: int
    restored: str | None


class Catalog:
    """The bandits by name and the keys in force, each read by a lane of its own: whatever keeps one
    from being read, a revoked key ends."""

    def __init__(self, url: str, *, read_seconds: float) -> None:
        # A store that takes longer to read is away.
        self._read_seconds = read_seconds
        self._lane = Lane(url, "catalog", patience=read_seconds)
        self._keys_lane = Lane(url, "keys", patience=read_seconds)
        # What single callers ask for: however many do, what all need is read in time.
        self._pages = Lane(url, "pages", patience=read_seconds)
        self._bandits = Remembered(self._read_bandits)
        self._keys = Remembered(self._read_keys)
        self._took = 0.0
        self.loops = (
            Loop("the catalogue", self._keep_reading, every=REFRESH_SECONDS, well_for=10.0),
            Loop("the keys", self._keys.again, every=REFRESH_SECONDS, well_for=10.0),
        )
        self.bandits: dict[str, Served] = {}
        self.keys = KeyRing()
        self.person_key = b""
        self.store_now = 0
        self.restored: str | None = None
        self.unreadable: dict[str, int] = {}  # bandit → a model of it that could not be read

    async def start(self) -> None:
        for lane in (self._lane, self._keys_lane, self._pages):
            lane.start()
        await self._keys.again()
        await self._bandits.again()
        for loop in self.loops:
            loop.start()

    async def stop(self) -> None:
        for loop in self.loops:
            await loop.stop()
        for lane in (self._lane, self._keys_lane, self._pages):
            lane.stop()

    @property
    def ready(self) -> bool:
        """Whether the store was read lately."""
        return max(self._bandits.age, self._keys.age) < self._read_seconds

    # ------------------------------------------------------------------ bandits

    async def _keep_reading(self) -> None:
        every = min(self._took / SHARE, READS_SECONDS)
        await asyncio.sleep(max(every - REFRESH_SECONDS, 0.0))
        await self._bandits.again()

    async def refresh(self, *, unless_newer_than: float = 0.0) -> None:
        """Read what has changed. Keeps what it has when the store cannot be reached."""
        await self._bandits.again(unless_newer_than=unless_newer_than)

    async def _read_bandits(self) -> None:
        began = time.monotonic()
        self._take(await self._lane.do(self._read))
        self._took = time.monotonic() - began

    def _read(self, store: Store) -> _Reading:
        lines, models = store.lines(), {}
        for line in lines:
            served = self.bandits.get(line.name)
            if line.status != DELETED and (served is None or _older(served, line)):
                found = self._model(store, line)
                if found is not None:
                    models[line.id] = found
        return _Reading(
            lines,
            models,
            self.person_key or bytes.fromhex(store.meta("person_key") or ""),
            store.connection.now(),
            store.meta("restored"),
        )

    def _model(self, store: Store, line: Line) -> tuple[int, ReleasedModel] | None:
        """The latest model; None for one that this version cannot read. The others go on."""
        try:
            found = store.model(line.id)
            return None if found is None else (found[0], ReleasedModel.from_record(found[1]))
        except StoreError:
            raise
        except Exception as error:  # whatever is in the store instead of a model
            if self.unreadable.get(line.name) != line.version:
                self.unreadable[line.name] = line.version
                words = words_of(error)
                log.error("%s: model %d cannot be read: %s", line.name, line.version, words)
        return None

    def _take(self, found: _Reading) -> None:
        self.person_key, self.store_now = found.person_key, found.now
        self.restored, models = found.restored, found.models
        bandits = {}
        now = time.monotonic()
        for line in found.lines:
            if line.status == DELETED:
                self.unreadable.pop(line.name, None)
                continue
            served = self.bandits.get(line.name)
            if served is None or served.id != line.id:
                if line.id not in models:
                    continue
                served = Served(line, *models[line.id])
            # Never back to an older model, whatever order the answers came in.
            if line.id in models:
                version, model = models[line.id]
                if _older(served, line) or version >= served.version:
                    served.version, served.model = version, model
            served.see(line, now)
            bandits[line.name] = served
        self.bandits = bandits

    async def with_store(self, action: Callable[[Store], T]) -> T:
        """Run something that reads the store, off the event loop, one at a time."""
        return await self._pages.do(action)

    async def find(self, name: str) -> Served | None:
        """The bandit of this name, looking again if it is not known."""
        if name not in self.bandits:
            await self._look_again(self._bandits)
        return self.bandits.get(name)

    # ------------------------------------------------------------------ keys

    async def _read_keys(self) -> None:
        sql = "SELECT id, hash, role FROM keys WHERE revoked_at IS NULL"
        self.keys.replace(await self._keys_lane.do(lambda store: store.connection.all(sql)))

    def authorised(self, authorization: bytes) -> tuple[str, str] | None:
        """(key id, role) of a key that was seen in force just now; None: `authorise` may know."""
        return self.keys.check(authorization) if self._keys.age < KEYS_SECONDS else None

    async def authorise(self, authorization: bytes) -> tuple[str, str] | None:
        """(key id, role), looking again for an id that is not known and if it was long ago. Raises
        StoreError if that cannot be done."""
        if not self.keys.well_formed(authorization):
            return None
        await self._keys.again(unless_newer_than=KEYS_SECONDS)
        if not self.keys.remembers(authorization):
            await self._look_again(self._keys)
        return self.keys.check(authorization)

    async def _look_again(self, what: Remembered) -> None:
        """Read the store as it is now. All who ask within a moment share one reading."""
        await asyncio.sleep(max(ASK_AGAIN_SECONDS - what.age, 0.0))
        await what.again()
