"""The ledger: it agrees to a release before it happens, or refuses.

Costs are in one currency, μ² for Gaussian noise or ε for the others. Both add up over releases,
even when the scales are chosen adaptively."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dpbandit.errors import BudgetError


@dataclass(frozen=True)
class Lane:
    """Releases in which no reward appears twice, such as one level of a tree. A reward pays at most
    the most expensive of them.

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

    `limit` is the budget of every single reward, in μ² for Gaussian noise or ε for Laplace.
    Releases are charged to a lane within a group: a reward belongs to one group only (a block of
    the stream) and is in at most one release of each lane, so it has paid at most the sum over the
    group's lanes of the dearest release; the ledger's total is the worst group's. That is exact for
    trees with equal noise and an upper bound otherwise, in memory that does not grow with rounds.

    >>> ledger = Ledger(limit=1.0, currency="mu²")
    >>> undo = ledger.charge(0.5, when=1, what="level 0")
    >>> undo = ledger.charge(0.5, when=2, what="level 1")
    >>> ledger.total
    1.0
    >>> ledger.charge(0.5, when=4, what="level 2")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dpbandit.errors.BudgetError: a release at round 4 (level 2) would bring the total to 1.5 ...
    """

    limit: float
    currency: str
    groups: dict[int, dict[str, Lane]] = field(default_factory=dict)
    total: float = 0.0
    releases: int = 0
    fingerprint: str = ""

    def after(
        self, cost: float, *, when: int, what: str, group: int = 0, adds: bool = False
    ) -> Ledger:
        """The ledger that a release would leave, or BudgetError if it is not affordable.

        This one stays as it is. Whoever makes the release puts the other one in its place in the
        same step. With `adds`, rewards that paid for earlier releases of this lane pay for this one
        too.

        >>> ledger = Ledger(limit=1.0, currency="mu²")
        >>> ledger.after(0.5, when=1, what="level 0").total, ledger.total
        (0.5, 0.0)
        """
        if not cost >= 0:
            raise BudgetError(
                f"a release at round {when} ({what}) has cost {cost!r}: a cost is a number of at "
                "least 0"
            )
        lanes = self.groups.get(group, {})
        lane = lanes.get(what)
        before = lane.dearest if lane else 0.0
        now = before + cost if adds else max(cost, before)
        total = math.fsum(lane.dearest for lane in lanes.values()) - before + now
        if total > self.limit * (1 + 1e-12):
            raise BudgetError(
                f"a release at round {when} ({what}) would bring the total to {total:g} "
                f"{self.currency}; the limit is {self.limit:g}"
            )
        first, releases = (when, 1) if lane is None else (lane.first, lane.releases + 1)
        booked = {**lanes, what: Lane(what, first, when, releases, now)}
        return Ledger(
            self.limit,
            self.currency,
            {**self.groups, group: booked},
            max(self.total, total),
            self.releases + 1,
            self.fingerprint,
        )

    def charge(
        self, cost: float, *, when: int, what: str, group: int = 0, adds: bool = False
    ) -> Callable[[], None]:
        """The same, in place.

        Returns a function that takes this charge and all later ones back, for releases that failed
        before anyone saw them.
        """
        before, later = (
            replace(self),
            self.after(cost, when=when, what=what, group=group, adds=adds),
        )
        self.become(later)
        return lambda: self.become(before)

    def become(self, other: Ledger) -> None:
        """Take over another one's charges."""
        self.groups, self.total = other.groups, other.total
        self.releases, self.fingerprint = other.releases, other.fingerprint

    def sealed(self, released: bytes) -> Ledger:
        """The ledger with what was released chained into its fingerprint: histories that differ
        anywhere differ from there on."""
        link = f"{self.fingerprint}|{self.releases}|{self.total!r}|".encode() + released
        fingerprint = hashlib.sha256(link).hexdigest()
        return Ledger(
            self.limit, self.currency, self.groups, self.total, self.releases, fingerprint
        )

    @property
    def remaining(self) -> float:
        """The remaining budget of the reward that paid most."""
        return max(self.limit - self.total, 0.0)

    def table(self) -> list[dict[str, Any]]:
        """For a reviewer: time, release, count, the cost to a reward in it, and the running total
        of its group."""
        rows = []
        for group, lanes in sorted(self.groups.items()):
            running = 0.0
            for lane in sorted(lanes.values(), key=lambda lane: lane.first):
                running += lane.dearest
                rows.append(
                    {
                        "when": f"{lane.first}"
                        if lane.first == lane.last
                        else f"{lane.first}–{lane.last}",
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
            "groups": {
                str(g): [asdict(lane) for lane in lanes.values()]
                for g, lanes in self.groups.items()
            },
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Ledger:
        """The ledger that `to_dict` described."""
        groups = {
            int(g): {row["what"]: Lane(**row) for row in rows}
            for g, rows in record["groups"].items()
        }
        return cls(
            record["limit"],
            record["currency"],
            groups,
            record["total"],
            record["releases"],
            record["fingerprint"],
        )
