"""AdaC-OFUL (Azize & Basu 2024): episodes on growing det A, and Gaussian noise once for each.

A reward is in one episode's sum and pays once, whatever the number of episodes; between releases
arms are picked with the estimate and the confidence ellipsoid of the last one. When an episode ends
depends on contexts alone, which are public.
"""

from __future__ import annotations

import math

from dpbandit.algorithms.moments import on_moments
from dpbandit.design import Design
from dpbandit.options import Options, positive
from dpbandit.release import Episodes

DESCRIPTION = "episodes on growing det A, Gaussian noise once per episode"
REFERENCE = "Azize & Basu 2024"
CLAIM = "GDP, proven"
OPTIONS = ("shape", "determinant_growth")


def design(name: str, options: Options) -> Design:
    growth = math.log1p(positive("determinant_growth", options.own("determinant_growth", 1.0)))
    return on_moments(
        name,
        options,
        options.noise or "gaussian",
        noises=("gaussian",),
        release=Episodes,
        more=lambda: {
            "growth": growth,
            "dim": options.dim,
            "ridge": options.ridge,
            "max_norm": options.max_norm,
        },
    )
