"""The currencies of privacy and their exchange, the Claim, and the Ledger that says no.

Gaussian releases are paid in μ² (Gaussian differential privacy, Dong, Roth & Su 2022), Laplace releases in pure ε.
Both add up over releases, also when the scales are chosen adaptively. Every exchange rounds in the safe direction:
a budget never comes out larger, a cost never smaller, than the exact value.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from numbers import Real
from typing import Any, Literal

from scipy.optimize import brentq
from scipy.special import erfcx, ndtr

from dpbandit.errors import BudgetError, OptionError

Status = Literal["proven", "as-published", "none"]
NoiseKind = Literal["real", "simulation", "none"]
Notion = Literal["pure", "approximate", "gdp", "joint", "none"]

# Relative slack given away on every exchange: far above the solver's error, far below anything that matters.
SAFE = 1e-10


def delta_of(*, epsilon: float, mu: float) -> float:
    """The smallest δ for which μ-GDP implies (ε, δ)-DP: Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

    >>> round(delta_of(epsilon=2.0, mu=1.36620), 5)
    0.1
    """
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    y = epsilon / mu - mu / 2
    return _delta_at(y, epsilon)


def _delta_at(y: float, epsilon: float) -> float:
    # With y = ε/μ − μ/2 the second argument's square is y² + 2ε, so e^ε Φ(−√(y² + 2ε)) = ½ erfcx(√(y²/2 + ε)) e^{−y²/2}:
    # nothing overflows, however large ε is.
    first = float(ndtr(-y))
    tail = 0.5 * erfcx(math.sqrt(y * y / 2 + epsilon)) * math.exp(-y * y / 2)
    # The two terms nearly cancel when ε is small: add what rounding may have taken off either.
    return max(float(first - tail), 0.0) + (1 + y * y) * 4e-16 * first


def mu_of(*, epsilon: float, delta: float) -> float:
    """The largest μ for which μ-GDP implies (ε, δ)-DP, rounded down.

    >>> [round(mu_of(epsilon=e, delta=d), 6) for e, d in [(2, 0.1), (2, 1e-5), (1, 1e-6)]]
    [1.366204, 0.501552, 0.236704]
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if math.isinf(epsilon):
        return math.inf
    # δ falls as y = ε/μ − μ/2 grows; μ = √(y² + 2ε) − y.
    y = float(brentq(lambda y: _delta_at(y, epsilon) - delta, -39.0, 39.0, xtol=1e-14, rtol=1e-14))
    root = math.sqrt(y * y + 2 * epsilon)
    exact = 2 * epsilon / (root + y) if y > 0 else root - y
    for safe in (SAFE, 1e-8, 1e-6, 1e-4, 1e-2):  # the first is enough unless both ε and δ are tiny
        mu = exact * (1 - safe)
        if delta_of(epsilon=epsilon, mu=mu) <= delta:
            return mu
    raise OptionError(f"no μ found for ε = {epsilon!r}, δ = {delta!r}: use less extreme values")


def epsilon_of(*, mu: float, delta: float) -> float:
    """The smallest ε for which μ-GDP implies (ε, δ)-DP, rounded up.

    >>> round(epsilon_of(mu=0.501552, delta=1e-5), 4)
    2.0
    """
    check_delta(delta)
    if mu == 0.0 or delta_of(epsilon=0.0, mu=mu) <= delta:
        return 0.0
    if math.isinf(mu):
        return math.inf
    # ε = μ(y + μ/2), and δ falls as y grows.
    y = brentq(lambda y: _delta_at(y, mu * (y + mu / 2)) - delta, max(-mu / 2, -39.0), 39.0, xtol=1e-14, rtol=1e-14)
    return float(mu * (y + mu / 2)) * (1 + SAFE) + 1e-12


def rho_of(*, mu: float) -> float:
    """The zCDP parameter that μ-GDP implies: μ²/2. The converse holds for Gaussian mechanisms only.

    >>> round(rho_of(mu=1.0), 6)
    0.5
    """
    return mu * mu / 2 * (1 + SAFE)


def mu_of_rho(*, rho: float) -> float:
    """The μ of a Gaussian mechanism that is ρ-zCDP, rounded down.

    >>> round(mu_of_rho(rho=0.5), 6)
    1.0
    """
    return math.sqrt(2 * rho) * (1 - SAFE)


