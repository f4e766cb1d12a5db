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
from numpy.typing import ArrayLike, NDArray

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


# ------------------------------------------------------------------ Honaker's estimate (2015), bottom-up
#
# The plain tree publishes one node a round. Here every node that ends with a round is published, right children
# too: an item is then in exactly one node of each level, so the budget is shared over the same levels as before, and a
# node can be estimated from its own value and from its children. With equal variances inside a block the best mean of
# the two has variance v_l = 1/(1 + 1/(2v_{l−1})) = 2^l/(2^{l+1} − 1) of one node's, and v_l is also the own value's weight.


@kernel(inline="always")
def add_nodes(tree: Tree, t: int, unknown_horizon: bool, item: Vector, nodes: Matrix) -> int:
    """Add round t's vector and put the clean sums of all nodes that end with it into `nodes`, one row a level.

    Returns how many rows: one more than the level that `place` gives. In place of `add`; `nodes` has `levels_for` rows.

    >>> tree, nodes = new_tree(1, horizon=4), np.zeros((3, 1))
    >>> [add_nodes(tree, t, False, np.array([float(t)]), nodes) for t in (1, 2, 3, 4)]
    [1, 2, 1, 3]
    >>> nodes[:, 0].tolist()  # 4, 3 + 4, 1 + 2 + 3 + 4
    [4.0, 7.0, 10.0]
    """
    index, level, _ = place(t, unknown_horizon, 0)
    d = item.shape[0]
    if unknown_horizon and index == 1 and t > 1:
        _close_block(tree, t - 1)
        tree.sums[:] = 0.0
    for i in range(d):
        nodes[0, i] = item[i]
    for below in range(level):
        for i in range(d):
            nodes[below + 1, i] = nodes[below, i] + tree.sums[below, i]
            tree.sums[below, i] = 0.0
    for i in range(d):
        tree.sums[level, i] = nodes[level, i]
    return level + 1


@kernel(inline="always")
def publish_honaker(tree: Tree, t: int, unknown_horizon: bool, nodes: Matrix, out: Vector) -> None:
    """Take the noisy values of the nodes that end with round t and put the estimated sum of all rounds so far into `out`.

    Noise must have the same scale in all nodes of a block. In place of `publish`, after `add_nodes`: a tree is used with one
    pair or with the other. What it keeps is in `Tree.noisy` too, now with estimates in place of noisy values.

    >>> tree, out = new_tree(1, horizon=2), np.zeros(1)
    >>> publish_honaker(tree, 1, False, np.array([[6.0]]), out)
    >>> publish_honaker(tree, 2, False, np.array([[3.0], [12.0]]), out)
    >>> round(float(out[0]), 12)  # 2/3 of 12 and 1/3 of 6 + 3
    11.0
    """
    index, level, _ = place(t, unknown_horizon, 0)
    above = level + 1
    while (index >> above) > 0 and (index >> above) & 1 == 0:
        above += 1
    inside = (index >> above) > 0
    d = out.shape[0]
    for i in range(d):
        out[i] = nodes[0, i]
    own = 1.0
    for row in range(1, level + 1):
        own = 2.0 * own / (1.0 + 2.0 * own)
        # The left sibling's estimate is what the prefix gained when that sibling was published.
        for i in range(d):
            left = tree.noisy[row - 1, i]
            if row < level:
                left -= tree.noisy[row, i]
            elif inside:
                left -= tree.noisy[above, i]
            out[i] = own * nodes[row, i] + (1.0 - own) * (left + out[i])
    for i in range(d):
        tree.noisy[level, i] = out[i] + (tree.noisy[above, i] if inside else 0.0)
        out[i] = tree.carry[i] + tree.noisy[level, i]


def tree_standard_error(t: ArrayLike, horizon: int | None, *, honaker: bool) -> Vector:
    """The standard error of each coordinate of the sum released at round t (or rounds t), for items of norm 1 and ρ = ½.

    A node has variance h, for the h levels that share its block's budget. For another budget multiply by the sensitivity
    and divide by √(2ρ).

    >>> tree_standard_error([511, 512], 1000, honaker=False).round(2).tolist()  # √(9·10), √10
    [9.49, 3.16]
    >>> tree_standard_error([511, 512], 1000, honaker=True).round(2).tolist()
    [7.28, 2.24]
    """
    rounds = np.asarray(t, dtype=np.int64)
    levels = levels_for(horizon)
    if (rounds < 0).any() or (horizon is not None and (rounds > horizon).any()):
        raise OptionError(f"t must lie between 0 and the horizon, {horizon!r}, not {t!r}")
    variances = [2.0**level / (2.0 ** (level + 1) - 1) if honaker else 1.0 for level in range(levels)]
    variance = np.zeros(rounds.shape)
    index, share = rounds, np.full(rounds.shape, float(levels))
    if horizon is None:
        index, share = np.zeros_like(rounds), np.ones(rounds.shape)
        for block in range(levels):
            begun = rounds >= 1 << block
            finished = rounds >= (2 << block) - 1
            variance += np.where(finished, (block + 1) * variances[block], 0.0)
            running = begun & ~finished
            index = np.where(running, rounds - (1 << block) + 1, index)
            share = np.where(running, block + 1.0, share)
    for level in range(levels):
        variance += np.where(index >> level & 1 == 1, share * variances[level], 0.0)
    return np.sqrt(variance)
