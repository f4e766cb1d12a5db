"""Reading the files of `saving`: a saved bandit, which continues, or an exported model, which
ranks.

No code is ever loaded from a file. A field that is missing, unknown or of another shape is refused,
so that nothing is misread.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import RollbackError, SaveError
from dpbandit.model import ReleasedModel, encoder_for
from dpbandit.saving import FIELD, FORMAT, Arrays, note_beside

if TYPE_CHECKING:
    from dpbandit.bandit import Bandit

OLD = (
    "it was saved by dpbandit 0.1, whose float sums cannot continue as integers. Load it with dpbandit "
    "0.1 and export its model, which this version reads and ranks with. To keep learning, make a new "
    "bandit"
)
# What NumPy and zipfile raise over a file of any bytes: TypeError where it is one bare array, and
# RuntimeError where a damaged header calls a part encrypted or patched.
DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    BadZipFile,
    TokenError,
    zlib.error,
)
_RECORD = {
    "format",
    "version",
    "name",
    "identity",
    "options",
    "ledger",
    "over_cap",
    "user_counts",
    "log",
    "keys",
}


def unpack(packed: bytes, name: Path | str = "this") -> Bandit:
    """The bandit in the bytes that `pack` made."""
    return _unpack(io.BytesIO(packed), name, None)


def moved_to(path: Path) -> dict[str, Any] | None:
    """What that file says: `store` and `bandit`. None: it did not move."""
    try:
        found = json.loads(note_beside(path).read_text())
        return {name: str(found[name]) for name in ("store", "bandit")}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise SaveError(f"{note_beside(path)} cannot be read: it says where {path} moved") from None


def load(path: str | Path, *, receipt: dict[str, Any] | None = None) -> Any:
    """Load a saved bandit, which continues bit for bit, or an exported model, which only ranks.

    Parameters
    ----------
    path : str or Path
        A file written by `bandit.save` or `bandit.export`.
    receipt : dict, optional
        A result of `bandit.receipt()`, kept apart from the file. It detects a save of the same
        bandit that is older, or that has as many releases but another history: its budget has been
        spent since.

    Returns
    -------
    Bandit or ReleasedModel

    Raises
    ------
    SaveError
        If the file cannot be read, or not by this version.
    RollbackError
        If it is not as new as the receipt.

    Examples
    --------
    >>> import dpbandit as dpb, tempfile, os
    >>> bandit = dpb.make("linucb", dim=2, seed=1); bandit.update([1.0, 0.0], 0.5)
    >>> file = os.path.join(tempfile.mkdtemp(), "bandit.npz")
    >>> bandit.save(file); bool((dpb.load(file).theta == bandit.theta).all())
    True
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(1)
    except OSError as error:
        raise SaveError(f"cannot read {path}: {error.strerror}") from error
    if start == b"{":
        return _load_model(path)
    if (moved := moved_to(path)) is not None:
        raise RollbackError(
            f"{path} moved into a service, which learns on from it as {moved['bandit']!r}. To learn here "
            "as well would count its users anew, and spend their budget twice"
        )
    return _unpack(path, path, receipt)


def _unpack(source: Path | io.BytesIO, path: Path | str, receipt: dict[str, Any] | None) -> Bandit:
    try:
        with np.load(source, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        record = json.loads(arrays.pop("record").tobytes())
    except DAMAGE:
        # NumPy's own message may recommend loading code from the file.
        raise SaveError(
            f"{path} is neither a saved bandit nor an exported model, or it is damaged: give a file "
            "that bandit.save or bandit.export wrote"
        ) from None
    found = record.get("format") if isinstance(record, dict) else None
    if found == 1:
        raise SaveError(f"{path} has format 1: {OLD}")
    if found != FORMAT:
        raise SaveError(
            f"{path} has format {found!r}; this version reads format {FORMAT}: load it with the "
            "version of dpbandit that saved it"
        )
    _same_names(path, "record", set(record) - {"encoder", "feature_names"}, _RECORD)
    if receipt is not None:
        _check_receipt(path, record, receipt)
    return _restore(path, record, arrays)


def _check_receipt(path: Path | str, record: dict[str, Any], receipt: dict[str, Any]) -> None:
    if record["identity"] != receipt["identity"]:
        raise RollbackError(f"{path} is not the receipt's bandit")
    have, seen = record["ledger"]["releases"], receipt["releases"]
    if have < seen:
        raise RollbackError(
            f"{path} is an old save: it has {have} releases, and {seen} have been made since. "
            "Continuing from it would draw new noise for the same rewards; load the newest save, or "
            "export its model and only rank"
        )
    if have == seen and record["ledger"]["fingerprint"] != receipt["fingerprint"]:
        raise RollbackError(
            f"{path} has another history than the receipt's: two copies have been learning"
        )


def _restore(path: Path | str, record: dict[str, Any], arrays: Arrays) -> Bandit:
    # Here, because an exported model is read without them.
    from dpbandit.algorithms.registry import construct
    from dpbandit.bandit import Bandit
    from dpbandit.logs.record import Log, People
    from dpbandit.privacy.ledger import Ledger

    options = dict(record["options"])
    options |= options.pop("extra")
    options["public_contexts"] = arrays.pop("public_contexts", None)
    people = People.nobody()
    if "log_users" in arrays and "log_counts" in arrays:
        people = People(arrays.pop("log_users"), arrays.pop("log_counts"))
    keys = {int(purpose): int(key) for purpose, key in record["keys"].items()}
    bandit = construct(record["name"], options)
    if not isinstance(bandit, Bandit):
        raise SaveError(f"{path}: {record['name']!r} does not make a dpbandit.Bandit")
    bandit.use_keys(keys)
    if "encoder" in record:
        bandit.use_encoder(encoder_for(record["encoder"], bandit.dim))
    if "feature_names" in record:
        bandit.feature_names = tuple(map(str, record["feature_names"]))
    offered = arrays.pop("offered", None)
    fields = _fields(path, arrays, bandit.engine.fields())
    bandit.engine.load_fields(fields)
    if offered is not None:
        bandit.offer_again(offered, fields)
    bandit.identity = record["identity"]
    bandit.ledger = Ledger.from_dict(record["ledger"])
    bandit.over_cap = record["over_cap"]
    bandit.counters = record["user_counts"]
    if record["log"] is not None:
        bandit.remember(Log(**record["log"]), people)
    bandit.open_short_way()
    return bandit


def _fields(path: Path | str, arrays: Arrays, into: Mapping[str, NDArray[Any]]) -> Arrays:
    """The engine's fields, or an error if one is not what this bandit has."""
    found = {name.removeprefix(FIELD): array for name, array in arrays.items()}
    _same_names(path, "array", set(arrays), {FIELD + name for name in into})
    for name, array in found.items():
        wanted = into[name]
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise SaveError(
                f"{path}: {name!r} is {array.dtype} of shape {array.shape}, but this bandit has "
                f"{wanted.dtype} of shape {wanted.shape}"
            )
    return found


def _same_names(path: Path | str, what: str, have: set[str], want: set[str]) -> None:
    for words, names in (("no", want - have), ("an unknown", have - want)):
        if names:
            raise SaveError(
                f"{path} has {words} {what} {min(names)!r}: it was saved by another version of "
                "dpbandit, or changed since"
            )


def _load_model(path: Path) -> ReleasedModel:
    try:
        record = json.loads(path.read_text())
    except ValueError as error:
        raise SaveError(
            f"{path} is neither a saved bandit nor an exported model: {error}"
        ) from error
    try:
        return ReleasedModel.from_record(record)
    except SaveError as error:
        raise SaveError(f"{path}: {error}") from error
