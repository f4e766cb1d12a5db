"""Finished rows of the leaderboard on disk, and all that they depend on.

A stored row is used again only if all it depends on is the same: the line's options, the world, the
range of rewards and the source of everything that makes numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import dpbandit
from dpbandit.worlds import World
from experiments.leaderboard.grid import Budget, Entry, Place

COLUMNS = (
    "world",
    "epsilon",
    "delta",
    "horizon",
    "label",
    "algorithm",
    "seed",
    "reward",
    "regret",
    "claim",
    "key",
    "code",
)
PACKAGE = Path(dpbandit.__file__).parent
# The algorithm that is not of the package.
OUTSIDE = Path(__file__).with_name("references.py")
# Rooms of the package whose text decides no number of the leaderboard.
NEUTRAL = (
    "adapters",
    "auditor",
    "cli",
    "client",
    "gpu",
    "planner",
    "service",
    "warmstart",
)


@dataclass(frozen=True)
class Cell:
    """One world, budget and horizon; the references' cells have no budget."""

    place: Place
    budget: Budget | None
    horizon: int

    @property
    def file(self) -> str:
        """Where its rows are kept."""
        setting = (
            "reference"
            if self.budget is None
            else f"eps{self.budget.epsilon:g}-delta{self.budget.delta:g}"
        )
        return f"{self.place.name}-{setting}-{self.horizon}.parquet"

    def __str__(self) -> str:
        return (
            f"{self.place.name}, {'references' if self.budget is None else self.budget}, "
            f"{self.horizon:,} rounds"
        )


def key(cell: Cell, world: World, entry: Entry, version: str) -> str:
    """All that a row's numbers depend on, besides its seed, as one short word."""
    parts = [
        repr(world),
        cell.place.reward_range,
        cell.budget,
        cell.horizon,
        entry.algorithm,
        dict(entry.options),
        version,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def code_version(package: Path = PACKAGE) -> str:
    """A fingerprint of the source that decides the numbers, with the compiled core's beside it.

    >>> len(code_version())
    16
    """
    found = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.parent.glob("core/**/*.[ch]pp")]):
        name = path.relative_to(package.parent)
        if name.parts[1] not in NEUTRAL:
            found.update(str(name).encode() + path.read_bytes())
    found.update(OUTSIDE.read_bytes())
    return found.hexdigest()[:16]


def stored(path: Path, wanted: dict[str, tuple[Entry, str]]) -> pd.DataFrame:
    """Rows of a file with these keys, each of a line and a code version; of a seed that both have, the
    first key's.
    """
    if not path.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    frame = pd.read_parquet(path)
    frame = frame[frame["key"].isin(wanted)]
    found = frame.assign(
        label=frame["key"].map({k: entry.label for k, (entry, _) in wanted.items()}),
        code=frame["key"].map({k: code for k, (_, code) in wanted.items()}),
    )
    order = {k: place for place, k in enumerate(wanted)}
    found = found.sort_values("key", key=lambda keys: keys.map(order), kind="stable")
    return found.drop_duplicates(["label", "seed"])


def store(path: Path, found: pd.DataFrame) -> None:
    """Add rows to a file, which is replaced as a whole: it is never half written. Rows of other
    options stay.
    """
    if not len(found):
        return
    old = pd.read_parquet(path) if path.exists() else found.iloc[:0]
    both = pd.concat([part for part in (old, found) if len(part)], ignore_index=True)
    temporary = path.with_suffix(".part")
    both.drop_duplicates(["key", "seed"], keep="last").to_parquet(temporary)
    os.replace(temporary, path)
