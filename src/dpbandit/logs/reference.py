"""The rows of a log in plain NumPy: what the core does, and what runs where there is no core."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.learners.joint import pack
from dpbandit.learners.moments import TINY
from dpbandit.logs.record import Counts, Hashes, hash_bytes
from dpbandit.logs.sums import (
    CLIPPED,
    GOOD,
    LONG,
    LONG_L1,
    NOT_FINITE,
    Status,
    Words,
    add,
    add_words,
)
from dpbandit.privacy.grid import GRID_BITS
from dpbandit.types import Matrix, Vector

# Rows added up plainly before rounding errors are caught; their items fit 64 bits.
CHUNK = 4096


def hash_names(text: NDArray[np.uint8], offsets: Words, out: Hashes) -> None:
    """The hashes of many names: the i-th is text[offsets[i]:offsets[i + 1]]."""
    letters = text.tobytes()
    ends = offsets.tolist()
    for i, (start, stop) in enumerate(pairwise(ends)):
        out[i] = hash_bytes(letters[start:stop])


def tally(
    names: Hashes, status: Status, cap: int, over: int, keys: Hashes, counts: Counts, start: int
) -> int:
    """Count rows with status 0 by user; a row beyond its user's cap gets the status `over`.

    Returns the row it stopped at because the table is half full and must grow first; the number of
    rows when all are done.
    """
    places = len(keys)
    for i in range(start, len(names)):
        if status[i] != GOOD:
            continue
        if 2 * int(counts[places]) >= places:
            return i
        at = _place(keys, int(names[i]))
        if keys[at] == 0:
            keys[at] = names[i]
            counts[places] += 1
        if counts[at] >= cap:
            status[i] = over
        else:
            counts[at] += 1
    return len(names)


def move_tally(keys: Hashes, counts: Counts, new_keys: Hashes, new_counts: Counts) -> None:
    """Everything in one table into a larger, empty one."""
    for i in np.flatnonzero(keys).tolist():
        at = _place(new_keys, int(keys[i]))
        new_keys[at], new_counts[at] = keys[i], counts[i]
    new_counts[-1] = counts[-1]


def _place(keys: Hashes, name: int) -> int:
    at = name % len(keys)
    while keys[at] != 0 and int(keys[at]) != name:
        at = (at + 1) % len(keys)
    return at


def inspect_rows(recipe: dict[str, Any], contexts: Matrix, status: Status) -> None:
    """Give rows whose contexts the gate would refuse the status that says why."""
    most = 1.0 + recipe["tolerance"]
    with np.errstate(over="ignore", invalid="ignore"):
        squares = ((contexts / recipe["max_norm"]) ** 2).sum(axis=1)
        totals = np.abs(contexts).sum(axis=1)
    found = np.full(len(status), GOOD, dtype=np.uint8)
    found[~(totals <= recipe["l1_limit"] * most)] = LONG_L1
    found[~(squares <= most * most)] = LONG
    found[~np.isfinite(contexts).all(axis=1)] = NOT_FINITE
    status[status == GOOD] = found[status == GOOD]


def absorb_rows(
    recipe: dict[str, Any],
    contexts: Matrix,
    rewards: Vector,
    status: Status,
    sums: dict[str, NDArray[Any]],
) -> None:
    """Add all rows with status GOOD, and count all by status."""
    if recipe["whole"] and not recipe["clips"]:
        raise ValueError("private items are of clipped, centred and scaled rewards")
    for start in range(0, len(status), CHUNK):
        piece = slice(start, start + CHUNK)
        good = status[piece] == GOOD
        if good.any():
            _absorb(recipe, contexts[piece][good], rewards[piece][good], sums)
    sums["counts"] += np.bincount(status, minlength=len(sums["counts"]))


def _absorb(
    recipe: dict[str, Any], x: Matrix, given: Vector, sums: dict[str, NDArray[Any]]
) -> None:
    u = x * (1.0 / recipe["max_norm"])
    totals, squares = np.abs(u).sum(axis=1), (u * u).sum(axis=1)
    # Squares of tiny numbers vanish; the L1 norm is no shorter.
    lengths = np.where(squares > 1e-280, np.sqrt(squares), totals)
    longest, hides = sums["longest"], recipe["directions"] > 0
    if not hides:
        longest[:] = np.maximum(longest, [lengths.max(), totals.max()])
    low, high = recipe["low"], recipe["high"]
    # One that is not a number stands in the middle of the range: leaving its row out would show.
    finite = np.where(np.isfinite(given), given, 0.5 * (low + high))
    rewards = np.clip(finite, low, high) if recipe["clips"] else finite
    sums["counts"][CLIPPED] += int((rewards != given).sum())
    v = (rewards - recipe["middle"]) / recipe["width"]
    z, weights = x * (1.0 / recipe["size"]), np.ones(len(x))
    if recipe["constant"]:  # a context of zeros says nothing about θ
        z = np.column_stack([z, (totals > 0.0).astype(np.float64)])
    if len(recipe["whitener"]):
        u, weights = _shaped(z @ recipe["whitener"].T, recipe["floor"])
    if recipe["whole"]:
        item = u * v[:, None]
        if hides:
            item = np.hstack([item, recipe["directions"] * np.array([pack(row) for row in u])])
        whole = np.rint(item * 2.0**GRID_BITS).astype(np.int64).sum(axis=0)
        add_words(sums["items"], np.column_stack([whole, whole >> 63]).ravel())
    else:
        add(sums["moments"], sums["moments_low"], v @ z)
    if hides:
        return
    left = z * weights[:, None]
    add(sums["first"], sums["first_low"], left.sum(axis=0))
    add(sums["gram"], sums["gram_low"], left.T @ z)
    if recipe["power"] >= 0:
        add(sums["second"], sums["second_low"], (z * weights[:, None] ** recipe["power"]).T @ z)


def _shaped(image: Matrix, floor: float) -> tuple[Matrix, Vector]:
    """u = c·image, of norm at most 1, and c = 1/max(‖image‖, floor); 0 with nothing to see."""
    largest = np.abs(image).max(axis=1)
    # Divided first: squares of tiny numbers vanish, and u would be too long.
    safe = np.where(largest >= TINY, largest, 1.0)
    lengths = np.where(
        largest >= TINY, largest * np.linalg.norm(image / safe[:, None], axis=1), 0.0
    )
    sizes = np.maximum(lengths, floor)
    seen = (sizes >= TINY) & (sizes <= 1.0 / TINY)
    weights = np.where(seen, 1.0 / np.where(seen, sizes, 1.0), 0.0)
    return np.where(seen[:, None], image, 0.0) * weights[:, None], weights
