"""Every error a caller can meet, by name.

Each message says what was given and what is allowed. Errors are raised before anything changes: the
bandit's statistics, released model and budget stay the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DpbanditError(ValueError):
    """Base class of all errors that this library raises on purpose."""


class ShapeError(DpbanditError):
    """An array of the wrong shape or type."""


class NotFiniteError(DpbanditError):
    """NaN or infinity where a number is needed."""


class NormError(DpbanditError):
    """A context longer than `max_norm`: the noise would no longer cover it."""


class OptionError(DpbanditError):
    """An option outside its range, or one that this algorithm does not have."""


class BudgetError(DpbanditError):
    """A release that would cost more than the remaining privacy budget."""


class HorizonError(DpbanditError):
    """More rewards than the horizon that the noise was scaled for."""


class NoiseError(DpbanditError):
    """Noise that cannot be drawn as asked, for example a real source for a distribution that has none."""


class UnknownAlgorithmError(DpbanditError):
    """A name that is not registered."""


class SaveError(DpbanditError):
    """A file that is not a saved bandit, that this version cannot read, or that cannot be written."""


class RollbackError(SaveError):
    """A saved bandit that is older than one already seen, or that diverged from it: learning on
    would spend twice."""


class ClusterError(DpbanditError):
    """A Ray cluster that cannot be used as it is, or that was lost."""


class LogError(DpbanditError):
    """A log that cannot be read, or lacks the requested columns."""


class StoreError(DpbanditError):
    """A store that cannot be reached, read or written."""


class LeaseError(DpbanditError):
    """Another learner has this bandit: the write is refused."""


class CapError(DpbanditError):
    """A bandit that would exceed the budget shared by all bandits of a store."""


class ServiceError(DpbanditError):
    """A request that the service did not fulfil. `status` is that of its answer; None if none
    came."""

    def __init__(self, words: str, status: int | None = None) -> None:
        super().__init__(words)
        self.status = status


class UnreachableError(ServiceError):
    """No answer within the client's patience. The request may or may not have been done; repeating
    it is safe."""


class AccessError(ServiceError):
    """A key that is missing, not valid, or of another role."""


class RequestError(ServiceError):
    """A request that this service cannot fulfil: the message says what is allowed."""


class DeviceError(DpbanditError):
    """A requested device that is missing, or lacks software: the message says what to install or
    use."""


class PropensityError(DpbanditError):
    """No propensity: given the releases, the algorithm's choice is deterministic."""


class PrivacyWarning(UserWarning):
    """Allowed, but a reviewer would ask about it."""


class LargeDeltaWarning(PrivacyWarning):
    """A δ of 10⁻³ or more without a horizon."""


class RangeWarning(UserWarning):
    """A missing reward_range: noise may be twice as large as necessary."""


class LogWarning(UserWarning):
    """Omitted rows of a log, or clipped weights: the rest may not be representative."""


class ClusterWarning(UserWarning):
    """A cluster whose results are correct, but may differ from this machine's in the last
    digits."""


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
    """A name without case, blanks, hyphens and underscores, which people write differently."""
    return str(name).casefold().translate(dict.fromkeys(map(ord, " -_"), None))
