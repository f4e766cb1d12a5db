"""The command line: parse, call, print. Everything it does can be done from Python with the names in `dpbandit`."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
except ImportError:  # the library alone was installed
    sys.exit("the command line needs the extra 'lab': pip install 'dpbandit[lab]'")

from dpbandit.errors import DpbanditError

if TYPE_CHECKING:
    from dpbandit.lab.results import Results

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    help="Contextual bandits with differential privacy that can be checked.",
    epilog="Start with: [bold]dpbandit run[/bold], or [bold]dpbandit algorithms[/bold] for the list.",
)
out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, nothing else.")]


@app.command()
def algorithms(json_: Json = False) -> None:
    """List the algorithms, what each promises, and where it comes from.

    [dim]Example:[/dim]  dpbandit algorithms --json
    """
    from dpbandit.bandits.registry import algorithms as known

    if json_:
        rows = {
            n: {"description": a.description, "claim": a.claim, "reference": a.reference} for n, a in known().items()
        }
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for name, algorithm in known().items():
        out.print(f"[bold]{name}[/bold]  {escape(algorithm.description)}", highlight=False)
        out.print(
            f"    claim: {escape(algorithm.claim)}   [dim]{escape(algorithm.reference)}[/dim]",
            highlight=False,
        )


@app.command()
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Algorithms to compare; all of them if none is named.", metavar="[ALGORITHM]..."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Privacy: smaller is stronger.")] = 2.0,
    delta: Annotated[
        float,
        typer.Option(help="Failure probability of the promise; the paper's 0.1 is far too large to protect people."),
    ] = 0.1,
    horizon: Annotated[int, typer.Option(help="Rounds.")] = 10_000,
    unknown_horizon: Annotated[
        bool,
        typer.Option("--unknown-horizon", help="Do not tell the algorithms how many rounds there will be."),
    ] = False,
    seeds: Annotated[int, typer.Option(help="Repetitions, each with its own world and noise.")] = 20,
    alpha: Annotated[
        str, typer.Option(help="Width of the confidence bonus: a number, or 'theory' for Lemma 2.")
    ] = "0.3",
    ridge: Annotated[float, typer.Option(help="Ridge regularisation λ.")] = 1.0,
    reward_range: Annotated[
        tuple[float, float],
        typer.Option(help="Rewards are clipped to this range by private algorithms.", metavar="LOW HIGH"),
    ] = (-0.5, 1.5),
    noise: Annotated[
        str | None, typer.Option(help="gaussian, laplace or laplace-l2, for the algorithms that allow it.")
    ] = None,
    context_noise: Annotated[float, typer.Option(help="Perturb contexts by N(0, σ²) (Corollary 1).")] = 0.0,
    arms: Annotated[int, typer.Option(help="Arms in the pool.")] = 1000,
    dim: Annotated[int, typer.Option(help="Features per arm.")] = 10,
    shown: Annotated[int, typer.Option(help="Arms shown each round.")] = 10,
    reward_noise: Annotated[float, typer.Option(help="Standard deviation of reward noise.")] = 0.5,
    workers: Annotated[
        int | None, typer.Option(help="Cores to use; all if not given. Results do not depend on it.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Write tables, pictures and the configuration here.")
    ] = None,
    json_: Json = False,
) -> None:
    """Compare algorithms on the paper's simulation.

    [dim]Examples:[/dim]

    dpbandit run                                        all algorithms, the paper's setting

    dpbandit run linucb dgs tree-gauss --delta 1e-5 --out out

    dpbandit run linucb local --noise gaussian --horizon 2000 --seeds 5 --json
    """
    from dpbandit import worlds
    from dpbandit.bandits.registry import algorithms as known
    from dpbandit.bandits.registry import find
    from dpbandit.errors import OptionError, PrivacyWarning
    from dpbandit.lab.engine import run as play

    chosen = names or list(known())
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
    jobs = {name: (name, _noise_for(name, noise) | ({"horizon": None} if unknown_horizon else {})) for name in chosen}
    try:
        world = worlds.Synthetic(arms=arms, dim=dim, shown=shown, reward_noise=reward_noise)
    except ValueError as error:
        raise OptionError(str(error)) from error
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyWarning)
        results = play(world, jobs, horizon=horizon, seeds=seeds, workers=workers, progress=not json_, **options)
    for message in {str(w.message) for w in caught if issubclass(w.category, PrivacyWarning)}:
        err.print(f"[yellow]note:[/yellow] {message}", highlight=False)
    if not results.rows:
        err.print("interrupted before the first seed was finished: nothing to show")
        raise typer.Exit(130)
    files = results.save(folder) if folder else []
    if json_:
        print(json.dumps(_as_json(results, files), indent=1, ensure_ascii=False))
    else:
        _show(results)
        if folder:
            out.print(
                f"tables and pictures are in [bold]{folder}[/bold]: {', '.join(f.name for f in files)}",
                highlight=False,
            )
    if not results.complete:
        err.print("interrupted: only finished seeds are counted")
        raise typer.Exit(130)


@app.command()
def reproduce(
    profile: Annotated[
        str,
        typer.Option(help="quick (minutes), paper (the paper's sizes, 20 seeds) or full (100 seeds, 100,000 rounds)."),
    ] = "quick",
    figure: Annotated[
        list[str] | None, typer.Option(help="Only this figure: 1a, 1b, 1c, 2a, 2b, 2c or noise; may be repeated.")
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(
            "--out", help="Where figures, tables and report.html go; finished parts found there are used again."
        ),
    ] = Path("out"),
    json_: Json = False,
) -> None:
    """Run the paper's experiments and judge its claims: figures, tables and one self-contained report.html.

    LastFM and Open Bandit are looked for in $DPBANDIT_DATA and in the user cache; what is missing is left out and said so.

    [dim]Examples:[/dim]

    dpbandit reproduce

    dpbandit reproduce --profile paper --out docs/reproduction

    dpbandit reproduce --figure 1a --figure noise
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from dpbandit.lab.reproduction.runner import reproduce as run_all

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what)
            bar.update(tasks[what], completed=done, total=total)

        result = run_all(folder, size=profile, figures=figure, progress=show)
    if json_:
        record = {
            "verdicts": [v.to_dict() for v in result.verdicts],
            "left_out": result.left_out,
            "complete": result.complete,
            "files": [str(f) for f in result.files],
        }
        print(json.dumps(record, indent=1, ensure_ascii=False))
    else:
        _show_verdicts(result)
    if not result.complete:
        raise typer.Exit(130)


