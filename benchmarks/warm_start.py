"""How fast a log becomes a bandit, and in how much memory: `python benchmarks/warm_start.py [--rows 10000000] [--dim 25] …`.

A log of random contexts is written in pieces into a temporary folder (and removed), then read by `dpb.warm_start` in a process of its own,
so that its peak memory is that of the pass alone. Rows a second, and peak memory at several sizes, which should be the same. With
`--users` the same log is read twice: without caps, and with at most ten rewards a user. `--keep` leaves a long log for the next time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PIECE = 1_000_000

READ = r"""
import json, re, sys, time
import dpbandit as dpb
import pyarrow as pa
folder, tiny, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
if isinstance(options.get("unit"), list):
    options["unit"] = tuple(options["unit"])
def peak_mb():  # of this program alone; what getrusage says includes that of whoever started it
    return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read()).group(1)) / 1024

dpb.warm_start(tiny, seed=0, **options)          # imports
before = peak_mb()
busy = time.process_time()
start = time.perf_counter()
bandit = dpb.warm_start(folder, seed=0, **options)
seconds, busy = time.perf_counter() - start, time.process_time() - busy
peak = peak_mb()
print(json.dumps({"seconds": seconds, "busy": busy, "peak_mb": peak, "before_mb": before, "learned": bandit.log.learned}))
"""


def write(folder: Path, rows: int, dim: int, kind: str, layout: str, users: int) -> None:
    """A log in files of a million rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rng = np.random.default_rng(0)
    theta = rng.random(dim)
    theta /= np.linalg.norm(theta)
    for number, start in enumerate(range(0, rows, PIECE)):
        n = min(PIECE, rows - start)
        x = rng.standard_normal((n, dim), dtype=np.float32)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        x = x.astype(kind)
        reward = (rng.random(n) < 0.5 + 0.5 * (x @ theta)).astype(np.float32)
        if layout == "list":
            table = {"context": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), dim)}
        else:
            table = {f"x{i}": pa.array(np.ascontiguousarray(x[:, i])) for i in range(dim)}
        table |= {"reward": pa.array(reward)}
        if users:
            table["user"] = pa.array(rng.integers(0, users, n))
        pq.write_table(pa.table(table), folder / f"{number:05d}.parquet", row_group_size=1 << 17)


def report(name: str, options: dict, tiny: Path, log: Path, rows: int, repeats: int) -> None:
    """Read the log so many times, each in a process of its own, and print the fastest."""
    code = [sys.executable, "-c", READ, str(log), str(tiny), json.dumps(options)]
    runs = [
        json.loads(subprocess.run(code, stdout=subprocess.PIPE, text=True, check=True).stdout)
        for _ in range(repeats)
    ]
    best = min(runs, key=lambda run: run["seconds"])
    rate = rows / best["seconds"]
    print(
        f"{name:<16} {best['seconds']:8.2f} s  {rate / 1e6:6.2f} million rows/s  {best['busy']:.0f} s of one core  "
        f"peak {best['peak_mb']:.0f} MB ({best['peak_mb'] - best['before_mb']:.0f} MB above a log of 1,000 rows)  "
        f"{best['learned']:,} learned from  load average {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--dim", type=int, default=25)
    parser.add_argument("--kind", choices=["float32", "float64"], default="float64")
    parser.add_argument("--layout", choices=["columns", "list"], default="columns")
    parser.add_argument(
        "--users", type=int, default=0, help="so many users; also with a cap of 10 for each"
    )
    parser.add_argument("--algorithm", nargs="+", default=["anytime", "tree-gauss"])
    parser.add_argument("--repeats", type=int, default=1, help="the best of so many")
    parser.add_argument(
        "--folder",
        type=Path,
        default=None,
        help="where to make the log; the system's place for temporary files",
    )
    parser.add_argument(
        "--keep", type=Path, default=None, help="keep logs in this folder, and read those it has"
    )
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(dir=given.folder, prefix="dpbandit-log-"))
    kept = home if given.keep is None else given.keep
    try:
        write(home / "tiny", 1000, given.dim, given.kind, given.layout, given.users)
        for rows in given.rows:
            log = kept / f"{rows}-rows-{given.dim}-{given.kind}-{given.layout}-{given.users}-users"
            start = time.perf_counter()
            made = not log.exists()
            if made:
                unfinished = log.with_suffix(".unfinished")
                write(unfinished, rows, given.dim, given.kind, given.layout, given.users)
                unfinished.rename(log)
            size = sum(file.stat().st_size for file in log.iterdir())
            how = (
                f"written in {time.perf_counter() - start:.0f} s"
                if made
                else "kept from an earlier run"
            )
            print(
                f"# {rows:,} rows of {given.dim} {given.kind}, {given.layout}: {size / 1e9:.2f} GB, {how}; "
                f"load average {os.getloadavg()[0]:.1f}",
                flush=True,
            )
            for name in given.algorithm:
                options = {
                    "algorithm": name,
                    "context": "context"
                    if given.layout == "list"
                    else [f"x{i}" for i in range(given.dim)],
                    "epsilon": 1.0,
                    "delta": 1e-9,
                    "reward_range": [0, 1],
                    "max_norm": 1.0001,
                }
                report(name, options, home / "tiny", log, rows, given.repeats)
                if given.users:
                    capped = {**options, "user": "user", "unit": ["user", 10]}
                    report(f"{name}, users", capped, home / "tiny", log, rows, given.repeats)
            if given.keep is None:
                shutil.rmtree(log)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
