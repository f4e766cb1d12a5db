"""Planted bugs of updates that failed."""

from __future__ import annotations

from bugs.bent import Bent, bent, make, ones, redesigned, stepwise_ratio
from dpbandit.bandit import Bandit


class Failing(Bent):
    """Fails once after a reward went in."""

    def __init__(self, inner):
        super().__init__(inner)
        self.failed = []

    def prepare(self, x, reward, in_public_set=True):
        scale = self.inner.prepare(x, reward, in_public_set)
        if not self.failed:
            self.failed.append(True)
            raise MemoryError
        return scale


class FailingForGood(Failing):
    """And what went in stays: its draft is itself."""

    def draft(self):
        return self

    def prepare(self, x, reward, in_public_set=True):
        try:
            return super().prepare(x, reward, in_public_set)
        except MemoryError:
            self.inner.load_fields(dict(self.inner.fields()))  # nothing is pending any more
            raise


class Stubborn(Bandit):
    """Tries a failed update again."""

    def update(self, contexts, rewards, *, user=None):
        try:
            super().update(contexts, rewards)
        except MemoryError:
            super().update(contexts, rewards)


def plant_retry() -> str:
    """An update that fails after the reward went in, and is tried again."""

    def ratio(kind) -> float:
        return stepwise_ratio(lambda: bent(redesigned(make(), Stubborn), kind), ones(31), [0])

    broken, sound = ratio(FailingForGood), ratio(Failing)
    assert broken > 1.1
    assert sound <= 1 + 1e-9
    return f"{broken:.2f} × the claimed μ when nothing is put back; {sound:.2f} × as it ships"
