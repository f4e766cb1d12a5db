"""Whether a log's choices fit the probabilities that are stated of them, or that are taken as equal.

Every estimate divides by these probabilities, so a wrong one bends all of them, and no interval says so.
Only what was shown, from how many offers and with which probability is looked at: all of it is public.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Protocol

from dpbandit.evaluate.rounds import Round

SURE = 5.0  # standard deviations, so that a sound log is doubted once in a million
MATTERS = 0.1  # of the mean weight: less than that is no news
UNEVEN = 0.02  # of all rows, which would have to show something else


class Support(Protocol):
    """Looks at every row of a log."""

    def add(self, row: Round) -> None:
        """One row."""

    def doubt(self) -> str:
        """What does not fit, or ""."""


def support(stated: bool) -> Support:
    """For a log with a column of probabilities, or without."""
    return Stated() if stated else Even()


class Stated:
    """If each of k offers has a chance, 1/(k · probability) of what is shown is 1 on average.

    >>> import numpy as np
    >>> sure = Stated()
    >>> for _ in range(100):
    ...     sure.add(Round(np.eye(4), 0, 1.0, 0.0, None))
    >>> print(sure.doubt())
    the probabilities do not fit the offers: 1/(offers × probability) is 0.25 on average, and 1 if every offer \
has a chance. So estimates of what shows other offers are too low. Were some offers never shown?
    """

    def __init__(self) -> None:
        self.rows, self.mean, self.squares = 0, 0.0, 0.0  # Welford's

    def add(self, row: Round) -> None:
        """One row."""
        weight = 1.0 / max(row.propensity * len(row.contexts), 1e-100)
        self.rows += 1
        step = weight - self.mean
        self.mean += step / self.rows
        self.squares += step * (weight - self.mean)

    def doubt(self) -> str:
        """What does not fit, or ""."""
        if self.rows < 2:
            return ""
        error = math.sqrt(self.squares) / self.rows
        if abs(self.mean - 1) <= max(MATTERS, SURE * error):
            return ""
        low = self.mean < 1
        return (
            f"the probabilities do not fit the offers: 1/(offers × probability) is {self.mean:.3g} on "
            "average, and 1 if every offer has a chance. So estimates "
            + (
                "of what shows other offers are too low. Were some offers never shown?"
                if low
                else "are too high. Are these the probabilities of what was shown?"
            )
        )


class Even:
    """If every one of k offers is equally likely, each place among them is shown equally often.

    >>> import numpy as np
    >>> even = Even()
    >>> for i in range(300):
    ...     even.add(Round(np.eye(3), max(0, i % 5 - 2), 1 / 3, 0.0, None))
    >>> print(even.doubt())
    not all offers were equally likely: number 0 of 3 was shown in 60% of the rows, instead of 33%. So all \
estimates are wrong: name the column of probabilities, propensity=...
    """

    def __init__(self) -> None:
        self.shown: Counter[tuple[int, int]] = Counter()

    def add(self, row: Round) -> None:
        """One row."""
        self.shown[len(row.contexts), row.action] += 1

    def doubt(self) -> str:
        """What does not fit, or ""."""
        offers = {k for k, _ in self.shown}
        found = [self._of(k) for k in sorted(offers, key=lambda k: -self._rows(k))]
        return next((words for words in found if words), "")

    def _rows(self, k: int) -> int:
        return sum(count for (size, _), count in self.shown.items() if size == k)

    def _of(self, k: int) -> str:
        """Of rows with k offers: χ², brought to a normal number by Wilson and Hilferty (1931)."""
        counts, rows = [self.shown[k, at] for at in range(k)], self._rows(k)
        even = rows / k
        if k < 2 or even < 5:
            return ""
        square, free = sum((count - even) ** 2 for count in counts) / even, k - 1
        part = 2 / (9 * free)
        normal = ((square / free) ** (1 / 3) - (1 - part)) / math.sqrt(part)
        apart = sum(abs(count - even) for count in counts) / 2 / rows
        if normal <= SURE or apart <= UNEVEN:
            return ""
        most = max(range(k), key=counts.__getitem__)
        return (
            f"not all offers were equally likely: number {most} of {k} was shown in "
            f"{counts[most] / rows:.0%} of the rows, instead of {1 / k:.0%}. So all estimates are wrong: "
            "name the column of probabilities, propensity=..."
        )
