"""What is read: the leaderboard's standings, the attacks, and how many bugs were planted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.leaderboard import grid

DOCS = Path(__file__).parents[2] / "docs"
EPSILON, DELTA, ROUNDS = 1.0, 1e-6, 10_000
DEFAULT = "anytime"


def everything() -> dict[str, Any]:
    return {"leaderboard": leaderboard(), "audits": audits(), "planted": planted()}


def leaderboard() -> dict[str, Any]:
    """One row for each world: LinUCB, random play, the default, the best proven line, and the best
    whose contexts are private. As added regret; on LastFM as lost reward."""
    table = pd.read_csv(DOCS / "leaderboard.csv")
    here = table[(table["epsilon"] == EPSILON) & (table["delta"] == DELTA)]
    here = here[(here["horizon"] == ROUNDS) & (here["status"] == "proven")]
    rows, ahead, within = [], 0, 0
    for world in (name for name in grid.PLACES if name in set(here["world"])):
        part = here[here["world"] == world]
        best = part.sort_values("rank").iloc[0]
        default = part[part["label"] == DEFAULT].iloc[0]
        joint = part[part["notion"] == "joint"].sort_values("rank").iloc[0]
        ahead += bool(default["rank"] == 1 or default["tied"])
        within += bool(default["added"] <= best["added"] + 0.1 * best["random"])
        rows.append(
            {
                "world": grid.PLACES[world].title,
                "measure": str(best["measure"]),
                "seeds": int(best["seeds"]),
                "linucb": float(best["linucb"]),
                "random": float(best["random"]),
                "default": _cell(default),
                "best": {**_cell(best), "label": str(best["label"])},
                "joint": {**_cell(joint), "label": str(joint["label"])},
            }
        )
    return {
        "epsilon": EPSILON,
        "delta": DELTA,
        "horizon": ROUNDS,
        "worlds": len(rows),
        "ahead": ahead,
        "within": within,
        "lines": int(table["label"].nunique()),
        "rows": rows,
    }


def _cell(row: pd.Series[Any]) -> dict[str, float]:
    return {"mean": float(row["added"]), "se": float(row["added_se"])}


def audits() -> dict[str, Any]:
    """What attacks found, from docs/audits.json."""
    found = json.loads((DOCS / "audits.json").read_text())
    rows = [
        {
            "algorithm": one["algorithm"],
            "status": one["status"],
            "claimed": one["claimed_epsilon"],
            "delta": one["delta"],
            "found": one["found_epsilon"],
            "exact": one["true_epsilon"],
        }
        for one in found
        if one["algorithm"] not in ("random", "linucb")
    ]
    return {"runs": found[0]["runs_a_side"], "confidence": found[0]["confidence"], "rows": rows}


def planted() -> int:
    """How many rows the table of planted bugs has."""
    page = (DOCS / "privacy.md").read_text()
    part = re.search(r"<!-- planted bugs: start -->(.*?)<!-- planted bugs: end -->", page, re.S)
    if part is None:
        raise ValueError("docs/privacy.md has no table of planted bugs")
    return part.group(1).strip().count("\n") - 1
