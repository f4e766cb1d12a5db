"""What the leaderboard compares: worlds, budgets, horizons, algorithms, and how many seeds each
gets.

Everything a number depends on is stated here or in the algorithms' own defaults; nothing is tuned
per cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from dpbandit.algorithms import registry
from dpbandit.errors import OptionError, nearest
from dpbandit.worlds import (
    Clicks,
    Degenerate,
    Drifting,
    Gaussian,
    Labelled,
    LastFM,
    Logistic,
    MovieLens,
    Moving,
    Synthetic,
    Tails,
    World,
)
from experiments.leaderboard.references import NAME as LOGISTIC

TailsKind = Literal["student", "mixture", "money"]
MovingKind = Literal["abrupt", "walk", "seasonal", "new-arm", "worst-becomes-best"]


@dataclass(frozen=True)
class Place:
    """A world of the leaderboard. `make` is told for how many rounds: some worlds move within them.

    `reward_noise` is None where nobody knows expected rewards, so that there is no regret.
    `linear`: whether they are linear in contexts, by one θ* for ever, as lower bounds assume.
    """

    name: str
    title: str
    make: Callable[[int], World]
    dim: int
    reward_range: tuple[float, float]
    reward_noise: float | None = 0.5
    linear: bool = True

    @property
    def measure(self) -> str:
        """What is counted there: regret where expected rewards are known, else reward."""
        return "reward" if self.reward_noise is None else "regret"

    @property
    def clicked(self) -> bool:
        """Whether rewards are 0 or 1."""
        return self.reward_range == WHOLE

    @property
    def bounded(self) -> bool:
        """Whether the published lower bounds speak of it."""
        return self.linear and self.measure == "regret"


SIMULATED = (
    -0.5,
    1.5,
)  # the paper's rewards have mean x·θ* in [0, 1] and noise of 0.5: 11 % lie outside and are clipped
WHOLE = (0.0, 1.0)


def _same(make: Callable[[], World]) -> Callable[[int], World]:
    """A world that does not ask for how long it is played."""
    return lambda rounds: make()


def _moving(kind: MovingKind, title: str, dim: int) -> Place:
    return Place(
        kind,
        f"{title}, d = {dim}",
        lambda rounds: Moving(kind, rounds),
        dim,
        SIMULATED,
        linear=False,
    )


def _tails(kind: TailsKind, title: str, dim: int) -> Place:
    # The bounds know no such noise.
    return Place(
        kind, title, _same(lambda: Tails(kind)), dim, Tails(kind).reward_range, linear=False
    )


def _labelled(name: str, title: str, dim: int) -> Place:
    words = f"{title}, d = {dim}"
    return Place(name, words, _same(lambda: Labelled(name)), dim, WHOLE, linear=False)


PLACES: dict[str, Place] = {
    place.name: place
    for place in (
        Place("synthetic", "Simulation, d = 10", _same(Synthetic), 10, SIMULATED),
        Place(
            "synthetic-50", "Simulation, d = 50", _same(lambda: Synthetic(dim=50)), 50, SIMULATED
        ),
        Place(
            "little-noise",
            "Noise of 0.1, d = 10",
            _same(lambda: Synthetic(reward_noise=0.1)),
            10,
            SIMULATED,
            0.1,
        ),
        _tails("student", "Heavy tails, d = 10", 10),
        _tails("mixture", "Rare large noise, d = 10", 10),
        _tails("money", "Money, five articles", 5),
        Place("lastfm-pca", "LastFM, PCA, d = 25", _same(LastFM), 25, WHOLE, None),
        Place(
            "lastfm-svd",
            "LastFM, SVD, d = 25",
            _same(lambda: LastFM(features="svd")),
            25,
            WHOLE,
            None,
        ),
        Place("drifting", "Drifting contexts, d = 10", _same(Drifting), 10, SIMULATED),
        Place("degenerate", "Degenerate contexts, d = 10", _same(Degenerate), 10, SIMULATED),
        Place("clicks", "Clicks at 2%, d = 10", _same(Clicks), 10, WHOLE, linear=False),
        Place("logistic", "Logistic clicks, d = 3", _same(Logistic), 3, WHOLE, linear=False),
        _moving("abrupt", "θ changes once", 10),
        _moving("walk", "θ walks", 10),
        _moving("seasonal", "θ has seasons", 10),
        _moving("new-arm", "A new arm comes", 20),
        _moving("worst-becomes-best", "Worst becomes best", 20),
        Place("catalogue", "Twenty articles, d = 20", _same(lambda: Gaussian(20)), 20, SIMULATED),
        Place(
            "catalogue-clicks",
            "Twenty articles, clicks at 10%, d = 20",
            _same(lambda: Clicks(0.1, arms=20, one_hot=True)),
            20,
            WHOLE,
            linear=False,
        ),
        Place("movielens", "MovieLens, d = 7", _same(MovieLens), 7, WHOLE, None),
        _labelled("digits", "Digits", 90),
        _labelled("image_segments", "Image segments", 63),
        _labelled("wine", "Wine", 27),
        _labelled("breast_cancer", "Breast cancer", 18),
        _labelled("phishing", "Phishing", 18),
        _labelled("iris", "Iris", 15),
        _labelled("bananas", "Bananas", 6),
    )
}


class Budget(NamedTuple):
    """A setting of (ε, δ). What an algorithm promises at it is its claim, and only its claim."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        return f"({self.epsilon:g}, {self.delta:g})"


