"""MovieLens 100K as a bandit: which of several films that a person has seen did they like?

Uses Harper & Konstan 2015 (GroupLens), in the form that RecBole's wheel carries; never part of this package.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.encoder import Encoder, Number
from dpbandit.worlds.block import Block
from dpbandit.worlds.data import DataMissing, cache_folder

FILES = {
    "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
    "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
    "ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
}
TERMS = (
    "research use; no redistribution without permission; cite Harper & Konstan, ACM TiiS 5(4), 2015"
)
LIKED = 4.0  # stars, of five
MOST_POOL = 20  # everybody rated at least so many
YEARS = (1975.0, 1998.0)  # older films count as of the first
GENRES = ("Drama", "Comedy", "Action", "Thriller", "Romance")  # the most frequent ones


class MovieLens:
    """Each round a person comes, drawn uniformly from 943, and is shown one of `pool` films, drawn uniformly from those that
    they rated. It pays 1 if they gave it four stars or more.

    `encoder` makes a context of a film's year and of five genres, all public. `records(seed, rows)` is a log of films
    shown uniformly at random, as a table's rows. Expected rewards are unknown: `means` are NaN.

    The files are looked for in $DPBANDIT_DATA/ml-100k, in the user cache, and in an installed recbole
    (`pip install --no-deps recbole`).
    """

    rounds = None
    reward_range = (0.0, 1.0)

    def __init__(self, pool: int = 10) -> None:
        if not 2 <= pool <= MOST_POOL:
            raise ValueError(f"MovieLens needs a pool of 2 to {MOST_POOL}, not {pool}")
        self.table = load(find())
        self.arms = pool
        genres = {genre: Number(0, 1) for genre in GENRES}
        self.encoder = Encoder({"year": Number(*YEARS), **genres}, item=["year", *genres])
        self.dim = self.encoder.dim
        fields = self.encoder.item_fields
        self.public_contexts = self.encoder.transform(
            [{name: film[name] for name in fields} for film in self.table.films]
        )
        self.people = len(self.table.starts) - 1

    @property
    def films(self) -> list[dict[str, Any]]:
        """All films: number, title, and the encoder's fields."""
        return self.table.films

    def episode(self, seed: int) -> MovieLensEpisode:
        """A fresh start from this seed."""
        return MovieLensEpisode(self, seed)

    def records(self, seed: int, rows: int) -> Iterator[dict[str, Any]]:
        """A log of films shown uniformly at random: person, what was on offer, film, its fields, liked."""
        episode, coins = self.episode(seed), np.random.default_rng([seed, 2])
        while rows > 0:
            block = episode.block(min(rows, MovieLensEpisode.PIECE))
            rows -= len(block.shown)
            shown = coins.integers(0, self.arms, size=len(block.shown))
            people = episode.users_of_last_block()
            for person, offer, at, liked in zip(
                people.tolist(), block.shown.tolist(), shown.tolist(), block.rewards, strict=True
            ):
                film = self.films[offer[at]]
                offered = [self.films[number]["film"] for number in offer]
                yield {
                    "person": person, "offered": offered, **film, "liked": float(liked[at])
                }  # fmt: skip

    def __repr__(self) -> str:
        return f"MovieLens(pool={self.arms})"


class MovieLensEpisode:
    """One seed's run. Rounds are drawn in pieces of a fixed size, so that blocks of any size give the same rounds."""

    PIECE = 1024
    theta = None

    def __init__(self, world: MovieLens, seed: int) -> None:
        self._world, self._seed, self._pieces = world, seed, 0
        self.public_contexts: NDArray[np.float64] = world.public_contexts
        nothing = np.empty(0, dtype=np.int64)
        self._left = nothing, nothing.reshape(0, world.arms)
        self._last = nothing

    def _piece(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Persons, and which of the ratings are on offer."""
        rng = np.random.default_rng([self._seed, 1, number])
        starts, arms = self._world.table.starts, self._world.arms
        people = rng.integers(0, self._world.people, size=self.PIECE)
        counts = starts[people + 1] - starts[people]
        drawn = [rng.choice(count, size=arms, replace=False) for count in counts]
        return people, starts[people][:, None] + np.array(drawn)

    def block(self, count: int) -> Block:
        """The next `count` rounds."""
        people, rated = self._left
        while len(people) < count:
            more = self._piece(self._pieces)
            self._pieces += 1
            people = np.concatenate([people, more[0]])
            rated = np.concatenate([rated, more[1]])
        self._left = people[count:], rated[count:]
        self._last = people[:count]
        table = self._world.table
        rewards = table.liked[rated[:count]]
        means = np.full_like(rewards, np.nan)
        return Block(self.public_contexts, table.rated[rated[:count]], rewards, means)

    def users_of_last_block(self) -> NDArray[np.int64]:
        """Who came in each round of the latest block: numbers from 0."""
        return self._last


class Table(NamedTuple):
    """Person p rated films `rated[starts[p]:starts[p + 1]]`, and liked those where `liked` is 1."""

    films: list[dict[str, Any]]
    rated: NDArray[np.int64]
    liked: NDArray[np.float64]
    starts: NDArray[np.int64]


def find() -> Path:
    """The folder with the three files, each checked; DataMissing if there is none."""
    given = os.environ.get("DPBANDIT_DATA")
    places = [] if not given else [Path(given).expanduser() / "ml-100k"]
    places.append(cache_folder() / "ml-100k")
    recbole = find_spec("recbole")
    if recbole is not None and recbole.origin is not None:
        places.append(Path(recbole.origin).parent / "dataset_example" / "ml-100k")
    for folder in places:
        if not all((folder / name).is_file() for name in FILES):
            continue
        for name, sha256 in FILES.items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != sha256:
                raise ValueError(
                    f"{folder / name} is not the file that RecBole 1.2.1 ships: its sha256 should be {sha256}"
                )
        return folder
    looked = ", ".join(map(str, places))
    raise DataMissing(
        f"the data set MovieLens 100K is missing: {', '.join(FILES)} are in none of {looked}. "
        "pip install --no-deps recbole brings them, or put its folder recbole/dataset_example/ml-100k at "
        f"{cache_folder() / 'ml-100k'}. Terms: {TERMS}."
    )


@lru_cache(maxsize=2)
def load(folder: Path) -> Table:
    """The files as arrays. Films are numbered by where they stand."""
    films = []
    for line in _lines(folder / "ml-100k.item"):
        number, title, year, genres = line.split("\t")
        films.append(
            {
                "film": number,
                "title": title,
                "year": int(year) if year.isdigit() else None,
                **{genre: float(genre in genres.split(" ")) for genre in GENRES},
            }
        )
    place = {film["film"]: at for at, film in enumerate(films)}
    rows = [line.split("\t") for line in _lines(folder / "ml-100k.inter")]
    people = np.array([int(row[0]) for row in rows])
    rated = np.array([place[row[1]] for row in rows])
    liked = np.array([float(row[2]) >= LIKED for row in rows], dtype=np.float64)
    order = np.lexsort((rated, people))
    _, counts = np.unique(people, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Table(films, rated[order], liked[order], starts)


def _lines(file: Path) -> list[str]:
    return [line for line in file.read_text("latin-1").split("\n")[1:] if line]
