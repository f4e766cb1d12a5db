"""Thompson sampling on private moments, after Mishra & Thakurta 2015, who do it for arms without features.

The posterior's mean is the private estimate and its covariance α²A⁻¹, which is public; the draw that picks the arm uses
randomness of its own, so it is post-processing of what was released.
"""

from __future__ import annotations

from dpbandit.bandits import steps
from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.moments import on_moments
from dpbandit.bandits.options import Options

DESCRIPTION = "Thompson sampling on private moments (Laplace tree; Gaussian as an option)"
REFERENCE = "after Mishra & Thakurta 2015"
CLAIM = "pure ε (GDP with noise='gaussian'), proven"
OWN = ("shape",)


def make(name: str, options: Options) -> LinearBandit:
    return on_moments(name, options, options.noise or "laplace", rule=steps.THOMPSON)
