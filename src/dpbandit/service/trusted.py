"""The learner's side of the store: leases, rewards, and the transaction that makes a release. No
ranker imports this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dpbandit.errors import DpbanditError, LeaseError
from dpbandit.service.database import one
from dpbandit.service.schema import LOCK_REWARDS
from dpbandit.service.store import (
    DELETED,
    ERASE_LOT,
    LEARNING,
    MODELS_KEPT,
    RETIRED,
    SPENT,
    UNCHARGED_KEPT,
    Store,
)

_RENEW = "UPDATE leases SET expires_at = ? WHERE bandit = ? AND token = ?"


class StreamError(DpbanditError):
    """One bandit's records do not fit together. The others can go on."""


class Learnable(NamedTuple):
    """A decision whose time is over, with its reward: the learner's alone."""

    seq: int
    context: bytes
    person: bytes | None
    reward: float | None


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


class TrustedStore(Store):
    """A store that also reads rewards and the learner's state."""

    def state(self, bandit: int) -> tuple[int, int, bytes]:
        """(number, position, packed bandit) to go on from."""
        rows = self.connection.all(
            "SELECT s.number, p.learned, s.state FROM states s JOIN progress p ON p.bandit = "
            "s.bandit WHERE s.bandit = ?",
            (bandit,),
        )
        if not rows:
            raise StreamError("this bandit has no state to go on from")
        return rows[0][0], rows[0][1], bytes(rows[0][2])

    # ------------------------------------------------------------------ leases

    def acquire(self, bandit: int, holder: str, seconds: float) -> int | None:
        """A fencing token, larger than any before, if nobody else has the lease. A holder that lost
        its connection, not its lease, need not wait for itself."""
        db = self.connection
        with db.write():
            now = db.now()
            until = now + int(seconds * 1e6)
            db.run(
                "INSERT INTO leases (bandit, holder, token, expires_at) VALUES (?, '', 0, 0) ON "
                "CONFLICT (bandit) DO NOTHING",
                (bandit,),
            )
            taken = db.run(
                "UPDATE leases SET holder = ?, token = token + 1, expires_at = ? WHERE bandit = ? "
                "AND (expires_at < ? OR holder = ?)",
                (holder, until, bandit, now, holder),
            )
            if not taken:
                return None
            return int(db.all("SELECT token FROM leases WHERE bandit = ?", (bandit,))[0][0])

    def _fence(self, bandit: int, token: int, seconds: float) -> None:
        """In a transaction: go on only if this token is still the newest, and renew its lease."""
        db = self.connection
        until = db.now() + int(seconds * 1e6)
        renewed = db.run(_RENEW, (until, bandit, token))
        learning = one(db, "SELECT status FROM bandits WHERE id = ?", (bandit,))
        if renewed != 1 or learning is None or learning[0] != LEARNING:
            raise LeaseError(
                "this learner no longer has the lease, or the bandit no longer learns: nothing was "
                "written"
            )

    def renew(self, leases: Mapping[int, int], seconds: float) -> list[int]:
        """Prolong leases, bandit → token; returns those that are lost. Whether something may be
        written is for the fence."""
        db = self.connection
        with db.write():
            until = db.now() + int(seconds * 1e6)
            pairs = sorted(leases.items())
            return [
                bandit for bandit, token in pairs if db.run(_RENEW, (until, bandit, token)) != 1
            ]

    def give_up(self, bandit: int, token: int) -> None:
        """End the lease early, so that the next learner need not wait."""
        with self.connection.write():
            self.connection.run(_RENEW, (0, bandit, token))

    def end(self, bandit: int, token: int, status: str, reason: str) -> None:
        """Stop learning. Whoever has the lease decides: nobody else knows the store as it is."""
        with self.connection.write():
            self._fence(bandit, token, 0.0)
            self.connection.run(
                "UPDATE bandits SET status = ?, reason = ? WHERE id = ?", (status, reason, bandit)
            )

    # ------------------------------------------------------------------ learning

    def due(self, bandit: int, after: int, *, window: float, limit: int) -> int:
        """The last decision, in order and without a gap, older than `window`; `after` if none."""
        rows = self.connection.all(
            "SELECT seq, decided_at FROM decisions WHERE bandit = ? AND seq > ? ORDER BY seq LIMIT "
            "?",
            (bandit, after, limit),
        )
        old = self.connection.now() - int(window * 1e6)
        for seq, decided_at in rows:
            if seq != after + 1:
                raise StreamError(f"decision {after + 1} is missing: the stream has a hole")
            if decided_at >= old:
                break
            after = seq
        return after

    def close_up_to(self, bandit: int, seq: int, token: int, seconds: float) -> None:
        """From here on no reward for these is accepted: whoever reads them now sees them all."""
        db = self.connection
        with db.write():
            db.exclude(LOCK_REWARDS, bandit)
            self._fence(bandit, token, seconds)
            db.run(
                "UPDATE progress SET closed = ? WHERE bandit = ? AND closed < ?", (seq, bandit, seq)
            )

    def batch(self, bandit: int, after: int, upto: int) -> list[Learnable]:
        """The closed decisions in (after, upto], in order."""
        rows = self.connection.all(
            "SELECT d.seq, d.context, d.person, r.value FROM decisions d LEFT JOIN rewards r ON "
            "r.bandit = d.bandit AND r.seq = d.seq WHERE d.bandit = ? AND d.seq > ? AND d.seq <= ? "
            "ORDER BY d.seq",
            (bandit, after, upto),
        )
        if [row[0] for row in rows] != list(range(after + 1, upto + 1)):
            raise StreamError("decisions are missing: the stream has a hole")
        return [
            Learnable(seq, bytes(context), None if person is None else bytes(person), reward)
            for seq, context, person, reward in rows
        ]

    def people(self, bandit: int, who: set[bytes]) -> dict[bytes, int]:
        """How many decisions of these people have entered learning."""
        counts = {}
        for person in who:
            row = one(
                self.connection,
                "SELECT decisions FROM people WHERE bandit = ? AND person = ?",
                (bandit, person),
            )
            counts[person] = 0 if row is None else int(row[0])
        return counts

    def publish(self, bandit: int, new: NewRelease, token: int, seconds: float) -> None:
        """Release, state, position and ledger entry: all of it or nothing."""
        db = self.connection
        with db.write():
            self._fence(bandit, token, seconds)
            moved = db.run(
                "UPDATE progress SET learned = ?, version = ? WHERE bandit = ? AND version = ? AND "
                "closed >= ?",
                (new.position, new.number, bandit, new.number - 1, new.position),
            )
            if moved != 1:
                raise LeaseError("another learner has published meanwhile: nothing was written")
            account = (new.fingerprint, new.charged, new.privacy, new.noise_scale)
            place = (bandit, new.number, db.now(), new.position, token)
            self._insert_release(*place, *account, new.model, new.noisy)
            db.run(
                "UPDATE states SET number = ?, state = ? WHERE bandit = ?",
                (new.number, new.state, bandit),
            )
            self._thin(bandit, new.number)
            for person, count in new.people.items():
                db.run(
                    "INSERT INTO people (bandit, person, decisions) VALUES (?, ?, ?) ON CONFLICT "
                    "(bandit, person) DO UPDATE SET decisions = excluded.decisions",
                    (bandit, person, count),
                )

    def _thin(self, bandit: int, newest: int) -> None:
        """Keep what a release was; drop what only the newest need. No table is searched."""
        db = self.connection
        last = one(
            db, "SELECT privacy FROM releases WHERE bandit = ? AND number = ?", (bandit, newest - 1)
        )
        if last is not None:
            slim = json.dumps({"spent": json.loads(last[0])["spent"]})
            db.run(
                "UPDATE releases SET privacy = ? WHERE bandit = ? AND number = ?",
                (slim, bandit, newest - 1),
            )
        db.run(
            "UPDATE releases SET model = NULL WHERE bandit = ? AND number BETWEEN ? AND ?",
            (bandit, newest - 2 * MODELS_KEPT, newest - MODELS_KEPT),
        )
        old = newest - UNCHARGED_KEPT
        pair = db.all(
            "SELECT number, charged FROM releases WHERE bandit = ? AND number <= ? ORDER BY number "
            "DESC LIMIT 2",
            (bandit, old),
        )
        if len(pair) == 2 and pair[0][0] == old and pair[0][1] == pair[1][1]:
            db.run("DELETE FROM releases WHERE bandit = ? AND number = ?", (bandit, old))

    def erase(
        self, bandit: int, *, rewards_after: float, decisions_after: float, limit: int | None = None
    ) -> int:
        """Erase rewards, then decisions, that need not be learned and are older than so long."""
        db = self.connection
        limit = limit or ERASE_LOT
        erased = 0
        row = one(
            db,
            "SELECT p.learned, b.status FROM progress p JOIN bandits b ON b.id = p.bandit WHERE "
            "p.bandit = ?",
            (bandit,),
        )
        if row is None:
            return 0
        if row[1] == DELETED:  # whoever deleted it ended before all was erased
            return self.erase_deleted(bandit, lot=limit)
        # A bandit that will never learn again needs none of its rewards; a paused one (restored,
        # failed) may.
        upto = 2**62 if row[1] in (SPENT, RETIRED) else row[0]
        for table, time, age in (
            ("rewards", "received_at", rewards_after),
            ("decisions", "decided_at", max(decisions_after, rewards_after)),
        ):
            before = db.now() - int(age * 1e6)
            some = f"SELECT seq, {time} FROM {table} WHERE bandit = ? AND seq <= ?"
            oldest = f"{some} ORDER BY seq LIMIT ?"
            first = one(db, oldest, (bandit, upto, 1))
            if first is None or first[1] >= before:
                continue
            last = max(seq for seq, at in db.all(oldest, (bandit, upto, limit)) if at < before)
            with db.write():
                erased += db.run(
                    f"DELETE FROM {table} WHERE bandit = ? AND seq <= ? AND {time} < ?",
                    (bandit, last, before),
                )
        db.overwrite_erased(erased, more=erased >= limit)
        return erased

    def erase_access_log(self, age: float) -> None:
        """Forget who asked what, this many seconds ago."""
        before = self.connection.now() // 1_000_000 - int(age)
        if (
            one(self.connection, "SELECT 1 FROM access_log WHERE bucket < ? LIMIT 1", (before,))
            is not None
        ):
            with self.connection.write():
                self.connection.run("DELETE FROM access_log WHERE bucket < ?", (before,))
