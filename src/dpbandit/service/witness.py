"""A witness outside the store: how far each bandit had come. It distinguishes an old copy of the
store from the newest.

A store restored from a backup looks perfectly healthy from inside, and would draw new noise for
rewards that have already paid. The witness is a folder elsewhere with one small file per bandit,
written after every release. Its mark never goes back: a bandit that an operator let continue from
an old copy is on a new timeline, which counts as further than any release of earlier timelines.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dpbandit.errors import DpbanditError, RollbackError, StoreError

# Marks that are remembered besides the last: a standby's may be a few releases behind when an
# operator decides.
TRAIL = 32
# Another process that holds a bandit's lock is writing one release. One that was paused must not
# stop this one for ever.
LOCK_SECONDS = 5.0
# Files that are written at a time.
WRITERS = 8

Mark = tuple[int, int, str]  # (timelines, number of the release, fingerprint of the ledger there)


class WitnessError(DpbanditError):
    """A witness that cannot be read or written just now."""


class BrokenWitnessError(WitnessError):
    """A file that is no witness: what it said is lost."""


@dataclass(frozen=True)
class Seen:
    """What was written down last about a bandit."""

    name: str
    claim: dict[str, Any]
    number: int
    fingerprint: str
    timelines: int = 1
    trail: list[list[Any]] = field(default_factory=list)  # earlier marks, the latest last

    @property
    def mark(self) -> Mark:
        return self.timelines, self.number, self.fingerprint


def default_place(store: str) -> Path:
    """Where the witness lies unless said: not in the store's folder, which may be restored."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "dpbandit" / f"witness-{store}"


class Witness:
    """For each bandit, by its identity: name, claim, timelines, and the last release seen."""

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        self.folder = folder
        try:
            if create:
                folder.mkdir(parents=True, exist_ok=True)
            os.listdir(folder)
        except OSError as error:
            hint = "choose a place" if create else "say where the learner keeps it, on its machine,"
            raise StoreError(
                f"there is no witness in {folder}: {error.strerror}; {hint} with --witness"
            ) from None

    def seen(self, identity: str) -> Seen | None:
        """What was written down last about this bandit."""
        path = self.folder / f"{identity}.json"
        with contextlib.suppress(ValueError, TypeError), _named_errors(path, "read"):
            try:
                found = Seen(**json.loads(path.read_text()))
            except FileNotFoundError:
                return None
            if {type(part) for part in (found.timelines, found.number)} == {int}:
                return found
        raise BrokenWitnessError(
            f"{path} is not a readable witness: put it back, or let an operator decide (dpbandit "
            "store trust, or accept-restore)"
        )

    def if_readable(self, identity: str) -> Seen | None:
        """The same for an operator's decision, which needs no witness."""
        with contextlib.suppress(WitnessError):
            return self.seen(identity)
        return None

    def identities(self) -> list[str]:
        """All bandits ever seen."""
        with _named_errors(self.folder, "read"):
            names = sorted(os.listdir(self.folder))
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def everything(self) -> dict[str, Seen | None]:
        """What is known of all of them; None for a file that cannot be read."""
        return {identity: self.if_readable(identity) for identity in self.identities()}

    def note(
        self, identity: str, *, name: str, claim: dict[str, Any], mark: Mark, vouched: bool = False
    ) -> None:
        """Write down that this release exists."""
        new = self.news(identity, name=name, claim=claim, mark=mark, vouched=vouched)
        self.write_all({} if new is None else {identity: new})

    def news(
        self, identity: str, *, name: str, claim: dict[str, Any], mark: Mark, vouched: bool = False
    ) -> Seen | None:
        """What is to be written down of this release; None if it is known. Only forward: whoever is
        behind learns on an old copy, or beside another.

        The caller holds the bandit's lock, until it is written. `vouched`: what cannot be read is
        replaced, because an operator has decided.
        """
        before = self.if_readable(identity) if vouched else self.seen(identity)
        if before is not None:
            if before.mark == mark:
                return None
            if before.mark[:2] >= mark[:2]:
                raise RollbackError(
                    f"another copy of the store is ahead: release {before.number} of timeline "
                    f"{before.timelines} was seen"
                )
        trail = [] if before is None else [*before.trail, list(before.mark)][-TRAIL:]
        timelines, number, fingerprint = mark
        return Seen(name, claim, number, fingerprint, timelines, trail)

    def write_all(self, news: dict[str, Seen]) -> None:
        """Many at once: a disk that is told of several files at a time takes little longer than for
        one."""
        if not news:
            return
        with _named_errors(self.folder, "written"):
            if len(news) == 1:
                self._write(*next(iter(news.items())))
            else:
                with ThreadPoolExecutor(WRITERS) as writers:
                    list(writers.map(self._write, *zip(*news.items(), strict=True)))
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _write(self, identity: str, seen: Seen) -> None:
        temporary = self.folder / f".{identity}.{os.getpid()}"
        with temporary.open("w") as file:
            file.write(json.dumps(asdict(seen), indent=1))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.folder / f"{identity}.json")

    @contextlib.contextmanager
    def locked(self, identity: str) -> Iterator[None]:
        """Alone with this bandit's witness: what is compared stays true until it is written."""
        path = self.folder / f".{identity}.lock"
        with _named_errors(self.folder, "written"):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for(handle)
            yield
        finally:
            os.close(handle)

    def _wait_for(self, handle: int) -> None:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise WitnessError(f"another process holds the witness {self.folder}") from None
            time.sleep(0.005)


@contextlib.contextmanager
def _named_errors(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WitnessError(f"the witness {path} cannot be {done}: {error.strerror}") from None
