"""LastFM as a bandit (section 5 of Wang, Zhao & Wang 2022): which of 25 artists did this user listen to?

Uses HetRec 2011 (Cantador, Brusilovsky & Kuflik), for non-commercial use; found by `data.find`, never part of this package.
"""

from __future__ import annotations

import io
import re
import zipfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.worlds import data
from dpbandit.worlds.block import Block
from dpbandit.worlds.drawn import repeated

RECIPE = 1  # part of the cached file's name: raise it when the features change
ROUNDING = 1e-10  # measured at 25 dimensions: norms are below 1e-16 or above 9e-6
MOST_DIM, MOST_ARMS = 500, 1000  # far beyond use; keep building and drawing within seconds


class LastFM:
    """Each round shows `pool` artists: one that a random user listened to (reward 1), the rest not listened to (reward 0).

    Features: artists without tags are dropped (12,133 stay). Every tag a user gave an artist adds its words to that artist:
    tags are lower-cased and split on white space, `_`, `-` and `'`, which makes 7,653 words (papers quote other counts,
    without the rule). Sublinear TF-IDF; PCA (`features="pca"`, centred) or truncated SVD ("svd", not centred) to `dim`; rows
    scaled to unit norm (57 artists whose words touch none of the 25 SVD components stay zero).

    Each round: a user drawn uniformly from all 1,892, one of their artists, the others uniform without repetition, shuffled.
    Expected rewards are unknown: `means` are NaN, and so is regret; compare rewards with those of
    "random".

    `per_user=True` makes experiments use one bandit per user instead of one for all. The rounds are
    the same, and `episode.users_of_last_block()` returns their users.

    `dpb.run(LastFM(), ["linucb", "random"], horizon=50_000, seeds=5)`: LinUCB earns 8.9 times what random play does, 8.3 times
    with SVD features (measured).
    """

    rounds = None
    reward_range = (0.0, 1.0)
    tag_rule = "lower-cased, split into words on white space, '_', '-' and \"'\""

    def __init__(
        self,
        features: Literal["pca", "svd"] = "pca",
        per_user: bool = False,
        dim: int = 25,
        pool: int = 25,
    ) -> None:
        if features not in ("pca", "svd"):
            raise ValueError(f"features must be 'pca' or 'svd', not {features!r}")
        if not 1 <= dim <= MOST_DIM or not 2 <= pool <= MOST_ARMS:
            raise ValueError(
                f"LastFM needs dim 1 to {MOST_DIM} and pool 2 to {MOST_ARMS}, not dim={dim}, pool={pool}"
            )
        self.features, self.per_user, self.dim, self.arms = features, per_user, dim, pool
        self.table = load(data.find("lastfm"), features, dim)
        self.public_contexts = self.table.contexts
        self.artists, self.users = len(self.table.contexts), len(self.table.starts) - 1
        self.words = int(self.table.words)

    def episode(self, seed: int) -> LastFMEpisode:
        """A fresh start from this seed."""
        return LastFMEpisode(self, seed)

    def __repr__(self) -> str:
        return f"LastFM(features={self.features!r}, per_user={self.per_user}, dim={self.dim}, pool={self.arms})"


