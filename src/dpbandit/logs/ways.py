"""How a log enters each kind of learner: what the pass must add up, and where the sums go."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandit import Bandit
from dpbandit.engine import Engine
from dpbandit.learners.prior import LOOKED_AT
from dpbandit.logs.sums import Recipe, Sums, add, symmetric
from dpbandit.release.pair import most_move
from dpbandit.types import Matrix, Vector

Fields = dict[str, NDArray[Any]]

# A log's contexts stand for this many slates of those offered later: enough to start from, few
# enough to be outvoted.
STANDS_FOR = LOOKED_AT


class Start(NamedTuple):
    """What was decided before the log is read."""

    recipe: Recipe
    # How the log's contexts are spread, in the engine's fields: public, and read off some of them.
    spread: Fields | None = None


class Found(NamedTuple):
    """What the pass over the log found, and the one release of it."""

    sums: Sums
    noisy: Vector
    scale: float  # of the noise
    persons: int = 0  # of how many, where that is counted and public


class Way(ABC):
    """How a log enters one kind of learner."""

    @abstractmethod
    def prepare(self, bandit: Bandit, sample: Matrix, tolerance: float) -> Start:
        """What to add up. `sample` are contexts of the log."""

    @abstractmethod
    def put(self, bandit: Bandit, engine: Engine, start: Start, found: Found) -> None:
        """Put the noisy sum, and what is public, where `engine` keeps what was before round 1."""


class InTheClear(Way):
    """Nothing is private: the moments go in as they are."""

    def prepare(self, bandit: Bandit, sample: Matrix, tolerance: float) -> Start:
        return Start(_recipe(bandit, tolerance, middle=0.0, width=1.0, whole=False))

    def put(self, bandit: Bandit, engine: Engine, start: Start, found: Found) -> None:
        fields, sums = engine.fields(), found.sums
        fields["moments"][:] = sums.moments
        fields["moments_low"][:] = sums.moments_low
        _add_gram(fields, "", sums.gram, sums.gram_low)
        _done(engine.conclude())


class IntoMoments(Way):
    """The noisy sum is part of every released sum to come, and A begins with the log's."""

    def prepare(self, bandit: Bandit, sample: Matrix, tolerance: float) -> Start:
        settings = bandit.design.settings
        if not len(settings["shape"]):
            return Start(_recipe(bandit, tolerance))
        shape = np.ascontiguousarray(settings["shape"])
        more = {"whitener": shape, "floor": float(settings["floor"]), "power": 0}
        return Start(_recipe(bandit, tolerance, **more))

    def put(self, bandit: Bandit, engine: Engine, start: Start, found: Found) -> None:
        fields, sums, whitener = engine.fields(), found.sums, start.recipe.whitener
        contexts = sums.first + sums.first_low
        if len(whitener):
            _add_gram(fields, "", sums.second, sums.second_low)
            _add_gram(fields, "weighted_", sums.gram, sums.gram_low)
            contexts = whitener @ contexts  # what is centred is u, not x
        else:
            _add_gram(fields, "", sums.gram, sums.gram_low)
        fields["context_sum"][:] = contexts
        fields[bandit.release.log_field][:] = self.kept(bandit, found.noisy)
        _done(engine.conclude())

    def kept(self, bandit: Bandit, noisy: Vector) -> Vector:
        """The noisy sum in the units of the engine's field: those of items."""
        return noisy


class IntoParameter(IntoMoments):
    """Nodes are kept in the units of x·r, because A is multiplied in when they are published."""

    def kept(self, bandit: Bandit, noisy: Vector) -> Vector:
        return noisy * (bandit.options.width * bandit.options.max_norm)


class IntoFilter(Way):
    """One release of the Kalman filter, which shows all of the log's items and keeps nothing."""

    def prepare(self, bandit: Bandit, sample: Matrix, tolerance: float) -> Start:
        engine, spread = bandit.engine.copy(), None
        if bandit.options.public_contexts is None:
            spread = _spread(sample)
            _look(engine, spread)
        fields = engine.fields()
        factor = np.linalg.inv(np.triu(fields["factor"]).T)
        # Rewards keep their whole range, not the window around a prediction: there is none yet, and
        # a long log would make clipping's bias plain.
        more = {
            "constant": True,
            "size": float(fields["context_size"][0]),
            "whitener": np.ascontiguousarray(np.tril(factor)),
            "triangular": True,
            "power": 2,
        }
        return Start(_recipe(bandit, tolerance, **more), spread)

    def put(self, bandit: Bandit, engine: Engine, start: Start, found: Found) -> None:
        recipe, sums = start.recipe, found.sums
        if start.spread is not None:
            _look(engine, start.spread)
        d, weight, factor = recipe.dim, 1 / recipe.width, recipe.whitener
        gram = symmetric(sums.gram + sums.gram_low)
        second = symmetric(sums.second + sums.second_low)
        units = np.append(np.full(d, recipe.size), 1.0)
        fields = engine.fields()
        fields["design"][:] = weight * (factor @ gram) * units
        fields["offset"][:] = weight * recipe.middle * (factor @ gram[:, d])
        fields["spread"][:] = weight**2 * (factor @ second @ factor.T)
        free = len(engine.fields()["sums_low"][0]) - len(found.noisy)  # numbers that no log has
        _done(engine.start(np.append(found.noisy, np.zeros(free)), found.scale))