def epsilon_of_rho(*, rho: float, delta: float) -> float:
    """An ε for which ρ-zCDP implies (ε, δ)-DP, for any mechanism, rounded up.

    Minimises ρα + log(1/(αδ))/(α − 1) + log(1 − 1/α) over the Rényi order α
    (Canonne, Kamath & Steinke 2020, Proposition 12): a little better than ρ + 2√(ρ log(1/δ)).

    >>> round(epsilon_of_rho(rho=0.5, delta=1e-3), 3), round(0.5 + 2 * (0.5 * math.log(1e3)) ** 0.5, 3)
    (3.537, 4.217)
    """
    check_delta(delta)
    if rho <= 0:
        return 0.0

    def bound(a: float) -> float:  # a = α − 1 > 0
        return rho * (a + 1) - math.log((a + 1) * delta) / a + math.log(a / (a + 1))

    # The bound is unimodal in log a; a golden section needs no derivative and any a is valid, so it errs safely.
    low, high = math.log(1e-6), math.log(1e9)
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if bound(math.exp(left)) < bound(math.exp(right)):
            high = right
        else:
            low = left
    return max(bound(math.exp((low + high) / 2)), 0.0) * (1 + SAFE)


def check_epsilon(epsilon: float) -> float:
    """ε as a float, or an error that says what is allowed."""
    if not isinstance(epsilon, Real) or isinstance(epsilon, bool) or not epsilon > 0:
        raise OptionError(f"epsilon must be a number above 0 (math.inf for none), not {epsilon!r}")
    return float(epsilon)


def check_delta(delta: float) -> float:
    """δ as a float, or an error that says what is allowed."""
    if not isinstance(delta, Real) or isinstance(delta, bool) or not 0 < delta < 1:
        raise OptionError(f"delta must lie strictly between 0 and 1, not {delta!r}")
    return float(delta)


