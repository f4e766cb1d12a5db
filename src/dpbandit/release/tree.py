"""The binary tree (Dwork et al. 2010; Chan et al. 2011), its hybrid form for an unknown horizon, and its pan-private form.

Round t needs one new node, (t − lowbit(t), t]; its noise is drawn once and serves while the node is part of a prefix.
A reward is in at most one node of each level, so the budget is shared by the levels: ⌊log₂T⌋ + 1 for horizon T.
Unknown horizon: blocks of doubling length, each with a tree of its own. A finished block's total is its top node, so no
budget is set aside for totals, and a block of length 2^b shares its budget over b + 1 levels.
Clean sums of nodes live in `Tree.sums`; nothing outside the trusted side may read them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.errors import OptionError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# 2⁶² rounds are enough for anyone; the hybrid form allocates this many rows.
MAX_LEVELS = 62


class Tree(NamedTuple):
    """The state of one tree: everything needed to continue, in arrays that do not grow.

    `sums[l]` is the clean sum of the latest node of level l (pan-private: the noisy sum of the node in progress);
    `noisy[l]` the noisy prefix sum at that node's end; `carry` the noisy total of finished blocks.
    """

    sums: Matrix
    noisy: Matrix
    carry: Vector


def levels_for(horizon: int | None) -> int:
    """How many levels a tree over this many rounds has.

    >>> levels_for(1), levels_for(1023), levels_for(1024), levels_for(10_000)
    (1, 10, 11, 14)
    """
    if horizon is None:
        return MAX_LEVELS
    if horizon < 1:
        raise OptionError(f"horizon must be at least 1 (or None for unknown), not {horizon!r}")
    return int(horizon).bit_length()


def new_tree(dim: int, horizon: int | None) -> Tree:
    """An empty tree."""
    levels = levels_for(horizon)
    return Tree(np.zeros((levels, dim)), np.zeros((levels, dim)), np.zeros(dim))


@kernel
def place(t: int, unknown_horizon: bool, levels: int) -> tuple[int, int, int]:
    """Where round t stands: (index within its block, level of the node it completes, levels sharing the budget)."""
    index = t
    if unknown_horizon:
        block = 0
        while (t >> (block + 1)) > 0:
            block += 1
        index = t - (1 << block) + 1
        levels = block + 1
    level = 0
    while (index >> level) & 1 == 0:
        level += 1
    return index, level, levels


@kernel(inline="always")
def add(tree: Tree, t: int, unknown_horizon: bool, item: Vector, out: Vector) -> None:
    """Add round t's vector and put the clean sum of the node it completes into `out`."""
    index, level, _ = place(t, unknown_horizon, 0)
    d = item.shape[0]
    if unknown_horizon and index == 1 and t > 1:
        _close_block(tree, t - 1)
        tree.sums[:] = 0.0
    for i in range(d):
        out[i] = item[i]
    for below in range(level):
        for i in range(d):
            out[i] += tree.sums[below, i]
            tree.sums[below, i] = 0.0
    for i in range(d):
        tree.sums[level, i] = out[i]


@kernel(inline="always")
def publish(tree: Tree, t: int, unknown_horizon: bool, node: Vector, out: Vector) -> None:
    """Take the noisy value of round t's node and put the noisy sum of all rounds so far into `out`."""
    index, level, _ = place(t, unknown_horizon, 0)
    above = level + 1
    while (index >> above) > 0 and (index >> above) & 1 == 0:
        above += 1
    inside = (index >> above) > 0
    for i in range(node.shape[0]):
        tree.noisy[level, i] = node[i] + (tree.noisy[above, i] if inside else 0.0)
        out[i] = tree.carry[i] + tree.noisy[level, i]


@kernel
def _close_block(tree: Tree, last: int) -> None:
    """The block that ended with round `last` = 2^b − 1 … is one noisy number from now on: its top node."""
    top = 0
    while (last >> (top + 1)) > 0:
        top += 1
    for i in range(tree.carry.shape[0]):
        tree.carry[i] += tree.noisy[top, i]
    tree.noisy[:] = 0.0


@kernel
def starts(t: int, unknown_horizon: bool, level: int) -> bool:
    """Whether a node of this level begins with round t (pan-private form: its first noise is due now)."""
    index, _, _ = place(t, unknown_horizon, 0)
    return (index - 1) & ((1 << level) - 1) == 0


@kernel
def add_pan_private(tree: Tree, t: int, unknown_horizon: bool, levels: int, item: Vector, out: Vector) -> None:
    """Add round t's vector to the node in progress at every level, and put the one it completes into `out`.

    Each node's running sum was set to fresh noise when the node began (`starts`), so a look into memory sees noisy
    sums only; a second, independent noise is added when the node is published, which protects the rewards that come
    after the look. A reward is covered by the first noise in what the intruder saw and by the second in what came
    after, so it pays once per level, as in the plain tree; the noise variance doubles.
    """
    index, level, _ = place(t, unknown_horizon, 0)
    if unknown_horizon and index == 1 and t > 1:
        _close_block(tree, t - 1)
    for row in range(levels):
        for i in range(item.shape[0]):
            tree.sums[row, i] += item[i]
    for i in range(item.shape[0]):
        out[i] = tree.sums[level, i]