def _show_verdicts(result: Any) -> None:
    table = Table(
        box=None, pad_edge=False, header_style="bold", title="What the paper's experiments claim", title_justify="left"
    )
    table.add_column("claim", ratio=3)
    table.add_column("verdict", ratio=2)
    colours = {"reproduced": "green", "not reproduced": "red", "only at the figure's calibration": "yellow"}
    for verdict in result.verdicts:
        table.add_row(f"{verdict.claim} ({verdict.where})", f"[{colours.get(verdict.verdict, 'dim')}]{verdict.verdict}")
    out.print(table)
    for text in result.left_out:
        out.print(f"[yellow]left out:[/yellow] {escape(text)}", highlight=False)
    out.print(f"figures, tables and [bold]report.html[/bold] are in [bold]{result.folder}[/bold]", highlight=False)


Epsilon = Annotated[float, typer.Option(help="The ε to check.")]
Delta = Annotated[float, typer.Option(help="The δ to check (no part in pure ε).")]
Seed = Annotated[int, typer.Option(help="Seed of contexts, rewards and simulated noise.")]
Noise = Annotated[str | None, typer.Option(help="gaussian, laplace or laplace-l2; the algorithm's own if not given.")]
Unit = Annotated[
    int, typer.Option("--user-rewards", help="Protect a user with at most this many rewards; 0 for one reward.")
]
Unknown = Annotated[bool, typer.Option("--unknown-horizon", help="Make the algorithm without a horizon.")]
Pan = Annotated[bool, typer.Option("--pan-private", help="The pan-private form.")]
Folder = Annotated[Path | None, typer.Option("--out", help="Write results here.")]


def _make_options(noise: str | None, user_rewards: int, **more: Any) -> dict[str, Any]:
    given = {name: value for name, value in more.items() if value is not None}
    return given | ({"noise": noise} if noise else {}) | ({"unit": ("user", user_rewards)} if user_rewards else {})