# The paper's, whose δ protects nobody; then three that a reviewer could accept, from weak to
# strong.
BUDGETS = (Budget(2.0, 0.1), Budget(2.0, 1e-5), Budget(1.0, 1e-6), Budget(0.5, 1e-6))
# What the page begins with.
SETTING, ROUNDS = BUDGETS[2], (10_000, 100_000)


@dataclass(frozen=True)
class Entry:
    """One line of the leaderboard: an algorithm, and options of its own."""

    label: str
    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict)


# Without a budget: they run once for each world and horizon. Added regret counts from the first,
# whose α is 0.3. The others are there so that LinUCB is no straw man: the best of three α, one that
# forgets, and where rewards are 0 or 1 a logistic bandit.
BONUSES = (
    Entry("linucb", "linucb"),
    Entry("linucb, α = 1", "linucb", {"alpha": 1.0}),
    Entry("linucb, α = 0.1", "linucb", {"alpha": 0.1}),
)
FORGETS = Entry("linucb that forgets", "linucb", {"forget": 1 - 1 / 3000})
CLICKED = Entry("logistic bandit", LOGISTIC)
REFERENCES = (*BONUSES, FORGETS, Entry("random", "random"))


def references(place: Place) -> tuple[Entry, ...]:
    """Those that play a world."""
    return (*REFERENCES, CLICKED) if place.clicked else REFERENCES


NO_LINES = {entry.algorithm for entry in (*REFERENCES, CLICKED)}
VARIANTS = (
    Entry("toeplitz + ellipsoid", "toeplitz", {"shape": "ellipsoid"}),
    Entry("toeplitz + instruments", "toeplitz", {"shape": "instruments"}),
    Entry("tree-gauss + instruments", "tree-gauss", {"shape": "instruments"}),
    Entry("tree-gauss, Honaker", "tree-gauss", {"honaker": True}),
    Entry("local, Gaussian", "local", {"noise": "gaussian"}),
    Entry("private-ts, Gaussian", "private-ts", {"noise": "gaussian"}),
    Entry("anytime, no public contexts", "anytime", {"public_contexts": None}),
    # Where rewards are 0 or 1; elsewhere the algorithm refuses, and the page says so.
    Entry("anytime, clicks", "anytime", {"rewards": "clicks"}),
    Entry("anytime-joint, clicks", "anytime-joint", {"rewards": "clicks"}),
)


