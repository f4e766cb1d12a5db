"""Shaped moments: which vector u, of norm at most 1, stands for a context x in the private sum Σ u·r.

Noise on Σ x·r is round, and contexts are not: directions that contexts rarely take drown in it. With
a public whitener P (the inverse square root of the contexts' second moments) every direction gets its
share. `ellipsoid` sums Px/R, R the largest ‖Px‖ among the public contexts; a context further out
counts less, never more. `instruments` sums Px/‖Px‖: every reward uses all of the norm it pays for.
The estimate solves Σ u·xᵀθ = Σ u·r, so any u that depends on public things alone will do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpbandit.errors import OptionError
from dpbandit.options import Options, one_of
from dpbandit.types import Matrix

SHAPES = ("round", "ellipsoid", "instruments")
# Directions that no public context takes would otherwise get infinite weight.
FAINTEST = 1e-4


class Shape(NamedTuple):
    """P, its inverse, and the least ‖Px‖ that a sum is divided by."""

    whitener: Matrix
    inverse: Matrix
    floor: float


ROUND = Shape(np.empty((0, 0)), np.empty((0, 0)), 0.0)


def whitener(second_moments: Matrix) -> tuple[Matrix, Matrix]:
    """The symmetric P with P·C·P ≈ 1, and its inverse, for second moments C = Σ xxᵀ/n.

    >>> whitener(np.diag([4.0, 1.0]))[0].round(3).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    values, vectors = np.linalg.eigh(second_moments)
    least = FAINTEST * max(float(values.mean()), 1e-300)
    roots = np.sqrt(np.maximum(values, 0.0) + least)
    return (vectors / roots) @ vectors.T, (vectors * roots) @ vectors.T


def shape_of(options: Options, wanted: str) -> Shape:
    """What the option `shape` asks for."""
    one_of("shape", wanted, SHAPES)
    if wanted == "round":
        return ROUND
    contexts = options.public_contexts
    if contexts is None:
        raise OptionError(
            f"shape={wanted!r} needs public_contexts to know how contexts are spread; 'round' does "
            "not"
        )
    forward, inverse = whitener(contexts.T @ contexts / len(contexts))
    lengths = np.linalg.norm(contexts @ forward, axis=1)
    return Shape(forward, inverse, float(lengths.max()) if wanted == "ellipsoid" else 0.0)
