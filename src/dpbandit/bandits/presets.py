"""What the one-file-per-algorithm presets share: the accounting that turns (ε, δ) into noise scales, and the wording."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandits import steps
from dpbandit.bandits.options import Options
from dpbandit.budget import Claim, Ledger, Notion, Status, mu_of
from dpbandit.errors import OptionError
from dpbandit.noise import CODES, GRID_BITS, PAN_PRIVATE_GRID_BITS, lattice_slack
from dpbandit.release import levels_for
from dpbandit.sensitivity import SIMPLIFIED

CLIPPED = (
    "each reward is clipped to {0}, so it can move by at most {1:g}; a reward outside the range is not learned in full"
)
CONTEXTS_PUBLIC = "contexts, arm features, the order of learning and all timing are public and not protected"
OTHERS = "other people's rewards do not react to the changed one except through what was released"
# With an unknown horizon, real noise is charged for this many coordinates in advance: drawing them takes a year.
UNKNOWN_COORDINATES = 1e12


def budget_per_reward(options: Options, noise: str, coordinates: int | None = None) -> float:
    """μ (Gaussian) or ε (Laplace) that all releases together may cost one reward; `coordinates` of a release, `dim` if not given.

    A user's m rewards are a group: privacy of a group of m is m·μ, or m·ε, so each reward gets the m-th part.
    """
    epsilon = options.need_epsilon()
    share = options.rewards_per_unit
    if noise != "gaussian":
        return epsilon / share
    delta = options.need_delta()
    if math.isinf(epsilon):
        return math.inf
    if options.seed is None:
        each = coordinates or options.dim
        # One more than the rounds: a log that it is started from.
        drawn = each * (options.horizon + 1) if options.horizon else UNKNOWN_COORDINATES
        # The second noise of a pan-private node doubles the draws; early levels start twice as many nodes again.
        slack = lattice_slack(
            drawn * (4 if options.pan_private else 1),
            epsilon,
            PAN_PRIVATE_GRID_BITS if options.pan_private else GRID_BITS,
        )
        if slack > 0.01 * delta:
            raise OptionError(
                f"delta = {delta:g} is too small for real noise here: its grid alone may cost {slack:.1g}; "
                f"take delta ≥ {100 * slack:.1g}" + ("" if options.horizon else ", or give a horizon")
            )
        delta -= slack
    return mu_of(epsilon=epsilon, delta=delta) / share


def shared_by_levels(budget: float, noise: str) -> NDArray[np.float64]:
    """Noise scale per unit of sensitivity when 1, 2, … levels share the budget; entry 0 is unused."""
    levels = np.arange(levels_for(None) + 1, dtype=np.float64)
    if math.isinf(budget):
        return np.zeros_like(levels)
    return np.sqrt(levels) / budget if noise == "gaussian" else levels / budget


def on_grid(multipliers: NDArray[np.float64], dim: int) -> NDArray[np.float64]:
    """Scales for sums whose terms are rounded to a grid of 2⁻³⁰ of the scale: a term can then move by one step more in every
    coordinate."""
    return multipliers * (1 + dim * 2.0 ** (2 - PAN_PRIVATE_GRID_BITS) * multipliers)


def rounding(options: Options) -> float:
    """How much float rounding can add to a sensitivity, relatively: norms are checked to 1e-9, and a sum over a node of n
    rewards, added up pairwise, is off by at most n·log₂n·2⁻⁵³ of the largest term, on either side."""
    rounds = float(options.horizon or 2**30)
    size = max(abs(end) for end in options.reward_range) / options.width
    slack = 2e-9 + 4 * rounds * max(math.log2(rounds), 1.0) * size * 2.0**-53
    if slack > 1e-3:
        raise OptionError(
            f"reward_range = {options.reward_range} lies too far from 0 for its width {options.width:g}: float rounding would "
            "eat the noise's margin; subtract a constant from the rewards"
        )
    return slack


def norm_of(noise: str) -> int:
    """The norm in which this noise measures a shift."""
    return 1 if noise == "laplace" else 2


def plan(options: Options, seat: int, **given: Any) -> steps.Plan:
    """A plan with the fields that most presets leave alone filled in."""
    fields: dict[str, Any] = {
        "seat": seat,
        "noise": CODES["gaussian"],
        "dim": options.dim,
        "levels": levels_for(options.horizon),
        "unknown_horizon": options.horizon is None,
        "pan_private": False,
        "sensitivity": options.width,
        "multipliers": np.zeros(levels_for(None) + 1),
        "ridge": options.ridge,
        "max_norm": options.max_norm,
        "arms": np.empty((0, options.dim)),
        "form": SIMPLIFIED,
        "smallest_eigenvalue": 1.0,
        "lemma_delta": 0.5,
        "printed_index": False,
        "context_noise": options.context_noise,
        "release": steps.TREE,
        "rule": steps.UCB,
        "growth": math.inf,
        "shape": np.empty((0, 0)),
        "unshape": np.empty((0, 0)),
        "floor": 0.0,
    }
    return steps.Plan(**{**fields, **given})


def claim(
    options: Options,
    noise: str,
    budget: float,
    status: Status,
    assumptions: tuple[str, ...],
    notion: Notion | None = None,
) -> Claim:
    """A claim in the words all presets share. An infinite ε is no claim at all."""
    gaussian = noise == "gaussian"
    epsilon = options.need_epsilon()
    if math.isinf(epsilon):
        status, notion = "none", "none"
    return Claim(
        unit=options.unit_in_words,
        notion=notion or ("gdp" if gaussian else "pure"),
        epsilon=epsilon,
        delta=options.need_delta() if gaussian else 0.0,
        mu=options.rewards_per_unit * budget if gaussian and math.isfinite(budget) else None,
        status=status,
        noise="real" if options.seed is None else "simulation",
        assumptions=(
            CLIPPED.format(options.reward_range, options.width),
            CONTEXTS_PUBLIC,
            OTHERS,
            *assumptions,
        ),
    )


def ledger(noise: str, budget: float) -> Ledger:
    """A ledger that holds one reward's budget."""
    return Ledger(limit=budget**2, currency="mu²") if noise == "gaussian" else Ledger(limit=budget, currency="epsilon")


def refuse_pan_private(options: Options, name: str, why: str) -> None:
    """A named error where the pan-private form is asked of an algorithm that cannot have it."""
    if options.pan_private:
        raise OptionError(f"{name} has no pan-private form: {why}; use private-linucb or tree-gauss")
