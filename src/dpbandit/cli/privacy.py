"""`dpbandit verify`, `audit`, `fuzz` and `claim`: check a promise, attack it, try everything, and
print it for signing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from dpbandit import defaults
from dpbandit.cli.names import algorithm
from dpbandit.cli.options import (
    Algorithm,
    Cluster,
    Device,
    Folder,
    Json,
    Noise,
    PersonClicks,
    UserRewards,
    UserSpread,
    unit_of,
)
from dpbandit.cli.shared import REFUTED, app, interrupted, print_json, room_for, say

Epsilon = Annotated[float, Option(help="The ε to check.")]
Delta = Annotated[float, Option(help="The δ to check (no part in pure ε).")]
Seed = Annotated[int, Option(help="Seed of contexts, rewards and simulated noise.")]
Unknown = Annotated[bool, Option("--unknown-horizon", help="Make the algorithm without a horizon.")]
SmallestEigenvalue = Annotated[float | None, Option(help="λ₀, for dgs-published.")]
Pan = Annotated[bool, Option("--pan-private", help="The pan-private form.")]


def _make_options(
    noise: str | None,
    user_rewards: int,
    person_clicks: float,
    user_spread: float,
    smallest_eigenvalue: float | None,
    pan_private: bool,
) -> dict[str, Any]:
    """The given options: not every algorithm has each of them."""
    given: dict[str, Any] = {
        "noise": noise or None,
        **unit_of(user_rewards, person_clicks, user_spread),
    }
    if person_clicks:
        given["reward_range"] = (0.0, 1.0)  # clicks
    given |= {"pan_private": pan_private or None, "smallest_eigenvalue": smallest_eigenvalue}
    return {name: value for name, value in given.items() if value is not None}


@app.command()
def verify(
    name: Algorithm,
    epsilon: float | None = Option(
        None, help="The ε to check; without ε and δ, the bandit's own claim."
    ),
    delta: float | None = Option(None, help="The δ to check (no part in pure ε)."),
    horizon: int = Option(
        defaults.VERIFY_HORIZON, help="Rounds; every position is tried up to 4,096."
    ),
    dim: int = Option(defaults.VERIFY_DIM, help="Features per context."),
    runs: int = Option(400, help="Steps of the search for bad contexts; 0 for none."),
    seed: Seed = 0,
    noise: Noise = None,
    user_rewards: UserRewards = 0,
    person_clicks: PersonClicks = 0,
    user_spread: UserSpread = 0,
    unknown_horizon: Unknown = False,
    pan_private: Pan = False,
    smallest_eigenvalue: SmallestEigenvalue = None,
    log_rows: int = Option(
        0,
        help="Start from a log of this many rows (see warm-start), then continue for the horizon; "
        "keep both short.",
    ),
    folder: Folder = None,
    json_: Json = False,
) -> None:
    """Compute the exact joint cost of all releases of an algorithm, and compare it with (ε, δ).

    It changes the reward at every position, on ordinary, degenerate and searched contexts, and
    where rounding matters. It also runs the shipped object step by step, and compares everything
    public about it. Exit status 0 if the claim holds on all streams, 3 if not. Ctrl-C keeps the
    cases so far.

    [dim]Examples:[/dim]

    dpbandit verify dgs --epsilon 1 --delta 1e-6

    dpbandit verify dgs-figure --delta 0.1 --horizon 4096 --dim 10 --runs 0
    """
    from dpbandit.auditor.verify import verify as check
    from dpbandit.cli.progress import bar

    options = _make_options(
        noise, user_rewards, person_clicks, user_spread, smallest_eigenvalue, pan_private
    )
    room_for(folder, folder=True)
    with bar("starting") as show:
        result = check(
            name,
            epsilon=epsilon,
            delta=delta,
            horizon=horizon,
            dim=dim,
            tries=runs,
            seed=seed,
            unknown_horizon=unknown_horizon,
            log_rows=log_rows,
            progress=lambda what, part: show(what, part, 1.0),
            **options,
        )
    _report(result, folder, "verify", json_)


@app.command()
def audit(
    name: Algorithm,
    epsilon: Epsilon = defaults.EPSILON,
    delta: Delta = defaults.DELTA,
    horizon: int | None = Option(None, help="Rounds; default: 256, or 16 with --real."),
    dim: int = Option(defaults.AUDIT_DIM, help="Features per context."),
    runs: int | None = Option(
        None,
        help="Runs a side; default: 100,000, or 2,000 with --real, or 100 million with --device "
        "cuda.",
    ),
    seed: Seed = 0,
    confidence: float = Option(0.999, help="Confidence of the lower bound."),
    real: bool = Option(
        False, "--real", help="Run the step-by-step object with real noise, exactly as it ships."
    ),
    device: Device = "cpu",
    noise: Noise = None,
    user_rewards: UserRewards = 0,
    person_clicks: PersonClicks = 0,
    user_spread: UserSpread = 0,
    unknown_horizon: Unknown = False,
    pan_private: Pan = False,
    smallest_eigenvalue: SmallestEigenvalue = None,
    cluster: Cluster = None,
    folder: Folder = None,
    json_: Json = False,
) -> None:
    """Attack an algorithm: run it many times on two neighbouring streams, and report the ε that the
    runs prove.

    The threshold is chosen on one half of the runs and tested on the other. Exit status 0 if no
    violation was found, 3 if the claim is refuted. --out writes a picture of the two score
    distributions. Ctrl-C judges by the finished runs: the bound is valid, but weaker.

    [dim]Examples:[/dim]

    dpbandit audit tree-gauss --delta 0.1 --out audit

    dpbandit audit dgs --real --runs 10000

    dpbandit audit dgs-figure --delta 0.1

    dpbandit audit anytime --runs 10000000 --cluster ray://head:10001

    dpbandit audit anytime --device cuda
    """
    from dpbandit.auditor.attack import audit as attack
    from dpbandit.cli.progress import bar

    room_for(folder, folder=True)
    with bar("starting") as show:
        result = attack(
            name,
            epsilon=epsilon,
            delta=delta,
            horizon=horizon or (16 if real else defaults.AUDIT_HORIZON),
            dim=dim,
            runs=runs or (2_000 if real else 100_000 if device == "cpu" else 100_000_000),
            seed=seed,
            confidence=confidence,
            real=real,
            device=device,
            unknown_horizon=unknown_horizon,
            cluster=cluster,
            progress=lambda part: show("attacking", part, 1.0),
            **_make_options(
                noise, user_rewards, person_clicks, user_spread, smallest_eigenvalue, pan_private
            ),
        )
    _report(result, folder, "audit", json_)


def _report(result: Any, folder: Path | None, kind: str, json_: bool) -> None:
    """Print the result, write it if asked, exit with status 0, 3, or 130 after Ctrl-C."""
    record = result.to_dict()
    if folder:
        text = json.dumps(record, indent=1, ensure_ascii=False)
        (folder / f"{kind}-{result.name}.json").write_text(text)
        if hasattr(result, "plot"):
            figure = result.plot()
            for ending in ("svg", "png"):
                figure.savefig(folder / f"{kind}-{result.name}.{ending}", dpi=160)
    if json_:
        print_json(record)
    else:
        say(result, None if result.holds else "bold")
        if folder:
            say(f"written to {folder}", "dim")
    if not getattr(result, "complete", True):
        interrupted("only finished runs are counted")
    raise typer.Exit(0 if result.holds else REFUTED)


@app.command()
def fuzz(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Algorithms; default: all proven ones.",
            metavar="[ALGORITHM]...",
            autocompletion=algorithm,
        ),
    ] = None,
    cases: int | None = Option(
        None, help="Number of stories; default: 1,000, or until --minutes are over."
    ),
    minutes: float | None = Option(None, help="Stop after this time."),
    seed: int = Option(0, help="Of all stories."),
    case: int | None = Option(None, help="Repeat the story of this number."),
    workers: int | None = Option(None, help="Processes; default: one per core."),
    folder: Folder = None,
    json_: Json = False,
) -> None:
    """Draw bandits, streams and mishaps at random, and compute the exact privacy cost of each.

    Stories cover all options, contexts chosen from the releases, batches, Ctrl-C and a retry,
    saves, logs, and users beyond their cap. Everything public is compared after every step. A story
    that costs more than claimed is shrunk to a script of a few lines, printed, and written to --out.
    Exit status 0 if every claim holds, 3 if one does not. Ctrl-C keeps the results so far.

    [dim]Examples:[/dim]

    dpbandit fuzz --minutes 10 --out found

    dpbandit fuzz dgs tree-gauss --cases 100000 --workers 16

    dpbandit fuzz dgs --seed 3 --case 1234
    """
    import os

    from dpbandit.auditor.fuzz import fuzz as try_everything
    from dpbandit.cli.progress import bar

    room_for(folder, folder=True)
    with bar("starting") as show:
        result = try_everything(
            names or None,
            seed=seed,
            cases=cases,
            minutes=minutes,
            case=case,
            workers=workers or (1 if case is not None else os.cpu_count() or 1),
            progress=show,
        )
    for finding in (*result.findings, *result.errors):
        if folder:
            (folder / f"case-{seed}-{finding.case}.py").write_text(finding.script)
        if not json_:
            say(finding.script)
    _report(result, folder, "fuzz", json_)


@app.command()
def proofs(json_: Json = False) -> None:
    """Print the proofs behind every claim that says "proven", as Markdown.

    [dim]Example:[/dim]  dpbandit proofs | less
    """
    from dpbandit.auditor.sheet import proofs as found

    if json_:
        print_json({"markdown": found()})
    else:
        print(found())


@app.command()
def claim(
    name: Algorithm,
    epsilon: float = Option(defaults.EPSILON, help="ε."),
    delta: float = Option(defaults.DELTA, help="δ, for noise that needs one."),
    dim: int = Option(defaults.DIM, help="Features per context."),
    horizon: int | None = Option(None, help="Rewards it may learn from; default: unknown."),
    reward_range: tuple[float, float] | None = Option(
        None,
        help="Range of rewards: 0 1 for clicks. Default: -1 1, or 0 1 with --person-clicks.",
        metavar="LOW HIGH",
    ),
    noise: Noise = None,
    user_rewards: UserRewards = 0,
    person_clicks: PersonClicks = 0,
    user_spread: UserSpread = 0,
    pan_private: Pan = False,
    smallest_eigenvalue: SmallestEigenvalue = None,
    file: Path | None = Option(None, "--out", help="Write the sheet to this file (Markdown)."),
    json_: Json = False,
) -> None:
    """Print an algorithm's claim sheet for these settings: one page for a reviewer to sign.

    [dim]Example:[/dim]

    dpbandit claim dgs --epsilon 1 --delta 1e-6 --horizon 100000 --user-rewards 5

    dpbandit claim anytime --epsilon 1 --delta 1e-6 --person-clicks 1
    """
    from dpbandit.algorithms.registry import construct
    from dpbandit.auditor.sheet import claim_sheet

    given = _make_options(
        noise, user_rewards, person_clicks, user_spread, smallest_eigenvalue, pan_private
    )
    given |= {"epsilon": epsilon, "delta": delta, "dim": dim}
    if reward_range is not None:
        given["reward_range"] = reward_range
    if horizon is not None:
        given["horizon"] = horizon
    room_for(file)
    sheet = claim_sheet(name, **given)
    if file:
        file.write_text(sheet + "\n")
    if json_:
        print_json(construct(name, given).claim.to_dict())
    elif not file:
        print(sheet)
    else:
        say(f"written to {file}", "dim")
