"""`dpbandit algorithms` and `dpbandit run`: what there is, and how it compares on simulations."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpbandit.cli import names as known_names
from dpbandit.cli.shared import (
    INTERRUPTED,
    Cluster,
    Device,
    Json,
    app,
    err,
    note,
    out,
    print_json,
    print_table,
    room_for,
)

if TYPE_CHECKING:
    from dpbandit.simulate.results import Results

# Names on the command line; each is a class in dpbandit.worlds that takes arms, dim, shown and reward_noise.
WORLDS = {"synthetic": "Synthetic", "drifting": "Drifting", "degenerate": "Degenerate"}


@app.command()
def algorithms(json_: Json = False) -> None:
    """List the algorithms, what each promises, and where it comes from.

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
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Algorithms to compare; if none is named, all that take contexts with features.",
            metavar="ALGORITHM",
            autocompletion=known_names.algorithm,
        ),
    ] = None,
    world_name: Annotated[
        str,
        typer.Option(
            "--world",
            help="synthetic (the paper's), drifting (the contexts change over time) or degenerate (they lack diversity).",
            autocompletion=known_names.world,
        ),
    ] = "synthetic",
    epsilon: Annotated[float, typer.Option(help="Privacy: smaller is stronger.")] = 2.0,
    delta: Annotated[
        float,
        typer.Option(
            help="Failure probability of the promise; the paper's 0.1 is far too large to protect people."
        ),
    ] = 0.1,
    horizon: Annotated[int, typer.Option(help="Rounds.")] = 10_000,
    unknown_horizon: Annotated[
        bool,
        typer.Option(
            "--unknown-horizon", help="Do not tell the algorithms how many rounds there will be."
        ),
    ] = False,
    seeds: Annotated[
        int, typer.Option(help="Repetitions, each with its own world and noise.")
    ] = 20,
    alpha: Annotated[
        str, typer.Option(help="Width of the confidence bonus: a number, or 'theory' for Lemma 2.")
    ] = "0.3",
    ridge: Annotated[float, typer.Option(help="Ridge regularisation λ.")] = 1.0,
    reward_range: Annotated[
        tuple[float, float],
        typer.Option(
            help="Rewards are clipped to this range by private algorithms.", metavar="LOW HIGH"
        ),
    ] = (-0.5, 1.5),
    noise: Annotated[
        str | None,
        typer.Option(
            help="gaussian, laplace or laplace-l2, for the algorithms that allow it.",
            autocompletion=known_names.one_of("gaussian", "laplace", "laplace-l2"),
        ),
    ] = None,
    context_noise: Annotated[
        float, typer.Option(help="Perturb contexts by N(0, σ²) (Corollary 1).")
    ] = 0.0,
    arms: Annotated[int, typer.Option(help="Arms in the pool.")] = 1000,
    dim: Annotated[int, typer.Option(help="Features per arm.")] = 10,
    shown: Annotated[int, typer.Option(help="Arms shown each round.")] = 10,
    reward_noise: Annotated[float, typer.Option(help="Standard deviation of reward noise.")] = 0.5,
    workers: Annotated[
        int | None,
        typer.Option(help="Cores to use; all if not given. Results do not depend on it."),
    ] = None,
    cluster: Cluster = None,
    device: Device = "cpu",
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Write tables, pictures and the configuration here."),
    ] = None,
    json_: Json = False,
) -> None:
    """Compare algorithms on the paper's simulation, or on one that is harder. Ctrl-C keeps the seeds that are finished.

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
    options: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "ridge": ridge,
        "reward_range": reward_range,
    }
    options |= {"alpha": width, "context_noise": context_noise, "reward_noise": reward_noise}
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
        where["progress"] = lambda done, total: show(
            where["cluster"].playing if cluster else "playing", done, total
        )  # a cluster says how many nodes it has, and how many it lost
        results = play(world, jobs, horizon=horizon, seeds=seeds, **where, **options)
    for message in {
        str(w.message) for w in caught if issubclass(w.category, (PrivacyWarning, ClusterWarning))
    }:
        note(message)
    if not results.rows:
        err.print(
            "interrupted before the first seed was finished: nothing is kept", highlight=False
        )
        raise typer.Exit(INTERRUPTED)
    files = results.save(folder) if folder else []
    if json_:
        print_json(_as_json(results, files))
    else:
        _show(results)
        if folder:
            out.print(
                f"tables and pictures are in [bold]{folder}[/bold]: {', '.join(f.name for f in files)}",
                highlight=False,
            )
    if not results.complete:
        err.print("interrupted: only finished seeds are counted", highlight=False)
        raise typer.Exit(INTERRUPTED)


def _noise_for(name: str, noise: str | None) -> dict[str, Any]:
    """The wanted noise where the algorithm has it; its own default elsewhere, said aloud."""
    if noise is None or name in ("random", "linucb"):
        return {}
    from dpbandit.errors import OptionError
    from dpbandit.privacy.noise import find_noise

    find_noise(noise)
    from dpbandit.algorithms.registry import find, make

    if find(name).registered_by_user:
        return {"noise": noise}
    try:
        make(
            name,
            dim=1,
            epsilon=1.0,
            delta=0.001,
            horizon=2,
            seed=0,
            noise=noise,
            **({"smallest_eigenvalue": 1.0} if "dgs" in name else {}),
        )
    except OptionError as error:
        note(f"{name} keeps its own noise: {error}")
        return {}
    return {"noise": noise}


def _show(results: Results) -> None:
    from rich.table import Table

    summary = results.summary()
    table = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        title=f"{results.world}, {results.horizon:,} rounds",
        title_justify="left",
    )
    table.add_column("algorithm", no_wrap=True)
    known_regret = summary["regret"].notna().any()
    columns = {"regret": 1, "theta_error": 2} if known_regret else {"reward": 0}
    for column in columns:
        table.add_column(
            {"theta_error": "‖θ − θ*‖"}.get(column, column), justify="right", no_wrap=True
        )
    table.add_column("claim", overflow="fold")
    for name, row in summary.iterrows():
        claim = results.claims[str(name)]
        words = "none stated" if claim is None else claim.brief().split(" for ")[0]
        table.add_row(
            str(name),
            *(_pair(row[c], row[f"{c}_se"], digits) for c, digits in columns.items()),
            words,
        )
    print_table(table)
    out.print(
        f"mean ± standard error over {int(summary['seeds'].max())} seeds; claims are for one reward; noise is simulated",
        style="dim",
        highlight=False,
    )


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
