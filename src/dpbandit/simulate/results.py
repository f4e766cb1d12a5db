"""The results of a run: a table of recorded rounds, its summary, and pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from dpbandit import frames

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from matplotlib.figure import Figure

COLUMNS = ("algorithm", "seed", "round", "reward", "regret", "theta_error")
TYPES = {"round": np.int64, "reward": np.float64, "regret": np.float64, "theta_error": np.float64}


@dataclass
class Results:
    """Cumulative reward and regret and the parameter error at recorded rounds, for every algorithm and seed.

    >>> import dpbandit as dpb
    >>> results = dpb.run(dpb.worlds.Synthetic(), ["linucb"], horizon=50, seeds=2, record=[10])
    >>> results.frame()[["algorithm", "seed", "round"]].values.tolist()
    [['linucb', 0, 10], ['linucb', 0, 50], ['linucb', 1, 10], ['linucb', 1, 50]]
    >>> int(results.summary().loc["linucb", "seeds"])
    2
    >>> figure = results.plot("regret")
    """

    world: str
    horizon: int
    options: dict[str, Any]
    claims: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    complete: bool = True

    @overload
    def frame(self, kind: Literal["pandas"] = "pandas") -> pd.DataFrame: ...
    @overload
    def frame(self, kind: Literal["polars"]) -> pl.DataFrame: ...
    @overload
    def frame(self, kind: Literal["arrow"]) -> pa.Table: ...
    def frame(self, kind: str = "pandas") -> Any:
        """A frame with columns algorithm, seed, round, reward, regret (both cumulative), theta_error.

        `kind` is "pandas", "polars" or "arrow".
        """
        sizes = [len(row["round"]) for row in self.rows]
        columns: dict[str, Any] = {
            "algorithm": [
                row["algorithm"]
                for row, size in zip(self.rows, sizes, strict=True)
                for _ in range(size)
            ],
            "seed": np.repeat(np.array([row["seed"] for row in self.rows] or [0]), sizes or [0]),
        }
        for name in COLUMNS[2:]:
            columns[name] = np.concatenate(
                [np.zeros(0, dtype=TYPES[name]), *(row[name] for row in self.rows)]
            )
        return frames.frame(columns, kind)

    def summary(self) -> pd.DataFrame:
        """Mean and standard error over seeds at the last round, one row per algorithm, lowest regret first."""
        frame = self.frame()
        last = frame[frame["round"] == self.horizon]
        order = list(dict.fromkeys(frame["algorithm"]))
        grouped = last.groupby("algorithm", sort=False)
        columns = ["reward", "regret", "theta_error"]
        table = grouped[columns].mean()
        errors = grouped[columns].sem().rename(columns=lambda c: f"{c}_se")
        table = table.join(errors).join(grouped.size().rename("seeds")).reindex(order)
        table = table[
            ["seeds", "reward", "reward_se", "regret", "regret_se", "theta_error", "theta_error_se"]
        ]
        by = "regret" if table["regret"].notna().all() else "reward"
        return table.sort_values(by, ascending=by == "regret")

    def plot(self, what: str = "regret") -> Figure:
        """A picture of regret, reward or theta_error over rounds: means with bands of two standard errors."""
        from dpbandit.simulate.figures import curves

        return curves(self, what)

    def save(self, folder: str | Path) -> list[Path]:
        """Write table, summary, pictures and configuration into a folder; returns the files."""
        from dpbandit.simulate.figures import save_all

        return save_all(self, Path(folder))

    def __repr__(self) -> str:
        seeds = {row["seed"] for row in self.rows}
        note = "" if self.complete else ", interrupted"
        return f"<Results: {', '.join(self.claims)} on {self.world}, {self.horizon:,} rounds, {len(seeds)} seed{'s' * (len(seeds) > 1)}{note}>"
