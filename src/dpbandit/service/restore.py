"""Old copies of a store: how a witness detects them, and what an operator decides then, or when the
witness is lost.

Each time that learning continues from an old copy, a new timeline begins. The store records these
forks and what each gave up, so that witnesses on other machines understand them. A witness
remembers the number of timelines, because the next old copy will not.
"""

from __future__ import annotations

import json
from typing import Any

from dpbandit.errors import OptionError
from dpbandit.service import budgets
from dpbandit.service.schema import LOCK_BUDGET
from dpbandit.service.store import DELETED, FAILED, LEARNING, RESTORED, RETIRED, Line, Store
from dpbandit.service.witness import Mark, Seen, Witness

# ---------------------------------------------------------------------- what the witness says


def mark_of(store: Store, line: Line) -> Mark:
    """How far the store has come with this bandit."""
    return line.timelines, line.version, store.release_seal(line.id, line.version) or ""


def contradiction(store: Store, line: Line, seen: Seen) -> str:
    """Why this store is not the newest copy; empty if it may be. `line` was read after `seen`."""
    if seen.timelines > line.timelines:
        return (
            f"the store is an old copy, from before learning was resumed: {seen.timelines} "
            f"timelines were seen, it knows of {line.timelines}"
        )
    same = store.release_seal(line.id, seen.number) == seen.fingerprint
    if same or (seen.timelines < line.timelines and list(seen.mark) in _given_up(store, line)):
        return ""
    if seen.number > line.version:
        return f"the store is an old copy: {seen.number} releases were seen, it has {line.version}"
    return "the store has another history than the one seen: two copies have been learning"


def _given_up(store: Store, line: Line) -> list[list[Any]]:
    """The marks of timelines that an operator gave up and paid for."""
    return [mark for fork in forks(store, line) for mark in fork["given_up"]]


def forks(store: Store, line: Line) -> list[dict[str, Any]]:
    """The marks at which later timelines of this bandit began, each with those seen before it."""
    found: list[dict[str, Any]] = json.loads(store.meta(f"forks {line.identity}") or "[]")
    return found


def find_lost(store: Store, witness: Witness) -> dict[str, Seen | None]:
    """Bandits, by identity, that were seen and are not in the store: it is an older copy."""
    seen = witness.identities()  # first: whatever is in the witness by now was in the store before
    there = {line.identity for line in store.lines()}
    return {identity: witness.if_readable(identity) for identity in seen if identity not in there}


def report_lost(store: Store, lost: dict[str, Seen | None]) -> list[str]:
    """Write down that the store lacks these: nothing is begun until an operator decides."""
    if not lost:
        return []
    db = store.connection
    with db.write():
        db.exclude(LOCK_BUDGET, 0)
        reported: dict[str, str] = json.loads(store.meta("lost") or "{}")
        named = {identity: _name(identity, seen) for identity, seen in lost.items()}
        new = [name for identity, name in named.items() if identity not in reported]
        if new:
            reported = named | reported
            names = ", ".join(sorted(reported.values()))
            store.put_meta("lost", json.dumps(reported))
            store.put_meta("restored", f"an old copy: it lacks {names}")
    return sorted(new)


def _name(identity: str, seen: Seen | None) -> str:
    return f"a bandit whose witness cannot be read ({identity}.json)" if seen is None else seen.name


# ---------------------------------------------------------------------- what an operator decides


