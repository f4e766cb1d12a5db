"""Predictors, by the kind of plan a bandit has: everything about the noise is read off the real bandit.

`model_for` finds the predictor of a bandit; `predicts` adds one for a new family, in one place. A bandit whose plan nobody
predicts has no prediction, and a plan says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit import sensitivity
from dpbandit.bandits import bonus, rounds, steps
from dpbandit.noise import GAUSSIAN, LAPLACE, LAPLACE_L2
from dpbandit.planning.march import Array, Model, Played, View, clipped, geometric_steps
from dpbandit.planning.problem import Problem
from dpbandit.release import toeplitz

Factory = Callable[[Any, Problem], Model | None]

_PREDICTORS: dict[type, Factory] = {}

# Times within a step at which the released parameter is looked at: a tree's noise changes with every round.
LOOKS = 4
# Steps grow by this; more slowly in few dimensions, where it costs nothing.
RATIO, WIDE_RATIO, WIDE = 1.1, 1.15, 20


def predicts(kind: type) -> Callable[[Factory], Factory]:
    """Register a predictor for all bandits whose `plan` is of this type: `factory(bandit, problem)` gives a Model, or None."""

    def keep(factory: Factory) -> Factory:
        _PREDICTORS[kind] = factory
        return factory

    return keep


def model_for(bandit: Any, problem: Problem) -> Model | None:
    """The predictor of a bandit, fresh; None where there is none."""
    factory = _PREDICTORS.get(type(getattr(bandit, "plan", None)))
    return None if factory is None else factory(bandit, problem)


@predicts(steps.Plan)
def linear_model(bandit: Any, problem: Problem) -> Model | None:
    """LinUCB and its relatives. Not: noise on contexts or on the Gram matrix."""
    plan = bandit.plan
    if plan.seat > rounds.INCREMENT or plan.context_noise > 0:
        return None
    return LinearModel(bandit, problem)


class LinearModel:
    """Ridge regression with noise in whichever seat the plan says."""

    def __init__(self, bandit: Any, problem: Problem) -> None:
        plan: steps.Plan = bandit.plan
        d, particles = problem.dim, len(problem.thetas)
        self.bandit, self.plan, self.problem = bandit, plan, problem
        self.rng = np.random.default_rng([problem.seed, 3])
        self.gram = np.broadcast_to(plan.ridge * np.eye(d), (particles, d, d)).copy()
        self.inverse = self.gram / plan.ridge**2
        self.moments = np.zeros((particles, d))
        self.shaped = len(plan.shape) > 0
        strength = steps.weighted_ridge(plan)
        self.weighted = np.broadcast_to(strength * np.eye(d), (particles, d, d)).copy() if self.shaped else self.gram
        self.solver = self.weighted / strength**2 if self.shaped else self.inverse
        self.nodes: dict[tuple[int, int], Array] = {}
        self.theta = np.zeros((particles, d))
        # EPISODES: noise so far, growth since the last release, and the bonus matrix until the next.
        self.carry, self.growth, self.anchor = np.zeros((particles, d)), np.zeros(particles), self.inverse.copy()
        self._places: dict[int, int] = {}
        self._bound: Array | None = None  # OWN: what `_observed` found for the present A

    def steps(self, rounds: int) -> NDArray[np.int64]:
        bounds = geometric_steps(rounds, RATIO if self.problem.dim <= WIDE else WIDE_RATIO)
        self._looks = _looks(bounds, self.problem.seed)
        if self.plan.release == steps.TOEPLITZ:
            times = sorted({t for looks in self._looks.values() for t in looks if t > 0} | set(bounds[1:].tolist()))
            self._places = {t: place for place, t in enumerate(times)}
            root = np.linalg.cholesky(toeplitz_covariance(np.array(times), self.bandit.options.horizon))
            scale = float(self.plan.sensitivity * self.plan.multipliers[1])
            draws = self.rng.normal(size=(len(self.theta), self.problem.dim, len(times)))
            self._stream = scale * draws @ root.T
        return bounds

    # ------------------------------------------------------------------ choosing

    def view(self, start: int, stop: int) -> View:
        del stop
        plan = self.plan
        alpha = float(self.bandit.alphas(start + 1, 1)[0])
        if plan.seat == rounds.RANDOM:
            return View(None, None, 0.0)
        thompson = plan.rule == steps.THOMPSON
        if plan.release == steps.EPISODES:
            return View(self.theta[:, None], self.anchor, alpha, draws=thompson)
        looks = self._looks[start] if plan.seat >= rounds.MOMENTS else [start]
        thetas = np.stack([self._estimate(t) for t in looks], axis=1)
        return View(thetas, self.inverse, alpha, draws=thompson)

    def _estimate(self, t: int) -> Array:
        """θ as released after t rewards, with the noise of that time."""
        plan = self.plan
        if t == 0:
            return np.zeros_like(self.theta)
        if plan.seat < rounds.MOMENTS:
            return _times(self.inverse, self.moments)
        noise = self._stream[:, :, self._places[t]] if plan.release == steps.TOEPLITZ else self._tree_noise(t)
        if plan.seat == rounds.INCREMENT:
            return _times(self.inverse, self.moments) + noise
        prefix = self.moments + noise
        if self.shaped:
            prefix = prefix @ plan.unshape.T
        return _times(self.solver, prefix)

    def _tree_noise(self, t: int) -> Array:
        """The sum of the noises of the nodes in use at time t; each is drawn once."""
        in_use = bonus._nodes(self.plan, t)
        starts = [0, *(end for end, _ in in_use[:-1])]
        keys = [(start, end) for start, (end, _) in zip(starts, in_use, strict=True)]
        kept = {key: self.nodes[key] for key in keys if key in self.nodes}
        for key, (end, levels) in zip(keys, in_use, strict=True):
            if key not in kept:
                kept[key] = self._node(end, (end - key[0]).bit_length() - 1, levels)
        self.nodes = kept
        return np.asarray(np.sum(list(kept.values()), axis=0))

    def _node(self, end: int, level: int, levels: int) -> Array:
        plan = self.plan
        scale = float(plan.multipliers[levels] * plan.sensitivity)
        drawn = standard_noise(plan.noise, self.theta.shape, self.rng)
        if plan.seat == rounds.OWN:
            if self._bound is None:
                self._bound = self._observed()
            return scale * _times(self.gram, self._bound[:, None] * drawn)
        if plan.seat == rounds.INCREMENT:
            last = float(end - (1 << level) + 1) if plan.printed_index else float(end)
            shift = sensitivity.lemma1(
                last, plan.form, plan.smallest_eigenvalue, plan.lemma_delta, plan.sensitivity, plan.ridge
            )
            return float(plan.multipliers[levels]) * shift * drawn
        if plan.release == steps.HONAKER:
            scale *= math.sqrt(2.0**level / (2.0 ** (level + 1) - 1))
        if plan.pan_private:
            scale *= math.sqrt(2)
        return scale * drawn

    def _observed(self) -> Array:
        """max ‖A⁻¹x‖ over the known contexts, or the ball, for every particle."""
        norm = 1 if self.plan.noise == LAPLACE else 2
        arms = self.plan.arms[:: max(1, len(self.plan.arms) // 1000)]
        if len(arms):
            return np.asarray(np.linalg.norm(arms @ self.inverse, ord=norm, axis=2).max(axis=1), dtype=np.float64)
        largest: Array = np.linalg.eigvalsh(self.inverse)[:, -1].astype(np.float64) * self.plan.max_norm
        return largest * (math.sqrt(self.problem.dim) if norm == 1 else 1.0)

    # ------------------------------------------------------------------ learning

    def learn(self, played: Played, stop: int) -> None:
        plan = self.plan
        if plan.seat == rounds.RANDOM:
            return
        totals = self._totals(played)
        self.gram += played.weight * np.einsum("pni,pnj->pij", played.x, played.x)
        if self.shaped:
            image = played.x @ plan.shape.T
            size = np.maximum(np.linalg.norm(image, axis=2), max(plan.floor, 1e-300))
            self.moments += np.einsum("pni,pn->pi", image, totals / size)
            self.weighted += played.weight * np.einsum("pni,pnj,pn->pij", played.x, played.x, 1 / size)
            self.solver = _inverse(self.weighted)
        else:
            self.moments += np.einsum("pni,pn->pi", played.x, totals)
        before = self.inverse
        self.inverse = _inverse(self.gram)
        self._bound = None
        if not self.shaped:
            self.solver = self.inverse
        if plan.release == steps.EPISODES and plan.seat == rounds.MOMENTS:
            self._end_episodes(before)
            return
        self.theta = self._estimate(stop)

    def _totals(self, played: Played) -> Array:
        """The sum of the rewards that each played context stands for, as the algorithm sees them."""
        plan, sd = self.plan, self.problem.reward_noise
        if self.bandit._clips:
            mean, variance = clipped(played.mean, sd, *self.bandit.options.reward_range)
        else:
            mean, variance = played.mean, np.full_like(played.mean, sd * sd)
        if plan.seat == rounds.REWARD:
            scale = float(plan.sensitivity * plan.multipliers[1])
            variance = variance + scale * scale * (1.0 if plan.noise == GAUSSIAN else 2.0)
        return played.weight * mean + np.sqrt(played.weight * variance) * played.normal

    def _end_episodes(self, before: Array) -> None:
        """Episodes that ended within the step; the last of them is taken to end with it."""
        self.growth += np.linalg.slogdet(before)[1] - np.linalg.slogdet(self.inverse)[1]
        ended = np.floor(self.growth / self.plan.growth)
        self.growth -= ended * self.plan.growth
        scale = float(self.plan.sensitivity * self.plan.multipliers[1])
        draws = self.rng.normal(size=self.carry.shape)
        self.carry += scale * np.sqrt(ended)[:, None] * draws
        fresh = self.moments + self.carry
        if self.shaped:
            fresh = fresh @ self.plan.unshape.T
        now = ended > 0
        self.theta = np.where(now[:, None], _times(self.solver, fresh), self.theta)
        self.anchor = np.where(now[:, None, None], self.inverse, self.anchor)

    def estimates(self) -> Array:
        return self.theta


def standard_noise(kind: int, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Noise of scale 1: Gaussian, Laplace in every coordinate, or K-norm Laplace."""
    if kind == GAUSSIAN:
        return rng.normal(size=shape)
    if kind == LAPLACE_L2:
        direction = rng.normal(size=shape)
        radius = rng.gamma(shape[-1], size=shape[:-1])
        return np.asarray(direction * (radius / np.linalg.norm(direction, axis=-1))[..., None])
    return rng.laplace(size=shape)


