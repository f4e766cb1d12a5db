"""Who is protected: one reward, one user with at most so many of them, or one person.

A user's m rewards are a group: together they move m times as far as one, so each gets the m-th part
of a unit's budget. Of a person any number of rewards is learned, and they add up to at most C: two
streams of one person are apart by at most 2C, however often they come (docs/privacy.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dpbandit.errors import OptionError

# A person's rewards are brought down to whole numbers of width·2⁻²⁰: so few of them can differ that
# what rounding adds for each can be paid for, and what is counted is exact.
REWARD_BITS = 20
MOST_WIDTHS = 10**6  # a person's cap, in widths of the range


class Taken(NamedTuple):
    """What is learned of a reward, and by how much its user's count grows."""

    reward: float
    counts: int


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
    # Into how many small moves, each with a rounding of its own, one reward's move can be divided.
    items_per_move = 1

    def moves(self, width: float) -> float:
        """How many times as far as one reward can, all of a unit's can move together."""
        return 1

    def check(self, reward_range: tuple[float, float]) -> None:
        """An error for a range of rewards that this unit cannot have."""

    def take(self, reward: float, before: int, width: float, bits: int) -> Taken:
        """What is learned of a reward that is learned at all, after so much was counted."""
        return Taken(reward, 1)


class User(Unit):
    """A user, of whom at most `cap` rewards are learned."""

    needs_user = True

    def moves(self, width: float) -> float:
        return self.cap or 1


class Person(Unit):
    """A person, whose rewards add up to at most so much: `option` is ('person', C)."""

    needs_user = True
    counts_are_public = False
    items_per_move = 1 << REWARD_BITS

    def moves(self, width: float) -> float:
        """Up to C may be here in one stream, and there in the other."""
        return 2 * float(self.option[1]) / width

    def check(self, reward_range: tuple[float, float]) -> None:
        most, (low, high) = float(self.option[1]), reward_range
        if low != 0:
            raise OptionError(
                f"unit=('person', {most:g}) adds up rewards from 0, so reward_range must begin "
                f"there, not at {low:g}: subtract {low:g} from the rewards, or use unit=('user', m)"
            )
        if not high <= most <= MOST_WIDTHS * high:
            raise OptionError(
                f"unit=('person', {most:g}) must allow for one reward at least, and for no more "
                f"than {MOST_WIDTHS:,}; the largest is {high:g}: give reward_range=(0, {most:g}), "
                "or another cap"
            )

    def take(self, reward: float, before: int, width: float, bits: int) -> Taken:
        """The reward, in steps of width·2⁻ᵇⁱᵗˢ, or what the cap leaves of it.

        >>> person(1.5).take(1.0, 1 << 20, 1.0, 20)
        Taken(reward=0.5, counts=524288)
        """
        inside = min(max(reward, 0.0), width)
        steps = min(int(inside / width * 2.0**bits), self.room(before, width, bits))
        return Taken(steps * 2.0**-bits * width, steps)

    def room(self, before: int, width: float, bits: int) -> int:
        """How many steps the cap leaves."""
        return max(int(float(self.option[1]) / width * 2.0**bits) - before, 0)


ONE_REWARD = Unit("one reward", "one context with its reward", "reward")


def user(most: int) -> Unit:
    """A user, of whom at most `most` rewards are learned.

    >>> user(3).words, user(1).words, user(3).option
    ('one user with at most 3 rewards', 'one user with at most 1 reward', ('user', 3))
    """
    words = f"one user with at most {most} reward{'s' * (most > 1)}"
    both = f"one user with at most {most} contexts and rewards"
    return User(words, both, ("user", most), most, [f"--user-rewards {most}"])


def person(most: float) -> Person:
    """A person, whose rewards add up to at most `most`, however many there are.

    >>> person(1).words[37:64]
    'at most 1 of their clicks, '
    """
    words = (
        f"at most {most:.12g} of their clicks, or of what their rewards add up to, is learned from"
    )
    who = "one person, however often they come: "
    option, flags = ("person", most), [f"--person-clicks {most:.12g}"]
    return Person(who + words, who + words, option, flags=flags)


def find_unit(given: Any) -> Unit:
    """The unit that an option names: 'reward', ('user', m) or ('person', C).

    >>> find_unit(("user", 4)).cap
    4
    """
    if isinstance(given, Unit):
        return given
    named = [given] if isinstance(given, str) else given
    if isinstance(named, (tuple, list)) and named:
        if named[0] == "reward" and len(named) == 1:
            return ONE_REWARD
        if named[0] in ("user", "person") and len(named) == 2:
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
            if not number or not 0 < most < 1e100:
                raise OptionError(
                    "unit's second part, what a person's rewards may add up to, must be a finite "
                    f"number above 0, not {most!r}"
                )
            return person(int(most) if whole else float(most))
    raise OptionError(f"unit must be 'reward', ('user', m) or ('person', C), not {given!r}")
