"""What contexts alone say before any reward: their spread, and a sensible prior on θ.

All of it is public. Statistics come from the public contexts, or grow from the contexts offered so
far. The prior says that rewards lie around the middle of their range. Where contexts can express a
constant (a linear function of x comes close to 1: R² = mᵀC⁻¹m above ½), that is said along the
contexts' mean m; where they cannot, by an intercept. Differences between arms have a variance that
is small against the range.
"""

from __future__ import annotations

import math

import numpy as np

from dpbandit.reference.algebra import factor, inverse_of_lower
from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.types import Matrix, Vector

# Directions that contexts hardly take would otherwise get instruments of their own.
FAINTEST = 1e-4
# The prior variance of differences between the arms of one slate, and of the intercept beside a
# mean direction, in W².
DIFFERENCES = 1.0 / 256.0
INTERCEPT = 0.01
# All arms of this many decisions are looked at, then those of every eighth.
LOOKED_AT = 64
# Different contexts are told apart by the cell of this many that they fall into: exact for few,
# which is when it matters.
CELLS = 4096


class Prior(Holder):
    """Statistics of contexts, and what follows from them."""

    arrays = "factor whitener precision pull"
    slates = Number(float)
    different = Number(float)  # contexts that differ
    pairs = Number(float)  # slates of at least two arms
    scatter = Number(float)  # of those slates, added up
    context_size = Number(float)  # √E‖x‖²

    def __init__(self, dim: int, public: Matrix) -> None:
        self.second = np.zeros((dim, dim))  # Σ xxᵀ, each slate weighing 1
        self.first = np.zeros(dim)  # Σ x
        # U and U⁻¹, with UᵀU the second moments of (x/size, 1): U⁻ᵀ makes them round.
        self.factor, self.whitener = np.eye(dim + 1), np.eye(dim + 1)
        # Of (θ, intercept), and precision·mean.
        self.precision, self.pull = np.eye(dim + 1), np.zeros(dim + 1)
        self.cells = np.zeros(0 if len(public) else CELLS)  # 1 where a context has been seen
        self.fixed = len(public) > 0  # the contexts are public, and so all known
        self.slates = self.different = self.pairs = self.scatter = 0.0
        self.context_size = 1.0
        if len(public):
            self.second[:] = public.T @ public / len(public)
            self.first[:] = public.mean(axis=0)
            self.slates = self.pairs = 1.0
            self.different = len(public)
            self.scatter = max(float(np.trace(self.second)) - float(self.first @ self.first), 0.0)

    def look(self, contexts: Matrix) -> None:
        """A slate was offered."""
        arms, mean = len(contexts), contexts.mean(axis=0)
        self.first += mean
        self.second += contexts.T @ contexts / arms
        self.slates += 1.0
        for x in contexts:
            self._note(x)
        if arms > 1:
            self.pairs += 1.0
            total, length = float((contexts * contexts).sum()), float(mean @ mean)
            self.scatter += max(total - arms * length, 0.0) / (arms - 1)

    def look_at_one(self, x: Vector) -> None:
        """A context was played of which no slate is known."""
        self.first += x
        self.second += np.outer(x, x)
        self.slates += 1.0
        self._note(x)

    def _note(self, x: Vector) -> None:
        """Count a new context: four articles offered a thousand times say no more than four.

        Its cell follows from direction and size, so that it does not matter in which unit contexts
        are measured.
        """
        if self.different >= CELLS / 2:  # more make no difference
            return
        total, length = 0.0, 0.0
        for i, entry in enumerate(x.tolist()):
            share = (i + 1) * 0.6180339887498949
            total += entry * (share - math.floor(share))
            length += abs(entry)
        cell = 0
        if length > 0.0:
            place = (total / length + math.log(length)) * 3141592.653589793
            cell = int((place - math.floor(place)) * CELLS)
        self.different += 1.0 - float(self.cells[cell])
        self.cells[cell] = 1.0

    def refresh(self, middle: float, width: float, differences: float = DIFFERENCES) -> None:
        """Bring whitener and prior up to date: where rewards lie, in a range this wide.

        `differences` is the variance of differences between the arms of one slate, in W².
        """
        d, slates = len(self.first), max(self.slates, 1.0)
        second, mean = self.second / slates, self.first / slates
        square_size = float(np.trace(second))
        if square_size < 1e-200:  # nothing seen yet, or nothing to see
            square_size = 1.0
        self.context_size = math.sqrt(square_size)
        direction, length = mean / self.context_size, float(mean @ mean)
        # What was not seen yet is taken to be round, with the weight of one slate.
        known = slates / (slates + (0.0 if self.fixed else 1.0))
        moments = np.ones((d + 1, d + 1))
        moments[:d, :d] = second / square_size * known + (1.0 - known) / d * np.eye(d)
        moments[:d, d] = moments[d, :d] = direction * known
        moments += FAINTEST * np.abs(moments).sum(axis=1).max() * np.eye(d + 1)
        self.factor[:] = factor(moments).T
        self.whitener[:] = inverse_of_lower(self.factor.T).T
        # R² of a constant on the contexts, with the usual correction for fitting d numbers.
        solved = self.whitener[:d, :d].T @ direction
        square, seen = min(float(solved @ solved), 1.0), self.different
        enough = seen > d + 1.0
        explained = 1.0 - (1.0 - square) * (seen - 1.0) / (seen - d - 1.0) if enough else 0.0
        along_mean = explained > 0.5
        # V = v + κ·mmᵀ/E‖x‖² on θ, so V⁻¹ = (1 − mmᵀ·shrink/E‖x‖²)/v; its mean is middle·m/E‖x‖².
        scatter = self.scatter / self.pairs if self.pairs > 0.0 else square_size - length
        variance = differences * width * width / max(scatter, 1e-9 * square_size)
        intercept = INTERCEPT * width * width + (0.0 if along_mean else 0.25 * width * width)
        kappa = 0.25 * width * width / square_size if along_mean else 0.0
        stiffness = variance + kappa * (length / square_size)
        shrink = kappa / stiffness
        self.precision[:] = 0.0
        self.precision[:d, :d] = (np.eye(d) - shrink * np.outer(direction, direction)) / variance
        self.precision[d, d] = 1.0 / intercept
        # V⁻¹m = m/(v + κ‖m‖²/E‖x‖²)
        self.pull[:d] = middle * direction / self.context_size / stiffness if along_mean else 0.0
        self.pull[d] = 0.0 if along_mean else middle / intercept

    def has_features(self) -> bool:
        """Whether there are more contexts than a parameter has numbers: arms tell of each other."""
        return self.different > len(self.first) + 1

    def shares_features(self) -> bool:
        """Whether, with them, every two features meet in some context.

        Then every play tells of all arms. Not so in blocks of features.
        """
        return self.has_features() and bool(self.second.all())

    def level(self, theta: Vector, covariance: Matrix) -> tuple[float, float]:
        """The mean reward of all contexts, and its standard deviation, if θ⁺ has these moments."""
        mean = np.append(self.first / max(self.slates, 1.0), 1.0)
        return float(mean @ theta), math.sqrt(max(float(mean @ covariance @ mean), 0.0))

    def fields(self) -> Fields:
        seen = {} if self.fixed else {"cells": self.cells}
        moments = {"context_second": self.second, "context_first": self.first}
        return {**super().fields(), **moments, **seen}
