"""A stream with the transcript of one run on it, and what changing a reward in it costs.

Run the algorithm on a stream and keep the noisy values. Change a reward, tell the algorithm the
same noisy values again, and look how far every clean value has moved: given that the noises of
different releases are independent, the costs of these shifts add up to the cost of the whole
transcript. This is an identity, not an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.auditor import streams
from dpbandit.auditor.watch import used_twice
from dpbandit.bandit import Bandit
from dpbandit.codes import NO_RELEASE
from dpbandit.engine import Engine
from dpbandit.privacy.noise import RESPONSE
from dpbandit.reference.random import NOISE, START, derive_key
from dpbandit.types import Matrix, Vector

Positions = NDArray[np.int64]


class Change(NamedTuple):
    """What each context and reward is changed to. Contexts are the same where they are public."""

    xs: Matrix
    rs: Vector


class Neighbour(NamedTuple):
    """A neighbouring stream, and its clean values given the transcript."""

    xs: Matrix
    rs: Vector
    values: Matrix


@dataclass
class Frozen:
    """A stream of played contexts and raw rewards with the transcript of one run on it."""

    bandit: Bandit
    xs: Matrix
    rs: Vector
    changes: tuple[Change, ...]  # the costliest counts
    known: NDArray[np.bool_]
    noisy: Matrix
    values: Matrix
    scales: Vector

    @property
    def uses_noise_twice(self) -> bool:
        """Whether a number of the noise comes again, in whatever release and coordinate."""
        # Of answers there are two: equal ones say nothing.
        summed = np.arange(len(self.scales)) >= self.bandit.release.answered()
        made = (self.scales > 0) & summed
        each = np.repeat(self.scales[made], self.values.shape[1])
        return used_twice(self.noisy[made].ravel(), self.values[made].ravel(), each)

    def costs(self, positions: Positions, workers: int = 1) -> Vector:
        """What changing the rewards (and private contexts) at each row of positions costs."""

        def work(rows: Positions) -> list[float]:
            engine = self.bandit.engine.copy()
            return [max(self._costs(engine, row)) for row in rows]

        parts = [part for part in np.array_split(positions, 4 * workers) if len(part)]
        if workers == 1 or len(parts) == 1:
            return np.array([cost for part in parts for cost in work(part)])
        with ThreadPoolExecutor(workers) as executor:
            try:
                return np.array([cost for found in executor.map(work, parts) for cost in found])
            except BaseException:  # Ctrl-C: what has not begun need not be waited for
                executor.shutdown(cancel_futures=True)
                raise

    def neighbour(self, positions: Positions) -> Neighbour:
        """The stream that differs at these positions, changed to what costs most."""
        engine = self.bandit.engine.copy()
        costs = self._costs(engine, positions)
        change = self.changes[int(np.argmax(costs))]
        return Neighbour(*self._told(engine, change, positions)[:3])

    def _costs(self, engine: Engine, positions: Positions) -> list[float]:
        return [self._cost(engine, change, positions) for change in self.changes]

    def _cost(self, engine: Engine, change: Change, positions: Positions) -> float:
        _, _, values, scales = self._told(engine, change, positions)
        if (scales != self.scales).any():
            return math.inf  # the noise itself tells the two streams apart
        shifts = values - self.values
        answers = min(self.bandit.release.answered(), len(shifts))  # a stream may end before
        paid = sum(self._cost_of_answer(shifts[t], scales[t]) for t in range(answers))
        moved = shifts.any(axis=1) & (np.arange(len(shifts)) >= answers)
        shifts, scales = shifts[moved], scales[moved]
        if ((scales > 0) & ((scales < 1e-100) | (scales > 1e100))).any():
            # No square of a shift vanishes or overflows when its scale is near 1.
            powers = np.where(scales > 0, -np.frexp(scales)[1], 0)
            shifts, scales = np.ldexp(shifts, powers[:, None]), np.ldexp(scales, powers)
        return float(self.bandit.noise.costs(shifts, scales).sum()) + paid

    def _cost_of_answer(self, shift: Vector, scale: float) -> float:
        """Of a reward that is answered by itself: one number, with a noise of its own."""
        return self.bandit.release.counted(RESPONSE, RESPONSE.cost(shift, scale))

    def _told(
        self, engine: Engine, change: Change, positions: Positions
    ) -> tuple[Matrix, Vector, Matrix, Vector]:
        """The stream changed at these positions; clean values and scales, told the transcript."""
        xs, rs = self.xs, self.rs.copy()
        rs[positions] = change.rs[positions]
        if change.xs is not xs:
            xs = xs.copy()
            xs[positions] = change.xs[positions]
        start_key = self.bandit.keys[START]
        _, values, scales = engine.trace(
            xs, rs, self.known, noise_key=0, start_key=start_key, noisy=self.noisy
        )
        return xs, rs, values, scales


def allowed(bandit: Bandit, xs: Matrix) -> Matrix:
    """The contexts, shortened and moved to where the bandit takes them."""
    return bandit.within(streams.within(xs, bandit.options.max_norm, bandit.l1_limit))


def freeze(bandit: Bandit, xs: Matrix, *, seed: int = 0) -> Frozen:
    """Run the bandit's engine over played contexts, with rewards far outside the range.

    The engine clips them itself, so a mechanism that forgets to is seen to.
    """
    xs = np.ascontiguousarray(bandit.check_contexts(xs))
    below, above = far_outside(bandit)
    unit = bandit.options.protects
    # A user's rewards all move the same way, which is worst when their contexts agree.
    share = 1.0 if unit.needs_user else 0.5
    down = np.random.default_rng([seed, 17]).random(len(xs)) < share
    if unit.here_or_there:  # as much here in one stream as there in the other
        down = np.arange(len(xs)) % 2 == 1
    rs = np.where(down, below, above)
    changes: tuple[Change, ...] = (Change(xs, np.where(down, above, below)),)
    if bandit.values_depend_on_releases:  # a window that moves: less far may cost more
        low, high = bandit.options.reward_range
        inside = np.random.default_rng([seed, 18]).uniform(low, high, size=len(xs))
        if unit.here_or_there:
            inside /= 2  # all of a person's are within the cap
        changes += (Change(xs, inside),)
    if bandit.contexts_are_private:
        rs, changes = other_pairs(bandit, xs)
    known = bandit.in_public_set(xs)
    noisy, values, scales = bandit.engine.copy().trace(
        xs, rs, known, noise_key=derive_key(seed, NOISE), start_key=bandit.keys[START]
    )
    return Frozen(bandit, xs, rs, changes, known, noisy, values, scales)


def together(bandit: Bandit) -> int:
    """How many rewards of one unit change at once, each from one end of the range to the other."""
    return bandit.options.protects.together(bandit.options.width)


def opposed(bandit: Bandit, xs: Matrix) -> Matrix:
    """Contexts on which a unit's rewards move sums furthest.

    What a person's rewards add up to is here or there: that is furthest apart where every second
    context is the one before, reversed.
    """
    xs = xs.copy()
    if bandit.options.protects.here_or_there:
        xs[1::2] = -xs[: len(xs) - 1 : 2]
    return bandit.within(xs)


def far_outside(bandit: Bandit) -> tuple[float, float]:
    """Rewards far below and far above the range."""
    low, high = bandit.options.reward_range
    far = 10 * (high - low)
    return low - far, high + far


def other_pairs(bandit: Bandit, xs: Matrix) -> tuple[Vector, tuple[Change, Change]]:
    """Where contexts are private: rewards, and other pairs of both as far away as any tried.

    Contexts are turned, reversed, shortened and left out, with rewards at either end of the range.
    Which pair is furthest is read off the mechanism's own first release. The second change keeps to
    contexts whose xxᵀ is another one: it is the same for x and −x.
    """
    rounds, ends = len(xs), far_outside(bandit)
    others = streams.turned(xs, bandit.options.max_norm)
    count = others.shape[1]
    items = np.array([_first(bandit, others.reshape(-1, bandit.dim), end) for end in ends])
    items = items.reshape(2, rounds, count, -1)  # by reward, context and candidate
    own = np.array([_first(bandit, xs, end) for end in ends])
    square = ((items[None] - own[:, None, :, None]) ** 2).sum(axis=-1)
    # All rewards at that end of the range from which pairs can move further.
    base = int(square.max(axis=(1, 3)).sum(axis=1).argmax())
    by_pair = square[base].transpose(1, 0, 2)  # context, reward, candidate

    def furthest(candidates: slice) -> Change:
        kept = by_pair[:, :, candidates]
        reward, which = np.divmod(kept.reshape(rounds, -1).argmax(axis=1), kept.shape[2])
        found = others[:, candidates][np.arange(rounds), which]
        return Change(np.ascontiguousarray(found), np.array(ends)[reward])

    # Neither −x and x at full length, nor what was not turned.
    return np.full(rounds, ends[base]), (furthest(slice(None)), furthest(slice(1, -3)))


def _first(bandit: Bandit, xs: Matrix, reward: float) -> Matrix:
    """What each of these contexts with this reward, learned first, puts into the first release."""
    engine = bandit.engine.copy()
    low, high = bandit.options.reward_range
    rest, middle = np.zeros(bandit.dim), (low + high) / 2
    kinds, which = np.unique(xs, axis=0, return_inverse=True)  # of a long stream many are equal

    def values() -> Iterator[Vector]:
        for x in kinds:
            engine.reset()
            scale = engine.prepare(x, reward)
            while scale == NO_RELEASE:
                scale = engine.prepare(rest, middle)
            yield engine.pending()

    return np.array(list(values()))[which.ravel()]
