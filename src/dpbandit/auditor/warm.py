"""The exact joint cost of a bandit that was started from a log: over the log's release and all online ones together.

Three kinds of neighbours: one logged reward differs, one online reward differs, or all of a user's, logged and online, of which
there are more than the cap. It goes through the log's own reading and the public `update` of the object that ships, with
rewards far outside the range.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.auditor import streams
from dpbandit.auditor.joint_cost import Case, Progress, Verification
from dpbandit.auditor.releases import Transcript, Watch, joint_cost
from dpbandit.bandits import registry, warm
from dpbandit.bandits.linear import LinearBandit
from dpbandit.budget import mu_of
from dpbandit.warmstart.source import Columns, arrow, find_columns, open_log
from dpbandit.warmstart.start import learn_log, peek

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Make = Callable[[], LinearBandit]

LOGGED, ONLINE, BOTH = "a logged reward", "an online reward", "a user, logged and online"


class Stream(NamedTuple):
    """Contexts, raw rewards and users, some logged and the rest online."""

    xs: Matrix
    rewards: Vector
    users: list[str]
    logged: int  # so many of them, from the start


def record(make: Make, stream: Stream, script: Transcript | None = None) -> Transcript:
    """Start from the log, go on online, and write down what was released and what was public beside it."""
    bandit = make()
    watch = Watch(None, script)
    bandit.source = watch
    n = stream.logged
    pa = arrow("pyarrow")
    table = pa.table(
        {
            "x": pa.FixedSizeListArray.from_arrays(
                pa.array(stream.xs[:n].ravel()), stream.xs.shape[1]
            ),
            "reward": stream.rewards[:n],
            "user": stream.users[:n],
        }
    )
    source = open_log(table)
    columns: Columns = find_columns(source, context="x", reward="reward", user="user")
    sample = peek(source, columns, bandit.options.max_norm)
    learn_log(bandit, source, columns, sample=sample, workers=1)
    watch.transcript.public.append(
        json.dumps([bandit._released(), bandit.log.to_dict() if bandit.log else None])
    )
    for x, reward, user in zip(stream.xs[n:], stream.rewards[n:], stream.users[n:], strict=True):
        bandit.update(x, float(reward), user=user)
        watch.transcript.public.append(json.dumps([bandit.rounds, bandit._released()]))
    return watch.transcript


def cost(make: Make, stream: Stream, changed: list[int]) -> tuple[float, str]:
    """What it costs in all to change these rewards from below the range to above it, and why if that is infinite."""
    low, high = make().options.reward_range
    far = 10 * (high - low)
    one = record(make, stream._replace(rewards=np.full(len(stream.xs), low - far)))
    other = np.full(len(stream.xs), low - far)
    other[changed] = high + far
    two = record(make, stream._replace(rewards=other), script=one)
    return joint_cost(one, two)


def neighbours(rows: int, rounds: int, cap: int | None) -> dict[str, tuple[list[int], list[str]]]:
    """By kind: which positions change, and whose all of them are."""
    alone = [f"user {i}" for i in range(rows + rounds)]
    kinds = {LOGGED: ([rows // 2], alone), ONLINE: ([rows], alone)}
    if cap is not None:
        # As many logged as online, and more than the cap in all: the last ones must not be learned from.
        first = range(rows // 2, rows // 2 + (cap + 1) // 2)
        then = range(rows, rows + cap + 1)
        changed = [*first, *then]
        kinds[BOTH] = (
            changed,
            ["target" if i in changed else name for i, name in enumerate(alone)],
        )
    return kinds


def verify_warm_start(
    name: str,
    *,
    epsilon: float = 2.0,
    delta: float = 1e-5,
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
    given = {"dim": dim, "epsilon": epsilon, "delta": delta, "seed": seed, **options}
    given["horizon"] = None if unknown_horizon else horizon
    if options.get("shape", "round") != "round":
        rng = np.random.default_rng(seed)
        given.setdefault(
            "public_contexts",
            rng.normal(size=(100, dim)) * options.get("max_norm", 1.0) / (3 * math.sqrt(dim)),
        )

    def make() -> LinearBandit:
        return warm.check(registry.construct(name, given))

    bandit = make()
    gaussian = bandit.noise == "gaussian"
    requested = mu_of(epsilon=epsilon, delta=delta) if gaussian else epsilon
    result = Verification(name, epsilon, delta, "μ" if gaussian else "ε", requested, bandit.claim)
    cap = None if bandit.options.unit == "reward" else bandit.options.rewards_per_unit
    families = streams.families(dim, rows + horizon, seed, bandit.options.max_norm, bandit.l1_limit)
    for number, (label, xs) in enumerate(families.items()):
        if progress is not None:
            progress(label, number / len(families))
        for kind, (changed, users) in neighbours(rows, horizon, cap).items():
            stream = Stream(bandit.within(xs), np.zeros(len(xs)), users, rows)
            total, _why = cost(make, stream, changed)
            total = math.sqrt(total) if gaussian else total
            result.cases.append(
                Case(f"{kind}; {label}", len(xs), dim, changed[0] + 1, total, total / requested)
            )
    return result
