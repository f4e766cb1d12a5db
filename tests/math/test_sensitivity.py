"""Sensitivities: the bounds hold, and the exact ones are attained."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandit.errors import DpbanditError, OptionError
from dpbandit.privacy import sensitivity
from dpbandit.privacy.grid import GRID_BITS, to_whole
from dpbandit.reference.bound import LazyBound, growth

FIGURE, SIMPLIFIED, FULL = sensitivity.FORMS


def test_lemma_1_in_full_says_nothing_in_the_papers_simulation_before_two_million_rounds():
    positive_from = next(
        t
        for t in range(10_000, 5_000_000, 10_000)
        if sensitivity.smallest_eigenvalue_bound(t, FULL, 0.022, 0.1) > 0
    )
    assert 2.2e6 < positive_from < 2.5e6
    # … and is below the simplified form until about 4.2 million
    crossing = next(
        t
        for t in range(10_000, 9_000_000, 10_000)
        if sensitivity.smallest_eigenvalue_bound(t, FULL, 0.022, 0.1) > 0.022 * t / 16
    )
    assert 4.0e6 < crossing < 4.4e6


def test_the_simplified_form_starts_at_its_threshold():
    threshold = 32 * math.log(10) / 0.022
    assert threshold == pytest.approx(3349, abs=1)
    assert sensitivity.lemma1(3349.0, SIMPLIFIED, 0.022, 0.1, 2.0, 1.0) == 2.0
    assert sensitivity.lemma1(3350.0, SIMPLIFIED, 0.022, 0.1, 2.0, 1.0) == pytest.approx(
        2.0 / (0.022 * 3350 / 16)
    )


@given(
    st.integers(1, 10**7),
    st.sampled_from([SIMPLIFIED, FULL]),
    st.floats(1e-3, 1.0),
    st.floats(1e-6, 0.5),
    st.floats(0.1, 10.0),
)
def test_lemma_1_is_positive_and_never_above_its_cap(t, form, eigenvalue, delta, ridge):
    value = sensitivity.lemma1(float(t), form, eigenvalue, delta, 2.0, ridge)
    assert 0 < value <= 2.0 / ridge


def test_the_figures_scale_is_one_over_t():
    assert sensitivity.lemma1(50.0, FIGURE, 1.0, 0.1, 2.0, 1.0) == 0.02


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.sampled_from([1, 2]), st.booleans(), st.integers(0, 2**31))
def test_what_is_observed_covers_every_arm_and_is_attained(d, norm, ball, seed):
    rng = np.random.default_rng(seed)
    pool = rng.normal(size=(200, d))
    pool /= np.maximum(np.linalg.norm(pool, axis=1, keepdims=True), 1.0)
    inverse = np.linalg.inv(pool.T @ pool + rng.choice([0.01, 1.0]) * np.eye(d))
    worst = np.linalg.norm(pool @ inverse, ord=norm, axis=1).max()
    arms, nothing = np.empty((0, d)) if ball else pool, np.zeros(d)
    bound = LazyBound(max_norm=1.0, norm=norm).after(inverse, arms, nothing, nothing, 0.0)
    assert bound >= worst
    if not ball:
        assert bound <= worst * (1 + 2e-9)
    elif norm == 2:
        assert bound == pytest.approx(np.linalg.norm(inverse, 2), rel=1e-8)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.sampled_from([1, 2]), st.integers(0, 2**31))
def test_items_on_the_grid_move_by_no_more_than_the_sensitivity_says(d, norm, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=d) * 10.0 ** rng.uniform(-9, 0, size=d)
    x /= np.linalg.norm(x)
    one = float(np.linalg.norm(x, ord=norm))
    low, high = to_whole(-0.5 * x), to_whole(0.5 * x)
    shift = np.linalg.norm((high - low).astype(float), ord=norm) / 2.0**GRID_BITS
    assert shift <= sensitivity.on_grid(one, dim=d, norm=norm)


def test_a_form_that_is_none_is_named():
    with pytest.raises(OptionError, match="simplified"):
        sensitivity.lemma1(5.0, "simplifed", 0.1, 0.1, 2.0, 1.0)


def test_the_length_of_one_arms_image_can_grow_although_the_inverse_only_shrinks():
    """Why an old maximum over arms is no bound by itself (the counter-example in
    docs/privacy.md)."""
    before = np.diag([1.0, 0.01])
    after = before + np.outer([1.0, 1.0], [1.0, 1.0])
    arm = np.array([1.0, 0.0])
    assert np.linalg.norm(np.linalg.solve(before, arm)) == pytest.approx(1.0)
    assert np.linalg.norm(np.linalg.solve(after, arm)) == pytest.approx(1.39, abs=0.01)


def test_bounds_are_estimated_from_sample_contexts():
    rng = np.random.default_rng(0)
    sample = rng.uniform(size=(1000, 10))
    sample /= np.linalg.norm(sample, axis=1, keepdims=True)
    longest, smallest = sensitivity.estimate_bounds(sample)
    assert longest == pytest.approx(1.0)
    assert smallest == pytest.approx(0.022, abs=0.003)  # the paper's simulation


@pytest.mark.parametrize("bad", [[], [1.0, 2.0], [[math.nan]]])
def test_bad_samples_are_named(bad):
    with pytest.raises(DpbanditError):
        sensitivity.estimate_bounds(bad)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 8), st.sampled_from([1, 2]), st.integers(0, 2**31))
def test_no_image_grows_by_more_than_the_bound_on_its_growth(d, norm, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) * 10.0 ** rng.uniform(-2, 2, size=d)
    before = root @ root.T + 0.1 * np.eye(d)
    x = rng.normal(size=d) / np.sqrt(d)
    old, new = np.linalg.inv(before), np.linalg.inv(before + np.outer(x, x))
    factor, moved = growth(x, old @ x, float(x @ old @ x), 1.0, norm)
    images = rng.normal(size=(d, 200))  # any vector is the image of some z
    grown = new @ before
    ratios = np.linalg.norm(grown @ images, ord=norm, axis=0) / np.linalg.norm(
        images, ord=norm, axis=0
    )
    assert ratios.max() <= factor * (1 + 1e-9)
    zs = rng.normal(size=(200, d))
    zs /= np.linalg.norm(zs, axis=1, keepdims=True)
    change = np.linalg.norm(zs @ new, ord=norm, axis=1) - np.linalg.norm(zs @ old, ord=norm, axis=1)
    assert np.abs(change).max() <= moved * (1 + 1e-9)
