"""From rows to standings: added regret paired by seed with LinUCB, who is best in each cell, and
the tables in Markdown.

Only what is proven is ranked; what is not is shown apart. An algorithm that never learns is a
reference, not a contestant.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpbandit.simulate.figures import STATUS
from experiments.leaderboard import grid
from experiments.leaderboard.grid import Budget
from experiments.leaderboard.runner import Run

CELL = ["world", "epsilon", "delta", "horizon"]
KEPT = "°"  # beside what an earlier table has and this run did not play


def added(rows: pd.DataFrame) -> pd.DataFrame:
    """For every row with a budget, what it lost more than LinUCB on the same seed (column `added`).

    Regret where it is known, otherwise reward: LinUCB's minus its own. `linucb` is LinUCB's own
    regret or reward.

    >>> budget = {"world": "w", "horizon": 9, "epsilon": 1.0, "delta": 0.1, "reward": 0.0}
    >>> rows = pd.DataFrame([
    ...     budget | {"label": "linucb", "epsilon": None, "delta": None, "seed": 0, "regret": 5.0},
    ...     budget | {"label": "local", "seed": 0, "regret": 12.0},
    ... ])
    >>> added(rows)["added"].tolist()
    [7.0]
    """
    base = rows[rows["label"] == "linucb"].set_index(["world", "horizon", "seed"])[
        ["reward", "regret"]
    ]
    base = base.rename(columns=lambda column: f"{column}_linucb")
    own = rows[rows["epsilon"].notna()].join(base, on=["world", "horizon", "seed"])
    regret = own["regret"] - own["regret_linucb"]
    own["added"] = regret.where(regret.notna(), own["reward_linucb"] - own["reward"])
    own["linucb"] = own["regret_linucb"].where(own["regret_linucb"].notna(), own["reward_linucb"])
    return own.drop(columns=["reward_linucb", "regret_linucb"])


def standings(run: Run) -> pd.DataFrame:
    """One line for each cell and algorithm: mean added regret, its standard error, seeds, status,
    place among the proven.

    `comparable` is `added` corrected for seeds that a line was not played on; by it `rank` counts
    proven lines from 1 (missing for others). `tied` says that the paired difference to the best is
    within one standard error. `random` is what random play adds in that cell.
    """
    paired = added(run.rows)
    if not len(paired):
        return pd.DataFrame()
    grouped = paired.groupby([*CELL, "label"], sort=False)
    table = grouped.agg(
        added=("added", "mean"),
        added_se=("added", "sem"),
        seeds=("seed", "size"),
        linucb=("linucb", "mean"),
        algorithm=("algorithm", "first"),
        claim=("claim", "first"),
        code=("code", lambda codes: " and ".join(sorted(set(codes)))),
    ).reset_index()
    table["kept"] = False
    claims = [json.loads(text) for text in table["claim"]]
    table["status"] = ["none" if c is None else c["status"] for c in claims]
    table["notion"] = ["none" if c is None else c["notion"] for c in claims]
    table["claimed_delta"] = [math.nan if c is None else c["delta"] for c in claims]
    table["measure"] = table["world"].map(
        {name: place.measure for name, place in grid.PLACES.items()}
    )
    table["random"] = _random(run, table)
    table["best_linucb"] = _own(run, table, [entry.label for entry in grid.BONUSES])
    table["forgets"] = _own(run, table, [grid.FORGETS.label])
    table["logistic"] = _own(run, table, [grid.CLICKED.label])
    table["comparable"], table["rank"], table["tied"] = table["added"], math.nan, False
    seeds = dict(iter(paired.groupby(CELL, sort=False)))
    for where, cell in table.groupby(CELL, sort=False):
        _rank(table, cell, seeds[where].pivot_table(index="seed", columns="label", values="added"))
    return _sorted(table.drop(columns="claim"))


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    order = {name: number for number, name in enumerate(grid.PLACES)}
    return table.sort_values(
        ["world", "epsilon", "delta", "horizon", "comparable"],
        key=lambda c: (
            c.map(order) if c.name == "world" else (-c if c.name in ("epsilon", "delta") else c)
        ),
        ignore_index=True,
    )


def merged(table: pd.DataFrame, run: Run, earlier: Path) -> pd.DataFrame:
    """Standings with the cells that an earlier table has and this run has not.

    A cell is kept or replaced as a whole: ties are judged on seeds, which a table has not.
    """
    if not earlier.exists():
        return table
    old = pd.read_csv(earlier)
    played = pd.MultiIndex.from_frame(table[CELL])
    old = old[old["world"].isin(grid.PLACES) & ~pd.MultiIndex.from_frame(old[CELL]).isin(played)]
    run.kept = [place for name, place in grid.PLACES.items() if name in set(old["world"])]
    kept = old.reindex(columns=table.columns).assign(kept=True)
    return _sorted(pd.concat([table, kept])) if len(old) else table


def _random(run: Run, table: pd.DataFrame) -> list[float]:
    rows = run.rows[run.rows["label"].isin(["linucb", "random"])]
    found = {}
    for (world, horizon), part in rows.groupby(["world", "horizon"]):
        wide = part.pivot_table(
            index="seed", columns="label", values=["reward", "regret"], dropna=False
        )
        if not {"linucb", "random"} <= set(part["label"]):
            continue
        regret = (wide[("regret", "random")] - wide[("regret", "linucb")]).mean()
        reward = (wide[("reward", "linucb")] - wide[("reward", "random")]).mean()
        found[(world, horizon)] = reward if math.isnan(regret) else regret
    return [
        found.get(pair, math.nan) for pair in zip(table["world"], table["horizon"], strict=True)
    ]


def _own(run: Run, table: pd.DataFrame, labels: list[str]) -> list[float]:
    """The regret, or reward, of the best of these references, chosen after the fact."""
    rows = run.rows[run.rows["label"].isin(labels)]
    means = rows.groupby(["world", "horizon", "label"])[["regret", "reward"]].mean()
    regret = means["regret"].groupby(["world", "horizon"]).min()
    reward = means["reward"].groupby(["world", "horizon"]).max()
    found = regret.where(regret.notna(), reward)
    where = zip(table["world"], table["horizon"], strict=True)
    return [float(found.get(pair, math.nan)) for pair in where]


def _rank(table: pd.DataFrame, cell: pd.DataFrame, wide: pd.DataFrame) -> None:
    """Fill in the cell's `comparable`, `rank` and `tied`; `wide` has a row for each seed and a
    column for each line.
    """
    whole = wide[[label for label in wide if wide[label].notna().all()]]
    if len(whole.columns):
        # A line with fewer seeds may have had the easy ones: it is moved by how they differ for the
        # others.
        level = whole.mean(axis=1)
        moved = wide.sub(level, axis=0).mean() + level.mean()
        table.loc[cell.index, "comparable"] = cell["label"].map(moved)
    proven = table.loc[cell.index[cell["status"] == "proven"]].sort_values("comparable")
    if not len(proven):
        return
    table.loc[proven.index, "rank"] = np.arange(1, len(proven) + 1, dtype=float)
    best = str(proven["label"].iloc[0])
    for index, label in proven["label"].items():
        difference = (wide[label] - wide[best]).dropna()
        error = difference.sem() if len(difference) > 1 else 0.0
        table.loc[index, "tied"] = bool(label == best or difference.mean() <= error)


@dataclass(frozen=True)
class Winner:
    """The best proven line of a cell, with those it cannot be told from."""

    world: str
    budget: Budget
    horizon: int
    label: str
    added: float
    error: float
    linucb: float
    tied: tuple[str, ...]
    beats_random: bool
    seeds: int
    kept: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        record = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "budget"
        }
        number = {
            k: None if isinstance(v, float) and math.isnan(v) else v for k, v in record.items()
        }
        return number | {
            "tied": list(self.tied),
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
        }


def winners(table: pd.DataFrame) -> list[Winner]:
    """The best proven line of every cell."""
    found: list[Winner] = []
    if not len(table):
        return found
    for _, cell in table.groupby(CELL, sort=False):
        first = cell[cell["rank"] == 1]
        if not len(first):
            continue
        best = first.iloc[0]
        tied = tuple(cell.loc[cell["tied"] & (cell["rank"] > 1), "label"])
        learns = not bool(best["added"] >= best["random"])
        budget = Budget(float(best["epsilon"]), float(best["delta"]))
        where = (str(best["world"]), budget, int(best["horizon"]), str(best["label"]))
        numbers = (float(best["added"]), float(best["added_se"]), float(best["linucb"]))
        found.append(Winner(*where, *numbers, tied, learns, int(best["seeds"]), bool(best["kept"])))
    return found


def order(table: pd.DataFrame, world: str | None = None) -> list[str]:
    """Labels from the cheapest to the dearest, the proven before the others.

    By the cost as a share of all that random play loses, against the mean line of the same cell: so
    lines that skip a cell can be compared, and cells in which nobody learns count little.
    """
    part = table if world is None else table[table["world"] == world]
    share = part["comparable"] / (
        part["random"] + part["linucb"].where(part["measure"] == "regret", 0.0)
    )
    mean = (
        (share - share.groupby([part[c] for c in CELL]).transform("mean"))
        .groupby(part["label"])
        .mean()
    )
    proven = part.groupby("label")["status"].first() == "proven"
    return sorted(mean.index.astype(str), key=lambda label: (not proven[label], mean[label]))


def words(status: str, notion: str, claimed_delta: float) -> str:
    """A claim's status in a few words.

    >>> words("proven", "pure", 0.0)
    'proven, δ = 0'
    """
    if status != "proven":
        return STATUS.get(status, status)
    return (
        "proven, δ = 0"
        if claimed_delta == 0
        else ("proven" if notion == "gdp" else f"proven ({notion})")
    )


def number(value: float, error: float = math.nan) -> str:
    """A mean with its standard error, to a digit that means something.

    >>> number(103.62, 4.1), number(-1234.5), number(0.42, 0.31)
    ('104 ± 4', '−1,234', '0.4 ± 0.3')
    """
    digits = 1 if abs(value) < 10 else 0
    return f"{value:,.{digits}f}".replace("-", "−") + (
        "" if math.isnan(error) else f" ± {error:,.{digits}f}"
    )


def power(rounds: int) -> str:
    """A horizon in words: 10⁴ for 10,000."""
    exponent = math.log10(rounds)
    superscript = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    return (
        "10" + str(round(exponent)).translate(superscript)
        if exponent == round(exponent)
        else f"{rounds:,}"
    )


def world_table(table: pd.DataFrame, world: str) -> str:
    """One world's table in Markdown: a row for each line, a column for each budget and horizon; the
    best proven in bold.
    """
    part = table[table["world"] == world]
    columns = list(
        part[["epsilon", "delta", "horizon"]].drop_duplicates().itertuples(index=False, name=None)
    )
    usual = part.groupby(["epsilon", "delta", "horizon"])["seeds"].max()
    older = set(
        part.loc[part["kept"], ["epsilon", "delta", "horizon"]].itertuples(index=False, name=None)
    )
    head = [
        f"{Budget(e, d)}, {power(t)}{KEPT if (e, d, t) in older else ''}" for e, d, t in columns
    ]
    lines = [
        "| " + " | ".join(["algorithm", "claim", *head]) + " |",
        "|---|---" + "|--:" * len(head) + "|",
    ]
    cells = {(r.label, r.epsilon, r.delta, r.horizon): r for r in part.itertuples()}
    for label in order(table, world):
        mine = part[part["label"] == label].iloc[0]
        proven = mine["status"] == "proven"
        row = [
            f"`{label}`" if proven else f"*{label}* †",
            words(mine["status"], mine["notion"], mine["claimed_delta"]),
        ]
        for column in columns:
            found: Any = cells.get((label, *column))
            if found is None:
                row.append("not run")
                continue
            text = number(found.added, found.added_se) + (
                f" (n = {found.seeds})" if found.seeds < usual[column] else ""
            )
            row.append(f"**{text}**" if found.rank == 1 else f"{text} ≈" if found.tied else text)
        lines.append("| " + " | ".join(row) + " |")
    first = part.drop_duplicates(["epsilon", "delta", "horizon"]).set_index(
        ["epsilon", "delta", "horizon"]
    )
    for name, claim, what in (
        ("random play adds", "proven, ε = 0", "random"),
        (f"LinUCB's own {part['measure'].iloc[0]}", "none", "linucb"),
        (f"LinUCB's at the best α of {len(grid.BONUSES)}", "none", "best_linucb"),
        ("LinUCB's, if it forgets", "none", "forgets"),
        ("a logistic bandit's", "none", "logistic"),
    ):
        values: Any = first[what]
        if values.isna().all():  # kept from a table without this reference
            continue
        lines.append(
            "| "
            + " | ".join([f"*{name}*", claim, *(_or_none(float(values[c])) for c in columns)])
            + " |"
        )
    return "\n".join(lines)


def _or_none(value: float) -> str:
    return "not run" if math.isnan(value) else number(value)


def winners_table(found: list[Winner]) -> str:
    """Who is best where, in Markdown: rows are worlds and budgets, columns are horizons."""
    horizons = sorted({w.horizon for w in found})
    lines = [
        "| world | setting | " + " | ".join(f"T = {power(t)}" for t in horizons) + " |",
        "|---|---" + "|---" * len(horizons) + "|",
    ]
    cells = {(w.world, w.budget, w.horizon): w for w in found}
    for world, budget in dict.fromkeys((w.world, w.budget) for w in found):
        row = [grid.PLACES[world].title, str(budget)]
        row += [
            in_words(cells[(world, budget, t)]) if (world, budget, t) in cells else "–"
            for t in horizons
        ]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def in_words(winner: Winner) -> str:
    """A cell's winner, its cost, and its company."""
    text = f"**{winner.label}**{KEPT if winner.kept else ''} {number(winner.added, winner.error)}"
    if grid.PLACES[winner.world].measure == "regret" and winner.linucb > 0:
        text += f" ({(winner.added + winner.linucb) / winner.linucb:.1f} ×)"
    if winner.tied:
        more = "" if len(winner.tied) <= 2 else f" and {len(winner.tied) - 2} more"
        text += f"; tied: {', '.join(f'`{label}`' for label in winner.tied[:2])}{more}"
    return text if winner.beats_random else f"{text}; **no better than random play**"
