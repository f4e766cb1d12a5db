"""What is kept and everybody may see: settings, bandits, releases. What must hold together is one
transaction.

Decisions and rewards, the two that come in thousands a second, are written by `journal`; what only
the learner may read or write is in `trusted`.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dpbandit.errors import CapError, OptionError, StoreError
from dpbandit.service import budgets
from dpbandit.service.database import Connection, connect
from dpbandit.service.schema import LOCK_BUDGET, LOCK_REWARDS, migrate

# Why a bandit does not learn. It ranks in all of these but 'deleted'.
LEARNING, SPENT, FAILED = "learning", "spent", "failed"
RESTORED, RETIRED, DELETED = "restored", "retired", "deleted"

# Rankers need the latest model; a few older ones are kept for those that are just loading one.
MODELS_KEPT = 5

# How many releases back those that charged nothing are kept: long enough to look at.
UNCHARGED_KEPT = 1_000

# Rows of a table that one transaction erases: rewards wait while it lasts.
ERASE_LOT = 5_000

_END_LEASE = "UPDATE leases SET token = token + 1, expires_at = 0 WHERE bandit = ?"

# Rankers read all settings several times a second, and contexts known in advance may be among them.
# Nobody changes what is parsed.
_parsed = functools.lru_cache(maxsize=4096)(json.loads)


@dataclass(frozen=True)
class Line:
    """One bandit as everybody may see it."""

    config: dict[str, Any]
    claim: dict[str, Any]
    id: int
    identity: str
    name: str
    status: str
    reason: str
    timelines: int
    created_at: int
    decisions: int
    closed: int
    learned: int
    version: int
    holder: str | None
    lease_until: int


class Store:
    """One connection's view of the store; not for several threads at a time."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.connection: Connection = connect(url, create=create)
        migrate(self.connection)

    def close(self) -> None:
        self.connection.close()

    # ------------------------------------------------------------------ settings

    def meta(self, name: str) -> str | None:
        found = self.connection.one("SELECT value FROM meta WHERE name = ?", (name,))
        return None if found is None else str(found[0])

    def set_meta(self, name: str, value: str | None) -> None:
        with self.connection.write():
            self.put_meta(name, value)

    def put_meta(self, name: str, value: str | None) -> None:
        """The same inside a transaction."""
        self.connection.run("DELETE FROM meta WHERE name = ?", (name,))
        if value is not None:
            self.connection.add("meta", name=name, value=value)

    def cap(self) -> dict[str, float] | None:
        """The budget that all bandits share: ε at a δ. None if there is no cap."""
        text = self.meta("cap")
        return None if text is None else json.loads(text)

    def set_cap(self, epsilon: float, delta: float) -> None:
        """Set the cap once. It can be lowered, never raised: those who came first relied on it."""
        if not epsilon > 0 or not 0 < delta < 1:
            raise OptionError("a cap is ε above 0 at a δ strictly between 0 and 1")
        before = self.cap()
        if before is not None and (delta != before["delta"] or epsilon > before["epsilon"]):
            raise CapError(
                f"this store has the cap ε = {before['epsilon']:g} at δ = {before['delta']:g}: it "
                "may be lowered at the same δ, never raised"
            )
        self.set_meta("cap", json.dumps({"epsilon": epsilon, "delta": delta}))

    # ------------------------------------------------------------------ bandits

    def lines(self) -> list[Line]:
        """All bandits, deleted ones too."""
        rows = self.connection.all(
            "SELECT b.config, b.claim, b.id, b.identity, b.name, b.status, b.reason, b.timelines, "
            "b.created_at, s.last_seq, p.closed, p.learned, p.version, l.holder, "
            "COALESCE(l.expires_at, 0) FROM bandits b JOIN streams s ON s.bandit = b.id JOIN "
            "progress p ON p.bandit = b.id LEFT JOIN leases l ON l.bandit = b.id ORDER BY b.id"
        )
        return [Line(_parsed(config), _parsed(claim), *rest) for config, claim, *rest in rows]

    def claims(self) -> list[tuple[dict[str, Any], int]]:
        """Every claim ever made here, with how often it counts."""
        rows = self.connection.all("SELECT claim, timelines FROM bandits ORDER BY id")
        return [(json.loads(claim), timelines) for claim, timelines in rows]

    def create(
        self,
        config: dict[str, Any],
        *,
        text: str,
        identity: str,
        claim: dict[str, Any],
        model: str,
        privacy: str,
        state: bytes,
        key: str,
    ) -> bool:
        """Add a bandit; False if the very same one is there, OptionError if another one is."""
        db, name = self.connection, config["name"]
        with db.write():
            db.exclude(LOCK_BUDGET, 0)
            there = db.one("SELECT config, status FROM bandits WHERE name = ?", (name,))
            if there is not None and there[1] == DELETED:
                raise OptionError(
                    "a bandit of this name was deleted: its budget stays spent, and names are not "
                    "used again"
                )
            if there is not None and there[0] != text:
                raise OptionError(
                    "another bandit of this name exists: choose another name, or ask for the same "
                    "settings"
                )
            if there is not None:
                return False
            if self.meta("restored") is not None:
                raise CapError(
                    "this store was restored from an old copy: new bandits wait until an operator "
                    "has decided (dpbandit store accept-restore --lost)"
                )
            budgets.check_cap(self.claims(), claim, self.cap())
            bandit = self.add_bandit(
                identity=identity,
                name=name,
                config=text,
                claim=json.dumps(claim),
                status=LEARNING,
                created_by=key,
            )
            db.add("states", bandit=bandit, number=0, state=state)
            self.add_release(bandit, privacy=privacy, model=model)
        return True

    def add_bandit(self, **row: Any) -> int:
        """In a transaction: a bandit without decisions; returns its number."""
        db = self.connection
        db.add("bandits", created_at=db.now(), **row)
        (bandit,) = db.all("SELECT id FROM bandits WHERE identity = ?", (row["identity"],))[0]
        db.add("streams", bandit=bandit, last_seq=0)
        db.add("progress", bandit=bandit, closed=0, learned=0, version=0)
        return int(bandit)

    def set_status(self, bandit: int, status: str, reason: str) -> None:
        """Stop or restart learning. A deleted or retired bandit stays so; its lease is lost."""
        with self.connection.write():
            self.connection.run(_END_LEASE, (bandit,))
            self.connection.run(
                "UPDATE bandits SET status = ?, reason = ? WHERE id = ? AND status NOT IN "
                "('deleted', 'retired')",
                (status, reason, bandit),
            )

    def delete(self, bandit: int) -> None:
        """Erase what was recorded. The claim stays in the sum, and the name stays taken."""
        db = self.connection
        with db.write():
            db.exclude(LOCK_REWARDS, bandit)
            sql = "UPDATE bandits SET status = ?, reason = 'deleted' WHERE id = ?"
            db.run(sql, (DELETED, bandit))
            db.run(_END_LEASE, (bandit,))
            db.run("DELETE FROM states WHERE bandit = ?", (bandit,))
        while self.erase_deleted(bandit):
            pass

    def erase_deleted(self, bandit: int, *, lot: int = ERASE_LOT) -> int:
        """Erase some of what is left of a deleted bandit: others need not wait for all of it."""
        db, erased = self.connection, 0
        gone = "UPDATE releases SET model = NULL, noisy = NULL"
        for table, key, what, where in (
            ("rewards", "seq", "DELETE FROM rewards", ""),
            ("decisions", "seq", "DELETE FROM decisions", ""),
            ("people", "person", "DELETE FROM people", ""),
            ("releases", "number", gone, "AND (model IS NOT NULL OR noisy IS NOT NULL)"),
        ):
            some = f"SELECT {key} FROM {table} WHERE bandit = ? {where} LIMIT ?"
            sql = f"{what} WHERE bandit = ? AND {key} IN ({some})"
            with db.write():
                erased += db.run(sql, (bandit, bandit, lot))
        db.overwrite_erased(erased, more=erased >= lot)
        return erased

    # ------------------------------------------------------------------ releases

    def add_release(self, bandit: int, **row: Any) -> None:
        """In a transaction. What is not said is as it was before the first release."""
        start = {"number": 0, "position": 0, "token": 0, "fingerprint": "", "charged": 0}
        made_at = self.connection.now()
        self.connection.add("releases", bandit=bandit, made_at=made_at, **start | row)

    def model(self, bandit: int) -> tuple[int, dict[str, Any]] | None:
        """The latest released model and its number."""
        found = self.connection.one(
            "SELECT number, model FROM releases WHERE bandit = ? AND model IS NOT NULL ORDER BY "
            "number DESC LIMIT 1",
            (bandit,),
        )
        return None if found is None else (found[0], json.loads(found[1]))

    def privacy(self, bandit: int) -> dict[str, Any]:
        """The public account after the latest release."""
        rows = self.connection.all(
            "SELECT privacy FROM releases WHERE bandit = ? ORDER BY number DESC LIMIT 1", (bandit,)
        )
        record: dict[str, Any] = json.loads(rows[0][0])
        return record

    def releases(self, bandit: int, *, limit: int) -> list[dict[str, Any]]:
        """The latest releases, oldest first, without models."""
        rows = self.connection.all(
            "SELECT number, position, made_at, charged, noise_scale, privacy FROM releases WHERE "
            "bandit = ? ORDER BY number DESC LIMIT ?",
            (bandit, limit),
        )
        return [
            {
                "model_version": number,
                "position": position,
                "made_at": made_at / 1e6,
                "releases": charged,
                "noise_scale": scale,
                "spent": json.loads(privacy)["spent"],
            }
            for number, position, made_at, charged, scale, privacy in reversed(rows)
        ]

    def release_seal(self, bandit: int, number: int) -> str | None:
        """The fingerprint of the ledger at this release; None if it was not made here."""
        # Releases that charged nothing are dropped in time; they had the fingerprint of the one
        # before.
        found = self.connection.one(
            "SELECT r.fingerprint FROM releases r JOIN progress p ON p.bandit = r.bandit WHERE "
            "r.bandit = ? AND r.number <= ? AND p.version >= ? ORDER BY r.number DESC LIMIT 1",
            (bandit, number, number),
        )
        return None if found is None else str(found[0])


AnyStore = TypeVar("AnyStore", bound=Store)


class Kept(Generic[AnyStore]):
    """A store that one thread at a time opens when it needs it, and anew after it failed."""

    def __init__(self, url: str, kind: Callable[[str], AnyStore]) -> None:
        self._url, self._kind = url, kind
        self._store: AnyStore | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[AnyStore]:
        try:
            self._store = self._store or self._kind(self._url)
            yield self._store
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        if self._store is not None:
            with contextlib.suppress(Exception):
                self._store.close()
        self._store = None
