"""How far predictions were from simulations: measured by `benchmarks/plan_accuracy.py`, stated beside every answer."""

from __future__ import annotations

from typing import Any

# From docs/plan-accuracy.md, which that script writes.
CASES = 1
WITHIN_30 = 0.0
MEDIAN_ERROR = 0.0
ERROR_90 = 0.0
SETTINGS = 1
RECOMMENDED_GOOD = 0.0


def statement() -> str:
    """In words."""
    return (
        f"measured error: of {CASES} predictions of final regret, checked by simulation, half were within {MEDIAN_ERROR:.0%} "
        f"and nine in ten within {ERROR_90:.0%}; the recommended algorithm was the best or within 10% of it in "
        f"{RECOMMENDED_GOOD:.0%} of {SETTINGS} settings (docs/plan-accuracy.md). Where the assumptions fail, so may this"
    )


def to_dict() -> dict[str, Any]:
    """For JSON."""
    return {
        "cases": CASES,
        "within_30_percent": WITHIN_30,
        "median_error": MEDIAN_ERROR,
        "error_of_nine_in_ten": ERROR_90,
        "settings": SETTINGS,
        "recommended_best_or_within_10_percent": RECOMMENDED_GOOD,
    }
