"""Timing. Contestants take turns, several times over; the best turn counts, since everything else
on a machine only adds time.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpbandit.algorithms.registry import algorithms, construct
from dpbandit.budget import Ledger
from dpbandit.errors import DpbanditError
from dpbandit.simulate.run import run
from dpbandit.worlds import Synthetic
from experiments.speed import tasks
from experiments.speed.contestants import ALPHA, CONTESTANTS, Contestant
from experiments.speed.tasks import Task

FEWEST = 200  # rounds of a turn, however slow
SETTING: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "reward_range": (-0.5, 1.5),
    "alpha": ALPHA,
}
SLOW = ("river", "Vowpal Wabbit", "bayesianbandits")  # not timed on many features or arms

Say = Callable[[str, int, int], None]  # (what is being timed, turns done, turns in all)


@dataclass(frozen=True)
class Turn:
    """What one contestant took on one task: microseconds a round, select and update together."""

    task: str
    contestant: str
    version: str
    microseconds: float
    rounds: int
    regret: float  # per round: a figure that only shows that it did learn
    ours: bool

    def record(self) -> dict[str, Any]:
        return asdict(self)


def decisions(
    chosen: Sequence[Task],
    contestants: Sequence[Contestant] = CONTESTANTS,
    *,
    repeats: int = 5,
    say: Say = lambda *_: None,
) -> list[Turn]:
    """Every contestant on every task, one decision at a time from Python. Ctrl-C returns the best
    turns so far.
    """
    best: dict[tuple[str, str], Turn] = {}
    here = [one for one in contestants if one.installed]
    done, total = 0, repeats * len(chosen) * len(here)
    with _one_thread(), contextlib.suppress(KeyboardInterrupt):
        for repeat in range(repeats):
            for task in chosen:
                for one in here:
                    say(f"{task.name}: {one.name}", done, total)
                    turn = play(task, one, warm=repeat == 0)
                    known = best.get((task.name, one.name))
                    if known is None or turn.microseconds < known.microseconds:
                        best[task.name, one.name] = turn
                    done += 1
    return list(best.values())


def play(task: Task, one: Contestant, *, warm: bool) -> Turn:
    """One turn, with a new player."""
    count = min(len(task.shown), max(FEWEST, int(len(task.shown) * one.share)))
    slates, rewards = task.slates(count), task.rewards
    if warm:
        _rounds(one.make(task.dim, task.arms), slates[:FEWEST], rewards)
    arms, seconds = _rounds(one.make(task.dim, task.arms), slates, rewards)
    lost = sum(float(task.means[n].max() - task.means[n, arm]) for n, arm in enumerate(arms))
    return Turn(
        task.name, one.name, one.version, 1e6 * seconds / count, count, lost / count, one.ours
    )


def _rounds(player: Any, slates: list[Any], rewards: Any) -> tuple[list[int], float]:
    choose, learn = player
    arms = []
    paid = [row.tolist() for row in rewards[: len(slates)]]
    gc.collect()
    gc.disable()
    try:
        began = time.perf_counter()
        for contexts, pays in zip(slates, paid, strict=True):
            arm = choose(contexts)
            learn(contexts[arm], pays[arm])
            arms.append(arm)
        seconds = time.perf_counter() - began
    finally:
        gc.enable()
    return arms, seconds


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices of this size are not worth a second thread, and peers that start one are slower."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


# ---------------------------------------------------------------------- whole runs


def engine(
    names: Sequence[str], *, rounds: int = 10_000, repeats: int = 5, say: Say = lambda *_: None
) -> dict[str, float]:
    """Microseconds a round of `dpb.run` on one core, noise simulated, the paper's world; it
    includes drawing the world.
    """
    best: dict[str, float] = {}
    done, total = 0, repeats * len(names)
    with contextlib.suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for repeat in range(repeats):
            for name in names:
                say(f"engine: {name}", done, total)
                for count in (50, rounds) if repeat == 0 else (rounds,):
                    began = time.perf_counter()
                    run(
                        Synthetic(), [name], horizon=count, seeds=1, workers=1, record=[], **SETTING
                    )
                    seconds = time.perf_counter() - began
                best[name] = min(best.get(name, float("inf")), 1e6 * seconds / rounds)
                done += 1
    return best


def noise_costs(
    names: Sequence[str] | None = None,
    *,
    rounds: int = 100_000,
    noisy_rounds: int = 1_000,
    repeats: int = 3,
    say: Say = lambda *_: None,
) -> dict[str, dict[str, float]]:
    """For every private algorithm, or these: microseconds a round takes, with a seed and with
    real noise, in the same loop. Those that release in every round play `noisy_rounds`."""
    task = tasks.w1(max(rounds, noisy_rounds))
    slates = task.slates(len(task.shown))
    given: dict[str, Any] = {"dim": task.dim, "horizon": 10**6, **SETTING}
    names = built_in() if names is None else names
    counts: dict[str, int] = {}  # of rounds, for those that add noise
    found: dict[str, dict[str, float]] = {}
    done, total = 0, repeats * len(names)

    def turn(name: str, kind: str, count: int) -> tuple[float, Ledger]:
        bandit = construct(name, given | ({"seed": 0} if kind == "seeded" else {}))
        _, seconds = _rounds((bandit.select, bandit.update), slates[:count], task.rewards)
        return 1e6 * seconds / count, bandit.ledger

    with contextlib.suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for repeat in range(repeats):
            for name in names:
                say(f"noise: {name}", done, total)
                done += 1
                taken = dict(found.get(name, {"seeded": math.inf, "real": math.inf}))
                # One may lack an exact sampler for its noise, or need more options.
                with contextlib.suppress(DpbanditError):
                    for kind in ("seeded", "real"):
                        if repeat == 0:
                            _, ledger = turn(name, kind, FEWEST)
                            if ledger.releases and not math.isinf(ledger.total):
                                often = ledger.releases == FEWEST
                                counts[name] = noisy_rounds if often else rounds
                        if name not in counts:
                            break
                        microseconds, ledger = turn(name, kind, counts[name])
                        taken[kind] = min(taken[kind], microseconds)
                    else:
                        more = {"rounds": counts[name], "releases": ledger.releases}
                        found[name] = taken | more
    return found


def built_in() -> list[str]:
    """All algorithms of ours that take contexts with features."""
    known = algorithms().items()
    return [name for name, a in known if not a.one_hot and not a.registered_by_user]


def machine() -> dict[str, str]:
    """What it was measured on."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        model = next(
            (line.split(":")[1].strip() for line in file if line.startswith("model name")), model
        )
    return {"processor": model, "cores": str(os.cpu_count()), "python": platform.python_version()}


