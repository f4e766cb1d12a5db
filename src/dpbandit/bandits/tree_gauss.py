"""Gaussian tree on moments: the plainest proven mechanism, and the yardstick for the others.

`honaker=True` publishes every node of the tree and combines what they say about the same sums (Honaker 2015); each
reward is still in one node of each level, so the budget is the same and the error about a quarter less.
"""

from __future__ import annotations

from dpbandit.bandits import steps
from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.moments import on_moments
from dpbandit.bandits.options import Options
from dpbandit.noise import check_noise

DESCRIPTION = "Gaussian tree on moments"
REFERENCE = "Dwork et al. 2010 and Chan et al. 2011, with Gaussian noise; Honaker 2015"
CLAIM = "GDP, proven"
OWN = ("shape", "honaker")


def make(name: str, options: Options) -> LinearBandit:
    noise = check_noise(options.noise or "gaussian", ("gaussian",))
    return on_moments(name, options, noise, release=steps.HONAKER if options.take("honaker", False) else steps.TREE)
