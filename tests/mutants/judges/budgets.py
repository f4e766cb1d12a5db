"""Judges of what budgets are worth, and of the ledger."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from typing import Any

import numpy as np

from judges.common import between, close, judge, refused


@functools.cache
def exact_delta(epsilon: float, mu: float) -> float:
    """Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2), to 60 digits."""
    import mpmath

    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)  # type: ignore[no-any-return]


@judge
def exchange_of_gaussian_budgets() -> Any:
    from dpbandit import budget
    from dpbandit.privacy import accounting

    seen = []
    for epsilon, mu in itertools.product(
        (0.0, 1e-3, 0.5, 2.0, 30.0, 800.0), (1e-3, 0.3, 2.0, 45.0)
    ):
        exact, ours = exact_delta(epsilon, mu), budget.delta_of(epsilon=epsilon, mu=mu)
        assert float(exact) <= ours
        assert ours <= float(exact) * (1 + 1e-9) + 1e-12 * max(1.0, (epsilon / mu) ** 2 * 1e-3), mu
        seen.append(ours)
    assert budget.delta_of(epsilon=1.0, mu=0.0) == 0.0
    assert budget.delta_of(epsilon=1.0, mu=math.inf) == 1.0
    for epsilon, delta in itertools.product((1e-2, 0.7, 2.0, 12.0, 300.0), (1e-9, 1e-5, 0.1, 0.6)):
        mu = budget.mu_of(epsilon=epsilon, delta=delta)
        assert exact_delta(epsilon, mu) <= delta, "the budget came out too large"
        assert exact_delta(epsilon, mu * (1 + 4e-10)) > delta, "more than 4e-10 was given away"
        back = budget.epsilon_of(mu=mu, delta=delta)
        assert exact_delta(back, mu) <= delta, "the cost came out too small"
        assert exact_delta(back * (1 - 4e-10) - 4e-12, mu) > delta
        seen += [mu, back]
    # Where ε and δ are tiny, more is given away, and still enough is left.
    tiny = budget.mu_of(epsilon=1e-5, delta=1e-10)
    assert exact_delta(1e-5, tiny) <= 1e-10 < exact_delta(1e-5, tiny * (1 + 1e-7))
    assert budget.epsilon_of(mu=0.2, delta=0.5) == 0.0
    assert budget.epsilon_of(mu=0.0, delta=0.5) == 0.0
    assert budget.epsilon_of(mu=math.inf, delta=0.1) == math.inf
    assert budget.mu_of(epsilon=math.inf, delta=0.1) == math.inf
    edge = 2 * 0.0627  # δ(0, μ) = 2Φ(μ/2) − 1
    between(0.04, budget.delta_of(epsilon=0.0, mu=edge), 0.06)
    from scipy.special import erfcx

    for x in (0.0, 0.5, 1.0, 1.9999, 2.0, 2.5, 4.0, 9.0, 100.0, 1e6):
        close(accounting.scaled_erfc(x), erfcx(x), 4e-15)
    for wrong in (0.0, -1.0, math.nan, True, "1", None):
        refused("OptionError", lambda w=wrong: budget.check_epsilon(w))
    for wrong in (0.0, 1.0, -0.1, math.nan, True, "1", None):
        refused("OptionError", lambda w=wrong: budget.check_delta(w))
        refused("OptionError", lambda w=wrong: budget.epsilon_of_rho(rho=0.1, delta=w))
    assert (budget.check_epsilon(3), budget.check_delta(0.25)) == (3.0, 0.25)
    return seen


@judge
def exchange_of_zcdp() -> Any:
    from dpbandit import budget

    seen = []
    for mu in (0.1, 1.0, 7.0):
        between(mu * mu / 2, budget.rho_of(mu=mu), mu * mu / 2 * (1 + 1e-9))
        between(mu * (1 - 1e-9), budget.mu_of_rho(rho=mu * mu / 2), mu * (1 - 1e-11))
        seen += [budget.rho_of(mu=mu), budget.mu_of_rho(rho=mu * mu / 2)]
    for rho, delta in itertools.product((1e-3, 0.1, 0.5, 4.0, 60.0), (1e-9, 1e-3, 0.3)):
        a = np.geomspace(1e-5, 1e8, 200_001)  # α − 1
        bound = rho * (a + 1) + np.log(1 / ((a + 1) * delta)) / a + np.log1p(-1 / (a + 1))
        exact = max(float(bound.min()), 0.0)
        ours = budget.epsilon_of_rho(rho=rho, delta=delta)
        between(exact * (1 - 1e-6), ours, exact * (1 + 1e-8) + 1e-12)
        seen.append(ours)
    assert budget.epsilon_of_rho(rho=0.0, delta=0.1) == 0.0
    assert budget.epsilon_of_rho(rho=1e-9, delta=0.5) == 0.0
    return seen


class Book:
    """A ledger in the fewest words: every charge is kept."""

    def __init__(self, limit: float) -> None:
        self.limit, self.charges = limit, []

    def total(self, charges: list[Any]) -> float:
        groups: dict[int, dict[str, float]] = {}
        for cost, what, group, adds in charges:
            lanes = groups.setdefault(group, {})
            old = lanes.get(what, 0.0)
            lanes[what] = old + cost if adds else max(old, cost)
        return max((math.fsum(lanes.values()) for lanes in groups.values()), default=0.0)

    def takes(self, charge: Any) -> bool:
        group = [c for c in [*self.charges, charge] if c[2] == charge[2]]
        return self.total(group) <= self.limit * (1 + 1e-12)


@judge
def ledger_against_a_book() -> Any:
    from dpbandit.privacy.ledger import Ledger

    rng, seen = np.random.default_rng(3), []
    for limit, adds in ((2.0, False), (2.0, True), (math.inf, False)):
        ledger, book = Ledger(limit=limit, currency="mu²"), Book(limit)
        for when in range(1, 60):
            cost = float(rng.choice([0.0, 0.25, 0.5, 0.75]))
            what, group = f"lane {rng.integers(4)}", int(rng.integers(3))
            charge, before = (cost, what, group, adds), ledger.to_dict()
            given = {"when": when, "what": what, "group": group, "adds": adds}
            if not book.takes(charge):
                for call in (ledger.after, ledger.charge):
                    refused("BudgetError", lambda c=call, g=given, p=cost: c(p, **g))
                assert ledger.to_dict() == before
                continue
            later = ledger.after(cost, **given)
            assert ledger.to_dict() == before
            undo = ledger.charge(cost, **given)
            assert ledger == later
            undo()
            assert ledger.to_dict() == before
            if rng.random() < 0.3:  # a release that failed
                continue
            book.charges.append(charge)
            assert later.total == book.total(book.charges)
            assert later.releases == len(book.charges)
            link = f"{later.fingerprint}|{later.releases}|{later.total!r}|".encode() + b"seen"
            ledger = later.sealed(b"seen")
            assert ledger.fingerprint == hashlib.sha256(link).hexdigest()
            assert {**ledger.to_dict(), "fingerprint": ""} == {**later.to_dict(), "fingerprint": ""}
            assert ledger.remaining == max(limit - ledger.total, 0.0)
            seen.append((ledger.total, ledger.fingerprint))
        assert Ledger.from_dict(ledger.to_dict()) == ledger
        for group, lanes in ledger.groups.items():
            for what, lane in lanes.items():
                own = [c for c in book.charges if c[1] == what and c[2] == group]
                assert lane.releases == len(own)
                assert lane.first <= lane.last
        seen.append(str(ledger.to_dict()))
    one = Ledger(limit=1.0, currency="epsilon")
    full = one.after(1.0, when=1, what="all")
    assert full.remaining == 0.0
    one.after(1.0 + 5e-13, when=1, what="rounding")
    one.after(0.0, when=1, what="free")
    refused("BudgetError", lambda: one.after(1.0 + 5e-12, when=1, what="more"))
    for wrong in (-1e-9, math.nan):
        refused("BudgetError", lambda w=wrong: full.after(w, when=2, what="none"))
    twice = Ledger(5.0, "epsilon").after(1.0, when=3, what="x").after(2.0, when=9, what="x")
    lane = twice.groups[0]["x"]
    assert (lane.first, lane.last, lane.releases, lane.dearest) == (3, 9, 2, 2.0)
    return seen
