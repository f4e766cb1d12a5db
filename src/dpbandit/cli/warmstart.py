"""`dpbandit warm-start`: a log becomes a private bandit."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from dpbandit.cli import names
from dpbandit.cli.shared import (
    INTERRUPTED,
    Cluster,
    Json,
    Noise,
    app,
    err,
    note,
    out,
    print_json,
    room_for,
)


@app.command("warm-start")
def warm_start(
    log: Annotated[
        list[str],
        typer.Argument(
            help="Parquet files, folders of them, or globs in quotes.", metavar="LOG.parquet"
        ),
    ],
    file: Annotated[
        Path, typer.Option("--out", help="Save the bandit here (.npz). Trusted side only.")
    ],
    algorithm: Annotated[
        str, typer.Option(help="What to make of it.", autocompletion=names.algorithm)
    ] = "anytime",
    context: Annotated[
        str,
        typer.Option(
            help="One column of lists, or several columns of numbers with commas between them."
        ),
    ] = "context",
    reward: Annotated[str, typer.Option(help="The rewards' column.")] = "reward",
    user: Annotated[str | None, typer.Option(help="The users' column, for --user-rewards.")] = None,
    missing_reward: Annotated[
        float | None,
        typer.Option(
            help="What a row without a reward is worth; if not given, such rows are left out, and which ones is public."
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="ε: smaller is stronger.")] = 1.0,
    delta: Annotated[
        float | None, typer.Option(help="δ, well below one over the number of rewards.")
    ] = None,
    reward_range: Annotated[
        tuple[float, float],
        typer.Option(help="Rewards are clipped to this range.", metavar="LOW HIGH"),
    ] = (0.0, 1.0),
    user_rewards: Annotated[
        int,
        typer.Option(
            help="Protect a user with at most this many rewards, logged and online together; 0 for one reward."
        ),
    ] = 0,
    max_norm: Annotated[float, typer.Option(help="The longest context allowed.")] = 1.0,
    horizon: Annotated[
        int | None, typer.Option(help="Online rewards to come; unknown if not given.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Width of the confidence bonus.")] = None,
    noise: Noise = None,
    seed: Annotated[
        int | None, typer.Option(help="A reproducible simulation; real noise if not given.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Parts read at a time; one a core if not given.")
    ] = None,
    cluster: Cluster = None,
    export: Annotated[
        Path | None, typer.Option(help="Also write the released model here, for rankers.")
    ] = None,
    json_: Json = False,
) -> None:
    """Make a private bandit from a log of contexts and rewards, in one pass and one release; it goes on learning online.

    Every run on the same log spends its rewards' budget again, so an existing --out is not written over.
    Ctrl-C releases nothing and writes nothing: the budget is as it was.

    [dim]Examples:[/dim]

    dpbandit warm-start log.parquet --epsilon 1 --delta 1e-9 --out bandit.npz

    dpbandit warm-start 'logs/2026-*.parquet' --context x1,x2,x3 --reward clicked --delta 1e-9 --out bandit.npz

    dpbandit warm-start logs --user visitor --user-rewards 10 --delta 1e-9 --algorithm tree-gauss --out bandit.npz

    dpbandit warm-start /shared/logs --delta 1e-9 --cluster ray://head:10001 --out bandit.npz
    """
    from dpbandit.cli.progress import bar
    from dpbandit.errors import OptionError, PrivacyWarning
    from dpbandit.warmstart.start import warm_start as start

    for target in (file, export):
        if target is not None and target.exists():
            raise OptionError(
                f"{target} exists: starting again from the same log spends its rewards' budget a second time. If that is meant, "
                "name another file, or remove this one first"
            )
        room_for(target)
    named = {"delta": delta, "alpha": alpha, "noise": noise, "seed": seed, "horizon": horizon}
    options: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    options |= {"epsilon": epsilon, "reward_range": reward_range, "max_norm": max_norm}
    if user_rewards:
        options["unit"] = ("user", user_rewards)
    began = time.perf_counter()
    with bar("starting") as draw:

        def show(done: int, total: int) -> None:
            draw(f"{total:,} rows", done, total)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyWarning)
            try:
                bandit = start(
                    log,
                    algorithm,
                    context=[name.strip() for name in context.split(",")]
                    if "," in context
                    else context,
                    reward=reward,
                    user=user,
                    missing_reward=missing_reward,
                    workers=workers,
                    cluster=cluster,
                    progress=show,
                    **options,
                )
            except KeyboardInterrupt:
                err.print("interrupted: nothing was released and nothing written", highlight=False)
                raise typer.Exit(INTERRUPTED) from None
    for message in {str(w.message) for w in caught}:
        note(message)
    bandit.save(file)
    if export is not None:
        bandit.export(export)
    seconds = time.perf_counter() - began
    if json_:
        record = {
            "algorithm": algorithm,
            "log": bandit.log.to_dict(),
            "claim": bandit.claim.to_dict(),
            "receipt": bandit.receipt(),
            "dim": bandit.dim,
            "theta": bandit.theta.tolist(),
            "seconds": round(seconds, 3),
            "files": [str(path) for path in (file, export) if path is not None],
        }
        print_json(record)
        return
    out.print(
        f"{algorithm}, {bandit.dim} features: {bandit.log}",
        style="bold",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    out.print(str(bandit.claim), highlight=False, markup=False, soft_wrap=True)
    out.print(
        f"in {seconds:.1f} s; saved to {file} (trusted side only); receipt: {bandit.receipt()['identity']}, "
        f"{bandit.receipt()['releases']} release. These rewards' budget is spent: start from this log once",
        style="dim",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
