"""The option `local` of `anytime`: how many of the first rewards are answered by themselves."""

from __future__ import annotations

import math

import numpy as np

from dpbandit.errors import OptionError
from dpbandit.options import Options, whole
from dpbandit.privacy.noise import RESPONSE
from dpbandit.release.local import NEVER, LocalPhase
from dpbandit.types import Matrix

# If arms share no feature. Otherwise learning about one arm helps with the others, and sums are
# soon ahead.
BLOCKS = "blocks"
# In rounds at which an answer teaches as much as a sum would (docs/frontier.md).
LENGTH = 2.0


def local_phase(options: Options, *, numbers: int, budget: float) -> LocalPhase:
    """The phase for the option `local`: 'blocks', 'never', or a number of rewards."""
    epsilon, several = options.need_epsilon(), options.protects.needs_user
    given = options.own("local", NEVER if several else BLOCKS)
    if isinstance(given, str):
        if given not in (BLOCKS, NEVER):
            raise OptionError(
                f"local must be {BLOCKS!r}, {NEVER!r} or a number of rewards, not {given!r}"
            )
        rounds = 0
    else:
        rounds = whole("local", given, least=1, also=f"{BLOCKS!r} or {NEVER!r}")
    if given == NEVER or math.isinf(epsilon):
        return LocalPhase()
    if several and options.protects.cap != 1:
        raise OptionError(
            f"unit={options.unit!r} has no local phase: an answer protects one reward, and the joint "
            f"cost of several answers and sums is not proven; omit local, or give "
            f"local={NEVER!r}"
        )
    if given == BLOCKS:
        if options.public_contexts is not None and not in_blocks(options.public_contexts):
            return LocalPhase()
        noise = budget * RESPONSE.multiplier(epsilon, 1) / 2  # of an answer, in the sums' noise
        rounds = math.floor(LENGTH * numbers / (noise * noise))
        return LocalPhase(min(rounds, 1 << 40), False, epsilon, options.need_delta())
    return LocalPhase(min(rounds, 1 << 40), True, epsilon, options.need_delta())


def in_blocks(contexts: Matrix) -> bool:
    """Whether features fall into at least two groups that no context mixes, and contexts use more
    than one group.

    >>> in_blocks(np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 1.0]])), in_blocks(np.eye(3))
    (True, False)
    """
    used = contexts != 0
    if used[0].all() or (used.sum(axis=1) < 2).all():
        return False
    group = np.zeros(used.shape[1], dtype=bool)
    group[np.argmax(used.any(axis=0))] = True
    while True:
        wider = used[(used & group).any(axis=1)].any(axis=0) | group
        if (wider == group).all():
            return bool((used.any(axis=0) & ~group).any())
        group = wider
