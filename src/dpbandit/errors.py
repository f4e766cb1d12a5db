"""Every error a caller can meet, by name.

Each message says what was given and what is allowed. An error is raised before anything changes: the bandit's
statistics, its released model and its budget are the same after as before.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DpbanditError(ValueError):
    """Base of all errors this library raises on purpose."""


class ShapeError(DpbanditError):
    """An array of the wrong shape or type."""


class NotFiniteError(DpbanditError):
    """NaN or infinity where a number is needed."""


class NormError(DpbanditError):
    """A context longer than `max_norm`: the noise would no longer cover it."""


class OptionError(DpbanditError):
    """An option outside its range, or one that this algorithm does not have."""


class BudgetError(DpbanditError):
    """A release that would cost more than is left of the privacy budget."""


class HorizonError(DpbanditError):
    """More rewards than the horizon the noise was scaled for."""


class NoiseError(DpbanditError):
    """Noise that cannot be drawn as asked, for example a real source for a distribution that has none."""


class UnknownAlgorithmError(DpbanditError):
    """A name that is not registered."""


class SaveError(DpbanditError):
    """A file that is not a saved bandit, or not one this version can read."""


class RollbackError(SaveError):
    """A saved bandit that is older than one already seen, or that went another way: going on would spend twice."""


class ClusterError(DpbanditError):
    """A Ray cluster that cannot be used as it is, or that was lost."""


class LogError(DpbanditError):
    """A log that cannot be read, or has not the columns asked for."""


class StoreError(DpbanditError):
    """A store that cannot be reached, read or written."""


class LeaseError(DpbanditError):
    """Another learner has this bandit: what was about to be written is refused."""


class CapError(DpbanditError):
    """A bandit that does not fit under the budget that all bandits of a store share."""


class ServiceError(DpbanditError):
    """A service that was asked and did not do it. `status` is that of its answer; None if none came."""

    def __init__(self, words: str, status: int | None = None) -> None:
        super().__init__(words)
        self.status = status


class UnreachableError(ServiceError):
    """No answer within the client's patience. What was asked may or may not have been done; asking again is safe."""


class AccessError(ServiceError):
    """A key that is missing, not in force, or of another role."""


class RequestError(ServiceError):
    """Something this service cannot do as asked: the message says what is allowed."""


class DeviceError(DpbanditError):
    """A device that was asked for and is not there, or lacks what it needs: the message says what to install or use."""


class PropensityError(DpbanditError):
    """A propensity of an algorithm that draws no lots: given what was released, its arm is certain."""


class PrivacyWarning(UserWarning):
    """Allowed, but a reviewer would ask about it."""


class LargeDeltaWarning(PrivacyWarning):
    """A δ of 10⁻³ or more, where nobody has said how many rewards share it."""


class RangeWarning(UserWarning):
    """A range of rewards that was not given: noise may be twice what it need be."""


class LogWarning(UserWarning):
    """Rows of a log that are left out, or weights that are brought down: the rest may say something else."""


class ClusterWarning(UserWarning):
    """A cluster that gives right results, but perhaps not to the last digit those of this machine."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name.

    >>> nearest("lincub", ["linucb", "random"])
    "did you mean 'linucb'?"
    >>> nearest("Lin UCB", ["linucb", "random"])
    "did you mean 'linucb'?"
    >>> nearest("xyz", ["linucb", "random"])
    'known: linucb, random'
    """
    names = sorted(known)
    plain = {_plain(one): one for one in names}
    close = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.5)
    return f"did you mean {plain[close[0]]!r}?" if close else "known: " + ", ".join(names)


def _plain(name: object) -> str:
    """A name without what people write in different ways: case, blanks, hyphens, underscores."""
    return str(name).casefold().translate(dict.fromkeys(map(ord, " -_"), None))