class LastFMEpisode:
    """One seed's run. Rounds are generated in pieces of a fixed size, so that blocks of any size give the same rounds."""

    PIECE = 1024
    theta = None

    def __init__(self, world: LastFM, seed: int) -> None:
        self._world, self._table, self._seed = world, world.table, seed
        self.public_contexts: NDArray[np.float64] = world.table.contexts
        self._keys = world.table.keys()
        self._pieces = 0
        nothing = np.empty(0, dtype=np.int64)
        self._left = nothing, nothing.reshape(0, world.arms), nothing
        self._last_users = nothing

    def _piece(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Users, shown artists, and where among them the listened one is."""
        rng = np.random.default_rng([self._seed, 1, number])
        table, arms, every = self._table, self._world.arms, np.arange(self.PIECE)
        users = rng.integers(0, self._world.users, size=self.PIECE)
        listened = table.listened[rng.integers(table.starts[users], table.starts[users + 1])]
        others = rng.integers(0, self._world.artists, size=(self.PIECE, arms - 1))
        # Only unfit entries are drawn again. No step looks at which artist it is beyond "unfit", so by symmetry every
        # sequence of distinct artists that the user did not listen to is equally likely.
        while (unfit := self._heard(users, others) | repeated(others)).any():
            others[unfit] = rng.integers(0, self._world.artists, size=int(unfit.sum()))
        places = rng.integers(0, arms, size=self.PIECE)
        shown = np.concatenate([listened[:, None], others], axis=1)
        # The others are in random order already: one swap shuffles.
        shown[:, 0] = shown[every, places]
        shown[every, places] = listened
        return users, shown, places

    def _heard(self, users: NDArray[np.int64], artists: NDArray[np.int64]) -> NDArray[np.bool_]:
        wanted = users[:, None] * self._world.artists + artists
        found = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.asarray(self._keys[found] == wanted)

    def block(self, count: int) -> Block:
        """The next `count` rounds."""
        users, shown, places = self._left
        while len(users) < count:
            more = self._piece(self._pieces)
            self._pieces += 1
            users, shown, places = (
                np.concatenate(pair) for pair in zip((users, shown, places), more, strict=True)
            )
        self._left = users[count:], shown[count:], places[count:]
        self._last_users = users[:count]
        rewards = np.zeros((count, self._world.arms))
        rewards[np.arange(count), places[:count]] = 1.0
        return Block(self.public_contexts, shown[:count], rewards, np.full_like(rewards, np.nan))

    def users_of_last_block(self) -> NDArray[np.int64]:
        """Whose round each round of the latest block was: numbers from 0 to world.users − 1."""
        return self._last_users


class Table(NamedTuple):
    """What a world needs of the data. User u listened to `listened[starts[u]:starts[u + 1]]`, ascending."""

    contexts: NDArray[np.float64]
    listened: NDArray[np.int64]
    starts: NDArray[np.int64]
    words: int

    def keys(self) -> NDArray[np.int64]:
        """One ascending number for each pair of a user and an artist they listened to."""
        users = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return np.asarray(users * len(self.contexts) + self.listened)


@lru_cache(maxsize=4)
def load(path: Path, features: str, dim: int) -> Table:
    """The table, from memory, from the user cache, or built in seconds and then cached."""
    # data.find has checked the file, so the expected checksum is its checksum.
    name = f"lastfm-{features}-{dim}-recipe{RECIPE}-{data.SOURCES['lastfm'].sha256[:16]}.npz"
    cached = data.cache_folder() / "features" / name
    try:
        with np.load(cached) as saved:
            return Table(*(saved[name] for name in Table._fields))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        pass  # none yet, or a damaged one: build it
    table = build(path, features, dim)
    content = io.BytesIO()
    np.savez(content, **table._asdict())
    with suppress(OSError):  # a read-only home only costs the next process a few seconds
        data.write(cached, content.getvalue())
    return table


def build(path: Path, features: str, dim: int) -> Table:
    """The table, from the released zip."""
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import PCA, TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    with zipfile.ZipFile(path) as archive:
        known = [int(line.split("\t")[0]) for line in _lines(archive, "artists.dat", "utf-8")]
        tags = dict(line.split("\t") for line in _lines(archive, "tags.dat", "latin-1"))
        listens = _numbers(archive, "user_artists.dat")[:, :2]
        taggings = _numbers(archive, "user_taggedartists.dat")[:, :3]

    taggings = taggings[np.isin(taggings[:, 1], known)]
    artists, rows = np.unique(taggings[:, 1], return_inverse=True)
    used, which = np.unique(taggings[:, 2], return_inverse=True)
    words_of = [split(tags[str(tag)]) for tag in used]
    columns = {
        word: place
        for place, word in enumerate(sorted({word for words in words_of for word in words}))
    }
    pairs = np.array([(tag, columns[word]) for tag, words in enumerate(words_of) for word in words])
    times = csr_matrix((np.ones(len(rows)), (rows, which)), shape=(len(artists), len(used)))
    content = csr_matrix(
        (np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(used), len(columns))
    )
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(times @ content)
    # ARPACK is exact to rounding, unlike randomised solvers; random_state is only where it starts.
    if features == "pca":
        reduced = PCA(dim, svd_solver="arpack", random_state=0).fit_transform(weights)
    else:
        reduced = TruncatedSVD(dim, algorithm="arpack", random_state=0).fit_transform(weights)
    norms = np.linalg.norm(reduced, axis=1, keepdims=True)
    # Artists none of whose words reach a component are zero up to rounding, and rounding noise is no direction.
    contexts = np.where(norms > ROUNDING, reduced / np.maximum(norms, ROUNDING), 0.0)
    contexts = np.ascontiguousarray(contexts, dtype=np.float64)

    listens = listens[np.isin(listens[:, 1], artists)]
    listens = listens[np.lexsort((listens[:, 1], listens[:, 0]))]
    _, counts = np.unique(listens[:, 0], return_counts=True)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Table(
        contexts, np.searchsorted(artists, listens[:, 1]).astype(np.int64), starts, len(columns)
    )


def split(tag: str) -> list[str]:
    """The words of a tag.

    >>> split("Drum_n-Bass"), split("rock 'n' roll")
    (['drum', 'n', 'bass'], ['rock', 'n', 'roll'])
    """
    return [word for word in re.split(r"[\s_\-']+", tag.lower()) if word]


def _lines(archive: zipfile.ZipFile, name: str, encoding: str) -> list[str]:
    # Not splitlines: Latin-1 text may hold its other line ends inside a tag.
    lines = archive.read(name).decode(encoding).replace("\r\n", "\n").split("\n")
    return [line for line in lines[1:] if line]


def _numbers(archive: zipfile.ZipFile, name: str) -> NDArray[np.int64]:
    return np.loadtxt(io.BytesIO(archive.read(name)), dtype=np.int64, delimiter="\t", skiprows=1)
