"""Real clicks: the sample of the Open Bandit Dataset, logged by uniform play or by Bernoulli Thompson sampling.

The log knows the reward of one arm a round, so this world is not played by `dpb.run` but replayed: by `replay` here (Li,
Chu, Langford & Wang 2011) where it was logged uniformly, by `dpb.replay(world.records(), …)` with its propensities.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from dpbandit.worlds import data

SHARED = 4  # features beside the item's components: three positions and one affinity
MOST_DIM = 25


class OpenBandit:
    """One campaign's log: 10,000 rounds, each showing one of the campaign's items. `policy` drew it: "random" uniformly, "bts"
    by Bernoulli Thompson sampling, whose propensities the log has.

    Every item is an arm of every round: 80 in "all", 34 in "men", 46 in "women". An arm's context has `dim` features:
    the item's number, standardised, and its three categories, one-hot, centred and reduced together to dim − 4
    principal components, scaled so that the longest item has norm 1; the position in the panel, one-hot of 3, the same for
    all arms; and a/(1 + a) for the user's affinity a to that item. The whole is divided by √3, so no norm exceeds 1. The
    users' own categories are left out: in a linear model they matter only crossed with items, which 10,000 rows cannot fill.
    """

    reward_range = (0.0, 1.0)
    public_contexts = None

    def __init__(
        self,
        campaign: Literal["all", "men", "women"] = "all",
        dim: int = 20,
        policy: Literal["random", "bts"] = "random",
    ) -> None:
        if campaign not in ("all", "men", "women"):
            raise ValueError(f"campaign must be 'all', 'men' or 'women', not {campaign!r}")
        if policy not in ("random", "bts"):
            raise ValueError(f"policy must be 'random' or 'bts', not {policy!r}")
        if not SHARED < dim <= MOST_DIM:
            raise ValueError(f"OpenBandit needs dim {SHARED + 1} to {MOST_DIM}, not {dim}")
        self.campaign, self.dim, self.policy = campaign, dim, policy
        self.log = load(data.find("obd"), campaign, policy)
        self.rounds, self.arms = len(self.log.chosen), len(self.log.items)
        self._items = _components(self.log.items, dim - SHARED)

    @property
    def clicks(self) -> int:
        """Clicks in the whole log."""
        return int(self.log.clicked.sum())

    @property
    def expected_matches(self) -> float:
        """How many rounds of a replay count, on average, whatever the policy: rounds / arms."""
        return self.rounds / self.arms

    def contexts(self, index: int) -> NDArray[np.float64]:
        """The contexts of round `index`, from 0; row i is item i."""
        found = np.zeros((self.arms, self.dim))
        found[:, :-SHARED] = self._items
        found[:, self.dim - SHARED + self.log.positions[index]] = 1.0
        affinity = self.log.affinities[index]
        found[:, -1] = affinity / (1.0 + affinity)
        return found / math.sqrt(3.0)

    def records(self, order: int | None = None) -> Iterator[dict[str, Any]]:
        """The rounds for `dpb.replay(world.records(), …, propensity="propensity", clip=…)`.

        `order` is a seed: items then come in an order drawn anew each round, so that nobody breaks ties by their number.
        """
        rng = None if order is None else np.random.default_rng(order)
        for index, item in enumerate(self.log.chosen):
            rows = np.arange(self.arms) if rng is None else rng.permutation(self.arms)
            yield {
                "contexts": self.contexts(index)[rows],
                "action": int(np.flatnonzero(rows == item)[0]),
                "reward": float(self.log.clicked[index]),
                "propensity": float(self.log.propensities[index]),
            }

    def episode(self, seed: int) -> NoReturn:
        """Refused: the rewards of the arms that were not shown are unknown."""
        del seed
        raise TypeError(
            f"{self!r} knows one arm's reward a round: play it with dpbandit.worlds.replay(bandit, world), or "
            "dpb.replay(world.records(), …)"
        )

    def __repr__(self) -> str:
        return f"OpenBandit(campaign={self.campaign!r}, dim={self.dim}, policy={self.policy!r})"


class Player(Protocol):
    """What `replay` needs of a bandit."""

    def select(self, contexts: NDArray[np.float64], /) -> Any:
        """The number of the chosen row."""

    def update(self, context: NDArray[np.float64], reward: float, /) -> Any:
        """Learn from one reward."""


@dataclass(frozen=True)
class Replay:
    """The result of a replay: of `rounds` logged rounds `matched` counted, with `clicks` clicks.

    >>> Replay(rounds=10_000, matched=300, clicks=3).ctr
    0.01
    """

    rounds: int
    matched: int
    clicks: int

    @property
    def ctr(self) -> float:
        """Clicks per counted round: the estimate of the policy's click rate."""
        return self.clicks / self.matched if self.matched else math.nan

    @property
    def standard_error(self) -> float:
        """Standard error of `ctr`, with (clicks + ½)/(matched + 1) as the rate, so that no clicks
        do not imply certainty."""
        rate = (self.clicks + 0.5) / (self.matched + 1)
        return math.sqrt(rate * (1 - rate) / self.matched) if self.matched else math.nan


