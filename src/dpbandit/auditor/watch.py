"""Watching a step-by-step bandit through its only door, the noise source.

Slower than an engine's trace and more general: it sees any bandit that releases through
`bandit.source`, a broken one included, and everything about it that is public.
"""

from __future__ import annotations

import marshal
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dpbandit.errors import PropensityError
from dpbandit.privacy.noise import Noise, find_noise
from dpbandit.privacy.sources import Pending, Source
from dpbandit.types import Matrix, Vector

Shown = dict[str, str | bytes]  # what is public, by where it is seen

# How often independent noise may look as if a number of it had been used twice, in one stream.
FALSE_ALARMS = 1e-3

# Why a cost is infinite.
OTHER_RELEASES = "the number of releases depends on a reward"
OTHER_PUBLIC = "public state depends on a reward"
OTHER_ERROR = "an error depends on a reward"
OTHER_SCALE = "a noise scale depends on a reward"
NO_NOISE = "a value is released without noise"
TWICE = "a number of the noise is used twice"


@dataclass
class Release:
    """One release as the trusted side sees it."""

    noise: Noise
    pending: Pending
    scale: float
    noisy: Vector
    index: int

    @property
    def value(self) -> Vector:
        """The clean value, as floats."""
        return self.pending.values

    def cost_of(self, other: Release) -> float:
        """What telling this release from a neighbour's costs; its noise must be the same.

        Whole numbers are subtracted as such, and the difference of two floats is rounded once: what
        is left of rounding is some 1e-15 of the cost, at any size of the values.
        """
        shift = other.value - self.value
        mine, theirs = self.pending.whole, other.pending.whole
        if mine is not None and theirs is not None:
            apart = [b - a for a, b in zip(mine, theirs, strict=True)]
            shift = np.array(apart, dtype=np.float64) * self.pending.step
        return cost(self.noise, shift, self.scale)

    def has_noise_of(self, other: Release) -> bool:
        """Whether kind and scale of the noise, and the number of values, are those of the other."""
        same = self.noise is other.noise and len(self.value) == len(other.value)
        return same and self.scale == other.scale  # never for NaN


@dataclass
class Transcript:
    """Everything one run released, and what was public beside it after every round.

    `starts` is noise that a pan-private bandit put into its memory. It is not shown, but a
    neighbour must be told the same.
    """

    releases: list[Release] = field(default_factory=list)
    starts: list[tuple[int, Vector]] = field(default_factory=list)
    public: list[Shown] = field(default_factory=list)
    errors: list[Exception | None] = field(default_factory=list)  # of every round, or none
    # What a release costs in the ledger's currency, if its noise says so much.
    counted: Callable[[Noise, float], float] = lambda noise, cost: cost

    @property
    def uses_noise_twice(self) -> bool:
        """Whether a number of the noise comes again."""
        made = [one for one in self.releases if one.scale > 0 and one.noise.has_density]
        if not made:
            return False
        return used_twice(
            np.concatenate([release.noisy for release in made]),
            np.concatenate([release.value for release in made]),
            np.concatenate([np.full(len(release.value), release.scale) for release in made]),
        )


