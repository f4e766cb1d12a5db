"""`dpbandit warm-start`: a log becomes a private bandit."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated, Any, cast

from typer import Argument, Option

from dpbandit import defaults
from dpbandit.cli import names
from dpbandit.cli.options import (
    Clicks,
    Cluster,
    Json,
    Noise,
    PersonClicks,
    rewards_of,
    unit_of,
)
from dpbandit.cli.shared import app, interrupted, note, print_json, room_for, say


@app.command("warm-start")
def warm_start(
    log: Annotated[
        list[str],
        Argument(
            help="Parquet, CSV or Arrow files, folders of them, or globs in quotes.", metavar="LOG"
        ),
    ],
    file: Annotated[Path, Option("--out", help="Save the bandit here (.npz). Trusted side only.")],
    algorithm: str = Option("anytime", help="The algorithm.", autocompletion=names.algorithm),
    context: str = Option(
        "context",
        help="One column of lists, or several columns of numbers, separated by commas.",
    ),
    reward: str = Option("reward", help="The rewards' column."),
    user: str | None = Option(
        None, help="The column of users, for --user-rewards or --person-clicks."
    ),
    missing_reward: float | None = Option(
        None,
        help="The reward of a row without one; default: such rows are left out, and which ones is public.",
    ),
    encoder: Path | None = Option(
        None,
        help="File of an encoder, written by Encoder.save; replaces --context.",
    ),
    least_used: float = Option(
        0.5, help="Smallest usable share of the rows; below it nothing is released."
    ),
    epsilon: float = Option(defaults.EPSILON, help="ε: smaller is stronger."),
    delta: float | None = Option(None, help="δ, well below one over the number of rewards."),
    reward_range: tuple[float, float] = Option(
        ..., help="Rewards are clipped to this range: 0 1 for clicks.", metavar="LOW HIGH"
    ),
    user_rewards: int = Option(
        0,
        help="Protect a user with at most this many rewards, logged and online together; 0 for one reward.",
    ),
    person_clicks: PersonClicks = 0,
    clicks: Clicks = False,
    max_norm: float = Option(1.0, help="Largest allowed norm of a context."),
    horizon: int | None = Option(None, help="Future online rewards; default: unknown."),
    alpha: float | None = Option(None, help="Width of the confidence bonus."),
    noise: Noise = None,
    seed: int | None = Option(
        None, help="Makes it a reproducible simulation; without a seed the noise is real."
    ),
    workers: int | None = Option(None, help="Parts read at a time; default: one per core."),
    cluster: Cluster = None,
    export: Path | None = Option(None, help="Also write the released model here, for rankers."),
    json_: Json = False,
) -> None:
    """Make a private bandit from a log of contexts and rewards, in one pass and one release. It
    keeps learning online.

    Every run on the same log spends its rewards' budget again, so an existing --out is never
    overwritten. Ctrl-C releases nothing and writes nothing: the budget stays unspent.

    [dim]Examples:[/dim]

    dpbandit warm-start log.parquet --reward-range 0 1 --delta 1e-9 --out bandit.npz

    dpbandit warm-start 'logs/2026-*.parquet' --context x1,x2,x3 --reward clicked --reward-range 0 1 --delta 1e-9 --out bandit.npz

    dpbandit warm-start logs --user visitor --user-rewards 10 --reward-range 1 5 --delta 1e-9 --algorithm tree-gauss --out bandit.npz

    dpbandit warm-start log.csv --encoder encoder.json --reward clicked --reward-range 0 1 --delta 1e-6 --out bandit.npz

    dpbandit warm-start /shared/logs --reward-range 0 1 --delta 1e-9 --cluster ray://head:10001 --out bandit.npz
    """
    from dpbandit.cli.progress import bar
    from dpbandit.encoder import Encoder
    from dpbandit.errors import LogWarning, OptionError, PrivacyWarning
    from dpbandit.saving import check_free
    from dpbandit.warmstart.start import warm_start as start

    for target in (file, export):
        if target is not None and target.exists():
            raise OptionError(
                f"{target} exists: starting again from the same log spends its rewards' budget a second time. If you mean to, "
                "name another file, or remove this one first"
            )
        if target is not None:
            check_free(target)
        room_for(target)
    named = {"delta": delta, "alpha": alpha, "noise": noise, "seed": seed, "horizon": horizon}
    options: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    options |= {"epsilon": epsilon, "reward_range": reward_range, "max_norm": max_norm}
    options |= {**unit_of(user_rewards, person_clicks), **rewards_of(clicks)}
    began = time.perf_counter()
    columns = [name.strip() for name in context.split(",")] if "," in context else context
    with bar("starting") as show, warnings.catch_warnings(record=True) as caught:
        for kind in (PrivacyWarning, LogWarning):
            warnings.simplefilter("always", kind)
        try:
            bandit = start(
                log,
                cast(Any, algorithm),  # whatever is registered
                context=columns,
                reward=reward,
                user=user,
                missing_reward=missing_reward,
                encoder=None if encoder is None else Encoder.load(encoder),
                least_used=least_used,
                workers=workers,
                cluster=cluster,
                progress=lambda done, total: show(
                    f"{total:,} rows" if total else f"{done:,} rows read", done, total
                ),
                **options,
            )
        except KeyboardInterrupt:
            interrupted("nothing was released and nothing written")
    for message in {str(w.message) for w in caught}:
        note(message)
    assert bandit.log is not None
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
    say(f"{algorithm}, {bandit.dim} features: {bandit.log}", "bold")
    say(bandit.claim)
    receipt = bandit.receipt()
    say(
        f"in {seconds:.1f} s; saved to {file} (trusted side only); receipt: {receipt['identity']}, "
        f"{receipt['releases']} release. These rewards' budget is spent: start from this log once",
        "dim",
    )
