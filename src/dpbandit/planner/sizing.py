"""`dpb.sizing`: are there too many columns for the traffic and the budget? It asks the planner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.encoder import Category, Encoder, Hashed, Number
from dpbandit.encoder.features import Feature
from dpbandit.errors import OptionError
from dpbandit.options import whole
from dpbandit.planner.ask import plan

PARTICLES = 8
# More columns are not played: to make one such bandit takes seconds.
MOST = 1_000
# Slates that are drawn from a declaration, and numbers in all of them.
SLATES, NUMBERS = 512, 1_000_000
# A share of random play's regret. Below this an algorithm has hardly learned.
LEAST_GAIN = 0.3


@dataclass(frozen=True)
class Sizing:
    """The planner's prediction for this many columns."""

    dim: int
    rounds: int
    gain: float | None  # 1 - regret / regret of random play; None: too many columns to play
    enough: bool

    def __str__(self) -> str:
        if self.gain is None:
            return (
                f"{self.dim:,} columns, {self.rounds:,} rounds: too many columns to predict anything in "
                "seconds. Hash into fewer buckets, or cross fewer fields"
            )
        foretold = f"{self.dim} columns, {self.rounds:,} rounds: gain {self.gain:.2f} over random"
        if self.enough:
            return foretold
        return (
            f"{foretold}, below {LEAST_GAIN}: too many columns for this traffic and budget. Hash into "
            "fewer buckets, cross fewer fields, or spend more"
        )


def sizing(
    encoder: Encoder,
    algorithm: str = "anytime",
    *,
    arms: int,
    rounds: int,
    epsilon: float,
    delta: float,
    seed: int = 0,
    **options: Any,
) -> Sizing:
    """Predict whether this traffic and budget suffice to learn an encoder's columns.

    Slates are drawn from the declaration: all categories and places, and numbers within their bounds,
    equally likely; every column has a weight of its own. `contexts` and `prior` say otherwise.

    Parameters
    ----------
    encoder : Encoder
        The encoder that makes contexts.
    algorithm : str, default 'anytime'
        The algorithm.
    arms, rounds : int
        Number of arms on offer, and of expected rewards.
    epsilon, delta : float
        The budget.
    seed : int, default 0
        Seed of the slates and of the worlds.
    **options
        Other options of `dpb.plan`: click_rate, contexts, prior, unit.

    Returns
    -------
    Sizing
        `gain` is 1 - regret / regret of random play, as predicted; `enough` is whether it is at
        least 0.3. With too many columns to play at all, gain is None.

    Raises
    ------
    OptionError, UnknownAlgorithmError
        If an argument is not allowed.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> encoder = dpb.Encoder({"article": dpb.Hashed(100)})
    >>> dpb.sizing(encoder, arms=5, rounds=500, epsilon=1.0, delta=1e-6).enough
    False
    """
    if not isinstance(encoder, Encoder):
        raise OptionError(f"sizing needs a dpb.Encoder, not {type(encoder).__name__}")
    arms, rounds = whole("arms", arms, least=1), whole("rounds", rounds, least=1)
    if encoder.dim > MOST:
        return Sizing(encoder.dim, rounds, None, False)
    options.setdefault("prior", "round")
    if "contexts" not in options and "covariance" not in options:
        options["contexts"] = _slates(encoder, arms, seed)
    found = plan(
        dim=encoder.dim,
        arms=arms,
        epsilon=epsilon,
        delta=delta,
        horizon=None,
        rounds=rounds,
        algorithms=[algorithm, "random"],
        particles=PARTICLES,
        seed=seed,
        **options,
    )
    if found.forecasts[algorithm].course is None:
        return Sizing(encoder.dim, rounds, None, False)
    gain = 1.0 - found.final(algorithm) / found.final("random")
    return Sizing(encoder.dim, rounds, gain, gain >= LEAST_GAIN)


def _slates(encoder: Encoder, arms: int, seed: int) -> NDArray[np.float64]:
    """Slates of this many items, as the encoder declares them."""
    rng = np.random.default_rng([seed, 6])
    count = max(16, min(SLATES, NUMBERS // (arms * encoder.dim)))
    found = np.empty((count, arms, encoder.dim))
    declared, person = encoder.features, encoder.person_fields
    for i in range(count):
        if not encoder.item_fields:
            drawn = {name: _values(feature, arms, rng) for name, feature in declared.items()}
            rows = [
                dict(zip(drawn, values, strict=True))
                for values in zip(*drawn.values(), strict=True)
            ]
            found[i] = encoder.contexts(rows)
            continue
        drawn = {name: _values(declared[name], arms, rng) for name in encoder.item_fields}
        items = [
            dict(zip(drawn, values, strict=True)) for values in zip(*drawn.values(), strict=True)
        ]
        whose = {name: _values(declared[name], 1, rng)[0] for name in person}
        found[i] = encoder.slate(items).contexts(whose)
    return found


def _values(feature: Feature, count: int, rng: np.random.Generator) -> list[Any]:
    """So many values of a field; different ones, if there are as many."""
    match feature:
        case Number(low=low, high=high):
            return list(rng.uniform(low, high, count))
        case Category(known=known):
            return list(rng.choice(known, count, replace=count > len(known)))
        case Hashed():
            return list(rng.integers(0, 2**62, count))
        case other:
            raise OptionError(f"nothing is known of values of {other!r}")
