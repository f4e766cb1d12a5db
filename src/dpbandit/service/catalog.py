"""What a ranker remembers of the store, refreshed several times a second: bandits, released models,
keys.

All of it is public or a hash. Nothing here ever reads a reward or a learner's state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from dpbandit.errors import DpbanditError, SaveError, StoreError
from dpbandit.model import ReleasedModel
from dpbandit.service.keys import KeyRing
from dpbandit.service.store import DELETED, Kept, Line, Store

log = logging.getLogger("dpbandit.service")

T = TypeVar("T")

REFRESH_SECONDS = 0.25
# Asking for what is not there makes the catalog look again, at most this often.
ASK_AGAIN_SECONDS = 0.02


class Served:
    """A bandit as the hot endpoints need it."""

    def __init__(self, line: Line, version: int, model: ReleasedModel) -> None:
        self.id = line.id
        self.line = line
        self.version, self.model = version, model
        self.needs_user = line.config["unit"] != "reward"
        self.window = float(line.config["reward_window"])
        low, high = line.config["reward_range"]
        self.reward_range = (float(low), float(high))
        self.traffic: deque[tuple[float, int]] = deque(maxlen=241)  # (when, decisions so far)

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
    keys: list[Any]
    person_key: bytes
    now: int
    restored: str | None


class Catalog:
    """The bandits by name and the keys in force."""

    def __init__(self, url: str) -> None:
        self._kept = Kept(url, Store)
        self._refreshing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.bandits: dict[str, Served] = {}
        self.keys = KeyRing()
        self.person_key = b""
        self.store_now = 0
        self.restored: str | None = None
        self.refreshed_at = -1e9
        self.problem = "not read yet"
        self.unreadable: dict[str, int] = {}  # bandit → a model of it that could not be read

    async def start(self) -> None:
        await self.refresh()
        self._task = asyncio.create_task(self._forever())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._kept.close()

    @property
    def ready(self) -> bool:
        """Whether the store was reached lately."""
        return time.monotonic() - self.refreshed_at < 5.0

    async def _forever(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            with contextlib.suppress(DpbanditError):
                await self.refresh()

    async def refresh(self, *, unless_newer_than: float = 0.0) -> None:
        """Read what has changed. Keeps what it has when the store cannot be reached."""
        began = time.monotonic()
        async with self._refreshing:
            if self.refreshed_at > began or began - self.refreshed_at < unless_newer_than:
                return
            try:
                found = await asyncio.to_thread(self._with_store, self._read)
            except StoreError as error:
                self.problem = str(error)
                raise
            self._take(found)
            self.refreshed_at, self.problem = began, ""

    def _read(self, store: Store) -> _Reading:
        lines, models = store.lines(), {}
        for line in lines:
            served = self.bandits.get(line.name)
            if line.status != DELETED and (served is None or _older(served, line)):
                found = store.model(line.id)
                if found is not None and (read := self._model(line, *found)) is not None:
                    models[line.id] = (found[0], read)
        return _Reading(
            lines,
            models,
            store.connection.all("SELECT id, hash, role FROM keys WHERE revoked_at IS NULL"),
            self.person_key or bytes.fromhex(store.meta("person_key") or ""),
            store.connection.now(),
            store.meta("restored"),
        )

    def _model(self, line: Line, version: int, record: dict[str, Any]) -> ReleasedModel | None:
        """The model of a record; None for one that this version cannot read. The others go on."""
        try:
            return ReleasedModel.from_record(record)
        except SaveError as error:
            if self.unreadable.get(line.name) != version:
                self.unreadable[line.name] = version
                log.error("%s: model %d cannot be read: %s", line.name, version, error)
        return None

    def _take(self, found: _Reading) -> None:
        self.keys.replace(found.keys)
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
            served.line = line
            served.traffic.append((now, line.decisions))
            while len(served.traffic) > 2 and now - served.traffic[0][0] > 60:
                served.traffic.popleft()
            bandits[line.name] = served
        self.bandits = bandits

    async def with_store(self, action: Callable[[Store], T]) -> T:
        """Run something that reads or writes the store, off the event loop, one at a time."""
        async with self._refreshing:
            return await asyncio.to_thread(self._with_store, action)

    def _with_store(self, action: Callable[[Store], T]) -> T:
        with self._kept.opened() as store:
            return action(store)

    async def find(self, name: str) -> Served | None:
        """The bandit of this name, looking again if it is not known."""
        if name not in self.bandits:
            await self._look_again()
        return self.bandits.get(name)

    async def authorise(self, authorization: bytes) -> tuple[str, str] | None:
        """(key id, role), looking again for an id that is not known."""
        found = self.keys.check(authorization)
        if found is None and not self.keys.remembers(authorization):
            await self._look_again()
            found = self.keys.check(authorization)
        return found

    async def _look_again(self) -> None:
        """Read the store as it is now. All who ask within a moment share one reading."""
        await asyncio.sleep(max(ASK_AGAIN_SECONDS - (time.monotonic() - self.refreshed_at), 0.0))
        with contextlib.suppress(StoreError):
            await self.refresh()
