"""Who is protected: one reward, or one user with at most so many of them.

A user's m rewards are a group. Privacy of a group of m is m·μ, or m·ε, so each reward gets the m-th
part of a unit's budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpbandit.errors import OptionError


@dataclass(frozen=True)
class Unit:
    """Whom a claim speaks of."""

    words: str  # as a claim says it
    words_with_contexts: str  # the same where contexts are protected too
    option: Any  # what `dpb.make(unit=…)` takes, and files hold
    rewards_per_unit: int  # how many rewards share a unit's budget
    cap: int | None  # how many rewards of one unit are learned; None: they are not counted


ONE_REWARD = Unit("one reward", "one context with its reward", "reward", 1, None)


def user(most: int) -> Unit:
    """A user, of whom at most `most` rewards are learned.

    >>> user(3).words, user(1).words, user(3).option
    ('one user with at most 3 rewards', 'one user with at most 1 reward', ('user', 3))
    """
    words = f"one user with at most {most} reward{'s' * (most > 1)}"
    both = f"one user with at most {most} contexts and rewards"
    return Unit(words, both, ("user", most), most, most)


def find_unit(given: Any) -> Unit:
    """The unit that an option names: 'reward', or ('user', m).

    >>> find_unit(("user", 4)).cap
    4
    """
    if isinstance(given, Unit):
        return given
    named = [given] if isinstance(given, str) else given
    if isinstance(named, (tuple, list)) and named:
        if named[0] == "reward" and len(named) == 1:
            return ONE_REWARD
        if named[0] == "user" and len(named) == 2:
            most = named[1].item() if hasattr(named[1], "item") else named[1]
            number = isinstance(most, (int, float)) and not isinstance(most, bool)
            if not number or most != most // 1 or most < 1:
                raise OptionError(
                    "unit's second part, the most rewards per user, must be a whole number of at "
                    f"least 1, not {most!r}"
                )
            return user(int(most))
    raise OptionError(f"unit must be 'reward' or ('user', m), not {given!r}")
