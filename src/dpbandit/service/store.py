"""What is kept and how it changes: bandits, leases, releases. Every change that must hold together is one transaction.

Decisions and rewards, the two that come in thousands a second, are written by `journal`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dpbandit.errors import CapError, LeaseError, OptionError, StoreError
from dpbandit.service.database import Connection, Row, connect, one
from dpbandit.service.schema import LOCK_BUDGET, LOCK_REWARDS, migrate

# Why a bandit does not learn. It ranks in all of these but 'deleted'.
LEARNING, SPENT, FAILED, RESTORED, RETIRED, DELETED = "learning", "spent", "failed", "restored", "retired", "deleted"

# Rankers need the latest model; a few older ones are kept for those that are just loading one.
MODELS_KEPT = 5


@dataclass(frozen=True)
class Line:
    """One bandit as everybody may see it."""

    id: int
    identity: str
    name: str
    config: dict[str, Any]
    claim: dict[str, Any]
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


@dataclass(frozen=True)
class Batch:
    """Decisions in their order, with their rewards: the learner's alone."""

    seqs: list[int]
    contexts: list[bytes]
    people: list[bytes | None]
    rewards: list[float | None]


@dataclass(frozen=True)
class NewRelease:
    """What one transaction makes public, and what it leaves for the learner to go on from."""

    number: int
    position: int
    fingerprint: str
    charged: int
    privacy: str
    noise_scale: float | None
    model: str
    noisy: bytes | None
    state: bytes
    people: dict[bytes, int]


