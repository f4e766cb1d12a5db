"""`dpb.recommend`: a plan's answer in one line, with its assumptions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec

from dpbandit.errors import OptionError
from dpbandit.planner.ask import plan
from dpbandit.planner.forecast import REFERENCE, Plan

RANDOM = "random"
NEEDED = ("dim", "arms", "epsilon", "delta")

P = ParamSpec("P")


@dataclass(frozen=True)
class Recommendation:
    """The proven algorithm with the lowest predicted regret, and the plan that says so.

    >>> import dpbandit as dpb
    >>> facts = {"dim": 3, "arms": 5, "epsilon": 2.0, "delta": 1e-5, "horizon": 500}
    >>> found = dpb.recommend(**facts, particles=4, algorithms=["anytime", "tree-gauss", "random"])
    >>> found.algorithm, found.call
    ('anytime', "dpb.make('anytime', dim=3, epsilon=2.0, delta=1e-05, reward_range=(-1.0, 1.0), horizon=500)")
    """

    algorithm: str
    options: dict[str, Any]
    plan: Plan

    @property
    def call(self) -> str:
        """The line that makes it."""
        given = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"dpb.make({self.algorithm!r}{given})"

    def __str__(self) -> str:
        found, best = self.plan, self.plan.recommended
        others = [name for name in (REFERENCE, RANDOM) if found.forecasts[name].course is not None]
        beside = ", ".join(f"{found.final(name):,.0f} by {name}" for name in others)
        line = (
            f"{self.call}: predicted {found.measure} {found.final(best):,.0f} in "
            f"{found.problem.rounds:,} rounds ({beside})"
        )
        rivals = found.rivals()
        if rivals:
            line += f"; equally good as far as a plan can tell: {', '.join(rivals)}"
        if self.algorithm == RANDOM:
            line += ". Nothing learns enough here: try more rounds, a larger ε, or fewer features"
        return line


def _taking_the_facts_of(
    other: Callable[P, Plan],
) -> Callable[[Callable[..., Recommendation]], Callable[P, Recommendation]]:
    """The other's signature, for readers, editors and type checkers."""

    def decorate(function: Callable[..., Recommendation]) -> Callable[P, Recommendation]:
        facts = inspect.signature(other).replace(return_annotation="Recommendation")
        function.__signature__ = facts  # type: ignore[attr-defined]
        return function

    return decorate


@_taking_the_facts_of(plan)
def recommend(**facts: Any) -> Recommendation:
    """Recommend a proven algorithm, with the call that makes it. `dpb.plan` says why.

    Parameters
    ----------
    **facts
        Facts about your world, and the budget, as in `dpb.plan`. At least `dim`, `arms`, `epsilon`
        and `delta`. Give `horizon`, and `click_rate` for clicks. `contexts`, a sample, matters
        most: slates of shape (n, arms, dim) if arms have their own features.

    Returns
    -------
    Recommendation
        Print it for the answer in one line; `plan` is the full answer.

    Raises
    ------
    OptionError, ShapeError, NotFiniteError, UnknownAlgorithmError
        If an argument is not allowed.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> found = dpb.recommend(
    ...     dim=3, arms=5, epsilon=2.0, delta=1e-5, horizon=500, click_rate=0.1,
    ...     particles=4, algorithms=["anytime", "random"],
    ... )
    >>> found.options["rewards"]
    'clicks'
    """
    if missing := [f"{name}=..." for name in NEEDED if name not in facts]:
        raise OptionError(f"recommend needs {', '.join(missing)} as well")
    algorithms = facts.pop("algorithms", None)
    if algorithms is not None and RANDOM not in algorithms:
        algorithms = [*algorithms, RANDOM]
    found = plan(algorithms=algorithms, **facts)
    forecast = found.forecasts[found.recommended]
    options: dict[str, Any] = {"dim": found.problem.dim, "epsilon": found.epsilon}
    options |= {"delta": found.delta, "reward_range": found.problem.reward_range}
    if found.horizon is not None:
        options["horizon"] = found.horizon
    return Recommendation(forecast.algorithm, options | dict(forecast.options), found)
