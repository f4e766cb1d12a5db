"""What a policy is: how arms are scored by what was released, and everything that follows from it.

A policy sees released and public numbers alone, so whatever it does costs no privacy. One object
answers every question about it: the score, the propensities, and what an exported model must hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpbandit.errors import PropensityError
from dpbandit.reference.algebra import eigen, factor
from dpbandit.types import Matrix as Matrix
from dpbandit.types import Vector as Vector

# Scores this close to the best are equal: rounding, and not the model, tells them apart.
TIE, LARGEST_SCORE = 1e-12, 1e300


def tie_at(best: float) -> float:
    """How far behind a best score others are equal to it. Of large ones, as of money, it is a part: so
    far, and no less, may rounding differ between engines.

    >>> tie_at(0.25), tie_at(-1e6), tie_at(float("inf"))
    (1e-12, 1e-06, 1e+288)
    """
    return TIE * min(max(abs(best), 1.0), LARGEST_SCORE)


class _Seen(NamedTuple):
    theta: Vector
    matrix: Matrix


class View(_Seen):
    """What a policy may look at.

    `matrix` is what the bonus is measured with: A⁻¹, a posterior covariance, or for arms without
    features the diagonal matrix of squared bonuses. A released view decides many times: its roots
    are computed once.
    """

    @cached_property
    def lower(self) -> Matrix:
        """Lower triangular L with LLᵀ = `matrix`."""
        return factor(self.matrix)

    @cached_property
    def half(self) -> Matrix:
        """H with HHᵀ = `matrix`, also for one that rounding left a hair from positive."""
        values, vectors = eigen((self.matrix + self.matrix.T) / 2)
        root: Matrix = vectors * np.sqrt(np.maximum(values, 0.0))
        return root


class Propensities(NamedTuple):
    """The probability of each arm, and the standard error it was computed with: 0 if exact."""

    probabilities: Vector
    standard_errors: Vector


class Decision(NamedTuple):
    """An arm with the probability that it had: what a log needs for evaluations to come."""

    arm: int
    propensity: float
    standard_error: float  # of the propensity: 0 if exact


class Policy(ABC):
    """How an arm is picked. Every method is abstract: a policy that lacks one cannot be made."""

    name: ClassVar[str]
    in_core: ClassVar[bool] = False  # whether the compiled core has it; or the reference runs it
    exact: ClassVar[bool] = False  # whether it samples arms with probabilities in closed form
    description: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """A class that picks in its own way has a name of its own, and nobody knows more of it."""
        if "scores" in vars(cls) and "name" not in vars(cls):
            raise TypeError(f"policy {cls.__name__} does not say its own name")
        cls.in_core = vars(cls).get("in_core", False)
        cls.exact = vars(cls).get("exact", False)

    @abstractmethod
    def scores(self, view: View, contexts: Matrix, alpha: float, key: int, decision: int) -> Vector:
        """The score of each row; the highest is played, and ties are broken at random.

        Parameters
        ----------
        view : View
            The released model.
        contexts : array of shape (arms, dim)
            Contexts that were admitted.
        alpha : float
            The width of the bonus.
        key, decision : int
            Where random numbers come from: the same two give the same scores.
        """

    @abstractmethod
    def propensities(
        self,
        view: View,
        contexts: Matrix,
        alpha: float,
        *,
        draws: int,
        seed: int | None,
        name: str,
    ) -> Propensities:
        """The probability of each row, or PropensityError where the rule is deterministic.

        `name` is the algorithm's, for the error's words.
        """

    @abstractmethod
    def record(self, view: View, alpha: float) -> dict[str, Any]:
        """What an exported model must hold for this policy, ready for JSON."""

    @abstractmethod
    def view_of(self, record: dict[str, Any]) -> tuple[View, float]:
        """The view and alpha that `record` described; KeyError or ValueError if it does not."""

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        from dpbandit.policies import find_policy

        return find_policy, (self.name,)


class MatrixPolicy(Policy):
    """A policy whose model is all that it looks at: θ, the matrix and α."""

    def record(self, view: View, alpha: float) -> dict[str, Any]:
        return matrix_record(view, alpha)

    def view_of(self, record: dict[str, Any]) -> tuple[View, float]:
        return view_of_matrix(record)


class BoundPolicy(MatrixPolicy):
    """A policy that plays the highest bound: given what was released, its arm is certain."""

    def propensities(
        self,
        view: View,
        contexts: Matrix,
        alpha: float,
        *,
        draws: int,
        seed: int | None,
        name: str,
    ) -> Propensities:
        raise PropensityError(
            f"{name} has no propensities: it plays the arm with the highest bound, so one arm has "
            "probability 1 and all others 0, and its log cannot say what another arm would have "
            "earned. With holdout=0.02, two decisions in a hundred are random; or use an algorithm "
            "that samples arms: 'anytime' or 'anytime-joint' with policy='sampled', or 'private-ts'"
        )

    def certain(self, view: View, contexts: Matrix, alpha: float) -> Propensities:
        """All of the probability on the highest bound; equal ones share it."""
        scores = self.scores(view, contexts, alpha, 0, 0)
        highest = float(scores.max())
        near = scores >= highest - tie_at(highest)
        best = np.where(near, 1.0 / np.count_nonzero(near), 0.0)
        return Propensities(best, np.zeros(len(scores)))


def matrix_record(view: View, alpha: float) -> dict[str, Any]:
    """θ, the matrix and α, as lists and a number."""
    return {"theta": view.theta.tolist(), "matrix": view.matrix.tolist(), "alpha": float(alpha)}


def view_of_matrix(record: dict[str, Any]) -> tuple[View, float]:
    """What `matrix_record` wrote; ValueError if the shapes do not fit or a number is not finite."""
    theta = np.array(record["theta"], dtype=np.float64)
    matrix = np.array(record["matrix"], dtype=np.float64)
    alpha = float(record["alpha"])
    if theta.ndim != 1 or matrix.shape != (len(theta), len(theta)):
        raise ValueError(f"theta has shape {theta.shape} and matrix {matrix.shape}")
    if not (np.isfinite(theta).all() and np.isfinite(matrix).all() and np.isfinite(alpha)):
        raise ValueError("theta, matrix and alpha must be finite")
    return View(theta, matrix), alpha


def widths(matrix: Matrix, rows: Matrix) -> Vector:
    """√(xᵀMx) for each row x."""
    squares: Vector = np.einsum("ij,ij->i", rows @ matrix, rows)
    np.maximum(squares, 0.0, out=squares)
    return np.sqrt(squares, out=squares)