class Store:
    """One connection's view of the store; not for several threads at a time."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.connection: Connection = connect(url, create=create)
        migrate(self.connection)

    def close(self) -> None:
        self.connection.close()

    def now(self) -> int:
        return self.connection.now()

    # ------------------------------------------------------------------ settings

    def meta(self, name: str) -> str | None:
        found = one(self.connection, "SELECT value FROM meta WHERE name = ?", (name,))
        return None if found is None else str(found[0])

    def set_meta(self, name: str, value: str | None) -> None:
        with self.connection.write():
            self.connection.run("DELETE FROM meta WHERE name = ?", (name,))
            if value is not None:
                self.connection.run("INSERT INTO meta (name, value) VALUES (?, ?)", (name, value))

    def cap(self) -> dict[str, float] | None:
        """The budget that all bandits share: ε at a δ. None if there is no cap."""
        text = self.meta("cap")
        return None if text is None else json.loads(text)

    def set_cap(self, epsilon: float, delta: float) -> None:
        """Set the cap once. It can be lowered later, never raised: those who came first relied on it."""
        if not epsilon > 0 or not 0 < delta < 1:
            raise OptionError("a cap is ε above 0 at a δ strictly between 0 and 1")
        before = self.cap()
        if before is not None and (delta != before["delta"] or epsilon > before["epsilon"]):
            raise CapError(
                f"this store has the cap ε = {before['epsilon']:g} at δ = {before['delta']:g}: it may be lowered at the same "
                "δ, never raised"
            )
        self.set_meta("cap", json.dumps({"epsilon": epsilon, "delta": delta}))

    # ------------------------------------------------------------------ bandits

    def lines(self) -> list[Line]:
        """All bandits, deleted ones too."""
        rows = self.connection.all(
            "SELECT b.id, b.identity, b.name, b.config, b.claim, b.status, b.reason, b.timelines, b.created_at, s.last_seq, "
            "p.closed, p.learned, p.version, l.holder, l.expires_at FROM bandits b JOIN streams s ON s.bandit = b.id "
            "JOIN progress p ON p.bandit = b.id LEFT JOIN leases l ON l.bandit = b.id ORDER BY b.id"
        )
        return [
            Line(*r[:3], json.loads(r[3]), json.loads(r[4]), *r[5:14], lease_until=r[14] or 0)  # type: ignore[call-arg]
            for r in rows
        ]

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
        """Add a bandit; False if the very same one is there. Raises OptionError for another one of that name."""
        from dpbandit.service import budgets  # needs SciPy, which a ranker that starts need not wait for

        db = self.connection
        with db.write():
            db.exclude(LOCK_BUDGET, 0)
            there = one(db, "SELECT config, status FROM bandits WHERE name = ?", (config["name"],))
            if there is not None:
                return not self._same(there, text)
            restored = one(db, "SELECT value FROM meta WHERE name = 'restored'")
            if restored is not None:
                raise CapError(
                    "this store was restored from an old copy: new bandits wait until an operator has decided"
                )
            cap = one(db, "SELECT value FROM meta WHERE name = 'cap'")
            budgets.check_cap(self.claims(), claim, None if cap is None else json.loads(cap[0]))
            now = db.now()
            columns = "identity, name, config, claim, status, created_at, created_by"
            db.run(
                f"INSERT INTO bandits ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (identity, config["name"], text, json.dumps(claim), LEARNING, now, key),
            )
            bandit = db.all("SELECT id FROM bandits WHERE name = ?", (config["name"],))[0][0]
            db.run("INSERT INTO streams (bandit, last_seq) VALUES (?, 0)", (bandit,))
            db.run("INSERT INTO progress (bandit, closed, learned, version) VALUES (?, 0, 0, 0)", (bandit,))
            db.run("INSERT INTO states (bandit, number, state) VALUES (?, 0, ?)", (bandit, state))
            self._insert_release(bandit, 0, now, 0, 0, "", 0, privacy, None, model, None)
        return True

    @staticmethod
    def _same(there: Row, text: str) -> bool:
        if there[1] == DELETED:
            raise OptionError("a bandit of this name was deleted: its budget stays spent, and names are not used again")
        if there[0] != text:
            raise OptionError("another bandit of this name exists: choose another name, or ask for the same settings")
        return True

    def set_status(self, bandit: int, status: str, reason: str) -> None:
        """Stop or restart learning. A deleted or retired bandit stays so."""
        with self.connection.write():
            self.connection.run(
                "UPDATE bandits SET status = ?, reason = ? WHERE id = ? AND status NOT IN ('deleted', 'retired')",
                (status, reason, bandit),
            )

    def delete(self, bandit: int) -> None:
        """Erase what was recorded. The claim stays in the sum of all bandits, and the name stays taken."""
        db = self.connection
        with db.write():
            db.exclude(LOCK_REWARDS, bandit)
            db.run("UPDATE bandits SET status = ?, reason = 'deleted' WHERE id = ?", (DELETED, bandit))
            db.run("UPDATE leases SET token = token + 1, expires_at = 0 WHERE bandit = ?", (bandit,))
            for table in ("decisions", "rewards", "states", "people"):
                db.run(f"DELETE FROM {table} WHERE bandit = ?", (bandit,))
            db.run("UPDATE releases SET model = NULL, noisy = NULL WHERE bandit = ?", (bandit,))

    # ------------------------------------------------------------------ releases

    def _insert_release(self, *values: Any) -> None:
        self.connection.run(
            "INSERT INTO releases (bandit, number, made_at, position, token, fingerprint, charged, privacy, noise_scale, "
            "model, noisy) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )

    def model(self, bandit: int) -> tuple[int, dict[str, Any]] | None:
        """The latest released model and its number."""
        found = one(
            self.connection,
            "SELECT number, model FROM releases WHERE bandit = ? AND model IS NOT NULL ORDER BY number DESC LIMIT 1",
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
            "SELECT number, position, made_at, charged, noise_scale, privacy FROM releases WHERE bandit = ? "
            "ORDER BY number DESC LIMIT ?",
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
        """The fingerprint of the ledger at this release."""
        found = one(
            self.connection, "SELECT fingerprint FROM releases WHERE bandit = ? AND number = ?", (bandit, number)
        )
        return None if found is None else str(found[0])

    def state(self, bandit: int) -> tuple[int, int, bytes]:
        """(number, position, packed bandit) to go on from."""
        rows = self.connection.all(
            "SELECT s.number, p.learned, s.state FROM states s JOIN progress p ON p.bandit = s.bandit WHERE s.bandit = ?",
            (bandit,),
        )
        if not rows:
            raise StoreError("this bandit has no state to go on from")
        return rows[0][0], rows[0][1], bytes(rows[0][2])

    # ------------------------------------------------------------------ leases

    def acquire(self, bandit: int, holder: str, seconds: float) -> int | None:
        """A fencing token, larger than any before, if nobody else has the lease."""
        db = self.connection
        with db.write():
            now = db.now()
            until = now + int(seconds * 1e6)
            db.run(
                "INSERT INTO leases (bandit, holder, token, expires_at) VALUES (?, '', 0, 0) ON CONFLICT (bandit) DO NOTHING",
                (bandit,),
            )
            taken = db.run(
                "UPDATE leases SET holder = ?, token = token + 1, expires_at = ? WHERE bandit = ? AND expires_at < ?",
                (holder, until, bandit, now),
            )
            return int(db.all("SELECT token FROM leases WHERE bandit = ?", (bandit,))[0][0]) if taken else None

    def _fence(self, bandit: int, token: int, seconds: float) -> None:
        """Inside a transaction: go on only if this token is still the newest, and renew its lease."""
        db = self.connection
        until = db.now() + int(seconds * 1e6)
        renewed = db.run("UPDATE leases SET expires_at = ? WHERE bandit = ? AND token = ?", (until, bandit, token))
        learning = one(db, "SELECT status FROM bandits WHERE id = ?", (bandit,))
        if renewed != 1 or learning is None or learning[0] != LEARNING:
            raise LeaseError(
                "this learner no longer has the lease, or the bandit no longer learns: nothing was written"
            )

    def renew(self, bandit: int, token: int, seconds: float) -> None:
        with self.connection.write():
            self._fence(bandit, token, seconds)

    def give_up(self, bandit: int, token: int) -> None:
        """End the lease early, so that the next learner need not wait."""
        with self.connection.write():
            self.connection.run("UPDATE leases SET expires_at = 0 WHERE bandit = ? AND token = ?", (bandit, token))

    # ------------------------------------------------------------------ learning

    def due(self, bandit: int, after: int, *, window: float, limit: int) -> int:
        """The last decision, in order and without a gap, that has reached the age of `window`; `after` if none."""
        rows = self.connection.all(
            "SELECT seq, decided_at FROM decisions WHERE bandit = ? AND seq > ? ORDER BY seq LIMIT ?",
            (bandit, after, limit),
        )
        old = self.connection.now() - int(window * 1e6)
        for seq, decided_at in rows:
            if seq != after + 1:
                raise StoreError(f"decision {after + 1} is missing: the stream has a hole")
            if decided_at >= old:
                break
            after = seq
        return after

    def close_up_to(self, bandit: int, seq: int, token: int, seconds: float) -> None:
        """From here on no reward for these decisions is accepted: whoever reads them now sees all there will be."""
        db = self.connection
        with db.write():
            db.exclude(LOCK_REWARDS, bandit)
            self._fence(bandit, token, seconds)
            db.run("UPDATE progress SET closed = ? WHERE bandit = ? AND closed < ?", (seq, bandit, seq))

    def batch(self, bandit: int, after: int, upto: int) -> Batch:
        """The closed decisions in (after, upto], in order."""
        rows = self.connection.all(
            "SELECT d.seq, d.context, d.person, r.value FROM decisions d LEFT JOIN rewards r ON r.bandit = d.bandit AND "
            "r.seq = d.seq WHERE d.bandit = ? AND d.seq > ? AND d.seq <= ? ORDER BY d.seq",
            (bandit, after, upto),
        )
        if [row[0] for row in rows] != list(range(after + 1, upto + 1)):
            raise StoreError("decisions are missing: the stream has a hole")
        return Batch(
            [row[0] for row in rows],
            [bytes(row[1]) for row in rows],
            [None if row[2] is None else bytes(row[2]) for row in rows],
            [row[3] for row in rows],
        )

    def people(self, bandit: int, who: set[bytes]) -> dict[bytes, int]:
        """How many decisions of these people have entered learning."""
        counts = {}
        for person in who:
            row = one(self.connection, "SELECT decisions FROM people WHERE bandit = ? AND person = ?", (bandit, person))
            counts[person] = 0 if row is None else int(row[0])
        return counts

    def publish(self, bandit: int, new: NewRelease, token: int, seconds: float) -> None:
        """The release, the learner's state, the position and the ledger entry: all of it or nothing."""
        db = self.connection
        with db.write():
            self._fence(bandit, token, seconds)
            moved = db.run(
                "UPDATE progress SET learned = ?, version = ? WHERE bandit = ? AND version = ? AND closed >= ?",
                (new.position, new.number, bandit, new.number - 1, new.position),
            )
            if moved != 1:
                raise LeaseError("another learner has published meanwhile: nothing was written")
            now = db.now()
            self._insert_release(
                bandit,
                new.number,
                now,
                new.position,
                token,
                new.fingerprint,
                new.charged,
                new.privacy,
                new.noise_scale,
                new.model,
                new.noisy,
            )
            db.run("UPDATE states SET number = ?, state = ? WHERE bandit = ?", (new.number, new.state, bandit))
            db.run(
                "UPDATE releases SET model = NULL WHERE bandit = ? AND number <= ? AND model IS NOT NULL",
                (bandit, new.number - MODELS_KEPT),
            )
            for person, count in new.people.items():
                db.run(
                    "INSERT INTO people (bandit, person, decisions) VALUES (?, ?, ?) ON CONFLICT (bandit, person) DO UPDATE "
                    "SET decisions = excluded.decisions",
                    (bandit, person, count),
                )

    def erase(self, bandit: int, *, rewards_after: float, decisions_after: float, limit: int = 5_000) -> int:
        """Erase rewards, then decisions, that were learned (or can no longer be) and are older than this many seconds."""
        db = self.connection
        erased = 0
        row = one(
            db,
            "SELECT p.learned, b.status FROM progress p JOIN bandits b ON b.id = p.bandit WHERE p.bandit = ?",
            (bandit,),
        )
        if row is None:
            return 0
        # A bandit that will never learn again needs none of its rewards; a paused one (restored, failed) may.
        upto = 2**62 if row[1] in (SPENT, RETIRED, DELETED) else row[0]
        for table, time, age in (
            ("rewards", "received_at", rewards_after),
            ("decisions", "decided_at", max(decisions_after, rewards_after)),
        ):
            before = db.now() - int(age * 1e6)
            oldest = f"SELECT seq, {time} FROM {table} WHERE bandit = ? AND seq <= ? ORDER BY seq LIMIT ?"
            first = one(db, oldest, (bandit, upto, 1))
            if first is None or first[1] >= before:
                continue
            last = max(seq for seq, at in db.all(oldest, (bandit, upto, limit)) if at < before)
            with db.write():
                erased += db.run(
                    f"DELETE FROM {table} WHERE bandit = ? AND seq <= ? AND {time} < ?", (bandit, last, before)
                )
        return erased
