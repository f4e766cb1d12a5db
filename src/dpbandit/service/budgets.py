"""The total promise of all bandits of a store, for a person who is in all of them.

Composition. Pure ε adds up. μ-GDP adds up in squares (Dong, Roth & Su 2022), also for mechanisms
that run side by side and react to each other (Vadhan & Zhang 2023). A mixture: the Gaussian bandits
become one (ε, δ), and the ε's and δ's are added (basic composition). A claim (ε, δ) that is neither
adds as it is. Nothing is ever subtracted: deleting a bandit, or restoring its store, does not undo
its promise. A bandit that learned twice (`timelines`) counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from dpbandit.errors import CapError
from dpbandit.privacy.accounting import epsilon_of
from dpbandit.privacy.grid import GRID_SHARE


@dataclass(frozen=True)
class Total:
    """The sum of all promises, at one δ."""

    epsilon: float
    delta: float
    mu: float
    pure_epsilon: float
    proven: bool
    bandits: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON; an infinite ε becomes None."""
        infinite = dict.fromkeys(n for n, number in asdict(self).items() if number == math.inf)
        return asdict(self) | infinite


def add_up(claims: Iterable[tuple[dict[str, Any], int]], *, delta: float | None = None) -> Total:
    """The total of (claim, timelines), at `delta`; without one, at the sum of the claims' own.

    >>> gdp = {"notion": "gdp", "status": "proven", "epsilon": 2.0, "delta": 1e-5, "mu": 0.501552}
    >>> pure = {"notion": "pure", "status": "proven", "epsilon": 1.0, "delta": 0.0, "mu": None}
    >>> round(add_up([(pure, 1), (pure, 2)]).epsilon, 9)
    3.0
    >>> add_up([(gdp, 1), (pure, 1)], delta=1e-5).epsilon
    3.0
    >>> 2.8 < add_up([(gdp, 1), (gdp, 1)], delta=2e-5).epsilon < 3.0  # μ² adds up better than ε
    True
    """
    pure = squares = other_epsilon = other_delta = grid = own = plain = 0.0
    proven, count = True, 0
    for claim, timelines in claims:
        count += 1
        epsilon = math.inf if claim["epsilon"] is None else claim["epsilon"]
        proven &= claim["status"] == "proven"
        own += timelines * claim["delta"]
        plain += timelines * (math.inf if claim["status"] == "none" else epsilon)
        if claim["status"] == "none":
            other_epsilon = math.inf
        elif claim["notion"] == "gdp" and claim["mu"] is not None:
            squares += timelines * claim["mu"] ** 2
            grid += timelines * GRID_SHARE * claim["delta"]
        elif claim["notion"] == "pure" or claim["delta"] == 0.0:
            pure += timelines * epsilon
        elif claim["notion"] in ("gdp", "approximate", "parallel", "joint"):
            other_epsilon += timelines * epsilon
            other_delta += timelines * claim["delta"]
        else:
            raise CapError(f"nobody knows how to add up a claim of notion {claim['notion']!r}")
    at = own if delta is None else delta
    left = at - other_delta - grid
    mu = math.sqrt(squares) * (1 + 1e-12)
    if squares == 0.0:
        gaussian = 0.0 if left >= -1e-15 * at else math.inf
    else:
        gaussian = epsilon_of(mu=mu, delta=left) if 0 < left < 1 else math.inf
    together = pure + other_epsilon + gaussian
    # Adding up all ε's and all δ's is valid too, and better for a single bandit.
    if own <= at * (1 + 1e-12):
        together = min(together, plain)
    return Total(together, at, mu, pure, proven, count)


def check_cap(
    claims: list[tuple[dict[str, Any], int]],
    new: dict[str, Any],
    cap: dict[str, float] | None,
    *,
    again: int = 1,
) -> None:
    """Raise CapError if the new claim does not fit beside the others."""
    if cap is None:
        return
    total = add_up([*claims, (new, again)], delta=cap["delta"])
    if not total.proven:
        raise CapError(
            "a store with a cap takes only proven claims: an unproven one cannot be added up"
        )
    if total.epsilon > cap["epsilon"] * (1 + 1e-9):
        raise CapError(
            f"with this bandit the total over all bandits would be ε = {total.epsilon:.6g} at δ = "
            f"{cap['delta']:g}; the cap of this store is ε = {cap['epsilon']:g}. Deleting or "
            "renaming bandits restores no budget"
        )
