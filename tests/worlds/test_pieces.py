"""Slates are drawn by a kernel that takes its bits from NumPy's generator: the numbers are those NumPy would give."""

import numpy as np
import pytest

from dpbandit.worlds.pieces import distinct


def by_numpy(rng, size, rows, shown):
    found = rng.integers(0, size, size=(rows, shown))
    again = [n for n in range(rows) if len(set(found[n])) < shown]
    while again:
        found[again] = rng.integers(0, size, size=(len(again), shown))
        again = [n for n in again if len(set(found[n])) < shown]
    return found


@pytest.mark.parametrize(("size", "shown"), [(1000, 10), (100, 10), (5, 2), (2, 1), (10**6, 3), (2**32 - 1, 2)])
def test_slates_are_those_that_numpy_draws_and_the_generator_stands_where_it_would(size, shown):
    for seed in range(10):
        ours, numpys = np.random.default_rng(seed), np.random.default_rng(seed)
        np.testing.assert_array_equal(distinct(ours, size, rows=150, shown=shown), by_numpy(numpys, size, 150, shown))
        assert ours.bit_generator.state == numpys.bit_generator.state


@pytest.mark.parametrize(("size", "shown"), [(1, 1), (7, 7), (9, 4), (1000, 40), (2**33, 2)])
def test_what_the_kernel_does_not_draw_is_distinct_too(size, shown):
    rows = distinct(np.random.default_rng(0), size, rows=100, shown=shown)
    assert all(len(set(row)) == shown for row in rows.tolist())
    assert rows.min() >= 0
    assert rows.max() < size
