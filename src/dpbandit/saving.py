"""Writing bandits: everything for the trusted side, or the released model for anybody.

A saved file is a zip of plain arrays and one JSON record. It holds clean statistics and the noise
in use, so it is written with mode 0600 and must stay on the trusted side. An exported file holds
public numbers only. `files` reads both.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpbandit import __version__
from dpbandit.errors import SaveError
from dpbandit.state import State, alone

if TYPE_CHECKING:
    from dpbandit.bandit import Bandit
    from dpbandit.engine import Engine

Arrays = dict[str, NDArray[Any]]

FORMAT = 2
FIELD = "field_"  # before the name of an engine's field


def pack(bandit: Bandit) -> bytes:
    """Everything, as the bytes of a saved file: trusted side only."""
    state, users, engine = alone(bandit, _moment, bandit)
    options = asdict(bandit.options)
    public = options.pop("public_contexts")
    arrays: Arrays = {f"{FIELD}{name}": a for name, a in engine.fields().items()}
    if public is not None:
        arrays["public_contexts"] = public
    if state.offered is not None:
        arrays["offered"] = state.offered
    if len(state.people.hashes):
        arrays |= {"log_users": state.people.hashes, "log_counts": state.people.counts}
    record = {
        "format": FORMAT,
        "version": __version__,
        "name": bandit.name,
        "identity": bandit.identity,
        "options": options,
        "ledger": state.ledger.to_dict(),
        "over_cap": state.over_cap,
        "user_counts": users,
        "log": None if state.log is None else state.log.to_dict(),
        "keys": {str(purpose): key for purpose, key in bandit.keys.items()},
    }
    if bandit.encoder is not None:
        record["encoder"] = bandit.encoder.to_record()
    if bandit.feature_names is not None:
        record["feature_names"] = list(bandit.feature_names)
    text = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
    packed = io.BytesIO()
    np.savez(packed, record=text, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


def _moment(bandit: Bandit) -> tuple[State, dict[str, int], Engine]:
    """The state at one moment. The engine is a copy, because other threads may be learning."""
    state = bandit.state
    return state, state.user_counts, state.engine.copy()


def note_beside(path: Path) -> Path:
    """The file that says of a saved bandit that it moved into the store of a service."""
    real = path.resolve()
    return real.with_name(f"{real.name}.moved")


def check_free(path: Path) -> None:
    """Refuse a name whose file moved into a service: the note would speak of the new one."""
    if (note := note_beside(path)).exists():
        raise SaveError(
            f"{note} says that {path.name} moved into a service: give this one another name"
        )


def save(bandit: Bandit, path: str | Path) -> None:
    """Write the file in one step: readers see the old file or the new one, never half of it."""
    check_free(Path(path))
    packed, target = pack(bandit), Path(path)
    try:  # mkstemp makes it 0600
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    except OSError as error:
        raise SaveError(f"cannot write {target}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(packed)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def export(bandit: Bandit, path: str | Path) -> None:
    """Write the released model as JSON."""
    text = json.dumps(bandit.model().to_record(), indent=1)
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise SaveError(f"cannot write {path}: {error.strerror}") from error
