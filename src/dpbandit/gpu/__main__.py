"""`python -m dpbandit.gpu`: what a machine with NumPy and CuPy alone can do.

python -m dpbandit.gpu doctor   what is here, and what is missing
python -m dpbandit.gpu plans plans.json --horizon 10000   plans for `run`
python -m dpbandit.gpu run [plans.json] --seeds 10000   regret of four algorithms, or of plans
python -m dpbandit.gpu attack attacks.npz counts.npz   hits; benchmarks/audit_table.py makes both
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from dpbandit.errors import DpbanditError
from dpbandit.gpu import attack as attacks
from dpbandit.gpu.machines import machine
from dpbandit.gpu.plans import load, save
from dpbandit.gpu.play import play
from dpbandit.gpu.translation import papers_plans
from dpbandit.worlds import Synthetic


def main() -> None:
    """Parse, do, print."""
    parser = argparse.ArgumentParser(
        prog="python -m dpbandit.gpu", description="Simulations and audits on a GPU."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what is here, and what is missing")
    plans = commands.add_parser("plans", help="write plans to be played elsewhere, or later")
    plans.add_argument("file", type=Path)
    plans.add_argument("algorithms", nargs="*", default=["linucb", "tree-gauss", "dgs", "anytime"])
    run = commands.add_parser("run", help="play plans on the paper's simulation")
    run.add_argument("file", type=Path, nargs="?")
    run.add_argument("--seeds", type=int, default=10_000)
    for command in (plans, run):
        command.add_argument("--horizon", type=int, default=10_000)
    hit = commands.add_parser("attack", help="score runs and count hits")
    hit.add_argument("file", type=Path)
    hit.add_argument("out", type=Path)
    hit.add_argument("--runs", type=int, default=100_000_000)
    hit.add_argument(
        "--learning-runs",
        type=int,
        help="where every run learns for itself (anytime-joint); without it as many as --runs",
    )
    hit.add_argument("--seed", type=int, default=0)
    for command in (run, hit):
        command.add_argument(
            "--device",
            default="cuda",
            choices=["cuda", "host"],
            help="host: this processor, for tests",
        )
    given = parser.parse_args()
    try:
        {"doctor": _doctor, "plans": _plans, "run": _run, "attack": _attack}[given.command](given)
    except DpbanditError as error:
        sys.exit(str(error))


def _doctor(given: Any) -> None:
    del given
    found = machine("cuda")
    print(f"{found.name}, CuPy {found.arrays.__version__}, NumPy {np.__version__}: ready")


def _plans(given: Any) -> None:
    made = papers_plans(given.horizon, given.algorithms)
    save(given.file, made)
    print(
        f"{len(made)} plans in {given.file}; their noise is scaled for the first pool "
        "where it depends on one"
    )


def _run(given: Any) -> None:
    where = machine(given.device)
    plans = load(given.file) if given.file else papers_plans(given.horizon)
    for name, plan in plans.items():
        began = time.perf_counter()
        seeds, ends = range(given.seeds), [given.horizon]
        played = play(where, plan, Synthetic(), rounds=given.horizon, seeds=seeds, recorded=ends)
        last = played.regret[:, -1]
        error = last.std(ddof=1) / np.sqrt(len(last)) if len(last) > 1 else float("nan")
        print(
            f"{name:<24} regret {last.mean():8.1f} ± {error:.1f}   "
            f"{given.seeds:,} seeds in {time.perf_counter() - began:.1f} s",
            flush=True,
        )


def _attack(given: Any) -> None:
    where = machine(given.device)
    arrays: dict[str, Any] = {}
    for name, what in attacks.load(given.file).items():
        learns = isinstance(what, attacks.PairTrajectory)
        runs = given.learning_runs or given.runs if learns else given.runs
        # This one compiles: the time of the next is the attack's.
        attacks.attack(where, what, runs=min(runs, 10_000), seed=given.seed)
        found = attacks.attack(where, what, runs=runs, seed=given.seed)
        for part in ("thresholds", "train", "test", "train_runs", "test_runs"):
            arrays[f"{name}/{part}"] = np.asarray(getattr(found.counts, part))
        arrays[f"{name}/seconds"] = np.array(found.seconds)
        arrays[f"{name}/runs"] = np.array(runs)
        told = {"algorithm": name, "runs_a_side": runs, "seconds": round(found.seconds, 3)}
        print(json.dumps(told), flush=True)
    arrays["device"] = np.array(where.name)
    np.savez_compressed(given.out, **arrays)


if __name__ == "__main__":
    main()
