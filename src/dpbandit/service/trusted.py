"""The learner's side of the store: leases, rewards, and the transaction that makes a release. No
ranker imports this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from dpbandit.errors import DpbanditError, LeaseError
from dpbandit.service.schema import ERASED_COUNT, LOCK_REWARDS
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
    """A decision whose time is over, with its reward: the learner's alone. Without a context there
    is nothing to learn: it was erased, or nobody said that it was shown."""

    seq: int
    context: bytes
    person: bytes | None
    reward: float | None
    agreed: int | None = None  # weights of the round: in the shadow,
    by_lot: int | None = None  # and for a holdout


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
    measure: str | None = None


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
            raise StreamError("this bandit has no state to continue from")
        return row[0], row[1], bytes(row[2])

    def measure(self, bandit: int) -> str | None:
        """The stretch under way of a shadow or a holdout, and what it told."""
        row = self.connection.one("SELECT measure FROM states WHERE bandit = ?", (bandit,))
        return None if row is None else row[0]

    # ------------------------------------------------------------------ leases

    def acquire(
        self, bandit: int, holder: str, seconds: float, *, dead: int | None = None
    ) -> int | None:
        """The same for one bandit; None if another has its lease."""
        return self.acquire_all({bandit: dead}, holder, seconds).get(bandit)

    def acquire_all(
        self, wanted: Mapping[int, int | None], holder: str, seconds: float
    ) -> dict[int, int]:
        """Fencing tokens, larger than any before, of those bandits whose lease nobody else has. A
        holder that lost its connection, not its lease, need not wait for itself. A bandit may come
        with the end of a lease that counts for nothing."""
        db, tokens = self.connection, {}
        with db.write():
            now = db.now()
            for bandit, dead in sorted(wanted.items()):
                db.run(
                    "INSERT INTO leases (bandit, holder, token, expires_at) VALUES (?, '', 0, 0) "
                    "ON CONFLICT (bandit) DO NOTHING",
                    (bandit,),
                )
                row = db.one(
                    "UPDATE leases SET holder = ?, token = token + 1, expires_at = ? WHERE bandit "
                    "= ? AND (expires_at < ? OR holder = ? OR expires_at = ?) RETURNING token",
                    (holder, now + int(seconds * 1e6), bandit, now, holder, dead),
                )
                if row is not None:
                    tokens[bandit] = int(row[0])
        return tokens

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
        return self._set_end(leases, lambda: self._until(seconds))

    def give_up(self, leases: Mapping[int, int]) -> None:
        """End leases early, so that the next learner need not wait."""
        self._set_end(leases, lambda: 0)

    def _set_end(self, leases: Mapping[int, int], until: Callable[[], int]) -> list[int]:
        """One statement: thousands of leases must not keep decisions waiting."""
        sql = (
            "UPDATE leases SET expires_at = ? FROM PAIRS WHERE leases.bandit = pairs.a AND "
            "leases.token = pairs.b RETURNING bandit"
        )
        with self.connection.write():
            rows = self.connection.pairing(sql, (until(),), sorted(leases.items()))
        return sorted(set(leases) - {bandit for (bandit,) in rows})

    def end(self, bandit: int, token: int, status: str, reason: str) -> None:
        """Stop learning. Whoever has the lease decides: nobody else knows the store as it is."""
        with self.connection.write():
            self._fence(bandit, token, 0.0)
            self.connection.run(
                "UPDATE bandits SET status = ?, reason = ? WHERE id = ?", (status, reason, bandit)
            )

    # ------------------------------------------------------------------ learning

    def due_in(self, bandit: int, after: int, *, window: float) -> float:
        """Seconds until the next decision is older than `window`; negative if it is."""
        sql = "SELECT decided_at FROM decisions WHERE bandit = ? AND seq > ? ORDER BY seq LIMIT 1"
        row, now = self.connection.one(sql, (bandit, after)), self.connection.now()
        # One from the future is dated anew when it is looked at.
        return 0.0 if row is None or row[0] > now else (row[0] - now) / 1e6 + window

    def due(self, bandit: int, after: int, *, window: float, limit: int) -> int:
        """The last decision, in order and without a gap, older than `window`; `after` if none."""
        rows = self.connection.all(
            "SELECT seq, decided_at FROM decisions WHERE bandit = ? AND seq > ? ORDER BY seq LIMIT "
            "?",
            (bandit, after, limit),
        )
        now = self.connection.now()
        old = now - int(window * 1e6)
        for seq, decided_at in self._redate("decisions", "decided_at", bandit, rows, now):
            if seq != after + 1:
                raise StreamError(f"decision {after + 1} is missing: the stream has a hole")
            if decided_at >= old:
                break
            after = seq
        return after

    def _redate(
        self, table: str, time: str, bandit: int, rows: list[tuple[Any, ...]], now: int
    ) -> list[tuple[int, int]]:
        """Rows (seq, when) in order, of which none is from the future. A clock that ran ahead and
        was put right leaves such: what came after one came no earlier, so it is dated like that."""
        dated, latest = [], now
        for seq, at in reversed(rows):
            dated.append((seq, min(at, latest) if at > now else at))
            latest = min(latest, dated[-1][1])
        dated.reverse()
        wrong = [(new, bandit, new[0]) for new, row in zip(dated, rows, strict=True) if new != row]
        if wrong:
            with self.connection.write():
                for (_, at), which, seq in wrong:
                    sql = f"UPDATE {table} SET {time} = ? WHERE bandit = ? AND seq = ?"
                    self.connection.run(sql, (at, which, seq))
        return dated

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
            "SELECT d.seq, d.context, d.person, r.value, d.deferred, d.agreed, d.by_lot FROM decisions d LEFT JOIN "
            "rewards r ON r.bandit = d.bandit AND r.seq = d.seq WHERE d.bandit = ? AND d.seq > ? AND d.seq <= ? "
            "ORDER BY d.seq",
            (bandit, after, upto),
        )
        if [row[0] for row in rows] != list(range(after + 1, upto + 1)):
            raise StreamError("decisions are missing: the stream has a hole")
        return [
            Learnable(
                seq,
                b"" if deferred else bytes(context),
                None if person is None else bytes(person),
                reward,
                *weights,
            )
            for seq, context, person, reward, deferred, *weights in rows
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
            state, people, measure = row.pop("state"), row.pop("people"), row.pop("measure")
            self.add_release(bandit, token=token, **row)
            db.run(
                "UPDATE states SET number = ?, state = ?, measure = ? WHERE bandit = ?",
                (new.number, state, measure, bandit),
            )
            self._thin(bandit, new.number)
            for person, count in people.items():
                db.run(
                    "INSERT INTO people (bandit, person, decisions) VALUES (?, ?, ?) ON CONFLICT "
                    "(bandit, person) DO UPDATE SET decisions = excluded.decisions WHERE "
                    "people.decisions <> ?",  # an erasure came meanwhile: its mark stays
                    (bandit, person, count, ERASED_COUNT),
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
    ) -> int | None:
        """Erase rewards, then decisions, that need not be learned and are older than so long; how
        many. None if there is nothing left to erase, ever, but what is yet to come."""
        db = self.connection
        limit = limit or ERASE_LOT
        erased = 0
        row = db.one(
            "SELECT p.learned, b.status FROM progress p JOIN bandits b ON b.id = p.bandit WHERE "
            "p.bandit = ?",
            (bandit,),
        )
        if row is None:
            return None
        if row[1] == DELETED:  # whoever deleted it ended before all was erased
            return self.erase_deleted(bandit, lot=limit) or None
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
        left = erased > 0
        for table, time, age in (
            ("rewards", "received_at", rewards_after),
            ("decisions", "decided_at", max(decisions_after, rewards_after)),
        ):
            now = db.now()
            before = now - int(age * 1e6)
            some = f"SELECT seq, {time} FROM {table} WHERE bandit = ? AND seq <= ?"
            oldest = f"{some} ORDER BY seq LIMIT ?"
            first = db.one(oldest, (bandit, upto, 1))
            left = left or first is not None
            if first is None or now >= first[1] >= before:
                continue
            rows = self._redate(table, time, bandit, db.all(oldest, (bandit, upto, limit)), now)
            last = max((seq for seq, at in rows if at < before), default=0)
            with db.write():
                erased += db.run(
                    f"DELETE FROM {table} WHERE bandit = ? AND seq <= ? AND {time} < ?",
                    (bandit, last, before),
                )
        return erased if left else None

    def erase_access_log(self, age: float) -> None:
        """Forget who asked what, this many seconds ago."""
        db = self.connection
        before = db.now() // 1_000_000 - int(age)
        if db.one("SELECT 1 FROM access_log WHERE bucket < ? LIMIT 1", (before,)) is not None:
            with db.write():
                db.run("DELETE FROM access_log WHERE bucket < ?", (before,))
