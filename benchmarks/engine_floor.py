"""How close the engine is to what one core can do: `python benchmarks/engine_floor.py`.

The floor is `floor.c` beside this file, or the C file that --floor names: LinUCB with all sizes
known to the compiler and nothing else. W1 is 10 of 1,000 arms with 10 features, W2 is 25 fresh arms
with 25 features, both for 10,000 rounds. The core's loop is measured beside it in turn in one
process, as processor time of one thread, and the best of many repeats counts: trust the ratios.
Then what Python adds (`from_python.py`): whole runs on several workers by the clock, which mean
something on an idle machine only; single calls beside NumPy by hand; cold starts. The bars that we
hold ourselves to are printed last.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import from_python
import numpy as np
from bars import SLOWER, bars
from from_python import best

import dpbandit as dpb
from dpbandit.engine import core_status
from dpbandit.reference.random import START
from dpbandit.simulate.players import new_bandit
from dpbandit.worlds.block import Block
from experiments.speed import measure

ROUNDS = 10_000
ALPHA = 0.3
PRIVATE = [
    "local",
    "private-linucb",
    "private-linucb-published",
    "tree-gauss",
    "toeplitz",
    "anytime",
    "adac-oful",
    "dgs",
    "dgs-published",
    "dgs-figure",
]


class Fresh:
    """New contexts every round, as in W2."""

    rounds = None

    def __init__(self, dim: int, arms: int, rounds: int = ROUNDS) -> None:
        self.dim, self.arms, self.length = dim, arms, rounds
        rng = np.random.default_rng(0)
        pool = rng.uniform(size=(rounds * arms, dim))
        self.pool = pool / np.linalg.norm(pool, axis=1, keepdims=True)
        theta = rng.uniform(size=dim)
        self.theta = theta / np.linalg.norm(theta)
        self.means = self.pool @ self.theta
        self.noise = rng.normal(0.0, 0.5, size=rounds)
        self.public_contexts = None

    def episode(self, seed: int) -> Fresh:
        return self

    def block(self, count: int) -> Block:
        shown = np.arange(count * self.arms).reshape(count, self.arms)
        means = self.means[: count * self.arms].reshape(count, self.arms)
        return Block(self.pool, shown, means + self.noise[:count, None], means)


def loop(name: str, world: Any, episode: Any, block: Block, **options: Any) -> Callable[[], float]:
    """A task that plays the block from the start and says how many processor seconds it took."""
    rounds = len(block.shown)
    given = {} if name in ("linucb", "random") else {"epsilon": 2.0, "delta": 1e-5}
    bandit = new_bandit(name, {**given, **options}, world, episode, 0, rounds)
    inside = bandit.in_public_set(block.pool) if len(bandit.design.public_set) else None
    fixed = bandit.fixed_alpha

    def task() -> float:
        engine = bandit.engine.copy()
        start = time.thread_time()
        engine.play(
            block.pool,
            block.shown,
            block.rewards,
            block.means,
            alphas=bandit.alphas(1, rounds) if fixed is None else np.array([fixed]),
            noise_key=bandit.source.key,
            start_key=bandit.keys[START],
            in_public_set=inside,
            record=np.array([rounds - 1]),
            totals=np.zeros(2),
        )
        return time.thread_time() - start

    return task


def floor(
    source: Path, size: int, pool: Any, shown: Any, means: Any, noise: Any, folder: Path
) -> Callable[[], float]:
    """The same rounds in C, as many candidates at a time as suits this machine best. Takes our `play`, or `run_X` and `run_idx`
    of the floor that the speed anchors came from."""
    chosen, theta, small = np.empty(len(shown), np.int64), np.empty(size), shown.astype(np.int32)
    rounds, alpha = len(shown), ctypes.c_double(ALPHA)

    def call(code: Any) -> None:
        if hasattr(code, "play"):
            code.play(
                ctypes.c_int64(rounds),
                *map(_address, (pool, shown, means, noise)),
                alpha,
                _address(chosen),
            )
            return
        results = (_address(chosen), _address(theta))
        if len(pool) == shown.size:
            code.run_X(rounds, *map(_address, (pool, means, noise)), alpha, *results)
        else:
            code.run_idx(1, rounds, 1, *map(_address, (pool, small, means, noise)), alpha, *results)

    codes = []
    for together in (1, 2, 5):
        if size % together == 0:
            library = folder / f"{size}-{together}.so"
            sizes = [f"-DD={size}", f"-DN={size}", f"-DB={together}", f"-DCB={together}"]
            command = [
                "gcc",
                "-O3",
                "-march=native",
                "-ffast-math",
                "-fopenmp",
                *sizes,
                "-shared",
                "-fPIC",
            ]
            subprocess.run([*command, source, "-o", library, "-lm"], check=True)
            codes.append(ctypes.CDLL(str(library)))

    def task() -> float:
        least = float("inf")
        for code in codes:
            start = time.thread_time()
            call(code)
            least = min(least, time.thread_time() - start)
        return least

    return task


def _address(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def close_to_the_floor(source: Path, repeats: int) -> dict[str, Any]:
    """LinUCB's loop beside the floor, and the other algorithms beside LinUCB."""
    synthetic = dpb.worlds.Synthetic()
    episode, fresh = synthetic.episode(0), Fresh(25, 25)
    first, second = episode.block(ROUNDS), fresh.block(ROUNDS)
    worlds = {"W1": (synthetic, episode, first), "W2": (fresh, fresh, second)}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        noise = np.ascontiguousarray(first.rewards[:, 0] - first.means[:, 0])
        means = episode.public_contexts @ episode.theta
        floors = {
            "W1": floor(source, 10, first.pool, first.shown, means, noise, Path(folder)),
            "W2": floor(
                source, 25, second.pool, second.shown, fresh.means, fresh.noise, Path(folder)
            ),
        }
        for label, (world, start, block) in worlds.items():
            tasks = {"floor": floors[label]}
            # dgs-published needs public contexts to know the paper's λ₀, and W2 has none.
            names = [
                "linucb",
                *(name for name in PRIVATE if label == "W1" or name != "dgs-published"),
            ]
            tasks |= {name: loop(name, world, start, block) for name in names}
            took = best(tasks, repeats)
            took |= best(
                {name: loop(name, world, start, block) for name in SLOWER}, max(2, repeats // 5)
            )
            found[label] = {name: seconds / ROUNDS * 1e6 for name, seconds in took.items()}
    bernoulli = dpb.worlds.Bernoulli()
    start = bernoulli.episode(0)
    block = start.block(ROUNDS)
    took = best(
        {name: loop(name, bernoulli, start, block) for name in ("linucb", "private-ucb")}, repeats
    )
    found["arms without features"] = {
        name: seconds / ROUNDS * 1e6 for name, seconds in took.items()
    }
    return found


def growth(repeats: int) -> dict[str, dict[str, float]]:
    """LinUCB's microseconds a round as features, arms or rounds grow."""
    found: dict[str, dict[str, float]] = {
        "features, 25 arms": {},
        "arms, 10 features": {},
        "rounds, W1": {},
    }
    for dim in (5, 10, 25, 50, 100, 200, 500):
        rounds = max(200, min(5_000, 2_000_000 // dim**2))
        world = Fresh(dim, 25, rounds)
        took = best({0: loop("linucb", world, world, world.block(rounds))}, repeats)[0]
        found["features, 25 arms"][str(dim)] = took / rounds * 1e6
    for arms in (10, 100, 1_000, 10_000, 100_000):
        rounds = max(50, min(5_000, 1_000_000 // arms))
        world = dpb.worlds.Synthetic(arms=arms, dim=10, shown=arms)
        episode = world.episode(0)
        pool, means = episode.public_contexts, episode.public_contexts @ episode.theta
        shown = np.broadcast_to(np.arange(arms), (rounds, arms)).copy()
        block = Block(
            pool,
            shown,
            np.broadcast_to(means, shown.shape).copy(),
            np.broadcast_to(means, shown.shape).copy(),
        )
        took = best({0: loop("linucb", world, episode, block)}, repeats)[0]
        found["arms, 10 features"][str(arms)] = took / rounds * 1e6
    for rounds in (1_000, 10_000, 100_000):
        world = dpb.worlds.Synthetic()
        episode = world.episode(0)
        took = best({0: loop("linucb", world, episode, episode.block(rounds))}, repeats)[0]
        found["rounds, W1"][str(rounds)] = took / rounds * 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    beside = Path(__file__).with_name("floor.c")
    parser.add_argument("--floor", type=Path, default=beside, help="the C file to compare with")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--horizon", type=int, default=100_000, help="rounds of whole runs and of calls"
    )
    parser.add_argument("--json", type=Path, help="write what was measured here")
    parser.add_argument("--skip-growth", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    few = max(2, given.repeats // 5)
    found: dict[str, Any] = {
        "engine": core_status(),
        "machine": measure.machine(),
        "microseconds a round": close_to_the_floor(given.floor, given.repeats),
    }
    for label, took in found["microseconds a round"].items():
        print(f"\n{label}, µs a round")
        for name, spent in took.items():
            floors = f"{spent / took['floor']:6.2f} × floor" if "floor" in took else ""
            print(f"  {name:26s}{spent:9.3f}{floors:>16s}{spent / took['linucb']:8.2f} × linucb")
    parts: dict[str, tuple[str, Callable[[], Any]]] = {
        "workers": (
            f"dpb.run, {from_python.REPLICATIONS} replications of W1, {given.horizon:,} rounds: "
            "µs a round by the clock",
            lambda: from_python.workers(given.horizon, few),
        ),
        "calls": (
            "select and update from Python, real noise: µs a round",
            lambda: from_python.calls(given.horizon, few),
        ),
        "500 features": (
            "select and update, d = 500, 25 arms, first 300 rounds: ms in all",
            lambda: from_python.many_features(few),
        ),
        "cold": ("a new process: s", lambda: from_python.cold(few)),
        "growth": ("linucb: µs a round", lambda: growth(few)),
    }
    for name, (title, part) in parts.items():
        if name == "growth" and given.skip_growth:
            continue
        found[name] = part()
        print(f"\n{title}")
        for label, value in found[name].items():
            words = f"{value:.3f}" if isinstance(value, float) else _words(value)
            print(f"  {label}: {words}")
    print("\nbars")
    found["bars"] = {}
    for words, value, bar, more in bars(found):
        met = value >= bar if more else value <= bar
        found["bars"][words] = {"measured": value, "bar": bar, "met": met}
        print(
            f"  {words:50s}{value:8.3f} {'≥' if more else '≤'} {bar:<6g}{'' if met else 'MISSED'}"
        )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _words(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


if __name__ == "__main__":
    main()
