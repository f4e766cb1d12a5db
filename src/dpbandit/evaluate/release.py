"""An estimate from a private log is a release: what it costs, and the noise in it.

Of each player one number is shown that rewards have a direct part in, Σ w·y. What the player released
while it learned fixes every weight w, so that, given those releases, a reward moves this sum by no more
than its weight: the noise is scaled to the heaviest one, which is public. The player's own releases cost
what its claim says, and the two add up, as do several players': they read the same rewards. The
derivation is in docs/privacy.md, "An estimate from a log". What it does not hold for is refused by name.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpbandit.bandit import Bandit
from dpbandit.errors import OptionError
from dpbandit.evaluate.estimates import Spread
from dpbandit.evaluate.players import Player
from dpbandit.evaluate.tally import Tally
from dpbandit.options import Options
from dpbandit.privacy.accounting import check_delta, check_epsilon, delta_of, epsilon_of, mu_of
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.grid import GRID_SHARE, STEP, lattice_slack, to_floats
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.noise import GAUSSIAN, LAPLACE, Noise
from dpbandit.privacy.sources import Pending, Real, Simulation, Source
from dpbandit.privacy.unit import Unit

INDEX = 1  # of an estimate's noise; each has a key of its own
_CHARGING = threading.Lock()
ASSUMED = (
    "evaluation: rewards are clipped to {0}; which rows are in the log, their contexts, what was shown, "
    "with which probability, users and order, and whether a row has a reward at all, are public",
    "evaluation: every replay of these rewards costs anew; budgets add up",
)
FIXED = (
    "evaluation: models that do not learn here were not learned from this log, or that was charged"
)


@dataclass(frozen=True)
class Terms:
    """What a call of `replay` may show, agreed before a row is read."""

    unit: Unit
    noise: Noise
    budget: float  # of each estimate: μ or ε
    delta: float  # of all estimates together
    ledger: Ledger
    claim: Claim
    learning: dict[str, float]  # of each player that learns, what it may cost: μ² or ε
    source: tuple[Source, ...]
    shared: bool = False  # whether the ledger is the caller's, and charged itself


def agree(
    release: Any,
    players: Sequence[Player],
    unit: Unit,
    reward_range: tuple[float, float],
    *,
    user: str | None,
    seed: int | None,
    ledger: Ledger | None,
) -> Terms:
    """The terms, or an error: nothing that cannot be proven is begun."""
    epsilon, delta = _budget(release)
    if unit.needs_instruments:
        raise OptionError(
            f"nothing is proven for an estimate with unit={unit.option!r}: use 'reward', ('user', m) or "
            "('person', C)"
        )
    if unit.needs_user and user is None:
        raise OptionError(f"the unit is {unit.words}: name the log's column of users, user=...")
    for player in players:
        _refuse(player, unit)
    noise: Noise = GAUSSIAN if delta > 0 else LAPLACE
    claims = [p.claim for p in players if p.claim is not None]
    pure = all(claim.delta == 0 for claim in claims)
    if delta == 0 and not pure:
        raise OptionError(
            "release=ε is pure, and these algorithms have a δ: give release=(ε, δ), or algorithms "
            "with Laplace noise"
        )
    if delta > 0:
        whole = mu_of(epsilon=epsilon, delta=delta * (1 - GRID_SHARE))
        each, limit = whole / math.sqrt(len(players)), whole**2
        costs = {p.label: _mu(p.claim) ** 2 for p in players if p.claim is not None}
    else:
        each, limit = epsilon / len(players), epsilon
        costs = {p.label: p.claim.epsilon for p in players if p.claim is not None}
    costs = {label: cost for label, cost in costs.items() if cost > 0}
    total = limit + sum(costs.values())
    own = Ledger(limit=total, currency=noise.currency) if ledger is None else ledger
    if own.currency != noise.currency:
        raise OptionError(f"the ledger counts {own.currency}, and this release {noise.currency}")
    promise = Claim(
        unit=unit.words,
        notion="pure" if delta == 0 else "gdp",
        **_joint(claims, epsilon, delta, math.sqrt(total) if delta > 0 else None),
        status="proven",
        noise="real" if seed is None else "simulation",
        assumptions=_assumptions(players, reward_range),
    )
    sources: tuple[Source, ...] = tuple(
        Real() if seed is None else Simulation(seed * 1_000_003 + 7_919 * (i + 1))
        for i in range(len(players))
    )
    terms = Terms(unit, noise, each, delta, own, promise, costs, sources, ledger is not None)
    _charge(terms, [player.label for player in players])  # says now what cannot be afforded
    return terms


def show(terms: Terms, tallies: Sequence[Tally]) -> tuple[list[float], list[Spread], Ledger]:
    """Each player's Σ w·y with its noise, and the ledger after all of them, which is asked first.

    A ledger that was given is charged itself: whoever gives it again goes on from there.
    """
    # Where nothing matched there is nothing to move: noise for one row all the same.
    shifts = [max(tally.shift(terms.unit.needs_user), 1) * STEP for tally in tallies]
    with _CHARGING:
        ledger = _charge(terms, [tally.player.label for tally in tallies])
        if terms.shared:
            terms.ledger.become(ledger)
    # How heavy rows are that matched follows from what was learned, which is charged by now.
    for shift in shifts:
        _fine_enough(terms, shift, len(tallies))
    totals, spreads = [], []
    for tally, shift, source in zip(tallies, shifts, terms.source, strict=True):
        scale = terms.noise.multiplier(terms.budget, 1) * shift
        pending = Pending(to_floats([tally.whole]), [tally.whole])
        noisy = source.release(terms.noise, pending, scale=scale, shift=shift, index=INDEX)
        totals.append(float(noisy[0]) * tally.clip)
        deviation = terms.noise.standard_deviation() * scale * tally.clip
        spreads.append(Spread(deviation, terms.noise is LAPLACE))
        ledger = ledger.sealed(noisy.tobytes())
    if terms.shared:
        terms.ledger.fingerprint = ledger.fingerprint
    return totals, spreads, ledger


def _charge(terms: Terms, labels: Sequence[str]) -> Ledger:
    """The ledger after all of it, or BudgetError."""
    ledger, when = terms.ledger, terms.ledger.releases + 1
    share = terms.noise.share(terms.noise.multiplier(terms.budget, 1))
    for label in labels:
        if label in terms.learning:
            cost = terms.learning[label]
            ledger = ledger.after(cost, when=when, what=f"{label}: learning", adds=True)
        ledger = ledger.after(share, when=when, what=f"{label}: estimate", adds=True)
    return ledger


def _fine_enough(terms: Terms, shift: float, count: int) -> None:
    """The noise's grid must be so fine that the part of δ set aside for it is enough."""
    if terms.noise is not GAUSSIAN or not isinstance(terms.source[0], Real):
        return
    slack = lattice_slack(count, terms.claim.epsilon, STEP * terms.budget / shift)
    if not slack <= GRID_SHARE * terms.delta:
        raise OptionError(
            f"all weights are below {shift:.3g} of clip: noise on a grid of 2⁻⁴⁰ is too coarse. Give a "
            "smaller clip. No estimate was released, but this call is charged"
        )


