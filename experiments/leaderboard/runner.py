"""Runs the cells (world, budget, horizon) that are missing, side by side, and keeps every finished
seed in a file.

An interrupted run goes on where it stopped, with the same results (`store`).
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpbandit import spread
from dpbandit.algorithms import registry
from dpbandit.errors import DpbanditError, PrivacyWarning
from dpbandit.simulate.results import Results
from dpbandit.simulate.run import Match, play_all, prepare
from dpbandit.worlds import World
from experiments.leaderboard import grid, logged, published, references, store
from experiments.leaderboard.grid import ROUNDS, SETTING, Budget, Entry, Place, Profile
from experiments.leaderboard.store import COLUMNS, Cell, code_version, key

# What has a table of its own on the page, by the name it is asked for.
SECTIONS = {section.NAME: section for section in (published, logged)}
# Called with what is being played, and the work done and in all (in units of its own).
Progress = Callable[[str, float, float], None]


@dataclass
class Run:
    """What a run of the leaderboard left: a row for every line, cell and seed, and what is not
    there and why.
    """

    profile: Profile
    places: list[Place]
    entries: list[Entry]
    rows: pd.DataFrame
    skipped: list[tuple[str, str, str]] = field(default_factory=list)  # world, label, reason
    left_out: list[str] = field(default_factory=list)
    complete: bool = True
    seconds: float = 0.0
    kept: list[Place] = field(default_factory=list)  # worlds with cells of an earlier table
    sections: dict[str, pd.DataFrame] = field(default_factory=dict)  # by name: what no cell holds
    code: str = ""  # that played what is new

    @property
    def shown(self) -> list[Place]:
        """All worlds of the page, in its order."""
        return [p for p in grid.PLACES.values() if p in self.places or p in self.kept]


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
    older: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Play every cell that is not in `folder` yet. Ctrl-C stops; what is finished is stored and
    returned.

    `cluster` spreads cells and seeds over a Ray cluster. `older` names a version of the code whose
    rows are good enough: those of each world and line of which today's code repeats the first seed
    at the fewest rounds, to the last bit.

    >>> import tempfile
    >>> tiny = Profile("tiny", {50: 2}, {50: 2}, (Budget(2.0, 1e-5),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = play(folder, tiny, worlds=["synthetic"], algorithms=["tree-gauss"])
    >>> done.complete, {"random", "tree-gauss"} <= set(done.rows["label"])
    (True, True)
    """
    references.register()
    cells_folder = Path(folder) / "cells"
    cells_folder.mkdir(parents=True, exist_ok=True)
    wanted = None if worlds is None else list(worlds)
    simulated = None if wanted is None else [name for name in wanted if name not in SECTIONS]
    result = Run(
        size, grid.places(simulated), grid.entries(algorithms), pd.DataFrame(columns=list(COLUMNS))
    )
    start, version = time.monotonic(), code_version()
    result.code = version
    say = progress or (lambda what, done, total: None)
    parts: list[pd.DataFrame] = []
    todo: list[Task] = []

    def keep(task: Task, found: pd.DataFrame) -> None:
        parts.append(found)
        store.store(cells_folder / task.cell.file, found)

    try:
        say("looking at what is there", 0.0, 1.0)
        for place in result.places:
            opened = _open(place, size.seeds, result)
            if not opened:
                continue
            fit = _fitting(place, next(iter(opened.values())), result)
            cells = _cells(place, fit, size)
            again = _repeated(cells_folder, cells, opened, older, version) if older else set()
            for cell, lines in cells:
                world = opened[cell.horizon]
                counts = {e.label: grid.seeds_for(size, e, place, cell.horizon) for e in lines}
                wanted_keys = {key(cell, world, e, version): (e, version) for e in lines}
                if older:
                    good = [e for e in lines if e.label in again]
                    wanted_keys |= {key(cell, world, e, older): (e, older) for e in good}
                stored = store.stored(cells_folder / cell.file, wanted_keys)
                within = [
                    seed < counts[label]
                    for seed, label in zip(stored["seed"], stored["label"], strict=True)
                ]
                stored = stored.loc[np.array(within, dtype=bool)]
                todo += _missing(cell, world, lines, stored, counts)
                parts.append(stored)
        todo.sort(key=_when)
        total = sum(task.weight for task in todo)
        if todo:
            with spread.over(cluster, workers) as where:
                _play(todo, where, version, lambda what, done: say(what, done, total), keep)
        for name, section in SECTIONS.items():
            if wanted is None or name in wanted:
                say(section.TITLE, total, total)
                rows, why_not = section.play(cells_folder)
                result.left_out += [why_not] if rows is None else []
                result.sections |= {} if rows is None else {name: rows}
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


