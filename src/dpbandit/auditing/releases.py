"""Watching a step-by-step bandit through its only door, the noise source.

Slower than the compiled trace and more general: it sees any bandit that releases through `bandit.source`, a broken one
included, and everything about it that is public.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpbandit.auditing.kernels import release_cost
from dpbandit.noise import CODES, Simulation, Source

Vector = NDArray[np.float64]


@dataclass
class Release:
    """One release as the trusted side sees it."""

    noise: str
    value: Vector
    scale: float
    noisy: Vector


@dataclass
class Transcript:
    """Everything one run released, and what was public beside it after every round."""

    releases: list[Release] = field(default_factory=list)
    public: list[str] = field(default_factory=list)


class Watch:
    """A source that records. With `script`, it answers with that transcript's noisy values, whatever the value is."""

    def __init__(self, inner: Source | None = None, script: Transcript | None = None) -> None:
        self.inner = inner if inner is not None else Simulation(seed=0)
        self.script = script
        self.transcript = Transcript()

    kind: Literal["real", "simulation"] = "simulation"

    def release(self, noise: str, value: Vector, *, scale: float, shift: float, index: int) -> Vector:
        if index < 0:  # stays in memory: not part of the transcript
            return self.inner.release(noise, value, scale=scale, shift=shift, index=-index)
        number = len(self.transcript.releases)
        if self.script is not None and number < len(self.script.releases):
            noisy = self.script.releases[number].noisy
        elif scale > 0:
            noisy = self.inner.release(noise, value, scale=scale, shift=shift, index=index)
        else:
            noisy = value.copy()
        self.transcript.releases.append(Release(noise, value.copy(), scale, noisy.copy()))
        return noisy.copy()


def record(
    make: Callable[[], Any],
    xs: NDArray[np.float64],
    rewards: Sequence[float] | Vector,
    *,
    users: Sequence[str] | None = None,
    script: Transcript | None = None,
    inner: Source | None = None,
    between: Callable[[Any, int], Any] | None = None,
) -> Transcript:
    """Run a fresh bandit over played contexts and raw rewards. `between(bandit, t)` may replace it after round t."""
    bandit = make()
    watch = Watch(inner, script)
    bandit.source = watch
    for t, (x, reward) in enumerate(zip(xs, rewards, strict=True)):
        bandit.update(x, float(reward), **({} if users is None else {"user": users[t]}))
        if between is not None:
            bandit = between(bandit, t)
            bandit.source = watch
        # What a ranker would be given now: with the noisy values fixed, no reward may show in it.
        watch.transcript.public.append(json.dumps([bandit.rounds, bandit._released()]))
    return watch.transcript


def joint_cost(one: Transcript, two: Transcript) -> tuple[float, str]:
    """The total cost over all releases of telling `two` from `one`, and why it is infinite when it is.

    `two` was scripted with `one`'s noisy values. Everything public beside the noise must be the same in both.
    """
    if len(one.releases) != len(two.releases):
        return math.inf, "the number of releases depends on a reward"
    if one.public != two.public:
        return math.inf, "public state depends on a reward"
    total = 0.0
    for a, b in zip(one.releases, two.releases, strict=True):
        if a.scale != b.scale or a.noise != b.noise:
            return math.inf, "a noise scale depends on a reward"
        total += release_cost(CODES[a.noise], a.value, b.value, a.scale)
    return total, "" if math.isfinite(total) else "a value is released without noise"
