"""A rate limit for requests without a valid key. They are refused anyway; beyond the rate they are
refused without a look at the store. Requests with a key never meet this limit.
"""

from __future__ import annotations

import time

# What may come at once after a quiet time, in seconds of the rate.
BURST_SECONDS = 10.0


class Strangers:
    """A bucket that fills at a rate; reports of rewards have one of their own, so that nobody else
    can see that there were any."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._left: dict[bool, tuple[float, float]] = {}  # rewards → (left, when)

    def heard(self, *, rewards: bool) -> bool:
        """Whether one more may pass now."""
        now = time.monotonic()
        most = max(self._rate * BURST_SECONDS, 1.0)
        left, then = self._left.get(rewards, (most, now))
        left = min(left + (now - then) * self._rate, most)
        self._left[rewards] = (max(left - 1.0, 0.0) if left >= 1.0 else left, now)
        return left >= 1.0

    def known(self, *, rewards: bool) -> None:
        """It was none: its key is in force."""
        left, then = self._left[rewards]
        self._left[rewards] = (left + 1.0, then)
