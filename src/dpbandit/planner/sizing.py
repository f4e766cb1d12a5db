"""`dpb.sizing`: are there too many columns for the traffic and the budget? It asks the planner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpbandit.encoder import Encoder
from dpbandit.errors import OptionError
from dpbandit.planner.ask import plan

PARTICLES = 8
# A share of random play's regret. Below this an algorithm has hardly learned.
LEAST_GAIN = 0.3


@dataclass(frozen=True)
class Sizing:
    """The planner's prediction for this many columns."""

    dim: int
    rounds: int
    gain: float  # 1 - regret / regret of random play
    enough: bool

    def __str__(self) -> str:
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
    **options
        Other options of `dpb.plan`: click_rate, contexts, unit.

    Returns
    -------
    Sizing
        `gain` is 1 - regret / regret of random play, as predicted; `enough` is whether it is at
        least 0.3.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> encoder = dpb.Encoder({"article": dpb.Hashed(100)})
    >>> dpb.sizing(encoder, arms=5, rounds=500, epsilon=1.0, delta=1e-6).enough
    False
    """
    if not isinstance(encoder, Encoder):
        raise OptionError(f"sizing needs a dpb.Encoder, not {type(encoder).__name__}")
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
    gain = 1.0 - found.final(algorithm) / found.final("random")
    return Sizing(encoder.dim, rounds, gain, gain >= LEAST_GAIN)
