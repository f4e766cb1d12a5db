"""Who is protected: one reward, one user with a bounded number of rewards, or one person.

A user's m rewards are a group: together they move sums m times as far as one reward, so each gets
1/m of the unit's budget. A user's rewards in contexts of different directions do not add up: a
spread user is learned from as long as their rewards together move sums no further than m in one
context would.

A person may have any number of rewards, of which a total of at most C is learned. So two streams of
one person differ by at most 2C, however often they come. Where contexts are private, a person's
absolute residuals add up to at most C, and one visit shows where their contexts lie
(docs/privacy.md).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpbandit.errors import OptionError
from dpbandit.types import Matrix, Vector

MOST_SPREAD = 1000
# A person's rewards are rounded down to multiples of width·2⁻²⁰. So few of them can differ that
# the rounding of each can be paid for, and the count is exact.
REWARD_BITS = 20
MOST_WIDTHS = 10**6  # a person's cap, in widths of the range
FITS = 1e-9  # eigenvalues are floats; `sensitivity.on_grid` pays for twice that
MOST_WIDTHS_WITH_CONTEXTS = 1000  # the same where the cap itself has 2²⁰ steps


class Taken(NamedTuple):
    """The learned part of a reward, and the growth of its user's count."""

    reward: float
    counts: Any  # a number, or of a spread user the instrument in text
    learns: bool = True


@dataclass(frozen=True)
class Unit:
    """Whom a claim speaks of."""

    words: str  # as a claim says it
    words_with_contexts: str  # the same where contexts are protected too
    option: Any  # what `dpb.make(unit=…)` takes, and files hold
    cap: int | None = None  # how many rewards of one user are learned; None: any number

    flags: list[str] = field(default_factory=list)  # on the command line

    # Whether `update` must be told whose reward it is; and whether what is counted of users is
    # decided by decisions, which are public, or by rewards.
    needs_user = False
    counts_are_public = True
    # Whether a unit's rewards may be learned from here in one stream and there in the other: two
    # streams are furthest apart then.
    here_or_there = False
    # Whether what is learned depends on where contexts point, which only some algorithms say.
    needs_instruments = False
    # What is counted of somebody who never came; counts add up.
    nothing: ClassVar[Any] = 0
    # Whether engines count, because rewards alone do not decide what is counted.
    counted_by_engine = False
    # Into how many small moves, each with a rounding of its own, one reward's move can be divided.
    items_per_move = 1

    def moves(self, width: float) -> float:
        """How far all of a unit's rewards can move a sum, in units of one reward."""
        return 1

    def together(self, width: float) -> int:
        """How many rewards of one unit can move from end to end, if rows have no names."""
        return int(self.moves(width))

    def with_contexts(self) -> Unit:
        """The same where contexts are private too."""
        return self

    def check(self, reward_range: tuple[float, float]) -> None:
        """An error for a range of rewards that this unit cannot have."""

    def take(
        self, reward: float, before: Any, width: float, bits: int, instrument: Vector | None = None
    ) -> Taken:
        """The learned part of a reward within the cap, given the count so far."""
        return Taken(reward, 1)

    def number(self, counted: Any, instruments: int) -> int:
        """A user's count as a number; for instruments, their number."""
        return int(counted)

    def full(self, width: float, bits: int) -> int:
        """The count of a user from whom nothing more is learned."""
        raise OptionError(f"unit={self.option!r} has no number that stands for a full count")


class User(Unit):
    """A user, from whom at most `cap` rewards are learned."""

    needs_user = True

    def moves(self, width: float) -> float:
        return self.cap or 1

    def full(self, width: float, bits: int) -> int:
        return self.cap or 1


