"""How close the batch engine is to what one core can do: `python benchmarks/engine_floor.py`.

The floor is `floor.c` beside this file, or the C file that --floor names: LinUCB with all sizes known to the compiler and
nothing else. W1 is 10 of 1,000 arms with 10 features, W2 is 25 fresh arms with 25 features, both for 10,000 rounds. Everything
is measured in turn in one process, as processor time of one thread, and the best of many repeats counts: trust the ratios.
Two cores are measured by the clock, so they mean something on an idle machine only.
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

import numpy as np

import dpbandit as dpb
from dpbandit.simulate import players
from dpbandit.worlds.block import Block

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
SLOWER = ["private-ts", "joint"]  # allowed 10 times LinUCB's time instead of twice


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


def best(tasks: dict[Any, Callable[[], float]], repeats: int) -> dict[Any, float]:
    """The least seconds that each task says it took, all of them in turn."""
    least = {name: float("inf") for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            least[name] = min(least[name], task())
    return least


def loop(name: str, world: Any, episode: Any, block: Block, **options: Any) -> Callable[[], float]:
    """A task that plays the block with a new bandit and says how many processor seconds the compiled loop took."""
    rounds = len(block.shown)
    given = {} if name in ("linucb", "random") else {"epsilon": 2.0, "delta": 1e-5}

    def task() -> float:
        job = (name, name, {**given, **options})
        player = players.new_player(job, world, episode, 0, rounds, np.array([rounds]))
        spent = 0.0

        def timed(*arguments: Any) -> None:
            nonlocal spent
            start = time.thread_time()
            compiled(*arguments)
            spent += time.thread_time() - start

        compiled, players.play = players.play, timed
        try:
            player.play(block, 0)
        finally:
            players.play = compiled
        return spent

    task()  # compile
    return task


def floor(source: Path, size: int, pool: Any, shown: Any, means: Any, noise: Any, folder: Path) -> Callable[[], float]:
    """The same rounds in C, as many candidates at a time as suits this machine best. Takes our `play`, or `run_X` and `run_idx`
    of the floor that the speed anchors came from."""
    chosen, theta, small = np.empty(len(shown), np.int64), np.empty(size), shown.astype(np.int32)
    rounds, alpha = len(shown), ctypes.c_double(ALPHA)

    def call(code: Any) -> None:
        if hasattr(code, "play"):
            code.play(ctypes.c_int64(rounds), *map(_address, (pool, shown, means, noise)), alpha, _address(chosen))
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
            command = ["gcc", "-O3", "-march=native", "-ffast-math", "-fopenmp", *sizes, "-shared", "-fPIC"]
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
            "W2": floor(source, 25, second.pool, second.shown, fresh.means, fresh.noise, Path(folder)),
        }
        for label, (world, start, block) in worlds.items():
            tasks = {"floor": floors[label]}
            # dgs-published needs public contexts to know the paper's λ₀, and W2 has none.
            names = ["linucb", *(name for name in PRIVATE if label == "W1" or name != "dgs-published")]
            tasks |= {name: loop(name, world, start, block) for name in names}
            took = best(tasks, repeats)
            took |= best({name: loop(name, world, start, block) for name in SLOWER}, max(2, repeats // 5))
            found[label] = {name: seconds / ROUNDS * 1e6 for name, seconds in took.items()}
    bernoulli = dpb.worlds.Bernoulli()
    start = bernoulli.episode(0)
    block = start.block(ROUNDS)
    took = best({name: loop(name, bernoulli, start, block) for name in ("linucb", "private-ucb")}, repeats)
    found["arms without features"] = {name: seconds / ROUNDS * 1e6 for name, seconds in took.items()}
    return found


def two_cores(repeats: int) -> dict[str, float]:
    """`dpb.run` of 64 replications, by the clock: microseconds a round with one worker and with two, and their ratio."""

    def run(workers: int) -> Callable[[], float]:
        def task() -> float:
            start = time.perf_counter()
            dpb.run(dpb.worlds.Synthetic(), ["linucb"], horizon=ROUNDS, seeds=64, workers=workers)
            return time.perf_counter() - start

        return task

    took = best({"one": run(1), "two": run(2)}, repeats)
    scale = 1e6 / (64 * ROUNDS)
    return {"one": took["one"] * scale, "two": took["two"] * scale, "speed-up": took["one"] / took["two"]}


def growth(repeats: int) -> dict[str, dict[str, float]]:
    """LinUCB's microseconds a round as features, arms or rounds grow."""
    found: dict[str, dict[str, float]] = {"features, 25 arms": {}, "arms, 10 features": {}, "rounds, W1": {}}
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
            pool, shown, np.broadcast_to(means, shown.shape).copy(), np.broadcast_to(means, shown.shape).copy()
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--floor", type=Path, default=Path(__file__).with_name("floor.c"), help="the C file to compare with"
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write what was measured here")
    parser.add_argument("--skip-growth", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"microseconds a round": close_to_the_floor(arguments.floor, arguments.repeats)}
    for label, took in found["microseconds a round"].items():
        print(f"\n{label}, µs a round")
        for name, microseconds in took.items():
            ratio = f"{microseconds / took['floor']:6.2f} × floor" if "floor" in took else ""
            print(f"  {name:26s}{microseconds:9.3f}{ratio:>16s}{microseconds / took['linucb']:8.2f} × linucb")
    found["dpb.run, 64 replications"] = two_cores(max(3, arguments.repeats // 4))
    print("\ndpb.run, 64 replications of W1, everything included, by the clock")
    print(
        "  one worker {one:.3f} µs a round, two {two:.3f}: {speed-up:.2f} × faster".format(
            **found["dpb.run, 64 replications"]
        )
    )
    if not arguments.skip_growth:
        found["growth"] = growth(max(3, arguments.repeats // 5))
        for label, curve in found["growth"].items():
            print(
                f"\n{label}: µs a round of linucb\n  "
                + "  ".join(f"{size}: {took:.2f}" for size, took in curve.items())
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
