"""What an operator decides when the store is an old copy, or when its witness is gone."""

from __future__ import annotations

import json

from dpbandit.errors import OptionError
from dpbandit.service import budgets
from dpbandit.service.store import DELETED, FAILED, LEARNING, RESTORED, RETIRED, Line, Store
from dpbandit.service.witness import Witness


def _find(store: Store, name: str, *statuses: str) -> Line:
    line = next((line for line in store.lines() if line.name == name), None)
    if line is None:
        raise OptionError(f"the store has no bandit {name!r}")
    if line.status not in statuses:
        raise OptionError(f"{name!r} is not waiting for a decision: its status is {line.status!r}")
    return line


def _vouch(store: Store, witness: Witness, line: Line) -> None:
    seal = store.release_seal(line.id, line.version) or ""
    witness.note(line.identity, name=line.name, claim=line.claim, number=line.version, fingerprint=seal, force=True)


def accept_restore(store: Store, witness: Witness, name: str, *, pay_again: bool) -> str:
    """What an operator decides about a bandit of a restored store.

    Retired: it ranks and never learns again. Paid again: it goes on from the old copy. The lost continuation and the new one
    are two runs over the same rewards, each within its budget, so the bandit counts twice from now on, in its own claim and
    in the sum over all bandits (which the cap may refuse).
    """
    line = _find(store, name, RESTORED)
    if pay_again:
        budgets.check_cap(store.claims(), line.claim, store.cap())
        with store.connection.write():
            store.connection.run("UPDATE bandits SET timelines = timelines + 1 WHERE id = ?", (line.id,))
            store.connection.run(
                "UPDATE bandits SET status = ?, reason = 'resumed from an old copy' WHERE id = ?", (LEARNING, line.id)
            )
    else:
        store.set_status(line.id, RETIRED, "retired after the store was restored from an old copy")
    _vouch(store, witness, line)
    return "resumed, and counted once more" if pay_again else "retired: it ranks, and never learns again"


def trust(store: Store, witness: Witness, name: str) -> str:
    """An operator vouches that this store is the newest copy (a planned move of the learner, say). Nothing is charged."""
    line = _find(store, name, RESTORED, LEARNING)
    _vouch(store, witness, line)
    store.set_status(line.id, LEARNING, "an operator vouched that the store is the newest copy")
    return "learning goes on; an operator vouched that the store is the newest copy"


def resume(store: Store, name: str) -> str:
    """Learn again after a failure whose cause was removed. Nothing was released by what failed."""
    line = _find(store, name, FAILED)
    store.set_status(line.id, LEARNING, "resumed after a failure")
    return "learning goes on"


def accept_lost(store: Store, witness: Witness) -> list[str]:
    """Write bandits that the old copy lacks back into it, as deleted ones: their budgets stay in the sum."""
    there = {line.identity for line in store.lines()}
    names = {line.name for line in store.lines()}
    lost = {identity: seen for identity, seen in witness.everything().items() if identity not in there}
    for identity, seen in lost.items():
        name = seen["name"] if seen["name"] not in names else f"{seen['name']} (lost {identity[:8]})"
        db = store.connection
        with db.write():
            db.run(
                "INSERT INTO bandits (identity, name, config, claim, status, reason, created_at, created_by) VALUES (?, ?, "
                "'{}', ?, ?, 'lost when the store was restored', ?, '')",
                (identity, name, json.dumps(seen["claim"]), DELETED, db.now()),
            )
            (bandit,) = db.all("SELECT id FROM bandits WHERE identity = ?", (identity,))[0]
            db.run("INSERT INTO streams (bandit, last_seq) VALUES (?, 0)", (bandit,))
            db.run("INSERT INTO progress (bandit, closed, learned, version) VALUES (?, 0, 0, 0)", (bandit,))
    store.set_meta("restored", None)
    return [seen["name"] for seen in lost.values()]
