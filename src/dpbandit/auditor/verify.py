"""`verify`: the exact joint cost over all releases, for every position, on ordinary, degenerate and
searched contexts.

Change one reward from one end of its range to the other (or all of a user's rewards; where contexts
are private, the context too). Add up the cost of the shifts of all releases under the noise that
was used (`auditor.frozen`): for Gaussian noise the total is μ² of the whole transcript, for Laplace
noise its pure ε. Also check that no noise value is used twice. Checking each release alone would
pass mechanisms whose releases together are not private.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.algorithms import registry
from dpbandit.auditor import streams
from dpbandit.auditor.frozen import (
    Change,
    Frozen,
    allowed,
    far_outside,
    freeze,
    opposed,
    other_pairs,
    together,
)
from dpbandit.auditor.verification import Verification, compare_with
from dpbandit.auditor.watch import NO_NOISE, OTHER_SCALE, TWICE, joint_cost, record
from dpbandit.bandit import Bandit
from dpbandit.defaults import DELTA, EPSILON, VERIFY_DIM, VERIFY_HORIZON
from dpbandit.errors import OptionError, ShapeError
from dpbandit.options import whole
from dpbandit.privacy.sensitivity import estimate_bounds
from dpbandit.types import Matrix
from dpbandit.worlds import Synthetic

Progress = Callable[[str, float], None]

ALL_POSITIONS_UP_TO = 4096
SIMULATION = "the paper's simulation"
SEARCHED = "searched for"
ROUNDING = "where rounding matters"
SHIPPED = "step by step, as shipped"
# Of a stream at which rounding adds up; its positions are few.
LONG = 4096


# Defaults for the bandit.
# What rounding depends on; where one is given, it is the caller's choice.
ILL_CONDITIONED = ("ridge", "reward_range", "public_contexts")


def make_for(name: str, given: dict[str, Any]) -> Bandit:
    """A bandit whose releases can be inspected, or an error that says what to do instead."""
    bandit = registry.construct(name, given)
    if not isinstance(bandit, Bandit):
        raise OptionError(
            f"verify must see the releases, but {name!r} shows none: use audit, or build it from a "
            "dpbandit.design.Design"
        )
    return bandit


def verify(
    name: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    horizon: int = VERIFY_HORIZON,
    dim: int = VERIFY_DIM,
    seed: int = 0,
    tries: int = 400,
    contexts: Matrix | None = None,
    unknown_horizon: bool = False,
    log_rows: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Verification:
    """Compute the exact joint cost of an algorithm on several streams, and compare it with (ε, δ).

    If ε or δ is given, the cost is compared with them, whatever the algorithm's status. Otherwise
    it is compared with the bandit's own claim. Gaussian noise is compared in μ, Laplace noise in
    pure ε, where δ plays no part. Your own algorithm can be verified if its factory returns a
    `Bandit`.

    Parameters
    ----------
    name : str
        The algorithm.
    epsilon, delta : float, optional
        The setting of the bandit, and the budget to compare with. If neither is given, the bandit
        is made with 1 and 1e-6, and compared with its own claim.
    horizon, dim : int
        Number of rounds, and of features of a context.
    seed : int
        Seed of contexts, rewards and simulated noise.
    tries : int
        The length of the search for bad contexts; 0 for none.
    contexts : array of shape (rounds, dim), optional
        Your own stream of played contexts, instead of ours.
    unknown_horizon : bool
        Make the algorithm without a horizon.
    log_rows : int
        Verify a bandit that starts from a log of this many rows and then learns online.
    workers : int, optional
        Number of threads; default all cores.
    progress : callable, optional
        Called with the current step and the share done.
    **options
        Options of the algorithm, as for `dpb.make`.

    Returns
    -------
    Verification
        One case per stream, the worst of them, and whether the claim holds. After Ctrl-C, the cases
        so far, with `complete` False.

    Raises
    ------
    OptionError
        If an option is wrong, or the algorithm's releases are not visible.
    KeyboardInterrupt
        On Ctrl-C before the first case.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> result = dpb.verify("tree-gauss", epsilon=1.0, delta=1e-6, horizon=32, dim=2, tries=20)
    >>> result.holds, round(result.worst.ratio, 3)
    (True, 1.0)
    """
    horizon, dim = whole("horizon", horizon, least=1), whole("dim", dim, least=1)
    say = progress or (lambda what, part: None)
    if log_rows:
        from dpbandit.auditor.warm import verify_warm_start

        rows = whole("log_rows", log_rows, least=1)
        given: dict[str, Any] = {"dim": dim, "horizon": horizon, "seed": seed, **options}
        given |= {"unknown_horizon": unknown_horizon, "progress": progress}
        given |= {"epsilon": epsilon, "delta": delta}
        return verify_warm_start(name, rows=rows, **given)
    if contexts is not None:
        contexts = np.ascontiguousarray(contexts, dtype=np.float64)
        if contexts.ndim != 2 or len(contexts) == 0:
            raise ShapeError(f"contexts must have shape (rounds, dim), not {contexts.shape}")
        horizon, dim = contexts.shape
    world, algorithm, chosen = Synthetic(dim=dim), registry.find(name), set(options)
    public = np.asarray(world.episode(seed).public_contexts, dtype=np.float64)
    if "smallest_eigenvalue" in algorithm.own_options:
        options.setdefault("smallest_eigenvalue", estimate_bounds(public)[1])
    if options.get("shape", "round") != "round":
        options.setdefault("public_contexts", public * options.get("max_norm", 1.0))

    asked = {
        "epsilon": EPSILON if epsilon is None else epsilon,
        "delta": DELTA if delta is None else delta,
    }

    def make(rounds: int, **more: Any) -> Bandit:
        given = {"dim": dim, "seed": seed, **asked, **options, **more}
        return make_for(name, {**given, "horizon": None if unknown_horizon else rounds})

    bandit = make(horizon)
    result = compare_with(bandit, epsilon=epsilon, delta=delta)
    first = int(getattr(bandit.release, "first", 1))
    if first > horizon:
        raise OptionError(
            f"{name} makes its first release at round {first}: give a horizon of at least {first}, or "
            "there is nothing to verify"
        )
    threads = workers or os.cpu_count() or 1

    def add(label: str, frozen: Frozen, few: bool = False) -> None:
        result.add(label, frozen.xs, *worst_of(frozen, threads, few))

    def cases() -> None:
        if contexts is not None:
            add("as given", freeze(bandit, contexts, seed=seed))
            return
        say(SIMULATION, 0.0)
        known = {}
        if "public_contexts" not in options and not algorithm.registered_by_user:
            known = {"public_contexts": public * bandit.options.max_norm}
        played = _play(make(horizon, **known), world.episode(seed), horizon)
        add(SIMULATION, freeze(make(horizon, **known), played, seed=seed))
        limits = (bandit.options.max_norm, bandit.l1_limit)
        for number, (label, xs) in enumerate(streams.families(dim, horizon, seed, *limits).items()):
            say(label, 0.3 + 0.07 * number)
            add(label, freeze(bandit, opposed(bandit, xs), seed=seed))
        if not algorithm.black_box and not chosen & set(ILL_CONDITIONED):
            say(ROUNDING, 0.72)
            longest = bandit.options.max_norm
            arms = streams.only(dim) * longest
            # The largest allowed inverse, and rewards far from 0 relative to their width.
            ridge = max(1.0000001e-10 * longest * longest, 1.01e-100)
            worst = dict(zip(ILL_CONDITIONED, (ridge, (1e6, 1e6 + 1), arms), strict=True))
            far = make(max(LONG, first), **worst)
            add(ROUNDING, freeze(far, far.within(np.resize(arms, (LONG, dim))), seed=seed), True)
        if tries:
            say(SEARCHED, 0.75)
            rounds = min(horizon, max(48, first + 16))
            probe = make(rounds)
            starts = [
                opposed(probe, xs) for xs in streams.families(dim, rounds, seed, *limits).values()
            ]

            def cost(xs: Matrix) -> float:
                return worst_of(freeze(probe, allowed(probe, xs), seed=seed), threads)[1]

            found = allowed(probe, streams.search(cost, starts, tries=tries, seed=seed))
            add(SEARCHED, freeze(probe, found, seed=seed))
        say(SHIPPED, 0.95)
        length = min(horizon, max(20, first + 5))
        short = streams.families(dim, length, seed, *limits)
        shipped = [
            (*as_shipped(lambda: make(length), opposed(bandit, xs)), xs) for xs in short.values()
        ]
        total, why, xs = max(shipped, key=lambda found: found[0])
        result.add(SHIPPED, xs, 1, total, why)

    try:
        cases()
    except KeyboardInterrupt:
        if not result.cases:
            raise
        result.complete = False
        return result
    say("done", 1.0)
    return result


def worst_of(frozen: Frozen, workers: int, few: bool = False) -> tuple[int, float, str]:
    """The costliest position (from 1), its cost, and the reason if it is infinite.

    `few`: only the first positions and the ends of nodes.
    """
    if frozen.uses_noise_twice:
        return 1, math.inf, TWICE
    positions = positions_of(len(frozen.xs), together(frozen.bandit))
    if few:
        first = positions[:, 0]
        positions = positions[(first < 4) | ((first & (first + 1)) == 0) | (first == first[-1])]
    costs = frozen.costs(positions, workers)
    worst = int(costs.argmax())
    cost, why = float(costs[worst]), ""
    if math.isinf(cost):
        why = NO_NOISE if (frozen.scales == 0).any() else OTHER_SCALE
    return int(positions[worst, 0]) + 1, cost, why


def as_shipped(make: Callable[[], Any], xs: Matrix) -> tuple[float, str]:
    """The worst joint cost through the public `update` of the step-by-step object, and why.

    Raw rewards, clipping and caps included: this checks that the shipped object is the verified
    one, at a few positions of a short stream. Everything public is compared after every round: the
    exported model, the ranking of a fixed slate, propensities, `repr`, `spent`, counters, the
    ledger, errors. Rewards move from below the range to above it, and into it. With users, one user has
    more rewards than the cap, and all of them change. A person's rewards are above the range in
    every second round, and in the others once they change. A person whose contexts are private
    comes in all rounds from some round on; the contexts change in that round only, or in all of
    them.
    """
    bandit = make()
    below, above = far_outside(bandit)
    rewards = np.full(len(xs), below)
    low, high = bandit.options.reward_range
    inside = np.random.default_rng(len(xs)).uniform(low, high, size=len(xs))
    changes: tuple[Change, ...] = (Change(xs, np.full(len(xs), above)), Change(xs, inside))
    if bandit.contexts_are_private:
        rewards, changes = other_pairs(bandit, xs)
    unit, worst = bandit.options.protects, (0.0, "")
    if unit.here_or_there:
        odd = np.arange(len(xs)) % 2 == 1
        rewards = np.where(odd, below, above)
        changes = (Change(xs, np.where(odd, above, below)), Change(xs, inside))
    for first in sorted({0, 1, len(xs) // 2, len(xs) - 1}):
        beyond = 2 * (not unit.counts_are_public) + 2
        last = first + together(bandit) + beyond if unit.needs_user else first + 1
        if unit.needs_instruments:
            last = len(xs)
        own = changes
        if bandit.contexts_are_private and not unit.counts_are_public:
            elsewhere, last = xs.copy(), len(xs)
            elsewhere[first] = changes[0].xs[first]
            own = (*changes, Change(elsewhere, np.where(rewards == below, above, below)))
        changed = list(range(first, min(len(xs), last)))
        users = ["target" if t in changed else f"other {t}" for t in range(len(xs))]
        one = record(make, xs, rewards, users=users)
        for change in own:
            other_xs, other = xs.copy(), rewards.copy()
            other_xs[changed], other[changed] = change.xs[changed], change.rs[changed]
            two = record(make, other_xs, other, users=users, script=one)
            worst = max(worst, joint_cost(one, two))
    return worst


def _play(bandit: Bandit, episode: Any, horizon: int) -> Matrix:
    """The contexts the algorithm itself chooses in the paper's simulation."""
    block = episode.block(horizon)
    played = np.empty((horizon, bandit.dim))
    counted = bandit.options.protects.needs_user
    for t in range(horizon):
        x = allowed(bandit, block.pool[block.shown[t]] * bandit.options.max_norm)
        arm = bandit.select(x)
        played[t] = x[arm]
        user = f"user {t}" if counted else None
        bandit.update(x[arm], float(block.rewards[t, arm]), user=user)
    return played


def positions_of(rounds: int, together: int) -> NDArray[np.int64]:
    """Every position of a short stream; of a long one the first, the ends of nodes, and a spread.

    A unit of m rewards changes m neighbouring ones at once, because they share the most nodes.

    >>> positions_of(100, 7).shape, len(positions_of(100_000, 1)) < 2000
    ((94, 7), True)
    """
    together = min(together, rounds)
    first = np.arange(rounds - together + 1)
    if rounds > ALL_POSITIONS_UP_TO:
        powers = 2 ** np.arange(int(rounds).bit_length())
        spread = np.linspace(0, rounds - together, 512).astype(int)
        first = np.unique(np.concatenate([np.arange(256), powers - 1, powers, spread]))
        first = first[first <= rounds - together]
    return (first[:, None] + np.arange(together)).astype(np.int64)
