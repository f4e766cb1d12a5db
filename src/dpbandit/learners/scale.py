"""How far rewards are from predictions, found beside the sum for nothing.

An item u·e/2c leaves room: a residual that moves from −c to c is as large as before. So two numbers
ride along, BY_DISTANCE·|e|/c and AT_EDGE·(2|e|/c − 1)₊, and no reward moves the three further than the
first alone (docs/privacy.md). What is released of them says how large residuals are and how many
crowd the window's edge. The window of later residuals and the variance that the filter assumes follow.
All here is public, functions of releases and of contexts, but for the two numbers of a round.
"""

from __future__ import annotations

import math

import numpy as np

from dpbandit.reference.fields import Holder, Number
from dpbandit.types import Vector

FREE = 2  # numbers that ride along
BY_DISTANCE, AT_EDGE = 0.7, 0.5  # why no more: docs/privacy.md
# From the prediction to the window's edge, in standard deviations of the residual.
DEVIATIONS = 2.25
# A standard deviation in mean distances, as of Gaussian noise; and the least, in widths of the range.
OF_DISTANCE = 1.2533
LEAST_DEVIATION = 1e-2
# What predictions err is what the filter believes: no more of the deviation is put down to it.
LEAST_SHARE = 0.5
# What is left of older releases' word with each: predictions were worse then.
FADED = 0.98
# The window widens where this share more of residuals is near its edge than of Gaussian ones.
CROWDED = 0.01
WIDER, NARROWER = 1.1, 0.95
# A release with so many more at the edge, and so many errors more, says that something happened.
SUDDEN, ERRORS = 0.05, 3.0


class Scale(Holder):
    """What releases say of |e|; `widest` is half the window where nothing is known."""

    distance_design = Number(float)  # Σ ω/c
    expected = Number(float)  # Σ ω·v/c, v the variance of a prediction
    share_design = Number(float)  # Σ ω
    squares = Number(float)  # Σ ω²
    distance_information = Number(float)
    distance_target = Number(float)
    expected_target = Number(float)
    share_information = Number(float)
    share_target = Number(float)
    edge_target = Number(float)
    widened = Number(float)
    residual_deviation = Number(float)  # of residuals: the filter's for rewards, never too little
    reward_deviation = Number(float)  # the same without what predictions err

    def __init__(self, most: float, widest: float, width: float) -> None:
        self.most, self.widest, self.least = most, widest, LEAST_DEVIATION * width
        self.distance_design = self.expected = self.share_design = self.squares = 0.0
        self.distance_information = self.distance_target = self.expected_target = 0.0
        self.share_information = self.share_target = self.edge_target = 0.0
        self.widened, self.residual_deviation, self.reward_deviation = 1.0, most, most

    def window(self, variance: float) -> float:
        """Half the width of a residual whose prediction has this variance."""
        deviation = math.sqrt(self.reward_deviation**2 + variance)
        return min(self.widest, DEVIATIONS * self.widened * deviation)

    def see(self, size: float, half: float, variance: float) -> Vector:
        """What rides along with a residual of this size in this window."""
        self.distance_design += 1.0 / half
        self.expected += variance / half
        self.share_design += 1.0
        self.squares += 1.0
        share = size / half
        return np.array([BY_DISTANCE * share, AT_EDGE * max(2.0 * share - 1.0, 0.0)])

    def learn(self, noisy: Vector, q: float, rho: float, scale: float) -> float:
        """Take what a release shows of the two sums, with noise of this scale.

        Below 1 where something happened: so much narrower windows were than they are now.
        """
        # Shares lie between 0 and 1. They are in many releases, but count as in one alone.
        noise = scale * scale + 0.25 * BY_DISTANCE * BY_DISTANCE * self.squares
        distance, share = q * BY_DISTANCE * self.distance_design, q * self.share_design
        sudden = self._is_sudden(noisy[1] / (AT_EDGE * share), math.sqrt(noise) / (AT_EDGE * share))
        own = distance / noise
        self.distance_information = FADED * self.distance_information + own * distance
        self.distance_target = FADED * self.distance_target + own * noisy[0]
        self.expected_target = FADED * self.expected_target + own * (
            q * BY_DISTANCE * self.expected
        )
        own = share / noise
        self.share_information = FADED * self.share_information + own * share
        self.share_target = FADED * self.share_target + own * (noisy[0] / BY_DISTANCE)
        self.edge_target = FADED * self.edge_target + own * (noisy[1] / AT_EDGE)
        self.distance_design *= rho
        self.expected *= rho
        self.share_design *= rho
        self.squares *= rho * rho
        before = self.widened
        self._conclude()
        if not sudden:
            return 1.0
        # The window is open at once, and narrows again release by release.
        self.widened = max(before, self.widest / (DEVIATIONS * self.reward_deviation))
        return before / self.widened

    def _is_sudden(self, edge: float, error: float) -> bool:
        if not self.share_information > 0.0:
            return False
        return edge - self.edge_target / self.share_information > SUDDEN + ERRORS * error

    def _conclude(self) -> None:
        error = 1.0 / math.sqrt(self.distance_information)
        mean = self.share_target / self.share_information  # of |e|/c
        distance = max(self.distance_target / self.distance_information, 0.0) + error
        found = OF_DISTANCE * distance * _cut_off(mean)
        self.residual_deviation = min(max(found, self.least), self.most)
        own = found * found - self.expected_target / self.distance_information
        lowest = max(self.least, error, LEAST_SHARE * found)
        self.reward_deviation = min(max(math.sqrt(max(own, 0.0)), lowest), self.most)
        # Where the rewards' law has more at the window's edge than Gaussian noise, it is widened.
        crowd = self.edge_target / self.share_information - _of_gaussians(mean)
        if crowd - 1.0 / (AT_EDGE * math.sqrt(self.share_information)) > CROWDED:
            most = self.widest / (DEVIATIONS * self.least)
            self.widened = min(WIDER * self.widened, most)
        else:
            self.widened = max(NARROWER * self.widened, 1.0)


def _cut_off(mean: float) -> float:
    """What E|z| is in E min(|z|, c), for Gaussian z and E min(|z|, c)/c = mean; for 1 and above, as
    for 1.

    >>> round(_cut_off(0.3905), 2), round(_cut_off(0.4928), 2)  # c = 2 and 1.5: 1.02 and 1.08
    (1.02, 1.08)
    """
    above = min(max(mean - 0.3, 0.0), 0.7)
    return 1.0 + 2.2 * above * above


def _of_gaussians(mean: float) -> float:
    """E(2·min(|z|/c, 1) − 1)₊ for Gaussian z with E min(|z|/c, 1) = mean, to within 0.007.

    >>> round(_of_gaussians(0.3176), 3), round(_of_gaussians(0.1995), 3)  # 0.0777, 0.0085
    (0.074, 0.01)
    """
    above = max(mean - 0.13, 0.0)
    return 2.1 * above * above
