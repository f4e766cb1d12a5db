"""What a bandit remembers of the log it was started from: public counts, and rewards by user.

Users are kept as 64-bit hashes of their names, so that a hundred million rows fit into memory. Two
users whose hashes agree share one count: each of them may then be learned from less than the cap
allows, never more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Counts = NDArray[np.int32]
Totals = NDArray[np.int64]

ASSUMPTION = (
    "warm start: the {0:,} logged rewards went into one noisy release; which rows are in the log, "
    "their contexts, users and order, and whether a row has a reward at all, are public; no reward "
    "is in the log twice or learned online again"
)
CONTEXTS_TOO = (
    "warm start: the {0:,} logged contexts and rewards went into one noisy release; how many rows are "
    "in the log, their users and order, and whether a row has a reward at all, are public; no round "
    "is in the log twice or learned online again"
)
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Log:
    """What was read, in numbers that no reward decides.

    >>> print(Log(rows=10, learned=7, bad={"reward missing": 2}, over_cap=1, users=5))
    7 of 10 rows learned from, 5 users; left out: 2 reward missing, 1 over the user's cap
    """

    rows: int
    learned: int
    bad: dict[str, int] = field(default_factory=dict)
    over_cap: int = 0
    users: int | None = None
    full: int | None = None  # of them, those who have no reward left: their cap is used up

    def __str__(self) -> str:
        left = [f"{count:,} {kind}" for kind, count in self.bad.items() if count]
        left += [f"{self.over_cap:,} over the user's cap"] if self.over_cap else []
        people = "" if self.users is None else f", {self.users:,} users"
        out = ", ".join(left) or "none"
        out += f"; {self.full:,} users have no reward left" if self.full else ""
        return f"{self.learned:,} of {self.rows:,} rows learned from{people}; left out: {out}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def hash_name(name: str) -> int:
    """64 bits of a name: FNV-1a, mixed once more (splitmix64). Files rely on it: it never changes.

    >>> hex(hash_name("anna"))
    '0x8ed227c0ee63f504'
    """
    return hash_bytes(name.encode())


def hash_bytes(text: bytes) -> int:
    """The same, of a name's letters in UTF-8."""
    h = 0xCBF29CE484222325
    for byte in text:
        h = (h ^ byte) * 0x100000001B3 & _WORD
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    h = (h ^ h >> 27) * 0x94D049BB133111EB & _WORD
    h ^= h >> 31
    return h or 1  # 0 marks an empty place in a table


@dataclass(frozen=True)
class People:
    """How many of each user's rewards the log had that were learned from: 12 bytes a user.

    Of persons, what their rewards added up to, in steps: private, and of those alone who had any.

    >>> People.nobody().count("anna")
    0
    """

    hashes: Hashes  # in order
    counts: Counts | Totals

    @classmethod
    def nobody(cls) -> People:
        """No log, or one without users."""
        return cls(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int32))

    def count(self, name: str) -> int:
        """By name."""
        return 0 if len(self.hashes) == 0 else self.count_of_hash(hash_name(name))

    def count_of_hash(self, hashed: int) -> int:
        """By the hash of a name."""
        at = int(np.searchsorted(self.hashes, np.uint64(hashed)))
        found = at < len(self.hashes) and int(self.hashes[at]) == hashed
        return int(self.counts[at]) if found else 0
