"""The noises, each an object with all its consequences.

A noise knows the norm it measures shifts in, its currency, its exchange to (ε, δ), its draw for
simulations, its log-density for audits, and its exact sampler where there is one. Nothing else in
the library decides anything by a noise's name: it asks the object. A new noise is a file in
`privacy.noises` and one entry in `NOISES`; what it leaves out keeps it from being made at all."""

from __future__ import annotations

from dpbandit.errors import OptionError, nearest
from dpbandit.privacy.noises.base import CERTAIN, Budgeted, Currency, Noise
from dpbandit.privacy.noises.gaussian import Gaussian
from dpbandit.privacy.noises.knorm import KNorm
from dpbandit.privacy.noises.laplace import Laplace
from dpbandit.privacy.noises.wishart import Wishart

__all__ = [
    "CERTAIN",
    "GAUSSIAN",
    "KNORM",
    "LAPLACE",
    "NOISES",
    "WISHART",
    "Budgeted",
    "Currency",
    "Noise",
    "find_noise",
]

GAUSSIAN, LAPLACE, KNORM, WISHART = Gaussian(), Laplace(), KNorm(), Wishart()
NOISES: dict[str, Noise] = {noise.name: noise for noise in (GAUSSIAN, LAPLACE, KNORM, WISHART)}


def find_noise(name: str | Noise, allowed: tuple[str, ...] | None = None) -> Noise:
    """The noise of this name, or an error that lists what is allowed.

    Parameters
    ----------
    name
        A name in `NOISES`, or a noise itself.
    allowed
        The names that an algorithm takes; None: all.

    Raises
    ------
    OptionError
        If there is no such noise, or it is not among those allowed.

    >>> find_noise("laplace").norm
    1
    """
    names = tuple(NOISES) if allowed is None else allowed
    word = name.name if isinstance(name, Noise) else name
    if word not in names:
        raise OptionError(
            f"noise {word!r} is not possible here: {nearest(word, names)} "
            f"(allowed: {', '.join(names)})"
        )
    return name if isinstance(name, Noise) else NOISES[word]
