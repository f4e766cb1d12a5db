"""How rewards enter a bandit: batches, users, and rounds with a release.

One caller at a time is inside (`state.alone`). A round takes effect in one step
(`state.come_true`). A failure before it leaves no trace, because nobody has seen the noise.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from dpbandit.codes import DUE, HORIZON, LEARNED, NO_RELEASE
from dpbandit.engine import REWARD_WORDS, Engine, refuse
from dpbandit.errors import (
    DpbanditError,
    NoiseError,
    NotFiniteError,
    OptionError,
    PrivacyWarning,
    ShapeError,
)
from dpbandit.frames import array_of, contexts_in, entries
from dpbandit.logs.record import hash_name
from dpbandit.privacy.grid import to_whole
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.sources import Pending, Real, Simulation, add_whole_noise
from dpbandit.privacy.unit import Taken
from dpbandit.reference.random import START
from dpbandit.release import Charge, PanPrivate
from dpbandit.state import Batch, Counted, Told, alone, come_true, rows_learned
from dpbandit.types import Matrix, Vector

if TYPE_CHECKING:
    from dpbandit.bandit import Bandit


# A batch is learned in lots of at most this many rows, so that Ctrl-C works.
LOT = 4096
OUTSIDE = (
    "a context is not among public_contexts (bit for bit): from now on noise covers the whole ball, "
    "which is more; omit public_contexts if not all contexts are known"
)


def update(bandit: Bandit, contexts: Any, rewards: Any, user: Any, told: Told) -> None:
    """`Bandit.update` for any input: lists, frames, batches, users."""
    xs = contexts_in(contexts, bandit.feature_names, bandit.encoder)
    rs = array_of(rewards, "rewards")
    if xs.ndim == 1 and rs.ndim == 0:
        xs, rs = xs[None, :], rs[None]
    fits = xs.ndim == 2 and rs.ndim == 1 and len(xs) == len(rs)
    if not fits or (len(xs) and xs.shape[1] != bandit.dim):
        hint = (
            ""
            if xs.ndim
            else ". Give the features of the played arm, not its number: contexts[arm]"
        )
        raise ShapeError(
            f"update takes a context of shape ({bandit.dim},) with one reward, or a batch of "
            f"shapes (n, {bandit.dim}) and (n,), not {xs.shape} and {rs.shape}{hint}"
        )
    if len(xs) == 0:
        return
    bandit.check_process()
    told.insert(0, Batch(len(xs), bandit.counts_users))
    if bandit.counts_users:
        # Learn the checked copy: another thread may write into the caller's arrays.
        alone(bandit, learn_of_users, bandit, xs.copy(), rs.copy(), user, told)
    else:
        alone(bandit, learn_rows, bandit, xs, rs, told)


def learn_rows(bandit: Bandit, xs: Matrix, rs: Vector, told: Told) -> None:
    """Learn from rows in order. All of them are admitted before the first is learned."""
    if bandit.backend != "core":
        xs, rs = xs.copy(), rs.copy()
    # The core reads a row once, in the call that admits it and learns it.
    done, code = learn_quietly(bandit, xs, rs, told)
    if code not in (LEARNED, DUE):
        refuse(bandit, code, xs)
    if done == len(xs):
        return
    xs, rs, done = xs[done:].copy(), rs[done:].copy(), 0
    lot = 1
    while done < len(xs):
        if code == DUE:
            learn_with_release(bandit, xs[done], float(rs[done]), told)
            done, lot, code = done + 1, 1, LEARNED
            continue
        # Lots grow while nothing is released: a lot is admitted anew, and most releases come in
        # every round, or hardly ever.
        learned, code = learn_quietly(bandit, xs[done : done + lot], rs[done : done + lot], told)
        if code not in (LEARNED, DUE):
            refuse(bandit, code, xs)
        done, lot = done + learned, min(2 * lot, LOT)


def learn_quietly(bandit: Bandit, xs: Matrix, rs: Vector, told: Told) -> tuple[int, int]:
    """Learn the rows that come before a release: how many, and LEARNED, DUE or a code."""
    state = bandit.state
    first = bandit.design.in_the_clear and state.ledger.releases == 0
    if bandit.backend == "core" and not first:
        if bandit.design.in_the_clear and not bandit.short_way:
            bandit.open_short_way()
        return state.engine.learn_many(xs, rs, told)
    draft = state.engine.draft()
    try:
        learned, code = draft.learn_many(xs, rs)
        if learned:
            ledger = state.ledger
            if first:
                # Without noise the first reward costs everything, and the others nothing more.
                ledger = ledger.after(math.inf, when=1, what="rewards in the clear")
            come_true(bandit, state.learned(draft, ledger), told, learned)
            bandit.open_short_way()
        return learned, code
    finally:
        bandit.state.engine.go_on()


def learn_of_users(bandit: Bandit, xs: Matrix, rs: Vector, user: Any, told: Told) -> None:
    """Learn from rows of users, each up to the cap. Rows beyond it are counted only."""
    bandit.gate.check(xs)
    if not np.isfinite(rs).all():
        raise NotFiniteError(REWARD_WORDS)
    users = names_of(bandit, user, len(xs))
    within = within_caps(bandit, users)
    horizon = bandit.options.horizon
    if horizon is not None and bandit.rounds + sum(within) > horizon:
        refuse(bandit, HORIZON, xs, sum(within))
    unit, width, bits = bandit.options.protects, bandit.options.width, bandit.design.reward_bits
    for x, reward, name, learns in zip(xs, rs.tolist(), users, within, strict=True):
        state = bandit.state.settled()
        # Where rewards decide what is counted, users whom the log cannot tell apart share one count.
        apart = unit.counts_are_public or state.log is None
        key = name if apart else f"{hash_name(name):016x}"
        count = state.counts.get(key, unit.nothing)
        logged = 0 if state.log is None else state.people.count(name)
        points = instrument(bandit, x) if unit.needs_instruments else None
        taken = (
            unit.take(reward, count + logged if logged else count, width, bits, points)
            if learns
            else Taken(reward, 1, False)
        )
        counted = Counted(key, count, taken.counts, logged=logged)
        if taken.learns:
            learn_of_user(bandit, x, taken.reward, counted, told)
        else:
            over = state.over_cap + 1
            come_true(bandit, state.but(counted=counted, over_cap=over), told)


def instrument(bandit: Bandit, x: Vector) -> Vector:
    """The direction of this context in the coming round. It is public: no reward is read."""
    probe = bandit.state.engine.copy()
    probe.prepare(x, bandit.options.reward_range[0])
    return np.array(probe.fields()["instrument"])


def learn_of_user(bandit: Bandit, x: Vector, reward: float, user: Counted, told: Told) -> None:
    """Learn from one row of a user. The count is true when the sums are."""
    state = bandit.state
    if bandit.backend == "core" and not (bandit.design.in_the_clear and not state.ledger.releases):
        one: list[int] = []
        # Nothing changes yet: the core's word in `one` is what counts the user.
        counted = Counted(user.name, user.before, user.each, one, user.logged)
        come_true(bandit, state.learned(state.engine, state.ledger, counted), told, rows=0)
        told.append(one)
        code = state.engine.learn(x, reward, one, *user.known_to(bandit))
        if code == LEARNED:
            return
    else:
        code = state.engine.admit(x, reward)
        code = DUE if code == LEARNED else code
    if code != DUE:
        refuse(bandit, code, x[None, :])
    learn_with_release(bandit, x, reward, told, user)


def learn_with_release(
    bandit: Bandit, x: Vector, reward: float, told: Told, user: Counted | None = None
) -> None:
    """Learn from one row, and its user's count, in a round that may release something."""
    state = bandit.state
    bandit.check_process()
    bandit.release.room(state.engine)
    inside = not bandit.public_rows or x.tobytes() in bandit.public_rows
    if not inside and not state.engine.outside:
        # The caller of `update`.
        warnings.warn(OUTSIDE, PrivacyWarning, stacklevel=6 if user is None else 7)
    draft = state.engine.draft()
    try:
        code = draft.admit(x, reward)
        if code != LEARNED:
            refuse(bandit, code, x[None, :])
        known = () if user is None else user.known_to(bandit)
        ledger = _round(bandit, draft, state.ledger, x, reward, inside, *known)
        if user is not None and known:
            told_by_it = (1, draft.growth)
            user = Counted(user.name, user.before, user.each, told_by_it, user.logged)
        come_true(bandit, state.learned(draft, ledger, user), told)
    finally:
        # Where the draft came true the old engine stays on hold: nobody learns into it any more.
        bandit.state.engine.go_on()


