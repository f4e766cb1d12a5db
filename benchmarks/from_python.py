"""What Python adds to the engine: whole runs on several workers, single calls, and a cold start.

Used by `engine_floor.py`, which prints these beside its own figures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dpbandit as dpb

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for experiments/, which is not installed

from experiments.speed import measure, tasks  # noqa: E402
from experiments.speed.contestants import CONTESTANTS  # noqa: E402

REPLICATIONS = 64
BY_HAND = "NumPy, by hand"

COLD = """
import time
start = time.perf_counter()
import numpy
numpy_there = time.perf_counter()
import dpbandit as dpb
bandit = dpb.make({name!r}, dim=10, epsilon=1.0, delta=1e-6, reward_range=(0, 1))
contexts = numpy.eye(10)
bandit.update(contexts[bandit.select(contexts)], 1.0)
print(numpy_there - start, time.perf_counter() - start)
"""


def best(tasks_: dict[Any, Callable[[], float]], repeats: int) -> dict[Any, float]:
    """The least seconds that each task says it took, all of them in turn."""
    least = dict.fromkeys(tasks_, float("inf"))
    for _ in range(repeats):
        for name, task in tasks_.items():
            least[name] = min(least[name], task())
    return least


def workers(horizon: int, repeats: int) -> dict[str, dict[str, float]]:
    """`dpb.run` of 64 replications by the clock: µs a round with 1, 2, 4, … workers."""
    cores = os.cpu_count() or 1
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= cores]

    def run(name: str, count: int) -> Callable[[], float]:
        given = {} if name == "linucb" else {"epsilon": 2.0, "delta": 1e-5}

        def task() -> float:
            start = time.perf_counter()
            dpb.run(
                dpb.worlds.Synthetic(),
                [name],
                horizon=horizon,
                seeds=REPLICATIONS,
                record=[],
                workers=count,
                **given,
            )
            return time.perf_counter() - start

        return task

    found: dict[str, dict[str, float]] = {}
    for name in ("linucb", "anytime"):
        took = best({count: run(name, count) for count in counts}, repeats)
        each = {str(count): took[count] * 1e6 / (REPLICATIONS * horizon) for count in counts}
        found[name] = each | {f"speed-up on {n}": took[1] / took[n] for n in counts[1:]}
    return found


def calls(rounds: int, repeats: int) -> dict[str, dict[str, float]]:
    """`select` and `update` from Python on W1 and W2, µs a round, beside a NumPy loop by hand."""
    names = (BY_HAND, "dpbandit linucb", "dpbandit anytime")
    who = [one for one in CONTESTANTS if one.name in names]
    turns = measure.decisions([tasks.w1(rounds), tasks.w2(rounds)], who, repeats=repeats)
    found: dict[str, dict[str, float]] = {}
    for turn in turns:
        found.setdefault(turn.task, {})[turn.contestant] = turn.microseconds
    return found


def many_features(repeats: int) -> dict[str, float]:
    """The first 300 rounds with 500 features, ms in all, beside every peer that is installed."""
    task = tasks.linear("d = 500", dim=500, arms=25, pool=200, rounds=300)
    turns = measure.decisions([task], repeats=repeats)
    return {turn.contestant: turn.microseconds * turn.rounds / 1000 for turn in turns}


def cold(repeats: int) -> dict[str, float]:
    """Seconds of a new process: import to first select and update, and the README's example."""
    found: dict[str, float] = {}
    for name in ("linucb", "anytime"):
        ran = [_python(COLD.format(name=name)).split() for _ in range(repeats)]
        numpy_there, done = min((float(a), float(b)) for a, b in ran)
        found[f"{name}, import to first round"] = done
        found[f"{name}, of which NumPy"] = numpy_there
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        _python(example)
        took.append(time.perf_counter() - start)
    return found | {"the README's example, whole process": min(took)}


def _python(code: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


warnings.simplefilter("ignore", dpb.errors.PrivacyWarning)
