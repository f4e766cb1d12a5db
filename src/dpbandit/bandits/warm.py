"""A bandit that starts from a log: what the pass over it must add up, and how the sums enter, in one release.

A logged reward is in this release and in no other, so it pays its whole budget here; online rewards pay as before
(docs/privacy.md). `recipe` looks at public things alone; `enter` is the only way in for what is clean.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit import numerics
from dpbandit.bandits import anytime_steps, log_sums, outlook, presets, rounds, steps
from dpbandit.bandits.anytime import AnytimeBandit
from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.log_sums import Recipe, Sums
from dpbandit.bandits.logged import Log, People
from dpbandit.errors import BudgetError, OptionError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Where the log's release stands in the ledger: a group of its own, because a reward is in the log or online, not in both.
GROUP, WHAT, INDEX = -1, "the log, once", 0

SUPPORTED = ("anytime", "toeplitz", "tree-gauss", "private-linucb", "private-ts", "adac-oful", "dgs", "linucb")
REFUSED = {
    "joint": "its contexts are private, so that the log's Gram matrix and even the number of bad rows would need noise, and its regulariser "
    "is derived for tree nodes alone",
    "local": "each reward needs noise of its own, so that one release for all of them would not be local",
    "random": "it does not learn",
    "private-ucb": "its arms have trees of their own",
}
# A log's contexts stand for this many slates of those offered later: enough to start from, few enough to be outvoted.
STANDS_FOR = outlook.LOOKED_AT


def check(bandit: Any) -> LinearBandit:
    """The bandit, or an error that says why it cannot start from a log."""
    name = getattr(bandit, "name", type(bandit).__name__)
    if name not in SUPPORTED or not isinstance(bandit, LinearBandit):
        why = REFUSED.get(name, "nothing is proven for it, or its sums are its own")
        raise OptionError(
            f"{name} cannot start from a log: {why}. Use one of {', '.join(SUPPORTED)}, or feed the log to `update`, row by row"
        )
    options = bandit.options
    if options.pan_private:
        raise OptionError("a pan-private bandit cannot start from a log: the log itself lies in memory in the clear")
    if options.context_noise > 0:
        raise OptionError("context_noise perturbs contexts as they are offered; those of a log were played as they are")
    if bandit.alpha == "theory" and not isinstance(bandit, AnytimeBandit):
        raise OptionError("alpha='theory' (Lemma 2) does not know of a log: give a number")
    if bandit.rounds or bandit.ledger.releases:
        raise OptionError("a bandit that has learned cannot start from a log any more: make a new one")
    return bandit


def needs_sample(bandit: LinearBandit) -> bool:
    """Whether the pass needs to know before it starts how contexts are spread."""
    return isinstance(bandit, AnytimeBandit) and bandit.options.public_contexts is None


def recipe(bandit: LinearBandit, sample: Matrix, tolerance: float) -> Recipe:
    """What to add up for this bandit. `sample` are contexts of the log: public, and used only where `needs_sample` says so."""
    options, plan = bandit.options, bandit.plan
    low, high = options.reward_range
    middle, width, constant, size = 0.0, 1.0, False, 1.0
    whitener: Matrix = np.empty((0, 0))
    floor, power = 0.0, -1
    if isinstance(bandit, AnytimeBandit):
        if needs_sample(bandit):
            _look(bandit, sample)
        # The whole range, not the window around a prediction: there is none yet, and a long log would make clipping's bias plain.
        middle, width, constant = (low + high) / 2, high - low, True
        size = float(bandit.learner.outlook.counts[5])
        whitener = np.asarray(np.linalg.inv(np.tril(bandit.learner.outlook.factor)), dtype=np.float64)
        power = 2
    elif len(plan.shape):
        whitener, floor, power = plan.shape, plan.floor, 0
    return Recipe(
        dim=options.dim,
        max_norm=options.max_norm,
        tolerance=tolerance,
        l1_limit=bandit.l1_limit or 0.0,
        low=low,
        high=high,
        clips=bandit._clips,
        middle=middle,
        width=width,
        constant=constant,
        size=size,
        whitener=np.ascontiguousarray(whitener),
        triangular=isinstance(bandit, AnytimeBandit),
        floor=floor,
        power=power,
    )


def _look(bandit: AnytimeBandit, sample: Matrix) -> None:
    """Take in how the log's contexts are spread, as if they had been offered one by one."""
    seen = bandit.learner.outlook
    weight = float(min(len(sample), STANDS_FOR))
    seen.second[:] = sample.T @ sample / len(sample) * weight
    seen.first[:] = sample.mean(axis=0) * weight
    seen.counts[:2] = weight, len(sample)
    low, high = bandit.options.reward_range
    outlook.refresh(seen, low, high, 1.0)


