"""The sums that a log is boiled down to: what they are, and how those of its parts are merged.

Every row with context x and clipped reward r adds c·z·zᵀ, a second matrix and c·z, which are
public, and one item v·u, which is private: z is x or (x/size, 1), v = (r − middle)/width, and u is
x/max_norm, or c·P·z with a public P and c = 1/max(‖Pz‖, floor). Where contexts are private too there
are no public sums, and the item has u·uᵀ beside it. Items are whole numbers of the grid
and their sums are exact, in any order. Public sums are plain within a few thousand rows and
compensated beyond; they are merged in the log's order, and so do not depend on how many threads or
nodes read it either. `Sums.items` is clean: it may leave only through `enter`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.engine import backend_for
from dpbandit.errors import OptionError
from dpbandit.logs.record import Hashes
from dpbandit.privacy.grid import GRID_BITS
from dpbandit.release.pair import packed_size
from dpbandit.types import Matrix, Vector

Words = NDArray[np.int64]
Status = NDArray[np.uint8]

# What can be wrong with a row; the first that applies is counted. The core has the same numbers.
GOOD, MISSING, LENGTH, NOT_FINITE, LONG, LONG_L1, NO_REWARD = range(7)
NO_USER, OVER_CAP = range(7, 9)
CLIPPED = 9  # counted beside: it is private
COUNTS = 10
KINDS = {
    MISSING: "context missing",
    LENGTH: "context of another length",
    NOT_FINITE: "context not finite",
    LONG: "context longer than max_norm",
    LONG_L1: "context longer in L1 than public_contexts",
    NO_REWARD: "reward missing",
    NO_USER: "user missing",
}


class Recipe(NamedTuple):
    """The public choices of a pass, fixed before it."""

    backend: str  # who does it: 'core' or 'reference'
    dim: int
    max_norm: float
    tolerance: float  # how far above max_norm is still rounding
    whole: bool  # items are private; else Σ v·z is kept in doubles
    l1_limit: float = np.inf  # infinity: none
    low: float = -np.inf
    high: float = np.inf
    clips: bool = False
    middle: float = 0.0  # v = (r − middle)/width
    width: float = 1.0
    constant: bool = False  # whether z ends with a 1
    size: float = 1.0
    whitener: Matrix = np.empty((0, 0))  # P; no rows: c = 1
    triangular: bool = False  # P is lower triangular
    floor: float = 0.0
    power: int = -1  # the second matrix is Σ c^power·z·zᵀ; −1: there is none
    # Above 0: contexts are private too. Items hold this times u·uᵀ as well, packed, and nothing
    # public is added up.
    directions: float = 0.0

    @property
    def length(self) -> int:
        """Numbers in z."""
        return self.dim + self.constant

    @property
    def numbers(self) -> int:
        """Numbers in an item."""
        return self.length + (packed_size(self.length) if self.directions else 0)

    @property
    def without_directions(self) -> Recipe:
        """The same with so little of u·uᵀ that each of its numbers is 0 in whole steps."""
        return self._replace(directions=2.0**-GRID_BITS / 4)

    @property
    def spec(self) -> dict[str, Any]:
        """In plain values, as the core takes it."""
        given = self._asdict()
        del given["backend"]
        return given


class Sums(NamedTuple):
    """What a part of the log adds up to. Matrices hold their lower halves: see `symmetric`."""

    gram: Matrix
    gram_low: Matrix
    second: Matrix
    second_low: Matrix
    first: Vector  # Σ c·z
    first_low: Vector
    moments: Vector  # Σ v·z, where nothing is private
    moments_low: Vector
    items: Words  # Σ of the items: two words for each number, the lower one first
    counts: Words  # by status; then rewards clipped
    longest: Vector  # the longest x/max_norm learned from: L2, L1

    @property
    def learned(self) -> int:
        """Rows that were added up."""
        return int(self.counts[GOOD])

    @property
    def rows(self) -> int:
        """Rows that were looked at."""
        return int(self.counts[: OVER_CAP + 1].sum())

    @property
    def whole(self) -> list[int]:
        """The clean sum of the items, exactly, in steps of the grid."""
        low = self.items[0::2].view(np.uint64).tolist()
        return [
            (high << 64) + word for high, word in zip(self.items[1::2].tolist(), low, strict=True)
        ]


def new_sums(recipe: Recipe) -> Sums:
    """Sums of nothing."""
    k = recipe.length
    seconds = k if recipe.power >= 0 else 0
    shapes = {"gram": (k, k), "second": (seconds, seconds), "first": k, "moments": k}
    public = {f"{name}{low}": np.zeros(shapes[name]) for name in shapes for low in ("", "_low")}
    return Sums(
        **public,
        items=np.zeros(2 * recipe.numbers, dtype=np.int64),
        counts=np.zeros(COUNTS, dtype=np.int64),
        longest=np.zeros(2),
    )


def rows_by(backend: str) -> Any:
    """The functions that go through rows: the core's, or the same in NumPy."""
    if backend == "core":
        return import_module("dpbandit._core")
    if backend == "reference":
        return import_module("dpbandit.logs.reference")
    raise OptionError(f"backend must be 'core' or 'reference', not {backend!r}")


def inspect(contexts: Matrix, status: Status, recipe: Recipe) -> None:
    """Give rows whose contexts `update` would refuse the status that says why.

    Which rows are learned from is public, so no reward has a say in it: none is given here.
    """
    rows_by(recipe.backend).inspect_rows(recipe.spec, contexts, status)


def absorb(contexts: Matrix, rewards: Vector, status: Status, recipe: Recipe, sums: Sums) -> None:
    """Add all rows with status GOOD, and count all by status."""
    rows_by(recipe.backend).absorb_rows(recipe.spec, contexts, rewards, status, sums._asdict())


def hash_names(text: NDArray[np.uint8], offsets: Words) -> Hashes:
    """The hashes of many names: the i-th is text[offsets[i]:offsets[i + 1]]."""
    out = np.empty(len(offsets) - 1, dtype=np.uint64)
    rows_by(backend_for(None, ())).hash_names(text, offsets, out)
    return out


def symmetric(half: Matrix) -> Matrix:
    """A symmetric matrix from its lower half.

    >>> symmetric(np.array([[1.0, 9.0], [2.0, 3.0]])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    lower = np.tril(half)
    return np.asarray(lower + np.tril(lower, -1).T)


def merge(into: Sums, part: Sums) -> None:
    """Add the sums of another part of the log.

    For public sums the order matters in the last bits, so parts are merged in the log's.
    """
    ours, theirs = into._asdict(), part._asdict()
    for name in ("gram", "second", "first", "moments"):
        add(ours[name], ours[f"{name}_low"], theirs[name], theirs[f"{name}_low"])
    add_words(into.items, part.items)
    into.counts[:] += part.counts
    np.maximum(into.longest, part.longest, out=into.longest)


def add(high: Matrix, low: Matrix, more: Matrix, more_low: Matrix | float = 0.0) -> None:
    """high + low += more + more_low, in place, with what rounding loses of it kept in low."""
    total = high + more
    back = total - high
    low += ((high - (total - back)) + (more - back)) + more_low
    high[...] = total


def add_words(into: Words, more: Words) -> None:
    """Whole numbers of two words each: into += more, exactly.

    >>> numbers = np.array([-1, 0])
    >>> add_words(numbers, np.array([1, 0]))
    >>> numbers.tolist()
    [0, 1]
    """
    low = into[0::2].view(np.uint64)
    before = low.copy()
    low += more[0::2].view(np.uint64)
    into[1::2] += more[1::2] + (low < before)
