"""`audit`: play the adversary. Many runs on two neighbouring streams, a test that tells them apart, and the ε it proves.

The adversary knows everything but one reward (where contexts are private: and its context) and sees every release. Its score is the log-likelihood ratio of the whole
transcript where the releases are known, and a statistic trained on one half of the runs where they are not. A threshold
is chosen on one half and tried on the other, so the bound that comes out is valid whatever was chosen: with the stated
confidence, no (ε, δ) with an ε below it is true. It can prove a claim wrong, never right.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from dpbandit.auditing import streams
from dpbandit.auditing.joint_cost import Frozen, freeze
from dpbandit.auditing.kernels import learner_scores, log_ratio, paired_scores, release_scores
from dpbandit.auditing.releases import Release, Transcript, Watch
from dpbandit.auditing.trajectories import trajectory
from dpbandit.bandits import registry, rounds
from dpbandit.bandits.linear import LinearBandit, is_compiled
from dpbandit.bandits.options import whole
from dpbandit.budget import Claim
from dpbandit.errors import OptionError
from dpbandit.gpu import attack as gpu
from dpbandit.gpu.counting import Counts, count
from dpbandit.gpu.machines import DEVICES, machine
from dpbandit.noise import CODES, Real
from dpbandit.randomness import derive_key

Scores = NDArray[np.float64]
Progress = Callable[[float], None]

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
    progress: Progress | None = None,
    **options: Any,
) -> Audit:
    """Attack an algorithm with `runs` runs on each of two neighbouring streams.

    `real=True` runs the step-by-step object with real noise, exactly as it ships (slow: choose a short horizon).
    `device="cuda"` draws the noise of every run and counts on a GPU, from the two streams' clean values computed here once:
    the same statistic and the same bound, with a hundred million runs in seconds.
    Algorithms of your own are attacked through their `theta` with a trained statistic.

    >>> import dpbandit as dpb
    >>> result = dpb.audit("local", epsilon=1.0, horizon=8, runs=20_000)
    >>> result.holds, result.bound.epsilon > 0.8
    (True, True)
    """
    runs, horizon = whole("runs", runs, least=100), whole("horizon", horizon, least=1)
    if not 0.5 <= confidence < 1:
        raise OptionError(f"confidence must lie in [0.5, 1), not {confidence!r}")
    if device not in (*DEVICES, "host"):
        raise OptionError(f"device must be 'cpu' or 'cuda', not {device!r}")
    if real and device != "cpu":
        raise OptionError("real noise is drawn on the CPU: use device='cpu' with real=True")
    workers = workers or os.cpu_count() or 1
    say = progress or (lambda part: None)
    given = {"dim": dim, "epsilon": epsilon, "delta": delta, "horizon": None if unknown_horizon else horizon, **options}
    if "smallest_eigenvalue" in registry.find(name).own_options:
        given.setdefault("smallest_eigenvalue", 1.0 / dim)
    bandit = registry.construct(name, {**given, "seed": seed})
    if device != "cpu" and not is_compiled(bandit):
        raise OptionError(f"a GPU attacks built-in algorithms only; {name!r} is not one: use device='cpu'")
    where = machine(device) if device != "cpu" else None
    counts: Counts | None = None
    if not is_compiled(bandit):
        runs = min(runs, 2_000)  # each takes `horizon` Python updates
        xs = np.tile(np.ones(dim) / math.sqrt(dim), (horizon, 1))
        scores, statistic = _black_box(name, given, xs, runs, say), "a statistic trained on half of the runs"
        claim = getattr(bandit, "claim", None) or _no_claim()
        positions, kind = np.array([0]), "its own"
    else:
        frozen, positions = _worst(bandit, horizon, seed, workers)
        claim, statistic = bandit.claim, "the likelihood ratio of all releases"
        if real:
            scores, kind = _real_scores(name, given, frozen, positions, runs, say), "real"
            claim = registry.construct(name, {**given, "seed": None}).claim
        elif where is not None:
            found = gpu.attack(where, trajectory(frozen, positions), runs=runs, seed=seed)
            counts, scores, kind = found.counts, (found.sample0, found.sample1), "simulated"
            say(1.0)
        else:
            scores, kind = _engine_scores(frozen, positions, runs, seed, workers, say), "simulated"
    used = claim.delta if claim.status != "none" else (delta if claim.delta else 0.0)
    if counts is None:
        bound = lower_bound(*scores, delta=used, confidence=confidence)
    else:
        bound = judge(counts, delta=used, confidence=confidence)
    return Audit(
        name,
        claim,
        epsilon,
        used,
        confidence,
        runs,
        horizon,
        dim,
        kind,
        statistic,
        int(positions[0]) + 1,
        bound,
        *scores,
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


def _engine_scores(
    frozen: Frozen, positions: NDArray[np.int64], runs: int, seed: int, workers: int, say: Progress
) -> tuple[Scores, Scores]:
    xs1, rs1, values1 = frozen.neighbour(positions)
    size = 1 + frozen.bandit.dim
    sides = []
    for side, (xs, rs) in enumerate(((frozen.xs, frozen.rs), (xs1, rs1))):
        key = np.uint64(derive_key(seed, 100 + side))
        out = np.empty(runs)

        def work(
            part: slice, xs: Any = xs, rs: Scores = rs, key: np.uint64 = key, out: Scores = out, side: int = side
        ) -> None:
            learner = frozen.bandit.new_learner()
            if frozen.bandit.values_depend_on_releases:
                other = frozen.rs if side else rs1
                paired_scores(
                    learner,
                    frozen.bandit.new_learner(),
                    frozen.bandit.plan,
                    frozen.xs,
                    rs,
                    other,
                    frozen.known,
                    key,
                    part.start,
                    out[part],
                    np.empty_like(learner.pending),
                    np.empty(frozen.bandit.dim),
                )
                out[part] *= 1 if side else -1
                return
            learner_scores(
                learner,
                frozen.bandit.plan,
                xs,
                rs,
                frozen.known,
                key,
                part.start,
                frozen.values,
                values1,
                frozen.scales,
                out[part],
                np.empty_like(learner.pending),
                np.empty(frozen.bandit.dim),
                np.empty((size, size)),
            )

        _in_parts(work, runs, workers, _share_of(say, side))
        sides.append(out)
    return sides[0], sides[1]


def _share_of(say: Progress, side: int) -> Progress:
    return lambda done: say((side + done) / 2)


def scores_of_releases(
    noise: str, values0: Any, values1: Any, scales: Any, *, runs: int, seed: int = 0, workers: int | None = None
) -> tuple[Scores, Scores]:
    """Scores for a mechanism described by its releases: values under both streams, and noise scales.

    For mechanisms that are not among ours, such as deliberately broken ones.
    """
    v0, v1 = (np.ascontiguousarray(v, dtype=np.float64) for v in (values0, values1))
    scale = np.ascontiguousarray(scales, dtype=np.float64)
    sides = []
    for side, value in enumerate((v0, v1)):
        key = np.uint64(derive_key(seed, 200 + side))
        out = np.empty(runs)

        def work(part: slice, value: Any = value, key: np.uint64 = key, out: Scores = out) -> None:
            release_scores(CODES[noise], key, part.start, value, v0, v1, scale, out[part], np.empty(v0.shape[1]))

        _in_parts(work, runs, workers or os.cpu_count() or 1, lambda done: None)
        sides.append(out)
    return sides[0], sides[1]


def _in_parts(work: Callable[[slice], None], runs: int, workers: int, say: Progress) -> None:
    edges = np.linspace(0, runs, min(runs, 16 * workers) + 1).astype(int)
    parts = [slice(int(a), int(b)) for a, b in pairwise(edges)]
    with ThreadPoolExecutor(workers) as executor:
        for number, _ in enumerate(executor.map(work, parts), start=1):
            say(number / len(parts))


def _real_scores(
    name: str, given: dict[str, Any], frozen: Frozen, positions: NDArray[np.int64], runs: int, say: Progress
) -> tuple[Scores, Scores]:
    """The shipped object, real noise, one fresh bandit per run."""
    users = ["target" if t in positions else f"other {t}" for t in range(len(frozen.xs))]
    private = frozen.bandit.plan.seat >= rounds.REWARD
    published = np.flatnonzero(private & (frozen.scales != rounds.NO_RELEASE))
    xs1, rs1, values1 = frozen.neighbour(positions)
    sides = []
    for side, (xs, rs) in enumerate(((frozen.xs, frozen.rs), (xs1, rs1))):
        out = np.empty(runs)
        for run in range(runs):
            bandit = registry.construct(name, {**given, "seed": None})
            watch = Watch(bandit.source if isinstance(bandit.source, Real) else Real())
            bandit.source = watch
            code, score = bandit.plan.noise, 0.0
            for t, (x, reward) in enumerate(zip(xs, rs, strict=True)):
                bandit.update(x, float(reward), user=users[t])
                if bandit.plan.seat == rounds.NOTHING:
                    score += log_ratio(code, bandit.theta, frozen.values, values1, t, 0.0)
            made = watch.transcript.releases
            if bandit.values_depend_on_releases:
                # What the other stream's clean values would have been, given what was released here.
                other = ((xs1, rs1), (frozen.xs, frozen.rs))[side]
                twin = _told(name, given, watch.transcript, *other, users)
                for mine, theirs in zip(made, twin, strict=True):
                    v0, v1 = (mine, theirs) if side == 0 else (theirs, mine)
                    score += log_ratio(code, mine.noisy, v0.value[None], v1.value[None], 0, mine.scale)
            else:
                for at, release in zip(published.tolist(), made, strict=True):
                    score += log_ratio(code, release.noisy, frozen.values, values1, at, frozen.scales[at])
            out[run] = score
            if run % 64 == 0:
                say((side + run / runs) / 2)
        sides.append(out)
    return sides[0], sides[1]


def _told(name: str, given: dict[str, Any], script: Transcript, xs: Any, rs: Scores, users: list[str]) -> list[Release]:
    """The releases of a bandit that learns this stream and is told the noisy values of another run."""
    bandit = registry.construct(name, {**given, "seed": 0})
    watch = Watch(script=script)
    bandit.source = watch
    for x, reward, user in zip(xs, rs, users, strict=True):
        bandit.update(x, float(reward), user=user)
    return watch.transcript.releases


def _black_box(name: str, given: dict[str, Any], xs: Any, runs: int, say: Progress) -> tuple[Scores, Scores]:
    """Scores for an algorithm of which only `theta` is known: a linear discriminant trained on the first half."""
    low, high = given.get("reward_range", (-1.0, 1.0))
    middle = (low + high) / 2
    sides = []
    for side, first in enumerate((low, high)):
        rows = []
        for run in range(runs):
            bandit = registry.construct(name, {**given, "seed": 2 * run + side})
            thetas = []
            for t, x in enumerate(xs):
                bandit.update(x, first if t == 0 else middle)
                thetas.append(np.array(bandit.theta, dtype=np.float64))
            rows.append(np.concatenate(thetas))
            if run % 64 == 0:
                say((side + run / runs) / 2)
        sides.append(np.array(rows))
    direction = discriminant(*(side[: runs // 2] for side in sides))
    return sides[0] @ direction, sides[1] @ direction


def discriminant(features0: Any, features1: Any) -> NDArray[np.float64]:
    """Fisher's linear discriminant with a little ridge: the trained statistic."""
    centred = np.concatenate([features0 - features0.mean(axis=0), features1 - features1.mean(axis=0)])
    covariance = centred.T @ centred / len(centred)
    ridge = 1e-9 + 1e-6 * np.trace(covariance) / len(covariance)
    difference = features1.mean(axis=0) - features0.mean(axis=0)
    return np.linalg.solve(covariance + ridge * np.eye(len(covariance)), difference)


def _no_claim() -> Claim:
    return Claim("one reward", "none", math.inf, 0.0, None, "none", "none", ("none is stated by this algorithm",))
