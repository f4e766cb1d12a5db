"""How a log enters a bandit: what the pass over it must add up, and the one release of its sums.

A logged reward is in this release and in no other, so it pays its whole budget here; online
rewards pay as before (docs/privacy.md). `prepare` looks at public things alone; `enter` is the only
way in for what is clean.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandit import Bandit
from dpbandit.engine import Engine
from dpbandit.errors import OptionError
from dpbandit.learners.prior import LOOKED_AT
from dpbandit.logs import sums as log_sums
from dpbandit.logs.record import Log, People
from dpbandit.logs.sums import Recipe, Sums, symmetric
from dpbandit.privacy.grid import STEP, to_floats
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.privacy.sources import Pending

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Fields = dict[str, NDArray[Any]]

# Where the log's release stands in the ledger: a group of its own, because a reward is in the log
# or online, not in both. Its noise has a number that no round has.
GROUP, WHAT, INDEX = -1, "the log, once", 0
# A log's contexts stand for this many slates of those offered later: enough to start from, few
# enough to be outvoted.
STANDS_FOR = LOOKED_AT
# No noise scale vanishes, however short the log's contexts are, in units of max_norm.
SHORTEST = 1e-9


class Spread(NamedTuple):
    """How the log's contexts are spread, read off some of them: public."""

    second: Matrix
    first: Vector
    slates: float
    different: float


class Start(NamedTuple):
    """What was decided before the log is read."""

    recipe: Recipe
    spread: Spread | None = None


class Way(ABC):
    """How a log enters one kind of learner."""

    @abstractmethod
    def prepare(self, bandit: Bandit, sample: Matrix, tolerance: float) -> Start:
        """What to add up. `sample` are contexts of the log."""

    @abstractmethod
    def put(self, bandit: Bandit, start: Start, sums: Sums, noisy: Vector, scale: float) -> None:
        """Put the noisy sum, and what is public, where the engine keeps what was before round 1."""


class InTheClear(Way):
    """Nothing is private: the moments go in as they are."""

    def prepare(self, bandit: Bandit, sample: Matrix, tolerance: float) -> Start:
        return Start(_recipe(bandit, tolerance, middle=0.0, width=1.0, whole=False))

    def put(self, bandit: Bandit, start: Start, sums: Sums, noisy: Vector, scale: float) -> None:
        fields = bandit.engine.fields()
        fields["moments"][:] = sums.moments
        fields["moments_low"][:] = sums.moments_low
        _add_gram(fields, "", sums.gram, sums.gram_low)
        _done(bandit.engine.conclude())


class IntoMoments(Way):
    """The noisy sum is part of every released sum to come, and A begins with the log's."""

    def prepare(self, bandit: Bandit, sample: Matrix, tolerance: float) -> Start:
        settings = bandit.design.settings
        if not len(settings["shape"]):
            return Start(_recipe(bandit, tolerance))
        shape = np.ascontiguousarray(settings["shape"])
        more = {"whitener": shape, "floor": float(settings["floor"]), "power": 0}
        return Start(_recipe(bandit, tolerance, **more))

    def put(self, bandit: Bandit, start: Start, sums: Sums, noisy: Vector, scale: float) -> None:
        fields, whitener = bandit.engine.fields(), start.recipe.whitener
        contexts = sums.first + sums.first_low
        if len(whitener):
            _add_gram(fields, "", sums.second, sums.second_low)
            _add_gram(fields, "weighted_", sums.gram, sums.gram_low)
            contexts = whitener @ contexts  # what is centred is u, not x
        else:
            _add_gram(fields, "", sums.gram, sums.gram_low)
        fields["context_sum"][:] = contexts
        fields[bandit.release.log_field][:] = self.kept(bandit, noisy)
        _done(bandit.engine.conclude())

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

    def put(self, bandit: Bandit, start: Start, sums: Sums, noisy: Vector, scale: float) -> None:
        engine, recipe = bandit.engine, start.recipe
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
        _done(engine.start(noisy, scale))


# By the learner, and where its noise sits. What is not here cannot start from a log.
WAYS: dict[tuple[str, str], Way] = {
    ("ridge", "nothing"): InTheClear(),
    ("ridge", "moments"): IntoMoments(),
    ("ridge", "own"): IntoParameter(),
    ("filter", ""): IntoFilter(),
}


def why_not(bandit: Any) -> str:
    """Why this bandit's design cannot start from a log; empty if it can."""
    if not isinstance(bandit, Bandit):
        return "its sums are its own"
    design, options = bandit.design, bandit.options
    if not design.is_private and not design.in_the_clear:
        return "it does not learn"
    if reason := design.release.no_log():
        return reason
    if _place(bandit) not in WAYS:
        return "nothing is proven for it, or its sums are its own"
    if options.context_noise > 0:
        return (
            "context_noise perturbs contexts as they are offered, and those of a log were played "
            "as they are"
        )
    if bandit.alpha == "theory" and callable(design.theory):
        return "alpha='theory' (Lemma 2) does not know of a log, so give a number"
    return ""


