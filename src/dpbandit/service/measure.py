"""Private measurements of the rewards of two kinds of rounds: a holdout against the policy, or
rounds in which a shadow bandit agreed with the shown arm against the others.

Rewards are summed in stretches of a fixed number of rounds. A stretch is released once, when it is
full, with noise. No reward is in two stretches, so all of them together cost as much as one. That
cost is a share of the bandit's budget, set aside when it is made. A round's weight is decided
before its reward is known, by released models, public contexts and random draws. docs/privacy.md
has the proof.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dpbandit.errors import OptionError
from dpbandit.privacy.accounting import epsilon_of, mu_of
from dpbandit.privacy.claim import Claim, Spent
from dpbandit.privacy.grid import GRID_SHARE, lattice_slack

if TYPE_CHECKING:
    from dpbandit.bandit import Bandit
    from dpbandit.privacy.sources import Source

# Rewards and weights are whole numbers of these parts of the range and of 1: so are their products.
REWARD_STEPS, WEIGHT_STEPS = 1 << 24, 1 << 12
WHOLE = REWARD_STEPS * WEIGHT_STEPS
# What the grid of this noise may take of the part of δ that a claim sets aside for grids.
SLIGHT = 1e-3
# A round weighs 1 over the probability of what was shown, and no more than this.
MOST_WEIGHT = 10.0
SHADOW, HOLDOUT = "shadow", "holdout"
NORMAL_95 = 1.959964


@dataclass
class Tally:
    """Rounds of one comparison: each counts `weight` of the time for one kind, and the rest of it
    for the other. Weights are public; sums are, once they were released."""

    rounds: int = 0
    weight: int = 0
    squares: int = 0  # of weights
    others: int = 0  # squares of what is left of each weight
    hits: int = 0  # rounds of any weight for the first kind
    stretches: int = 0  # released
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def add(self, weight: int) -> None:
        self.rounds += 1
        self.weight += weight
        self.squares += weight**2
        self.others += (WEIGHT_STEPS - weight) ** 2
        self.hits += weight > 0


@dataclass
class Measure:
    """A bandit's measurement: the stretch under way, which is private, and what was released."""

    noise: str
    scale: float  # of the noise, in whole numbers: the range times a weight of 1 is `WHOLE`
    shift: float  # how far all rewards of a unit can move all stretches, in the noise's norm
    cost: float  # of all stretches together, in the currency of the bandit's ledger
    every: int
    releases: int = 0
    first: int = 0  # the bandit's rounds at the first and at the last release
    last: int = 0
    open: dict[str, Tally] = field(default_factory=dict)
    told: dict[str, Tally] = field(default_factory=dict)

    def learned(self, kind: str, weight: int, reward: float, low: float, high: float) -> bool:
        """A round was learned, with this reward; whether its stretch is full, and to be released."""
        if not 0 <= weight <= WEIGHT_STEPS:
            raise OptionError(f"a weight is a number from 0 to {WEIGHT_STEPS}")
        part = (min(max(reward, low), high) - low) / (high - low)
        steps = round(part * REWARD_STEPS)
        tally = self.open.setdefault(kind, Tally(sums=[0, 0]))
        tally.add(weight)
        tally.sums[0] += steps * weight
        tally.sums[1] += steps * (WEIGHT_STEPS - weight)
        return tally.rounds == self.every

    def release(self, kind: str, source: Source, rounds: int) -> None:
        """Release a stretch that is full, after so many rounds of the bandit."""
        import numpy as np

        from dpbandit.privacy.sources import Pending

        tally = self.open.pop(kind)  # so that no reward is ever in another release
        tally.stretches = 1
        whole = [int(number) for number in tally.sums]
        pending = Pending(np.array(whole, dtype=np.float64), whole, 1.0)
        noisy = source.release(
            self.noise, pending, scale=self.scale, shift=self.shift, index=rounds
        )
        told = self.told.setdefault(kind, Tally())
        for name in ("rounds", "weight", "squares", "others", "hits", "stretches"):
            setattr(told, name, getattr(told, name) + getattr(tally, name))
        told.sums = [a + float(b) for a, b in zip(told.sums, noisy, strict=True)]
        self.releases += 1
        self.first, self.last = self.first or rounds, rounds

    def to_text(self) -> str:
        """All of it: the learner's alone."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Measure:
        record = json.loads(text)
        for name in ("open", "told"):
            record[name] = {kind: Tally(**tally) for kind, tally in record[name].items()}
        return cls(**record)

    def public(self) -> dict[str, Any]:
        """What was released, and what is known of its noise."""
        spread = self.scale * (math.sqrt(2.0) if self.noise == "laplace" else 1.0)
        told = {kind: asdict(tally) for kind, tally in self.told.items()}
        # How many rounds a stretch has is public; its sums are not.
        waiting = {kind: tally.rounds for kind, tally in self.open.items()}
        return {
            "every": self.every,
            "releases": self.releases,
            "spread": spread,
            "told": told,
            "waiting": waiting,
        }


# ---------------------------------------------------------------------- what it costs


def wanted(config: dict[str, Any]) -> bool:
    """Whether a bandit of this config has a shadow or a holdout."""
    return bool(config.get("shadow") or config.get("holdout"))


def weight_of(propensity: float | None) -> int:
    """What a round weighs in which the bandit would have shown what was shown: 1 over the
    probability with which that was, as far as it is known."""
    if propensity is None:
        return WEIGHT_STEPS
    return round(min(1.0 / propensity, MOST_WEIGHT) / MOST_WEIGHT * WEIGHT_STEPS)


def set_aside(claim: Claim, share: float, *, delta: float | None) -> dict[str, Any]:
    """The ε and δ that a bandit of this claim learns with, so that a share of its budget is left."""
    if _adds_squares(claim):
        if delta is None:
            raise OptionError("a shadow and a holdout of a claim in μ-GDP need its delta")
        whole = mu_of(epsilon=claim.epsilon, delta=delta * (1 - GRID_SHARE))
        left = without_grids(delta)["delta"]
        epsilon = epsilon_of(mu=math.sqrt(1 - share) * whole, delta=left)
        return {"epsilon": epsilon, "delta": left}
    return {"epsilon": (1 - share) * claim.epsilon}


def paid_on_top(claim: Claim, share: float) -> float:
    """The ε of a bandit that has this claim and of a measurement besides, which has so large a share
    of both together; at the claim's δ. A little more, in round numbers."""
    if _adds_squares(claim) and claim.mu is not None:
        epsilon = epsilon_of(
            mu=claim.mu / math.sqrt(1 - share), delta=claim.delta * (1 - GRID_SHARE)
        )
    else:
        epsilon = claim.epsilon / (1 - share)
    return math.ceil(epsilon * 1e4) / 1e4


