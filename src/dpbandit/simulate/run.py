"""Runs algorithms × seeds on one world, in compiled loops over all cores of this machine or a
cluster.

All algorithms of a seed play the same contexts and reward noise. A result depends only on its seed
and options, not on the number of cores or on other work. Memory grows with the recorded rows, not
with rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit import spread
from dpbandit.algorithms import registry
from dpbandit.errors import OptionError
from dpbandit.gpu.machines import DEVICES
from dpbandit.options import whole
from dpbandit.simulate.jobs import Job, named, share_out
from dpbandit.simulate.players import new_bandit, new_player
from dpbandit.simulate.results import Results
from dpbandit.spread import Place, Task, Tell
from dpbandit.worlds.block import World

BLOCK = 4096
CHUNK = 1 << 16  # rounds played in one call of the core: few enough that Ctrl-C is heard
RECORDED = 200

Progress = Callable[[int, int], None]


def run(
    world: World,
    algorithms: Sequence[str | tuple[str, Mapping[str, Any]]]
    | Mapping[str, tuple[str, Mapping[str, Any]]],
    *,
    horizon: int | None = None,
    seeds: int | Iterable[int] = 20,
    record: Iterable[int] | None = None,
    workers: int | None = None,
    cluster: str | Place | None = None,
    device: str = "cpu",
    progress: bool | Progress = False,
    **options: Any,
) -> Results:
    """Play every algorithm on every seed and return the recorded rounds.

    Private algorithms also get the world's public contexts and, unless you give one, its range of
    rewards. Ctrl-C returns finished work.

    Parameters
    ----------
    world : World
        One of `dpb.worlds`, or one of your own.
    algorithms : list of names or (name, options), or dict
        A pair gives one algorithm its own options. A mapping {label: (name, options)} runs one
        algorithm under several labels.
    horizon : int, optional
        Rounds to play. Default: all that the world has.
    seeds : int or list of int, default 20
        Their number, counted from 0, or the seeds themselves.
    record : list of int, optional
        The rounds to record. Default: up to 200, spread over the horizon.
    workers : int, optional
        How many tasks run at a time. Default: one per core.
    cluster : str, optional
        Spread the work over a Ray cluster ("local", "auto" or its address), with the same numbers.
    device : {'cpu', 'cuda'}, default 'cpu'
        "cuda" plays the paper's simulation on a GPU, in single precision and with other draws.
        Results agree with the CPU's statistically, not seed by seed, and replications of 128
        neighbouring seeds share a pool of arms.
    progress : bool or callable, default False
        True draws a bar; a function is called with (rounds done, total rounds).
    **options
        Options of `dpb.make`, for every algorithm that has them.

    Returns
    -------
    Results
        `summary()`, `plot()`, `frame()`, `save(folder)`.

    Raises
    ------
    OptionError, UnknownAlgorithmError
        If an argument is not allowed; before any work starts.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> results = dpb.run(dpb.worlds.Synthetic(), ["random", "linucb"], horizon=500, seeds=2)
    >>> list(results.summary().index)
    ['linucb', 'random']
    """
    if device not in (*DEVICES, "host"):
        raise OptionError(f"device must be 'cpu' or 'cuda', not {device!r}")
    if cluster is not None and device != "cpu":
        raise OptionError("a GPU needs no cluster: omit device or cluster")
    match = prepare(world, algorithms, horizon=horizon, seeds=seeds, record=record, **options)
    if device != "cpu":
        from dpbandit.simulate.on_gpu import play_jobs

        with spread.over(None, 1) as place, _bar(progress, match.size, place) as advance:
            play_jobs(match, device, advance)
        return match.results
    with spread.over(cluster, workers) as place, _bar(progress, match.size, place) as advance:
        (results,) = play_all([match], place, lambda _, rounds: advance(rounds))
    return results


@dataclass(frozen=True)
class Game:
    """The data shared by all tasks of a match."""

    world: World
    jobs: list[Job]
    algorithms: dict[str, registry.Algorithm]
    horizon: int
    rounds: NDArray[np.int64]


@dataclass(frozen=True)
class Match:
    """A checked comparison, ready to play: a game, its seeds, and empty results."""

    game: Game
    seeds: list[int]
    results: Results

    @property
    def size(self) -> int:
        """Total rounds."""
        return self.game.horizon * len(self.game.jobs) * len(self.seeds)


def prepare(
    world: World,
    algorithms: Any,
    *,
    horizon: int | None = None,
    seeds: int | Iterable[int] = 20,
    record: Iterable[int] | None = None,
    **options: Any,
) -> Match:
    """Check all arguments of `run`; every option error and warning is raised here, before work
    starts."""
    if not hasattr(world, "episode"):
        raise OptionError(
            f"{world!r} is not a world: give an object such as dpb.worlds.Synthetic() (all of them: "
            "dir(dpb.worlds))"
        )
    limit = world.rounds
    if horizon is None:
        if limit is None:
            raise OptionError(f"{world!r} has no end: give a horizon, for example horizon=10_000")
        horizon = limit
    horizon = whole("horizon", horizon, least=1)
    if limit is not None and horizon > limit:
        raise OptionError(
            f"{world!r} has {limit} rounds: horizon must be at most that, not {horizon}"
        )
    numbers = _seeds(seeds)
    jobs = _in_range_of(world, _jobs(algorithms, options))
    rounds = _recorded(horizon, record)
    plain = {name: value for name, value in options.items() if not isinstance(value, np.ndarray)}
    results = Results(repr(world), horizon, plain, _claims(world, jobs, numbers[0], horizon))
    entries = {name: registry.find(name) for _, name, _ in jobs}
    return Match(Game(world, jobs, entries, horizon, rounds), numbers, results)


def play_all(
    matches: Iterable[Match],
    place: Place,
    advance: Callable[[int, int], None],
    finished: Callable[[int, Results], None] = lambda number, results: None,
    *,
    among: int = 1,
) -> list[Results]:
    """Play matches side by side, starting each when there is room; `among` is their number. Ctrl-C
    stops.

    `advance` is called with a match's number and the rounds played. `finished` is called with each
    match's results once they are complete, and at the end with the partial results of the others.
    """
    begun: list[Match] = []
    found: list[list[dict[str, Any]]] = []
    missing: list[int] = []
    owners: list[int] = []  # of each task, the match it belongs to

    def tasks() -> Iterator[Task]:
        for number, match in enumerate(matches):
            parts = _tasks(len(match.game.jobs), match.seeds, place.cores // among)
            begun.append(match)
            found.append([])
            missing.append(len(parts))
            for seed, jobs in parts:
                owners.append(number)
                yield Task(match.game, (seed, jobs), match.game.horizon * len(jobs))

    def finish(number: int) -> None:
        match = begun[number]
        order = {label: at for at, (label, _, _) in enumerate(match.game.jobs)}
        match.results.rows = sorted(
            found[number], key=lambda row: (row["seed"], order[row["algorithm"]])
        )
        match.results.complete = not missing[number]
        finished(number, match.results)
        handed.add(number)

    handed = set[int]()
    try:
        with closing(
            place.each(_play_seed, tasks(), lambda task, rounds: advance(owners[task], rounds))
        ) as done:
            for task, rows in done:
                number = owners[task]
                found[number] += rows
                missing[number] -= 1
                if not missing[number]:
                    finish(number)
    except KeyboardInterrupt:
        for number in range(len(begun)):
            if number not in handed:
                finish(number)
    return [match.results for match in begun]


def _play_seed(game: Game, own: tuple[int, range], tell: Tell) -> list[dict[str, Any]]:
    """One task: some algorithms on one seed."""
    registry.know(game.algorithms)
    seed, chosen = own
    world, horizon, rounds = game.world, game.horizon, game.rounds
    episode = world.episode(seed)
    players = [new_player(game.jobs[job], world, episode, seed, horizon, rounds) for job in chosen]
    inside = [player for player in players if player.draws_itself(episode)]
    for player in inside:
        for start in range(0, horizon, CHUNK):
            count = min(CHUNK, horizon - start)
            player.play_episode(episode, start, count)
            tell(count)
    others = [player for player in players if player not in inside]
    for start in range(0, horizon if others else 0, BLOCK):
        block = episode.block(min(BLOCK, horizon - start))
        for player in others:
            player.play(block, start)
            tell(len(block.shown))
    return [{"algorithm": p.label, "seed": seed, "round": rounds, **p.columns()} for p in players]


def _jobs(algorithms: Any, options: dict[str, Any]) -> list[Job]:
    wanted: list[Job]
    if isinstance(algorithms, Mapping):
        wanted = [
            (label, *pair)
            for label, pair in zip(algorithms, named([*algorithms.values()]), strict=True)
        ]
    else:
        wanted = [(name, name, own) for name, own in named(algorithms)]
    labels = [label for label, _, _ in wanted]
    if len(set(labels)) < len(labels):
        raise OptionError(
            f"the labels {labels} repeat: use a mapping {{label: (name, options)}} to tell them apart"
        )
    for forbidden in ("seed", "dim", "horizon"):
        for label, _, own in wanted:
            if own.get(forbidden) is not None:
                raise OptionError(
                    f"run sets {forbidden!r} itself, for all algorithms alike: omit it from {label!r}'s options"
                )
        if forbidden in options:
            raise OptionError(f"run sets {forbidden!r} itself: omit it (give seeds as seeds=...)")
    return share_out(options, wanted)


def _in_range_of(world: World, jobs: list[Job]) -> list[Job]:
    """The jobs, clipping to the world's own range of rewards unless another was given."""
    own = getattr(world, "reward_range", None)
    if own is None:
        return jobs
    return [
        (
            label,
            name,
            options if registry.find(name).black_box else {"reward_range": own, **options},
        )
        for label, name, options in jobs
    ]


