"""Contexts private too (Shariff & Sheffet 2018): a tree over sums of vvᵀ, ‖v‖ ≤ 1.

v is (x; weighted reward)/√size.

A symmetric matrix is packed into the vector of its upper triangle, row by row, with √2 off the
diagonal: the vector's L2 norm is then the matrix's Frobenius norm. What is kept beside the clean
sums of the tree is made of noisy sums alone.
"""

from __future__ import annotations

import math

import numpy as np

from dpbandit.learners.learner import Clock, Learner, Pending, Spec
from dpbandit.privacy.grid import to_whole
from dpbandit.privacy.matrices import unpack
from dpbandit.privacy.noise import find_noise
from dpbandit.reference.algebra import eigen
from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.types import Matrix, Vector


def pack(v: Vector) -> Vector:
    """vvᵀ as a vector.

    >>> packed = pack(np.array([3.0, 4.0]))
    >>> packed.round(6).tolist(), round(float(np.linalg.norm(packed)), 6)  # ‖vvᵀ‖ = ‖v‖²
    ([9.0, 16.970563, 16.0], 25.0)
    """
    rows, columns = np.triu_indices(len(v))
    off = np.where(rows == columns, 1.0, math.sqrt(2.0))
    packed: Vector = off * v[rows] * v[columns]
    return packed


class JointLearner(Learner, Holder):
    """LinUCB on a noisy, shifted Gram matrix and noisy moments."""

    arrays = "theta gram inverse moments"
    raised = Number(int)  # releases whose eigenvalues had to be raised

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        d, ridge = self.dim, float(spec["ridge"])
        self.pending_size = (d + 1) * (d + 2) // 2
        self.sums = self.tree(self.pending_size)
        self.gram, self.inverse, self.moments = ridge * np.eye(d), np.eye(d) / ridge, np.zeros(d)
        self.raised = 0
        self.noise = find_noise(spec["noise"])
        if self.noise.matrices is None:
            raise ValueError(f"noise {self.noise.name!r} is not for a Gram matrix")
        self.on_matrices = self.noise.matrices

    def matrix(self, alpha: float) -> Matrix:
        return self.inverse

    def quiet(self, x: Vector) -> bool:
        return False

    def prepare(self, x: Vector, reward: float) -> Pending:
        t = self.clock.rounds
        weighted = (reward - float(self.spec["reward_centre"])) * float(self.spec["reward_weight"])
        v = np.append(x, weighted) * (1.0 / math.sqrt(float(self.spec["size"])))
        return Pending(self.sums.add(t, to_whole(pack(v))), self.scale(self.place(t).levels))

    def commit(self, noisy: Vector) -> None:
        t, d, size = self.clock.rounds, self.dim, float(self.spec["size"])
        total = size * unpack(self.sums.publish(t, noisy))
        amount, ridge = self.amount(t), float(self.spec["ridge"])
        lowest = self.on_matrices.lowest(amount, d, self.deviation(t))
        shift = (
            ridge + size * float(self.spec["shift"]) * lowest - size * self.on_matrices.mean(amount)
        )
        self.gram[:] = total[:d, :d] + shift * np.eye(d)
        self.moments[:] = total[:d, d] / float(self.spec["reward_weight"])
        values, vectors = eigen(self.gram)
        # Eigenvalues that the noise took below ridge/2 are raised to it.
        if values[0] <= 0.5 * ridge:
            self.raised += 1
            values = np.maximum(values, 0.5 * ridge)
            self.gram[:] = vectors * values @ vectors.T
        self.inverse[:] = vectors / values @ vectors.T
        self.theta[:] = self.inverse @ self.moments

    def amount(self, t: int) -> float:
        """Of noise in the sum of round t: the variance of a packed entry, or degrees of freedom."""
        return sum(self.on_matrices.amount(scale) for scale in self.scales_in_use(t))

    def deviation(self, t: int) -> float:
        """√(2·log(4/ζ_t)) of them bound one tail in round t, with ζ_t = ζ/T, or ζ/(t(t + 1))."""
        log = float(self.spec["log_rounds"])
        if self.spec["unknown_horizon"]:
            log += math.log(t) + math.log(t + 1.0)
        return math.sqrt(2.0 * log)

    def fields(self) -> Fields:
        return {**Holder.fields(self), **self.sums.fields()}