@app.command()
def verify(
    name: Annotated[str, typer.Argument(help="The algorithm.", metavar="ALGORITHM")],
    epsilon: Epsilon = 2.0,
    delta: Delta = 1e-5,
    horizon: Annotated[int, typer.Option(help="Rounds; every position is tried up to 4,096.")] = 512,
    dim: Annotated[int, typer.Option(help="Features per context.")] = 5,
    runs: Annotated[int, typer.Option(help="Steps of the search for bad contexts; 0 for none.")] = 200,
    seed: Seed = 0,
    noise: Noise = None,
    user_rewards: Unit = 0,
    unknown_horizon: Unknown = False,
    pan_private: Pan = False,
    smallest_eigenvalue: Annotated[float | None, typer.Option(help="λ₀, for dgs-published.")] = None,
    folder: Folder = None,
    json_: Json = False,
) -> None:
    """Compute the exact joint cost of an algorithm over all its releases, and compare it with (ε, δ).

    Every position's reward is changed, on ordinary, degenerate and searched contexts. Exit status 0 if the request holds
    on all of them, 3 if not.

    [dim]Examples:[/dim]

    dpbandit verify dgs --epsilon 1 --delta 1e-6

    dpbandit verify dgs-figure --delta 0.1 --horizon 4096 --dim 10 --runs 0
    """
    from dpbandit.auditing.joint_cost import verify as check

    options = _make_options(
        noise, user_rewards, smallest_eigenvalue=smallest_eigenvalue, pan_private=pan_private or None
    )
    with err.status("starting (compiles once, under a minute)") as status:
        result = check(
            name,
            epsilon=epsilon,
            delta=delta,
            horizon=horizon,
            dim=dim,
            tries=runs,
            seed=seed,
            unknown_horizon=unknown_horizon,
            progress=lambda what, part: status.update(f"{what} ({part:.0%})"),
            **options,
        )
    _report(result, folder, "verify", json_)


@app.command()
def audit(
    name: Annotated[str, typer.Argument(help="The algorithm.", metavar="ALGORITHM")],
    epsilon: Epsilon = 2.0,
    delta: Delta = 1e-5,
    horizon: Annotated[int | None, typer.Option(help="Rounds: 256, or 16 with --real, if not given.")] = None,
    dim: Annotated[int, typer.Option(help="Features per context.")] = 1,
    runs: Annotated[int | None, typer.Option(help="Runs a side: 100,000, or 2,000 with --real, if not given.")] = None,
    seed: Seed = 0,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bound.")] = 0.999,
    real: Annotated[
        bool, typer.Option("--real", help="Run the step-by-step object with real noise, exactly as it ships.")
    ] = False,
    noise: Noise = None,
    user_rewards: Unit = 0,
    unknown_horizon: Unknown = False,
    pan_private: Pan = False,
    smallest_eigenvalue: Annotated[float | None, typer.Option(help="λ₀, for dgs-published.")] = None,
    folder: Folder = None,
    json_: Json = False,
) -> None:
    """Attack an algorithm: many runs on two neighbouring streams, and the ε that telling them apart proves.

    The threshold is chosen on one half of the runs and tested on the other. Exit status 0 if no violation was found,
    3 if the request is refuted. With --out, a picture of the two score distributions is written.

    [dim]Examples:[/dim]

    dpbandit audit tree-gauss --delta 0.1 --out audit

    dpbandit audit dgs --real --runs 10000

    dpbandit audit dgs-figure --delta 0.1
    """
    from dpbandit.auditing.attack import audit as attack

    with err.status("starting (compiles once, under a minute)") as status:
        result = attack(
            name,
            epsilon=epsilon,
            delta=delta,
            horizon=horizon or (16 if real else 256),
            dim=dim,
            runs=runs or (2_000 if real else 100_000),
            seed=seed,
            confidence=confidence,
            real=real,
            unknown_horizon=unknown_horizon,
            progress=lambda part: status.update(f"attacking ({part:.0%})"),
            **_make_options(
                noise, user_rewards, smallest_eigenvalue=smallest_eigenvalue, pan_private=pan_private or None
            ),
        )
    _report(result, folder, "audit", json_)