def without_grids(delta: float | None) -> dict[str, float]:
    """What is left of δ without the part that the stretches' grids may take. Grids count at the ε
    of both together: a bandit with all of ε must be possible at this δ, so that the learner's grid,
    which is finer against its noise, and the stretches' take `GRID_SHARE` of δ at most."""
    return {} if delta is None else {"delta": delta * (1 - SLIGHT)}


def _adds_squares(claim: Claim) -> bool:
    """Whether what is paid for learning and for a measurement adds up as μ², or as ε; OptionError
    where it is neither."""
    if claim.status == "proven" and 0 < claim.epsilon < math.inf:
        if claim.notion == "gdp" and claim.mu is not None:
            return True
        if claim.notion == "pure" and claim.delta == 0.0:
            return False
    more = "; give local='never'" if claim.notion == "parallel" else ""
    raise OptionError(
        "a shadow and a holdout need a proven claim in μ-GDP or pure ε with a finite ε; this one is "
        f"{claim.notion}, {claim.status}{more}"
    )


def measure_for(bandit: Bandit, whole: Claim, *, every: int, share: float) -> Measure:
    """The measurement of a bandit that was made with what `set_aside` left of a claim."""
    from dpbandit.privacy.noise import find_noise

    unit = bandit.options.protects
    if unit.option != "reward" and not (unit.cap is not None and unit.counts_are_public):
        raise OptionError(
            f"unit={unit.option!r} has no shadow and no holdout: use 'reward' or ('user', C)"
        )
    rewards = unit.cap or 1
    claim = bandit.claim
    # Of the bandit as it was made: with less ε it may have come to answer its first rewards.
    if _adds_squares(claim) and claim.mu is not None:
        delta = whole.delta
        budget = mu_of(epsilon=whole.epsilon, delta=delta * (1 - GRID_SHARE))
        mu = math.sqrt(budget**2 - claim.mu**2) * (1 - 1e-9)
        scale = rewards * WHOLE / mu
        if lattice_slack(2 * rewards, whole.epsilon, 1 / scale) > SLIGHT * GRID_SHARE * delta:
            raise OptionError(f"delta = {delta:g} is too small for a shadow or a holdout")
        made = Measure("gaussian", scale, float(rewards * WHOLE), (mu / rewards) ** 2, every)
    else:
        epsilon = share * whole.epsilon * (1 - 1e-9)
        scale = rewards * WHOLE / epsilon
        made = Measure("laplace", scale, float(rewards * WHOLE), epsilon / rewards, every)
    # Noise too large for the sampler is refused now, not when it is drawn.
    find_noise(made.noise).whole_sampler(2, 2 * scale)
    return made


