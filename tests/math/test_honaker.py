"""Honaker's estimate against least squares over explicit trees, and against the design's
numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandit.errors import OptionError
from dpbandit.privacy.grid import to_floats, to_whole
from dpbandit.privacy.noise import GAUSSIAN
from dpbandit.release import Honaker, Tree, levels_for
from dpbandit.release.honaker import HonakerSums


def standard_error(kind, t, horizon):
    """Of each coordinate of the sum shown at rounds t, for items of norm 1 and ρ = ½."""
    return np.sqrt(kind(GAUSSIAN, horizon, 1.0, 1.0).squares(t))


def nodes_of(n, horizon):
    """Every node in the order of publication: (round, level, block, first item, last item), items
    from 1."""
    nodes = []
    for t in range(1, n + 1):
        block = t.bit_length() - 1 if horizon is None else 0
        start = (1 << block) - 1 if horizon is None else 0
        level = 0
        while (t - start) % (1 << level) == 0:
            nodes.append((t, level, block, t - (1 << level) + 1, t))
            level += 1
    return nodes


def play(items, noises, horizon):
    """Released sums; one row of `noises` for each node, in the order of `nodes_of`."""
    n, d = items.shape
    sums = HonakerSums(d, levels=levels_for(horizon), unknown_horizon=False)
    released, used = [], 0
    for t in range(1, n + 1):
        noisy = to_floats(sums.add(t, to_whole(items[t - 1]))).reshape(-1, d)
        count = sums.place(t).level + 1
        assert not noisy[count:].any()  # nodes that do not end with this round
        noisy[:count] += noises[used : used + count]
        noisy[count:] = np.nan  # and they must not be read
        used += count
        released.append(sums.publish(t, noisy.ravel()))
    assert used == len(noises)
    return np.array(released)


def best_weights(nodes, top):
    """How generalised least squares weighs the published nodes inside `top` to estimate its sum, by
    brute force."""
    _, _, _, first, last = top
    inside = [i for i, (_, _, _, a, b) in enumerate(nodes) if first <= a and b <= last]
    design = np.array(
        [
            [a <= item <= b for item in range(first, last + 1)]
            for _, _, _, a, b in (nodes[i] for i in inside)
        ]
    )
    design = design.astype(float)
    weights = np.zeros(len(nodes))
    weights[inside] = np.ones(last - first + 1) @ np.linalg.solve(design.T @ design, design.T)
    return weights


def prefix_tops(t, horizon):
    """(block, first, last) of the nodes whose estimates add up to the sum at t."""
    tops, done = [], 0
    while horizon is None and (1 << (len(tops) + 1)) - 1 <= t:
        size = 1 << len(tops)
        tops.append((done + 1, done + size))
        done += size
    for level in reversed(range((t - done).bit_length())):
        if (t - done) >> level & 1:
            tops.append((done + 1, done + (1 << level)))
            done += 1 << level
    return tops


@pytest.mark.parametrize("horizon", [1, 2, 7, 8, 37])
def test_the_estimate_is_least_squares_over_each_finished_subtree(horizon):
    # With items 0 and unit basis noises a release is the row of weights it gives to the nodes.
    n = horizon or 37
    nodes = nodes_of(n, horizon)
    got = play(np.zeros((n, len(nodes))), np.eye(len(nodes)), horizon)
    scales = np.array(
        [
            float(block + 1 if horizon is None else levels_for(horizon))
            for _, _, block, _, _ in nodes
        ]
    )
    for t in range(1, n + 1):
        wanted = {(first, last) for first, last in prefix_tops(t, horizon)}
        tops = [node for node in nodes if (node[3], node[4]) in wanted]
        expected = sum(best_weights(nodes, top) for top in tops)
        np.testing.assert_allclose(got[t - 1], expected, atol=1e-12)
        error = standard_error(Honaker, t, horizon)
        assert error == pytest.approx(np.sqrt((expected**2 * scales).sum()), rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**31))
def test_sums_are_exact_without_noise_and_each_item_is_in_one_node_a_level(n, seed):
    horizon = n
    items = np.random.default_rng(seed).normal(size=(n, 2))
    nodes = nodes_of(n, horizon)
    np.testing.assert_allclose(
        play(items, np.zeros((len(nodes), 2)), horizon), np.cumsum(items, axis=0), atol=1e-9
    )
    containing = np.zeros(n + 1, dtype=int)
    for _, _, _, first, last in nodes:
        containing[first : last + 1] += 1
    for i in range(1, n + 1):
        assert containing[i] <= levels_for(n)


def test_a_node_uses_published_nodes_only():
    n = 64
    nodes = nodes_of(n, n)
    got = play(np.zeros((n, len(nodes))), np.eye(len(nodes)), n)
    for t in range(1, n + 1):
        assert all(nodes[i][0] <= t for i in np.flatnonzero(got[t - 1]))


def test_the_plain_trees_variance_counts_binary_digits():
    t = np.arange(1, 1001)
    bits = np.array([int(v).bit_count() for v in t])
    np.testing.assert_allclose(standard_error(Tree, t, 1000) ** 2, 10 * bits, rtol=1e-12)
    # unknown horizon, round 12: blocks 1 + 2 + 4 are finished (variances 1, 2, 3), 5 = 4 + 1 of the
    # next (2 nodes of 4)
    assert standard_error(Tree, 12, None) ** 2 == pytest.approx(1 + 2 + 3 + 2 * 4)


@pytest.mark.parametrize(
    ("horizon", "plain", "honaker"),
    [
        (10**3, (9.49, 7.03), (7.28, 5.36)),
        (10**4, (13.5, 9.51), (10.1, 7.13)),
        (10**5, (16.5, 11.8), (12.2, 8.72)),
        (10**6, (19.5, 14.1), (14.4, 10.3)),
    ],
)
def test_the_designs_worst_and_root_mean_square_errors(horizon, plain, honaker):
    t = np.arange(1, horizon + 1)
    digits = np.array([int(v).bit_count() for v in t])  # as the test above has it
    of_plain = np.sqrt(levels_for(horizon) * digits)
    of_honaker = standard_error(Honaker, t, horizon)
    for error, (worst, rms) in ((of_plain, plain), (of_honaker, honaker)):
        assert error.max() == pytest.approx(worst, rel=6e-3)
        assert np.sqrt(np.mean(error**2)) == pytest.approx(rms, rel=6e-3)


def test_honaker_needs_a_horizon():
    with pytest.raises(OptionError, match="needs a horizon"):
        Honaker(GAUSSIAN, None, 1.0, 1.0)


def test_the_squared_scales_are_the_errors_at_this_budget():
    release, t = Honaker(GAUSSIAN, 1000, 2.0, 0.5), np.arange(1, 1001)
    expected = standard_error(Honaker, t, 1000) * 2.0 / 0.5
    np.testing.assert_allclose(np.sqrt(release.squares(t)), expected, rtol=1e-12)
    assert release.charge(None, 3).share == pytest.approx(0.25)
