"""Runs the cells (world, budget, horizon) that are missing, side by side, and keeps every finished seed in a file.

A stored row is used again only if all it depends on is the same: the line's options, the world, the range of rewards and the
source of everything that makes numbers. An interrupted run therefore goes on where it stopped, with the same results.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpbandit
from dpbandit import spread
from dpbandit.bandits import registry
from dpbandit.errors import DpbanditError, PrivacyWarning
from dpbandit.lab.engine import Match, play_all, prepare
from dpbandit.lab.results import Results
from dpbandit.worlds import World
from experiments.leaderboard import grid
from experiments.leaderboard.grid import Budget, Entry, Place, Profile

# Called with what is being played, and the work done and in all (in units of its own).
Progress = Callable[[str, float, float], None]

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
)
PACKAGE = Path(dpbandit.__file__).parent
# Rooms of the package whose text decides no number of the leaderboard.
NEUTRAL = (
    "adapters", "audit", "auditing", "cli", "client", "gpu", "plan", "planning", "service", "warmstart",
)  # fmt: skip


@dataclass
class Run:
    """What a run of the leaderboard left: a row for every line, cell and seed, and what is not there and why."""

    profile: Profile
    places: list[Place]
    entries: list[Entry]
    rows: pd.DataFrame
    skipped: list[tuple[str, str, str]] = field(default_factory=list)  # world, label, reason
    left_out: list[str] = field(default_factory=list)
    complete: bool = True
    seconds: float = 0.0


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
        return f"{self.place.name}, {'references' if self.budget is None else self.budget}, {self.horizon:,} rounds"


@dataclass(frozen=True)
class Task:
    """Lines and seeds of a cell that are still to be played."""

    cell: Cell
    world: World
    entries: list[Entry]
    seeds: tuple[int, ...]

    @property
    def weight(self) -> float:
        """About how long it takes, in units of its own."""
        each = sum(grid.work(entry, self.cell.place) for entry in self.entries)
        return len(self.seeds) * self.cell.horizon * each


def play(
    folder: str | Path,
    size: Profile,
    *,
    worlds: Iterable[str] | None = None,
    algorithms: Iterable[str] | None = None,
    workers: int | None = None,
    cluster: str | spread.Place | None = None,
    progress: Progress | None = None,
) -> Run:
    """Play every cell that is not in `folder` yet. Ctrl-C stops; what is finished is stored and returned.

    `cluster` spreads cells and seeds over a Ray cluster.

    >>> import tempfile
    >>> tiny = Profile("tiny", {50: 2}, {50: 2}, (Budget(2.0, 1e-5),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = play(folder, tiny, worlds=["synthetic"], algorithms=["tree-gauss"])
    >>> done.complete, sorted(set(done.rows["label"]))[:3]
    (True, ['linucb', 'random', 'tree-gauss'])
    """
    cells_folder = Path(folder) / "cells"
    cells_folder.mkdir(parents=True, exist_ok=True)
    result = Run(
        size, grid.places(worlds), grid.entries(algorithms), pd.DataFrame(columns=list(COLUMNS))
    )
    start, version = time.monotonic(), code_version()
    say = progress or (lambda what, done, total: None)
    parts: list[pd.DataFrame] = []
    todo: list[Task] = []

    def keep(task: Task, found: pd.DataFrame) -> None:
        parts.append(found)
        _store(cells_folder / task.cell.file, found)

    try:
        say("looking at what is there", 0.0, 1.0)
        for place in result.places:
            world = _open(place, result)
            if world is None:
                continue
            fit = _fitting(place, world, result)
            for cell, lines in _cells(place, fit, size):
                counts = {e.label: grid.seeds_for(size, e, place, cell.horizon) for e in lines}
                stored = _stored(
                    cells_folder / cell.file, {key(cell, world, e, version): e for e in lines}
                )
                within = [
                    seed < counts[label]
                    for seed, label in zip(stored["seed"], stored["label"], strict=True)
                ]
                stored = stored.loc[np.array(within, dtype=bool)]
                todo += _missing(cell, world, lines, stored, counts)
                parts.append(stored)
        total = sum(task.weight for task in todo)
        if todo:
            with spread.over(cluster, workers) as where:
                _play(todo, where, version, lambda what, done: say(what, done, total), keep)
        say("done", total, total)
    except KeyboardInterrupt:
        result.complete = False
        result.left_out.append("interrupted: run the same command again to go on from here")
    filled = [part for part in parts if len(part)]
    if filled:
        result.rows = pd.concat(filled, ignore_index=True).sort_values(
            list(COLUMNS[:7]), kind="stable", ignore_index=True
        )
    result.seconds = time.monotonic() - start
    return result


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
    return found.hexdigest()[:16]


def _open(place: Place, result: Run) -> World | None:
    try:
        return place.make()
    except FileNotFoundError as missing:
        result.left_out.append(f"{place.title}: {missing}")
        return None


def _fitting(place: Place, world: World, result: Run) -> list[Entry]:
    """The lines that can play this world; for the others, why not."""
    episode = world.episode(0)
    contexts = episode.block(1)
    fit = []
    for entry in result.entries:
        given = {
            "dim": world.dim, "horizon": 1_000, "epsilon": 1.0, "delta": 1e-6, "reward_range": place.reward_range,
            "public_contexts": getattr(episode, "public_contexts", None), "seed": 0, **entry.options,
        }  # fmt: skip
        try:
            bandit = registry.construct(entry.algorithm, given)
            check = getattr(bandit, "check_contexts", None)
            if check is not None:
                check(contexts.pool[contexts.shown[0]])
        except DpbanditError as error:
            result.skipped.append((place.name, entry.label, str(error)))
        else:
            fit.append(entry)
    return fit


def _cells(place: Place, fit: list[Entry], size: Profile) -> list[tuple[Cell, list[Entry]]]:
    references = [Entry(name, name) for name in grid.REFERENCES]
    found = []
    for horizon in size.seeds:
        found.append((Cell(place, None, horizon), references))
        found += [(Cell(place, budget, horizon), fit) for budget in size.budgets]
    return found


def _missing(
    cell: Cell, world: World, lines: list[Entry], stored: pd.DataFrame, counts: dict[str, int]
) -> list[Task]:
    """What is not stored. Lines that miss the same seeds go together: they share the making of the world's rounds."""
    groups: dict[tuple[int, ...], list[Entry]] = {}
    for entry in lines:
        have = set(stored.loc[stored["label"] == entry.label, "seed"])
        seeds = tuple(seed for seed in range(counts[entry.label]) if seed not in have)
        if seeds:
            groups.setdefault(seeds, []).append(entry)
    return [Task(cell, world, group, seeds) for seeds, group in groups.items()]


def _play(
    todo: list[Task],
    where: spread.Place,
    version: str,
    say: Callable[[str, float], None],
    keep: Callable[[Task, pd.DataFrame], None],
) -> None:
    """Play the tasks and keep the rows of each as soon as it is finished; what there is of the others when interrupted."""
    done, lock = 0.0, threading.Lock()
    sizes: list[int] = []

    def matches() -> Iterator[Match]:
        for task in todo:
            match = _match(task)
            sizes.append(match.size)
            yield match

    def advance(number: int, rounds: int) -> None:
        nonlocal done
        with lock:
            done += todo[number].weight * rounds / sizes[number]
            say(str(todo[number].cell), done)

    def finished(number: int, results: Results) -> None:
        keep(todo[number], _rows(todo[number], version, results))

    with warnings.catch_warnings():
        # The paper's δ is one of the settings; the page says what it is worth.
        warnings.simplefilter("ignore", PrivacyWarning)
        results = play_all(matches(), where, advance, finished, among=len(todo))
    if len(results) < len(todo) or not all(found.complete for found in results):
        raise KeyboardInterrupt


def _match(task: Task) -> Match:
    options: dict[str, Any] = {"reward_range": task.cell.place.reward_range}
    if task.cell.budget is not None:
        options |= task.cell.budget._asdict()
    jobs = {entry.label: (entry.algorithm, entry.options) for entry in task.entries}
    return prepare(
        task.world, jobs, horizon=task.cell.horizon, seeds=task.seeds, record=[], **options
    )


def _rows(task: Task, version: str, results: Results) -> pd.DataFrame:
    """The task's rows, as they are stored."""
    cell, group, frame = task.cell, task.entries, results.frame()
    keys = {entry.label: key(cell, task.world, entry, version) for entry in group}
    claims = {
        label: json.dumps(_brief(claim), ensure_ascii=False)
        for label, claim in results.claims.items()
    }
    names = {entry.label: entry.algorithm for entry in group}
    budget = cell.budget or Budget(float("nan"), float("nan"))
    label = frame["algorithm"]
    return frame.assign(
        world=cell.place.name, epsilon=budget.epsilon, delta=budget.delta, horizon=cell.horizon, label=label,
        algorithm=label.map(names), claim=label.map(claims), key=label.map(keys),
    )[list(COLUMNS)]  # fmt: skip


def _brief(claim: Any) -> dict[str, Any] | None:
    """A claim without its assumptions, which may name a seed's own contexts."""
    return (
        None if claim is None else {k: v for k, v in claim.to_dict().items() if k != "assumptions"}
    )


def _stored(path: Path, wanted: dict[str, Entry]) -> pd.DataFrame:
    """Rows of a file that belong to these lines exactly as they would be played now."""
    if not path.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    frame = pd.read_parquet(path)
    frame = frame[frame["key"].isin(wanted)]
    return frame.assign(label=frame["key"].map({k: entry.label for k, entry in wanted.items()}))


def _store(path: Path, found: pd.DataFrame) -> None:
    """Add rows to a file, which is replaced as a whole: it is never half written. Rows of other options stay."""
    if not len(found):
        return
    old = pd.read_parquet(path) if path.exists() else found.iloc[:0]
    both = pd.concat([part for part in (old, found) if len(part)], ignore_index=True)
    temporary = path.with_suffix(".part")
    both.drop_duplicates(["key", "seed"], keep="last").to_parquet(temporary)
    os.replace(temporary, path)
