"""How rewards enter a bandit: batches, users, and rounds in which something is released.

All of it happens under the bandit's lock. What fails leaves no trace: the clean sums, the ledger
and the counts are as before, because nobody has seen the noise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpbandit.engine import DUE, HORIZON, LEARNED, NO_RELEASE, REWARD_WORDS, raise_for
from dpbandit.errors import (
    BudgetError,
    NoiseError,
    NotFiniteError,
    OptionError,
    PrivacyWarning,
    ShapeError,
)
from dpbandit.frames import array_of, entries
from dpbandit.privacy.grid import to_whole
from dpbandit.privacy.sources import Pending, Real, Simulation, add_whole_noise
from dpbandit.reference.random import START
from dpbandit.release import Charge, PanPrivate

if TYPE_CHECKING:
    from dpbandit.bandit import Bandit

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# A batch is learned in lots of at most so many, so that Ctrl-C works.
LOT = 4096
OUTSIDE = (
    "a context that is not among public_contexts (bit for bit): from now on the noise covers the "
    "whole ball, which is more; leave public_contexts out if not all contexts are known"
)


def update(bandit: Bandit, contexts: Any, rewards: Any, user: Any) -> None:
    """`Bandit.update` for whatever is given: lists, frames, batches, users."""
    xs, rs = array_of(contexts, "contexts"), array_of(rewards, "rewards")
    if xs.ndim == 1 and rs.ndim == 0:
        xs, rs = xs[None, :], rs[None]
    if xs.ndim != 2 or rs.ndim != 1 or len(xs) != len(rs):
        raise ShapeError(
            f"update takes a context of shape ({bandit.dim},) with one reward, or a batch of "
            f"shapes (n, {bandit.dim}) and (n,), not {np.shape(contexts)} and {np.shape(rewards)}"
        )
    if len(xs) == 0:
        return
    bandit.check_process()
    with bandit.lock:
        if bandit.options.protects.cap is None:
            learn_rows(bandit, xs, rs)
        else:
            learn_of_users(bandit, xs, rs, user)


def learn_rows(bandit: Bandit, xs: Matrix, rs: Vector) -> None:
    """Learn from rows in order. All of them are admitted before the first is learned."""
    engine, count, rounds = bandit.engine, len(xs), bandit.rounds
    try:
        undo = charge_in_the_clear(bandit)
        done, code = engine.learn_many(xs, rs)
        if code not in (LEARNED, DUE):
            undo()
            refuse(bandit, code, xs)
        lot = 1
        while done < count:
            if code == DUE:
                learn_with_release(bandit, xs[done], float(rs[done]))
                done, lot, code = done + 1, 1, LEARNED
                continue
            # Lots grow while nothing is released: a lot is admitted anew, and most releases come
            # in every round, or hardly ever.
            learned, code = engine.learn_many(xs[done : done + lot], rs[done : done + lot])
            if code not in (LEARNED, DUE):
                refuse(bandit, code, xs)
            done, lot = done + learned, min(2 * lot, LOT)
    except BaseException as error:
        # What the engine says, not how far this loop came: the interrupt may lie between.
        say_how_many(error, bandit.rounds - rounds, count)
        raise


def learn_of_users(bandit: Bandit, xs: Matrix, rs: Vector, user: Any) -> None:
    """Learn from rows of users, each up to the cap. Rows beyond it are counted only."""
    bandit.gate.check(xs)
    if not np.isfinite(rs).all():
        raise NotFiniteError(REWARD_WORDS)
    users = names_of(bandit, user, len(xs))
    within = within_caps(bandit, users)
    horizon = bandit.options.horizon
    if horizon is not None and bandit.rounds + sum(within) > horizon:
        refuse(bandit, HORIZON, xs, sum(within))
    charge_in_the_clear(bandit)
    for done, name in enumerate(users):
        rounds, counted = bandit.rounds, bandit.user_counts.get(name, 0)
        try:
            # Counted first: whatever interrupts, no reward is learned that is not counted.
            bandit.user_counts[name] = counted + 1
            if within[done]:
                learn_row(bandit, xs[done], float(rs[done]))
            else:
                bandit.over_cap += 1
        except BaseException as error:
            learned = bandit.rounds > rounds
            if not learned:
                bandit.user_counts[name] = counted
                if not counted:
                    del bandit.user_counts[name]
            say_how_many(error, done + learned, len(xs))
            raise


def learn_row(bandit: Bandit, x: Vector, reward: float) -> None:
    """Learn from one row."""
    code = bandit.engine.learn(x, reward)
    if code == DUE:
        learn_with_release(bandit, x, reward)
    elif code != LEARNED:
        refuse(bandit, code, x[None, :])


def learn_with_release(bandit: Bandit, x: Vector, reward: float) -> None:
    """Learn from one admitted row in a round that may release something."""
    engine, release = bandit.engine, bandit.release
    bandit.check_process()
    if bandit.releasing:
        # Going back in the outer round would undo this one, whose release was seen.
        raise BudgetError("update was called again from within a release of the same bandit")
    release.room(engine)
    inside = not bandit.public_rows or x.tobytes() in bandit.public_rows
    if not inside and not engine.outside:
        # The caller of `update`.
        warnings.warn(OUTSIDE, PrivacyWarning, stacklevel=5)
    # Other threads' quiet rounds wait for the lock too: going back would take them along.
    short_way, bandit.short_way = bandit.short_way, False
    booked: list[Callable[[], None]] = []
    before = engine.snapshot()
    try:
        bandit.releasing = True
        if isinstance(bandit.source, Simulation):
            key, start_key = bandit.source.key, bandit.keys[START]
            if engine.simulate(x, reward, inside, key, start_key) != NO_RELEASE:
                book(bandit, booked)
        else:
            _from_source(bandit, x, reward, inside, booked)
        if booked:
            bandit.ledger.seal(np.asarray(engine.theta()).tobytes())
    except BaseException:
        engine.restore(before)
        for undo in booked:
            undo()
        raise
    finally:
        bandit.releasing, bandit.short_way = False, short_way


def _from_source(
    bandit: Bandit, x: Vector, reward: float, inside: bool, booked: list[Callable[[], None]]
) -> None:
    """The same round with noise from any source: the ledger is asked before noise is drawn."""
    engine = bandit.engine
    begin_nodes(bandit)
    scale = engine.prepare(x, reward, inside)
    if scale == NO_RELEASE:
        return
    charge = book(bandit, booked)
    pending = Pending(np.array(engine.pending()), engine.pending_whole())
    shift = bandit.noise.shift_of(scale, charge.share) if charge.shift is None else charge.shift
    noisy = bandit.source.release(
        bandit.noise, pending, scale=scale, shift=shift, index=engine.rounds
    )
    engine.commit(noisy)


def begin_nodes(bandit: Bandit) -> None:
    """Pan-private form: noise into every node that begins with the coming round.

    Not a release: it stays in memory. A negative index keeps it apart from the node's own noise.
    """
    engine, release, noise = bandit.engine, bandit.release, bandit.noise
    starts = engine.starts()
    if not starts:
        return
    if not isinstance(release, PanPrivate):
        raise NoiseError(f"release {release.name!r} has nodes that begin with noise, and no scale")
    t, zeros = engine.rounds + 1, [0] * bandit.dim
    scale = release.scale(t)
    shift = noise.shift_of(scale, release.charge(engine, t).share)
    for level in starts:
        if isinstance(bandit.source, Real):
            begun = add_whole_noise(noise, zeros, scale=scale, shift=shift)
        else:
            pending = Pending(np.zeros(bandit.dim), zeros)
            index = -(t * 64 + level)
            drawn = bandit.source.release(noise, pending, scale=scale, shift=shift, index=index)
            begun = to_whole(drawn).tolist()
        engine.begin(level, begun)


def book(bandit: Bandit, booked: list[Callable[[], None]]) -> Charge:
    """Ask the ledger for what the release of this round costs; how to undo it is then in `booked`."""
    rounds = bandit.engine.rounds
    charge = bandit.release.charge(bandit.engine, rounds)
    booked.append(
        bandit.ledger.charge(
            charge.share, when=rounds, what=charge.what, group=charge.group, adds=charge.adds
        )
    )
    return charge


def charge_in_the_clear(bandit: Bandit) -> Callable[[], None]:
    """Without noise the first reward costs everything, and the others nothing more."""
    if not bandit.design.in_the_clear or bandit.ledger.releases:
        return lambda: None
    undo = bandit.ledger.charge(math.inf, when=1, what="rewards in the clear")
    bandit.open_short_way()

    def take_back() -> None:
        undo()
        bandit.open_short_way()

    return take_back


def refuse(bandit: Bandit, code: int, xs: Matrix, count: int | None = None) -> NoReturn:
    """The named error for a code of the engine."""
    raise_for(
        code,
        gate=bandit.gate,
        options=bandit.options,
        contexts=xs,
        rounds=bandit.rounds,
        count=len(xs) if count is None else count,
    )


def say_how_many(error: BaseException, done: int, count: int) -> None:
    """How much of a batch was learned, in a note on the error."""
    if count > 1:
        error.add_note(
            f"the first {done} of this batch of {count} were learned; none of the others was"
        )


def names_of(bandit: Bandit, user: Any, count: int) -> list[str]:
    """The names of users, or an error that says what they may be."""
    users = [user] * count if isinstance(user, (str, int, np.integer)) else entries(user)
    if not isinstance(users, (list, tuple, np.ndarray)) or len(users) != count:
        raise OptionError(
            f"the unit of privacy is {bandit.options.unit_in_words}: update needs user=..., one "
            f"for each of {count}"
        )
    for name in users:
        # 17 and 17.0, or "u" and b"u", would be two users: one person could then exceed the cap.
        if isinstance(name, bool) or not isinstance(name, (str, int, np.integer)):
            kind = type(name).__name__
            raise OptionError(f"update needs user=... as text or whole numbers, not {kind}")
    return [str(name) for name in users]


def within_caps(bandit: Bandit, users: list[str]) -> list[bool]:
    """Which rewards are within their user's cap. Decisions are counted, not clicks: it is public."""
    cap = bandit.options.rewards_per_unit
    counts: dict[str, int] = {}
    within = []
    for name in users:
        before = bandit.people.count(name) + bandit.user_counts.get(name, 0) + counts.get(name, 0)
        counts[name] = counts.get(name, 0) + 1
        within.append(before < cap)
    return within