def _round(
    bandit: Bandit,
    draft: Engine,
    ledger: Ledger,
    x: Vector,
    reward: float,
    inside: bool,
    *counted: int,
) -> Ledger:
    """A whole round on the draft, and the ledger after it."""
    if bandit.design.in_the_clear:
        draft.learn(x, reward)
        what = "rewards in the clear"
        return ledger if ledger.releases else ledger.after(math.inf, when=1, what=what)
    if isinstance(bandit.source, Simulation):
        key, start_key = bandit.source.key, bandit.keys[START]
        if draft.simulate(x, reward, inside, key, start_key, *counted) == NO_RELEASE:
            return ledger
        ledger = book(bandit, draft, ledger)[1]
    else:
        begin_nodes(bandit, draft)
        scale = draft.prepare(x, reward, inside, *counted)
        if scale == NO_RELEASE:
            return ledger
        # The ledger is asked before noise is drawn.
        charge, ledger = book(bandit, draft, ledger)
        pending = Pending(np.array(draft.pending()), draft.pending_whole())
        noise = bandit.release.noise_now(draft)
        shift = noise.shift_of(scale, charge.share) if charge.shift is None else charge.shift
        noisy = bandit.source.release(noise, pending, scale=scale, shift=shift, index=draft.rounds)
        # Whether this succeeds does not depend on the noise, so no noise is drawn anew for its value.
        draft.commit(noisy)
    return ledger.sealed(np.asarray(draft.theta()).tobytes())