class Watch:
    """A source that records what it hands on.

    With a script it answers with that transcript's noisy values, whatever the value is.
    """

    kind: Literal["real", "simulation"] = "simulation"

    def __init__(self, inner: Source, script: Transcript | None = None) -> None:
        self.inner = inner
        self.script = script or Transcript()
        self.transcript = Transcript()

    def release(
        self, noise: Noise | str, pending: Pending, *, scale: float, shift: float, index: int
    ) -> Vector:
        kind = noise if isinstance(noise, Noise) else find_noise(noise)
        seen = self.transcript
        if index < 0:  # stays in memory
            number = len(seen.starts)
            told = [noisy for _, noisy in self.script.starts[number : number + 1]]
        else:
            number = len(seen.releases)
            told = [release.noisy for release in self.script.releases[number : number + 1]]
        # A release of another size is of another kind: `joint_cost` tells them apart.
        if told and told[0].shape == pending.values.shape:
            noisy = told[0]
        elif scale > 0:
            noisy = self.inner.release(kind, pending, scale=scale, shift=shift, index=abs(index))
        else:
            noisy = pending.values
        if index < 0:
            seen.starts.append((index, noisy.copy()))
        else:
            kept = pending._replace(values=pending.values.copy())
            seen.releases.append(Release(kind, kept, scale, noisy.copy(), index))
        return noisy.copy()

    def take_back(self, made: int, started: int, rounds: int) -> None:
        """Forget what a failed update drew after so many, in rounds that it did not finish.

        Nobody has seen it.
        """
        seen = self.transcript
        seen.releases[made:] = [one for one in seen.releases[made:] if one.index <= rounds]
        # A start's number is −(64·round + level).
        seen.starts[started:] = [one for one in seen.starts[started:] if -one[0] // 64 <= rounds]


def record(
    make: Callable[[], Any],
    xs: Matrix,
    rewards: Sequence[float] | Vector,
    *,
    users: Sequence[str] | None = None,
    script: Transcript | None = None,
    between: Callable[[Any, int], Any] | None = None,
) -> Transcript:
    """Run a fresh bandit over played contexts and raw rewards.

    Parameters
    ----------
    make
        Makes the bandit.
    xs, rewards
        What it learns, one row after the other.
    users
        Whose rewards they are, where the bandit wants to know.
    script
        Another run, whose noisy values are released instead of new ones.
    between
        `between(bandit, t)` may replace the bandit after round t.
    """
    bandit = make()
    watch = Watch(bandit.source, script)
    bandit.source = watch
    if (release := getattr(bandit, "release", None)) is not None:
        watch.transcript.counted = release.counted
    slate = fixed_slate(bandit)
    for t, (x, reward) in enumerate(zip(xs, rewards, strict=True)):
        whose, failed = users if bandit.counts_users else None, None
        try:
            bandit.update(x, float(reward), user=None if whose is None else whose[t])
        except Exception as error:  # whoever calls sees it, so it must not depend on a reward
            failed = error
        watch.transcript.errors.append(failed)
        if between is not None:
            bandit = between(bandit, t)
            bandit.source = watch
        watch.transcript.public.append(shown(bandit, slate))
    return watch.transcript


def fixed_slate(bandit: Any) -> Matrix:
    """Arms that are offered after every round: opposite ones, and some in between."""
    dim, longest = bandit.dim, bandit.options.max_norm
    axes = np.eye(dim)[: min(dim, 8)]
    drawn = np.random.default_rng(dim).normal(size=(8, dim))
    drawn *= 0.5 / np.linalg.norm(drawn, axis=1, keepdims=True)
    slate = np.concatenate([axes, -axes, drawn]) * longest
    if bandit.l1_limit is not None:
        sizes = np.abs(slate).sum(axis=1, keepdims=True)
        slate *= np.minimum(1.0, bandit.l1_limit / sizes)
    return np.ascontiguousarray(bandit.within(slate))


def shown(bandit: Any, slate: Matrix) -> Shown:
    """All that anyone may see of a bandit now: with the noisy values fixed, no reward may show."""
    model = bandit.model()
    # What `export` writes; its claim stands in what was spent.
    record = [model.round, model.policy.record(model.view, model.alpha)]
    seen: Shown = {
        # Bytes, because NaN is not equal to itself, in the version without memory addresses.
        "the exported model": marshal.dumps(record, 2),
        "the arms that it picks": str(bandit.select(slate, k=len(slate)).tolist()),
        "repr": repr(bandit),
        "what was spent": str(bandit.spent),
        "its counters": f"{bandit.rounds} {bandit.over_cap} {sorted(bandit.user_counts.items())}",
        "the ledger": f"{bandit.ledger}",
    }
    with suppress(PropensityError):  # policies that draw no lots have none
        seen["propensities"] = str(model.propensities(slate[:2]).probabilities.tolist())
    return seen


def difference(one: Shown, two: Shown) -> str:
    """Why what is public of two neighbours differs; empty if it does not."""
    if one == two:
        return ""
    parts = [part for part in one if one[part] != two.get(part)]
    return f"{OTHER_PUBLIC}: in {' and '.join(parts) or 'what there is to see'}"


def joint_cost(one: Transcript, two: Transcript) -> tuple[float, str]:
    """The total cost over all releases of telling `two` from `one`, and why if it is infinite.

    `two` was scripted with `one`'s noisy values. All that is public beside them must be the same.
    An error that both met is raised.
    """
    for failed, other in zip(one.errors, two.errors, strict=True):
        if repr(failed) != repr(other):
            return math.inf, f"{OTHER_ERROR}: {failed!r} and {other!r}"
        if failed is not None:
            raise failed
    if len(one.releases) != len(two.releases):
        return math.inf, OTHER_RELEASES
    for mine, theirs in zip(one.public, two.public, strict=True):
        if why := difference(mine, theirs):
            return math.inf, why
    if one.uses_noise_twice:
        return math.inf, TWICE
    return cost_of_releases(one, two)


def cost_of_releases(one: Transcript, two: Transcript) -> tuple[float, str]:
    """The same of as many releases in both, and of nothing beside them."""
    costs = []
    for a, b in zip(one.releases, two.releases, strict=True):
        if not a.has_noise_of(b):
            return math.inf, OTHER_SCALE
        costs.append(one.counted(a.noise, a.cost_of(b)))
    total = math.fsum(costs)
    return total, "" if math.isfinite(total) else NO_NOISE


def cost(noise: Noise, shift: Vector, scale: float) -> float:
    """`noise.cost` where squares of shift and scale would vanish or overflow too.

    >>> round(cost(find_noise("gaussian"), np.array([3e-170]), 2e-170), 9)
    2.25
    """
    if scale > 0 and not 1e-100 < scale < 1e100:
        power = -math.frexp(scale)[1]
        shift, scale = np.ldexp(shift, power), math.ldexp(scale, power)
    return noise.cost(shift, scale)


def used_twice(noisy: Vector, values: Vector, scales: Vector) -> bool:
    """Whether two of these numbers carry the same noise: their difference would be clean.

    All numbers of all releases are compared with each other, so noise whose windows overlap is
    seen too. Numbers agree up to what rounding makes of them, with either sign. Those whose
    rounding leaves too few digits to tell chance from repetition are left out: with densities of at
    most 1, as our noises have, a false alarm has probability at most `FALSE_ALARMS`.

    >>> noise = np.array([0.3, -1.2, 0.7, 0.3])
    >>> used_twice(noise + 5.0, np.full(4, 5.0), np.ones(4))
    True
    >>> used_twice(noise[:3] + 5.0, np.full(3, 5.0), np.ones(3))
    False
    """
    numbers = np.abs(noisy - values) / scales
    rounding = 2.0**-50 * (1 + (np.abs(noisy) + np.abs(values)) / scales)
    fine = rounding <= FALSE_ALARMS / max(len(numbers), 1) ** 2
    order = np.argsort(numbers[fine])
    near, margins = numbers[fine][order], rounding[fine][order]
    return bool((np.diff(near) <= margins[1:] + margins[:-1]).any())
