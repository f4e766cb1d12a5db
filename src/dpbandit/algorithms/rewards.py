"""What rewards are: numbers in a range, or clicks. Nothing here is private, and no claim depends on it.

Clicks are 0 or b, and mostly 0. Their variance is p(b − p) at the rate p, and arms cannot differ by much
more than p: both follow from the rate that releases show, which is post-processing. What a click is away
from any prediction near 0 is nearly the whole range, so a window would only cut it off.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpbandit.errors import OptionError
from dpbandit.options import Options
from dpbandit.tables import find_in

# What variances follow from instead.
REPLACED = ("reward_variance",)


@dataclass(frozen=True)
class Rewards:
    """A kind of rewards, and what algorithms make of it."""

    name: str
    window: float  # of `anytime`, in widths of the range, to either side of the prediction
    joint_window: float  # of `anytime-joint`, which scales residuals before it clips them
    alpha: float  # of `anytime`, where it explores what is neglected
    are_clicks: bool

    def check(self, options: Options) -> None:
        """An error where the range, or another option, does not go with this kind."""
        if not self.are_clicks:
            return
        low, high = options.reward_range
        if low != 0:
            raise OptionError(
                f"rewards='clicks' are 0 or a number above it: give reward_range=(0, {high:g}), not "
                f"({low:g}, {high:g}), or rewards='numbers'"
                if high > 0
                else "rewards='clicks' are 0 or a number above it: give reward_range=(0, 1)"
            )
        for name in REPLACED:
            if name in options.extra:
                raise OptionError(
                    f"rewards='clicks' finds variances from the released rate: leave {name} out, or "
                    "say rewards='numbers'"
                )


# Windows and α: docs/frontier.md.
NUMBERS = Rewards("numbers", 0.375, 0.375, 0.6, False)
CLICKS = Rewards("clicks", 0.5, 1.0, 0.5, True)
KINDS = {kind.name: kind for kind in (NUMBERS, CLICKS)}


def rewards_of(options: Options) -> Rewards:
    """What the option `rewards` names, checked."""
    wanted = options.own("rewards", NUMBERS.name)
    kind: Rewards = find_in(KINDS, wanted, Rewards, "kind of rewards")
    kind.check(options)
    return kind
