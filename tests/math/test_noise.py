"""Distributions, and the two sources. Fixed seeds; each statistical test states its false-alarm rate."""

import math
import multiprocessing

import numpy as np
import pytest
from scipy import special, stats

from dpbandit import noise, randomness, sampler
from dpbandit.errors import NoiseError

ALARM = 1e-6  # false-alarm rate of each goodness-of-fit test, if the seed were drawn afresh


def test_the_normal_quantile_is_accurate_to_rounding():
    p = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 2001), 10.0 ** -np.arange(3, 300, 7)])
    ours = np.array([randomness.normal_quantile(v) for v in p])
    np.testing.assert_allclose(ours, special.ndtri(p), rtol=2e-15, atol=1e-15)


@pytest.mark.parametrize(
    ("draw", "cdf"),
    [
        (randomness.normal, stats.norm.cdf),
        (randomness.laplace, stats.laplace.cdf),
        (randomness.uniform, stats.uniform.cdf),
    ],
)
def test_simulated_draws_have_the_stated_distribution(draw, cdf):
    key = np.uint64(randomness.derive_key(1, randomness.NOISE))
    sample = np.array([draw(key, i) for i in range(100_000)])
    assert stats.kstest(sample, cdf).pvalue > ALARM


def test_knorm_noise_has_a_gamma_radius_and_a_uniform_direction():
    d, key = 5, np.uint64(12345)
    sample = np.empty((40_000, d))
    for i in range(len(sample)):
        randomness.knorm_laplace(key, i, sample[i])
    radius = np.linalg.norm(sample, axis=1)
    assert stats.kstest(radius, stats.gamma(d).cdf).pvalue > ALARM
    # one coordinate of a uniform direction: (c + 1)/2 is Beta((d−1)/2, (d−1)/2)
    assert stats.kstest((sample[:, 0] / radius + 1) / 2, stats.beta((d - 1) / 2, (d - 1) / 2).cdf).pvalue > ALARM


def test_draws_at_neighbouring_counters_and_keys_are_uncorrelated():
    a = np.array([randomness.normal(np.uint64(1), i) for i in range(50_000)])
    b = np.array([randomness.normal(np.uint64(2), i) for i in range(50_000)])
    # 5.5 standard errors: probability 4e-8 each
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 5.5 / math.sqrt(50_000)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5.5 / math.sqrt(50_000)


@pytest.mark.parametrize(("kind", "cdf"), [("gaussian", stats.norm(0, 3).cdf), ("laplace", stats.laplace(0, 3).cdf)])
def test_real_noise_has_the_stated_distribution(kind, cdf):
    value = np.linspace(-5, 5, 100)
    sample = np.concatenate(
        [noise.Real().release(kind, value, scale=3.0, shift=1.0, index=0) - value for _ in range(40)]
    )
    assert stats.kstest(sample, cdf).pvalue > ALARM


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_real_noise_lies_on_its_grid(kind):
    out = noise.Real().release(kind, np.full(50, 1 / 3), scale=1.7, shift=1.0, index=0)
    steps = out / 2.0 ** noise.grid_exponent(1.7)
    assert (steps == np.rint(steps)).all()


def test_real_noise_refuses_what_it_cannot_sample_exactly():
    with pytest.raises(NoiseError, match="no exact sampler for 'laplace-l2'"):
        noise.Real().release("laplace-l2", np.zeros(2), scale=1.0, shift=1.0, index=0)
    with pytest.raises(NoiseError, match="scale 0"):
        noise.Real().release("gaussian", np.zeros(2), scale=0.0, shift=1.0, index=0)


def test_the_cost_that_the_sampler_proves_is_the_textbook_cost():
    for dim in (1, 25):
        for scale in (0.3, 20.0, 1e4):
            safe = noise.real_scale(scale, shift=1.0, dim=dim)
            assert 0.999 / scale**2 < noise.proven_cost("gaussian", dim, safe, 1.0) <= 1 / scale**2
            assert 0.999 / scale < noise.proven_cost("laplace", dim, safe, 1.0) <= 1 / scale


def _draw(queue):
    queue.put(noise.Real().release("gaussian", np.zeros(4), scale=1.0, shift=1.0, index=0).tolist())


