"""The result of `verify`: the worst reward (or user) of each stream, compared with the claim."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from dpbandit.bandit import Bandit
from dpbandit.errors import OptionError
from dpbandit.privacy.accounting import epsilon_of, mu_of
from dpbandit.privacy.claim import Claim
from dpbandit.types import Matrix

# Relative rounding error allowed in a cost; scales carry a margin of 2e-9 for it.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Case:
    """The worst reward (or user) of one stream."""

    contexts: str
    rounds: int
    dim: int
    position: int
    cost: float  # μ or ε of the whole transcript
    ratio: float  # cost / requested budget
    why: str = ""  # the reason, where the cost is infinite

    def __str__(self) -> str:
        words = f"{self.contexts:<32} {self.ratio:>9.4g} × the request, worst at round "
        return words + f"{self.position:,}" + (f": {self.why}" if self.why else "")


@dataclass
class Verification:
    """The result of `verify`."""

    name: str
    epsilon: float
    delta: float
    currency: str
    requested: float
    claim: Claim
    cases: list[Case] = field(default_factory=list)
    complete: bool = True  # False after Ctrl-C

    @property
    def worst(self) -> Case:
        """The costliest case."""
        return max(self.cases, key=lambda case: case.ratio)

    @property
    def holds(self) -> bool:
        """Whether every case stays within the requested budget."""
        return self.worst.ratio <= 1 + ROUNDING

    @property
    def true_epsilon(self) -> float:
        """The actual ε of the worst case, at the requested δ if costs are in μ, else at δ = 0."""
        if self.currency == "μ" and math.isfinite(self.worst.cost):
            return epsilon_of(mu=self.worst.cost, delta=self.delta)
        return self.worst.cost

    def add(self, contexts: str, xs: Matrix, position: int, total: float, why: str = "") -> None:
        """Add a case, with the total cost of all its releases."""
        cost = math.sqrt(total) if self.currency == "μ" else total
        ratio = cost / self.requested if self.requested else (math.inf if cost else 0.0)
        rounds, dim = xs.shape
        self.cases.append(Case(contexts, rounds, dim, position, cost, ratio, why))

    def __str__(self) -> str:
        verdict = "HOLDS" if self.holds else "DOES NOT HOLD"
        if not self.complete:
            verdict += f" (interrupted after {len(self.cases)} cases)"
        setting = f"ε = {self.epsilon:g}"
        if self.currency == "μ":
            setting += f", δ = {self.delta:g}"
        return "\n".join(
            [
                f"{self.name}: {setting} for {self.claim.unit} {verdict} on these streams "
                f"[status: {self.claim.status}]",
                f"each line: the largest cost of changing {self.claim.unit}, over all releases "
                f"together, as a share of the requested {self.currency} = {self.requested:.6g}. "
                "1 uses it up; more breaks it",
                *(f"  {case}" for case in self.cases),
                f"worst case: {self.currency} = {self.worst.cost:.6g}, which is "
                f"ε = {self.true_epsilon:.4g} at δ = {self.delta if self.currency == 'μ' else 0:g} "
                f"(requested: {self.epsilon:g})",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "holds": self.holds,
            "complete": self.complete,
            "requested": {
                "epsilon": self.epsilon,
                "delta": self.delta,
                "currency": self.currency,
                "value": self.requested,
            },
            "true_epsilon": _finite(self.true_epsilon),
            "claim": self.claim.to_dict(),
            "cases": [{k: _finite(v) for k, v in asdict(case).items()} for case in self.cases],
        }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def compare_with(
    bandit: Bandit, *, epsilon: float | None = None, delta: float | None = None
) -> Verification:
    """A comparison of this bandit's costs with (ε, δ), without cases yet.

    With neither given, it compares with the bandit's own claim, or its setting if it claims
    nothing.
    """
    noise, claim, currency = bandit.noise, bandit.claim, "ε"
    if epsilon is None and delta is None and claim.status != "none":
        epsilon, delta = claim.epsilon, claim.delta
    epsilon = (bandit.options.epsilon or 0.0) if epsilon is None else epsilon
    delta = (bandit.options.delta or 0.0) if delta is None else delta
    requested = epsilon
    if bandit.design.is_private:
        if noise.notion == "gdp":
            currency, requested = "μ", mu_of(epsilon=epsilon, delta=delta)
        elif noise.notion != "pure":
            raise OptionError(
                f"the cost of {noise.name} noise is not a sum over releases, so verify cannot "
                "compute it: use audit, whose attack knows the exact likelihood ratio"
            )
    return Verification(bandit.name, epsilon, delta, currency, requested, claim)