def shift(bandit: LinearBandit, recipe: Recipe, sums: Sums) -> float:
    """How far apart neighbours can be in the clean value: by one reward's width times the longest item, and rounding."""
    one = (recipe.high - recipe.low) / recipe.width
    if not len(recipe.whitener):
        # Contexts are public: those in the log, not the worst possible. With a floor, so that no noise scale vanishes.
        one *= max(float(sums.longest[presets.norm_of(bandit.noise) % 2]), 1e-9 * recipe.max_norm)
    return one * (1 + log_sums.slack(recipe, sums.rows, int(sums.counts[log_sums.CHUNKS])))


def enter(bandit: LinearBandit, recipe: Recipe, sums: Sums, people: People | None = None) -> Log:
    """The one release: ask the ledger, draw the noise, put the noisy sums where the bandit keeps what was released before round 1.

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
    if log_sums.slack(recipe, sums.rows, int(sums.counts[log_sums.CHUNKS])) > 0.1:
        raise BudgetError(
            "this log is too long for float sums: rounding would eat the noise's margin. Take a part of it"
        )
    with bandit._lock:
        before = {name: array.copy() for name, array in bandit._arrays().items()}
        undo = None
        try:
            if bandit.plan.seat == rounds.NOTHING:
                undo = bandit.ledger.charge(math.inf, when=0, what="rewards in the clear")
                _start_in_the_clear(bandit, recipe, sums)
            else:
                undo = bandit.ledger.charge(bandit.ledger.limit, when=0, what=WHAT, group=GROUP)
                noisy, scale = _release(bandit, recipe, sums)
                start = _start_anytime if isinstance(bandit, AnytimeBandit) else _start_moments
                start(bandit, recipe, sums, noisy, scale)
            bandit.ledger.seal(bandit.learner.theta.tobytes())
            bandit.clipped += int(sums.counts[log_sums.CLIPPED])
            bandit.over_cap += log.over_cap
            bandit.remember(log, people or People.nobody())
        except BaseException:
            for name, array in bandit._arrays().items():
                array[...] = before[name]
            if undo is not None:
                undo()
            raise
    return log


def _release(bandit: LinearBandit, recipe: Recipe, sums: Sums) -> tuple[Vector, float]:
    """The noisy value and its noise scale."""
    apart, limit = shift(bandit, recipe, sums), bandit.ledger.limit
    budget = math.sqrt(limit) if bandit.noise == "gaussian" else limit
    scale = 0.0 if math.isinf(budget) else apart / budget
    value = log_sums.exact_moments(recipe, sums)
    return bandit.source.release(bandit.noise, value, scale=scale, shift=apart, index=INDEX), scale


def _add_gram(ridge: numerics.Ridge, half: Matrix, low: Matrix) -> None:
    ridge.gram_low[:] += log_sums.whole(low)
    added = log_sums.whole(half)
    total = ridge.gram + added
    back = total - ridge.gram
    ridge.gram_low[:] += (ridge.gram - (total - back)) + (added - back)
    ridge.gram[:] = total
    numerics.refresh(ridge)


def _start_in_the_clear(bandit: LinearBandit, recipe: Recipe, sums: Sums) -> None:
    ridge = bandit.learner.ridge
    ridge.moments[:] = sums.moments[: recipe.dim]
    ridge.moments_low[:] = sums.moments_low[: recipe.dim]
    _add_gram(ridge, sums.gram, sums.gram_low)
    bandit.learner.theta[:] = ridge.theta


def _start_moments(bandit: LinearBandit, recipe: Recipe, sums: Sums, noisy: Vector, scale: float) -> None:
    """Noisy moments are a constant part of every released sum to come, and A begins with the log's."""
    del scale
    learner, plan = bandit.learner, bandit.plan
    shaped = len(plan.shape) > 0
    _add_gram(learner.ridge, *((sums.second, sums.second_low) if shaped else (sums.gram, sums.gram_low)))
    if plan.release == steps.TOEPLITZ:
        learner.toeplitz.total[:] = noisy
    else:
        learner.tree.carry[:] = noisy  # as the total of a block that is finished
    if shaped:
        _add_gram(learner.weighted, sums.gram, sums.gram_low)
        learner.theta[:] = learner.weighted.inverse @ (plan.unshape @ noisy)
    else:
        learner.theta[:] = learner.ridge.inverse @ noisy
    if plan.release == steps.EPISODES:
        learner.anchor[:] = learner.ridge.inverse


def _start_anytime(bandit: LinearBandit, recipe: Recipe, sums: Sums, noisy: Vector, scale: float) -> None:
    """One release of the Kalman filter, which shows all of the log's items and keeps nothing of them."""
    state, factor = bandit.learner.filter, recipe.whitener
    d, weight = recipe.dim, 1 / recipe.width
    gram = log_sums.whole(sums.gram + sums.gram_low)
    spread = log_sums.whole(sums.second + sums.second_low)
    units = np.append(np.full(d, recipe.size), 1.0)
    state.design[:] = weight * (factor @ gram) * units
    state.offset[:] = weight * recipe.middle * (factor @ gram[:, d])
    state.spread[:] = np.tril(weight**2 * (factor @ spread @ factor.T))
    anytime_steps.start(bandit.learner, bandit.plan, noisy, scale)
