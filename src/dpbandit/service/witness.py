"""A witness outside the store: how far each bandit had come. It tells an old copy of the store from the newest.

A store that was restored from a backup looks perfectly well from inside, and would draw new noise for rewards that were paid
for already. The witness is a folder elsewhere with one small file a bandit, written after every release, that never goes back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpbandit.errors import StoreError


def default_place(store: str) -> Path:
    """Where the witness of this store lies unless said otherwise: outside the store's folder, which may be restored whole."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "dpbandit" / f"witness-{store}"


class Witness:
    """For each bandit, by its identity: name, claim, and the number and fingerprint of the last release that was seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot keep a witness in {folder}: {error.strerror}; choose a place with --witness"
            ) from None

    def seen(self, identity: str) -> dict[str, Any] | None:
        """What was written down last about this bandit."""
        path = self.folder / f"{identity}.json"
        try:
            record: dict[str, Any] = json.loads(path.read_text())
            if {"name", "claim", "number", "fingerprint"} <= set(record):
                return record
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            pass
        raise StoreError(
            f"{path} is not a readable witness: restore it, or let an operator decide (dpbandit store trust)"
        )

    def everything(self) -> dict[str, dict[str, Any]]:
        """All bandits ever seen, by identity."""
        records = {path.stem: self.seen(path.stem) for path in sorted(self.folder.glob("*.json"))}
        return {identity: record for identity, record in records.items() if record is not None}

    def note(
        self, identity: str, *, name: str, claim: dict[str, Any], number: int, fingerprint: str, force: bool = False
    ) -> None:
        """Write down that this release exists. Only forward, unless an operator has decided (`force`)."""
        with self._locked():
            before = self.seen(identity)
            if before is not None and before["number"] >= number and not force:
                return
            record = {"name": name, "claim": claim, "number": number, "fingerprint": fingerprint}
            temporary = self.folder / f".{identity}.{os.getpid()}"
            with temporary.open("w") as file:
                file.write(json.dumps(record, indent=1))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.folder / f"{identity}.json")
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
