"""`audit`: play the adversary. Many runs on two neighbouring streams, a test that tells them apart, and the ε it proves.

The adversary knows everything but one reward (where contexts are private: and its context) and sees every release. Its score is the log-likelihood ratio of the whole
transcript where the releases are known, and a statistic trained on one half of the runs where they are not. A threshold
is chosen on one half and tried on the other, so the bound that comes out is valid whatever was chosen: with the stated
confidence, no (ε, δ) with an ε below it is true. It can prove a claim wrong, never right.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from dpbandit import spread
from dpbandit.auditing import streams
from dpbandit.auditing.joint_cost import Frozen, freeze
from dpbandit.auditing.scores import LEAST_RUNS, Progress, Scores, black_box_scores, engine_scores, real_scores
from dpbandit.auditing.trajectories import trajectory
from dpbandit.bandits import registry
from dpbandit.bandits.linear import LinearBandit, is_compiled
from dpbandit.bandits.options import whole
from dpbandit.budget import Claim
from dpbandit.errors import OptionError
from dpbandit.gpu import attack as gpu
from dpbandit.gpu.counting import Counts, count
from dpbandit.gpu.machines import DEVICES, machine
from dpbandit.spread import Place

CONFIDENCE = 0.999


@dataclass(frozen=True)
class Bound:
    """A lower bound on ε at some δ, from scores on two streams."""

    epsilon: float
    threshold: float
    above: bool  # whether the event is a score above the threshold, else one below it
    power: float
    false_alarms: float


def lower_bound(scores0: Scores, scores1: Scores, *, delta: float, confidence: float = CONFIDENCE) -> Bound:
    """The largest ε that these scores refute, threshold chosen on the first half and tested on the second.

    (ε, δ)-DP says P(E | one) ≤ e^ε P(E | other) + δ for every event E, either way round. Clopper–Pearson bounds each of the
    two probabilities with half of the allowed error.

    >>> rng = np.random.default_rng(0)
    >>> found = lower_bound(rng.normal(0, 1, 20_000), rng.normal(1, 1, 20_000), delta=0.01)
    >>> 1.0 < found.epsilon < 2.4
    True
    """
    # Rounded, because the low bits of a score come from the low bits of simulated noise, and those leak: without this the
    # attack breaks even a correct Laplace mechanism, through the floats instead of through its noise. (So low-bit leaks of a
    # real source are not seen here: `guards.on_grid` is for those.)
    return judge(count(np, np.round(scores0, 9), np.round(scores1, 9)), delta=delta, confidence=confidence)


def judge(counts: Counts, *, delta: float, confidence: float = CONFIDENCE) -> Bound:
    """The same from how often thresholds were passed, wherever that was counted."""
    error = (1 - confidence) / 2
    best, chosen, above = -math.inf, 0, True
    for number in range(len(counts.thresholds)):
        for direction in (True, False):
            value = _epsilon(*_seen(counts.train, counts.train_runs, number, direction), delta, error)
            if value > best:
                best, chosen, above = value, number, direction
    hits, runs, other_hits, other_runs = _seen(counts.test, counts.test_runs, chosen, above)
    epsilon = _epsilon(hits, runs, other_hits, other_runs, delta, error)
    return Bound(max(epsilon, 0.0), float(counts.thresholds[chosen]), above, hits / runs, other_hits / other_runs)


def _seen(hits: NDArray[np.int64], runs: tuple[int, int], number: int, above: bool) -> tuple[int, int, int, int]:
    """Hits and runs of the side that a score above (below) the threshold speaks for, then of the other."""
    side, direction = (1, 0) if above else (0, 1)
    return int(hits[side, direction, number]), runs[side], int(hits[1 - side, direction, number]), runs[1 - side]


def _epsilon(hits: int, runs: int, other_hits: int, other_runs: int, delta: float, error: float) -> float:
    low = float(beta.ppf(error, hits, runs - hits + 1)) if hits > 0 else 0.0
    high = float(beta.ppf(1 - error, other_hits + 1, other_runs - other_hits)) if other_hits < other_runs else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf


@dataclass
class Audit:
    """What `audit` found."""

    name: str
    claim: Claim
    epsilon: float
    delta: float
    confidence: float
    runs: int
    horizon: int
    dim: int
    noise: str
    statistic: str
    position: int
    bound: Bound
    scores0: Scores  # from a GPU: some of them, for a picture
    scores1: Scores
    complete: bool = True  # False after Ctrl-C: then `runs` is what was finished, and the bound as valid

    @property
    def holds(self) -> bool:
        """Whether no ε above the requested one was proven."""
        return self.bound.epsilon <= self.epsilon

    def __str__(self) -> str:
        verdict = "no violation found" if self.holds else "REFUTED"
        what = "context and reward" if self.claim.notion == "joint" else "reward"
        return "\n".join(
            [
                f"{self.name}: {verdict} [requested ε = {self.epsilon:g}, δ = {self.delta:g}; status: {self.claim.status}]",
                f"  found: ε ≥ {self.bound.epsilon:.4g} at δ = {self.delta:g}, with confidence {self.confidence:g}",
                f"  by {self.statistic}, {what} {self.position} changed, {self.runs:,} runs a side, {self.horizon} rounds, "
                f"dim {self.dim}, {self.noise} noise",
                f"  event: score {'above' if self.bound.above else 'below'} {self.bound.threshold:.4g}; "
                f"seen in {self.bound.power:.4%} of runs on one stream, {self.bound.false_alarms:.4%} on the other",
                *(() if self.complete else ("  interrupted: only finished runs are counted",)),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "holds": self.holds,
            "requested": {"epsilon": self.epsilon, "delta": self.delta},
            "found_epsilon": self.bound.epsilon,
            "confidence": self.confidence,
            "runs": self.runs,
            "horizon": self.horizon,
            "dim": self.dim,
            "noise": self.noise,
            "statistic": self.statistic,
            "position": self.position,
            "event": {"above": self.bound.above, "threshold": self.bound.threshold},
            "seen": [self.bound.power, self.bound.false_alarms],
            "claim": self.claim.to_dict(),
            "complete": self.complete,
        }

    def plot(self) -> Any:
        """A picture of the two score distributions."""
        from dpbandit.auditing.picture import distributions

        return distributions(self)


def audit(
    name: str,
    *,
    epsilon: float = 2.0,
    delta: float = 1e-5,
    horizon: int = 256,
    dim: int = 1,
    runs: int = 100_000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    real: bool = False,
    device: str = "cpu",
    unknown_horizon: bool = False,
    workers: int | None = None,
    cluster: str | Place | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Audit:
    """Attack an algorithm with `runs` runs on each of two neighbouring streams.

    `real=True` runs the step-by-step object with real noise, exactly as it ships (slow: choose a short horizon).
    `device="cuda"` draws the noise of every run and counts on a GPU, from the two streams' clean values computed here once:
    the same statistic and the same bound, with a hundred million runs in seconds.
    Algorithms of your own are attacked through their `theta` with a trained statistic. `cluster` spreads the runs over a
    Ray cluster ("local", "auto" or its address), with the same scores. Ctrl-C judges by the runs that are finished.

    >>> import dpbandit as dpb
    >>> result = dpb.audit("local", epsilon=1.0, horizon=8, runs=20_000)
    >>> result.holds, result.bound.epsilon > 0.8
    (True, True)
    """
    runs, horizon = whole("runs", runs, least=LEAST_RUNS), whole("horizon", horizon, least=1)
    if not 0.5 <= confidence < 1:
        raise OptionError(f"confidence must lie in [0.5, 1), not {confidence!r}")
    if device not in (*DEVICES, "host"):
        raise OptionError(f"device must be 'cpu' or 'cuda', not {device!r}")
    if real and device != "cpu":
        raise OptionError("real noise is drawn on the CPU: use device='cpu' with real=True")
    if cluster is not None and device != "cpu":
        raise OptionError("a GPU needs no cluster: leave out one of device and cluster")
    say = progress or (lambda part: None)
    given = {"dim": dim, "epsilon": epsilon, "delta": delta, "horizon": None if unknown_horizon else horizon, **options}
    if "smallest_eigenvalue" in registry.find(name).own_options:
        given.setdefault("smallest_eigenvalue", 1.0 / dim)
    bandit = registry.construct(name, {**given, "seed": seed})
    if device != "cpu" and not is_compiled(bandit):
        raise OptionError(f"a GPU attacks built-in algorithms only; {name!r} is not one: use device='cpu'")
    where = machine(device) if device != "cpu" else None
    counts: Counts | None = None
    with spread.over(cluster, workers) as place:
        if not is_compiled(bandit):
            runs = min(runs, 2_000)  # each takes `horizon` Python updates
            xs = np.tile(np.ones(dim) / math.sqrt(dim), (horizon, 1))
            scores = black_box_scores(name, given, xs, runs, place.for_python, say)
            claim, statistic = getattr(bandit, "claim", None) or _no_claim(), "a statistic trained on half of the runs"
            positions, kind = np.array([0]), "its own"
        else:
            frozen, positions = _worst(bandit, horizon, seed, workers or os.cpu_count() or 1)
            claim, statistic = bandit.claim, "the likelihood ratio of all releases"
            if real:
                scores, kind = real_scores(name, given, frozen, positions, runs, place.for_python, say), "real"
                claim = registry.construct(name, {**given, "seed": None}).claim
            elif where is not None:
                found = gpu.attack(where, trajectory(frozen, positions), runs=runs, seed=seed)
                counts, scores, kind = found.counts, (found.sample0, found.sample1), "simulated"
                say(1.0)
            else:
                scores, kind = engine_scores(frozen, positions, runs, seed, place, say), "simulated"
    unclaimed = getattr(bandit, "claim", None) is None  # somebody's own: judged by what was asked for
    used = claim.delta if claim.status != "none" else (delta if claim.delta or unclaimed else 0.0) or 0.0
    if counts is None:
        bound = lower_bound(*scores, delta=used, confidence=confidence)
        done = min(len(side) for side in scores)
    else:
        bound, done = judge(counts, delta=used, confidence=confidence), runs
    return Audit(
        name,
        claim,
        epsilon,
        used,
        confidence,
        done,
        horizon,
        dim,
        kind,
        statistic,
        int(positions[0]) + 1,
        bound,
        *scores,
        complete=done == runs,
    )


def _worst(bandit: LinearBandit, horizon: int, seed: int, workers: int) -> tuple[Frozen, NDArray[np.int64]]:
    """The stream and the positions (m neighbouring ones for a user) whose change costs most, among those worth trying."""
    together = min(bandit.options.rewards_per_unit, horizon)
    last = horizon - together
    first = np.unique(
        np.concatenate([np.arange(min(last + 1, 64)), np.linspace(0, last, min(last + 1, 64)).astype(int)])
    )
    rows = (first[:, None] + np.arange(together)).astype(np.int64)
    found: tuple[float, Frozen, NDArray[np.int64]] | None = None
    for xs in streams.families(bandit.dim, horizon, seed, bandit.options.max_norm, bandit.l1_limit).values():
        frozen = freeze(bandit, bandit.within(xs), seed=seed)
        costs = frozen.costs(rows, workers)
        worst = int(costs.argmax())
        if found is None or costs[worst] > found[0]:
            found = (float(costs[worst]), frozen, rows[worst])
    assert found is not None
    return found[1], found[2]


def _no_claim() -> Claim:
    return Claim("one reward", "none", math.inf, 0.0, None, "none", "none", ("none is stated by this algorithm",))
