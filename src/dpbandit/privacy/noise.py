"""The noises, each an object with all its consequences.

A noise defines the norm it measures shifts in, its currency, its conversion to (ε, δ), its draw for
simulations, its log-density for audits, and its exact sampler if it has one. No other code decides
anything by a noise's name: it asks the object. A new noise is a subclass of `Noise` and one line,
`noise.add(Mine())`. An incomplete noise cannot be instantiated, and one that contradicts itself is
not added."""

from __future__ import annotations

from dpbandit.errors import OptionError, nearest
from dpbandit.privacy.noises.base import CERTAIN as CERTAIN
from dpbandit.privacy.noises.base import Noise as Noise
from dpbandit.privacy.noises.base import PaidInEpsilon as PaidInEpsilon
from dpbandit.privacy.noises.base import nothing_or_everything as nothing_or_everything
from dpbandit.privacy.noises.gaussian import Gaussian
from dpbandit.privacy.noises.laplace import KNorm, Laplace
from dpbandit.privacy.noises.response import Response as Response
from dpbandit.privacy.noises.wishart import Wishart
from dpbandit.tables import add_to, find_in

GAUSSIAN, LAPLACE, KNORM, WISHART = Gaussian(), Laplace(), KNorm(), Wishart()
NOISES: dict[str, Noise] = {noise.name: noise for noise in (GAUSSIAN, LAPLACE, KNORM, WISHART)}
# Of answers to one reward: no sum has it, and no option names it.
RESPONSE = Response()
_OURS = frozenset([*NOISES, RESPONSE.name])


def add(noise: Noise, *, replace: bool = False) -> Noise:
    """Add your own noise in this process; a design may then name it.

    First its answers are checked for consistency: draws against the density, the density against
    the cost, the cost against the budget. That finds mistakes, but proves nothing.

    Parameters
    ----------
    noise : Noise
        An object of your class.
    replace : bool, default False
        Replace a noise added earlier under this name; ours are never replaced.

    Returns
    -------
    Noise
        The same object.

    Raises
    ------
    OptionError
        If it is not a noise, its name is taken, or it contradicts itself.
    """
    from dpbandit.privacy.noises.check import contradiction

    if isinstance(noise, Noise) and (why := contradiction(noise)):
        raise OptionError(f"noise {noise.name!r} contradicts itself: {why}")
    return add_to(NOISES, noise, Noise, "noise", ours=_OURS, replace=replace)  # type: ignore[type-abstract]


def find_noise(name: str | Noise, allowed: tuple[str, ...] | None = None) -> Noise:
    """The noise of this name, if an algorithm takes it, or an error that lists what is allowed.

    >>> find_noise("laplace").norm
    1
    """
    if allowed is None and name in (RESPONSE, RESPONSE.name):
        return RESPONSE
    names = tuple(NOISES) if allowed is None else allowed
    word = name.name if isinstance(name, Noise) else name
    if word not in names:
        raise OptionError(
            f"noise {word!r} is not possible here: {nearest(word, names)} "
            f"(allowed: {', '.join(names)})"
        )
    return find_in(NOISES, name, Noise, "noise")  # type: ignore[type-abstract]
