"""AdaC-OFUL (Azize & Basu 2024): episodes on growing det A, with Gaussian noise once per episode.

A reward is in one episode's sum and pays once, however many episodes there are. Between releases
arms are picked with the last estimate and confidence ellipsoid. The end of an episode depends only
on contexts, which are public.
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