def begin_nodes(bandit: Bandit, engine: Engine) -> None:
    """Pan-private form: noise into every node that begins with the coming round.

    Not a release: it stays in memory. A negative index keeps it apart from the node's own noise.
    """
    release, noise = bandit.release, bandit.noise
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


def book(bandit: Bandit, engine: Engine, ledger: Ledger) -> tuple[Charge, Ledger]:
    """The cost of this round's release, and the ledger after it, or BudgetError."""
    rounds = engine.rounds
    charge = bandit.release.charge(engine, rounds)
    later = ledger.after(
        charge.share, when=rounds, what=charge.what, group=charge.group, adds=charge.adds
    )
    return charge, later


def say_how_many(bandit: Bandit, error: BaseException, told: Told) -> None:
    """Add a note to the error that says how much was learned."""
    done, batch = rows_learned(bandit, told), Batch(1, False)
    if told and isinstance(told[0], Batch):
        batch = told[0]
    elif not done and not isinstance(error, DpbanditError):
        error.add_note("nothing of this call was learned")
        return
    count = batch.rows
    counted = " (or counted, beyond the cap)" if batch.users else ""
    if count > 1:
        error.add_note(
            f"the first {done} of this batch of {count} were learned{counted}; none of the others "
            "was"
        )
    elif not isinstance(error, DpbanditError):  # those say themselves that nothing has changed
        error.add_note(f"this reward was {'' if done else 'not '}learned{counted if done else ''}")


def names_of(bandit: Bandit, user: Any, count: int) -> list[str]:
    """The names of users, or an error that says what they may be."""
    users = [user] * count if isinstance(user, (str, int, np.integer)) else entries(user)
    if not isinstance(users, (list, tuple, np.ndarray)) or len(users) != count:
        raise OptionError(
            f"the unit of privacy is {bandit.options.unit_in_words}: update needs user=..., one "
            f"for each reward ({count} here)"
        )
    for name in users:
        # 17 and 17.0, or "u" and b"u", would be two users: one person could then exceed the cap.
        if isinstance(name, bool) or not isinstance(name, (str, int, np.integer)):
            kind = type(name).__name__
            raise OptionError(f"update needs user=... as text or whole numbers, not {kind}")
    return [str(name) for name in users]


def within_caps(bandit: Bandit, users: list[str]) -> list[bool]:
    """Which rewards are within their user's cap. Decisions are counted, not clicks: it is public."""
    cap, state = bandit.options.protects.cap, bandit.state.settled()
    if cap is None:
        return [True] * len(users)
    counts: dict[str, int] = {}
    within = []
    for name in users:
        before = state.people.count(name) + state.counts.get(name, 0) + counts.get(name, 0)
        counts[name] = counts.get(name, 0) + 1
        within.append(before < cap)
    return within
