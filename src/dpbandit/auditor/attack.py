"""`audit`: play the adversary. Run the bandit many times on two neighbouring streams, test which
stream it was, and report the ε that the test proves.

The adversary knows everything but one reward (and its context, where contexts are private) and sees
every release. Its score is the log-likelihood ratio of the whole transcript where the releases are
visible, and otherwise a statistic trained on half of the runs. The threshold is chosen on one half
and tested on the other, so the bound is valid for any choice: with the stated confidence, no (ε, δ)
with a smaller ε is true. It can prove a claim wrong, never right.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit import spread
from dpbandit.algorithms import registry
from dpbandit.auditor import streams
from dpbandit.auditor.bounds import CONFIDENCE, Bound, judge, lower_bound
from dpbandit.auditor.frozen import Frozen, freeze, opposed, together
from dpbandit.auditor.scores import (
    LEAST_RUNS,
    Progress,
    Scores,
    black_box_scores,
    engine_scores,
    real_scores,
)
from dpbandit.auditor.trajectories import trajectory
from dpbandit.bandit import Bandit
from dpbandit.defaults import AUDIT_DIM, AUDIT_HORIZON, DELTA, EPSILON
from dpbandit.errors import OptionError
from dpbandit.gpu import attack as gpu
from dpbandit.gpu.counting import Counts
from dpbandit.gpu.machines import DEVICES, machine
from dpbandit.options import whole
from dpbandit.privacy.claim import Claim
from dpbandit.spread import Place

# Runs a side if each round is plain Python.
MOST_IN_PYTHON = 2_000


@dataclass
class Audit:
    """The result of `audit`."""

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
    complete: bool = True  # False after Ctrl-C: `runs` counts finished ones; the bound is valid
    last: int = 0  # of the changed rewards, which begin at `position`; 0: that one alone

    @property
    def changed(self) -> str:
        """What differs between the two streams, in words."""
        joint = self.claim.notion == "joint"
        if self.last <= self.position:
            return f"{'context and ' if joint else ''}reward {self.position} changed"
        what = f"{'contexts and ' if joint else ''}rewards"
        return f"{what} {self.position} to {self.last}, all of one unit, changed"

    @property
    def holds(self) -> bool:
        """Whether the proven lower bound on ε is at most the requested ε."""
        return self.bound.epsilon <= self.epsilon

    def __str__(self) -> str:
        verdict = "no violation found" if self.holds else "REFUTED"
        side = "above" if self.bound.above else "below"
        return "\n".join(
            [
                f"{self.name}: {verdict} for {self.claim.unit} [requested ε = {self.epsilon:g}, δ = {self.delta:g}; "
                f"status: {self.claim.status}]",
                f"  found: ε ≥ {self.bound.epsilon:.4g} at δ = {self.delta:g}, with confidence "
                f"{self.confidence:g}: a lower bound, since no attack can prove a claim",
                f"  by {self.statistic}, {self.changed}, {self.runs:,} runs a "
                f"side, {self.horizon} rounds, dim {self.dim}, {self.noise} noise",
                f"  event: score {side} {self.bound.threshold:.4g}; seen in "
                f"{self.bound.power:.4%} of runs on one stream, "
                f"{self.bound.false_alarms:.4%} on the other",
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
            "changed": max(self.last - self.position, 0) + 1,
            "event": {"above": self.bound.above, "threshold": self.bound.threshold},
            "seen": [self.bound.power, self.bound.false_alarms],
            "claim": self.claim.to_dict(),
            "complete": self.complete,
        }

    def plot(self) -> Any:
        """A picture of the two score distributions."""
        from dpbandit.auditor.picture import distributions

        return distributions(self)


def audit(
    name: str,
    *,
    epsilon: float = EPSILON,
    delta: float = DELTA,
    horizon: int = AUDIT_HORIZON,
    dim: int = AUDIT_DIM,
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

    If your own algorithm's factory returns a `Bandit`, the attack uses the likelihood ratio of its
    releases; otherwise it uses `theta`, with a trained statistic. If rounds are plain Python, there
    are at most 2,000 runs a side. Ctrl-C judges by the finished runs.

    Parameters
    ----------
    name : str
        The algorithm.
    epsilon, delta : float
        The claimed budget.
    horizon, dim : int
        Rounds of a run, and features of a context.
    runs : int
        Number of runs a side.
    seed : int
        Seed of contexts, rewards and simulated noise.
    confidence : float
        Confidence of the bound.
    real : bool
        Run the step-by-step object with real noise, exactly as it ships (slow: choose a short
        horizon).
    device : {'cpu', 'cuda'}
        'cuda' draws the noise of every run and counts on a GPU. The two streams' clean values are
        computed once on the CPU. Statistic and bound are the same, with a hundred million runs in
        seconds.
    unknown_horizon : bool
        Make the algorithm without a horizon.
    workers : int, optional
        Number of threads; default all cores.
    cluster : str, optional
        A Ray cluster ("local", "auto" or its address) to spread the runs over; the same scores.
    progress : callable, optional
        Called with the share done.
    **options
        Options of the algorithm, as for `dpb.make`.

    Returns
    -------
    Audit
        The lower bound on ε, how it was found, and whether the claim survives it.

    Raises
    ------
    OptionError
        If an option is wrong, or the device cannot attack this algorithm.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> result = dpb.audit("local", epsilon=1.0, horizon=8, runs=20_000)
    >>> result.holds, result.bound.epsilon > 0.8
    (True, True)
    """
    runs, horizon = whole("runs", runs, least=LEAST_RUNS), whole("horizon", horizon, least=1)
    _check(confidence, real, device, cluster)
    say = progress or (lambda part: None)
    given = {"dim": dim, "epsilon": epsilon, "delta": delta, **options}
    given["horizon"] = None if unknown_horizon else horizon
    if "smallest_eigenvalue" in registry.find(name).own_options:
        given.setdefault("smallest_eigenvalue", 1.0 / dim)
    bandit = registry.construct(name, {**given, "seed": seed})
    ours = isinstance(bandit, Bandit)
    if device != "cpu" and not (ours and bandit.backend == "core"):
        raise OptionError(
            f"a GPU attacks only algorithms of the compiled core, and {name!r} does not run in it: "
            "use device='cpu'"
        )
    where = machine(device) if device != "cpu" else None
    if not real and not (ours and bandit.backend == "core"):
        runs = min(runs, MOST_IN_PYTHON)
    counts: Counts | None = None
    claim, statistic = getattr(bandit, "claim", None), "the likelihood ratio of all releases"
    kind, positions = "simulated", np.array([0])
    with spread.over(cluster, workers) as place:
        if not ours:
            xs = np.tile(np.ones(dim) / math.sqrt(dim), (horizon, 1))
            scores = black_box_scores(name, given, xs, runs, place.for_python, say)
            statistic, kind = "a statistic trained on half of the runs", "its own"
        else:
            frozen, positions = worst_stream(bandit, horizon, seed, workers or os.cpu_count() or 1)
            if real:
                claim, kind = registry.construct(name, {**given, "seed": None}).claim, "real"
                scores = real_scores(name, given, frozen, positions, runs, place.for_python, say)
            elif where is not None:
                found = gpu.attack(where, trajectory(frozen, positions), runs=runs, seed=seed)
                counts, scores = found.counts, (found.sample0, found.sample1)
                say(1.0)
            else:
                scores = engine_scores(frozen, positions, runs, seed, place, say)
    used = _delta(claim, delta)
    if counts is None:
        bound = lower_bound(*scores, delta=used, confidence=confidence)
        done = min(len(side) for side in scores)
    else:
        bound, done = judge(counts, delta=used, confidence=confidence), runs
    return Audit(
        name,
        claim or _no_claim(),
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
        last=int(positions[-1]) + 1,
    )


