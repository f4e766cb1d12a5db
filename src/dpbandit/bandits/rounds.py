"""The verbs of one round, whatever the bandit: a compiled loop calls these, and the plan's type decides what runs.

A family of bandits is a pair of named tuples, its plan (public choices, fixed) and its learner (everything that changes),
and a function for each verb. `serve` ties them to the type of the plan; Numba then picks the family while it compiles, so
the engine's loop and the auditor's are written once and every family runs in them at full speed.

reset    forget everything
begin    what must happen before a reward is looked at (pan-private noise)
prepare  learn from one context and clipped reward; the clean value to release is then in `learner.pending`.
         Returns its noise scale, or NO_RELEASE. The only verb that sees a reward
commit   turn the noisy value into the released parameter
choose   the arm to play, by what was released and what is public
quiet    whether the coming round surely releases no private value. Changes nothing and looks at no reward
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numba.core.types import BaseNamedTuple
from numba.extending import overload
from numpy.typing import NDArray

from dpbandit.bandits.address import Place
from dpbandit.compiled import kernel
from dpbandit.noise import add_simulated

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Where the noise sits.
#   RANDOM    nowhere: arms are drawn by lot                 NOTHING    nowhere: plain LinUCB
#   REWARD    on each reward, before anything uses it        MOMENTS    on sums of x·r
#   OWN       on A_e⁻¹·(sum of x·r of one node)              INCREMENT  on θ̂_e − θ̂_s of one node, as the paper has it
#   GRAM      on sums of x·xᵀ and x·r: contexts are private too
RANDOM, NOTHING, REWARD, MOMENTS, OWN, INCREMENT, GRAM = range(7)

# The scale of a round in which nothing is released.
NO_RELEASE = -1.0

_VERBS: dict[str, dict[str, Callable[..., Any]]] = {
    verb: {} for verb in ("reset", "begin", "prepare", "commit", "choose", "quiet")
}


def serve(plan: type, **verbs: Callable[..., Any]) -> None:
    """Tie a family's functions to the type of its plan: one for each verb."""
    for verb, served in _VERBS.items():
        served[f"{plan.__module__}.{plan.__qualname__}"] = verbs[verb]


def _family(verb: str, plan: Any) -> Callable[..., Any] | None:
    named = plan.kept if isinstance(plan, Place) else plan
    if not isinstance(named, BaseNamedTuple):
        return None
    kind = cast(Any, named).instance_class
    run = _VERBS[verb].get(f"{kind.__module__}.{kind.__qualname__}")
    return run if run is None or named is plan else _called(run)


@lru_cache
def _called(run: Any) -> Callable[..., Any]:
    """The same verb as a call: a place is one number to pass on, and inlining takes Numba most of a minute."""
    called: Callable[..., Any] = kernel(run.py_func)
    return called


def reset(learner: Any, plan: Any) -> None:
    """Forget everything, in place."""
    raise NotImplementedError("compiled code only")


def begin(learner: Any, plan: Any, key: np.uint64) -> None:
    """What must happen before the coming round's reward is looked at."""
    raise NotImplementedError("compiled code only")


def prepare(learner: Any, plan: Any, x: Vector, reward: float, known: bool) -> float:
    """Learn from one clipped reward and return the noise scale of what is now pending, or NO_RELEASE."""
    raise NotImplementedError("compiled code only")


def commit(learner: Any, plan: Any, noisy: Vector) -> None:
    """Turn the noisy value of this round's release into the released parameter."""
    raise NotImplementedError("compiled code only")


def choose(
    learner: Any,
    plan: Any,
    contexts: Matrix,
    shown: NDArray[np.int64],
    alpha: float,
    work: Vector,
    scores: Vector,
    key: np.uint64,
) -> int:
    """The arm to play among the contexts in rows `shown`; all their scores are then in `scores`. `work` is scratch
    (`scoring.new_work`)."""
    raise NotImplementedError("compiled code only")


def quiet(learner: Any, plan: Any, x: Vector) -> bool:
    """Whether learning from x surely releases no private value."""
    raise NotImplementedError("compiled code only")


@overload(reset, inline="always", strict=False)
def _reset(learner: Any, plan: Any) -> Any:
    run = _family("reset", plan)
    return None if run is None else lambda learner, plan: run(learner, plan)


@overload(begin, inline="always", strict=False)
def _begin(learner: Any, plan: Any, key: Any) -> Any:
    run = _family("begin", plan)
    return None if run is None else lambda learner, plan, key: run(learner, plan, key)


@overload(prepare, inline="always", strict=False)
def _prepare(learner: Any, plan: Any, x: Any, reward: Any, known: Any) -> Any:
    run = _family("prepare", plan)
    return None if run is None else lambda learner, plan, x, reward, known: run(learner, plan, x, reward, known)


@overload(commit, inline="always", strict=False)
def _commit(learner: Any, plan: Any, noisy: Any) -> Any:
    run = _family("commit", plan)
    return None if run is None else lambda learner, plan, noisy: run(learner, plan, noisy)


@overload(choose, inline="always", strict=False)
def _choose(learner: Any, plan: Any, contexts: Any, shown: Any, alpha: Any, work: Any, scores: Any, key: Any) -> Any:
    run = _family("choose", plan)
    if run is None:
        return None
    return lambda learner, plan, contexts, shown, alpha, work, scores, key: run(
        learner, plan, contexts, shown, alpha, work, scores, key
    )


@overload(quiet, inline="always", strict=False)
def _quiet(learner: Any, plan: Any, x: Any) -> Any:
    run = _family("quiet", plan)
    return None if run is None else lambda learner, plan, x: run(learner, plan, x)


@kernel(inline="always")
def learn_simulated(
    learner: Any,
    plan: Any,
    x: Vector,
    reward: float,
    known: bool,
    key: np.uint64,
    start_key: np.uint64,
    noisy: Vector,
) -> float:
    """A whole round of learning with seeded noise; what was released is left in `noisy`. Returns its noise scale."""
    begin(learner, plan, start_key)
    scale = prepare(learner, plan, x, reward, known)
    if scale != NO_RELEASE:
        if plan.seat >= REWARD:
            add_simulated(plan.noise, key, learner.clock[0], scale, learner.pending, noisy)
        commit(learner, plan, noisy)
    return scale


@kernel
def prepare_one(learner: Any, plan: Any, x: Vector, reward: float, known: bool) -> float:
    """`prepare`, callable from Python."""
    return prepare(learner, plan, x, reward, known)


@kernel
def commit_one(learner: Any, plan: Any, noisy: Vector) -> None:
    """`commit`, callable from Python."""
    commit(learner, plan, noisy)


@kernel
def learn_one(
    learner: Any,
    plan: Any,
    x: Vector,
    reward: float,
    known: bool,
    key: np.uint64,
    start_key: np.uint64,
    noisy: Vector,
) -> float:
    """`learn_simulated`, callable from Python. It calls the two above instead of compiling them in once more: compiling
    takes longer than all the calls of a test."""
    begin(learner, plan, start_key)
    scale = prepare_one(learner, plan, x, reward, known)
    if scale != NO_RELEASE:
        if plan.seat >= REWARD:
            add_simulated(plan.noise, key, learner.clock[0], scale, learner.pending, noisy)
        commit_one(learner, plan, noisy)
    return scale


@kernel
def choose_one(
    learner: Any,
    plan: Any,
    contexts: Matrix,
    shown: NDArray[np.int64],
    alpha: float,
    work: Vector,
    scores: Vector,
    key: np.uint64,
) -> int:
    """`choose`, callable from Python."""
    return choose(learner, plan, contexts, shown, alpha, work, scores, key)