def rows(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """One row a contestant: µs and the ratio to our linucb, for each task."""
    found: dict[str, dict[str, Any]] = {}
    base = {turn.task: turn.microseconds for turn in turns if turn.contestant == "dpbandit linucb"}
    for turn in turns:
        row = found.setdefault(
            turn.contestant,
            {"contestant": turn.contestant, "version": turn.version, "ours": turn.ours},
        )
        row[turn.task] = turn.microseconds
        row[f"{turn.task} ratio"] = (
            turn.microseconds / base[turn.task] if turn.task in base else None
        )
        row[f"{turn.task} regret"] = turn.regret
    order = [one.name for one in CONTESTANTS]
    return sorted(
        found.values(),
        key=lambda row: order.index(row["contestant"]) if row["contestant"] in order else 99,
    )


def everything(
    *, rounds: int = 100_000, repeats: int = 5, growth: bool = True, say: Say = lambda *_: None
) -> dict[str, Any]:
    """All of `dpbandit bench speed` as one record: decisions, whole runs, noise, growth."""
    chosen = [tasks.w1(rounds), tasks.w2(rounds)]
    turns = decisions(chosen, repeats=repeats, say=say)
    result: dict[str, Any] = {
        "machine": machine(),
        "repeats": repeats,
        "tasks": [{"name": task.name, "words": task.words, "rounds": rounds} for task in chosen],
        "decisions": rows(turns),
        "missing": [one.name for one in CONTESTANTS if not one.installed],
        "engine": engine(built_in(), repeats=repeats, say=say),
        "noise": noise_costs(say=say),
        "growth": [],
    }
    if growth:
        for axis, at, task in tasks.growth():
            slow = at > 1_000 if axis == "arms" else at > 100
            who = [one for one in CONTESTANTS if not (slow and one.name in SLOW)]
            for turn in decisions([task], who, repeats=min(repeats, 2), say=say):
                result["growth"].append({"axis": axis, "at": at, **turn.record()})
    return result
