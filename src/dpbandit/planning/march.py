"""The march: a few hundred rounds stand for all of them.

Time is cut into steps that grow geometrically. In each step every particle plays a sample of slates with the parameter and
the bonus that its algorithm has at that time, and learns from them as many times as the step has rounds. Sums of many
rewards are drawn as Gaussians with the exact mean and variance; privacy noise is drawn with the mechanism's own law. So a
particle that is misled early stays misled, as the bandit would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpbandit.planning.problem import Problem

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """How arms are picked in one step. Slates are dealt out evenly to the θ̂s of a particle (its second axis)."""

    thetas: Array | None  # particles × variants × d; None: at random
    matrix: Array | None  # of the bonus, particles × d × d
    alpha: float
    about_mean: bool = False
    draws: bool = False  # Thompson: θ̂ is drawn around itself with α²·matrix, and there is no bonus


@dataclass(frozen=True)
class Played:
    """What a step played: chosen contexts with their mean rewards, and a standard normal for each reward's noise."""

    rounds: int
    weight: float  # rounds that each context stands for
    x: Array  # particles × contexts × d
    mean: Matrix
    normal: Matrix
    slates: Array


class Model(Protocol):
    """An algorithm's predictor: one object for one march."""

    def steps(self, rounds: int) -> NDArray[np.int64]:
        """Where steps begin and end: 0, …, rounds."""

    def view(self, start: int, stop: int) -> View:
        """How rounds start + 1, …, stop are played."""

    def learn(self, played: Played, stop: int) -> None:
        """Take in what was played; `stop` rewards are learned then."""

    def estimates(self) -> Array:
        """The released parameters now: particles × d."""


@dataclass(frozen=True)
class Course:
    """What a march predicts, at the ends of its steps; means over particles, and every particle's regret."""

    rounds: NDArray[np.int64]
    regret: Vector
    theta_error: Vector
    final: Vector


def geometric_steps(rounds: int, ratio: float) -> NDArray[np.int64]:
    """0, 1, 2, …, then times that grow by `ratio`.

    >>> geometric_steps(20, 1.5).tolist()
    [0, 1, 2, 3, 5, 8, 12, 18, 20]
    """
    found = [0]
    while found[-1] < rounds:
        found.append(min(rounds, max(found[-1] + 1, int(np.ceil(found[-1] * ratio)))))
    return np.array(found, dtype=np.int64)


def march(problem: Problem, model: Model, progress: Callable[[float], None] | None = None) -> Course:
    """Predict one algorithm's course."""
    bounds = model.steps(problem.rounds)
    total = np.zeros(len(problem.thetas))
    regret, errors = [], []
    for start, stop in pairwise(bounds.tolist()):
        rng = np.random.default_rng([problem.seed, 2, start])
        slates = problem.slates(start, stop, rng)
        normal = rng.normal(size=slates.shape[:2])
        lots = rng.random(slates.shape[:3])
        means = np.einsum("pskd,pd->psk", slates, problem.thetas)
        chosen = choose(slates, model.view(start, stop), lots, rng)
        got = np.take_along_axis(means, chosen[..., None], axis=2)[..., 0]
        total = total + (stop - start) * (means.max(axis=2) - got).mean(axis=1)
        count = min(stop - start, slates.shape[1])
        x = np.take_along_axis(slates[:, :count], chosen[:, :count, None, None], axis=2)[:, :, 0]
        model.learn(
            Played(stop - start, (stop - start) / count, x, got[:, :count], normal[:, :count], slates[:, :count]),
            stop,
        )
        regret.append(float(total.mean()))
        errors.append(float(np.linalg.norm(model.estimates() - problem.thetas, axis=1).mean()))
        if progress is not None:
            progress(stop / problem.rounds)
    return Course(bounds[1:], np.array(regret), np.array(errors), total)


def choose(slates: Array, view: View, lots: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """The arm of every slate; ties, and everything where nothing is known, go by lot."""
    if view.thetas is None:
        return np.asarray(lots.argmax(axis=2))
    particles, count, arms, d = slates.shape
    variants = np.arange(count) % view.thetas.shape[1]
    thetas = view.thetas[:, variants]
    if view.draws and view.matrix is not None:
        root = np.linalg.cholesky(view.matrix)
        thetas = thetas + view.alpha * rng.normal(size=thetas.shape) @ root.transpose(0, 2, 1)
    scores = np.einsum("pskd,psd->psk", slates, thetas)
    if view.matrix is not None and not view.draws and view.alpha > 0:
        about = slates - slates.mean(axis=2, keepdims=True) if view.about_mean else slates
        flat = about.reshape(particles, count * arms, d)
        square = np.einsum("pnd,pnd->pn", flat @ view.matrix, flat).reshape(particles, count, arms)
        scores = scores + view.alpha * np.sqrt(np.maximum(square, 0.0))
    return np.asarray(np.where(scores >= scores.max(axis=2, keepdims=True), lots, -1.0).argmax(axis=2))


def clipped(mean: Array, sd: float, low: Array | float, high: Array | float) -> tuple[Array, Array]:
    """Mean and variance of a Gaussian clipped to [low, high].

    >>> mean, variance = clipped(np.array([0.0]), 1.0, -1.0, 1.0)
    >>> float(mean[0]), round(float(variance[0]), 4)
    (0.0, 0.5161)
    """
    if sd == 0:
        return np.clip(mean, low, high), np.zeros_like(mean)
    a, b = (low - mean) / sd, (high - mean) / sd
    below, above = ndtr(a), ndtr(-b)
    inside = 1 - below - above
    pa, pb = np.exp(-0.5 * a * a) / np.sqrt(2 * np.pi), np.exp(-0.5 * b * b) / np.sqrt(2 * np.pi)
    first = a * below + b * above + pa - pb
    second = a * a * below + b * b * above + inside + a * pa - b * pb
    return mean + sd * first, sd * sd * np.maximum(second - first * first, 0.0)
