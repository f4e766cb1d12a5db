"""`dpb.sizing`: are there too many columns for the traffic and the budget? The planner is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpbandit.encoder import Encoder
from dpbandit.errors import OptionError
from dpbandit.planner.ask import plan

PARTICLES = 8
# Of the regret of random play. Below this an algorithm has hardly learned.
LEAST_GAIN = 0.3


@dataclass(frozen=True)
class Sizing:
    """What the planner foretells for so many columns."""

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
            "fewer places, cross less, or spend more"
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
    """Whether so many columns can be learned from this traffic with this budget.

    Parameters
    ----------
    encoder : Encoder
        What contexts are made with.
    algorithm : str, default 'anytime'
        What is to learn.
    arms, rounds : int
        How much can be shown at a time, and how many rewards are expected.
    epsilon, delta : float
        The budget.
    **options
        More of `dpb.plan`: click_rate, contexts, unit.

    Returns
    -------
    Sizing
        `gain` is 1 - regret / regret of random play, foretold; `enough` whether it is at least 0.3.

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
