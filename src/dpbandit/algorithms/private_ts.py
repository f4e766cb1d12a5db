"""Thompson sampling on private moments, after Mishra & Thakurta 2015 (arms without features).

The posterior's mean is the private estimate, and its covariance α²A⁻¹ is public. The draw that
picks the arm uses separate randomness, so it is post-processing of the releases.
"""

from __future__ import annotations

from dpbandit.algorithms.moments import on_moments
from dpbandit.design import Design
from dpbandit.options import Options
from dpbandit.policies import THOMPSON

DESCRIPTION = "Thompson sampling on private moments (Laplace tree; Gaussian as an option)"
REFERENCE = "after Mishra & Thakurta 2015"
CLAIM = "pure ε (GDP with noise='gaussian'), proven"
OPTIONS = ("shape",)


def design(name: str, options: Options) -> Design:
    return on_moments(name, options, options.noise or "laplace", policy=THOMPSON)
