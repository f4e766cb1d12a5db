"""AdaC-OFUL (Azize & Basu 2024): episodes that end when det A has grown by a factor, and Gaussian noise once for each.

A reward is in one episode's sum and pays once, whatever the number of episodes; between releases arms are picked with
the estimate and the confidence ellipsoid of the last one. When an episode ends depends on contexts alone, which are public.
"""

from __future__ import annotations

import math

from dpbandit.bandits import steps
from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.moments import on_moments
from dpbandit.bandits.options import Options, positive
from dpbandit.noise import check_noise

DESCRIPTION = "episodes on growing det A, Gaussian noise once per episode"
REFERENCE = "Azize & Basu 2024"
CLAIM = "GDP, proven"
OWN = ("shape", "determinant_growth")


def make(name: str, options: Options) -> LinearBandit:
    noise = check_noise(options.noise or "gaussian", ("gaussian",))
    growth = math.log1p(positive("determinant_growth", options.take("determinant_growth", 1.0)))
    return on_moments(name, options, noise, release=steps.EPISODES, growth=growth)