def _check(confidence: float, real: bool, device: str, cluster: str | Place | None) -> None:
    if not 0.5 <= confidence < 1:
        raise OptionError(f"confidence must lie in [0.5, 1), not {confidence!r}")
    if device not in (*DEVICES, "host"):
        raise OptionError(f"device must be 'cpu' or 'cuda', not {device!r}")
    if real and device != "cpu":
        raise OptionError("real noise is drawn on the CPU: use device='cpu' with real=True")
    if cluster is not None and device != "cpu":
        raise OptionError("a GPU needs no cluster: omit device or cluster")


def worst_stream(
    bandit: Bandit, horizon: int, seed: int, workers: int
) -> tuple[Frozen, NDArray[np.int64]]:
    """The stream and positions whose change costs most, among those worth trying.

    A user's positions are neighbouring ones, as many as the cap allows.
    """
    many = min(together(bandit), horizon)
    last = horizon - many
    spread_out = np.linspace(0, last, min(last + 1, 64)).astype(int)
    first = np.unique(np.concatenate([np.arange(min(last + 1, 64)), spread_out]))
    rows = (first[:, None] + np.arange(many)).astype(np.int64)
    found: list[tuple[float, Frozen, NDArray[np.int64]]] = []
    limits = (bandit.options.max_norm, bandit.l1_limit)
    for xs in streams.families(bandit.dim, horizon, seed, *limits).values():
        frozen = freeze(bandit, opposed(bandit, xs), seed=seed)
        costs = frozen.costs(rows, workers)
        found.append((float(costs.max()), frozen, rows[int(costs.argmax())]))
    return max(found, key=lambda one: one[0])[1:]


def _delta(claim: Claim | None, asked: float) -> float:
    """The δ to judge at: the claim's, or the requested one if nothing is claimed."""
    if claim is None:
        return asked
    if claim.status != "none":
        return claim.delta
    return asked if claim.delta else 0.0


def _no_claim() -> Claim:
    words = ("none is stated by this algorithm",)
    return Claim("one reward", "none", math.inf, 0.0, None, "none", "none", words)
