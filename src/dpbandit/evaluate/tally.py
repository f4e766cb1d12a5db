"""What estimates need of a log, added up in one pass, in two kinds of numbers.

With y = (reward − low)/width, brought into 0 … 1, and w the weight of a row (1/propensity where the
player chose what was shown, else 0), every estimate here is a function of **Σ w·y**, which is private,
and of sums without y. Those follow from what the player released and from what is public: once its
releases are known, they say nothing about a reward (docs/privacy.md). `Seen`, which has y in more sums
than that one, is made only where nothing is protected; then nothing is added up on the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from dpbandit.evaluate.players import Player
from dpbandit.evaluate.rounds import Round
from dpbandit.privacy.grid import GRID_BITS

GRID = 2.0**GRID_BITS


class Range(NamedTuple):
    """Where rewards lie."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """How far a reward can move."""
        return self.high - self.low

    def share(self, reward: float) -> float:
        """Where a reward stands between low and high; one that is NaN stands in the middle.

        >>> Range(-1.0, 1.0).share(7.0), Range(-1.0, 1.0).share(0.0), Range(0.0, 1.0).share(math.nan)
        (1.0, 0.5, 0.5)
        """
        if not math.isfinite(reward):
            return 0.5
        return min(max((reward - self.low) / self.width, 0.0), 1.0)


@dataclass
class Public:
    """Sums without a reward in them. `w` is a row's weight, `q` what the player's parameter says."""

    rows: float = 0.0  # those that count
    matched: int = 0  # of these, where the player chose what was shown
    clipped: int = 0  # of these, whose weight was brought down
    weight: float = 0.0  # Σ w
    weight2: float = 0.0  # Σ w²
    chosen: float = 0.0  # Σ q of what the player chose, in all rows
    chosen2: float = 0.0
    wq: float = 0.0
    wqq: float = 0.0
    w2q: float = 0.0
    w2qq: float = 0.0
    low_w: float = math.inf
    high_w: float = 0.0
    low_q: float = math.inf
    high_q: float = -math.inf

    def add(self, w: float, q: float) -> None:
        """A row; w is 0 where the player chose something else."""
        self.rows += 1
        self.chosen += q
        self.chosen2 += q * q
        if w == 0:
            return
        self.matched += 1
        self.weight += w
        self.weight2 += w * w
        self.wq += w * q
        self.wqq += w * q * q
        self.w2q += w * w * q
        self.w2qq += w * w * q * q
        self.low_w, self.high_w = min(self.low_w, w), max(self.high_w, w)
        self.low_q, self.high_q = min(self.low_q, q), max(self.high_q, q)


@dataclass
class Seen:
    """Sums with y in them, in floats: for eyes that may see the log."""

    wy: float = 0.0
    wyq: float = 0.0
    w2y: float = 0.0
    w2yq: float = 0.0
    w2yy: float = 0.0
    kept: Public = field(default_factory=Public)  # rows that an online run would have had, w = 1
    kept_y: float = 0.0
    kept_yy: float = 0.0


class Tally:
    """One player's sums."""

    def __init__(
        self, player: Player, rewards: Range, clip: float, *, protects: bool, most: int | None
    ) -> None:
        self.player, self.rewards, self.clip, self.most = player, rewards, clip, most
        self.public = Public()
        self.seen = None if protects else Seen()
        # Σ w·y/clip in whole numbers of the grid: exact, and no reward moves it by more than its weight.
        self.whole = 0
        self.heaviest = 0  # of one row's weight, on the grid
        self.weights: dict[str, tuple[int, int]] = {}  # of each user: rows, and weights on the grid

    def add(self, row: Round, coin: float) -> None:
        """A row of the log. `coin`, from 0 to 1, keeps rows as an online run would have had them."""
        user = row.user or ""
        count, so_far = self.weights.get(user, (0, 0)) if row.user is not None else (0, 0)
        counts = self.most is None or row.user is None or count < self.most
        arm = self.player.choose(row.contexts)
        matched = arm == row.action
        w = min(1.0 / row.propensity, self.clip) if matched else 0.0
        if counts:
            low, high = self.rewards
            q = self.player.expects(row.contexts[arm], low, high)
            self.public.add(w, q)
            if matched:
                self.public.clipped += 1.0 / row.propensity > self.clip
                y = self.rewards.share(row.reward)
                most = round(w / self.clip * GRID)
                if row.user is not None:
                    self.weights[user] = (count + 1, so_far + most)
                if self.seen is not None:
                    self._see(w, y, q)
                else:
                    self.whole += round(w / self.clip * y * GRID)
                    self.heaviest = max(self.heaviest, most)
        kept = matched and coin < w / self.clip
        if kept and self.seen is not None and counts:
            y = self.rewards.share(row.reward)
            self.seen.kept.add(1.0, 0.0)
            self.seen.kept_y += y
            self.seen.kept_yy += y * y
        if kept:
            # A reward that is no number stands in the middle, as in a log that starts a bandit: an error
            # would show it.
            low, high = self.rewards
            finite = math.isfinite(row.reward)
            self.player.learn(row if finite else row._replace(reward=(low + high) / 2))

    def _see(self, w: float, y: float, q: float) -> None:
        seen = self.seen
        assert seen is not None
        seen.wy += w * y
        seen.wyq += w * y * q
        seen.w2y += w * w * y
        seen.w2yq += w * w * y * q
        seen.w2yy += w * w * y * y

    def shift(self, by_user: bool) -> int:
        """How far one reward, or all of one user's, can move the whole sum."""
        if not by_user:
            return self.heaviest
        return max((weights for _, weights in self.weights.values()), default=0)