def test_forked_children_never_draw_the_same_real_noise():
    noise.Real().release(
        "gaussian", np.zeros(4), scale=1.0, shift=1.0, index=0
    )  # the parent's state exists before the fork
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_draw, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    first, second = queue.get(timeout=60), queue.get(timeout=60)
    for child in children:
        child.join(timeout=60)
    assert all(a != b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "laplace-l2"])
def test_simulated_noise_is_added_to_the_value_and_scales(kind):
    source, value = noise.Simulation(seed=3), np.array([10.0, -4.0])
    unit = source.release(kind, np.zeros(2), scale=1.0, shift=1.0, index=9)
    np.testing.assert_allclose(
        source.release(kind, value, scale=2.5, shift=1.0, index=9), value + 2.5 * unit, rtol=1e-12
    )
    assert (source.release(kind, np.zeros(2), scale=1.0, shift=1.0, index=10) != unit).all()


@pytest.mark.parametrize("dim", [1, 3, 4, 5, 8, 10, 25, 70])
def test_noise_for_a_vector_is_that_of_its_coordinates_bit_for_bit(dim):
    key, value = np.uint64(77), np.zeros(dim)
    for kind, draw in (("gaussian", randomness.normal), ("laplace", randomness.laplace)):
        out = np.empty(dim)
        for index in range(50):
            noise.add_simulated(noise.CODES[kind], key, index, 1.0, value, out)
            assert (out == [draw(key, index * dim + i) for i in range(dim)]).all()


def test_the_logarithm_is_good_to_an_ulp():
    p = np.concatenate([np.geomspace(1e-300, 1.0, 3000), np.random.default_rng(0).uniform(0.5, 1.0, size=3000)])
    np.testing.assert_allclose([randomness.log(q) for q in p], np.log(p), rtol=2.3e-16, atol=0)


@pytest.mark.parametrize("make", [sampler.gaussian, sampler.laplace])
def test_a_sampler_called_directly_is_the_one_that_the_wrappers_call(make):
    drawn = make(7, 1.5, -40)
    assert drawn._library is not None
    for shift in (1e-6, 0.3, 1.0, 400.0):
        assert drawn.cost(shift) == drawn._weight * drawn._measurement.map(shift)
    # Every coordinate in its place: noise beyond 1,000 scales has a probability below 1e-400.
    value = 1e6 * np.arange(7.0)
    assert (abs(drawn.draw(value) - value) < 1500).all()
    assert (abs(drawn.draw(value[::-1]) - value[::-1]) < 1500).all()
    with pytest.raises(ValueError, match="for 7 numbers"):
        drawn.draw(np.zeros(6))


def test_where_opendp_declares_its_functions_otherwise_the_wrappers_are_called(monkeypatch):
    drawn = sampler.gaussian(3, 1.25, -40)
    monkeypatch.setitem(sampler.DECLARED, "invoke", ("opendp_core__measurement_invoke", ("pointer",)))
    assert sampler._look(drawn._measurement, 3) is None
    monkeypatch.setattr(sampler, "_found", [None])
    wrapped = sampler.Sampler(drawn._measurement, 3, 2.0)
    assert wrapped.cost(0.7) == drawn.cost(0.7)
    out = wrapped.draw(np.array([1.0, 2.0, 3.0]))
    assert (out / 2.0**-40 == np.rint(out / 2.0**-40)).all()


def test_what_opendp_refuses_is_said_and_leaves_nothing_behind():
    from opendp.mod import OpenDPException

    drawn = sampler.gaussian(3, 1.25, -40)
    with pytest.raises(OpenDPException):
        drawn.cost(-1.0)
    assert drawn.cost(1.0) > 0


def test_releases_whose_shifts_differ_a_little_share_a_sampler_that_is_never_too_narrow():
    shifts = np.linspace(0.01, 0.011, 50)
    scales = {noise.real_scale(2.0, shift=shift, dim=11) for shift in shifts}
    assert len(scales) == 1
    assert max(scales) < 2.0 * (1 + 1e-7)
    for shift in (1e-4, 0.01, 1.0):
        for bits in (30, 40):
            safe = noise.real_scale(2.0, shift=shift, dim=11, bits=bits)
            assert noise.proven_cost("gaussian", 11, safe, shift, bits) <= (shift / 2.0) ** 2
