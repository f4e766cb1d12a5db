"""How far predictions were from simulations: measured by `experiments/plan_accuracy`, stated beside every answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# From docs/plan-accuracy.md, which that script writes: with the right prior on θ (the error of the model), and with the default
# one, which knows nothing of rewards but their range (the error of the whole plan).
RIGHT_PRIOR = {
    "cases": 324,
    "within_30_percent": 0.988,
    "median_error": 0.051,
    "error_of_nine_in_ten": 0.147,
}
DEFAULT_PRIOR = {
    "cases": 324,
    "within_30_percent": 0.827,
    "median_error": 0.084,
    "error_of_nine_in_ten": 0.58,
}
SETTINGS, RECOMMENDED_GOOD = 48, 1.0


def statement(extrapolated: Sequence[str] = ()) -> str:
    """In words; of a plan in which these algorithms were not played to the end."""
    right, default = RIGHT_PRIOR, DEFAULT_PRIOR
    words = (
        f"measured error of the final regret, on simulated worlds: half within "
        f"{right['median_error']:.0%} and nine in ten within {right['error_of_nine_in_ten']:.0%} "
        f"where the prior was right; {default['median_error']:.0%} and "
        f"{default['error_of_nine_in_ten']:.0%} with the default prior. The recommended algorithm "
        f"was the best or within 10% of it in {RECOMMENDED_GOOD:.0%} of {SETTINGS} settings "
        "(docs/plan-accuracy.md)"
    )
    if extrapolated:
        words += f". That is for rounds that are played; not played to the end: {', '.join(extrapolated)}"
    return words


def to_dict(extrapolated: Sequence[str] = ()) -> dict[str, Any]:
    """For JSON."""
    return {
        "right_prior": RIGHT_PRIOR,
        "default_prior": DEFAULT_PRIOR,
        "extrapolated": list(extrapolated),
        "settings": SETTINGS,
        "recommended_best_or_within_10_percent": RECOMMENDED_GOOD,
    }