def with_measure(claim: Claim, whole: Claim) -> Claim:
    """The claim of a bandit with its measurement: what was asked for, and what it assumes."""
    mu = None
    if claim.mu is not None:
        mu = mu_of(epsilon=whole.epsilon, delta=whole.delta * (1 - GRID_SHARE))
    return Claim(
        claim.unit,
        claim.notion,
        whole.epsilon,
        whole.delta,
        mu,
        claim.status,
        claim.noise,
        (
            *claim.assumptions,
            "which rounds count for a shadow or a holdout depends only on public data",
        ),
    )


def spent_with(spent: Spent, paid: float, moves: float) -> Spent:
    """What a unit has paid for both: learning, and so much in the ledger's currency."""
    if spent.mu is None:
        return replace(spent, epsilon=spent.epsilon + moves * paid)
    mu = math.hypot(spent.mu, moves * math.sqrt(paid))
    return replace(spent, mu=mu, epsilon=epsilon_of(mu=mu, delta=spent.delta))


def row_of(measure: Measure | None, currency: str, total: float) -> list[dict[str, Any]]:
    """Its line in the account of the ledger, if it has released anything."""
    if measure is None or not measure.releases:
        return []
    when = f"{measure.first}–{measure.last}" if measure.last > measure.first else f"{measure.first}"
    what = "what a shadow or a holdout earned, by stretches"
    row = {"when": when, "what": what, "releases": measure.releases, "cost": measure.cost}
    return [row | {"total": total, "currency": currency, "group": 0}]


# ---------------------------------------------------------------------- what it says


def estimates(public: dict[str, Any], low: float, high: float) -> dict[str, Any]:
    """Means, differences and 95% intervals, from what was released alone."""
    found: dict[str, Any] = {"releases": public["releases"], "every": public["every"]}
    found["waiting"] = public.get("waiting", {})  # records of earlier versions have none
    for kind, record in public["told"].items():
        first, second, difference = _compared(record, public, low, high)
        if kind == SHADOW:
            everything = _mean(
                sum(record["sums"]),
                record["rounds"] * WEIGHT_STEPS,
                record["rounds"] * WEIGHT_STEPS**2,
                2.0,
                record,
                public,
                low,
                high,
            )
            found[kind] = {
                "rounds": record["rounds"],
                "agreement": record["hits"] / record["rounds"],
                "shown": everything,
                "would_have_earned": first,
            }
        elif kind == HOLDOUT:
            found[kind] = {
                "rounds": record["rounds"],
                "by_lot": record["hits"],
                "holdout": first,
                "policy": second,
                "lift": difference,
            }
        else:
            raise OptionError(f"a measurement of {kind!r}, which is not known here")
    return found


def _compared(
    record: dict[str, Any], public: dict[str, Any], low: float, high: float
) -> tuple[dict[str, float] | None, dict[str, float] | None, dict[str, float] | None]:
    """Both kinds, and how far the second is above the first."""
    rest = record["rounds"] * WEIGHT_STEPS - record["weight"]
    first = _mean(
        record["sums"][0], record["weight"], record["squares"], 1.0, record, public, low, high
    )
    second = _mean(record["sums"][1], rest, record["others"], 1.0, record, public, low, high)
    if first is None or second is None:
        return first, second, None
    error = math.hypot(first["standard_error"], second["standard_error"])
    return first, second, _interval(second["mean"] - first["mean"], error)


def _mean(
    total: float,
    weight: float,
    squares: float,
    sums: float,
    record: dict[str, Any],
    public: dict[str, Any],
    low: float,
    high: float,
) -> dict[str, float] | None:
    """A weighted mean from a noisy sum, with an interval that covers noise and chance.

    Rewards with mean m vary by (m − low)(high − m) at most (Bhatia & Davis 2000); m is taken two
    standard deviations of noise nearer to the middle than it looks.
    """
    if weight <= 0:
        return None
    noise = public["spread"] * math.sqrt(record["stretches"] * sums) / (REWARD_STEPS * weight)
    part = total / (REWARD_STEPS * weight)
    inside = min(max(part, 0.0), 1.0)
    likely = inside + max(-2 * noise, min(2 * noise, 0.5 - inside))
    chance = math.sqrt(likely * (1 - likely) * squares) / weight
    width = high - low
    return _interval(low + part * width, math.hypot(noise, chance) * width)


def _interval(middle: float, error: float) -> dict[str, float]:
    return {
        "mean": middle,
        "standard_error": error,
        "low": middle - NORMAL_95 * error,
        "high": middle + NORMAL_95 * error,
    }
