"""`dpbandit evaluate`: off-policy evaluation, from a log of what another system showed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from dpbandit import defaults
from dpbandit.cli import names
from dpbandit.cli.options import Clicks, Json, PersonClicks, UserRewards, rewards_of, unit_of
from dpbandit.cli.shared import app, interrupted, new_table, note, print_json, print_table, say

if TYPE_CHECKING:
    from dpbandit.encoder import Encoder


@app.command("evaluate")
def evaluate(
    log: Annotated[
        list[str],
        Argument(
            help="Parquet, CSV or Arrow files, folders of them, or globs in quotes.", metavar="LOG"
        ),
    ],
    algorithm: Annotated[
        list[str] | None,
        Option(
            help="An algorithm to evaluate; repeat for more. Default: random and anytime.",
            autocompletion=names.algorithm,
        ),
    ] = None,
    model: Annotated[
        list[Path] | None,
        Option(help="An exported model to evaluate, which does not learn; repeat for more."),
    ] = None,
    encoder: Path | None = Option(None, help="File of an encoder, written by Encoder.save."),
    items: Path | None = Option(
        None, help="All items that can be shown: a table with the item's fields, one row each."
    ),
    action: str = Option("action", help="The column of shown actions."),
    reward: str = Option("reward", help="The rewards' column."),
    propensity: str | None = Option(
        None,
        help="The column of the shown action's probability; without it all were equally likely.",
    ),
    clip: float | None = Option(
        None, help="The largest weight 1/propensity; required with --propensity."
    ),
    offered: str | None = Option(
        None, help="The column with lists of the actions on offer, if not all."
    ),
    contexts: str = Option(
        "contexts", help="Without an encoder: the column with a list of numbers for each arm."
    ),
    user: str | None = Option(
        None, help="The column of users, for --user-rewards or --person-clicks."
    ),
    rows_per_user: int | None = Option(
        None, help="How many matched rows of a user count, at most."
    ),
    missing_reward: float | None = Option(
        None, help="The reward of a row without one; default: such rows are left out."
    ),
    epsilon: float = Option(
        defaults.EPSILON, help="ε of the algorithms' learning: smaller is stronger."
    ),
    delta: float | None = Option(None, help="Its δ."),
    release_epsilon: float | None = Option(
        None,
        help="ε of the estimates, which then carry noise and are charged; without it they are in the "
        "clear, only for people who may see the log.",
    ),
    release_delta: float = Option(0.0, help="Its δ; Laplace noise if 0."),
    reward_range: tuple[float, float] = Option(
        ..., help="Rewards are clipped to this range: 0 1 for clicks.", metavar="LOW HIGH"
    ),
    user_rewards: UserRewards = 0,
    person_clicks: PersonClicks = 0,
    clicks: Clicks = False,
    horizon: int | None = Option(None, help="For algorithms that need one."),
    level: float = Option(0.95, help="Confidence level of the intervals."),
    seed: int | None = Option(
        None, help="Makes it a reproducible simulation; without a seed the noise is real."
    ),
    json_: Json = False,
) -> None:
    """Estimate what algorithms would have earned, by replaying another system's log before a
    launch.

    Each algorithm learns from the rows in which it chooses the shown action, as it would online.
    Rows are weighted by the logged probability; without that column all offers count as equally
    likely. A private log needs --release-epsilon. Ctrl-C keeps estimates in the clear, and shows
    nothing of a release.

    [dim]Examples:[/dim]

    dpbandit evaluate log.csv --encoder encoder.json --action article --reward clicked --reward-range 0 1 --delta 1e-6

    dpbandit evaluate log.parquet --algorithm anytime --algorithm linucb --propensity p --clip 50 --reward-range 0 1 --delta 1e-6

    dpbandit evaluate logs --encoder encoder.json --items items.csv --action article --user visitor --person-clicks 1 --reward-range 0 1 --delta 1e-6 --release-epsilon 0.5 --release-delta 1e-7 --json
    """
    from dpbandit.cli.progress import bar
    from dpbandit.encoder import Encoder
    from dpbandit.errors import LogWarning
    from dpbandit.evaluate.replay import replay
    from dpbandit.files import load

    chosen: dict[str, Any] = {name: name for name in algorithm or []}
    chosen |= {str(path): load(path) for path in model or []}
    if not chosen:
        chosen = {name: name for name in ("random", "anytime")}
    given = {"delta": delta, "horizon": horizon}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options |= {"epsilon": epsilon, **unit_of(user_rewards, person_clicks), **rewards_of(clicks)}
    if all(not isinstance(one, str) for one in chosen.values()):
        options = unit_of(user_rewards, person_clicks)
    declared = None if encoder is None else Encoder.load(encoder)
    with bar("starting") as show, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LogWarning)
        try:
            found = replay(
                log,
                chosen,
                action=action,
                reward=reward,
                propensity=propensity,
                clip=clip,
                user=user,
                offered=offered,
                contexts=contexts,
                items=None if items is None else _table(items, declared, action),
                encoder=declared,
                release=None if release_epsilon is None else (release_epsilon, release_delta),
                rows_per_user=rows_per_user,
                reward_range=reward_range,
                missing_reward=missing_reward,
                level=level,
                seed=seed,
                progress=lambda done, total: show(
                    f"{total:,} rows" if total else f"{done:,} rows read", done, total
                ),
                **options,
            )
        except KeyboardInterrupt:
            interrupted("nothing was shown, and none of the estimates' budget is spent")
    for message in {str(w.message) for w in caught}:
        note(message)
    if json_:
        print_json(found.to_dict())
    else:
        table = new_table()
        for heading in ("algorithm", "estimator"):
            table.add_column(heading)
        for heading in ("reward", "low", "high", "matched"):
            table.add_column(heading, justify="right")
        for one in found.estimates:
            numbers = (f"{number:.4f}" for number in (one.value, one.low, one.high))
            table.add_row(one.algorithm, one.estimator, *numbers, f"{one.matched:,}")
        print_table(table)
        say(f"{found.used:,} of {found.rows:,} rows used; intervals hold {level:.0%} of the time")
        say(found.claim)
    if not found.complete:
        interrupted(f"these are estimates from the first {found.rows:,} rows")


def _table(path: Path, encoder: Encoder | None, action: str) -> Any:
    """A small public table, as records."""
    if path.suffix.lower() == ".json":
        return json.loads(path.read_text())
    from dpbandit.warmstart.source import open_log, texts_of

    source = open_log(path)
    names = source.schema.names
    texts = {action: frozenset[str](), **({} if encoder is None else texts_of(encoder))}
    batches = (b for part in source.parts for b in part.batches(names, texts=texts))
    return [row for batch in batches for row in batch.to_pylist()]
