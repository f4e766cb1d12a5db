"""The parts of a bandit: a learner, a release, a noise, a policy, a claim and a ledger.

An algorithm's file returns a design and nothing else; `Bandit` runs it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpbandit.errors import NoiseError, OptionError
from dpbandit.options import Options
from dpbandit.policies import Policy, find_policy
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.noise import Noise, find_noise
from dpbandit.privacy.sources import Real, Simulation, Source
from dpbandit.privacy.unit import REWARD_BITS
from dpbandit.reference.random import CONTEXTS, START, TIES, derive_key
from dpbandit.release import RELEASES, Release
from dpbandit.types import Matrix, Vector

# The width of the bonus where none is given.
DEFAULT_ALPHA = 0.3


@dataclass(frozen=True)
class Design:
    """The choices of one bandit, each an object with all its consequences."""

    learner: str  # the learner's name in the engines
    settings: dict[str, Any]  # and what it is given, in plain values
    release: Release
    noise: Noise
    policy: Policy
    claim: Claim
    ledger: Ledger
    # What alpha='theory' is: α_t in rounds t, or the same in all of them.
    theory: Callable[[Vector], Vector] | float
    clips: bool = True
    # A person's rewards are whole numbers of width·2⁻ᵇⁱᵗˢ.
    reward_bits: int = REWARD_BITS
    alpha: float = DEFAULT_ALPHA  # where none is given
    l1_limit: float | None = None
    one_hot: bool = False  # contexts may only name arms
    contexts_are_private: bool = False  # then no message may say what is in one
    is_private: bool = True  # whether what it shows of rewards has noise
    in_the_clear: bool = False  # whether it shows rewards without any
    # Contexts that the noise was scaled for; no rows: all that are allowed.
    public_set: Matrix = field(default_factory=lambda: np.empty((0, 0)))
    # Whether a clean value depends on what was released before, not on the rewards alone.
    values_depend_on_releases: bool = False
    # Whether its items are instruments times a move of at most 1, in the engine's field of that name,
    # under Gaussian noise: a user's may then be counted by where they point.
    has_instruments: bool = False

    def __post_init__(self) -> None:
        """Engines find parts by name: what they find must be what is named here, nothing else."""
        find_policy(self.policy)
        find_noise(self.noise)
        release = self.release
        if release.noise is not self.noise:
            raise OptionError(f"release {release.name!r} is priced for another noise")
        if release.in_core and RELEASES.get(release.name) is not type(release):
            raise OptionError(f"the core has no release {release.name!r}: set in_core = False")
        if not release.in_core and self.settings.get("release") is not release:
            raise OptionError(
                f"only Python has the release {release.name!r}, so the engine must be given it as "
                "`release`: see `PythonRelease`"
            )

    @property
    def not_in_core(self) -> list[str]:
        """The parts that only the reference can run, in words."""
        parts = (("policy", self.policy), ("noise", self.noise), ("release", self.release))
        return [f"{kind} {part.name!r}" for kind, part in parts if not part.in_core]

    def fixed(self, alpha: float | str) -> float | None:
        """The width of the bonus, where it is the same in all rounds."""
        if not isinstance(alpha, str):
            return float(alpha)
        return self.theory if isinstance(self.theory, float) else None

    def source(self, options: Options) -> Source:
        """Real noise without a seed, a simulation with one."""
        if options.seed is not None:
            return Simulation(options.seed)
        if self.is_private and not self.noise.has_real_source:
            raise NoiseError(
                f"there is no exact sampler for {self.noise.name!r} noise: give a seed for a "
                "simulation, or use 'laplace' or 'gaussian'"
            )
        return Real()

    def spec(
        self, options: Options, *, alpha: float, ties_key: int, contexts_key: int
    ) -> dict[str, Any]:
        """The design in plain values: what an engine is made from."""
        low, high = options.reward_range
        return {
            "learner": self.learner,
            "policy": self.policy.name,
            "noise": self.noise.name,
            "dim": options.dim,
            "max_norm": options.max_norm,
            # Not 0 for "none": contexts that are all zeros have that limit.
            "l1_limit": math.inf if self.l1_limit is None else self.l1_limit,
            "one_hot": self.one_hot,
            "low": low,
            "high": high,
            "clips": self.clips,
            "horizon": options.horizon or 0,
            "alpha": alpha,
            "ties_key": ties_key,
            "contexts_key": contexts_key,
            "context_noise": options.context_noise,
            "holdout": options.holdout,
            **self.settings,
        }


def keys_for(seed: int | None) -> dict[int, int]:
    """Ties and perturbed contexts protect nobody, so any unpredictable key will do."""
    if seed is None:
        return {TIES: secrets.randbits(64), CONTEXTS: secrets.randbits(64), START: 0}
    return {purpose: derive_key(seed, purpose) for purpose in (TIES, CONTEXTS, START)}