def accept_restore(store: Store, witness: Witness, name: str, *, pay_again: bool) -> str:
    """What an operator decides about a bandit of a restored store.

    Retired: it ranks and never learns again. Paid again: it goes on from the old copy. The lost
    continuation and the new one are two runs over the same rewards, each within its budget, so the
    bandit counts once more from now on, in its own claim and in the sum over all bandits (which the
    cap may refuse).
    """
    line = _find(store, name, RESTORED)
    if not pay_again:
        # The witness keeps its mark: the same copy, put in place again, is still an old one.
        store.set_status(line.id, RETIRED, "retired after the store was restored from an old copy")
        return "retired: it keeps ranking, and never learns again"
    db = store.connection
    with witness.locked(line.identity):
        seen = witness.if_readable(line.identity)
        with db.write():
            db.exclude(LOCK_BUDGET, 0)
            line = _find(store, name, RESTORED)
            # Timelines that began after the copy was made are known to the witness alone.
            timelines = max(line.timelines, 0 if seen is None else seen.timelines) + 1
            budgets.check_cap(
                store.claims(), line.claim, store.cap(), again=timelines - line.timelines
            )
            db.run(
                "UPDATE bandits SET timelines = ?, status = ?, reason = 'resumed from an old copy' "
                "WHERE id = ?",
                (timelines, LEARNING, line.id),
            )
            mark = (timelines, *mark_of(store, line)[1:])
            fork = {
                "began": list(mark),
                "given_up": [] if seen is None else [*seen.trail, list(seen.mark)],
            }
            store.put_meta(f"forks {line.identity}", json.dumps([*forks(store, line), fork]))
        witness.note(line.identity, name=line.name, claim=line.claim, mark=mark, vouched=True)
    return f"resumed, and counted once more: {timelines} times in all"


def trust(store: Store, witness: Witness, name: str) -> str:
    """An operator vouches that this store is the newest copy. Nothing is charged."""
    identity = _find(store, name, RESTORED, LEARNING).identity
    with witness.locked(identity):
        seen = witness.if_readable(identity)
        line = _find(store, name, RESTORED, LEARNING)
        problem = "" if seen is None else contradiction(store, line, seen)
        if problem:
            raise OptionError(
                f"{problem}. Nobody can vouch against that: dpbandit store accept-restore, with "
                "--retire or --pay-again"
            )
        witness.note(identity, name=name, claim=line.claim, mark=mark_of(store, line), vouched=True)
    store.set_status(line.id, LEARNING, "an operator vouched that the store is the newest copy")
    return "learning continues; an operator vouched that the store is the newest copy"


def resume(store: Store, name: str) -> str:
    """Learn again after a failure whose cause was removed. Nothing was released by what failed."""
    line = _find(store, name, FAILED)
    store.set_status(line.id, LEARNING, "resumed after a failure")
    return "learning goes on"


def accept_lost(store: Store, witness: Witness) -> list[str]:
    """Write bandits that the old copy lacks back into it, as deleted ones: they stay in the sum."""
    lost = find_lost(store, witness)
    unreadable = ", ".join(_name(identity, seen) for identity, seen in lost.items() if seen is None)
    if unreadable:
        raise OptionError(f"nobody can tell what to book: the store lacks {unreadable}")
    db = store.connection
    with db.write():
        db.exclude(LOCK_BUDGET, 0)
        lines = store.lines()
        there, names = {line.identity for line in lines}, {line.name for line in lines}
        reported: dict[str, str] = json.loads(store.meta("lost") or "{}")
        explained = there | lost.keys()
        unknown = sorted(name for identity, name in reported.items() if identity not in explained)
        if unknown:
            raise OptionError(
                f"the witness in {witness.folder} knows nothing of {', '.join(unknown)}: use that "
                "of the learner that noticed"
            )
        booked = {i: seen for i, seen in lost.items() if seen is not None and i not in there}
        for identity, seen in booked.items():
            store.add_bandit(
                identity=identity,
                name=f"{seen.name} (lost {identity[:8]})" if seen.name in names else seen.name,
                config="{}",
                claim=json.dumps(seen.claim),
                status=DELETED,
                reason="lost when the store was restored",
                timelines=seen.timelines,
                created_by="",
            )
        store.put_meta("lost", None)
        store.put_meta("restored", None)
    return [seen.name for seen in booked.values()]


def _find(store: Store, name: str, *statuses: str) -> Line:
    line = next((line for line in store.lines() if line.name == name), None)
    if line is None:
        raise OptionError(f"the store has no bandit {name!r}")
    if line.status not in statuses:
        raise OptionError(f"{name!r} is not waiting for a decision: its status is {line.status!r}")
    return line
