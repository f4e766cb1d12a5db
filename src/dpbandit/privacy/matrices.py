"""What noise does to a Gram matrix packed into a vector: how much there is, and how far it reaches.

A packed matrix is its upper triangle row by row, with √2 on what is off the diagonal. `amount` is
what adds up over independent noises; `tail` is √(2·log(4/ζ)), the standard deviations that bound
one tail."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from dpbandit.types import Vector


class MatrixNoise(ABC):
    """How far noise on a packed matrix moves its eigenvalues, in units of the matrix."""

    @abstractmethod
    def amount(self, scale: float) -> float:
        """What one release of this scale adds to the amount of noise in a sum."""

    @abstractmethod
    def mean(self, amount: float) -> float:
        """The noise's mean is this times the identity. It is public and is taken off."""

    @abstractmethod
    def lowest(self, amount: float, dim: int, tail: float) -> float:
        """No eigenvalue of the noise on d × d, its mean removed, is below minus this."""

    @abstractmethod
    def highest(self, amount: float, dim: int, tail: float) -> float:
        """No eigenvalue of the noise on d × d, its mean removed, is above this."""

    @abstractmethod
    def moments(self, amount: float, dim: int, tail: float) -> float:
        """How long the noise on the last column, of d entries, can be."""


class GaussianMatrix(MatrixNoise):
    """Gaussian noise on packed entries: σ(√(2d) + tail), by Sudakov–Fernique for the mean and
    Lipschitz concentration (docs/privacy.md). The amount is the variance."""

    def amount(self, scale: float) -> float:
        return scale * scale

    def mean(self, amount: float) -> float:
        return 0.0

    def lowest(self, amount: float, dim: int, tail: float) -> float:
        return math.sqrt(amount) * (math.sqrt(2.0) * math.sqrt(dim) + tail)

    def highest(self, amount: float, dim: int, tail: float) -> float:
        return self.lowest(amount, dim, tail)

    def moments(self, amount: float, dim: int, tail: float) -> float:
        return math.sqrt(amount) * (math.sqrt(dim) + tail) / math.sqrt(2)


class WishartMatrix(MatrixNoise):
    """Wishart noise: K degrees of freedom have eigenvalues between (√K ∓ (√d + tail))² (Davidson &
    Szarek 2001). The amount is the degrees."""

    def amount(self, scale: float) -> float:
        return scale

    def mean(self, amount: float) -> float:
        return amount

    def lowest(self, amount: float, dim: int, tail: float) -> float:
        return amount - max(math.sqrt(amount) - math.sqrt(dim) - tail, 0.0) ** 2

    def highest(self, amount: float, dim: int, tail: float) -> float:
        if amount == 0.0:
            return 0.0
        return (math.sqrt(amount) + math.sqrt(dim) + tail) ** 2 - amount

    def moments(self, amount: float, dim: int, tail: float) -> float:
        # A Gaussian vector times the length of another one.
        if amount == 0.0:
            return 0.0
        return (math.sqrt(amount) + tail) * (math.sqrt(dim) + tail)


def unpack(packed: Vector) -> NDArray[np.float64]:
    """The symmetric matrix of a packed one.

    >>> unpack(np.array([9.0, 12.0 * math.sqrt(2), 16.0])).round(9).tolist()
    [[9.0, 12.0], [12.0, 16.0]]
    """
    size = math.isqrt(2 * len(packed))
    matrix = np.zeros((size, size))
    rows, columns = np.triu_indices(size)
    matrix[rows, columns] = np.where(rows == columns, packed, packed / math.sqrt(2))
    return matrix + np.triu(matrix, 1).T
