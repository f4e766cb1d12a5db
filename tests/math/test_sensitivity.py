"""Sensitivities: the bounds hold, and the exact ones are attained."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandit import numerics, sensitivity
from dpbandit.errors import DpbanditError
from dpbandit.sensitivity import FIGURE, FULL, SIMPLIFIED


def test_lemma_1_in_full_says_nothing_in_the_papers_simulation_before_two_million_rounds():
    positive_from = next(
        t for t in range(10_000, 5_000_000, 10_000) if sensitivity.smallest_eigenvalue_bound(t, FULL, 0.022, 0.1) > 0
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
    assert sensitivity.lemma1(3350.0, SIMPLIFIED, 0.022, 0.1, 2.0, 1.0) == pytest.approx(2.0 / (0.022 * 3350 / 16))


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
@given(st.integers(1, 6), st.integers(1, 60), st.sampled_from([1, 2]), st.booleans(), st.integers(0, 2**31))
def test_the_lazy_bound_covers_every_arm_at_all_times_and_is_never_far_above(d, n, norm, ball, seed):
    rng = np.random.default_rng(seed)
    pool = rng.normal(size=(12, d))
    pool /= np.maximum(np.linalg.norm(pool, axis=1, keepdims=True), 1.0)
    arms = np.empty((0, d)) if ball else pool
    ridge, memory = numerics.new_ridge(d, rng.choice([0.01, 1.0])), sensitivity.new_watch(d, len(arms))
    for t in range(1, n + 1):
        x = pool[rng.integers(12)]
        quadratic = numerics.add_context(ridge, x)
        inverse, step = ridge.inverse, ridge.step
        bound = sensitivity.observed_lazily(inverse, arms, 1.0, norm, x, step, quadratic, memory, np.empty((d, d)))
        worst = np.linalg.norm(pool @ inverse, ord=norm, axis=1).max()
        exact = sensitivity.observed(inverse, arms, 1.0, norm, np.empty((d, d)))
        assert bound >= worst
        assert exact * (1 - 1e-12) <= bound <= exact * (1.12 if t <= 20 else 2.2)


def test_the_length_of_one_arms_image_can_grow_although_the_inverse_only_shrinks():
    """Why an old maximum over arms is no bound by itself (the counter-example in docs/privacy.md)."""
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
    factor, moved = sensitivity.growth(x, old @ x, float(x @ old @ x), 1.0, norm)
    images = rng.normal(size=(d, 200))  # any vector is the image of some z
    grown = new @ before
    ratios = np.linalg.norm(grown @ images, ord=norm, axis=0) / np.linalg.norm(images, ord=norm, axis=0)
    assert ratios.max() <= factor * (1 + 1e-9)
    zs = rng.normal(size=(200, d))
    zs /= np.linalg.norm(zs, axis=1, keepdims=True)
    change = np.linalg.norm(zs @ new, ord=norm, axis=1) - np.linalg.norm(zs @ old, ord=norm, axis=1)
    assert np.abs(change).max() <= moved * (1 + 1e-9)
