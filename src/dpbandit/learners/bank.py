"""What releases say about θ⁺, under hypotheses that compete: how fast the world changes.

Each memory M keeps the information on θ⁺ as a triangular root R, with what it pulls towards in z: it
grows like t² in some directions and hardly in others, and a sum of squares would drown the small
ones. It fades by M/(M + Δ) in Δ rounds; the first memory never fades. The one that foretold the noisy
releases best, of late, acts, or the one that is asked for alone. Where contexts share all features
and one that forgets acts, the others have a say too, by how well they foretold. All of it is made of what was
released, so it costs nothing. No prior is in it, so that one may be chosen later.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpbandit.reference.algebra import below, factor, inverse_of_lower
from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.types import Matrix, Vector

# Scores fade by LATELY/(LATELY + Δ); the first memory acts until another is ahead by so many nats.
LATELY = 5000.0
AHEAD = 3.0
# Where contexts share all features every play tells of all arms: less is needed to forget. What a
# memory must weigh, beside the one that acts, to have a say.
AHEAD_IF_SHARED = 1.5
LEAST_WEIGHT = 1e-2


class Joined(NamedTuple):
    """Equations root·θ⁺ = target, each of variance 1."""

    root: Matrix
    target: Vector
    likely: float  # log marginal likelihood, up to a constant that no prior changes

    def read(self) -> tuple[Vector, Matrix]:
        """Mean and covariance of θ⁺."""
        inverse = inverse_of_lower(self.root.T).T
        return inverse @ self.target, inverse @ inverse.T


class Bank(Holder):
    """One root for each memory."""

    acting = Number(int)

    def __init__(self, size: int, memories: Vector, *, alone: bool = False) -> None:
        self.memories = (math.inf, *memories.tolist())
        self.alone = alone  # the last acts, whatever was foretold
        count = len(self.memories)
        self.roots, self.targets = np.zeros((count, size, size)), np.zeros((count, size))
        self.scores = np.zeros(count)
        self.weights = np.zeros(count)  # of what the memories say
        self.acting = 0

    def learn(
        self,
        rows: Matrix,
        values: Vector,
        elapsed: float,
        prior: tuple[Matrix, Vector],
        first: bool,
        shared: bool = False,
    ) -> None:
        """Take equations, so many rounds after the last; `prior` is that of the last reading.

        `shared`: contexts share all features.
        """
        best, ahead = 0, AHEAD_IF_SHARED if shared else AHEAD
        for k, memory in enumerate(self.memories):
            left = 1.0 if math.isinf(memory) else math.sqrt(memory / (memory + elapsed))
            self.roots[k] *= left
            self.targets[k] *= left
            if not first and len(self.memories) > 1:
                before = self.join(k, *prior)
                after, _aim, misfit = joined(before.root, before.target, rows, values)
                likely = float(np.log(np.diag(before.root)).sum() - np.log(np.diag(after)).sum())
                faded = LATELY / (LATELY + elapsed)
                self.scores[k] = faded * self.scores[k] + likely - 0.5 * misfit
            self.roots[k], self.targets[k], _ = joined(self.roots[k], self.targets[k], rows, values)
            if k and (self.alone or self.scores[k] > self.scores[best] + (0.0 if best else ahead)):
                best = k
        self.acting = best
        self._weigh(shared and best > 0 and not self.alone, ahead)

    def _weigh(self, everyone: bool, ahead: float) -> None:
        """The one that acts, or all, by what they foretold."""
        self.weights[:] = 0.0
        if everyone:
            leads = self.scores.copy()
            leads[0] += ahead
            self.weights[:] = np.exp(leads - leads[self.acting])
            self.weights[self.weights < LEAST_WEIGHT] = 0.0
        self.weights[self.acting] = 1.0
        self.weights /= self.weights.sum()

    def doubt(self, known: float) -> None:
        """Windows were narrower than is right now: memories that fade keep this share of their roots."""
        self.roots[1:] *= known
        self.targets[1:] *= known

    def join(self, k: int, precision: Matrix, pull: Vector) -> Joined:
        """What memory k holds under a prior of this precision and pull = precision·mean."""
        # The prior as equations: U·θ⁺ = U·mean.
        upper = factor(precision).T
        values = below(upper.T, pull)
        root, target, misfit = joined(self.roots[k], self.targets[k], upper, values)
        likely = float(np.log(np.diag(upper)).sum() - np.log(np.diag(root)).sum()) - 0.5 * misfit
        return Joined(root, target, likely)

    def known(self) -> float:
        """The trace of the information on θ, without the intercept."""
        own = self.roots[self.acting][:-1, :-1]
        return float((own * own).sum())

    def fields(self) -> Fields:
        roots = self.roots.reshape(-1, self.roots.shape[2])  # a view: what is written there counts
        own = {"information_root": roots, "target": self.targets, "scores": self.scores}
        return {**super().fields(), **own}


def joined(
    root: Matrix, target: Vector, rows: Matrix, values: Vector
) -> tuple[Matrix, Vector, float]:
    """root·θ = target and rows·θ = values as one triangular system, and the squared misfit."""
    n = len(target)
    system = np.block([[root, target[:, None]], [rows, values[:, None]]])
    upper: Matrix = np.asarray(np.linalg.qr(system, mode="r"))
    upper[np.diag(upper) < 0] *= -1.0  # rows have a sign of their own: roots have none below 0
    return upper[:n, :n], upper[:n, n], float(upper[n, n] ** 2)
