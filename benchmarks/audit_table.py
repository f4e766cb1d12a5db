"""The table of attacks: for every algorithm what it claims and what 10⁸ runs a side could prove. T = 256, d = 1.

    python benchmarks/audit_table.py attacks.npz                       1. clean values of the two streams, by the CPU engine
    PYTHONPATH=src python -m dpbandit.gpu attack attacks.npz counts.npz   2. noise and counting: a GPU, NumPy and CuPy alone
    python benchmarks/audit_table.py attacks.npz counts.npz --out docs/audits    3. the bounds: audits.json, and the table in audits.md

The steps are apart because GPU machines often lack the rest. Threshold and bound are `dpb.audit`'s own: chosen on one half
of the runs, tried on the other, Clopper–Pearson at 99.9 %. Of audits.md only what is between START and END is written.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import dpbandit as dpb
from dpbandit.algorithms import registry
from dpbandit.algorithms.anytime import PLAIN
from dpbandit.auditor.attack import worst_stream
from dpbandit.auditor.bounds import CONFIDENCE, judge
from dpbandit.auditor.trajectories import trajectory
from dpbandit.budget import epsilon_of
from dpbandit.errors import OptionError
from dpbandit.gpu import attack as attacks
from dpbandit.gpu.counting import Counts

START, END = "<!-- attacks: start -->", "<!-- attacks: end -->"
EPSILON, DELTA, HORIZON, DIM, SEED = 2.0, 1e-5, 256, 1, 0


def construct(name: str):
    given = {"dim": DIM, "epsilon": EPSILON, "delta": DELTA, "horizon": HORIZON, "seed": SEED}
    if name == "anytime":
        given |= PLAIN  # what a GPU can play of it
    if "smallest_eigenvalue" in registry.find(name).own_options:
        given["smallest_eigenvalue"] = 1.0 / DIM
    return registry.construct(name, given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("attacks", type=Path)
    parser.add_argument("counts", type=Path, nargs="?")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("audits"),
        help="without an ending: .json and .md are written",
    )
    given = parser.parse_args()
    if given.counts is None:
        made = {}
        for name in dpb.algorithms():
            frozen, positions = worst_stream(construct(name), HORIZON, SEED, workers=1)
            try:
                made[name] = trajectory(frozen, positions)
            except OptionError as why:  # the table has no line for it
                print(f"{name}: left out. {why}", flush=True)
            else:
                print(name, flush=True)
        attacks.save(given.attacks, made)
        return
    rows = table(attacks.load(given.attacks), given.counts)
    given.out.with_suffix(".json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    page = given.out.with_suffix(".md")
    page.write_text(between_marks(page.read_text() if page.exists() else f"{START}\n{END}\n", rows))
    print(markdown(rows))


def between_marks(text: str, rows: list[dict]) -> str:
    """The page with this table in the place of the one before."""
    before, rest = text.split(START)
    after = rest.split(END)[1]
    return f"{before}{START}\n{markdown(rows)}{END}{after}"


def table(made, counts: Path) -> list[dict]:
    rows = []
    with np.load(counts) as found:
        for name, what in made.items():
            claim = construct(name).claim
            delta = claim.delta if claim.status != "none" else (DELTA if claim.delta else 0.0)
            hits = Counts(
                found[f"{name}/thresholds"],
                found[f"{name}/train"],
                found[f"{name}/test"],
                tuple(found[f"{name}/train_runs"].tolist()),
                tuple(found[f"{name}/test_runs"].tolist()),
            )
            bound = judge(hits, delta=delta)
            rows.append(
                {
                    "algorithm": name,
                    "status": claim.status,
                    "notion": claim.notion,
                    "claimed_epsilon": claim.epsilon if np.isfinite(claim.epsilon) else None,
                    "requested_epsilon": EPSILON,
                    "delta": delta,
                    "found_epsilon": bound.epsilon,
                    "true_epsilon": true_epsilon(what, delta),
                    "runs_a_side": int(found[f"{name}/runs"]),
                    "seconds": float(found[f"{name}/seconds"]),
                    "confidence": CONFIDENCE,
                    "device": str(found["device"]),
                }
            )
    return rows


def true_epsilon(what, delta: float) -> float | None:
    """The exact ε of the attacked pair where it is known: μ from the shifts of Gaussian noise, their sum for Laplace."""
    if not isinstance(what, attacks.Shifts) or what.certain > 0:
        return None
    if len(what.shifts) == 0:
        return 0.0
    if what.noise == "gaussian":
        return float(epsilon_of(mu=float(np.sqrt((what.shifts**2).sum())), delta=delta))
    return float(what.shifts.sum())


def markdown(rows: list[dict]) -> str:
    runs = max(row["runs_a_side"] for row in rows)
    fewer = [f"`{r['algorithm']}` {r['runs_a_side']:,}" for r in rows if r["runs_a_side"] < runs]
    apart = f" ({', '.join(fewer)})" if fewer else ""
    lines = [
        f"Attacked with {runs:,} runs a side{apart} on one",
        f"{rows[0]['device']}: T = {HORIZON}, d = {DIM}, ε = {EPSILON:g} requested, confidence {CONFIDENCE:g}. Made by",
        "`benchmarks/audit_table.py`.",
        "The likelihood ratio of all releases is the score, a threshold is chosen on half of the runs and tried on the other, and",
        "the bound is Clopper and Pearson's: a found ε above the claimed one would refute the claim; one below it proves nothing.",
        "The exact ε is that of the very pair of streams attacked, where it has a formula.",
        "",
        "| algorithm | status | δ | claimed ε | found ε ≥ | exact ε of the attacked pair | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        claimed = (
            "none"
            if row["claimed_epsilon"] is None or row["status"] == "none"
            else f"{row['claimed_epsilon']:g}"
        )
        exact = "" if row["true_epsilon"] is None else f"{row['true_epsilon']:.3f}"
        flag = " **refuted**" if row["found_epsilon"] > row["requested_epsilon"] else ""
        delta = f"{row['delta']:g}"
        lines.append(
            f"| `{row['algorithm']}` | {row['status']} | {delta} | {claimed} | {row['found_epsilon']:.3f}{flag} | {exact} | "
            f"{row['seconds']:.2f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
