"""`dpbandit plan`: the price of privacy, before it is paid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer import Argument, Option

from dpbandit import defaults
from dpbandit.cli import names as known_names
from dpbandit.cli.options import Json, PersonClicks, UserRewards, unit_of
from dpbandit.cli.shared import (
    app,
    interrupted,
    new_table,
    out,
    print_json,
    print_table,
    room_for,
    say,
)
from dpbandit.errors import OptionError, ShapeError

WIDE = 90  # columns a terminal needs for the whole table


@app.command()
def plan(
    names: list[str] | None = Argument(
        None,
        help="Algorithms; default: all proven ones.",
        metavar="ALGORITHM",
        autocompletion=known_names.algorithm,
    ),
    dim: int | None = Option(None, help="Features per context; default: the sample's, or 10."),
    arms: int = Option(defaults.ARMS, help="Arms to choose from in a round."),
    epsilon: float = Option(defaults.EPSILON, help="ε: smaller is stronger."),
    delta: float = Option(defaults.DELTA, help="δ, well below 1/rounds."),
    horizon: int = Option(defaults.HORIZON, help="Rounds to plan for."),
    unknown_horizon: bool = Option(
        False, "--unknown-horizon", help="Do not tell the algorithms the number of rounds."
    ),
    reward_range: tuple[float, float] | None = Option(
        None, help="Range of rewards; default: -1 1, or 0 1 with --click-rate.", metavar="LOW HIGH"
    ),
    click_rate: float | None = Option(
        None,
        help="Rewards are clicks at this rate under random play, such as 0.02.",
    ),
    visits: str | None = Option(
        None,
        help="How often one person comes: a mean, or a file (.npy, .csv) with one number per person of a "
        "sample. The plan then accounts for caps.",
        metavar="MEAN|FILE",
    ),
    protections: bool = Option(
        False,
        "--protections",
        help="Compare kinds of protection: one click, a person by caps of 1, 2, 5 and 10, contexts too. "
        "Needs --visits; --click-rate for clicks.",
    ),
    private_contexts: bool = Option(
        False,
        "--private-contexts",
        help="Contexts are private: recommend a protection of them too (with --protections).",
    ),
    reward_noise: float | None = Option(
        None,
        help="Standard deviation of a reward around its mean; default: a quarter of the range's width.",
    ),
    reward_spread: float | None = Option(
        None,
        help="Standard deviation of mean rewards between arms; from the prior if not given.",
    ),
    user_rewards: UserRewards = 0,
    person_clicks: PersonClicks = 0,
    prior: str = Option(
        "contexts",
        help="Prior of θ: contexts (shaped like a context) or round (Gaussian).",
        autocompletion=known_names.one_of("contexts", "round"),
    ),
    contexts: Path | None = Option(
        None,
        help="A sample of contexts: .npy (n × d, or n × arms × d for slates), .csv or "
        ".parquet, one context per row.",
    ),
    covariance: Path | None = Option(
        None, help="Instead of a sample: its d × d covariance, .npy or .csv."
    ),
    known_contexts: bool = Option(
        False,
        "--known-contexts",
        help="The algorithms will get the sample as public_contexts.",
    ),
    in_order: bool = Option(
        False,
        "--in-order",
        help="Slates are in chronological order, spread over the horizon: plan for the drift.",
    ),
    afford: str | None = Option(
        None,
        help="Find instead the smallest ε whose regret is within this of non-private, such as 10%.",
        metavar="PERCENT",
    ),
    regret: float | None = Option(
        None, help="Find instead the smallest ε whose predicted regret is at most this."
    ),
    rewards_sample: Path | None = Option(
        None,
        help="Show the effect of clipping on these rewards, such as money, and recommend a range: a .csv "
        "with a column reward and optionally arm, or one column of numbers. If algorithms are named, "
        "plan for them as well. Public or invented only.",
    ),
    seed: int = Option(0, help="Seed of the sampled worlds that predictions average over."),
    file: Path | None = Option(None, "--out", help="Write a picture here (.svg, .png or .pdf)."),
    json_: Json = False,
) -> None:
    """Predict regret and parameter error of each algorithm, and recommend one.

    It uses no reward but those of a public or invented sample: the algorithms run on problems drawn
    from public assumptions. Ctrl-C keeps the finished predictions.

    [dim]Examples:[/dim]

    dpbandit plan --dim 10 --arms 10 --epsilon 2 --delta 1e-5 --horizon 100000

    dpbandit plan anytime toeplitz --dim 25 --contexts sample.npy --known-contexts --out plan.svg

    dpbandit plan --dim 10 --arms 10 --delta 1e-6 --horizon 100000 --afford 50%

    dpbandit plan --protections --visits 20 --click-rate 0.02 --horizon 100000

    dpbandit plan --rewards-sample invented.csv --reward-range 0 1000 --arms 10

    dpbandit plan anytime --rewards-sample invented.csv --arms 10
    """
    from dpbandit.cli.progress import bar
    from dpbandit.planner.affordable import affordable_epsilon
    from dpbandit.planner.ask import plan as predict

    if file is not None and file.suffix not in (".svg", ".png", ".pdf"):
        raise OptionError(f"--out must end in .svg, .png or .pdf, not {file.name!r}")
    room_for(file)
    if rewards_sample is not None and not names:
        others = (
            dim,
            click_rate,
            visits,
            reward_noise,
            reward_spread,
            contexts,
            covariance,
            afford,
        )
        switches = (protections, private_contexts, unknown_horizon, known_contexts, in_order)
        if any(switches) or any(one is not None for one in (*others, regret)):
            raise OptionError(
                "--rewards-sample recommends a range, and takes only --arms, --epsilon, --delta, "
                "--horizon, --reward-range, --user-rewards, --out and --json; or name algorithms to "
                "plan for"
            )
        about: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "horizon": horizon}
        about |= {"reward_range": reward_range, **unit_of(user_rewards, person_clicks)}
        _clipping(rewards_sample, arms, about, file, json_)
        return
    sample = None if contexts is None else _read(contexts)
    given: dict[str, Any] = {
        "dim": dim or (defaults.DIM if sample is None else sample.shape[-1]),
        "arms": arms,
        "delta": delta,
        "horizon": None if unknown_horizon else horizon,
        "rounds": horizon,
        "reward_range": reward_range,
        "reward_noise": reward_noise,
        "click_rate": click_rate,
        "visits": None if visits is None else _visits(visits),
        "reward_spread": reward_spread,
        "prior": prior,
        "contexts": sample,
        "covariance": None if covariance is None else _read(covariance),
        "rewards_sample": None if rewards_sample is None else _by_arm(rewards_sample),
        "known_contexts": known_contexts,
        "in_order": in_order,
        "algorithms": names or None,
        "seed": seed,
        **unit_of(user_rewards, person_clicks),
    }
    if protections:
        if visits is None:
            raise OptionError(
                "--protections needs --visits: how often one person comes, such as 20"
            )
        if names or afford is not None or regret is not None or file is not None:
            raise OptionError(
                "--protections compares kinds of protection at one ε: omit algorithms, --afford, "
                "--regret and --out"
            )
        del given["algorithms"]
        _protections(given | {"epsilon": epsilon, "private_contexts": private_contexts}, json_)
        return
    if private_contexts:
        raise OptionError("--private-contexts goes with --protections; or name anytime-joint")
    with bar("starting") as draw:
        given["progress"] = lambda what, part: draw(what, part, 1.0)
        if afford is not None or regret is not None:
            within = 0.1 if afford is None else _percent(afford)
            answer = affordable_epsilon(within=within, regret=regret, **given)
            found = answer.plan
        else:
            answer, found = None, predict(epsilon=epsilon, **given)
    if file is not None:
        found.plot().savefig(file, dpi=160)
    if json_:
        print_json((answer or found).to_dict())
    elif answer is not None:
        say(answer)
    else:
        _show(found)
    if file is not None and not json_:
        say(f"picture written to {file}", "dim")
    if not found.complete:
        interrupted("only finished predictions are shown")


def _show(found: Any) -> None:
    from dpbandit.planner.forecast import claim_in_words

    say(found.headline(), "bold")
    rows = found.rows()
    wide = out.width >= WIDE  # long parts are left out; --json has them
    known = wide and any(row["theta_error"] is not None for row in rows)
    table = new_table()
    table.add_column("algorithm", no_wrap=True)
    columns = [found.measure, "× linucb", *(["‖θ − θ*‖"] if known else [])]
    columns += ["within 10% from"] if wide else []
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("claim", overflow="fold")
    for row in rows:
        if row["regret"] is None:
            table.add_row(row["algorithm"], *("–" for _ in columns), row["note"])
            continue
        error = "–" if row["theta_error"] is None else f"{row['theta_error']:.3g}"
        table.add_row(
            row["algorithm"],
            f"{row['regret']:,.0f} ± {row['regret_se']:,.0f}",
            f"{row['times_non_private']:.2f}",
            *([error] if known else []),
            *([f"round {row['close_after']:,}" if row["close_after"] else "–"] if wide else []),
            claim_in_words(found.forecasts[row["algorithm"]]),
        )
    print_table(table)
    _assumed(found)
    say(found.accuracy, "dim")


def _assumed(found: Any) -> None:
    for what, words in found.assumptions.items():
        say(f"{what}: {words}", "dim")
    if found.clipping is not None:
        say(f"clipping: {found.clipping.headline()}")
    for note in found.notes:
        say(f"note: {note}", "yellow")


def _protections(given: dict[str, Any], json_: bool) -> None:
    from dpbandit.cli.progress import bar
    from dpbandit.planner.protection import protections

    with bar("starting") as draw:
        found = protections(progress=lambda what, part: draw(what, part, 1.0), **given)
    if json_:
        print_json(found.to_dict())
    else:
        say(found.headline(), "bold")
        say(found.alternatives())
        table = new_table()
        table.add_column("protected", overflow="fold")
        table.add_column("noise", justify="right", no_wrap=True)
        table.add_column("learned from", overflow="fold")
        table.add_column("not learned from", overflow="fold")
        table.add_column(found.measure, justify="right")
        for line in found.lines():
            chosen = line[0] == found.recommended.words
            table.add_row(*line, style="bold" if chosen else None)
        print_table(table)
        _assumed(found.plan)
        say(found.plan.accuracy, "dim")
    if not found.plan.complete:
        interrupted("only finished predictions are shown")


def _clipping(
    sample: Path, arms: int, about: dict[str, Any], file: Path | None, json_: bool
) -> None:
    from dpbandit.planner.clipping import PUBLIC, clipping

    rewards, arm = _rewards(sample)
    found = clipping(rewards, arm=arm, arms=arms if arm is None else None, **about)
    if file is not None:
        found.plot().savefig(file, dpi=160)
    if json_:
        print_json(found.to_dict())
        return
    say(found.headline(), "bold")
    table = new_table()
    for column in found.HEAD:
        table.add_column(column, justify="left" if column == "range" else "right", no_wrap=True)
    for line in found.lines():
        table.add_row(*line, style="bold" if line[0].endswith("←") else None)
    print_table(table)
    for words in found.assumptions():
        say(words, "yellow" if words == PUBLIC else "dim")
    if file is not None:
        say(f"picture written to {file}", "dim")


def _by_arm(path: Path) -> Any:
    """The same as `dpb.plan` takes it."""
    rewards, arm = _rewards(path)
    if arm is None:
        return rewards
    return {one: rewards[[name == one for name in arm]] for one in dict.fromkeys(arm)}


def _rewards(path: Path) -> tuple[Any, Any]:
    """Numbers of a file, and their arms if it has a column `arm`."""
    import pandas as pd

    found = _read(path) if path.suffix != ".csv" else None
    if found is None:
        try:
            frame = pd.read_csv(path)
        except OSError as error:
            raise OptionError(f"{path} cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise ShapeError(f"{path} is not a table: {error}") from None
        if "reward" in frame.columns:
            return frame["reward"].to_numpy(), frame["arm"].tolist() if "arm" in frame else None
        found = _read(path)
    if found.ndim == 2 and found.shape[1] != 1:
        raise ShapeError(f"{path} must have a column reward, or one column of numbers")
    return found.ravel(), None


def _visits(text: str) -> Any:
    """A mean, or the numbers in a file."""
    try:
        return float(text)
    except ValueError:
        return _read(Path(text)).ravel()


def _percent(text: str) -> float:
    """10% or 0.1."""
    try:
        value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise OptionError(f"--afford must be a share such as 10%, not {text!r}") from None
    if not 0 < value < float("inf"):
        raise OptionError(f"--afford must be above 0%, not {text!r}")
    return value


def _read(path: Path) -> Any:
    """Numbers from a file, as an array."""
    import numpy as np

    if path.suffix not in (".npy", ".csv", ".parquet"):
        raise OptionError(f"{path.name} must be a .npy, .csv or .parquet file")
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        import pandas as pd

        if path.suffix == ".parquet":
            return pd.read_parquet(path).to_numpy(dtype=np.float64)
        rows = pd.read_csv(path, header=None, low_memory=False)
        first = pd.to_numeric(rows.iloc[0], errors="coerce")
        return (rows.iloc[1:] if first.isna().any() else rows).to_numpy(dtype=np.float64)
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError):
        raise ShapeError(f"{path} does not hold an array of numbers") from None
