"""Gaussian tree on moments: the plainest proven mechanism, and the yardstick for the others.

`honaker=True` publishes every node of the tree and combines what they say about the same sums
(Honaker 2015); each reward is still in one node of each level, so the budget is the same and the
error about a quarter less.
"""

from __future__ import annotations

from dpbandit.algorithms.moments import on_moments
from dpbandit.design import Design
from dpbandit.options import Options
from dpbandit.release import Honaker, Tree

DESCRIPTION = "Gaussian tree on moments"
REFERENCE = "Dwork et al. 2010 and Chan et al. 2011, with Gaussian noise; Honaker 2015"
CLAIM = "GDP, proven"
OPTIONS = ("shape", "honaker")


def design(name: str, options: Options) -> Design:
    release = Honaker if options.own_flag("honaker") else Tree
    noise = options.noise or "gaussian"
    return on_moments(name, options, noise, noises=("gaussian",), release=release)
