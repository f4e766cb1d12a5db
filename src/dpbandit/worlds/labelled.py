"""A labelled data set as a bandit: guess the label, and learn only whether the guess was right."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpbandit.errors import nearest
from dpbandit.types import Matrix
from dpbandit.worlds.block import Block


class Source(NamedTuple):
    """Where a named data set comes from: in which package it is, and what it is called there."""

    package: str
    extra: str
    call: str
    scaled: bool = True  # whether features are brought to the same spread: pixels have one unit


NAMED = {
    "digits": Source("scikit-learn", "lab", "load_digits", scaled=False),
    "wine": Source("scikit-learn", "lab", "load_wine"),
    "breast_cancer": Source("scikit-learn", "lab", "load_breast_cancer"),
    "iris": Source("scikit-learn", "lab", "load_iris"),
    "phishing": Source("river", "adapters", "Phishing"),
    "image_segments": Source("river", "adapters", "ImageSegments"),
    "bananas": Source("river", "adapters", "Bananas"),
}
COMPONENTS = 8  # features that are kept of more


class Labelled:
    """One arm per label; it pays 1 if it is the row's label, and 0 otherwise. Rows come in one
    random order after another.

    `source` is "digits", "wine", "breast_cancer" or "iris", which scikit-learn has (the extra `lab`), "phishing",
    "image_segments" or "bananas", which river has (the extra `adapters`), or a pair (X, y) of
    features, shape (n, k), and n labels of any kind, of which `labels` is the sorted list. Features
    are standardised, except the pixels of digits. Of more than 8 features the first 8 principal
    components are kept, each divided by its largest value. A constant is added, and all are divided
    by the longest row's norm. Arm a's context has these features in block a and zeros elsewhere:
    one regression per arm, with `dim` = arms · features in total.

    No context is public. Make private bandits with reward_range=(0, 1).

    >>> world = Labelled(([[0.0], [1.0], [2.0]], ["no", "yes", "yes"]))
    >>> world.labels.tolist(), world.dim
    (['no', 'yes'], 4)
    >>> block = world.episode(seed=0).block(3)
    >>> block.pool[block.shown[0]].round(2).tolist(), block.rewards[0].tolist()
    ([[0.71, 0.71, 0.0, 0.0], [0.0, 0.0, 0.71, 0.71]], [0.0, 1.0])
    """

    rounds = None
    reward_range = (0.0, 1.0)

    def __init__(self, source: str | tuple[ArrayLike, ArrayLike]) -> None:
        features, labels, scaled = _named(source) if isinstance(source, str) else (*source, True)
        given = np.asarray(features, dtype=np.float64)
        if given.ndim != 2 or given.size == 0 or np.shape(labels) != given.shape[:1]:
            raise ValueError(
                "features must have shape (n, k) and labels (n,), with n and k at least 1, not "
                f"{given.shape} and {np.shape(labels)}"
            )
        if not np.isfinite(given).all():
            raise ValueError("features hold NaN or infinity: clean the rows first")
        self.labels, self.label = np.unique(np.asarray(labels), return_inverse=True)
        if len(self.labels) < 2:
            raise ValueError(f"Labelled needs at least two labels, not {self.labels.tolist()}")
        self.name = repr(source) if isinstance(source, str) else f"{len(given)} rows"
        self.features = _features(given, scaled)
        self.arms = len(self.labels)
        self.dim = self.arms * self.features.shape[1]

    def episode(self, seed: int) -> LabelledEpisode:
        """A fresh start from this seed: another order of the rows."""
        return LabelledEpisode(self, seed)

    def __repr__(self) -> str:
        return f"Labelled({self.name}, arms={self.arms}, dim={self.dim})"


class LabelledEpisode:
    """One seed's run: an order of all rows, then another."""

    theta = None
    public_contexts = None

    def __init__(self, world: Labelled, seed: int) -> None:
        self._world, self._seed = world, seed
        self._passes = 0
        self._left = np.empty(0, dtype=np.int64)

    def block(self, count: int) -> Block:
        """The next `count` rounds."""
        world = self._world
        while len(self._left) < count:
            order = np.random.default_rng([self._seed, self._passes]).permutation(len(world.label))
            self._left = np.concatenate([self._left, order])
            self._passes += 1
        rows, self._left = self._left[:count], self._left[count:]
        contexts = np.zeros((count, world.arms, world.arms, world.features.shape[1]))
        arms = np.arange(world.arms)
        contexts[:, arms, arms] = world.features[rows, None, :]
        right = (world.label[rows, None] == arms).astype(np.float64)
        shown = np.arange(count * world.arms).reshape(count, world.arms)
        return Block(contexts.reshape(-1, world.dim), shown, right, right)


def _named(name: str) -> tuple[Any, Any, bool]:
    if name not in NAMED:
        raise ValueError(f"no data set is called {name!r}: {nearest(name, NAMED)}; or give (X, y)")
    source = NAMED[name]
    try:
        match source.package:
            case "scikit-learn":
                datasets = import_module("sklearn.datasets")
                found = getattr(datasets, source.call)()
                return found.data, found.target, source.scaled
            case "river":
                datasets = import_module("river.datasets")
                rows = [(list(x.values()), y) for x, y in getattr(datasets, source.call)()]
                return [x for x, _ in rows], [y for _, y in rows], source.scaled
            case other:
                raise ValueError(f"nobody said how {other!r} hands out its data")
    except ImportError:
        raise ImportError(
            f"Labelled({name!r}) is a data set of {source.package}: pip install "
            f"'dpbandit[{source.extra}]', or give (X, y)"
        ) from None


def _features(given: Matrix, scaled: bool) -> Matrix:
    centred = given - given.mean(axis=0)
    if scaled:
        centred /= np.where(given.std(axis=0) > 0, given.std(axis=0), 1.0)
    if centred.shape[1] > COMPONENTS:
        right = np.linalg.svd(centred, full_matrices=False)[2][:COMPONENTS]
        # A component's sign is arbitrary: its largest entry is made positive.
        right *= np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])[:, None]
        centred = centred @ right.T
    largest = np.abs(centred).max(axis=0)
    features = np.column_stack([centred / np.where(largest > 0, largest, 1.0), np.ones(len(given))])
    return np.asarray(features / np.linalg.norm(features, axis=1).max())