class Spread(Unit):
    """A user, however often they come: `option` is ('spread', m).

    With U the learned instruments of a user, one in a row and none longer than 1, their N rewards move
    all releases together no further than √(N·λ_max(UUᵀ)) moves of one reward (docs/privacy.md). What
    is counted is U itself, in hexadecimal. Contexts decide it, so it is public.
    """

    needs_user = True
    needs_instruments = True
    nothing = ""

    def moves(self, width: float) -> float:
        return float(self.option[1])

    @property
    def items_per_move(self) -> int:  # type: ignore[override] # of one reward it is 1
        """N·λ_max ≤ m² and λ_max ≥ 1, so that N ≤ m²: m for each of the m moves."""
        return math.ceil(float(self.option[1]))

    def take(
        self, reward: float, before: Any, width: float, bits: int, instrument: Vector | None = None
    ) -> Taken:
        if instrument is None:
            raise OptionError(f"unit={self.option!r} must be told where contexts point")
        learned = np.vstack([rows_of(before, len(instrument)), instrument])
        gram = learned @ learned.T if len(learned) < len(instrument) else learned.T @ learned
        square = len(learned) * float(np.linalg.eigvalsh(gram)[-1])
        fits = square <= float(self.option[1]) ** 2 * (1 + FITS)
        return Taken(reward, instrument.tobytes().hex() if fits else "", fits)

    def number(self, counted: Any, instruments: int) -> int:
        return len(rows_of(counted, instruments))


def rows_of(counted: str, numbers: int) -> Matrix:
    """Instruments of so many numbers, from what is counted.

    >>> rows_of("", 3).shape, rows_of(np.ones(6).tobytes().hex(), 3).tolist()
    ((0, 3), [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    """
    return np.frombuffer(bytes.fromhex(counted)).reshape(-1, numbers)


class Person(Unit):
    """A person, of whose rewards a total of at most C is learned: `option` is ('person', C)."""

    needs_user = True
    counts_are_public = False
    here_or_there = True
    items_per_move = 1 << REWARD_BITS

    def together(self, width: float) -> int:
        return 2 * int(self.moves(width) / 2)

    def with_contexts(self) -> Unit:
        words = self.words_with_contexts
        return Visitor(words, words, self.option, flags=self.flags)

    def moves(self, width: float) -> float:
        """Up to C may be here in one stream, and there in the other."""
        return 2 * float(self.option[1]) / width

    def check(self, reward_range: tuple[float, float]) -> None:
        most, (low, high) = float(self.option[1]), reward_range
        if low != 0:
            raise OptionError(
                f"unit=('person', {most:g}) adds up rewards from 0, so reward_range must start at 0, "
                f"not at {low:g}: subtract {low:g} from the rewards, or use unit=('user', m)"
            )
        if not high <= most <= MOST_WIDTHS * high:
            raise OptionError(
                f"unit=('person', {most:g}) must allow for at least one reward, and for no more "
                f"than {MOST_WIDTHS:,}; the largest is {high:g}: give reward_range=(0, {most:g}), "
                "or another cap"
            )

    def take(
        self, reward: float, before: Any, width: float, bits: int, instrument: Vector | None = None
    ) -> Taken:
        """The reward, in steps of width·2⁻ᵇⁱᵗˢ, or the part that the cap leaves.

        >>> person(1.5).take(1.0, 1 << 20, 1.0, 20)
        Taken(reward=0.5, counts=524288, learns=True)
        """
        inside = min(max(reward, 0.0), width)
        steps = min(int(inside / width * 2.0**bits), self.room(before, width, bits))
        return Taken(steps * 2.0**-bits * width, steps)

    def room(self, before: int, width: float, bits: int) -> int:
        """How many steps the cap leaves."""
        return max(self.full(width, bits) - before, 0)

    def full(self, width: float, bits: int) -> int:
        return int(float(self.option[1]) / width * 2.0**bits)


class Visitor(Person):
    """A person whose contexts are private too. Engines know the residuals, so they count.

    A residual is a whole number of C·2⁻²⁰. What is counted of somebody is 1 and the steps learned of
    them. An item is divided by all that a person's can add up to, so they move as far as one does.
    """

    here_or_there = False
    counted_by_engine = True
    items_per_move = 1  # all of a person's are in the same releases, which are counted once

    def together(self, width: float) -> int:
        return 1  # a row without a name is a person of its own

    def moves(self, width: float) -> float:
        return 1

    def check(self, reward_range: tuple[float, float]) -> None:
        super().check(reward_range)
        most, high = float(self.option[1]), reward_range[1]
        if most > MOST_WIDTHS_WITH_CONTEXTS * high:
            raise OptionError(
                f"unit=('person', {most:g}) must be at most {MOST_WIDTHS_WITH_CONTEXTS:,} times the "
                f"largest reward, {high:g}, where contexts are private: residuals are whole numbers "
                "of its millionth part"
            )

    def take(
        self, reward: float, before: Any, width: float, bits: int, instrument: Vector | None = None
    ) -> Taken:
        return Taken(reward, 0)

    def full(self, width: float, bits: int) -> int:
        return 1 + (
            1 << REWARD_BITS
        )  # engines take no more than that: what is left would be negative