def check(bandit: Any) -> Bandit:
    """The bandit, or an error that says why it cannot start from a log."""
    name = getattr(bandit, "name", type(bandit).__name__)
    if why := why_not(bandit):
        raise OptionError(
            f"{name} cannot start from a log like this: {why}. Use another algorithm, such as "
            "'anytime' or 'tree-gauss', or feed the log to `update`, row by row"
        )
    if bandit.rounds or bandit.ledger.releases:
        raise OptionError(
            "a bandit that has learned cannot start from a log any more: make a new one"
        )
    found: Bandit = bandit
    return found


def prepare(bandit: Bandit, sample: Matrix, tolerance: float) -> Start:
    """What to add up for this bandit. Changes nothing.

    `sample` are contexts of the log: public, and used only where nothing else says how contexts are
    spread.
    """
    return WAYS[_place(bandit)].prepare(bandit, sample, tolerance)


def shift(bandit: Bandit, recipe: Recipe, sums: Sums) -> float:
    """How far apart neighbours can be in the sum of the items, in the noise's norm.

    One reward moves v by at most 1, so its item by at most the longest u; and each of the two items
    is rounded to the grid.
    """
    norm = bandit.noise.norm
    if len(recipe.whitener):
        longest = 1.0 if norm == 2 else math.sqrt(recipe.length)
    else:
        # Contexts are public: those in the log, not the worst possible.
        longest = max(float(sums.longest[norm % 2]), SHORTEST)
    return on_grid(longest, dim=recipe.length, norm=norm)


def enter(bandit: Bandit, start: Start, sums: Sums, people: People | None = None) -> Log:
    """The one release: ask the ledger, draw the noise, put the noisy sum into the engine.

    What fails leaves no trace: nobody has seen the noise.
    """
    check(bandit)
    log = Log(
        rows=sums.rows,
        learned=sums.learned,
        bad={words: int(sums.counts[kind]) for kind, words in log_sums.KINDS.items()},
        over_cap=int(sums.counts[log_sums.OVER_CAP]),
        users=None if people is None else len(people.hashes),
    )
    if sums.learned == 0:
        raise OptionError(f"there is nothing to start from: {log}")
    bandit.check_process()
    with bandit.lock:
        bandit.short_way = False
        engine = bandit.engine
        before = engine.snapshot()
        kept = bandit.over_cap, bandit.log, bandit.people, bandit.claim
        booked: list[Callable[[], None]] = []
        try:
            noisy, scale = _release(bandit, start.recipe, sums, booked)
            WAYS[_place(bandit)].put(bandit, start, sums, noisy, scale)
            engine.fields()["clipped"][0] += int(sums.counts[log_sums.CLIPPED])
            bandit.ledger.seal(np.asarray(engine.theta()).tobytes())
            bandit.over_cap += log.over_cap
            bandit.remember(log, people or People.nobody())
        except BaseException:
            engine.restore(before)
            bandit.over_cap, bandit.log, bandit.people, bandit.claim = kept
            for undo in booked:
                undo()
            raise
        finally:
            bandit.open_short_way()
    return log


def _release(
    bandit: Bandit, recipe: Recipe, sums: Sums, booked: list[Callable[[], None]]
) -> tuple[Vector, float]:
    """The noisy sum of the items and its scale; how to undo the charge is then in `booked`."""
    ledger = bandit.ledger
    if not recipe.whole:
        booked.append(ledger.charge(math.inf, when=0, what="rewards in the clear"))
        return np.zeros(0), 0.0
    booked.append(ledger.charge(ledger.limit, when=0, what=WHAT, group=GROUP))
    apart = shift(bandit, recipe, sums)
    scale = bandit.noise.multiplier(bandit.release.budget, 1) * apart
    pending = _on_a_grid_for(apart, sums.whole)
    noisy = bandit.source.release(bandit.noise, pending, scale=scale, shift=apart, index=INDEX)
    return noisy, scale


def _on_a_grid_for(apart: float, whole: list[int]) -> Pending:
    """The clean sum on a grid as fine for its noise as the usual one is for a shift of 1.

    δ pays for noise on a grid of STEP for a shift of at least 1; contexts may all be shorter.
    """
    finer = max(0, math.ceil(-math.log2(apart)))
    return Pending(to_floats(whole), [number << finer for number in whole], STEP * 2.0**-finer)


def _place(bandit: Bandit) -> tuple[str, str]:
    return bandit.design.learner, str(bandit.design.settings.get("site", ""))


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
        l1_limit=bandit.design.l1_limit or 0.0,
        low=low,
        high=high,
        clips=bandit.design.clips,
        **{**usual, **more},
    )


def _spread(sample: Matrix) -> Spread:
    """How contexts are spread, as if each had been offered alone; a few slates' worth of weight."""
    weight = float(min(len(sample), STANDS_FOR))
    different = len({row.tobytes() for row in sample})
    second = sample.T @ sample / len(sample) * weight
    return Spread(second, sample.mean(axis=0) * weight, weight, float(different))


def _look(engine: Engine, spread: Spread) -> None:
    fields = engine.fields()
    fields["context_second"][:] = spread.second
    fields["context_first"][:] = spread.first
    fields["slates"][0], fields["different"][0] = spread.slates, spread.different
    _done(engine.conclude())


def _done(known: bool) -> None:
    if not known:
        raise RuntimeError("the engine's learner does not know what to do with a log")


def _add_gram(fields: Fields, word: str, half: Matrix, low: Matrix) -> None:
    log_sums.add(fields[f"{word}gram"], fields[f"{word}gram_low"], symmetric(half), symmetric(low))
