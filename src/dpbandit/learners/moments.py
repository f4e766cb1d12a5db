"""Noise on sums of x·r, published over time by one of the releases.

Items are centred and scaled, so that they have norm at most ½: ((r − centre)/width)·(x/max_norm).
The moments are then width·max_norm·(the noisy sum) + centre·Σx, and Σx is public.
"""

from __future__ import annotations

import math

import numpy as np

from dpbandit.learners.learner import Clock, Pending, Spec
from dpbandit.learners.ridge import Ridge, RidgeLearner
from dpbandit.privacy.grid import to_whole
from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.release import RELEASES, Release, Sums
from dpbandit.release.episodes import EpisodeSums
from dpbandit.release.honaker import HonakerSums
from dpbandit.release.pan_private import PanPrivateSums
from dpbandit.release.toeplitz import ToeplitzSums
from dpbandit.release.tree import TreeSums
from dpbandit.types import Matrix, Vector

TREES = {"tree": TreeSums, "pan-private": PanPrivateSums, "honaker": HonakerSums}
# A context this small after shaping says nothing and is left out.
TINY = 1e-150


class NoisyMoments(RidgeLearner, Holder):
    """Noise on sums of x·r, or of u·r with u = Px/max(‖Px‖, floor) where a shape P is given.

    Shaped sums estimate Σ u·r = Σ u·xᵀθ. Multiplied by P⁻¹ that is (Σ xxᵀ/max(‖Px‖, floor))·θ:
    `weighted` has that matrix.
    """

    keeps_moments = False
    grown = Number(float)  # episodes: how much log det A has grown since the last release

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        self.sums = self._new_sums()
        self.pan_private = self.sums if isinstance(self.sums, PanPrivateSums) else None
        if isinstance(self.sums, HonakerSums):
            self.pending_size = self.dim * int(spec["levels"])
        self.anchor = np.eye(self.dim) / float(spec["ridge"])  # episodes: A⁻¹ at the last release
        self.grown = 0.0
        # A hair less than asked for: det A may double exactly (a unit context and λ = 1), and then
        # rounding must not decide whether the episode is over.
        self.growth = float(spec["growth"]) * (1.0 - 1e-9)
        self.shape, self.unshape = np.asarray(spec["shape"]), np.asarray(spec["unshape"])
        self.floor = float(spec["floor"])
        # ‖Px‖ is about √d for a whitener P, so this is λ on the scale of the weighted sums.
        strength = float(spec["ridge"]) / max(math.sqrt(self.dim), self.floor)
        self.weighted = Ridge(self.dim, strength) if len(self.shape) else None

    def _new_sums(self) -> Sums:
        release, levels = self.spec["release"], int(self.spec["levels"])
        unknown = bool(self.spec["unknown_horizon"])
        if isinstance(release, Release):
            sums: Sums = release.sums(self.dim)  # type: ignore[attr-defined] # the spec was checked
            return sums
        if release == "honaker" and unknown:
            raise ValueError("release 'honaker' needs a horizon")
        if release in TREES:
            return TREES[release](self.dim, levels=levels, unknown_horizon=unknown)
        if release == "toeplitz":
            rates, weights = np.ravel(self.spec["rates"]), np.ravel(self.spec["weights"])
            return ToeplitzSums(self.dim, rates=rates, weights=weights)
        if release == "episodes":
            return EpisodeSums(self.dim)
        raise ValueError(f"release {release!r} cannot publish sums of moments")

    def _scale_at(self, t: int) -> float:
        """The noise of what is published in round t."""
        release = self.spec["release"]
        if isinstance(release, Release):
            return float(release.scale(t))  # type: ignore[attr-defined] # the spec was checked
        if isinstance(self.sums, (ToeplitzSums, EpisodeSums)):
            return self.scale(1)
        if isinstance(self.sums, TreeSums):
            return self.scale(self.place(t).levels)
        raise ValueError(f"nobody said what noise the release {release!r} has")

    def matrix(self, alpha: float) -> Matrix:
        return self.anchor if isinstance(self.sums, EpisodeSums) else self.ridge.inverse

    def quiet(self, x: Vector) -> bool:
        if not isinstance(self.sums, EpisodeSums):
            return False
        quadratic = float(x @ self.ridge.inverse @ x)
        # So close to the end it may be the end: then the careful way is taken.
        return self.grown + math.log1p(quadratic) < self.growth * (1.0 - 1e-9)

    def prepare(self, x: Vector, reward: float) -> Pending | None:
        t = self.clock.rounds
        _step, quadratic, _due = self.ridge.add_context(x)
        if self.weighted is None:
            u = x / float(self.spec["max_norm"])
            self.context_sum += x
        else:
            u = self._shaped(x, self.weighted)
            self.context_sum += u
        numbers = self.sums.add(t, to_whole((reward - self.centre) / self.width * u))
        if isinstance(self.sums, EpisodeSums):
            self.grown += math.log1p(quadratic)
            if self.grown >= self.growth:
                self.grown = 0.0
                numbers = self.sums.end()
        if numbers is None:
            return None
        if len(numbers) != self.pending_size:
            raise ValueError(f"{len(numbers)} numbers are shown, not {self.pending_size}")
        return Pending(numbers, self._scale_at(t))

    def _shaped(self, x: Vector, weighted: Ridge) -> Vector:
        """u, of norm at most 1; the same weight for this round goes into the weighted matrix."""
        image: Vector = self.shape @ x
        largest = float(np.abs(image).max())
        # Divided first: squares of tiny numbers vanish, and u would be too long.
        length = largest * float(np.linalg.norm(image / largest)) if largest >= TINY else 0.0
        size = max(length, self.floor)
        weight = 1.0 / size if size >= TINY else 0.0
        weighted.add_context(x * math.sqrt(weight))
        return image * weight

    def commit(self, noisy: Vector) -> None:
        self._conclude_from(self.sums.publish(self.clock.rounds, noisy))

    def conclude(self) -> bool:
        # What a log left is a constant part of every sum to come.
        release = self.spec["release"]
        kind = release if isinstance(release, Release) else RELEASES[release]
        base = self.sums.fields()[kind.log_field]
        self.ridge.solve()
        if self.weighted is not None:
            self.weighted.solve()
        self._conclude_from(base)
        return True

    def _conclude_from(self, prefix: Vector) -> None:
        """θ from the noisy sum of all items."""
        if isinstance(self.sums, EpisodeSums):
            self.anchor[:] = self.ridge.inverse
        if self.weighted is None:
            unit = self.width * float(self.spec["max_norm"])
            moments = unit * prefix + self.centre * self.context_sum
            self.theta[:] = self.ridge.inverse @ moments
        else:
            moments = self.unshape @ (self.width * prefix + self.centre * self.context_sum)
            self.theta[:] = self.weighted.inverse @ moments

    def fields(self) -> Fields:
        found = {**super().fields(), **self.sums.fields()}
        if isinstance(self.sums, EpisodeSums):
            found |= {"anchor": self.anchor, **self.numbers}
        if self.weighted is not None:
            found |= {f"weighted_{name}": field for name, field in self.weighted.fields().items()}
        return found

    def loaded(self) -> None:
        super().loaded()
        if self.weighted is not None:
            self.weighted.settle()
