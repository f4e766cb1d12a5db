"""The promise, whom it protects, and how much of it has been spent."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["proven", "as-published", "none"]
NoiseKind = Literal["real", "simulation", "none"]
Notion = Literal["pure", "approximate", "gdp", "parallel", "joint", "none"]

NOTIONS: dict[Notion, str] = {
    "pure": "pure ε-differential privacy",
    "approximate": "(ε, δ)-differential privacy",
    "parallel": "(ε, δ)-differential privacy by parallel composition: a reward pays pure ε, or Gaussian "
    "noise of the same (ε, δ), never both",
    "gdp": "Gaussian differential privacy",
    "joint": "joint differential privacy: contexts are protected too",
    "none": "no notion of privacy",
}


@dataclass(frozen=True)
class Claim:
    """A promise and whom it protects. Nothing in this library prints an ε without one.

    >>> assumed = ("rewards clipped",)
    >>> print(Claim("one reward", "pure", 2.0, 0.0, None, "proven", "simulation", assumed))
    proven: ε = 2, δ = 0 for one reward (simulation noise)
      in full: pure ε-differential privacy
      assumes: rewards clipped
    """

    unit: str
    notion: Notion
    epsilon: float
    delta: float
    mu: float | None
    status: Status
    noise: NoiseKind
    assumptions: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.status == "none":
            full = f"no privacy is claimed for {self.unit}"
            if math.isfinite(self.epsilon) and self.epsilon > 0:
                full += f" (run with the setting ε = {self.epsilon:g}, which it does not achieve)"
        else:
            full = NOTIONS[self.notion] + ("" if self.mu is None else f", μ = {self.mu:.6g}")
        assumed = (f"assumes: {one}" for one in self.assumptions)
        return "\n  ".join([self.brief(), f"in full: {full}", *assumed])

    def brief(self) -> str:
        """One short line.

        >>> Claim("one reward", "gdp", 2.0, 1e-5, 0.5, "proven", "real").brief()
        'proven: ε = 2, δ = 1e-05 for one reward (real noise)'
        """
        if self.status == "none":
            return "no claim: not private"
        noise = "no" if self.noise == "none" else self.noise
        budget = f"ε = {self.epsilon:g}, δ = {self.delta:g}"
        return f"{self.status}: {budget} for {self.unit} ({noise} noise)"

    def to_dict(self) -> dict[str, Any]:
        """For JSON; infinity becomes None, because JSON has no infinity."""
        record = asdict(self)
        record["assumptions"] = list(self.assumptions)
        record["epsilon"] = self.epsilon if math.isfinite(self.epsilon) else None
        return record


@dataclass(frozen=True)
class Spent:
    """The budget spent so far by the reward that paid most, in its claim's terms."""

    epsilon: float
    delta: float
    mu: float | None
    claim: Claim

    def __str__(self) -> str:
        claim = self.claim
        if claim.status == "none":
            return f"spent: ε = {self.epsilon:.6g}; {claim.brief()}"
        return (
            f"spent: ε = {self.epsilon:.6g} of {claim.epsilon:g} at δ = {self.delta:g} "
            f"({claim.status}, for {claim.unit})\n"
            "  This is the most that any one of them has paid. Each has its own budget, so learning continues "
            "when this one is full."
        )
