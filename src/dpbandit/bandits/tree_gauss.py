"""Gaussian tree on moments: the plainest proven mechanism, and the yardstick for the others."""

from __future__ import annotations

from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.options import Options
from dpbandit.bandits.private_linucb import on_moments
from dpbandit.noise import check_noise

DESCRIPTION = "Gaussian tree on moments"
REFERENCE = "Dwork et al. 2010 and Chan et al. 2011, with Gaussian noise"
CLAIM = "GDP, proven"
OWN: tuple[str, ...] = ()


def make(name: str, options: Options) -> LinearBandit:
    return on_moments(name, options, check_noise(options.noise or "gaussian", ("gaussian",)))
