"""How much to simulate: particles, and rounds of each algorithm, so that an answer takes seconds.

Decided from sizes, not by the clock, so that the same question has the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpbandit.bandit import Bandit
from dpbandit.planner.course import RATIO, geometric_steps

# Seconds of one core, for all algorithms of a question together.
SECONDS = 20.0
LEAST_PARTICLES = 4
# Fewer rounds say nothing about a learner.
LEAST_ROUNDS = 200
# A bandit in plain Python, or a subclass of ours: the cost of a round is unknown.
PYTHON_ROUND = 300.0
# The reference engine's µs a round, and its slowdown against the core at large dims.
REFERENCE_ROUND, REFERENCE_TIMES = 400.0, 10.0


@dataclass(frozen=True)
class Effort:
    """How much to play. `rounds` by label; 0: rounds take too long to play enough of them."""

    particles: int
    rounds: dict[str, int]


def round_cost(bandit: Any, arms: int) -> float:
    """Approximate µs of one core a round: measured from 10 to 100 dimensions and arms."""
    if type(bandit) is not Bandit:
        return PYTHON_ROUND
    dim = float(bandit.dim)
    core = 0.6 + 0.1 * arms + 7e-5 * (arms + 5) * dim**2 + _cubic(bandit) * dim**3
    match bandit.backend:
        case "core":
            return core
        case "reference":
            return REFERENCE_ROUND + REFERENCE_TIMES * core
        case other:
            raise ValueError(f"no engine is called {other!r}")


def _cubic(bandit: Bandit) -> float:
    """µs for each dim³: refactorised matrices."""
    thompson = 5e-5 if bandit.policy.name == "thompson" else 0.0
    match bandit.design.learner:
        case "none" | "arms" | "batches":
            return thompson
        case "ridge":
            if bandit.design.settings["site"] != "own":
                return thompson
            # How far A⁻¹ reaches is looked up for all known contexts every now and then.
            return thompson + 3e-4 + 5e-7 * len(bandit.design.public_set)
        case "filter":
            return thompson + 4e-5
        case "joint":
            return thompson + 2e-4
        case "pair":
            return 2e-4  # what its samples need is factorised once a release
        case other:
            raise ValueError(f"the cost of a round of the learner {other!r} is unknown")


def effort_for(
    costs: Mapping[str, float], rounds: int, particles: int, seconds: float = SECONDS
) -> Effort:
    """Fewer particles first, but at least four; then fewer rounds of the slowest algorithms.

    Rounds are one of the recorded times, so that similar algorithms are played for equally long.

    >>> effort_for({"a": 1.0, "b": 9.0}, rounds=10_000, particles=24)
    Effort(particles=24, rounds={'a': 10000, 'b': 10000})
    >>> effort_for({"a": 1.0, "b": 9.0}, rounds=1_000_000, particles=24)
    Effort(particles=4, rounds={'a': 1000000, 'b': 432758})
    """
    budget = 1e6 * seconds
    kept = min(particles, max(LEAST_PARTICLES, int(budget / (sum(costs.values()) * rounds))))
    shared: dict[str, int] = {}
    times = geometric_steps(rounds, RATIO)
    left = budget / kept
    for number, (label, cost) in enumerate(sorted(costs.items(), key=lambda item: item[1])):
        most = left / (len(costs) - number) / cost
        played = int(times[times <= most].max(initial=0))
        shared[label] = played if played >= min(LEAST_ROUNDS, rounds) else 0
        left -= shared[label] * cost
    return Effort(kept, {label: shared[label] for label in costs})