class IntoPair(Way):
    """Contexts are private too: moments and directions under no whitener, shown whole, once.

    With u = (x/L, 1)/√2 a row is v·u/s and η·uuᵀ/s. As |v| ≤ ½ and ‖u‖ ≤ 1 it moves by at most
    √(1 + 2η²)/s, which is 1. η is such that both are the learner's own items of the first whitener,
    but for one factor. Of a person with any number of rows v is what the cap leaves of r/2C, and the
    Gram matrix has the first row; the factor is 1, so that rows and rounds add up (docs/privacy.md).
    """

    def prepare(self, bandit: Bandit, sample: Matrix, tolerance: float) -> Start:
        eta, size, _ = self._sizes(bandit)
        k = bandit.dim + 1
        more = {
            "constant": True,
            "size": bandit.options.max_norm * (1.0 + tolerance),  # so that no ‖u‖ is above 1
            "whitener": np.eye(k) / (math.sqrt(2.0) * size),
            "triangular": True,
            "floor": 1.0,
            "directions": eta * size,
        }
        if self._persons(bandit):
            more |= {"middle": 0.0, "width": self._width(bandit)}
        return Start(_recipe(bandit, tolerance, **more))

    def put(self, bandit: Bandit, engine: Engine, start: Start, found: Found) -> None:
        eta, size, factor = self._sizes(bandit)
        noisy, learned, fields = found.noisy * factor, found.sums.learned, engine.fields()
        # As many rounds with ‖u‖ = 1 would have this trace: read off the noisy matrix, within what
        # ½ ≤ ‖u‖² ≤ 1 leaves possible.
        k = bandit.dim + 1
        diagonal = noisy[k + np.cumsum([0, *range(k, 1, -1)])]
        shown = found.persons if self._persons(bandit) else learned
        rounds = float(diagonal.sum()) / (eta / size * factor)
        rounds = min(max(rounds, 0.5 * shown), float(shown))
        if self._persons(bandit):
            fields["people"][0] = max(round(rounds), 1)
            rounds *= learned / shown
            fields["estimate"][:] = 0.0  # what was taken off rewards
        fields["before"][0] = rounds
        _done(engine.start(noisy, found.scale * factor))

    def _persons(self, bandit: Bandit) -> bool:
        return bool(bandit.design.settings["persons"])

    def _width(self, bandit: Bandit) -> float:
        """What a reward is divided by."""
        reach, width = bandit.design.settings["reach"], bandit.options.width
        return float(2.0 * reach if self._persons(bandit) else width)

    def _sizes(self, bandit: Bandit) -> tuple[float, float, float]:
        """η, s, and what an item is multiplied by to become the learner's own."""
        settings = bandit.design.settings
        # The learner's a is u·e/(2R·s₀), and its g is η₀·uuᵀ/s₀.
        per_moment = self._width(bandit) / (2.0 * settings["reach"])
        etas = settings["first_eta2"], settings["first_eta2"], settings["later_eta2"]
        eta = math.sqrt(settings["first_eta2"]) / per_moment
        size = math.sqrt(1.0 + 2.0 * eta * eta)
        own = math.sqrt(most_move(*etas, persons=self._persons(bandit)))
        return eta, size, per_moment * size / own


# By the learner, and where its noise sits. What is not here cannot start from a log.
WAYS: dict[tuple[str, str], Way] = {
    ("ridge", "nothing"): InTheClear(),
    ("ridge", "moments"): IntoMoments(),
    ("ridge", "own"): IntoParameter(),
    ("filter", ""): IntoFilter(),
    ("pair", ""): IntoPair(),
}


def way_of(bandit: Bandit) -> Way | None:
    """How a log enters this bandit; None: nobody has said how."""
    site = str(bandit.design.settings.get("site", ""))
    return WAYS.get((bandit.design.learner, site))


def _recipe(bandit: Bandit, tolerance: float, **more: Any) -> Recipe:
    """What all ways have in common; private items are centred and scaled."""
    options = bandit.options
    low, high = options.reward_range
    usual: dict[str, Any] = {"middle": 0.5 * (low + high), "width": high - low, "whole": True}
    return Recipe(
        backend=bandit.backend,
        dim=options.dim,
        max_norm=options.max_norm,
        tolerance=tolerance,
        l1_limit=math.inf if bandit.design.l1_limit is None else bandit.design.l1_limit,
        low=low,
        high=high,
        clips=bandit.design.clips,
        **{**usual, **more},
    )


def _spread(sample: Matrix) -> Fields:
    """How contexts are spread, as if each had been offered alone; a few slates' worth of weight."""
    weight = float(min(len(sample), STANDS_FOR))
    return {
        "context_second": sample.T @ sample / len(sample) * weight,
        "context_first": sample.mean(axis=0) * weight,
        "slates": np.array([weight]),
        "different": np.array([float(len({row.tobytes() for row in sample}))]),
    }


def _look(engine: Engine, spread: Fields) -> None:
    fields = engine.fields()
    for name, values in spread.items():
        fields[name][:] = values
    _done(engine.conclude())


def _done(known: bool) -> None:
    if not known:
        raise RuntimeError("the engine's learner does not know what to do with a log")


def _add_gram(fields: Fields, word: str, half: Matrix, low: Matrix) -> None:
    add(fields[f"{word}gram"], fields[f"{word}gram_low"], symmetric(half), symmetric(low))
