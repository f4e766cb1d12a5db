"""The public part of the store: settings, bandits, releases. Data that must be consistent is
written in one transaction.

`journal` writes decisions and rewards, which come in thousands a second. `trusted` has the parts
that only the learner may read or write.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from dpbandit.errors import CapError, OptionError, StoreError
from dpbandit.service import budgets
from dpbandit.service.database import PATIENCE, Connection, connect
from dpbandit.service.schema import (
    ERASED_COUNT,
    LOCK_BUDGET,
    LOCK_DECISIONS,
    LOCK_REWARDS,
    migrate,
)

# Why a bandit does not learn. It ranks in all of these but 'deleted'.
LEARNING, SPENT, FAILED = "learning", "spent", "failed"
RESTORED, RETIRED, DELETED = "restored", "retired", "deleted"

# Rankers need the latest model; a few older ones are kept for those that are just loading one.
MODELS_KEPT = 5

# How many releases back those that charged nothing are kept: long enough to look at.
UNCHARGED_KEPT = 1_000

# Rows of a table that one transaction erases: rewards wait while it lasts.
ERASE_LOT = 5_000

# Bandits whose config and claim are read by one statement.
SETTLED_LOT = 256

# Options that no list shows, and what else of a config none shows: megabytes may be in them.
LEFT_OUT = ("public_contexts",)
LEFT_OUT_WHOLE = ("encoder",)

# Users that one statement adds.
PEOPLE_LOT = 10_000

# How long an erasure waits for a reader to let it empty the log.
EMPTY_SECONDS = 2.0

_PEOPLE = {"bandit": "int", "person": "bytea", "decisions": "bigint"}  # types in PostgreSQL
_END_LEASE = "UPDATE leases SET token = token + 1, expires_at = 0 WHERE bandit = ?"


class Line(NamedTuple):
    """One bandit as everybody may see it; contexts known in advance are left out of its config."""

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
    live: int | None = None  # since when it is out of the shadow


class _Config(msgspec.Struct):
    """A config whose options are not looked into."""

    options: dict[str, msgspec.Raw] = {}


_CONFIG, _ANY = msgspec.json.Decoder(_Config), msgspec.json.Decoder(dict[str, msgspec.Raw])


def short(text: str) -> dict[str, Any]:
    """A config without contexts known in advance and encoders, megabytes of them: rankers and
    learners need none of those, and hold thousands of configs."""
    options = _CONFIG.decode(text).options
    without = ("options", *LEFT_OUT_WHOLE)
    rest = {name: raw for name, raw in _ANY.decode(text).items() if name not in without}
    kept = {name: raw for name, raw in options.items() if name not in LEFT_OUT}
    config: dict[str, Any] = {name: msgspec.json.decode(raw) for name, raw in rest.items()}
    return config | {"options": {name: msgspec.json.decode(raw) for name, raw in kept.items()}}


class Store:
    """One connection's view of the store; not for several threads at a time."""

    def __init__(self, url: str, *, create: bool = True, patience: float = PATIENCE) -> None:
        self.connection: Connection = connect(url, create=create, patience=patience)
        self._settled: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
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
        """The same inside a transaction. Others may be writing it at the same moment."""
        if value is None:
            self.connection.run("DELETE FROM meta WHERE name = ?", (name,))
        else:
            self.connection.run(
                "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value "
                "= excluded.value",
                (name, value),
            )

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

    def lines(self, *, only: Sequence[int] | None = None) -> list[Line]:
        """All bandits, deleted ones too; or those of these numbers, not too many."""
        # Config and claim never change: they are read once. Everybody asks several times a second.
        given = () if only is None else tuple(only)
        where = "" if only is None else f"WHERE b.id IN ({','.join('?' * len(given))}) "
        rows = self.connection.all(
            "SELECT b.id, b.identity, b.name, b.status, b.reason, b.timelines, b.created_at, "
            "s.last_seq, p.closed, p.learned, p.version, l.holder, COALESCE(l.expires_at, 0), b.live FROM "
            "bandits b JOIN streams s ON s.bandit = b.id JOIN progress p ON p.bandit = b.id LEFT "
            f"JOIN leases l ON l.bandit = b.id {where}ORDER BY b.id",
            given,
        )
        new = [row[0] for row in rows if row[1] not in self._settled]
        for at in range(0, len(new), SETTLED_LOT):
            some = new[at : at + SETTLED_LOT]
            marks = ",".join("?" * len(some))
            sql = f"SELECT identity, config, claim FROM bandits WHERE id IN ({marks})"
            for identity, config, claim in self.connection.all(sql, some):
                self._settled[identity] = (short(config), json.loads(claim))
        return [Line(*self._settled[row[1]], *row) for row in rows if row[1] in self._settled]

    def config(self, bandit: int) -> dict[str, msgspec.Raw]:
        """The whole config of a bandit, to be passed on: megabytes of it are not looked into."""
        rows = self.connection.all("SELECT config FROM bandits WHERE id = ?", (bandit,))
        return _ANY.decode(rows[0][0])

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
        measure: str | None = None,
        people: Mapping[bytes, int] | None = None,
        start: Mapping[str, Any] | None = None,
    ) -> bool:
        """Add a bandit; False if the very same one is there, OptionError if another one is.

        One that moves here has users who are counted already, and a `start`: where its ledger is.
        """
        db, name = self.connection, config["name"]
        counted = sorted((people or {}).items())  # in the order of their table, which is quick
        # Millions of users take their time; who makes a bandit over HTTP waits no longer than ever.
        with db.unhurried() if people else contextlib.nullcontext(), db.write():
            db.exclude(LOCK_BUDGET, 0)
            known = None if start is None else self.name_of(identity)
            if known not in (None, name):
                raise OptionError(
                    f"this bandit is or was here already, as {known!r}: it learns in one place, and "
                    "what it promised counts once"
                )
            there = db.one("SELECT config, status FROM bandits WHERE name = ?", (name,))
            if there is not None and there[1] == DELETED:
                raise OptionError(
                    "a bandit of this name was deleted: its budget stays spent, and names are not "
                    "used again"
                )
            # By meaning: earlier versions wrote the same numbers in another way.
            if there is not None and msgspec.json.decode(there[0]) != msgspec.json.decode(text):
                raise OptionError(
                    "another bandit of this name exists: choose another name, or ask for the same "
                    "settings"
                )
            if there is not None and start is not None and known is None:
                raise OptionError("another bandit of this name exists: choose another name")
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
            db.add("states", bandit=bandit, number=0, state=state, measure=measure)
            for at in range(0, len(counted), PEOPLE_LOT):
                rows = [(bandit, *pair) for pair in counted[at : at + PEOPLE_LOT]]
                db.insert("people", _PEOPLE, rows)
            self.add_release(bandit, privacy=privacy, model=model, **(start or {}))
        return True

    def name_of(self, identity: str) -> str | None:
        """The name that a bandit has or had here."""
        row = self.connection.one("SELECT name FROM bandits WHERE identity = ?", (identity,))
        return None if row is None else str(row[0])

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

    def go_live(self, bandit: int) -> None:
        """From now on it decides itself. The same again changes nothing."""
        with self.connection.write():
            sql = "UPDATE bandits SET live = ? WHERE id = ? AND live IS NULL"
            self.connection.run(sql, (self.connection.now(), bandit))

    def delete(self, bandit: int) -> None:
        """Erase what was recorded. The claim stays in the sum, and the name stays taken."""
        db = self.connection
        with db.write():
            # What was placed or accepted before is committed now, and erased below. Rankers take
            # these locks in the same order.
            db.exclude(LOCK_DECISIONS, bandit)
            db.exclude(LOCK_REWARDS, bandit)
            sql = "UPDATE bandits SET status = ?, reason = 'deleted' WHERE id = ?"
            db.run(sql, (DELETED, bandit))
            db.run(_END_LEASE, (bandit,))
            db.run("DELETE FROM states WHERE bandit = ?", (bandit,))
        while self.erase_deleted(bandit):
            pass
        db.empty_log()  # or, if somebody is reading now, the learner does

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
        return erased

    def erase_person(self, bandit: int, person: bytes, *, lot: int = ERASE_LOT) -> int:
        """Erase a person's decisions and rewards, as far as they came before this; how many
        decisions. Whoever is interrupted may begin again."""
        erased, upto = 0, None
        while True:
            some, upto = self._erase_some_of(bandit, person, upto, lot)
            erased += some
            if some < lot:
                break
        until = time.monotonic() + EMPTY_SECONDS
        while not self.connection.empty_log() and time.monotonic() < until:
            time.sleep(0.05)  # somebody is reading now; the learner goes on trying
        return erased

    def _erase_some_of(
        self, bandit: int, person: bytes, upto: int | None, lot: int
    ) -> tuple[int, int]:
        """One transaction of the above: (how many, the last decision that came before all this)."""
        db, whose = self.connection, "bandit = ? AND person = ?"
        with db.write():
            # What was placed or accepted before is committed now. Rankers take these locks in the
            # same order.
            db.exclude(LOCK_DECISIONS, bandit)
            db.exclude(LOCK_REWARDS, bandit)
            (last, status), learned = (
                db.all(
                    "SELECT s.last_seq, b.status FROM streams s JOIN bandits b ON b.id = s.bandit "
                    "WHERE s.bandit = ?",
                    (bandit,),
                )[0],
                self._learned(bandit),
            )
            upto = last if upto is None else upto
            waiting = f"SELECT 1 FROM decisions WHERE {whose} AND seq > ? AND seq <= ? LIMIT 1"
            if db.one(waiting, (bandit, person, learned, upto)) is not None:
                # A learner may have read them: what it publishes now is refused, and it learns
                # again without them. It keeps its lease, under a new token.
                db.run("UPDATE leases SET token = token + 1 WHERE bandit = ?", (bandit,))
                learned = self._learned(bandit)  # one that was faster has committed
            found = db.all(
                f"SELECT seq FROM decisions WHERE {whose} AND seq <= ? ORDER BY seq LIMIT ?",
                (bandit, person, upto, lot),
            )
            if found:
                these, end = f"{whose} AND seq <= ?", found[-1][0]
                db.run(
                    "DELETE FROM rewards WHERE bandit = ? AND seq IN (SELECT seq FROM decisions "
                    f"WHERE {these})",
                    (bandit, bandit, person, end),
                )
                db.run(
                    "UPDATE decisions SET nonce = 0, arm = 0, arm_id = NULL, context = ?, version "
                    "= 0, key = '', request = NULL, digest = NULL, person = NULL, details = NULL, "
                    "propensity = NULL, agreed = NULL, by_lot = NULL WHERE "
                    f"{these} AND seq > ?",
                    (b"", bandit, person, end, learned),
                )
                db.run(f"DELETE FROM decisions WHERE {these}", (bandit, person, end))
            # Without a count the cap would begin anew, and the claim would not hold. What it was is
            # forgotten all the same: it is as if it had been reached.
            if status in (SPENT, RETIRED):
                db.run(f"DELETE FROM people WHERE {whose}", (bandit, person))
            else:
                sql = f"UPDATE people SET decisions = ? WHERE {whose} AND decisions <> ?"
                db.run(sql, (ERASED_COUNT, bandit, person, ERASED_COUNT))
        return len(found), upto

    def _learned(self, bandit: int) -> int:
        rows = self.connection.all("SELECT learned FROM progress WHERE bandit = ?", (bandit,))
        return int(rows[0][0])

    # ------------------------------------------------------------------ events

    def asked_as(self, bandit: int, requests: list[str]) -> dict[str, tuple[int, int, str | None]]:
        """(seq, nonce, details) of the decisions that were made under these request ids."""
        rows = self.connection.naming(
            "SELECT d.request, d.seq, d.nonce, d.details FROM NAMES CROSS JOIN decisions d WHERE "
            "d.bandit = ? AND d.request = names.value",
            requests,
            (bandit,),
        )
        return {name: (seq, nonce, details) for name, seq, nonce, details in rows}

    def activate(self, bandit: int, seqs: list[int]) -> None:
        """These were shown: they are learned, unless their time is over."""
        db = self.connection
        with db.write():
            db.share(LOCK_REWARDS, bandit)  # as a reward: what is closed stays as it is
            for seq in seqs:
                db.run(
                    "UPDATE decisions SET deferred = NULL WHERE bandit = ? AND seq = ? AND seq > "
                    "(SELECT closed FROM progress WHERE bandit = ?)",
                    (bandit, seq, bandit),
                )

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
        found = []
        # Told to the second: where rewards are learned and erased, a learner takes a little longer.
        for number, position, made_at, charged, scale, privacy in reversed(rows):
            account = json.loads(privacy)
            found.append(
                {
                    "model_version": number,
                    "position": position,
                    "made_at": made_at // 1_000_000,
                    "releases": charged,
                    "noise_scale": scale,
                    "spent": account["spent"],
                    "memory": account.get("memory"),  # a release of before has none
                }
            )
        return found

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