def to_you(words: str) -> str:
    """What a unit says of somebody who may come any number of times, said to them; else nothing.

    >>> to_you(person(1).words)[41:]
    'at most 1 of your clicks (or rewards of 1 in total) is learned from.'
    >>> to_you(user(3).words)
    ''
    """
    _, often, what = words.partition(", however often they come: ")
    yours = re.sub(r"\btheir\b", "your", what)
    return f"Whoever you are, however often you come, {yours}." if often else ""


ONE_REWARD = Unit("one reward", "one context with its reward", "reward")


def user(most: int) -> Unit:
    """A user, of whom at most `most` rewards are learned.

    >>> user(3).words, user(1).words, user(3).option
    ('one user with at most 3 rewards', 'one user with at most 1 reward', ('user', 3))
    """
    words = f"one user with at most {most} reward{'s' * (most > 1)}"
    both = f"one user with at most {most} contexts and rewards"
    return User(words, both, ("user", most), most, [f"--user-rewards {most}"])


def person(most: float, click: float = 1.0) -> Person:
    """A person, whose rewards add up to at most `most`, however many there are; a click is worth
    `click`.

    >>> person(1).words[37:]
    'at most 1 of their clicks (or rewards of 1 in total) is learned from'
    >>> person(1, 0.5).words[37:]
    'at most 2 of their clicks (or rewards of 1 in total) are learned from'
    """
    clicks = most / click
    words = (
        f"at most {clicks:.12g} of their clicks (or rewards of {most:.12g} in total) "
        f"{'are' if clicks > 1 else 'is'} learned from"
    )
    both = (
        f"their rewards' differences from predictions count for at most {most:.12g} in total, and one "
        "visit shows where their contexts lie"
    )
    who = "one person, however often they come: "
    option, flags = ("person", most), [f"--person-clicks {most:.12g}"]
    return Person(who + words, who + both, option, flags=flags)


def spread(most: float) -> Spread:
    """A user whose rewards together move sums no further than `most` in one context would.

    >>> spread(2.5).words[:60]
    'one user, however often they come: their rewards are learned'
    """
    words = (
        "one user, however often they come: their rewards are learned from as long as together they "
        f"move the releases no further than {most:.12g} in one context would"
    )
    return Spread(words, words, ("spread", most), flags=[f"--user-spread {most:.12g}"])


def find_unit(given: Any, click: float = 1.0) -> Unit:
    """The unit that an option names: 'reward', ('user', m), ('spread', m) or ('person', C); a click
    is worth `click`, the top of the range of rewards.

    >>> find_unit(("user", 4)).cap
    4
    """
    if isinstance(given, Unit):
        return given
    named = [given] if isinstance(given, str) else given
    if isinstance(named, (tuple, list)) and named:
        if named[0] == "reward" and len(named) == 1:
            return ONE_REWARD
        if named[0] in ("user", "spread", "person") and len(named) == 2:
            most = named[1].item() if hasattr(named[1], "item") else named[1]
            number = isinstance(most, (int, float)) and not isinstance(most, bool)
            whole = number and most == most // 1
            if named[0] == "user":
                if not whole or most < 1:
                    raise OptionError(
                        "unit's second part, the most rewards per user, must be a whole number of "
                        f"at least 1, not {most!r}"
                    )
                return user(int(most))
            if named[0] == "spread":
                if not number or not 1 <= most <= MOST_SPREAD:
                    raise OptionError(
                        "unit's second part, how far a user's rewards may move sums, must be a number "
                        f"from 1 to {MOST_SPREAD:,}, not {most!r}"
                    )
                return spread(int(most) if whole else float(most))
            if not number or not 0 < most < 1e100:
                raise OptionError(
                    "unit's second part, the largest total of a person's rewards, must be a finite "
                    f"number above 0, not {most!r}"
                )
            return person(int(most) if whole else float(most), click)
    raise OptionError(
        f"unit must be 'reward', ('user', m), ('spread', m) or ('person', C), not {given!r}"
    )
