"""The state of a bandit at one moment, and the one step that changes it.

Everything that a reward changes is in one `State`: the engine with its sums and clock, the ledger,
and the counts of users. A round with a release works on a private draft of the engine. `come_true`
then replaces the old state with the new one, in one assignment. Before it nothing has happened.
After it everything has, irrevocably, because anybody may have read the released numbers. Readers
take the state once.

Two things change in place, each within one call of the compiled core, which nothing interrupts: a
round without a release, and the number that it puts into the list `told`. A user's pending count is
read from that list, so it is always consistent with the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, TypeVarTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import BudgetError
from dpbandit.logs.record import Log, People

if TYPE_CHECKING:
    from dpbandit.bandit import Bandit
    from dpbandit.engine import Engine
    from dpbandit.privacy.claim import Claim
    from dpbandit.privacy.ledger import Ledger

Given = TypeVarTuple("Given")
Found = TypeVar("Found")
Told = list[Any]

AGAIN = (
    "this bandit was called from within one of its own calls, by a signal handler or a warning's hook: "
    "nothing has changed; call it after the other call has returned"
)


class Batch(NamedTuple):
    """First in `told`: of how many rows it tells, and whether some may be counted only."""

    rows: int
    users: bool


class Counted:
    """A user's pending count: the count before, `each` per learned row (first in `told`), and the
    engine's own count (second in `told`). `logged` is what a log counted of them.
    """

    __slots__ = ("before", "each", "logged", "name", "told")

    def __init__(
        self, name: str, before: Any, each: Any = 1, told: Sequence[int] = (1,), logged: int = 0
    ) -> None:
        self.name, self.before, self.each, self.told = name, before, each, told
        self.logged = logged

    def known_to(self, bandit: Bandit) -> tuple[int, ...]:
        """All that was counted before, for an engine that counts itself."""
        counts = bandit.options.protects.counted_by_engine
        return (self.before + self.logged,) if counts else ()

    @property
    def count(self) -> Any:
        """This user's current count: a number, or text for instruments."""
        count = self.before + self.each * sum(self.told[:1])
        return count + sum(self.told[1:]) if len(self.told) > 1 else count


class State:
    """Everything that changes, at one moment. A change makes a new `State`."""

    __slots__ = (
        "claim",
        "counted",
        "counts",
        "engine",
        "ledger",
        "log",
        "offered",
        "over_cap",
        "people",
        "was_true",
    )

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        claim: Claim,
        counts: dict[str, Any],
        counted: Counted | None = None,
        over_cap: int = 0,
        offered: NDArray[np.float64] | None = None,
        log: Log | None = None,
        people: People | None = None,
    ) -> None:
        self.engine, self.ledger, self.claim = engine, ledger, claim
        self.counts = counts  # what is counted of each user, but for the one in `counted`
        self.counted = counted
        self.over_cap = over_cap
        # With context_noise: what was offered last, so that a save can go on from it.
        self.offered = offered
        self.log = log  # what it was started from, and the log's users
        self.people = People.nobody() if people is None else people
        self.was_true = False  # and is not any more

    def learned(self, engine: Engine, ledger: Ledger, counted: Counted | None = None) -> State:
        """The state after a round; `counted` is the user whose reward it was."""
        return State(
            engine,
            ledger,
            self.claim,
            self.counts,
            counted,
            self.over_cap,
            self.offered,
            self.log,
            self.people,
        )

    def but(self, **changes: Any) -> State:
        """Another state that differs in these."""
        given = {name: getattr(self, name) for name in State.__slots__ if name != "was_true"}
        return State(**{**given, **changes})

    def settled(self) -> State:
        """This state with the last user's count among the others. Writing it twice is harmless."""
        if self.counted is not None and self.counted.count:
            self.counts[self.counted.name] = self.counted.count
        return self

    @property
    def user_counts(self) -> dict[str, Any]:
        """What is counted of each user: a copy."""
        if self.counted is None or not self.counted.count:
            return dict(self.counts)
        return {**self.counts, self.counted.name: self.counted.count}


def come_true(bandit: Bandit, state: State, told: Told, rows: int = 1) -> None:
    """The one step: nothing changes until its last line, and then everything."""
    told[1:] = [rows_learned(bandit, told), (state, rows)]
    bandit.state.was_true = True
    bandit.state = state


def rows_learned(bandit: Bandit, told: Told) -> int:
    """How many rows took effect, despite interrupts and other learners."""
    total = 0
    for entry in told:
        if isinstance(entry, int):  # the core's word
            total += entry
        elif isinstance(entry, list):
            total += sum(entry[:1])
        elif not isinstance(entry, Batch):
            state, rows = entry
            total += rows if state.was_true or bandit.state is state else 0
    return total


def alone(bandit: Bandit, call: Callable[[Unpack[Given]], Found], *given: *Given) -> Found:
    """Call under the bandit's lock. A nested call from the same thread is refused.

    Leaving is tried twice: an interrupt may come just before the first time.

    Raises
    ------
    BudgetError
        If this thread is inside already.
    """
    lock: Any = bandit.lock  # what says whether it is ours is as old as `threading.Condition`
    if lock._is_owned():
        raise BudgetError(AGAIN)
    try:
        try:
            lock.acquire()
            # An interrupted round may have left it on hold.
            bandit.state.engine.go_on()
            return call(*given)
        finally:
            if lock._is_owned():
                lock.release()
    finally:
        if lock._is_owned():
            lock.release()
