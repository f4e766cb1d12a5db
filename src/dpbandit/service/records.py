"""What one transaction of the journal writes: decisions get their places in the stream, rewards are
judged.

Places are given without gaps, and one that was asked for before, under the same request id, keeps
the place it has. Whether a reward is in time is decided here, once, by the store's clock and under
the same lock with which the learner closes a stretch of the stream.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dpbandit.service.database import Connection
from dpbandit.service.schema import LOCK_DECISIONS, LOCK_REWARDS
from dpbandit.service.store import DELETED, RETIRED, SPENT

# Columns with their types in PostgreSQL.
_DECISION = {"bandit": "int", "seq": "bigint", "nonce": "bigint", "decided_at": "bigint"}
_DECISION |= {"arm": "int", "arm_id": "text", "context": "bytea", "person": "bytea"}
_DECISION |= {"version": "bigint", "key": "text"}
# Only batches that hold a request id pay for one.
_REQUEST = _DECISION | {"request": "text", "digest": "bytea", "details": "text"}
_REQUEST |= {"deferred": "int", "propensity": "float8", "agreed": "int", "by_lot": "int"}
_MORE = len(_REQUEST) - len(_DECISION)
_REWARD = {"bandit": "int", "seq": "bigint", "value": "float8", "received_at": "bigint"}
_REWARD |= {"key": "text"}

# (bandit, arm, arm_id, context, person, model version, key)
Decision = tuple[int, int, str | None, bytes, bytes | None, int, str]
# (seq, nonce, value)
Report = tuple[int, int, float]

ACCEPTED, DUPLICATE, LATE = "accepted", "duplicate", "late"
CONFLICT, UNKNOWN = "conflict", "unknown"


def decision_id(seq: int, nonce: int) -> str:
    """What a caller quotes with the reward. The nonce tells decisions of a restored store from
    those that were lost."""
    return f"{seq:x}-{nonce:016x}"


def parse_decision_id(text: str) -> tuple[int, int] | None:
    """(seq, nonce), or None if it cannot be one of ours."""
    head, dash, tail = text.partition("-")
    if not dash or len(tail) != 16 or not 0 < len(head) <= 15 or not (head + tail).isascii():
        return None
    try:
        seq, nonce = int(head, 16), int(tail, 16)
    except ValueError:
        return None
    return (seq, nonce) if seq > 0 and nonce < 2**63 and decision_id(seq, nonce) == text else None


class Asked(NamedTuple):
    """A caller's own name for a decision, and what else is kept of it. Only batches that hold one
    pay for it."""

    request: str | None
    digest: bytes | None  # of all that was asked
    details: str | None = None  # what else is answered, to be answered again
    deferred: int | None = None  # 1: learned only if somebody says in time that it was shown
    propensity: float | None = None  # with which the arm was chosen
    agreed: int | None = None  # how it counts for a shadow, if it is a round of one,
    by_lot: int | None = None  # and for a holdout
    arms: int = 1  # of its request, one behind the other: all of them are made, or none; not kept


@dataclass(frozen=True)
class Earlier:
    """A decision that was made before under the same request id; `same` if the same was asked."""

    same: bool
    seq: int
    nonce: int
    arm: int
    arm_id: str | None
    version: int
    details: str | None = None


# A new decision's (seq, nonce), an earlier decision, or None: the bandit is gone.
Placed = tuple[int, int] | Earlier | None


# Bytes of a user who is known by what a log keeps of a name; others have one less.
BY_LOG = 17


def person_of_log(hashed: int, key: bytes) -> bytes:
    """A user as the store keeps them, from what a log keeps of their name. A byte longer than those
    known by their whole name, so that nobody takes one for the other."""
    name = hashed.to_bytes(8, "little")
    return b"\1" + hashlib.blake2b(name, key=key, digest_size=BY_LOG - 1, person=b"log").digest()


def place(db: Connection, entries: Sequence[tuple[Decision, Any, Asked | None]]) -> list[Placed]:
    """Give each decision its place and write it down."""
    counts = Counter(decision[0] for decision, _, _ in entries)
    requests: dict[int, Counter[str]] = {}  # bandit → how often each request id is among these
    for decision, _, asked in entries:
        if asked is not None and asked.request is not None:
            requests.setdefault(decision[0], Counter())[asked.request] += 1
    more = any(asked is not None for _, _, asked in entries)
    free: dict[int, int] = {}
    last: dict[int, int] = {}
    answered: dict[tuple[int, str], tuple[bytes | None, Earlier]] = {}
    # In one order everywhere, so that no two rankers wait for each other.
    for bandit in sorted(counts):
        # Whoever deletes the bandit comes before, and is seen, or after the commit. The row stays
        # locked until then too: another ranker's decisions come after these.
        db.share(LOCK_DECISIONS, bandit)
        row = db.one(
            "UPDATE streams SET last_seq = last_seq + ? WHERE bandit = ? AND EXISTS (SELECT 1 FROM "
            "bandits WHERE id = ? AND status <> ?) RETURNING last_seq",
            (counts[bandit], bandit, bandit, DELETED),
        )
        if row is None:
            continue
        last[bandit] = int(row[0])
        free[bandit] = last[bandit] - counts[bandit]
        if bandit in requests:
            answered |= _asked_before(db, bandit, requests[bandit])
    now = db.now()
    nonces = struct.unpack(f"<{len(entries)}Q", os.urandom(8 * len(entries)))
    rows: list[tuple[Any, ...]] = []
    places: list[Placed] = []
    # Where the request ends that is looked at; and what it contradicts, if it does.
    until = 0
    refused: Earlier | None = None
    for at, ((decision, _, asked), random) in enumerate(zip(entries, nonces, strict=True)):
        bandit, arm, arm_id, context, person, version, key = decision
        if bandit not in free:
            places.append(None)
            continue
        named = None if asked is None or asked.request is None else (bandit, asked.request)
        if asked is not None and named is not None:
            if at >= until:
                until = at + asked.arms
                refused = _contradicted(entries[at:until], answered)
            if refused is not None or named in answered:
                places.append(refused or answered[named][1])
                continue
        free[bandit] += 1
        seq, nonce = free[bandit], random >> 1
        row = (bandit, seq, nonce, now, arm, arm_id, context, person, version, key)
        if asked is not None and named is not None:
            earlier = Earlier(True, seq, nonce, arm, arm_id, version, asked.details)
            answered[named] = (asked.digest, earlier)
        rows.append((*row, *(asked or (None,) * _MORE)[:_MORE]) if more else row)
        places.append((seq, nonce))
    for bandit in free:
        if free[bandit] < last[bandit]:  # seldom: what was not needed is nobody's, and never seen
            db.run("UPDATE streams SET last_seq = ? WHERE bandit = ?", (free[bandit], bandit))
    db.insert("decisions", _REQUEST if more else _DECISION, rows)
    return places


def _contradicted(
    request: Sequence[tuple[Decision, Any, Asked | None]],
    answered: dict[tuple[int, str], tuple[bytes | None, Earlier]],
) -> Earlier | None:
    """An earlier decision that keeps all arms of a request from being made: something else was asked
    under its id, or a part of what was made is erased already."""
    before: list[Earlier] = []
    same = 0
    for decision, _, asked in request:
        found = answered.get((decision[0], (asked and asked.request) or ""))
        if asked is not None and found is not None:
            digest, earlier = found
            before.append(earlier)
            same += digest == asked.digest
    return replace(before[0], same=False) if before and same < len(request) else None


def _asked_before(
    db: Connection, bandit: int, requests: Counter[str]
) -> dict[tuple[int, str], tuple[bytes | None, Earlier]]:
    """What these requests have led to. While the stream is locked nobody can add another."""
    # CROSS JOIN: SQLite takes the names first and looks each up; left to itself it reads the whole
    # stream.
    found = db.naming(
        "SELECT d.request, d.digest, d.seq, d.nonce, d.arm, d.arm_id, d.version, d.details FROM "
        "NAMES CROSS JOIN decisions d WHERE d.bandit = ? AND d.request = names.value",
        list(requests),
        (bandit,),
    )
    return {(bandit, name): (bytes(digest), Earlier(True, *rest)) for name, digest, *rest in found}


def judge(
    db: Connection, entries: Sequence[tuple[int, float, str, list[Report], Any]]
) -> list[list[str]]:
    """A status for every reward reported, and those accepted written down."""
    wanted: dict[int, set[int]] = {}
    for bandit, _window, _key, reports, _future in entries:
        wanted.setdefault(bandit, set()).update(seq for seq, _, _ in reports)
    found = {bandit: _Decisions(db, bandit, sorted(wanted[bandit])) for bandit in sorted(wanted)}
    now = db.now()
    answers = [
        [found[bandit].judge(seq, nonce, value, now, window, key) for seq, nonce, value in reports]
        for bandit, window, key, reports, _future in entries
    ]
    rows = [row for one_bandit in found.values() for row in one_bandit.new]
    db.insert("rewards", _REWARD, rows)
    return answers


class _Decisions:
    """What the store knows about some decisions of one bandit, while it is locked."""

    def __init__(self, db: Connection, bandit: int, seqs: list[int]) -> None:
        db.share(LOCK_REWARDS, bandit)
        self.bandit = bandit
        self.new: list[tuple[Any, ...]] = []
        self.values: dict[int, float] = {}
        state = db.one(
            "SELECT p.closed, p.learned, s.last_seq, b.status FROM progress p JOIN streams s ON "
            "s.bandit = p.bandit JOIN bandits b ON b.id = p.bandit WHERE p.bandit = ?",
            (bandit,),
        )
        self.closed, self.learned, self.last, self.status = state or (0, 0, 0, DELETED)
        found = db.matching(
            "SELECT d.seq, d.nonce, d.decided_at, length(d.context) = 0, CASE WHEN r.seq IS NULL "
            "THEN 0 ELSE 1 END FROM "
            "decisions d LEFT JOIN rewards r ON r.bandit = d.bandit AND r.seq = d.seq WHERE "
            "d.bandit = ? AND d.seq IN NUMBERS",
            (bandit,),
            seqs,
        )
        self.decisions = {seq: (nonce, at, gone) for seq, nonce, at, gone, _ in found}
        for seq, _, _, _, rewarded in found:
            if rewarded:  # seldom: a retry
                sql = "SELECT value FROM rewards WHERE bandit = ? AND seq = ?"
                if (row := db.one(sql, (bandit, seq))) is not None:  # not erased meanwhile
                    self.values[seq] = float(row[0])

    def judge(self, seq: int, nonce: int, value: float, now: int, window: float, key: str) -> str:
        found = self.decisions.get(seq)
        if found is None:
            # Its decision was learned and erased long ago.
            erased = seq <= min(self.learned, self.last) and self.status != DELETED
            return LATE if erased else UNKNOWN
        nonce_then, decided_at, erased_on_request = found
        if erased_on_request:
            return LATE
        if nonce_then != nonce:
            return UNKNOWN
        before = self.values.get(seq)
        if before is not None:
            return DUPLICATE if before == value else CONFLICT
        # One that is paused (failed, restored) may go on: what is reported meanwhile is learned
        # then.
        ended = self.status in (SPENT, RETIRED, DELETED)
        if ended or seq <= self.closed or now - decided_at > window * 1e6:
            return LATE
        self.values[seq] = value
        self.new.append((self.bandit, seq, value, now, key))
        return ACCEPTED
