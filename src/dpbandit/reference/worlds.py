"""Simulated worlds in plain NumPy: the same rounds as the compiled core draws, number by number."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.reference.random import circle, lots, normals, philox, uniforms
from dpbandit.types import Matrix

Rows = NDArray[np.int64]

LOT = 1024  # rounds that are drawn together
# Streams of a world's key.
RARITIES, CLICKS, SLATES, NOISES = 1 << 57, 1 << 58, 1 << 59, 1 << 60


class World:
    """One episode; `rounds(start, count)` are the rest of a lot at most."""

    def __init__(self, spec: dict[str, Any]) -> None:
        makers = {
            "synthetic": self._synthetic,
            "bernoulli": self._bernoulli,
            "degenerate": self._degenerate,
            "drifting": self._drifting,
            "clicks": self._clicks,
            "moving": self._moving,
        }
        if spec["world"] not in makers:
            raise ValueError(f"no world is called {spec['world']!r} ({', '.join(makers)})")
        self._lot = lru_cache(maxsize=1)(makers[spec["world"]])
        self.spec = spec

    def rounds(self, start: int, count: int) -> tuple[Matrix, Rows, Matrix, Matrix]:
        """Up to `count` rounds from `start` on: contexts, rows shown, rewards, mean rewards."""
        number, first = divmod(start, LOT)
        contexts, shown, rewards, means = self._lot(number)
        part = slice(first, min(first + count, LOT))
        if self.spec["world"] == "drifting":  # contexts of these rounds alone
            arms = self.spec["arms"]
            contexts = contexts[part.start * arms : part.stop * arms]
            shown = shown - part.start * arms
        return contexts, shown[part], rewards[part], means[part]

    def _noise(self, number: int) -> Matrix:
        drawn = normals(self.spec["key"], number | NOISES, LOT)
        return np.asarray(self.spec["reward_noise"] * drawn)[:, None]

    def _synthetic(self, number: int) -> tuple[Matrix, Rows, Matrix, Matrix]:
        pool = self.spec["pool"]
        shown = self._slates(number, np.zeros(LOT, dtype=np.int64), np.full(LOT, len(pool)))
        means = (pool @ self.spec["theta"])[shown]
        return pool, shown, means + self._noise(number), means

    def _degenerate(self, number: int) -> tuple[Matrix, Rows, Matrix, Matrix]:
        pool, spec = self.spec["pool"], self.spec
        common = len(pool) - spec["rare_arms"]
        rare = uniforms(spec["key"], number | RARITIES, LOT) < spec["rare"]
        first = np.where(rare, common, 0)
        shown = self._slates(number, first, np.where(rare, spec["rare_arms"], common))
        means = (pool @ spec["theta"])[shown]
        return pool, shown, means + self._noise(number), means

    def _bernoulli(self, number: int) -> tuple[Matrix, Rows, Matrix, Matrix]:
        theta = self.spec["theta"]
        drawn = uniforms(self.spec["key"], number | CLICKS, LOT * len(theta))
        shown = np.tile(np.arange(len(theta)), (LOT, 1))
        means = np.tile(theta, (LOT, 1))
        clicks = (drawn.reshape(LOT, -1) < means).astype(np.float64)
        return np.eye(len(theta)), shown, clicks, means

    def _clicks(self, number: int) -> tuple[Matrix, Rows, Matrix, Matrix]:
        pool = self.spec["pool"]
        shown = self._slates(number, np.zeros(LOT, dtype=np.int64), np.full(LOT, len(pool)))
        means = self.spec["chances"][shown]
        drawn = uniforms(self.spec["key"], number | CLICKS, LOT)[:, None]
        return pool, shown, (drawn < means).astype(np.float64), means

    def _moving(self, number: int) -> tuple[Matrix, Rows, Matrix, Matrix]:
        """θ is the row of the path that a round falls into; after the path it stays."""
        spec, pool, path = self.spec, self.spec["pool"], self.spec["path"]
        now = np.minimum(number * LOT + np.arange(LOT), spec["path_rounds"] - 1)
        row = now * len(path) // spec["path_rounds"]
        offered = np.where(row > 0, len(pool), len(pool) - spec["hidden"])
        shown = self._slates(number, np.zeros(LOT, dtype=np.int64), offered)
        means = np.einsum("tai,ti->ta", pool[shown], path[row])
        return pool, shown, means + self._noise(number), means

    def _drifting(self, number: int) -> tuple[Matrix, Rows, Matrix, Matrix]:
        spec, dim = self.spec, self.spec["dim"]
        pool = spec["pool"]
        slates = self._slates(number, np.zeros(LOT, dtype=np.int64), np.full(LOT, len(pool)))
        now = (number * LOT + np.arange(LOT)) / spec["period"]
        turned = (now - np.floor(now))[:, None] - np.arange(dim) / dim
        cosine = circle(turned - np.floor(turned))[1]
        weights = spec["faded"] + (1 - spec["faded"]) * (1 + cosine) / 2
        contexts = pool[slates] * weights[:, None, :]
        contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)
        means = contexts @ spec["theta"]
        shown = np.arange(slates.size).reshape(slates.shape)
        return contexts.reshape(-1, dim), shown, means + self._noise(number), means

    def _slates(self, number: int, first: Rows, size: Rows) -> Rows:
        """A row of different numbers first, first + 1, … for each round, every choice equally
        likely. A row with a number twice is drawn again; where that is too likely, a deck is
        shuffled."""
        arms, key = self.spec["arms"], self.spec["key"]
        rounds = (number * LOT + np.arange(LOT)).astype(np.uint64)
        shown = np.empty((LOT, arms), dtype=np.int64)
        dealt = arms * arms > size
        for t in np.flatnonzero(dealt):
            shown[t] = self._deal(key, int(rounds[t]), int(first[t]), int(size[t]))
        left = np.flatnonzero(~dealt)
        words = np.arange((arms + 3) // 4, dtype=np.uint64)
        for attempt in range(256):
            if len(left) == 0:
                break
            stream = np.uint64(SLATES | attempt) | rounds[left] << np.uint64(8)
            four = np.stack(philox(key, stream[:, None], words[None, :]), axis=2)
            drawn = four.reshape(len(left), -1)[:, :arms] * size[left, None].astype(np.uint64)
            shown[left] = first[left, None] + (drawn >> np.uint64(32)).astype(np.int64)
            ordered = np.sort(shown[left], axis=1)
            left = left[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        return shown

    def _deal(self, key: int, round_: int, first: int, size: int) -> Rows:
        deck = np.arange(first, first + size)
        words = lots(key, SLATES | round_ << 8, np.arange(self.spec["arms"])) >> np.uint64(32)
        for j, word in enumerate(words.tolist()):
            other = j + ((word * (size - j)) >> 32)
            deck[[j, other]] = deck[[other, j]]
        return deck[: self.spec["arms"]].copy()
