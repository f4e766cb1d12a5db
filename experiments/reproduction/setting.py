"""Which algorithms, at which setting, and how large the experiments are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dpbandit.errors import OptionError, nearest

FIGURE_SET = ("linucb", "dgs-figure", "private-linucb-published")
PROVEN_SET = ("dgs", "tree-gauss", "local", "private-linucb")
ALL = (*FIGURE_SET, "dgs-published", *PROVEN_SET)
EPSILON, DELTA = 2.0, 0.1
SIMULATION_RANGE, LASTFM_RANGE = (-0.5, 1.5), (0.0, 1.0)

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Profile:
    """How large the experiments are."""

    name: str
    horizon: int
    seeds: int
    lastfm_horizon: int
    lastfm_seeds: int
    epsilons: tuple[float, ...]
    change_rounds: int
    lastfm_change_rounds: int
    change_runs: int
    lastfm_change_runs: int


PAPER = Profile(
    "paper",
    10_000,
    20,
    50_000,
    20,
    (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
    500,
    5_000,
    5,
    5,
)
PROFILES = {
    "quick": replace(
        PAPER,
        name="quick",
        lastfm_horizon=10_000,
        lastfm_seeds=6,
        epsilons=(0.5, 1.0, 2.0, 3.0, 5.0),
    ),
    "paper": PAPER,
    "full": replace(PAPER, name="full", horizon=100_000, seeds=100),
}


def profile(name: str) -> Profile:
    """The profile of that name, or an error with the nearest one."""
    try:
        return PROFILES[name]
    except KeyError:
        raise OptionError(f"no profile is called {name!r}: {nearest(name, PROFILES)}") from None
