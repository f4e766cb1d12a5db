"""The exact joint cost of a bandit started from a log: over its release and all online ones.

Kinds of neighbours: one logged reward differs, one online reward differs, or all of a user's, logged
or logged and online, of which there are more than the cap. It goes through the log's own reading and
the public `update` of the object that ships, with rewards far outside the range.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpbandit.algorithms import registry
from dpbandit.auditor import streams
from dpbandit.auditor.frozen import opposed, together
from dpbandit.auditor.verification import Verification, compare_with
from dpbandit.auditor.verify import Progress
from dpbandit.auditor.watch import Transcript, Watch, fixed_slate, joint_cost, shown
from dpbandit.bandit import Bandit
from dpbandit.defaults import DELTA, EPSILON
from dpbandit.logs import enter
from dpbandit.types import Matrix, Vector
from dpbandit.warmstart.source import Columns, arrow, find_columns, open_log
from dpbandit.warmstart.start import learn_log, peek

Make = Callable[[], Bandit]

LOGGED, ONLINE = "a logged reward", "an online reward"
BOTH, WITHIN = "a user, logged and online", "a user, logged"


class Stream(NamedTuple):
    """Contexts, raw rewards and users, some logged and the rest online."""

    xs: Matrix
    rewards: Vector
    users: list[str]
    logged: int  # so many of them, from the start


def record(make: Make, stream: Stream, script: Transcript | None = None) -> Transcript:
    """Start from the log, go on online, and write down all that was released or public."""
    bandit = make()
    watch = Watch(bandit.source, script)
    bandit.source = watch
    slate = fixed_slate(bandit)
    n = stream.logged
    learn(bandit, stream.xs[:n], stream.rewards[:n], stream.users[:n])
    public = watch.transcript.public
    log = json.dumps(bandit.log.to_dict()) if bandit.log else ""
    public.append({**shown(bandit, slate), "the log's record": log})
    for x, reward, user in zip(stream.xs[n:], stream.rewards[n:], stream.users[n:], strict=True):
        bandit.update(x, float(reward), user=user if bandit.counts_users else None)
        public.append(shown(bandit, slate))
    return watch.transcript


def learn(bandit: Bandit, xs: Matrix, rewards: Vector, users: list[str]) -> None:
    """Start a bandit from a log of these rows, through the log's own reading."""
    pa = arrow("pyarrow")
    contexts = pa.FixedSizeListArray.from_arrays(pa.array(xs.ravel()), xs.shape[1])
    source = open_log(pa.table({"x": contexts, "reward": rewards, "user": users}))
    columns: Columns = find_columns(source, context="x", reward="reward", user="user")
    hidden = bandit.contexts_are_private
    sample = xs[:0] if hidden else peek(source, columns, bandit.options.max_norm)
    learn_log(bandit, source, columns, sample=sample, workers=1)


def cost(make: Make, stream: Stream, changed: list[int]) -> tuple[float, str]:
    """What it costs to change these rewards from below the range to above it, and why if all.

    Where contexts are private these are changed too: turned round, to nothing, and not at all.
    """
    bandit = make()
    low, high = bandit.options.reward_range
    far = 10 * (high - low)
    base = np.full(len(stream.xs), low - far)
    other = base.copy()
    other[changed] = high + far
    if not bandit.options.protects.counts_are_public and len(changed) > 1:
        # A person's are as many in either stream, and in others of their rounds.
        base[changed[::2]], other[changed[::2]] = high + far, low - far
    one = record(make, stream._replace(rewards=base))
    worst = (0.0, "")
    for factor in (1.0, -1.0, 0.0) if bandit.contexts_are_private else (1.0,):
        xs = stream.xs.copy()
        xs[changed] *= factor
        two = record(make, stream._replace(xs=xs, rewards=other), script=one)
        worst = max(worst, joint_cost(one, two))
    return worst


def neighbours(rows: int, rounds: int, many: int) -> dict[str, tuple[list[int], list[str]]]:
    """By kind: which positions change, and whose all of them are.

    `many` of one unit's may change; 0: no users are told apart.
    """
    alone = [f"user {i}" for i in range(rows + rounds)]
    kinds = {LOGGED: ([rows // 2], alone), ONLINE: ([rows], alone)}
    if many:
        # As many logged as online, and more than the cap in all: the last must not be learned from.
        first = range(rows // 2, rows // 2 + (many + 1) // 2)
        then = range(rows, rows + many + 1)
        changed = [*first, *then]
        within = list(range(min(many, rows)))
        for kind, those in ((BOTH, changed), (WITHIN, within)):
            named = ["target" if i in those else name for i, name in enumerate(alone)]
            kinds[kind] = (those, named)
    return kinds


def verify_warm_start(
    name: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rows: int = 64,
    horizon: int = 32,
    dim: int = 5,
    seed: int = 0,
    unknown_horizon: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Verification:
    """Like `verify`, for a bandit started from a log of so many rows that then learns online.

    >>> result = verify_warm_start("tree-gauss", epsilon=1.0, delta=1e-6, rows=16, horizon=8, dim=2)
    >>> result.holds, round(result.worst.ratio, 3)
    (True, 1.0)
    """
    asked = {
        "epsilon": EPSILON if epsilon is None else epsilon,
        "delta": DELTA if delta is None else delta,
    }
    given = {"dim": dim, "seed": seed, **asked, **options}
    given["horizon"] = None if unknown_horizon else horizon
    if options.get("shape", "round") != "round":
        rng = np.random.default_rng(seed)
        given.setdefault(
            "public_contexts",
            rng.normal(size=(100, dim)) * options.get("max_norm", 1.0) / (3 * math.sqrt(dim)),
        )

    def make() -> Bandit:
        return enter.check(registry.construct(name, given))

    bandit = make()
    result = compare_with(bandit, epsilon=epsilon, delta=delta)
    many = together(bandit) if bandit.options.protects.needs_user else 0
    limits = (bandit.options.max_norm, bandit.l1_limit)
    families = streams.families(dim, rows + horizon, seed, *limits)
    try:
        for number, (label, xs) in enumerate(families.items()):
            if progress is not None:
                progress(label, number / len(families))
            for kind, (changed, users) in neighbours(rows, horizon, many).items():
                stream = Stream(opposed(bandit, xs), np.zeros(len(xs)), users, rows)
                result.add(f"{kind}; {label}", xs, changed[0] + 1, *cost(make, stream, changed))
    except KeyboardInterrupt:
        if not result.cases:
            raise
        result.complete = False
    return result
