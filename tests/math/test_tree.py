"""The tree against a brute-force tree that stores every node."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandit.release import tree as trees


def play(items, noises, horizon):
    """Noisy prefix sums of the streaming tree."""
    d = items.shape[1]
    tree = trees.new_tree(d, horizon)
    node, prefix = np.empty(d), np.empty(d)
    out = []
    for t, (item, noise) in enumerate(zip(items, noises, strict=True), start=1):
        trees.add(tree, t, horizon is None, item, node)
        trees.publish(tree, t, horizon is None, node + noise, prefix)
        out.append(prefix.copy())
    return np.array(out)


def nodes_at(t):
    """The nodes of the prefix [1, t]: brute force from the binary digits, as (start, end]."""
    nodes, end = [], 0
    for level in reversed(range(t.bit_length())):
        if t >> level & 1:
            nodes.append((end, end + (1 << level)))
            end += 1 << level
    return nodes


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.integers(1, 4), st.integers(0, 2**31))
def test_prefix_sums_are_those_of_a_brute_force_tree(n, d, seed):
    rng = np.random.default_rng(seed)
    items, noises = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    got = play(items, noises, n)
    for t in range(1, n + 1):
        nodes = nodes_at(t)
        # a node's noise is the one drawn in the round that completes it
        expected = items[:t].sum(axis=0) + sum(noises[end - 1] for _, end in nodes)
        np.testing.assert_allclose(got[t - 1], expected, atol=1e-9)


def test_noise_covariance_between_two_times_is_that_of_the_nodes_they_share():
    # With items 0 and unit basis noises the release at t is the indicator of its nodes: inner products are exact.
    n = 64
    got = play(np.zeros((n, n)), np.eye(n), n)
    covariance = got @ got.T
    for s in range(1, n + 1):
        for t in range(1, n + 1):
            shared = set(nodes_at(s)) & set(nodes_at(t))
            assert covariance[s - 1, t - 1] == len(shared)


def test_a_release_uses_popcount_nodes():
    n = 300
    got = play(np.zeros((n, n)), np.eye(n), n)
    assert got.sum(axis=1).tolist() == [t.bit_count() for t in range(1, n + 1)]


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 7, 8, 1000, 1023, 1024, 10_000, 10**6])
def test_the_tree_has_floor_log2_of_the_horizon_plus_one_levels(horizon):
    assert trees.levels_for(horizon) == int(np.floor(np.log2(horizon))) + 1
    assert trees.new_tree(3, horizon).noisy.shape == (trees.levels_for(horizon), 3)


def test_an_item_is_in_as_many_nodes_as_its_index_less_one_has_zero_bits():
    n = 256
    containing = np.zeros(n + 1, dtype=int)
    for t in range(1, n + 1):
        index, level, _ = trees.place(t, False, 9)
        containing[index - (1 << level) + 1 : index + 1] += 1
    for i in range(1, n + 1):
        assert containing[i] == 9 - (i - 1).bit_count() - (i - 1 >= 256)
        assert containing[i] <= trees.levels_for(n)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**31))
def test_hybrid_sums_are_exact_and_every_item_is_in_at_most_its_blocks_levels(n, seed):
    items = np.random.default_rng(seed).normal(size=(n, 1))
    np.testing.assert_allclose(play(items, np.zeros((n, 1)), None), np.cumsum(items, axis=0), atol=1e-9)
    containing = np.zeros(n + 1, dtype=int)
    for t in range(1, n + 1):
        _index, level, levels = trees.place(t, True, 0)
        assert level < levels == t.bit_length()
        containing[t - (1 << level) + 1 : t + 1] += 1
    for i in range(1, n + 1):
        assert containing[i] <= i.bit_length()


def test_a_finished_hybrid_block_leaves_the_noise_of_its_top_node_alone():
    n = 127
    got = play(np.zeros((n, n)), np.eye(n), None)
    # after 127 rounds seven blocks are finished: one noise each, drawn at rounds 1, 3, 7, …, 127
    assert np.flatnonzero(got[-1]).tolist() == [0, 2, 6, 14, 30, 62, 126]


def test_the_pan_private_tree_never_holds_a_sum_without_noise():
    n, d = 100, 1
    tree = trees.new_tree(d, n)
    levels = trees.levels_for(n)
    node, prefix = np.empty(d), np.empty(d)
    for t in range(1, n + 1):
        for level in range(levels):
            if trees.starts(t, False, level):
                tree.sums[level] = 1000.0 * (level + 1)  # stands for the first noise
        trees.add_pan_private(tree, t, False, levels, np.ones(d), node)
        level = trees.place(t, False, levels)[1]
        assert node[0] == 1000.0 * (level + 1) + (1 << level)
        for row in range(levels):
            inside = (t - 1) % (1 << row) + 1
            assert tree.sums[row, 0] == 1000.0 * (row + 1) + inside
        trees.publish(tree, t, False, node, prefix)
        assert prefix[0] == t + sum(1000.0 * (bit + 1) for bit in range(levels) if t >> bit & 1)
