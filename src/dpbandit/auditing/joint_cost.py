"""`verify`: the exact joint cost over all releases, for every position, on ordinary, degenerate and searched contexts.

Run the algorithm on a stream; freeze the transcript; change one reward from one end of its range to the other (or, for a
user, all of that user's; where contexts are private, the context with it, to the furthest one found); recompute every clean value and add up what the shifts cost under the noise that was used.
Given that the noises of different releases are independent (that none is used twice is checked), this is an identity, not
an estimate: for Gaussian noise the total is μ² of the whole transcript, for Laplace noise its pure ε. Checking each release alone would pass mechanisms whose releases together are not private.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.auditing import streams
from dpbandit.auditing.kernels import furthest, position_costs, trace
from dpbandit.auditing.releases import joint_cost, record
from dpbandit.bandits import registry, rounds
from dpbandit.bandits.linear import LinearBandit, is_compiled
from dpbandit.bandits.options import whole
from dpbandit.budget import Claim, epsilon_of, mu_of
from dpbandit.errors import OptionError, ShapeError
from dpbandit.noise import Simulation
from dpbandit.randomness import START
from dpbandit.sensitivity import estimate_bounds
from dpbandit.worlds import Synthetic

Matrix = NDArray[np.float64]
Progress = Callable[[str, float], None]

# Relative rounding allowed before a cost counts as too high: scales carry a margin of 2e-9 for the same rounding.
ROUNDING = 1e-9
ALL_POSITIONS_UP_TO = 4096
# Noises, in units of their scale, that agree to this many digits are the same one. Among 4,096 independent Laplace numbers
# two agree by chance with probability 0.004.
TWICE_DIGITS = 9
SIMULATION = "the paper's simulation"
SEARCHED = "searched for"
SHIPPED = "step by step, as shipped"


@dataclass
class Frozen:
    """A stream of played contexts with the transcript of one run on it."""

    bandit: LinearBandit
    xs: Matrix
    rs: NDArray[np.float64]
    changed: NDArray[np.float64]
    changed_xs: Matrix  # xs themselves where contexts are public
    known: NDArray[np.bool_]
    noisy: Matrix
    values: Matrix
    scales: NDArray[np.float64]
    aside: tuple[Matrix, NDArray[np.float64]] | None = (
        None  # other contexts and rewards to change to, where contexts are private
    )

    def costs(self, positions: NDArray[np.int64], workers: int) -> NDArray[np.float64]:
        """The joint cost of changing the rewards (and contexts, where private) at each row of positions."""
        if self.aside is None:
            return self._costs(positions, workers)
        other = replace(self, changed_xs=self.aside[0], changed=self.aside[1], aside=None)
        return np.maximum(self._costs(positions, workers), other.costs(positions, workers))

    def _costs(self, positions: NDArray[np.int64], workers: int) -> NDArray[np.float64]:
        out = np.empty(len(positions))
        plan = self.bandit.plan

        def work(part: slice) -> None:
            learner = self.bandit.new_learner()
            position_costs(
                learner,
                plan,
                self.xs,
                self.rs,
                self.changed,
                self.changed_xs,
                self.known,
                np.uint64(self.bandit.keys[START]),
                self.noisy,
                self.values,
                self.scales,
                positions[part],
                out[part],
                np.zeros_like(self.values),
                np.zeros_like(self.scales),
                self.rs.copy(),
                self.xs.copy(),
            )

        edges = np.linspace(0, len(positions), 4 * workers + 1).astype(int)
        parts = [slice(a, b) for a, b in pairwise(edges) if a < b]
        if workers == 1 or len(parts) == 1:
            for part in parts:
                work(part)
        else:
            with ThreadPoolExecutor(workers) as executor:
                list(executor.map(work, parts))
        return out

    def neighbour(self, positions: NDArray[np.int64]) -> tuple[Matrix, NDArray[np.float64], Matrix]:
        """The contexts, rewards and clean values of the neighbouring stream that differs at these positions."""
        rs, xs = self.rs.copy(), self.xs.copy()
        rs[positions], xs[positions] = self.changed[positions], self.changed_xs[positions]
        other, scales = np.zeros_like(self.values), np.zeros_like(self.scales)
        learner = self.bandit.new_learner()
        start_key = np.uint64(self.bandit.keys[START])
        trace(learner, self.bandit.plan, xs, rs, self.known, np.uint64(0), start_key, True, self.noisy, other, scales)
        return xs, rs, other


def allowed(bandit: LinearBandit, xs: Matrix) -> Matrix:
    """The contexts, shortened and moved to where the bandit takes them."""
    return bandit.within(streams.within(xs, bandit.options.max_norm, bandit.l1_limit))


def freeze(bandit: LinearBandit, xs: Matrix, *, seed: int = 0) -> Frozen:
    """Run the bandit's learner over played contexts, with rewards far outside the range on either side.

    Rewards go through the bandit's own clipping, so a mechanism that forgets to clip is seen to.
    """
    xs = bandit.check_contexts(xs)
    rng = np.random.default_rng([seed, 17])
    low, high = bandit.options.reward_range
    far = 10 * (high - low)
    # A user's rewards all move the same way, which is worst when their contexts agree.
    down = 0.5 if bandit.options.rewards_per_unit == 1 else 1.0
    raw = np.where(rng.random(len(xs)) < down, low - far, high + far)
    other = np.where(raw < low, high + far, low - far)
    rs = np.array([bandit._clip(float(r)) for r in raw])
    changed = np.array([bandit._clip(float(r)) for r in other])
    known = np.array([not bandit._known or x.tobytes() in bandit._known for x in xs], dtype=np.bool_)
    plan = bandit.plan
    learner = bandit.new_learner()
    width = len(learner.pending)
    xs = np.ascontiguousarray(xs)
    changed_xs, aside = xs, None
    if plan.seat == rounds.GRAM:
        rs = _costlier_end(bandit, xs)
        changed_xs, changed, _ = replacements(bandit, xs, rs)
        aside = replacements(bandit, xs, rs, aside=True)[:2]
    frozen = Frozen(
        bandit,
        xs,
        rs,
        changed,
        changed_xs,
        known,
        np.zeros((len(xs), width)),
        np.zeros((len(xs), width)),
        np.zeros(len(xs)),
        aside,
    )
    assert isinstance(bandit.source, Simulation)
    key, start_key = np.uint64(bandit.source.key), np.uint64(bandit.keys[START])
    trace(learner, plan, frozen.xs, rs, known, key, start_key, False, frozen.noisy, frozen.values, frozen.scales)
    return frozen


def _costlier_end(bandit: LinearBandit, xs: Matrix) -> NDArray[np.float64]:
    """All rewards at that end of the range from which a pair can move further."""
    low, high = bandit.options.reward_range
    ends = [np.full(len(xs), bandit._clip(float(raw))) for raw in (low - (high - low), high + (high - low))]
    return max(ends, key=lambda rs: replacements(bandit, xs, rs)[2])


def replacements(
    bandit: LinearBandit, xs: Matrix, rs: NDArray[np.float64], *, aside: bool = False
) -> tuple[Matrix, NDArray[np.float64], float]:
    """For each context and reward another pair of both, as far away as any that was tried: turned, reversed, shortened, left out.

    Rewards are tried at both ends of the range. Which pair is furthest is read off the mechanism's own first release; how much
    they cost there in all comes third. With `aside` only contexts whose xxᵀ is another one: it is the same for x and −x.
    """
    plan, (low, high) = bandit.plan, bandit.options.reward_range
    ends = [bandit._clip(float(low - high)), bandit._clip(float(2 * high - low))]
    contexts = streams.turned(xs, bandit.options.max_norm)
    if aside:
        contexts = contexts[:, 1:-3]  # neither −x and x at full length, nor what was not turned
    count = contexts.shape[1]
    other_xs = np.ascontiguousarray(np.concatenate([contexts, contexts], axis=1))
    other_rs = np.ascontiguousarray(np.tile(np.repeat(ends, count), (len(xs), 1)))
    best, costs = np.zeros(len(xs), dtype=np.int64), np.zeros(len(xs))
    learner = bandit.new_learner()
    furthest(learner, plan, xs, rs, other_xs, other_rs, np.empty_like(learner.pending), best, costs)
    rows = np.arange(len(xs))
    found = np.ascontiguousarray(other_xs[rows, best]), np.ascontiguousarray(other_rs[rows, best])
    return *found, float(costs.sum())


def uses_noise_twice(frozen: Frozen) -> bool:
    """Whether two releases carry the same noise: their difference would then be clean, whatever the scales."""
    made = frozen.scales != rounds.NO_RELEASE
    if frozen.bandit.plan.seat < rounds.REWARD or not (frozen.scales[made] > 0).all():
        return False
    noise = np.round((frozen.noisy[made] - frozen.values[made]) / frozen.scales[made, None], TWICE_DIGITS)
    return len(np.unique(np.abs(noise), axis=0)) < len(noise)


def as_shipped(make: Callable[[], Any], xs: Matrix) -> float:
    """The worst joint cost through the public `update` of the step-by-step object: raw rewards, clipping, caps and all.

    A few positions on a short stream: it is there to see that what ships is what is verified. With users, one user has more
    rewards than the cap, and all of them change.
    """
    bandit = make()
    low, high = bandit.options.reward_range
    far = 10 * (high - low)
    cap = bandit.options.rewards_per_unit
    worst = 0.0
    for first in {0, 1, len(xs) // 2, len(xs) - 1}:
        changed = [first] if bandit.options.unit == "reward" else list(range(first, min(len(xs), first + cap + 2)))
        users = ["target" if t in changed else f"other {t}" for t in range(len(xs))]
        rewards = np.full(len(xs), low - far)
        neighbours = [(xs, np.full(len(xs), high + far))]
        if bandit.plan.seat == rounds.GRAM:
            rs = _costlier_end(bandit, xs)
            rewards = np.where(rs > low, high + far, low - far)
            tried = [replacements(bandit, xs, rs, aside=aside) for aside in (False, True)]
            neighbours = [(found, np.where(ends > low, high + far, low - far)) for found, ends, _ in tried]
        one = record(make, xs, rewards, users=users)
        for found, raw in neighbours:
            other_xs, other = xs.copy(), rewards.copy()
            other_xs[changed], other[changed] = found[changed], raw[changed]
            two = record(make, other_xs, other, users=users, script=one)
            worst = max(worst, joint_cost(one, two)[0])
    return worst


@dataclass(frozen=True)
class Case:
    """The worst reward (or user) of one stream."""

    contexts: str
    rounds: int
    dim: int
    position: int
    cost: float  # μ or ε of the whole transcript
    ratio: float  # cost / what was asked for

    def __str__(self) -> str:
        return f"{self.contexts:<32} {self.ratio:>9.4g} × the request, worst at round {self.position:,}"


@dataclass
class Verification:
    """What `verify` found."""

    name: str
    epsilon: float
    delta: float
    currency: str
    requested: float
    claim: Claim
    cases: list[Case] = field(default_factory=list)

    @property
    def worst(self) -> Case:
        """The costliest case."""
        return max(self.cases, key=lambda case: case.ratio)

    @property
    def holds(self) -> bool:
        """Whether no case costs more than was asked for."""
        return self.worst.ratio <= 1 + ROUNDING

    @property
    def true_epsilon(self) -> float:
        """The ε that the worst case really has, at the requested δ for Gaussian noise and at δ = 0 otherwise."""
        if self.currency == "μ" and math.isfinite(self.worst.cost):
            return epsilon_of(mu=self.worst.cost, delta=self.delta)
        return self.worst.cost

    def __str__(self) -> str:
        verdict = "HOLDS" if self.holds else "DOES NOT HOLD"
        setting = f"ε = {self.epsilon:g}" + (f", δ = {self.delta:g}" if self.currency == "μ" else "")
        lines = [
            f"{self.name}: {setting} for {self.claim.unit} {verdict} on these streams [status: {self.claim.status}]",
            f"exact joint cost over all releases, in {self.currency} (requested: {self.requested:.6g})",
            *(f"  {case}" for case in self.cases),
            f"worst case: {self.currency} = {self.worst.cost:.6g}, true ε = {self.true_epsilon:.4g}",
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "holds": self.holds,
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


def verify(
    name: str,
    *,
    epsilon: float = 2.0,
    delta: float = 1e-5,
    horizon: int = 512,
    dim: int = 5,
    seed: int = 0,
    tries: int = 200,
    contexts: Matrix | None = None,
    unknown_horizon: bool = False,
    log_rows: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Verification:
    """Compute the exact joint cost of an algorithm on several streams and compare it with (ε, δ).

    The comparison is with what was asked for, whatever the algorithm's status says. `contexts` of shape (T, d) replaces the
    streams; `tries` is the length of the search for bad contexts (0 for none). Gaussian noise is compared in μ, Laplace
    noise in pure ε, where δ plays no part. `log_rows` verifies a bandit that was started from a log of so many rows
    (`dpb.warm_start`) and then learns online.

    >>> import dpbandit as dpb
    >>> result = dpb.verify("tree-gauss", epsilon=1.0, delta=1e-6, horizon=32, dim=2, tries=20)
    >>> result.holds, round(result.worst.ratio, 3)
    (True, 1.0)
    """
    horizon, dim = whole("horizon", horizon, least=1), whole("dim", dim, least=1)
    workers = workers or os.cpu_count() or 1
    say = progress or (lambda what, part: None)
    if log_rows:
        from dpbandit.auditing.warm import verify_warm_start

        rows = whole("log_rows", log_rows, least=1)
        given = {"epsilon": epsilon, "delta": delta, "horizon": horizon, "dim": dim, "seed": seed, **options}
        return verify_warm_start(name, rows=rows, unknown_horizon=unknown_horizon, progress=progress, **given)
    if contexts is not None:
        contexts = np.ascontiguousarray(contexts, dtype=np.float64)
        if contexts.ndim != 2 or len(contexts) == 0:
            raise ShapeError(f"contexts must have shape (rounds, dim), not {contexts.shape}")
        horizon, dim = contexts.shape
    episode = Synthetic(dim=dim).episode(seed)
    own = registry.find(name).own_options
    if "smallest_eigenvalue" in own and "smallest_eigenvalue" not in options:
        options["smallest_eigenvalue"] = estimate_bounds(episode.public_contexts)[1]
    if options.get("shape", "round") != "round":
        options.setdefault("public_contexts", episode.public_contexts * options.get("max_norm", 1.0))

    def make(rounds: int, **more: Any) -> LinearBandit:
        given = {"dim": dim, "epsilon": epsilon, "delta": delta, "seed": seed, **options, **more}
        given["horizon"] = None if unknown_horizon else rounds
        bandit = registry.construct(name, given)
        if not is_compiled(bandit):
            raise OptionError(f"verify knows the releases of built-in algorithms only; {name!r} is not one: use audit")
        return bandit

    bandit = make(horizon)
    if bandit.noise == "wishart":
        raise OptionError(
            "the cost of Wishart noise is not a sum over releases, so that verify cannot compute it: use audit, whose attack "
            "knows the exact likelihood ratio"
        )
    first = int(getattr(bandit.plan, "first", 1))
    if first > horizon:
        raise OptionError(
            f"{name} makes its first release at round {first}: give a horizon of at least that, or there is nothing to verify"
        )
    gaussian = bandit.plan.seat >= rounds.REWARD and bandit.noise == "gaussian"
    requested = mu_of(epsilon=epsilon, delta=delta) if gaussian else epsilon
    result = Verification(name, epsilon, delta, "μ" if gaussian else "ε", requested, bandit.claim)

    def measure(frozen: Frozen) -> tuple[int, float]:
        if uses_noise_twice(frozen):
            return 1, math.inf
        positions = _positions(len(frozen.xs), bandit.options.rewards_per_unit)
        costs = frozen.costs(positions, workers)
        worst = int(costs.argmax())
        cost = float(costs[worst])
        return int(positions[worst, 0]) + 1, math.sqrt(cost) if gaussian else cost

    def case(label: str, frozen: Frozen) -> Case:
        position, cost = measure(frozen)
        return Case(label, len(frozen.xs), dim, position, cost, cost / requested)

    if contexts is not None:
        result.cases.append(case("as given", freeze(bandit, contexts, seed=seed)))
        return result
    say(SIMULATION, 0.0)
    known = (
        {} if "public_contexts" in options else {"public_contexts": episode.public_contexts * bandit.options.max_norm}
    )
    played = _play(make(horizon, **known), Synthetic(dim=dim).episode(seed), horizon)
    frozen = freeze(make(horizon, **known), played, seed=seed)
    result.cases.append(case(SIMULATION, frozen))
    limits = (bandit.options.max_norm, bandit.l1_limit)
    named = streams.families(dim, horizon, seed, *limits)
    for number, (label, xs) in enumerate(named.items()):
        say(label, 0.3 + 0.1 * number)
        result.cases.append(case(label, freeze(make(horizon), bandit.within(xs), seed=seed)))
    if tries:
        say(SEARCHED, 0.8)
        short = min(horizon, max(48, first + 16))
        probe = make(short)
        starts = list(streams.families(dim, short, seed, *limits).values())

        def cost(xs: Matrix) -> float:
            return measure(freeze(probe, allowed(probe, xs), seed=seed))[1]

        found = allowed(probe, streams.search(cost, starts, tries=tries, seed=seed))
        result.cases.append(case(SEARCHED, freeze(probe, found, seed=seed)))
    say(SHIPPED, 0.95)
    length = min(horizon, max(20, first + 5))
    short_stream = bandit.within(streams.families(dim, length, seed, *limits)["random directions"])
    shipped = as_shipped(lambda: make(len(short_stream)), short_stream)
    shipped = math.sqrt(shipped) if gaussian else shipped
    result.cases.append(Case(SHIPPED, len(short_stream), dim, 1, shipped, shipped / requested))
    say("done", 1.0)
    return result


def _play(bandit: LinearBandit, episode: Any, horizon: int) -> Matrix:
    """The contexts the algorithm itself chooses in the paper's simulation."""
    block = episode.block(horizon)
    played = np.empty((horizon, bandit.dim))
    for t in range(horizon):
        x = allowed(bandit, block.pool[block.shown[t]] * bandit.options.max_norm)
        arm = bandit.select(x)
        played[t] = x[arm]
        user = None if bandit.options.unit == "reward" else f"user {t}"
        bandit.update(x[arm], float(block.rewards[t, arm]), user=user)
    return played


def _positions(rounds: int, together: int) -> NDArray[np.int64]:
    """Every position for short streams; for long ones the first, the ends of nodes, and evenly spread ones.

    A unit of m rewards changes m at once: neighbours, because neighbouring rewards share the most nodes.
    """
    together = min(together, rounds)
    if rounds <= ALL_POSITIONS_UP_TO:
        first = np.arange(rounds - together + 1)
    else:
        powers = 2 ** np.arange(int(rounds).bit_length())
        spread = np.linspace(0, rounds - together, 512).astype(int)
        first = np.unique(np.concatenate([np.arange(256), powers - 1, powers, spread]))
        first = first[first <= rounds - together]
    return (first[:, None] + np.arange(together)).astype(np.int64)