def replay(bandit: Player, world: OpenBandit, *, seed: int = 0) -> Replay:
    """Play the log once, in time order. A round counts if the bandit chooses the item that was shown; it learns from no other.

    Unbiased because the log was drawn uniformly: whether a round counts depends on nothing but that draw. But the sample
    has 38 to 46 clicks in 10,000 rows, of which 1/80 to 1/34 count: far too few to rank policies. It checks that a policy
    runs on real logs. A private bandit's horizon must cover the counted rounds: `world.rounds` always does, for more noise.

    The bandit sees the items in an order drawn from `seed`, anew each round, so that it cannot break ties by item number.

    For example `replay(dpb.make("linucb", dim=world.dim, seed=0), world).ctr`; `world.expected_matches` says how many count.
    """
    if world.policy != "random":
        raise ValueError(
            f"{world!r} was not logged uniformly: use dpb.replay(world.records(), …, propensity='propensity')"
        )
    rng = np.random.default_rng(seed)
    matched = clicks = 0
    for index, (item, clicked) in enumerate(zip(world.log.chosen, world.log.clicked, strict=True)):
        order = rng.permutation(world.arms)
        contexts = world.contexts(index)[order]
        arm = int(bandit.select(contexts))
        if not 0 <= arm < world.arms:
            raise ValueError(
                f"the bandit selected arm {arm} of {world.arms}: select must return an index of a row"
            )
        if order[arm] == item:
            bandit.update(contexts[arm], float(clicked))
            matched += 1
            clicks += int(clicked)
    return Replay(world.rounds, matched, clicks)


class Log(NamedTuple):
    """A campaign's log in time order: per round the item shown and with which probability, its position from 0, the click,
    the affinity to every item.
    """

    chosen: NDArray[np.int64]
    positions: NDArray[np.int64]
    clicked: NDArray[np.int64]
    affinities: NDArray[np.float64]
    items: NDArray[np.float64]
    propensities: NDArray[np.float64]


@lru_cache(maxsize=6)
def load(path: Path, campaign: str, policy: str) -> Log:
    """Read one campaign from the zip, or from the folder of a package."""
    rows = _read(path, f"obd/{policy}/{campaign}/{campaign}.csv")
    items = _read(path, f"obd/{policy}/{campaign}/item_context.csv")
    rows.sort(key=lambda row: row["timestamp"])  # they are in order; replay relies on it
    names = [f"user-item_affinity_{item}" for item in range(len(items))]
    return Log(
        chosen=np.array([int(row["item_id"]) for row in rows]),
        positions=np.array([int(row["position"]) - 1 for row in rows]),
        clicked=np.array([int(row["click"]) for row in rows]),
        affinities=np.array([[float(row[name]) for name in names] for row in rows]),
        items=_encode(sorted(items, key=lambda item: int(item["item_id"]))),
        propensities=np.array([float(row["propensity_score"]) for row in rows]),
    )


def _read(path: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.member(path, name).decode("ascii"), newline="")))


def _encode(items: list[dict[str, str]]) -> NDArray[np.float64]:
    """The item's number, standardised, and its categories, one-hot."""
    number = np.array([float(item["item_feature_0"]) for item in items])
    columns = [(number - number.mean()) / number.std()]
    for feature in ("item_feature_1", "item_feature_2", "item_feature_3"):
        for category in sorted({item[feature] for item in items}):
            columns.append(np.array([float(item[feature] == category) for item in items]))
    return np.stack(columns, axis=1)


def _components(items: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    left, sizes, right = np.linalg.svd(items - items.mean(axis=0), full_matrices=False)
    largest = np.abs(right).argmax(axis=1)
    # A component's sign is arbitrary: fix it.
    signs = np.sign(right[np.arange(len(right)), largest])
    scores = (left * sizes * signs)[:, :count]
    return np.asarray(scores / np.linalg.norm(scores, axis=1).max())
