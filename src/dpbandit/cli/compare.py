"""`dpbandit algorithms` and `dpbandit run`: the algorithms, and how they compare on simulations."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from dpbandit import defaults
from dpbandit.cli import extras
from dpbandit.cli import names as known_names
from dpbandit.cli.options import Cluster, Device, Json
from dpbandit.cli.shared import (
    INTERRUPTED,
    app,
    err,
    interrupted,
    new_table,
    note,
    out,
    print_json,
    print_table,
    room_for,
    say,
)

if TYPE_CHECKING:
    from dpbandit.simulate.results import Results

# Names on the command line; each is a class in dpbandit.worlds that takes arms, dim, shown and reward_noise.
WORLDS = {"synthetic": "Synthetic", "drifting": "Drifting", "degenerate": "Degenerate"}


@app.command()
def algorithms(json_: Json = False) -> None:
    """List the algorithms, with their claims and references.

    [dim]Example:[/dim]  dpbandit algorithms --json
    """
    from rich.markup import escape

    if json_:
        print_json({name: line._asdict() for name, line in known_names.algorithms().items()})
        return
    for name, algorithm in known_names.algorithms().items():
        out.print(f"[bold]{name}[/bold]  {escape(algorithm.description)}", highlight=False)
        out.print(
            f"    claim: {escape(algorithm.claim)}   [dim]{escape(algorithm.reference)}[/dim]",
            highlight=False,
        )


@app.command()
def run(
    names: list[str] | None = Argument(
        None,
        help="Algorithms to compare; default: all that take contexts with features.",
        metavar="ALGORITHM",
        autocompletion=known_names.algorithm,
    ),
    world_name: str = Option(
        "synthetic",
        "--world",
        help="synthetic (the paper's), drifting (the contexts change over time) or degenerate (they lack diversity).",
        autocompletion=known_names.world,
    ),
    epsilon: float = Option(defaults.EPSILON, help="Privacy: smaller is stronger."),
    delta: float = Option(
        defaults.DELTA,
        help="Failure probability of the promise; the paper's 0.1 is far too large to protect people.",
    ),
    horizon: int = Option(defaults.HORIZON, help="Rounds."),
    unknown_horizon: bool = Option(
        False, "--unknown-horizon", help="Do not tell the algorithms the number of rounds."
    ),
    seeds: int = Option(20, help="Repetitions, each with its own world and noise."),
    alpha: str = Option(
        "0.3", help="Width of the confidence bonus: a number, or 'theory' for Lemma 2."
    ),
    ridge: float = Option(1.0, help="Ridge regularisation λ."),
    reward_range: tuple[float, float] | None = Option(
        None,
        help="Private algorithms clip rewards to this range; default: the world's, -0.5 1.5.",
        metavar="LOW HIGH",
    ),
    noise: str | None = Option(
        None,
        help="gaussian, laplace or laplace-l2, for the algorithms that allow it.",
        autocompletion=known_names.one_of("gaussian", "laplace", "laplace-l2"),
    ),
    context_noise: float = Option(0.0, help="Perturb contexts by N(0, σ²) (Corollary 1)."),
    arms: int = Option(1000, help="Arms in the pool."),
    dim: int = Option(defaults.DIM, help="Features per arm."),
    shown: int = Option(10, help="Arms shown each round."),
    reward_noise: float = Option(0.5, help="Standard deviation of reward noise."),
    workers: int | None = Option(
        None, help="Cores to use; default: all. Results do not depend on it."
    ),
    cluster: Cluster = None,
    device: Device = "cpu",
    folder: Path | None = Option(
        None, "--out", help="Write tables, pictures and the configuration here."
    ),
    json_: Json = False,
) -> None:
    """Compare algorithms on the paper's simulation, or on a harder one. Ctrl-C keeps the finished
    seeds.

    [dim]Examples:[/dim]

    dpbandit run

    dpbandit run linucb dgs tree-gauss --delta 1e-5 --out out

    dpbandit run linucb local --noise gaussian --horizon 2000 --seeds 5 --json

    dpbandit run linucb dgs --world drifting

    dpbandit run --seeds 1000 --cluster ray://head:10001

    dpbandit run linucb dgs anytime --seeds 10000 --device cuda
    """
    from dpbandit import spread, worlds
    from dpbandit.algorithms.registry import algorithms as known
    from dpbandit.algorithms.registry import find
    from dpbandit.cli.progress import bar
    from dpbandit.errors import ClusterWarning, OptionError, PrivacyWarning, nearest
    from dpbandit.simulate.run import run as play

    if world_name not in WORLDS:
        raise OptionError(f"there is no world {world_name!r}: {nearest(world_name, WORLDS)}")
    chosen = names or [name for name, algorithm in known().items() if not algorithm.one_hot]
    if not names and world_name == "drifting":
        chosen.remove("dgs-published")
        note("dgs-published is left out: it needs contexts known in advance, and drifting has none")
    for name in chosen:
        find(name)
    try:
        width: float | str = alpha if alpha == "theory" else float(alpha)
    except ValueError:
        raise OptionError(f"--alpha must be a number or 'theory', not {alpha!r}") from None
    options: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "ridge": ridge}
    options |= {"alpha": width}
    if reward_range is not None:
        options["reward_range"] = reward_range
    options |= {"context_noise": context_noise, "reward_noise": reward_noise}
    jobs = {
        name: (name, _noise_for(name, noise) | ({"horizon": None} if unknown_horizon else {}))
        for name in chosen
    }
    try:
        world = getattr(worlds, WORLDS[world_name])(
            arms=arms, dim=dim, shown=shown, reward_noise=reward_noise
        )
    except ValueError as error:
        raise OptionError(str(error)) from error
    # Said now, and not after the rounds were played.
    needed = ("pandas", "matplotlib") if folder else ("pandas",)
    if not all(map(extras.there, needed)):
        raise OptionError(f"a comparison needs the extra 'lab': {extras.pip_install('lab')}")
    room_for(folder, folder=True)
    with (
        warnings.catch_warnings(record=True) as caught,
        bar("starting") as show,
        ExitStack() as stack,
    ):
        warnings.simplefilter("always", PrivacyWarning)
        warnings.simplefilter("always", ClusterWarning)
        where: dict[str, Any] = {"workers": workers, "cluster": cluster, "device": device}
        if cluster:
            where["cluster"] = stack.enter_context(spread.over(cluster, workers))
        # A cluster says how many nodes it has, and how many it lost.
        where["progress"] = lambda done, total: show(
            where["cluster"].playing if cluster else "playing", done, total
        )
        results = play(world, jobs, horizon=horizon, seeds=seeds, **where, **options)
    ours = [w for w in caught if issubclass(w.category, (PrivacyWarning, ClusterWarning))]
    for message in {str(w.message) for w in ours}:
        note(message)
    if not results.rows:
        words = "interrupted before the first seed was finished: nothing is kept"
        err.print(words, highlight=False)
        raise typer.Exit(INTERRUPTED)
    files = results.save(folder) if folder else []
    if json_:
        print_json(_as_json(results, files))
    else:
        _show(results)
        if folder:
            listed = ", ".join(file.name for file in files)
            words = f"tables and pictures are in [bold]{folder}[/bold]: {listed}"
            out.print(words, highlight=False)
    if not results.complete:
        interrupted("only finished seeds are counted")


def _noise_for(name: str, noise: str | None) -> dict[str, Any]:
    """The requested noise if the algorithm supports it; else its own, with a note."""
    if noise is None or name in ("random", "linucb"):
        return {}
    from dpbandit.errors import OptionError
    from dpbandit.privacy.noise import find_noise

    find_noise(noise)
    from dpbandit.algorithms.registry import construct, find

    if find(name).registered_by_user:
        return {"noise": noise}
    small = {"dim": 1, "epsilon": 1.0, "delta": 0.001, "horizon": 2, "seed": 0}
    more = {"smallest_eigenvalue": 1.0} if "dgs" in name else {}
    try:
        construct(name, {"noise": noise, **small, **more})
    except OptionError as error:
        note(f"{name} keeps its own noise: {error}")
        return {}
    return {"noise": noise}


def _show(results: Results) -> None:
    summary = results.summary()
    table = new_table(f"{results.world}, {results.horizon:,} rounds")
    table.add_column("algorithm", no_wrap=True)
    known_regret = summary["regret"].notna().any()
    columns = {"regret": 1, "theta_error": 2} if known_regret else {"reward": 0}
    for column in columns:
        header = "‖θ − θ*‖" if column == "theta_error" else column
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("claim", overflow="fold")
    for name, row in summary.iterrows():
        claim = results.claims[str(name)]
        words = "none stated" if claim is None else claim.brief().split(" for ")[0]
        cells = [_pair(row[c], row[f"{c}_se"], digits) for c, digits in columns.items()]
        table.add_row(str(name), *cells, words)
    print_table(table)
    seeds = int(summary["seeds"].max())
    words = "claims are for one reward; noise is simulated"
    say(f"mean ± standard error over {seeds} seeds; {words}", "dim")


def _pair(mean: float, error: float, digits: int) -> str:
    if mean != mean:
        return "–"
    return f"{mean:,.{digits}f}" + ("" if error != error else f" ± {error:,.{digits}f}")


def _as_json(results: Results, files: list[Path]) -> dict[str, Any]:
    summary = results.summary()
    rows = {
        str(n): {k: None if v != v else float(v) for k, v in row.items()}
        for n, row in summary.iterrows()
    }
    for name, row in rows.items():
        claim = results.claims[name]
        row["claim"] = None if claim is None else claim.to_dict()
    return {
        "world": results.world,
        "horizon": results.horizon,
        "complete": results.complete,
        "options": results.options,
        "algorithms": rows,
        "files": [str(path) for path in files],
    }
