"""The tree against a brute-force tree that stores every node, in whole numbers."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandit.errors import BudgetError
from dpbandit.privacy.grid import GRID_BITS, to_floats, to_whole
from dpbandit.privacy.noise import GAUSSIAN, LAPLACE, WISHART
from dpbandit.privacy.wishart import calibrate_all
from dpbandit.release import ArmTrees, Tree, WishartTree, levels_for
from dpbandit.release.pan_private import PanPrivateSums
from dpbandit.release.tree import TreeSums, place


def sums_for(dim, horizon, whole=True):
    return TreeSums(dim, levels=levels_for(horizon), unknown_horizon=horizon is None, whole=whole)


def play(items, noises, horizon):
    """Noisy prefix sums of the streaming tree."""
    tree = sums_for(items.shape[1], horizon)
    out = []
    for t, (item, noise) in enumerate(zip(items, noises, strict=True), start=1):
        node = to_floats(tree.add(t, to_whole(item)))
        out.append(tree.publish(t, node + noise).copy())
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
        # a node's noise is the one drawn in the round that completes it
        expected = items[:t].sum(axis=0) + sum(noises[end - 1] for _, end in nodes_at(t))
        np.testing.assert_allclose(got[t - 1], expected, atol=1e-9)


def test_noise_covariance_between_two_times_is_that_of_the_nodes_they_share():
    # With items 0 and unit basis noises the release at t is the indicator of its nodes.
    n = 64
    got = play(np.zeros((n, n)), np.eye(n), n)
    covariance = got @ got.T
    for s in range(1, n + 1):
        for t in range(1, n + 1):
            assert covariance[s - 1, t - 1] == len(set(nodes_at(s)) & set(nodes_at(t)))


def test_a_release_uses_popcount_nodes():
    n = 300
    got = play(np.zeros((n, n)), np.eye(n), n)
    assert got.sum(axis=1).tolist() == [t.bit_count() for t in range(1, n + 1)]


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 7, 8, 1000, 1023, 1024, 10_000, 10**6])
def test_the_tree_has_floor_log2_of_the_horizon_plus_one_levels(horizon):
    assert levels_for(horizon) == int(np.floor(np.log2(horizon))) + 1
    assert sums_for(3, horizon).noisy.shape == (levels_for(horizon), 3)


def test_an_item_is_in_as_many_nodes_as_its_index_less_one_has_zero_bits():
    n, levels = 256, 9
    containing = np.zeros(n + 1, dtype=int)
    for t in range(1, n + 1):
        position, level, _ = place(t, unknown_horizon=False, levels=levels)
        assert position == t
        containing[t - (1 << level) + 1 : t + 1] += 1
    for i in range(1, n + 1):
        assert containing[i] == levels - (i - 1).bit_count() <= levels_for(n)


def test_the_hybrid_tree_sums_exactly_and_a_reward_is_in_a_node_of_each_level_of_its_block():
    n = 300
    items = np.random.default_rng(0).integers(-8, 9, size=(n, 1)) / 16
    got = play(items, np.zeros((n, 1)), None)
    np.testing.assert_array_equal(got, np.cumsum(items, axis=0))
    containing = np.zeros(n + 1, dtype=int)
    for t in range(1, n + 1):
        _position, level, levels = place(t, unknown_horizon=True, levels=0)
        assert level < levels == t.bit_length()
        containing[t - (1 << level) + 1 : t + 1] += 1
    for i in range(1, n + 1):
        assert containing[i] <= i.bit_length()


def test_a_finished_hybrid_block_leaves_the_noise_of_its_top_node_alone():
    n = 127
    got = play(np.zeros((n, n)), np.eye(n), None)
    # after 127 rounds seven blocks are finished: one noise each, drawn at rounds 1, 3, 7, …, 127
    assert np.flatnonzero(got[-1]).tolist() == [0, 2, 6, 14, 30, 62, 126]


@pytest.mark.parametrize("horizon", [100, None])
def test_the_pan_private_tree_never_holds_a_sum_without_noise(horizon):
    n, first = 100, 1000
    unknown = horizon is None
    tree = PanPrivateSums(1, levels=levels_for(horizon), unknown_horizon=unknown)
    for t in range(1, n + 1):
        position, level, levels = tree.place(t)
        for row in tree.starts(t):
            tree.begin(row, [first * (row + 1)])  # stands for the first noise
        node = tree.add(t, np.array([1], dtype=object))
        assert node[0] == first * (level + 1) + (1 << level)
        for row in range(levels):
            inside = (position - 1) % (1 << row) + 1
            assert tree.sums[row][0] == first * (row + 1) + inside
        prefix = tree.publish(t, node.astype(np.float64))
        ends = Tree(GAUSSIAN, horizon, 1.0, 0.5).nodes(t)
        sizes = np.diff([0] + [end for end, _ in ends])
        assert prefix[0] == t + sum(first * int(size).bit_length() for size in sizes)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.booleans())
def test_whole_sums_do_not_depend_on_the_order_of_the_items(seed, unknown):
    n, rng = 64 if not unknown else 63, np.random.default_rng(seed)
    items = [to_whole(row) for row in rng.normal(size=(n, 3))]

    def last_of(order):
        tree = sums_for(3, None if unknown else n)
        node, shown = None, []
        for t, k in enumerate(order, start=1):
            node = tree.add(t, items[k])
            shown.append(node)
        return shown[-1] if not unknown else sum(shown[end - 1] for end in (1, 3, 7, 15, 31, 63))

    one, other = last_of(range(n)), last_of(rng.permutation(n))
    assert (one == other).all()
    assert (one == sum(items)).all()


def test_neighbours_after_a_million_rounds_differ_by_exactly_the_items_difference():
    n, changed, difference = 2**20, 2**19 + 12345, 2**GRID_BITS - 7
    whole = np.random.default_rng(4).integers(-(2**39), 2**39, size=n)

    def last_node(stream):
        """The root, from the nodes that stand before the last round: (n − 2^{l+1}, n − 2^l]
        each."""
        tree = sums_for(1, n)
        for level in range(20):
            part = stream[n - (2 << level) : n - (1 << level)]
            tree.sums[level] = [int(part.sum())]  # below 2⁶³: exact
        return tree.add(n, np.array([int(stream[-1])], dtype=object))[0]

    other = whole.copy()
    other[changed] += difference
    assert last_node(whole) == int(whole.sum())
    assert last_node(other) - last_node(whole) == difference
    # In floats the same difference depends on what else is in the sum.
    steps = whole * 2.0**-GRID_BITS / 3
    moved = other * 2.0**-GRID_BITS / 3
    assert np.cumsum(moved)[-1] - np.cumsum(steps)[-1] != moved[changed] - steps[changed]


def test_what_a_tree_keeps_is_saved_and_read_back_bit_for_bit():
    one, other = sums_for(2, 1000), sums_for(2, 1000)
    rng = np.random.default_rng(5)
    for t in range(1, 400):
        node = one.add(t, to_whole(rng.normal(size=2)) * 2**40)  # beyond 64 bits
        one.publish(t, to_floats(node) + rng.normal(size=2))
    for name, array in other.fields().items():
        array[...] = one.fields()[name]
    item = to_whole(np.array([0.25, -0.5]))
    assert (one.add(400, item) == other.add(400, item)).all()
    assert (one.publish(400, np.ones(2)) == other.publish(400, np.ones(2))).all()


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("horizon", [1, 100, None])
def test_no_reward_pays_more_than_the_budget(noise, horizon):
    release, n = Tree(noise, horizon, 1.0, 0.7), horizon or 100
    ledger = noise.ledger(0.7)
    for t in range(1, n + 1):
        charge = release.charge(SimpleNamespace(rounds=t), t)
        ledger.charge(charge.share, when=t, what=charge.what, group=charge.group)
    assert ledger.total == pytest.approx(ledger.limit)


def test_a_round_beyond_the_levels_is_refused():
    release = Tree(GAUSSIAN, 100, 1.0, 0.5)
    release.room(SimpleNamespace(rounds=126))
    with pytest.raises(BudgetError, match="round 128 would bring the total to one level more"):
        release.room(SimpleNamespace(rounds=127))
    Tree(GAUSSIAN, None, 1.0, 0.5).room(SimpleNamespace(rounds=2**40))


def test_squared_scales_are_those_of_the_nodes_in_use():
    release = Tree(GAUSSIAN, None, 2.0, 0.5)
    # round 12: finished blocks of 1, 2, 3 levels, and 5 = 4 + 1 of the next, of 4 levels
    assert release.squares(12) == pytest.approx((2.0 / 0.5) ** 2 * (1 + 2 + 3 + 4 + 4))
    laplace = Tree(LAPLACE, 1000, 2.0, 0.5)
    assert laplace.squares([7])[0] == pytest.approx(3 * (10 * 2.0 / 0.5) ** 2)
    assert laplace.variance(7) == pytest.approx(2 * laplace.squares(7))


def test_each_arm_has_a_tree_and_groups_of_its_own():
    release = ArmTrees(LAPLACE, None, 1.0, 1.0)
    fields = {"arm": np.array([3]), "pulls": np.array([0, 0, 0, 6, 9])}
    engine = SimpleNamespace(rounds=15, fields=lambda: fields)
    charge = release.charge(engine, 15)
    assert charge.what == "arm 3, tree level 0"
    assert charge.group == 3 * 63 + 2
    assert charge.share == pytest.approx(1 / 3)
    known = ArmTrees(LAPLACE, 9, 1.0, 1.0)
    fields["pulls"][4] = 15
    with pytest.raises(BudgetError, match="could bring an arm's tree to one level more than the 4"):
        known.room(engine)


@pytest.mark.parametrize("horizon", [50, None])
def test_a_tree_with_wishart_noise_costs_what_its_calibrations_say(horizon):
    levels = [levels_for(horizon)] if horizon else list(range(1, 7))
    found = calibrate_all(epsilon=2.0, delta=1e-5, rewards_per_unit=1, levels=levels)
    tree = WishartTree(WISHART, horizon, 1.0, 2.0, None, 4, found)
    ledger = WISHART.ledger(2.0)
    for t in range(1, 51):
        charge = tree.charge(None, t)
        ledger.charge(charge.share, when=t, what=charge.what, group=charge.group)
        assert tree.scale(t) == found[tree.place(t).levels].degrees + 4
    assert 1.5 < ledger.total <= 2.0
    assert set(tree.core()) == {"levels", "unknown_horizon", "sensitivity", "multipliers"}
    free = WishartTree(WISHART, horizon, 1.0, math.inf, None, 4, {})
    assert free.charge(None, 1).share == math.inf
    assert free.scale(1) == 0.0
