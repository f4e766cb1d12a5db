"""Rounds per second on a GPU: linucb, tree-gauss, dgs and anytime on the paper's simulation. Needs NumPy and CuPy alone.

    PYTHONPATH=src python benchmarks/gpu_rounds.py --out gpu-rounds.json

d = 10, 10 of 1,000 arms, Gaussian reward noise in every round, T = 10⁴, (ε, δ) = (2, 0.1), single precision. Each kernel is
compiled and warmed up first; the time is that of whole launches between two events, the median of several. The bars are
10¹⁰ for linucb and a harmonic mean of 5·10⁹ over the four. Regret is printed beside each, so that a fast but wrong kernel shows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np

from dpbandit.gpu.machines import THREADS, machine
from dpbandit.gpu.play import BLOCKS, Stage
from dpbandit.gpu.translation import papers_plans
from dpbandit.worlds import Synthetic

BAR_LINUCB, BAR_MEAN = 1e10, 5e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument(
        "--waves", type=int, default=2, help="how often every multiprocessor is filled"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--blocks",
        type=int,
        nargs="*",
        help="blocks per multiprocessor to try, instead of the default",
    )
    parser.add_argument("--only", nargs="*", help="these algorithms alone")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()

    device = machine("cuda")
    world, plans = Synthetic(), papers_plans(given.rounds)
    rows = []
    for name in given.only or plans:
        plan = plans[name]
        for blocks in given.blocks or [BLOCKS]:
            groups = device.multiprocessors * blocks * given.waves
            stage = Stage(device, world, range(groups))
            began = time.perf_counter()
            stage.prepare(plan, 2, [2], blocks=blocks)()
            device.finish()
            compiled = time.perf_counter() - began
            launch = stage.prepare(plan, given.rounds, [given.rounds], blocks=blocks)
            launch()
            device.finish()
            seconds = []
            for _ in range(given.repeats):
                seconds.append(timed(device, launch))
            played = launch.collect()
            regret = played.regret[:, -1]
            # Between-pool share of the spread: what replications of a group have in common.
            rows.append(
                {
                    "algorithm": name,
                    "rounds_per_second": groups
                    * THREADS
                    * given.rounds
                    / statistics.median(seconds),
                    "seconds": seconds,
                    "replications": groups * THREADS,
                    "rounds": given.rounds,
                    "blocks": blocks,
                    "compile_seconds": compiled,
                    "regret": float(regret.mean()),
                    "regret_standard_error": float(regret.std() / np.sqrt(len(regret))),
                    "between_pools": between(regret),
                    "finite": bool(np.isfinite(regret).all()),
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    best = {
        name: max(r["rounds_per_second"] for r in rows if r["algorithm"] == name)
        for name in {r["algorithm"] for r in rows}
    }
    summary = {"device": device.name, "best": best, "rows": rows}
    if len(best) == len(plans):
        summary["harmonic_mean"] = len(best) / sum(1 / rate for rate in best.values())
        summary["met"] = bool(best["linucb"] >= BAR_LINUCB and summary["harmonic_mean"] >= BAR_MEAN)
    print(f"{'algorithm':<12} {'rounds/s':>10}   regret")
    for name, rate in best.items():
        row = max((r for r in rows if r["algorithm"] == name), key=lambda r: r["rounds_per_second"])
        print(
            f"{name:<12} {rate:>10.3g}   {row['regret']:.1f} ± {row['regret_standard_error']:.1f}"
        )
    if "harmonic_mean" in summary:
        print(
            f"harmonic mean {summary['harmonic_mean']:.3g} on {device.name}; bars {'met' if summary['met'] else 'MISSED'}"
        )
    if given.out:
        given.out.write_text(json.dumps(summary, indent=1))


def timed(device, launch) -> float:
    """Seconds of one launch, by the device's own events."""
    start, stop = device.arrays.cuda.Event(), device.arrays.cuda.Event()
    start.record()
    launch()
    stop.record()
    stop.synchronize()
    return device.arrays.cuda.get_elapsed_time(start, stop) / 1000


def between(regret: np.ndarray) -> float:
    """The share of the variance that lies between pools (an intraclass correlation; 0 if sharing a pool does not matter)."""
    groups = regret.reshape(-1, THREADS)
    inside = groups.var(axis=1, ddof=1).mean()
    outside = groups.mean(axis=1).var(ddof=1) - inside / THREADS
    return float(max(outside, 0.0) / (max(outside, 0.0) + inside))


if __name__ == "__main__":
    main()
