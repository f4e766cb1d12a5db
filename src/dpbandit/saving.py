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

if TYPE_CHECKING:
    from dpbandit.bandit import Bandit

Arrays = dict[str, NDArray[Any]]

FORMAT = 2
FIELD = "field_"  # before the name of an engine's field


def pack(bandit: Bandit) -> bytes:
    """Everything, as the bytes of a saved file: trusted side only."""
    with bandit.lock:
        options = asdict(bandit.options)
        public = options.pop("public_contexts")
        arrays: Arrays = {f"{FIELD}{name}": a for name, a in bandit.engine.fields().items()}
        if public is not None:
            arrays["public_contexts"] = public
        if bandit.offered is not None:
            arrays["offered"] = bandit.offered
        if len(bandit.people.hashes):
            arrays |= {"log_users": bandit.people.hashes, "log_counts": bandit.people.counts}
        record = {
            "format": FORMAT,
            "version": __version__,
            "name": bandit.name,
            "identity": bandit.identity,
            "options": options,
            "ledger": bandit.ledger.to_dict(),
            "over_cap": bandit.over_cap,
            "user_counts": bandit.user_counts,
            "log": None if bandit.log is None else bandit.log.to_dict(),
            "keys": {str(purpose): key for purpose, key in bandit.keys.items()},
        }
        text = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
        packed = io.BytesIO()
        np.savez(packed, record=text, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


def save(bandit: Bandit, path: str | Path) -> None:
    """Write the file in one step: the old one is there or the whole new one, never half of it."""
    packed, target = pack(bandit), Path(path)
    # mkstemp makes it 0600
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name)
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
    Path(path).write_text(json.dumps(bandit.model().to_record(), indent=1))