def _budget(release: Any) -> tuple[float, float]:
    pair = release if isinstance(release, (tuple, list)) else (release, 0.0)
    if len(pair) != 2:
        raise OptionError(f"release must be ε, or (ε, δ), not {release!r}")
    epsilon = check_epsilon(pair[0])
    if math.isinf(epsilon):
        raise OptionError("release must have a finite ε; release=None shows estimates in the clear")
    return epsilon, 0.0 if pair[1] == 0 else check_delta(pair[1])


def _refuse(player: Player, unit: Unit) -> None:
    """An error for a player whose choices nothing is proven of."""
    if not player.learns:
        return
    bandit, claim, label = player.policy, player.claim, player.label
    if not isinstance(bandit, Bandit) or claim is None or claim.status != "proven":
        raise OptionError(
            f"{label} chooses by rewards for which nothing is proven, so what an estimate of it shows "
            "is not bounded: leave it out, or give release=None for eyes that may see the log"
        )
    options: Options = bandit.options
    if bandit.contexts_are_private:
        raise OptionError(
            f"{label} protects contexts, and which rows of a log match its choices shows something of "
            "them: nothing is proven for an estimate of it; use 'anytime', or release=None"
        )
    if options.pan_private:
        raise OptionError(f"{label} is pan-private, and an evaluation keeps clean sums in memory")
    if options.protects.option != unit.option:
        raise OptionError(
            f"{label} protects {options.protects.words}, and the estimate {unit.words}: one claim "
            "needs one unit; give unit=... for all"
        )


def _mu(claim: Claim) -> float:
    """The μ of a claim. One of pure ε is that of 2·Φ⁻¹(e^ε/(1 + e^ε)) (docs/privacy.md)."""
    if claim.mu is not None:
        return claim.mu
    if claim.delta > 0 and claim.notion != "parallel":
        raise OptionError(f"a claim with δ and without μ cannot be added up here: {claim.brief()}")
    from scipy.special import ndtri

    low = 1.0 / (1.0 + math.exp(min(claim.epsilon, 700.0)))
    pure = 0.0 if claim.epsilon == 0 else float(-2 * ndtri(low)) * (1 + 1e-12)
    if claim.notion != "parallel":
        return pure
    return max(pure, mu_of(epsilon=claim.epsilon, delta=claim.delta))  # a reward pays either


def _joint(
    claims: Sequence[Claim], epsilon: float, delta: float, mu: float | None
) -> dict[str, Any]:
    """ε, δ and μ of everything together: the smaller of plain sums and of what μ says."""
    plain = math.fsum([epsilon, *(claim.epsilon for claim in claims)])
    total = math.fsum([delta, *(claim.delta for claim in claims)])
    if mu is None:
        return {"epsilon": plain, "delta": 0.0, "mu": None}
    if not total < 1:
        raise OptionError(f"the δ of all together is {total:g}: it must be below 1")
    each = [(epsilon, delta), *((claim.epsilon, claim.delta) for claim in claims)]
    best = plain
    for part in (0.02, 0.05, 0.1, 0.2, 0.4):
        found = epsilon_of(mu=mu, delta=total * (1 - part))
        # What the noises' grids add to δ grows with ε: each set aside GRID_SHARE of its own, at its own.
        grids = sum(GRID_SHARE * d * _ratio(found, e) for e, d in each)
        if found < best and grids + delta_of(epsilon=found, mu=mu) <= total:
            best = found
    return {"epsilon": best, "delta": total, "mu": mu}


def _ratio(epsilon: float, own: float) -> float:
    """(1 + e^epsilon)/(1 + e^own)."""
    return math.exp(min(epsilon - min(own, epsilon), 700.0)) if epsilon > own else 1.0


def _assumptions(players: Sequence[Player], reward_range: tuple[float, float]) -> tuple[str, ...]:
    clipped = f"[{reward_range[0]:g}, {reward_range[1]:g}]"
    fixed = [FIXED] if any(not player.learns for player in players) else []
    learned = [p.claim for p in players if p.claim is not None and p.claim.epsilon > 0]
    own = [words for claim in learned for words in claim.assumptions]
    ours = [words.format(clipped) for words in ASSUMED]
    return tuple(dict.fromkeys([*ours, *fixed, *own]))