def toeplitz_covariance(times: NDArray[np.int64], horizon: int | None) -> Array:
    """The covariance of sums released at these times, for unit noise on the encoded stream.

    >>> variance = np.diag(toeplitz_covariance(np.array([1, 1000]), 1000))
    >>> np.allclose(np.sqrt(variance) * toeplitz.column_norm(1000), toeplitz.standard_error([1, 1000], 1000))
    True
    """
    rates, weights = toeplitz.inverse_decays(*toeplitz.decays_for(horizon))
    early = np.minimum(times[:, None], times).astype(np.float64)
    apart = np.abs(times[:, None] - times).astype(np.float64)
    total = np.zeros_like(early)
    for i in range(len(rates)):
        for j in range(len(rates)):
            later = np.power(max(1 - rates[j], 0.0), apart)
            shared = toeplitz.geometric(rates[i] + rates[j] - rates[i] * rates[j], early)
            total += weights[i] * weights[j] * later * shared
    return total + 1e-12 * np.diag(np.diag(total))


def _looks(bounds: NDArray[np.int64], seed: int) -> dict[int, list[int]]:
    """Some times of every step, in order: numbers of rewards learned when a round of the step is played."""
    rng = np.random.default_rng([seed, 4])
    found = {}
    for start, stop in pairwise(bounds.tolist()):
        edges = np.linspace(start, stop, min(LOOKS, stop - start) + 1)
        found[start] = [int(low + rng.random() * (high - low)) for low, high in pairwise(edges)]
    return found


def _times(matrices: Array, vectors: Array) -> Array:
    """Each particle's matrix times its vector."""
    return np.asarray(np.einsum("pij,pj->pi", matrices, vectors))


def _inverse(matrices: Array) -> Array:
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)