def _repeated(
    folder: Path,
    cells: list[tuple[Cell, list[Entry]]],
    opened: dict[int, World],
    older: str,
    version: str,
) -> set[str]:
    """Lines of a world of which an older code's first seed, at the fewest rounds, is the same today."""
    found: set[str] = set()
    fewest = min(opened)
    for cell, lines in cells:
        if cell.horizon != fewest or cell.budget not in (None, SETTING):
            continue
        keys = {key(cell, opened[fewest], e, older): (e, older) for e in lines}
        before = store.stored(folder / cell.file, keys)
        before = before[before["seed"] == 0].set_index("label")
        there = [e for e in lines if e.label in before.index]
        if not there:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            with spread.over(None, 1) as where:
                task = Task(cell, opened[fewest], there, (0,))
                results = play_all([_match(task)], where, lambda number, rounds: None)
        today = _rows(task, version, results[0]).set_index("label")
        numbers = ["reward", "regret"]
        for entry in there:
            then, now = (
                np.array(rows.loc[entry.label, numbers], float) for rows in (before, today)
            )
            if np.array_equal(then, now, equal_nan=True):
                found.add(entry.label)
    return found


def _when(task: Task) -> tuple[bool, bool, int]:
    """What the page begins with is played first, in case nobody waits for the rest."""
    cell = task.cell
    aside = cell.budget is not None and cell.budget != SETTING
    return aside, cell.horizon not in ROUNDS, cell.horizon


def _open(place: Place, sizes: Iterable[int], result: Run) -> dict[int, World]:
    """The world for each number of rounds, or none where its data are not there."""
    try:
        return {rounds: place.make(rounds) for rounds in sizes}
    except (FileNotFoundError, ImportError) as missing:
        result.left_out.append(f"{place.title}: {missing}")
        return {}


def _fitting(place: Place, world: World, result: Run) -> list[Entry]:
    """The lines that can play this world; for the others, why not."""
    episode = world.episode(0)
    contexts = episode.block(1)
    fit = []
    for entry in result.entries:
        given = {
            "dim": world.dim,
            "horizon": 1_000,
            "epsilon": 1.0,
            "delta": 1e-6,
            "reward_range": place.reward_range,
            "public_contexts": getattr(episode, "public_contexts", None),
            "seed": 0,
            **entry.options,
        }
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
    found = []
    for horizon in size.seeds:
        found.append((Cell(place, None, horizon), list(grid.references(place))))
        found += [(Cell(place, budget, horizon), fit) for budget in size.budgets]
    return found


def _missing(
    cell: Cell, world: World, lines: list[Entry], stored: pd.DataFrame, counts: dict[str, int]
) -> list[Task]:
    """What is not stored. Lines that miss the same seeds go together: they share the making of the
    world's rounds.
    """
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
    """Play the tasks and keep the rows of each as soon as it is finished; what there is of the
    others when interrupted.
    """
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
        world=cell.place.name,
        epsilon=budget.epsilon,
        delta=budget.delta,
        horizon=cell.horizon,
        label=label,
        algorithm=label.map(names),
        claim=label.map(claims),
        key=label.map(keys),
        code=version,
    )[list(COLUMNS)]


def _brief(claim: Any) -> dict[str, Any] | None:
    """A claim without its assumptions, which may name a seed's own contexts."""
    return (
        None if claim is None else {k: v for k, v in claim.to_dict().items() if k != "assumptions"}
    )
