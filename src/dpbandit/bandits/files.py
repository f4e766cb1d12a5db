"""Saving, loading and exporting bandits.

A saved file is a zip of plain arrays and one JSON record; no code is ever loaded from it. It holds clean statistics and
the noise in use, so it is written with mode 0600 and must stay on the trusted side. An exported file holds public
numbers only.
"""

from __future__ import annotations

import io
import json
import math
import os
import secrets
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit import __version__
from dpbandit.bandits.base import Bandit
from dpbandit.bandits.logged import Log, People
from dpbandit.bandits.options import whole
from dpbandit.bandits.propensity import Propensities, of_model
from dpbandit.budget import Claim, Ledger
from dpbandit.errors import NotFiniteError, RollbackError, SaveError, ShapeError
from dpbandit.frames import is_frame
from dpbandit.frames import numbers as frame_numbers

FORMAT = 1
# Not in files of the first version, where they would be empty.
LATER_ARRAYS = (
    "_recent",
    "_waiting",
    "watch_largest",
    "watch_sizes",
    "watch_todo",
    "watch_work",
    "longer",
    "whitener",
    "outlook_cells",
)


def pack(bandit: Bandit) -> bytes:
    """Everything, as the bytes of a saved file: trusted side only."""
    options = asdict(bandit.options)
    public = options.pop("public_contexts")
    arrays = {f"array_{name}": value for name, value in bandit._arrays().items()}
    if public is not None:
        arrays["public_contexts"] = public
    if len(bandit._people.hashes):
        arrays |= {"log_users": bandit._people.hashes, "log_counts": bandit._people.counts}
    record = {
        "format": FORMAT,
        "version": __version__,
        "name": bandit.name,
        "identity": bandit.identity,
        "options": options,
        "ledger": bandit.ledger.to_dict(),
        "clipped": bandit.clipped,
        "over_cap": bandit.over_cap,
        "user_counts": bandit._user_counts,
        "log": None if bandit.log is None else bandit.log.to_dict(),
        "keys": {str(purpose): key for purpose, key in getattr(bandit, "keys", {}).items()},
        # contexts as `select` perturbed them, by their bytes: the next update must learn from these
        "perturbed": {raw.hex(): seen.tolist() for raw, seen in getattr(bandit, "_perturbed", {}).items()},
    }
    text = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
    packed = io.BytesIO()
    np.savez(packed, record=text, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


def unpack(packed: bytes) -> Bandit:
    """The bandit that `pack` was given."""
    return _unpack(io.BytesIO(packed), "this", None)


def save(bandit: Bandit, path: str | Path) -> None:
    """Write the file in one step: either the old one or the whole new one is there, never half of it."""
    packed, target = pack(bandit), Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name)  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(packed)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: str | Path, *, receipt: dict[str, Any] | None = None) -> Any:
    """A saved bandit, which continues bit for bit, or an exported model, which only ranks.

    `receipt` is what `bandit.receipt()` said at some time, kept apart from the file. A save of the same bandit that is
    older, or that has the same number of releases and another history, raises RollbackError: its budget was spent since.

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
    return _unpack(path, path, receipt)


def _unpack(source: Path | io.BytesIO, path: Path | str, receipt: dict[str, Any] | None) -> Bandit:
    try:
        with np.load(source, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        record = json.loads(arrays.pop("record").tobytes())
    except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
        raise SaveError(f"{path} is not a saved bandit: {error}") from error
    if record.get("format") != FORMAT:
        raise SaveError(f"{path} has format {record.get('format')!r}; this version reads format {FORMAT}")
    if receipt is not None:
        _check_receipt(path, record, receipt)
    return _restore(record, arrays)


def _check_receipt(path: Path | str, record: dict[str, Any], receipt: dict[str, Any]) -> None:
    if record["identity"] != receipt["identity"]:
        raise RollbackError(f"{path} is another bandit than the receipt's")
    have, seen = record["ledger"]["releases"], receipt["releases"]
    if have < seen:
        raise RollbackError(
            f"{path} is an old save: it has {have} releases, and {seen} have been made since. Going on from it would draw "
            "new noise for the same rewards; load the newest save, or export its model and only rank"
        )
    if have == seen and record["ledger"]["fingerprint"] != receipt["fingerprint"]:
        raise RollbackError(f"{path} has another history than the receipt's: two copies have been learning")


def _restore(record: dict[str, Any], arrays: dict[str, Any]) -> Bandit:
    from dpbandit.bandits.registry import construct

    options = dict(record["options"])
    extra = options.pop("extra")
    options["reward_range"] = tuple(options["reward_range"])
    if isinstance(options["unit"], list):
        options["unit"] = tuple(options["unit"])
    bandit: Bandit = construct(
        record["name"], {**options, **extra, "public_contexts": arrays.pop("public_contexts", None)}
    )
    for name, into in bandit._arrays().items():
        if f"array_{name}" not in arrays and name.endswith(LATER_ARRAYS):
            continue
        saved = arrays[f"array_{name}"]
        if name in ("toeplitz_rates", "toeplitz_weights") and not np.array_equal(into, saved):
            raise SaveError(
                "saved with another Toeplitz table than this version's: the noise scale would not fit its stream"
            )
        into[...] = saved
    bandit.complete()
    bandit.identity = record["identity"]
    bandit.ledger = Ledger.from_dict(record["ledger"])
    bandit.clipped, bandit.over_cap = record["clipped"], record["over_cap"]
    bandit._user_counts = record["user_counts"]
    if record.get("log") is not None:
        people = People(arrays["log_users"], arrays["log_counts"]) if "log_users" in arrays else People.nobody()
        bandit.remember(Log(**record["log"]), people)
    perturbed = {bytes.fromhex(raw): np.array(seen) for raw, seen in record["perturbed"].items()}
    bandit._perturbed = perturbed  # type: ignore[attr-defined]
    if record["keys"]:
        bandit.keys = {int(purpose): key for purpose, key in record["keys"].items()}  # type: ignore[attr-defined]
    return bandit


def export(bandit: Bandit, path: str | Path) -> None:
    """Write the released model as JSON."""
    Path(path).write_text(json.dumps(released_record(bandit), indent=1))


def released_record(bandit: Bandit) -> dict[str, Any]:
    """The released model as `export` writes it: public numbers only."""
    return {
        "dpbandit_model": FORMAT,
        "name": bandit.name,
        "dim": bandit.dim,
        "round": bandit.rounds,
        "claim": bandit.claim.to_dict(),
        **bandit._released(),
    }


class ReleasedModel:
    """A model that ranks and does not learn: public numbers only."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.name: str = record["name"]
        self.dim: int = record["dim"]
        self.round: int = record["round"]
        self.theta = np.array(record["theta"])
        self.inverse_gram = np.array(record["inverse_gram"])
        self.alpha = float(record["alpha"])
        self.plays_at_random = bool(record["plays_at_random"])
        # Whether an arm's bonus is about how it differs from the others offered.
        self.bonus_about_mean = bool(record.get("bonus_about_mean", False))
        # Thompson sampling: arms are scored by a draw from N(θ, α²A⁻¹) instead of a bound.
        self.draws_from_posterior = bool(record.get("draws_from_posterior", False))
        claim = dict(record["claim"])
        claim["assumptions"] = tuple(claim["assumptions"])
        claim["epsilon"] = math.inf if claim["epsilon"] is None else claim["epsilon"]
        self.claim = Claim(**claim)

    def select(self, contexts: ArrayLike) -> int:
        """The best arm by the released parameter and bonus; the first one on a tie."""
        given = self._check(contexts)
        if self.plays_at_random:
            return secrets.randbelow(len(given))
        if self.draws_from_posterior:
            drawn = np.random.default_rng().multivariate_normal(self.theta, self.alpha**2 * self.inverse_gram)
            return int(np.argmax(given @ drawn))
        apart = given - given.mean(axis=0) if self.bonus_about_mean else given
        widths = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", apart, self.inverse_gram, apart), 0.0))
        return int(np.argmax(given @ self.theta + self.alpha * widths))

    def propensities(self, contexts: ArrayLike, *, draws: int = 1_000, seed: int | None = None) -> Propensities:
        """As `Bandit.propensities`, from what was exported."""
        given = self._check(contexts)
        released = {
            "theta": self.theta,
            "inverse_gram": self.inverse_gram,
            "alpha": self.alpha,
            "plays_at_random": self.plays_at_random,
            "draws_from_posterior": self.draws_from_posterior,
        }
        return of_model(released, given, name=self.name, draws=whole("draws", draws, least=1), seed=seed)

    def _check(self, contexts: ArrayLike) -> NDArray[np.float64]:
        numbers = frame_numbers(contexts, "contexts") if is_frame(contexts) else contexts
        given = np.asarray(numbers, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != self.dim or len(given) == 0:
            raise ShapeError(f"contexts must have shape (arms, {self.dim}) with at least one arm, not {given.shape}")
        if not np.isfinite(given).all():
            raise NotFiniteError("a context holds NaN or infinity: contexts must be finite numbers")
        return given

    def __repr__(self) -> str:
        claim = str(self.claim).splitlines()[0]
        return f"<released model of {self.name} after {self.round:,} rounds: dim {self.dim}; {claim}>"


def _load_model(path: Path) -> ReleasedModel:
    try:
        record = json.loads(path.read_text())
        if record["dpbandit_model"] != FORMAT:
            raise SaveError(f"{path} has format {record['dpbandit_model']!r}; this version reads format {FORMAT}")
        return ReleasedModel(record)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, SaveError):
            raise
        raise SaveError(f"{path} is neither a saved bandit nor an exported model: {error}") from error