def entries(wanted: Iterable[str] | None = None) -> list[Entry]:
    """Every built-in algorithm and its variants, or those wanted: a label, or a name for all lines
    of that algorithm.

    An algorithm that you registered takes part when it is named.

    >>> [entry.label for entry in entries(["toeplitz", "local, Gaussian"])]
    ['toeplitz', 'toeplitz + ellipsoid', 'toeplitz + instruments', 'local, Gaussian']
    """
    known = registry.algorithms()
    built_in = [
        Entry(name, name)
        for name, a in known.items()
        if not a.registered_by_user and name not in NO_LINES
    ]
    every = [*built_in, *(variant for variant in VARIANTS if variant.algorithm in known)]
    if wanted is None:
        return every
    chosen: list[Entry] = []
    for name in wanted:
        if name in NO_LINES:
            continue  # always there
        found = [entry for entry in every if entry.label == name] if name not in known else []
        found = found or [entry for entry in every if entry.algorithm == name]
        if not found and name in known:
            found = [Entry(name, name)]
        if not found:
            raise OptionError(
                f"no line of the leaderboard is called {name!r}: "
                f"{nearest(name, [e.label for e in every])}"
            )
        chosen += [entry for entry in found if entry not in chosen]
    return chosen


def places(wanted: Iterable[str] | None = None) -> list[Place]:
    """All worlds, or those wanted.

    >>> [place.dim for place in places(["synthetic", "lastfm-pca"])]
    [10, 25]
    """
    names = list(PLACES) if wanted is None else list(dict.fromkeys(wanted))
    for name in names:
        if name not in PLACES:
            raise OptionError(
                f"no world of the leaderboard is called {name!r}: {nearest(name, PLACES)}"
            )
    return [PLACES[name] for name in names]


@dataclass(frozen=True)
class Profile:
    """How large the leaderboard is: horizon → seeds, and the same for what is slow in many
    dimensions.
    """

    name: str
    seeds: Mapping[int, int]
    slow_seeds: Mapping[int, int]
    budgets: tuple[Budget, ...] = BUDGETS


# Measured per round on one core: dgs takes 17 µs in 10 dimensions, 300 µs in 50, and 420 µs with
# LastFM's 12,133 known arms, where others take 10 to 35; joint inverts a noisy Gram matrix in every
# round. The logistic bandit is written in Python, and slow everywhere.
SLOW = {"dgs": 25, "joint": 25, LOGISTIC: 1}  # and from how many dimensions on
# Worlds of so many dimensions have a third of the seeds from so many rounds on, two at least: they take
# as long as all others together.
WIDE, WIDE_ROUNDS = 50, 10_000
# `setting` is what the page begins with, in minutes; the other budgets stay as they are in the table.
PROFILES = {
    "setting": Profile("setting", {1_000: 12, 10_000: 12}, {1_000: 6, 10_000: 3}, (SETTING,)),
    "quick": Profile("quick", {1_000: 4, 10_000: 4}, {1_000: 2, 10_000: 2}),
    "full": Profile("full", {1_000: 12, 10_000: 12, 100_000: 4}, {1_000: 6, 10_000: 3, 100_000: 0}),
}


def profile(name: str) -> Profile:
    """The profile of that name, or an error with the nearest one.

    >>> profile("full").seeds[10_000]
    12
    """
    try:
        return PROFILES[name]
    except KeyError:
        raise OptionError(f"no profile is called {name!r}: {nearest(name, PROFILES)}") from None


def seeds_for(size: Profile, entry: Entry, place: Place, horizon: int) -> int:
    """How many seeds this line gets in this cell: 0 for none.

    >>> place, lines = PLACES["synthetic-50"], (Entry("dgs", "dgs"), Entry("local", "local"))
    >>> [seeds_for(PROFILES["full"], line, place, 100_000) for line in lines]
    [0, 2]
    """
    slow = place.dim >= SLOW.get(entry.algorithm, place.dim + 1)
    count = (size.slow_seeds if slow else size.seeds)[horizon]
    if place.dim >= WIDE and horizon >= WIDE_ROUNDS and count:
        return max(math.ceil(count / 3), 2)
    return count


def work(entry: Entry, place: Place) -> float:
    """About how many microseconds a round takes: for the time left, nothing else."""
    if entry.algorithm == LOGISTIC:
        return 100.0
    slow = 8.0 * (4.0 if place.name.startswith("lastfm") else 1.0)
    return (1.5 + place.dim**2 / 200) * (slow if entry.algorithm in SLOW else 1.0)
