"""Those who are timed, each as two functions: choose among contexts, learn from one. What differs
between them is said here.

A contestant is made for a dimension; `choose(contexts) → row` and `learn(context, reward)`. One
shared model for all arms throughout: that is the task. Libraries made for a model per arm are used
in the way their documentation allows for a shared one.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dpbandit
from dpbandit.algorithms.registry import make_named

Matrix = NDArray[np.float64]
ALPHA = 0.3


class Player(NamedTuple):
    """Made for one dimension and number of arms."""

    choose: Callable[[Matrix], int]
    learn: Callable[[Matrix, float], None]


@dataclass(frozen=True)
class Contestant:
    """`make(dim, arms)` gives a player; `share` is the part of the rounds it plays, so that slow
    ones do not take all day.
    """

    name: str
    make: Callable[[int, int], Player]
    differs: str
    package: str | None = None
    share: float = 1.0
    ours: bool = False

    @property
    def installed(self) -> bool:
        if self.package is None:
            return True
        return importlib.util.find_spec(self.package) is not None

    @property
    def version(self) -> str:
        if self.ours:
            return dpbandit.__version__
        return version(self.package or "numpy")


# ---------------------------------------------------------------------- ours


def _ours(algorithm: str, **options: Any) -> Callable[[int, int], Player]:
    def make(dim: int, _arms: int) -> Player:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bandit = make_named(
                algorithm, dim=dim, alpha=ALPHA, reward_range=(-0.5, 1.5), **options
            )
        return Player(bandit.select, bandit.update)

    return make


def _numpy(dim: int, _arms: int) -> Player:
    """LinUCB in a dozen lines of NumPy: what one writes oneself."""
    inverse, theta = np.eye(dim), np.zeros(dim)

    def choose(contexts: Matrix) -> int:
        widths = np.sqrt(np.einsum("ij,ij->i", contexts @ inverse, contexts))
        return int(np.argmax(contexts @ theta + ALPHA * widths))

    def learn(x: Matrix, reward: float) -> None:
        step = inverse @ x
        scale = 1 / (1 + x @ step)
        theta[:] += scale * (reward - x @ theta) * step
        inverse[:] -= scale * np.outer(step, step)

    return Player(choose, learn)


# ---------------------------------------------------------------------- peers


def _contextualbandits(dim: int, _arms: int) -> Player:
    from contextualbandits.linreg import LinearRegression

    model = LinearRegression(lambda_=1.0, fit_intercept=False, method="sm", use_float=False)
    model.fit(np.zeros((1, dim)), np.zeros(1))

    def choose(contexts: Matrix) -> int:
        return int(np.argmax(model.predict_ucb(contexts, ALPHA)))

    def learn(x: Matrix, reward: float) -> None:
        model.partial_fit(x[None, :], np.array([reward]))

    return Player(choose, learn)


def _mabwiser(dim: int, _arms: int) -> Player:
    from mabwiser.mab import MAB, LearningPolicy

    model = MAB(arms=["all"], learning_policy=LearningPolicy.LinUCB(alpha=ALPHA, l2_lambda=1.0))
    model.fit(["all"], [0.0], np.zeros((1, dim)))

    def choose(contexts: Matrix) -> int:
        found = model.predict_expectations(contexts)
        scores = [one["all"] for one in (found if isinstance(found, list) else [found])]
        return int(np.argmax(scores))

    def learn(x: Matrix, reward: float) -> None:
        model.partial_fit(["all"], [reward], x[None, :])

    return Player(choose, learn)


def _river(dim: int, _arms: int) -> Player:
    from river.linear_model import BayesianLinearRegression

    model = BayesianLinearRegression(alpha=1.0, beta=1.0)
    names = [str(i) for i in range(dim)]

    def score(x: Matrix) -> float:
        found: Any = model.predict_one(dict(zip(names, x.tolist(), strict=True)), with_dist=True)
        return float(found.mu + ALPHA * found.sigma)

    def choose(contexts: Matrix) -> int:
        return int(np.argmax([score(row) for row in contexts]))

    def learn(x: Matrix, reward: float) -> None:
        model.learn_one(dict(zip(names, x.tolist(), strict=True)), reward)

    return Player(choose, learn)


def _vowpal(dim: int, _arms: int) -> Player:
    import vowpalwabbit as vw

    # Without the range of costs its bounds never leave [0, 1], where negative costs do not lie, and
    # it learns nothing.
    costs = "--cb_min_cost -1.5 --cb_max_cost 0.5"
    model = vw.Workspace(
        f"--cb_explore_adf --regcbopt --mellowness 0.1 {costs} --quiet --noconstant"
    )
    names = [f"f{i}" for i in range(dim)]

    def line(x: Matrix) -> str:
        return "| " + " ".join(
            f"{name}:{value:.9g}" for name, value in zip(names, x.tolist(), strict=True)
        )

    slate: list[str] = []
    chosen = [0, 1.0]

    def choose(contexts: Matrix) -> int:
        slate[:] = [line(row) for row in contexts]
        chances: Any = model.predict(slate)
        chosen[:] = [int(np.argmax(chances)), max(chances)]
        return int(chosen[0])

    def learn(x: Matrix, reward: float) -> None:
        del (
            x
        )  # it is among the lines that were chosen from: the whole decision is what is learned from
        arm = int(chosen[0])
        labelled = f"0:{-reward:.9g}:{chosen[1]:.6g} {slate[arm]}"
        model.learn([*slate[:arm], labelled, *slate[arm + 1 :]])

    return Player(choose, learn)


def _bayesianbandits(dim: int, arms: int) -> Player:
    import bayesianbandits as bb

    slate: dict[str, Matrix] = {}

    def features(_context: Any, tokens: Any) -> Any:
        return slate["now"][list(tokens)].T[None]

    agent = bb.LipschitzContextualAgent(
        arms=[bb.Arm(number) for number in range(arms)],
        policy=bb.UpperConfidenceBound(alpha=0.62),
        arm_featurizer=bb.FunctionArmFeaturizer(features),
        learner=bb.NormalRegressor(alpha=1.0, beta=4.0),
        random_seed=0,
    )
    nothing = np.zeros((1, 1))

    def choose(contexts: Matrix) -> int:
        slate["now"] = contexts
        return int(agent.pull(nothing)[0])

    def learn(x: Matrix, reward: float) -> None:
        agent.update(nothing, np.array([reward]))

    return Player(choose, learn)


PRIVATE = {"epsilon": 1.0, "delta": 1e-6}

CONTESTANTS: tuple[Contestant, ...] = (
    Contestant(
        "dpbandit linucb",
        _ours("linucb"),
        "not private; checks every input, keeps a ledger",
        ours=True,
    ),
    Contestant(
        "dpbandit anytime",
        _ours("anytime", **PRIVATE),
        "private, (1, 10⁻⁶), real noise; checks every input, keeps a ledger",
        ours=True,
    ),
    Contestant(
        "dpbandit tree-gauss",
        _ours("tree-gauss", horizon=1_000_000, **PRIVATE),
        "private, (1, 10⁻⁶), real noise in every round",
        share=0.01,
        ours=True,
    ),
    Contestant("NumPy, by hand", _numpy, "LinUCB without any check: what one writes oneself"),
    Contestant(
        "contextualbandits",
        _contextualbandits,
        "its shared `linreg`, rank-one updates",
        "contextualbandits",
        0.2,
    ),
    Contestant(
        "Vowpal Wabbit",
        _vowpal,
        "gradient steps with confidence by `regcbopt`; contexts go in as text",
        "vowpalwabbit",
        0.05,
    ),
    Contestant(
        "MABWiser",
        _mabwiser,
        "LinUCB; one arm stands for all, so that they share a model",
        "mabwiser",
        0.05,
    ),
    Contestant(
        "river",
        _river,
        "Bayesian regression, one context at a time, as dictionaries",
        "river",
        0.03,
    ),
    Contestant(
        "bayesianbandits",
        _bayesianbandits,
        "Bayesian regression; the bound is a quantile of 1,000 posterior draws",
        "bayesianbandits",
        0.02,
    ),
)