@dataclass(frozen=True)
class Claim:
    """What is promised to whom. Nothing in this library prints an ε without one.

    >>> print(Claim("one reward", "pure", 2.0, 0.0, None, "proven", "simulation", ("rewards clipped",)))
    (ε = 2, δ = 0) for one reward [pure, proven, noise: simulation]
      assumes: rewards clipped
    """

    unit: str
    notion: Notion
    epsilon: float
    delta: float
    mu: float | None
    status: Status
    noise: NoiseKind
    assumptions: tuple[str, ...] = ()

    def __str__(self) -> str:
        mu = "" if self.mu is None else f", μ = {self.mu:.6g}"
        if self.status == "none":
            head = f"no privacy is claimed for {self.unit} [noise: {self.noise}]"
            if math.isfinite(self.epsilon) and self.epsilon > 0:
                head += f" (run with the setting ε = {self.epsilon:g}, which it does not achieve)"
        else:
            head = (
                f"(ε = {self.epsilon:g}, δ = {self.delta:g}{mu}) for {self.unit} "
                f"[{self.notion}, {self.status}, noise: {self.noise}]"
            )
        lines = [head] + [f"  assumes: {a}" for a in self.assumptions]
        return "\n".join(lines)

    def brief(self) -> str:
        """One short line.

        >>> Claim("one reward", "gdp", 2.0, 1e-5, 0.5, "proven", "real").brief()
        'proven: ε = 2, δ = 1e-05 for one reward (real noise)'
        """
        if self.status == "none":
            return "no claim: not private"
        return f"{self.status}: ε = {self.epsilon:g}, δ = {self.delta:g} for {self.unit} ({self.noise} noise)".replace(
            "none noise", "no noise"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON; infinity becomes None, because JSON has none."""
        record = asdict(self)
        record["assumptions"] = list(self.assumptions)
        record["epsilon"] = self.epsilon if math.isfinite(self.epsilon) else None
        return record


@dataclass(frozen=True)
class Spent:
    """What the worst-off reward has paid so far, in its claim's terms."""

    epsilon: float
    delta: float
    mu: float | None
    claim: Claim

    def __str__(self) -> str:
        mu = "" if self.mu is None else f", μ = {self.mu:.6g}"
        return f"spent (ε = {self.epsilon:.6g}, δ = {self.delta:g}{mu}) of {self.claim}"


@dataclass
class Lane:
    """Releases that no reward is in twice: one level of a tree, say. A reward pays at most the dearest of them.

    Or, where every charge adds to the lane, releases that the same rewards are in again and again.
    """

    what: str
    first: int
    last: int
    releases: int
    dearest: float


@dataclass
class Ledger:
    """Agrees to a release before it happens, or refuses.

    `limit` is the budget of every single reward, in μ² for Gaussian noise or ε for Laplace. Releases are charged to a
    lane within a group: a reward belongs to one group only (a block of the stream) and is in at most one release of
    each lane, so it has paid at most the sum over the group's lanes of the dearest release; the ledger's total is the
    worst group's. That is exact for trees with equal noise and an upper bound otherwise, in memory that does not grow
    with rounds.

    >>> ledger = Ledger(limit=1.0, currency="mu²")
    >>> _ = ledger.charge(0.5, when=1, what="level 0"); _ = ledger.charge(0.5, when=2, what="level 1")
    >>> ledger.total
    1.0
    >>> ledger.charge(0.5, when=4, what="level 2")
    Traceback (most recent call last):
    dpbandit.errors.BudgetError: a release at round 4 (level 2) would bring the total to 1.5 mu²; the limit is 1
    """

    limit: float
    currency: str
    groups: dict[int, dict[str, Lane]] = field(default_factory=dict)
    total: float = 0.0
    releases: int = 0
    fingerprint: str = ""

    def charge(self, cost: float, *, when: int, what: str, group: int = 0, adds: bool = False) -> Callable[[], None]:
        """Record a release that is about to happen; raise BudgetError and change nothing if it is not affordable.

        With `adds`, rewards that paid for earlier releases of this lane pay for this one too. Returns a function that takes the charge back, for a release that failed before anyone saw it.
        """
        if not cost >= 0:
            raise BudgetError(f"a release at round {when} ({what}) has cost {cost!r}: a cost is a number of at least 0")
        lanes = self.groups.get(group, {})
        lane = lanes.get(what)
        before = lane.dearest if lane else 0.0
        now = before + cost if adds else max(cost, before)
        total = self._sum(lanes.values()) - before + now
        if total > self.limit * (1 + 1e-12):
            raise BudgetError(
                f"a release at round {when} ({what}) would bring the total to {total:g} {self.currency}; "
                f"the limit is {self.limit:g}"
            )
        kept = (None if lane is None else replace(lane), self.total, self.releases, self.fingerprint)
        if lane is None:
            self.groups.setdefault(group, {})[what] = Lane(what, when, when, 1, cost)
        else:
            lane.last, lane.releases, lane.dearest = when, lane.releases + 1, now
        self.total = max(self.total, total)
        self.releases += 1

        def undo() -> None:
            old, self.total, self.releases, self.fingerprint = kept
            if old is None:
                self.groups[group].pop(what, None)
                if not self.groups[group]:
                    del self.groups[group]
            else:
                self.groups[group][what] = old

        return undo

    def seal(self, released: bytes) -> None:
        """Chain what was just released into the fingerprint: histories that differ anywhere differ from there on."""
        link = f"{self.fingerprint}|{self.releases}|{self.total!r}|".encode() + released
        self.fingerprint = hashlib.sha256(link).hexdigest()

    @staticmethod
    def _sum(lanes: Iterable[Lane]) -> float:
        return math.fsum(lane.dearest for lane in lanes)

    @property
    def remaining(self) -> float:
        """What the worst-off reward has left."""
        return max(self.limit - self.total, 0.0)

    def table(self) -> list[dict[str, Any]]:
        """For a reviewer: when, what, how often, the cost to a reward in it, and the running total of its group."""
        rows = []
        for group, lanes in sorted(self.groups.items()):
            running = 0.0
            for lane in sorted(lanes.values(), key=lambda lane: lane.first):
                running += lane.dearest
                rows.append(
                    {
                        "when": f"{lane.first}" if lane.first == lane.last else f"{lane.first}–{lane.last}",
                        "what": lane.what,
                        "releases": lane.releases,
                        "cost": lane.dearest,
                        "total": running,
                        "currency": self.currency,
                        "group": group,
                    }
                )
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Everything, for saving."""
        return {
            "limit": self.limit,
            "currency": self.currency,
            "total": self.total,
            "releases": self.releases,
            "fingerprint": self.fingerprint,
            "groups": {str(g): [asdict(lane) for lane in lanes.values()] for g, lanes in self.groups.items()},
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Ledger:
        """The ledger that `to_dict` described."""
        groups = {int(g): {row["what"]: Lane(**row) for row in rows} for g, rows in record["groups"].items()}
        return cls(
            record["limit"], record["currency"], groups, record["total"], record["releases"], record["fingerprint"]
        )
