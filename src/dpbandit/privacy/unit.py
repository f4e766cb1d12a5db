"""Who is protected: one reward, or one user with at most so many of them.

A user's m rewards are a group. Privacy of a group of m is m·μ, or m·ε, so each reward gets the m-th
part of a unit's budget.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from dpbandit.errors import OptionError


class Unit(ABC):
    """Whom a claim speaks of."""

    @property
    @abstractmethod
    def rewards_per_unit(self) -> int:
        """How many rewards share a unit's budget."""

    @property
    @abstractmethod
    def cap(self) -> int | None:
        """How many rewards of one unit are learned; None: they are not counted."""

    @property
    @abstractmethod
    def words(self) -> str:
        """As a claim says it."""

    @property
    @abstractmethod
    def words_with_contexts(self) -> str:
        """The same where contexts are protected too."""

    @property
    @abstractmethod
    def option(self) -> Any:
        """What `dpb.make(unit=…)` takes, and files hold."""


@dataclass(frozen=True)
class OneReward(Unit):
    """Each reward by itself.

    >>> OneReward().words, OneReward().option
    ('one reward', 'reward')
    """

    rewards_per_unit = 1
    cap = None
    words = "one reward"
    words_with_contexts = "one context with its reward"
    option = "reward"


@dataclass(frozen=True)
class User(Unit):
    """A user, of whom at most `most` rewards are learned.

    >>> User(3).words, User(1).words, User(3).option
    ('one user with at most 3 rewards', 'one user with at most 1 reward', ('user', 3))
    """

    most: int

    @property
    def rewards_per_unit(self) -> int:
        return self.most

    @property
    def cap(self) -> int:
        return self.most

    @property
    def words(self) -> str:
        return f"one user with at most {self.most} reward{'s' * (self.most > 1)}"

    @property
    def words_with_contexts(self) -> str:
        return f"one user with at most {self.most} contexts and rewards"

    @property
    def option(self) -> tuple[str, int]:
        return ("user", self.most)


def _user(given: Any) -> User:
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or given != given // 1 or given < 1:
        raise OptionError(
            "unit's second part, the most rewards per user, must be a whole number of at least 1, "
            f"not {given!r}"
        )
    return User(int(given))


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
            return OneReward()
        if named[0] == "user" and len(named) == 2:
            value = named[1]
            return _user(value.item() if hasattr(value, "item") else value)
    raise OptionError(f"unit must be 'reward' or ('user', m), not {given!r}")