def _report(result: Any, folder: Path | None, kind: str, json_: bool) -> None:
    """Print what was found, write it where asked, and leave with status 0 or 3."""
    record = result.to_dict()
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{kind}-{result.name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False))
        if hasattr(result, "plot"):
            figure = result.plot()
            for ending in ("svg", "png"):
                figure.savefig(folder / f"{kind}-{result.name}.{ending}", dpi=160)
    if json_:
        print(json.dumps(record, indent=1, ensure_ascii=False))
    else:
        out.print(str(result), style=None if result.holds else "bold", highlight=False, markup=False, soft_wrap=True)
        if folder:
            out.print(f"written to {folder}", style="dim", highlight=False)
    raise typer.Exit(0 if result.holds else 3)


@app.command()
def claim(
    name: Annotated[str, typer.Argument(help="The algorithm.", metavar="ALGORITHM")],
    epsilon: Annotated[float, typer.Option(help="ε.")] = 1.0,
    delta: Annotated[float, typer.Option(help="δ, for noise that needs one.")] = 1e-6,
    dim: Annotated[int, typer.Option(help="Features per context.")] = 10,
    horizon: Annotated[int | None, typer.Option(help="Rewards it may learn from; unknown if not given.")] = None,
    reward_range: Annotated[tuple[float, float], typer.Option(help="Range of rewards.", metavar="LOW HIGH")] = (
        0.0,
        1.0,
    ),
    noise: Noise = None,
    user_rewards: Unit = 0,
    pan_private: Pan = False,
    smallest_eigenvalue: Annotated[float | None, typer.Option(help="λ₀, for dgs-published.")] = None,
    file: Annotated[Path | None, typer.Option("--out", help="Write the sheet to this file (Markdown).")] = None,
    json_: Json = False,
) -> None:
    """Print the claim sheet of an algorithm at these settings: one page for a reviewer to sign.

    [dim]Example:[/dim]  dpbandit claim dgs --epsilon 1 --delta 1e-6 --horizon 100000 --user-rewards 5
    """
    from dpbandit.auditing.sheet import claim_sheet
    from dpbandit.bandits.registry import construct

    given = _make_options(
        noise,
        user_rewards,
        epsilon=epsilon,
        delta=delta,
        dim=dim,
        horizon=horizon,
        smallest_eigenvalue=smallest_eigenvalue,
        pan_private=pan_private or None,
    ) | {"reward_range": reward_range}
    sheet = claim_sheet(name, **given)
    if file:
        file.write_text(sheet + "\n")
    if json_:
        print(json.dumps(construct(name, given).claim.to_dict(), indent=1, ensure_ascii=False))
    elif not file:
        print(sheet)
    else:
        out.print(f"written to {file}", style="dim", highlight=False)


def _noise_for(name: str, noise: str | None) -> dict[str, Any]:
    """The wanted noise where the algorithm has it; its own default elsewhere, said aloud."""
    if noise is None or name in ("random", "linucb"):
        return {}
    from dpbandit.errors import OptionError
    from dpbandit.noise import CODES, check_noise

    check_noise(noise, tuple(CODES))
    from dpbandit.bandits.registry import find, make

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
        err.print(f"[yellow]note:[/yellow] {name} keeps its own noise: {error}", highlight=False)
        return {}
    return {"noise": noise}


def _show(results: Results) -> None:
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
        table.add_column({"theta_error": "‖θ − θ*‖"}.get(column, column), justify="right", no_wrap=True)
    table.add_column("claim", overflow="fold")
    for name, row in summary.iterrows():
        claim = results.claims[str(name)]
        words = "none stated" if claim is None else claim.brief().split(" for ")[0]
        table.add_row(str(name), *(_pair(row[c], row[f"{c}_se"], digits) for c, digits in columns.items()), words)
    out.print(table)
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
    rows = {str(n): {k: None if v != v else float(v) for k, v in row.items()} for n, row in summary.iterrows()}
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


def main() -> None:
    """Entry point: our own errors become one line and exit status 2."""
    try:
        app()
    except DpbanditError as error:
        err.print(f"[red]error:[/red] {error}", highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