def _claims(world: World, jobs: list[Job], seed: int, horizon: int) -> dict[str, Any]:
    """Each algorithm's claim; making them once here also raises every option error and warning before work starts."""
    episode = world.episode(seed)
    claims = {}
    for label, name, options in jobs:
        bandit = new_bandit(name, options, world, episode, seed, horizon)
        registry.warn_of_no_range(bandit, options)
        claims[label] = getattr(bandit, "claim", None)
    with_delta = [claim for claim in claims.values() if claim is not None]
    if with_delta:
        registry.warn_of_large_delta(max(with_delta, key=lambda claim: float(claim.delta)), horizon)
    return claims


def _seeds(seeds: int | Iterable[int]) -> list[int]:
    numbers = (
        [int(s) for s in seeds]
        if isinstance(seeds, Iterable) and not isinstance(seeds, str)
        else list(range(whole("seeds", seeds, least=1)))
    )
    if not numbers or len(set(numbers)) < len(numbers):
        raise OptionError(
            f"seeds must be a count of at least 1, or different numbers, not {seeds!r}"
        )
    return numbers


def _recorded(horizon: int, record: Iterable[int] | None) -> NDArray[np.int64]:
    if record is None:
        even = np.linspace(1, horizon, RECORDED // 2)
        early = np.geomspace(1, horizon, RECORDED // 2)
        wanted: Any = np.rint(np.concatenate([even, early]))
    else:
        wanted = list(record)
    rounds = np.unique(np.append(np.asarray(wanted, dtype=np.int64), horizon))
    if rounds[0] < 1 or rounds[-1] > horizon:
        raise OptionError(f"record must hold rounds from 1 to {horizon}")
    return rounds


def _tasks(jobs: int, seeds: list[int], cores: int) -> list[tuple[int, range]]:
    """One task per seed; with fewer seeds than cores, the algorithms of a seed are split up too."""
    groups = max(1, min(jobs, cores // len(seeds)))
    return [(seed, range(part, jobs, groups)) for seed in seeds for part in range(groups)]


@contextmanager
def _bar(progress: bool | Progress, total: int, place: Place) -> Iterator[Callable[[int], None]]:
    """A function to call with rounds played, from any thread: it draws a bar, or calls
    `progress`."""
    drawn: Any = None
    if progress is True:
        from rich import progress as rich
        from rich.console import Console

        kinds = rich.BarColumn, rich.TaskProgressColumn, rich.TimeRemainingColumn
        columns = [rich.TextColumn("{task.description}"), *(kind() for kind in kinds)]
        drawn = rich.Progress(*columns, console=Console(stderr=True), transient=True)
        task = drawn.add_task(place.preparing, total=total)

    def told(done: int) -> None:
        if drawn is not None:
            drawn.update(task, completed=done, description=place.playing)
        elif callable(progress):
            progress(done, total)

    with drawn or nullcontext():
        yield spread.adding_up(told)
