"""All of `dpbandit bench speed`: decisions, whole runs, growth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpbandit.lab.speed import measure, page, tasks
from dpbandit.lab.speed.contestants import CONTESTANTS
from dpbandit.lab.speed.measure import Say


def run(
    *,
    rounds: int = 100_000,
    repeats: int = 5,
    growth: bool = True,
    engine: Sequence[str] | None = None,
    say: Say = lambda *_: None,
) -> dict[str, Any]:
    """Everything measured, as one record. `engine` names the algorithms timed in whole runs; all built-in ones if None."""
    from dpbandit.bandits.registry import ALGORITHMS

    chosen = [tasks.w1(rounds), tasks.w2(rounds)]
    turns = measure.decisions(chosen, repeats=repeats, say=say)
    names = (
        [n for n, a in ALGORITHMS.items() if not a.one_hot and not a.registered_by_user] if engine is None else engine
    )
    result: dict[str, Any] = {
        "machine": measure.machine(),
        "repeats": repeats,
        "tasks": [{"name": task.name, "words": task.words, "rounds": rounds} for task in chosen],
        "decisions": page.rows(turns),
        "missing": [one.name for one in CONTESTANTS if not one.installed],
        "engine": measure.engine(names, repeats=repeats, say=say),
        "noise": measure.noise_costs(say=say),
        "growth": [],
    }
    if growth:
        for axis, at, task in measure.growth_tasks():
            slow = at > 1_000 if axis == "arms" else at > 100
            who = [
                one for one in CONTESTANTS if not (slow and one.name in ("river", "Vowpal Wabbit", "bayesianbandits"))
            ]
            for turn in measure.decisions([task], who, repeats=min(repeats, 2), say=say):
                result["growth"].append({"axis": axis, "at": at, **turn.record()})
    return result
