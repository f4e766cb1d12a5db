"""The learner's side of the store: leases, rewards, and the transaction that makes a release. No
ranker imports this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from dpbandit.errors import DpbanditError, LeaseError
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
        row = self.connection.one(
            "SELECT s.number, p.learned, s.state FROM states s JOIN progress p ON p.bandit = "
            "s.bandit WHERE s.bandit = ?",
            (bandit,),
        )
        if row is None:
            raise StreamError("this bandit has no state to go on from")
        return row[0], row[1], bytes(row[2])

    # ------------------------------------------------------------------ leases

    def acquire(self, bandit: int, holder: str, seconds: float) -> int | None:
        """A fencing token, larger than any before, if nobody else has the lease. A holder that lost
        its connection, not its lease, need not wait for itself."""
        db = self.connection
        with db.write():
            now = db.now()
            db.run(
                "INSERT INTO leases (bandit, holder, token, expires_at) VALUES (?, '', 0, 0) ON "
                "CONFLICT (bandit) DO NOTHING",
                (bandit,),
            )
            taken = db.run(
                "UPDATE leases SET holder = ?, token = token + 1, expires_at = ? WHERE bandit = ? "
                "AND (expires_at < ? OR holder = ?)",
                (holder, now + int(seconds * 1e6), bandit, now, holder),
            )
            row = db.one("SELECT token FROM leases WHERE bandit = ?", (bandit,)) if taken else None
        return None if row is None else int(row[0])

    def _fence(self, bandit: int, token: int, seconds: float) -> None:
        """In a transaction: go on only if this token is still the newest, and renew its lease."""
        renewed = self._prolong(bandit, token, self._until(seconds))
        status = self.connection.one("SELECT status FROM bandits WHERE id = ?", (bandit,))
        if not renewed or status != (LEARNING,):
            raise LeaseError(
                "this learner no longer has the lease, or the bandit no longer learns: nothing was "
                "written"
            )

    def _until(self, seconds: float) -> int:
        return self.connection.now() + int(seconds * 1e6)

    def _prolong(self, bandit: int, token: int, until: int) -> bool:
        sql = "UPDATE leases SET expires_at = ? WHERE bandit = ? AND token = ?"
        return self.connection.run(sql, (until, bandit, token)) == 1

    def renew(self, leases: Mapping[int, int], seconds: float) -> list[int]:
        """Prolong leases, bandit → token; returns those that are lost. Whether something may be
        written is for the fence."""
        with self.connection.write():
            until, pairs = self._until(seconds), sorted(leases.items())
            return [bandit for bandit, token in pairs if not self._prolong(bandit, token, until)]

    def give_up(self, bandit: int, token: int) -> None:
        """End the lease early, so that the next learner need not wait."""
        with self.connection.write():
            self._prolong(bandit, token, 0)

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
        """What is counted of these people: decisions learned, or what rewards add up to, in steps."""
        sql = "SELECT decisions FROM people WHERE bandit = ? AND person = ?"
        rows = {person: self.connection.one(sql, (bandit, person)) for person in who}
        return {person: 0 if row is None else int(row[0]) for person, row in rows.items()}

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
            row = asdict(new)
            state, people = row.pop("state"), row.pop("people")
            self.add_release(bandit, token=token, **row)
            db.run(
                "UPDATE states SET number = ?, state = ? WHERE bandit = ?",
                (new.number, state, bandit),
            )
            self._thin(bandit, new.number)
            for person, count in people.items():
                db.run(
                    "INSERT INTO people (bandit, person, decisions) VALUES (?, ?, ?) ON CONFLICT "
                    "(bandit, person) DO UPDATE SET decisions = excluded.decisions",
                    (bandit, person, count),
                )

    def _thin(self, bandit: int, newest: int) -> None:
        """Keep what a release was; drop what only the newest need. No table is searched."""
        db = self.connection
        which = "WHERE bandit = ? AND number = ?"
        last = db.one(f"SELECT privacy FROM releases {which}", (bandit, newest - 1))
        if last is not None:
            slim = json.dumps({"spent": json.loads(last[0])["spent"]})
            db.run(f"UPDATE releases SET privacy = ? {which}", (slim, bandit, newest - 1))
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
            db.run(f"DELETE FROM releases {which}", (bandit, old))

    def erase(
        self, bandit: int, *, rewards_after: float, decisions_after: float, limit: int | None = None
    ) -> int:
        """Erase rewards, then decisions, that need not be learned and are older than so long."""
        db = self.connection
        limit = limit or ERASE_LOT
        erased = 0
        row = db.one(
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
        ended = row[1] in (SPENT, RETIRED)
        upto = 2**62 if ended else row[0]
        if ended:  # nor what is counted of people
            some = "SELECT person FROM people WHERE bandit = ? LIMIT ?"
            if db.one(some, (bandit, 1)) is not None:
                with db.write():
                    sql = f"DELETE FROM people WHERE bandit = ? AND person IN ({some})"
                    erased += db.run(sql, (bandit, bandit, limit))
        for table, time, age in (
            ("rewards", "received_at", rewards_after),
            ("decisions", "decided_at", max(decisions_after, rewards_after)),
        ):
            before = db.now() - int(age * 1e6)
            some = f"SELECT seq, {time} FROM {table} WHERE bandit = ? AND seq <= ?"
            oldest = f"{some} ORDER BY seq LIMIT ?"
            first = db.one(oldest, (bandit, upto, 1))
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
        db = self.connection
        before = db.now() // 1_000_000 - int(age)
        if db.one("SELECT 1 FROM access_log WHERE bucket < ? LIMIT 1", (before,)) is not None:
            with db.write():
                db.run("DELETE FROM access_log WHERE bucket < ?", (before,))
