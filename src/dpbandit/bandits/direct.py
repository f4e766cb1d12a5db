"""Single decisions from Python without the way round: one compiled call that checks, clips, and chooses or learns.

`choose` and `learn` either do all of what `Bandit.select` or `Bandit.update` would do, to the last bit, or change nothing and
say REFUSED; then the caller goes the long way, which raises the named error. A round that releases anything is never done by
them, so they cannot fail half-way and nothing needs a copy to go back to. Such a round is `LinearBandit._learn`'s, which asks the
ledger and can go back; the parts of it that are compiled are here too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpbandit import scoring
from dpbandit.bandits.address import Kept
from dpbandit.bandits.base import NORM_TOLERANCE
from dpbandit.bandits.rounds import NO_RELEASE, choose, commit, commit_one, learn_one, prepare, prepare_one, quiet
from dpbandit.compiled import kernel
from dpbandit.randomness import TIES

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

FLOAT = np.dtype(np.float64)
BYTES = 8  # of a float

REFUSED = -1
# More arms than there is scratch for. Beyond the most, a decision takes so long that the long way adds nothing to it.
NO_ROOM = -2
FIRST_ROOM, MOST_ROOM = 1 << 6, 1 << 17
# Rewards outside their range are counted above this many bits of what `learn` returns.
CLIPPED = 32
# A batch is learned in lots, so that Ctrl-C works.
LOT = 4096

# How many times this process was forked off. (A release looks at the process's number itself.)
_FORKS = np.zeros(1, dtype=np.int64)


def _forked() -> None:
    _FORKS[0] += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

# Norms are summed in another order here than by the long way: what is this close to the limit goes there.
_UNSURE = 1 - 1e-12


class Gate(NamedTuple):
    """What a context and a reward must satisfy, and what is done to a reward."""

    per_norm: float  # 1/max_norm
    square: float  # the most that the scaled norm's square may be
    total: float  # the most that the L1 norm may be; infinity: not looked at
    one_hot: bool
    low: float
    high: float
    horizon: int
    forks: NDArray[np.int64]
    forks_then: int
    ties: np.uint64
    learns: bool  # whether there are rounds without a release


class Desk(NamedTuple):
    """All that a compiled call needs."""

    learner: Any
    plan: Any
    gate: Gate
    noisy: Vector
    context: Vector
    shown: NDArray[np.int64]  # 0, 1, 2, …: the rows of any slate
    work: Vector
    scores: Vector


@kernel
def _allowed(gate: Gate, x: Vector) -> bool:
    """Whether a context is surely allowed. NaN and infinity make a comparison false."""
    square, total = 0.0, 0.0
    for i in range(x.shape[0]):
        scaled = x[i] * gate.per_norm
        square += scaled * scaled
        total += abs(x[i])
    if gate.one_hot:
        ones = 0
        for i in range(x.shape[0]):
            if x[i] == 1.0:
                ones += 1
            elif x[i] != 0.0:
                return False
        if ones != 1:
            return False
    return square <= gate.square and total <= gate.total


@kernel
def choose_at(desk: Any, contexts: Matrix, alpha: float) -> int:
    """The arm to play among the rows, REFUSED or NO_ROOM."""
    arms, d = contexts.shape
    if d != desk.plan.dim or arms == 0:
        return REFUSED
    # Whoever calls says that rows follow each other in memory; here it is looked at.
    row, number = contexts.strides
    if row != d * BYTES or number != BYTES or contexts.ctypes.data % BYTES != 0:
        return REFUSED
    if arms > desk.shown.shape[0]:
        return NO_ROOM
    for j in range(arms):
        if not _allowed(desk.gate, contexts[j]):
            return REFUSED
    shown, scores = desk.shown[:arms], desk.scores[:arms]
    return choose(desk.learner, desk.plan, contexts, shown, alpha, desk.work, scores, desk.gate.ties)


@kernel
def _learn_quietly(desk: Any, reward: float) -> int:
    """Learn from the allowed context in `desk.context`: 1, or 2 with a clipped reward; 0 if that may release something."""
    learner, plan, gate, x = desk.learner, desk.plan, desk.gate, desk.context
    if not gate.learns or not quiet(learner, plan, x):
        return 0
    clipped = 0
    if reward < gate.low:
        reward, clipped = gate.low, 1
    elif reward > gate.high:
        reward, clipped = gate.high, 1
    if prepare(learner, plan, x, reward, True) != NO_RELEASE:
        commit(learner, plan, desk.noisy)  # in the clear: nothing private is released
    return 1 + clipped


@kernel
def learn_one_at(desk: Any, context: Vector, reward: float) -> int:
    """Learn from one context, an array of any strides: what `_learn_quietly` says, or REFUSED."""
    gate, x = desk.gate, desk.context
    d = desk.plan.dim
    if context.shape[0] != d or gate.forks[0] != gate.forks_then or desk.learner.clock[0] >= gate.horizon:
        return REFUSED
    for i in range(d):
        x[i] = context[i]
    if not _allowed(gate, x) or not math.isfinite(reward):
        return REFUSED
    return _learn_quietly(desk, reward)


@kernel
def learn_at(desk: Any, contexts: Vector, rewards: Vector) -> int:
    """Learn from contexts, one after the other in one line, until a round may release something.

    Returns how many were learned, with how many rewards were clipped above the CLIPPED-th bit, or REFUSED. None means that
    all of them are allowed and the first needs a release.
    """
    gate, x = desk.gate, desk.context
    d, count = desk.plan.dim, rewards.shape[0]
    if contexts.shape[0] != d * count or gate.forks[0] != gate.forks_then:
        return REFUSED
    if desk.learner.clock[0] + count > gate.horizon:
        return REFUSED
    for n in range(count):
        if not _allowed(gate, contexts[n * d : (n + 1) * d]) or not math.isfinite(rewards[n]):
            return REFUSED
    clipped = 0
    for n in range(count):
        for i in range(d):
            x[i] = contexts[n * d + i]
        learned = _learn_quietly(desk, rewards[n])
        if learned == 0:
            return n + (clipped << CLIPPED)
        clipped += learned - 1
    return count + (clipped << CLIPPED)


@kernel
def prepare_at(desk: Any, x: Vector, reward: float, known: bool) -> float:
    """The first half of a round with a release; see `rounds`."""
    return prepare_one(desk.learner, desk.plan, x, reward, known)


@kernel
def commit_at(desk: Any) -> None:
    """The second half, when the noisy value is in `desk.noisy`."""
    commit_one(desk.learner, desk.plan, desk.noisy)


@kernel
def simulate_at(desk: Any, x: Vector, reward: float, known: bool, key: np.uint64, start_key: np.uint64) -> float:
    """A whole round with seeded noise."""
    return learn_one(desk.learner, desk.plan, x, reward, known, key, start_key, desk.noisy)


VECTOR, MATRIX = types.Array(types.float64, 1, "C"), types.Array(types.float64, 2, "C")
ANY_VECTOR = types.Array(types.float64, 1, "A", readonly=True, aligned=False)
NUMBER, YES, KEY = types.float64, types.boolean, types.uint64


class Direct:
    """The compiled calls of one bandit. Stale as soon as anything of the bandit but the contents of its arrays changes."""

    def __init__(self, bandit: Any) -> None:
        # Contexts that were announced are looked up, and the user of a single reward is counted, on the long way.
        admits = not bandit._known and os.getpid() == bandit._process
        self.batches, self.alone = admits, admits and bandit.options.unit == "reward"
        self._parts = (
            bandit.learner,
            bandit.plan,
            new_gate(bandit, admits and bandit._has_quiet_rounds()),
            bandit._noisy,
        )
        self.make_room(FIRST_ROOM)

    def make_room(self, room: int) -> None:
        """Scratch for this many arms. It changes no types, so what is compiled stays."""
        learner, plan, gate, noisy = self._parts
        x, work = np.zeros(plan.dim), scoring.new_work(plan.dim)
        self._kept = Kept(Desk(learner, plan, gate, noisy, x, np.arange(room), work, np.zeros(room)))
        self.address = self._kept.address

    # Each is compiled when it is first asked for.

    @cached_property
    def choose(self) -> Callable[..., int]:
        return self._kept.entry(choose_at, MATRIX, NUMBER)

    @cached_property
    def learn_one(self) -> Callable[..., int]:
        return self._kept.entry(learn_one_at, ANY_VECTOR, NUMBER)

    @cached_property
    def learn(self) -> Callable[..., int]:
        return self._kept.entry(learn_at, VECTOR, VECTOR)

    @cached_property
    def prepare(self) -> Callable[..., float]:
        return self._kept.entry(prepare_at, VECTOR, NUMBER, YES)

    @cached_property
    def commit(self) -> Callable[..., None]:
        return self._kept.entry(commit_at)

    @cached_property
    def simulate(self) -> Callable[..., float]:
        return self._kept.entry(simulate_at, VECTOR, NUMBER, YES, KEY, KEY)


def new_gate(bandit: Any, learns: bool) -> Gate:
    """The checks of `Bandit.update` and `LinearBandit.check_contexts`, in numbers."""
    options = bandit.options
    low, high = options.reward_range if bandit._clips else (-math.inf, math.inf)
    limit = math.inf if bandit.l1_limit is None else bandit.l1_limit
    return Gate(
        per_norm=1.0 / options.max_norm,
        square=(1.0 + NORM_TOLERANCE) ** 2 * _UNSURE,
        total=limit * (1.0 + NORM_TOLERANCE) * _UNSURE,
        one_hot=bandit.one_hot,
        low=low,
        high=high,
        horizon=2**62 if options.horizon is None else options.horizon,
        forks=_FORKS,
        forks_then=int(_FORKS[0]),
        ties=np.uint64(bandit.keys[TIES]),
        learns=learns,
    )


# What the compiled calls do by themselves: where a class, a bandit or a test has another one, they are not used.
PASSED_BY = (
    "select",
    "update",
    "_update_one",
    "_clip",
    "_check_horizon",
    "_check_process",
    "_check_users",
    "_choose",
    "_learn",
    "_learn_in_the_clear",
    "_learn_from_source",
    "_learn_simulated",
)


def open_way(bandit: Any, ours: dict[str, Any]) -> Direct | Literal[False]:
    """The compiled calls, or False if anything that they would pass by is not `ours`."""
    kind = type(bandit)
    same = all(getattr(kind, name) is method for name, method in ours.items())
    same &= kind.check_contexts is kind._checks_in_short
    same &= not any(callable(getattr(kind, name, None)) for name in vars(bandit))
    return Direct(bandit) if same and bandit.plan.context_noise == 0 else False
