"""Timing. Contestants take turns, several times over; the best turn counts, since everything else on a machine only adds time."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpbandit.lab.speed import tasks
from dpbandit.lab.speed.contestants import CONTESTANTS, Contestant
from dpbandit.lab.speed.tasks import Task

FEWEST = 200  # rounds of a turn, however slow

Say = Callable[[str, int, int], None]  # (what is being timed, turns done, turns in all)


@dataclass(frozen=True)
class Turn:
    """What one contestant took on one task: microseconds for a round, select and update together."""

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
    """Every contestant on every task, one decision at a time from Python. Ctrl-C returns the best turns so far."""
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
    return Turn(task.name, one.name, one.version, 1e6 * seconds / count, count, lost / count, one.ours)


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
    algorithms: Sequence[str], *, rounds: int = 10_000, repeats: int = 5, say: Say = lambda *_: None
) -> dict[str, float]:
    """Microseconds a round of `dpb.run` on one core, noise simulated, the paper's world; it includes drawing the world."""
    import warnings

    from dpbandit.lab.engine import run
    from dpbandit.worlds import Synthetic

    best: dict[str, float] = {}
    done, total = 0, repeats * len(algorithms)
    with contextlib.suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for repeat in range(repeats):
            for name in algorithms:
                say(f"engine: {name}", done, total)
                for count in (50, rounds) if repeat == 0 else (rounds,):
                    began = time.perf_counter()
                    run(
                        Synthetic(), [name], horizon=count, seeds=1, workers=1, record=[count], epsilon=1.0, delta=1e-6,
                        reward_range=(-0.5, 1.5), alpha=0.3,
                    )  # fmt: skip
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
    """For every private algorithm, or these: microseconds a round takes, select and update together, with a seed and with real
    noise, in the same loop. Those that release in every round play `noisy_rounds`, the others `rounds`."""
    import warnings

    from dpbandit.bandits import rounds as seats
    from dpbandit.bandits.registry import ALGORITHMS, construct
    from dpbandit.errors import DpbanditError

    task = tasks.w1(max(rounds, noisy_rounds))
    slates = task.slates(len(task.shown))
    found: dict[str, dict[str, float]] = {}
    if names is None:
        names = [n for n, a in ALGORITHMS.items() if not a.one_hot and not a.registered_by_user]
    done, total = 0, repeats * len(names)
    given = {"dim": task.dim, "epsilon": 1.0, "delta": 1e-6, "reward_range": (-0.5, 1.5), "horizon": 10**6}

    def made(name: str, kind: str) -> Any:
        return construct(name, {**given, "alpha": 0.3, **({"seed": 0} if kind == "seeded" else {})})

    with contextlib.suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for repeat in range(repeats):
            for name in names:
                say(f"noise: {name}", done, total)
                done += 1
                best = found.get(name, {"seeded": float("inf"), "real": float("inf")})
                try:
                    for kind in ("seeded", "real"):
                        bandit = made(name, kind)
                        if bandit.plan.seat < seats.REWARD:  # no privacy, no noise
                            break
                        count = min(rounds if bandit._has_quiet_rounds() else noisy_rounds, len(slates))
                        if repeat == 0:
                            first = made(name, kind)
                            _rounds((first.select, first.update), slates[:FEWEST], task.rewards)
                        _arms, seconds = _rounds((bandit.select, bandit.update), slates[:count], task.rewards)
                        best[kind] = min(best[kind], 1e6 * seconds / count)
                    else:
                        found[name] = {**best, "rounds": count, "releases": bandit.ledger.releases}
                except DpbanditError:  # one without an exact sampler for its noise, or that needs more options
                    continue
    return found


def growth_tasks(rounds: int = 300) -> list[tuple[str, int, Task]]:
    """(which axis, where on it, task): features from 5 to 500 at 25 arms, arms from 10 to 10⁵ at 10 features."""
    wide = [
        ("features", d, tasks.linear(f"d = {d}", dim=d, arms=25, pool=200, rounds=rounds))
        for d in (5, 10, 25, 50, 100, 200, 500)
    ]
    many = [
        ("arms", k, tasks.linear(f"{k:,} arms", dim=10, arms=k, pool=k, rounds=max(20, min(rounds, 3_000_000 // k))))
        for k in (10, 100, 1_000, 10_000, 100_000)
    ]
    return wide + many


def machine() -> dict[str, str]:
    """What it was measured on."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), model)
    return {"processor": model, "cores": str(os.cpu_count()), "python": platform.python_version()}
