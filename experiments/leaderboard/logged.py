"""Logged clicks on the leaderboard: the sample of Open Bandit, where one arm's reward a round is known.

There is no regret and no paired loss here: a line is judged by replay. On the uniform log that is
rejection: a round counts where the line chooses what was shown, and it learns from no other. On the
log of Bernoulli Thompson sampling matched rounds are weighted by the inverse of their propensity.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import dpbandit as dpb
from dpbandit.errors import LogWarning, PrivacyWarning
from dpbandit.worlds import DataMissing, OpenBandit
from experiments.leaderboard.grid import SETTING
from experiments.leaderboard.store import code_version

NAME, TITLE = "open-bandit", "Logged clicks: Open Bandit"
CAMPAIGNS = ("women", "men", "all")
POLICIES = {"random": "replay", "bts": "snips"}  # and by which estimator each is judged
# Public, proven lines that say different things; `linucb` and `random` to compare with.
LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "linucb": ("linucb", {}),
    "anytime": ("anytime", {}),
    "anytime, clicks": ("anytime", {"rewards": "clicks"}),
    "anytime-joint, clicks": ("anytime-joint", {"rewards": "clicks"}),
    "local": ("local", {}),
    "toeplitz": ("toeplitz", {}),
    "random": ("random", {}),
}
SEEDS = 4
COLUMNS = ("campaign", "policy", "label", "seed", "rate", "low", "high", "matched")
ABOUT = """Open Bandit's sample is a log: each row knows the reward of what was shown and of nothing else. So these numbers are **replays**, not runs, and no
line is ranked by them. On the uniform log (*random*) a round counts where a line chooses what was shown (rejection); on the log of Bernoulli
Thompson sampling (*bts*) such rounds are weighted by the inverse of their propensity, at most as many as there are items, and self-normalised. Clicks in a
hundred, the mean of {seeds} seeds of noise and ties, and in brackets the mean 95% interval of the rows' chance; (1, 1e-6), proven as above.

**Nothing here tells one line from another**: of 10,000 rows with 38 to 69 clicks one in 34 to 80 matches, so a line learns from some 60 to 330 rows and sees one or two clicks. The
table says that lines run on real logs, and what such a sample can say."""


def play(
    folder: Path, campaigns: tuple[str, ...] = CAMPAIGNS, seeds: int = SEEDS
) -> tuple[pd.DataFrame | None, str]:
    """A row for each line, log and seed, and nothing; or None, and why it was left out."""
    kept = folder / f"{NAME}-{code_version()}.parquet"
    if kept.exists():
        return pd.read_parquet(kept), ""
    rows: list[dict[str, Any]] = []
    for campaign in campaigns:
        for policy in POLICIES:
            try:
                world = OpenBandit(campaign, policy=policy)  # type: ignore[arg-type]
            except DataMissing as missing:
                return None, f"Open Bandit: {missing}"
            for seed in range(seeds):
                rows += _replayed(world.records, campaign, policy, world.arms, seed)
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    found.to_parquet(kept)
    return found, ""


def _replayed(
    records: Callable[[int], Any], campaign: str, policy: str, arms: int, seed: int
) -> list[dict[str, Any]]:
    """All lines on one log, side by side."""
    epsilon, delta = SETTING
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LogWarning)  # weights are cut, as the page says
        warnings.simplefilter("ignore", PrivacyWarning)
        found = dpb.replay(
            records(seed),
            LINES,
            reward_range=(0.0, 1.0),
            propensity="propensity",
            clip=float(arms),
            seed=seed,
            epsilon=epsilon,
            delta=delta,
            horizon=10_000,
        )
    about = {"campaign": campaign, "policy": policy, "seed": seed}
    ours = [one for one in found.estimates if one.estimator == POLICIES[policy]]
    return [
        about
        | {"label": one.algorithm, "rate": one.value, "low": one.low, "high": one.high}
        | {"matched": one.matched}
        for one in ours
    ]


def markdown(found: pd.DataFrame) -> str:
    """The section of the page."""
    logs = list(found[["campaign", "policy"]].drop_duplicates().itertuples(index=False, name=None))
    head = [f"{campaign}, {policy}" for campaign, policy in logs]
    lines = ["| line | " + " | ".join(head) + " |", "|---" + "|--:" * len(logs) + "|"]
    means = found.groupby(["label", "campaign", "policy"])[["rate", "low", "high"]].mean() * 100
    for label in dict.fromkeys(found["label"]):
        row = [f"`{label}`"]
        for log in logs:
            one: Any = means.loc[(label, *log)] if (label, *log) in means.index else None
            row.append("–" if one is None else f"{one.rate:.2f} ({one.low:.2f} to {one.high:.2f})")
        lines.append("| " + " | ".join(row) + " |")
    about = ABOUT.format(seeds=found["seed"].nunique())
    return f"{about}\n\n" + "\n".join(lines)
