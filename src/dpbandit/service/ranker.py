"""Choosing an arm from a released model: NumPy alone, no learner's code, nothing private.

Agrees with `dpb.load(exported).select`, except that ties are broken by lot: before the first release all arms of one length
tie, and always showing the first would teach nothing about the others.
"""

from __future__ import annotations

import math
import random
import struct
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import NormError, NotFiniteError, ShapeError

TIE = 1e-12  # as in dpbandit.numerics
NORM_TOLERANCE = 1e-9  # as in dpbandit.bandits.base

np.seterr(all="ignore")  # squares of huge contexts overflow, which is what the norm check then sees


class Model:
    """One released model, ready to score."""

    __slots__ = (
        "_about_mean",
        "_l1",
        "_limit",
        "_one_hot",
        "_other",
        "_scale",
        "alpha",
        "dim",
        "inverse",
        "lot",
        "max_norm",
        "theta",
        "version",
    )

    def __init__(self, version: int, record: dict[str, Any]) -> None:
        self.version = version
        self.dim: int = record["dim"]
        self.max_norm: float = record["max_norm"]
        self._scale = 1 / self.max_norm
        self._limit = (1 + NORM_TOLERANCE) ** 2
        self._l1: float | None = record["l1_limit"]
        self.lot: bool = record["plays_at_random"]
        # Whether an arm's bonus is about how it differs from the others offered.
        self._about_mean = bool(record.get("bonus_about_mean", False))
        self._one_hot = bool(record.get("one_hot", False))
        self._other: Any = None
        if not record.get("draws_from_posterior", False):
            self.theta = np.array(record["theta"], dtype=np.float64)
            self.alpha = float(record["alpha"])
            # α√(xᵀA⁻¹x) = √(xᵀ(α²A⁻¹)x)
            self.inverse = np.array(record["inverse_gram"], dtype=np.float64) * self.alpha**2
        else:  # scored by a draw rather than by a bound
            from dpbandit.bandits.files import ReleasedModel

            self._other = ReleasedModel(record)

    def check(self, contexts: list[list[float]]) -> NDArray[np.float64]:
        """The contexts as an array, or an error that says what is allowed."""
        dim, arms = self.dim, len(contexts)
        for row in contexts:
            if len(row) != dim:
                raise ShapeError(f"every context must have {dim} numbers; one has {len(row)}")
        if not contexts:
            raise ShapeError("contexts must hold at least one arm")
        # The shortest way from nested lists to an array.
        packed = struct.pack(f"{arms * dim}d", *chain.from_iterable(contexts))
        given = np.frombuffer(packed).reshape(arms, dim)
        scaled = given if self._scale == 1.0 else given * self._scale
        longest = np.einsum("ij,ij->i", scaled, scaled).max()
        if not longest <= self._limit:
            if not np.isfinite(given).all():
                raise NotFiniteError("a context holds a number that is not finite")
            raise NormError(
                f"a context has norm {math.sqrt(longest) * self.max_norm:.6g}, above max_norm = {self.max_norm:g}: "
                "scale the contexts, or make the bandit with a larger max_norm"
            )
        if self._l1 is not None and np.abs(given).sum(axis=1).max() > self._l1 * (1 + 1e-9):
            raise NormError(f"a context has an L1 norm above {self._l1:.6g}, the largest in public_contexts")
        if self._one_hot and not (((given == 0) | (given == 1)).all() and (given.sum(axis=1) == 1).all()):
            raise ShapeError(
                f"this bandit is for arms without features: a context must be one-hot, a single 1 at its arm's place among "
                f"{dim} and 0 elsewhere"
            )
        return given

    def choose(self, given: NDArray[np.float64]) -> int:
        """The best arm among checked contexts."""
        if self.lot:
            return random.randrange(len(given))
        if self._other is not None:
            return int(self._other.select(given))
        apart = given - given.mean(axis=0) if self._about_mean else given
        widths = np.einsum("ij,ij->i", apart @ self.inverse, apart)
        np.maximum(widths, 0.0, out=widths)
        np.sqrt(widths, out=widths)
        scores = given @ self.theta
        scores += widths
        best = int(scores.argmax())
        near = scores >= scores[best] - TIE
        if np.count_nonzero(near) > 1:
            return int(random.choice(near.nonzero()[0]))
        return best
