"""`dpb.affordable_epsilon`: the ε needed for an acceptable regret."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpbandit.options import positive
from dpbandit.planner import accuracy
from dpbandit.planner.ask import PARTICLES, Algorithms, jobs_of, plan
from dpbandit.planner.forecast import REFERENCE, Plan
from dpbandit.planner.work import Progress

# A few particles suffice to find the two best algorithms at an ε of each size.
SCOUTS = 6
# Seconds of one core for each ε tried.
SECONDS = 2.5
SCOUTED = (0.5, 4.0, 32.0)
LEAST_EPSILON, MOST_EPSILON = 0.01, 100.0


@dataclass(frozen=True)
class Affordable:
    """The answer to "what ε can I afford?".

    `epsilon` is None if no ε up to 100 is enough; `plan` is the plan at the answer, or at the
    largest ε tried.

    >>> import dpbandit as dpb
    >>> few = {"horizon": 300, "particles": 4}
    >>> answer = dpb.affordable_epsilon(dim=2, arms=3, delta=1e-5, within=0.5, **few)
    >>> answer.to_dict()["status"]
    'proven'
    """

    epsilon: float | None
    algorithm: str
    target: float
    within: float | None
    plan: Plan

    @property
    def status(self) -> str:
        """Status of the algorithm's claim at this ε."""
        return self.plan.forecasts[self.algorithm].status

    @property
    def regret(self) -> float:
        """Predicted regret after the last round."""
        return self.plan.final(self.algorithm)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "epsilon": self.epsilon,
            "delta": self.plan.delta,
            "status": self.status,
            "algorithm": self.algorithm,
            "regret": self.regret,
            "target": self.target,
            "within": self.within,
            "non_private_regret": self.plan.final(REFERENCE),
            "rounds": self.plan.problem.rounds,
            "complete": self.plan.complete,
            "assumptions": self.plan.assumptions,
            "accuracy": accuracy.to_dict(self.plan.extrapolated),
        }

    def __str__(self) -> str:
        rounds, reference = self.plan.problem.rounds, self.plan.final(REFERENCE)
        aim = f"{self.plan.measure} ≤ {self.target:,.0f}" + (
            f" ({1 + self.within:g} × non-private)" if self.within else ""
        )
        if self.epsilon is None:
            first = (
                f"no ε up to {self.plan.epsilon:g} reaches {aim} after {rounds:,} rounds: "
                f"{self.algorithm} ({self.status} at δ = {self.plan.delta:g}) gets "
                f"{self.regret:,.0f}, non-private {reference:,.0f}"
            )
        else:
            least = (
                "the smallest"
                if self.plan.complete
                else "the smallest found before the interruption"
            )
            first = (
                f"ε = {self.epsilon:.3g} at δ = {self.plan.delta:g} ({self.status}) with "
                f"{self.algorithm}: {least} with {aim} after {rounds:,} rounds; predicted "
                f"{self.regret:,.0f}, non-private {reference:,.0f}"
            )
        return "\n".join(
            [
                first,
                "",
                *(f"{what}: {words}" for what, words in self.plan.assumptions.items()),
                *(f"note: {note}" for note in self.plan.notes),
                self.plan.accuracy,
            ]
        )


def affordable_epsilon(
    *,
    dim: int,
    arms: int,
    delta: float,
    horizon: int | None = 10_000,
    within: float = 0.1,
    regret: float | None = None,
    particles: int = PARTICLES // 2,
    progress: Progress | None = None,
    algorithms: Algorithms | None = None,
    **options: Any,
) -> Affordable:
    """Find the smallest ε at which a proven algorithm comes close enough to the non-private one.

    Ctrl-C returns the smallest sufficient ε found so far, if any.

    Parameters
    ----------
    dim, arms, delta, horizon, particles, progress, algorithms
        As in `plan`, like all other options.
    within : float, default 0.1
        How much larger the predicted regret may be; 0.1 means 10%.
    regret : float, optional
        Instead: the largest acceptable predicted regret.

    Returns
    -------
    Affordable
        Its `epsilon` is None if no ε up to 100 is enough.

    Raises
    ------
    OptionError, ShapeError, NotFiniteError, UnknownAlgorithmError
        If an argument is not allowed.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> few = {"horizon": 500, "particles": 4}
    >>> answer = dpb.affordable_epsilon(dim=2, arms=3, delta=1e-5, within=0.5, **few)
    >>> answer.status, 0.01 <= answer.epsilon <= 100
    ('proven', True)
    """
    within = positive("within", within)
    given = {"dim": dim, "arms": arms, "delta": delta, "horizon": horizon, **options}

    def at(value: float, algorithms: Algorithms | None, particles: int) -> Plan:
        """A plan cut short by Ctrl-C would mislead the search."""
        found = plan(
            epsilon=value, algorithms=algorithms, particles=particles, seconds=SECONDS, **given
        )
        if not found.complete:
            raise KeyboardInterrupt
        return found

    def tell(part: float) -> None:
        if progress is not None:
            progress("searching ε", part)

    worth: dict[str, None] = {}  # labels
    for number, value in enumerate(SCOUTED):
        scouted = at(value, algorithms, min(SCOUTS, particles))
        worth.update(dict.fromkeys(name for name in scouted.ranked()[:2] if name != "random"))
        tell(0.4 * (number + 1) / len(SCOUTED))
    chosen = [(name, own) for label, name, own in jobs_of(algorithms, {}) if label in worth]
    found = at(MOST_EPSILON, chosen, particles)
    reference = found.final(REFERENCE)
    target = (1 + within) * reference if regret is None else positive("regret", regret)
    aim = within if regret is None else None
    if found.final(found.recommended) > target:
        return Affordable(None, found.recommended, target, aim, found)
    low, high = math.log(LEAST_EPSILON), math.log(MOST_EPSILON)
    tries = 8
    try:
        for number in range(tries):
            middle = 0.5 * (low + high)
            tried = at(math.exp(middle), chosen, particles)
            if tried.final(tried.recommended) <= target:
                high, found = middle, tried
            else:
                low = middle
            tell(0.4 + 0.6 * (number + 1) / tries)
    except KeyboardInterrupt:
        found = replace(found, complete=False)
    return Affordable(found.epsilon, found.recommended, target, aim, found)
