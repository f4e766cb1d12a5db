"""The noises and the two sources. Fixed seeds; each statistical test states its false-alarm
rate."""

import math
import multiprocessing
import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from dpbandit.errors import NoiseError, OptionError
from dpbandit.privacy import grid, opendp, sources
from dpbandit.privacy.accounting import mu_of
from dpbandit.privacy.grid import STEP, to_whole
from dpbandit.privacy.noise import (
    CERTAIN,
    GAUSSIAN,
    KNORM,
    LAPLACE,
    NOISES,
    WISHART,
    Noise,
    find_noise,
)
from dpbandit.privacy.noises.laplace import Laplace
from dpbandit.privacy.sources import Pending, Real, Simulation
from dpbandit.release import Tree

ALARM = 1e-6  # false-alarm rate of each goodness-of-fit test, if the seed were drawn afresh
EXACT = [GAUSSIAN, LAPLACE]


def pending(value):
    """A value in whole numbers, as the trusted side holds it."""
    return Pending(np.asarray(value), to_whole(np.asarray(value)).tolist())


def options(**given):
    base = {"seed": 0, "horizon": 100, "moves_per_unit": 1, "items_per_unit": 1}
    need = {"need_epsilon": lambda: 2.0, "need_delta": lambda: 1e-5}
    return SimpleNamespace(**{**base, **need, **given})


# ------------------------------------------------------------------ a choice with all its
# consequences


def methods():
    return sorted(Noise.__abstractmethods__)


@pytest.mark.parametrize("forgotten", methods())
def test_a_noise_that_forgets_a_method_cannot_be_made(forgotten):
    body = {name: getattr(Laplace, name) for name in methods() if name != forgotten}
    words = {"name": "logistic", "description": "", "norm": 1, "currency": "epsilon"}
    words |= {"notion": "pure", "has_real_source": False, "in_core": False, "matrices": None}
    logistic = type("Logistic", (Noise,), {**body, **words})
    with pytest.raises(TypeError, match=forgotten):
        logistic()


@pytest.mark.parametrize("word", ["name", "norm", "currency", "notion", "in_core", "matrices"])
def test_a_noise_that_leaves_out_a_word_is_refused_where_it_is_written(word):
    words = {"name": "logistic", "description": "", "norm": 1, "currency": "epsilon"}
    words |= {"notion": "pure", "has_real_source": False, "in_core": False, "matrices": None}
    with pytest.raises(TypeError, match=f"does not say its {word}"):
        type("Logistic", (Noise,), {name: value for name, value in words.items() if name != word})


def test_a_noise_made_from_another_one_needs_a_name_of_its_own():
    with pytest.raises(TypeError, match="own name"):
        type("Logistic", (Laplace,), {})


def test_an_unknown_noise_is_refused_everywhere():
    value = pending([0.0])
    stranger = type("Logistic", (Laplace,), {"name": "logistic"})()
    for unknown in ("logistic", stranger):
        for ask in (
            find_noise,
            lambda noise: Real().release(noise, value, scale=1.0, shift=1.0, index=1),
            lambda noise: Simulation(key=1).release(noise, value, scale=1.0, shift=1.0, index=1),
        ):
            with pytest.raises(OptionError, match="noise 'logistic' is not possible here"):
                ask(unknown)


def test_a_noise_that_is_not_allowed_here_is_refused_with_what_is():
    with pytest.raises(OptionError, match="allowed: gaussian, laplace"):
        find_noise("wishart", ("gaussian", "laplace"))
    assert find_noise("gaussian", ("gaussian",)) is GAUSSIAN


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_noises_are_themselves_after_a_journey(noise):
    assert pickle.loads(pickle.dumps(noise)) is noise
    assert noise.norm in (1, 2)
    assert noise.currency in ("mu²", "epsilon")


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE, KNORM])
def test_levels_that_share_a_budget_cost_it_together(noise):
    for levels in (1, 7, 62):
        each = noise.share(noise.multiplier(0.7, levels))
        assert levels * each == pytest.approx(noise.ledger(0.7).limit, rel=1e-12)
        shift = noise.shift_of(5.0, each)
        towards = np.array([shift, 0.0])
        assert noise.cost(towards, 5.0) == pytest.approx(each, rel=1e-12)
    assert noise.multiplier(math.inf, 3) == 0.0
    assert noise.share(0.0) == math.inf
    assert noise.cost(np.ones(2), 0.0) == math.inf
    assert noise.cost(np.zeros(2), 0.0) == 0.0


@pytest.mark.parametrize(
    ("noise", "logpdf"),
    [
        (GAUSSIAN, lambda z: stats.norm.logpdf(z, scale=1.7).sum()),
        (LAPLACE, lambda z: stats.laplace.logpdf(z, scale=1.7).sum()),
        (KNORM, lambda z: -np.linalg.norm(z) / 1.7),
    ],
)
def test_log_ratios_are_those_of_the_densities(noise, logpdf):
    y, v0, v1 = np.random.default_rng(2).normal(size=(3, 4))
    assert noise.log_ratio(y, v0, v1, 1.7) == pytest.approx(logpdf(y - v1) - logpdf(y - v0))
    assert noise.log_ratio(v1, v0, v1, 0.0) == CERTAIN
    assert noise.log_ratio(v0, v0, v1, 0.0) == -CERTAIN
    assert noise.log_ratio(v0, v0, v0, 0.0) == 0.0


def test_the_log_ratio_of_wishart_noise_is_that_of_its_density():
    rng = np.random.default_rng(3)

    def packed(matrix):
        rows, columns = np.triu_indices(3)
        return matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2))

    v, u = rng.normal(size=(2, 3)) / 3
    drawn = stats.wishart(9.0, np.eye(3)).rvs(random_state=rng)
    y, v0, v1 = drawn + np.outer(v, v), np.outer(u, u) / 9, np.outer(v, v)
    expected = stats.wishart(9.0, np.eye(3)).logpdf(y - v1) - stats.wishart(9.0, np.eye(3)).logpdf(
        y - v0
    )
    assert WISHART.log_ratio(packed(y), packed(v0), packed(v1), 9.0) == pytest.approx(expected)
    assert WISHART.log_ratio(packed(v1), packed(3 * y), packed(-y), 9.0) > CERTAIN / 2


def test_budgets_are_those_of_the_exchange_and_a_group_shares_them():
    assert GAUSSIAN.budget(options(), 10) == mu_of(epsilon=2.0, delta=1e-5)
    assert GAUSSIAN.budget(options(moves_per_unit=4), 10) == mu_of(epsilon=2.0, delta=1e-5) / 4
    assert LAPLACE.budget(options(moves_per_unit=4), 10) == 0.5
    assert GAUSSIAN.budget(options(need_epsilon=lambda: math.inf), 10) == math.inf


def test_real_noise_pays_for_its_grid_once_for_each_number_that_a_reward_is_in():
    for horizon in (100, None):
        draws = Tree.draws(10, horizon)
        assert draws == 10 * (63 if horizon is None else 8)
        real = GAUSSIAN.budget(options(seed=None, horizon=horizon), draws)
        simulated = GAUSSIAN.budget(options(horizon=horizon), draws)
        assert real <= simulated <= real * (1 + 1e-12)  # a thousand rounds or for ever: nothing
    tiny = options(seed=None, horizon=None, need_delta=lambda: 1e-25)
    with pytest.raises(OptionError, match=r"its grid alone may cost .* or give a horizon"):
        GAUSSIAN.budget(tiny, 10**6)


def test_the_discrete_gaussian_is_as_near_a_rounded_one_as_the_slack_says():
    for scale in (1.5, 3.0, 10.0, 50.0):  # in steps of the grid
        k = np.arange(-1000, 1001)
        discrete = np.exp(-(k**2) / (2 * scale**2))
        discrete /= discrete.sum()
        rounded = np.diff(stats.norm.cdf(np.append(k - 0.5, k[-1] + 0.5) / scale))
        apart = 0.5 * np.abs(discrete - rounded).sum()
        assert apart <= grid.lattice_slack(1, 0.0, 1 / scale) / 2


def test_importing_the_facts_loads_neither_opendp_nor_scipy():
    code = (
        "import sys, dpbandit.budget, dpbandit.release, dpbandit.privacy.sources, "
        "dpbandit.privacy.sensitivity, dpbandit.privacy.wishart\n"
        "from dpbandit.budget import mu_of, epsilon_of\n"
        "mu_of(epsilon=2, delta=1e-5); epsilon_of(mu=1.0, delta=1e-5)\n"
        "heavy = ('opendp', 'scipy', 'pandas')\n"
        "print([m for m in sys.modules if m.split('.')[0] in heavy])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# ------------------------------------------------------------------ real noise


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("noise", "cdf"), [(GAUSSIAN, stats.norm(0, 3).cdf), (LAPLACE, stats.laplace(0, 3).cdf)]
)
def test_real_noise_has_the_stated_distribution(noise, cdf, whole):
    value = np.rint(np.linspace(-5, 5, 100) / STEP) * STEP
    given = pending(value) if whole else Pending(value)
    drawn = [Real().release(noise, given, scale=3.0, shift=1.0, index=0) - value for _ in range(40)]
    assert stats.kstest(np.concatenate(drawn), cdf).pvalue > ALARM


@pytest.mark.parametrize("noise", EXACT)
def test_released_whole_numbers_are_exact_multiples_of_the_step(noise):
    out = Real().release(noise, pending(np.full(50, 1 / 3)), scale=1.7, shift=1.0, index=0)
    assert (out / STEP == np.rint(out / STEP)).all()
    assert len(set(np.rint(out / STEP) % 1024)) > 20  # and not of a coarser one


@pytest.mark.parametrize("noise", EXACT)
def test_noise_is_added_to_whole_numbers_of_any_size_exactly(noise):
    big = [2**90 + 1, -(2**100) + 3, 0]
    noisy = sources.add_whole_noise(noise, big, scale=2.0, shift=1.0)
    extra = [a - b for a, b in zip(noisy, big, strict=True)]
    # beyond 1,000 scales with probability below 1e-400
    assert all(0 < abs(number) < 2000 / STEP for number in extra)
    assert any(number % 2 for number in noisy) or any(number % 4 for number in noisy)


@pytest.mark.parametrize("noise", EXACT)
def test_real_noise_on_floats_lies_on_its_grid(noise):
    out = Real().release(noise, Pending(np.full(50, 1 / 3)), scale=1.7, shift=1.0, index=0)
    steps = out / 2.0 ** grid.grid_exponent(1.7)
    assert (steps == np.rint(steps)).all()


def test_noise_that_might_not_fit_64_bits_is_refused():
    for noise, fits, too_large in ((GAUSSIAN, 2.0e5, 2.2e5), (LAPLACE, 1.1e4, 1.2e4)):
        sources.add_whole_noise(noise, [0], scale=fits, shift=1.0)
        with pytest.raises(NoiseError, match="might not fit 64 bits"):
            sources.add_whole_noise(noise, [0], scale=too_large, shift=1.0)


def test_real_noise_refuses_what_it_cannot_sample_exactly():
    for given in (pending([0.0, 0.0]), Pending(np.zeros(2))):
        for name in ("laplace-l2", "wishart"):
            with pytest.raises(NoiseError, match=f"no exact sampler for '{name}'"):
                Real().release(name, given, scale=1.0, shift=1.0, index=0)
        with pytest.raises(NoiseError, match="scale 0"):
            Real().release("gaussian", given, scale=0.0, shift=1.0, index=0)
    for noise in NOISES.values():
        assert noise.has_real_source == (noise.whole_sampler(2, 1e6) is not None)
        assert noise.has_real_source == (noise.float_sampler(2, 1.0, -40) is not None)


def test_nothing_is_released_where_more_is_proven_than_was_charged(monkeypatch):
    monkeypatch.setattr(opendp.Sampler, "cost", lambda self, shift: 1.01)
    for given in (pending([0.0]), Pending(np.zeros(1))):
        with pytest.raises(
            NoiseError, match=r"proves cost 1.01, more than the 1.0 that was charged"
        ):
            Real().release("gaussian", given, scale=1.0, shift=1.0, index=0)


@pytest.mark.parametrize("noise", EXACT)
def test_the_cost_that_the_sampler_proves_is_the_textbook_cost(noise):
    for dim in (1, 25):
        for scale in (0.3, 20.0, 1e4):
            safe = scale * (1 + grid.PROVEN_SLACK)
            charged = noise.share(scale)
            proven = noise.whole_sampler(dim, safe / STEP).cost(1.0 / STEP)
            assert 0.999 * charged < proven <= charged
            safe = grid.real_scale(scale, shift=1.0, dim=dim)
            sampler = noise.float_sampler(dim, safe, grid.grid_exponent(safe))
            assert 0.999 * charged < sampler.cost(1.0) <= charged


def _draw(queue):
    given = pending(np.zeros(4))
    queue.put(Real().release("gaussian", given, scale=1.0, shift=1.0, index=0).tolist())


def test_forked_children_never_draw_the_same_real_noise():
    # the parent's state exists before the fork
    Real().release("gaussian", pending(np.zeros(4)), scale=1.0, shift=1.0, index=0)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_draw, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    first, second = queue.get(timeout=60), queue.get(timeout=60)
    for child in children:
        child.join(timeout=60)
    assert all(a != b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("exponent", [-40, None])
@pytest.mark.parametrize("make", [opendp.gaussian, opendp.laplace])
def test_a_sampler_called_directly_is_the_one_that_the_wrappers_call(make, exponent):
    drawn = make(7, 1.5, exponent)
    assert drawn._library is not None
    for shift in (1e-6, 0.3, 1.0, 400.0):
        assert drawn.cost(shift) == drawn._weight * drawn._measurement.map(shift)
    # Every coordinate in its place: noise beyond 1,000 scales has a probability below 1e-400.
    value = (10**6 * np.arange(7)).astype(drawn._kind.dtype)
    assert (abs(drawn.draw(value) - value) < 1500).all()
    assert (abs(drawn.draw(value[::-1]) - value[::-1]) < 1500).all()
    with pytest.raises(ValueError, match="for 7 numbers"):
        drawn.draw(np.zeros(6))


def test_where_opendp_declares_its_functions_otherwise_the_wrappers_are_called(monkeypatch):
    drawn, whole = opendp.gaussian(3, 1.25, -40), opendp.gaussian(3, 1e6)
    pointer = ("opendp_core__measurement_invoke", ("pointer",))
    monkeypatch.setitem(opendp.DECLARED, "invoke", pointer)
    assert opendp._look(drawn._measurement, 3, opendp.FLOATS) is None
    monkeypatch.setattr(opendp, "_found", [None])
    wrapped = opendp.Sampler(drawn._measurement, 3, 2.0, opendp.FLOATS)
    assert wrapped.cost(0.7) == drawn.cost(0.7)
    out = wrapped.draw(np.array([1.0, 2.0, 3.0]))
    assert (out / 2.0**-40 == np.rint(out / 2.0**-40)).all()
    slow = opendp.Sampler(whole._measurement, 3, 2.0, opendp.WHOLE).draw_whole()
    assert all(type(number) is int for number in slow)


def test_what_opendp_refuses_is_said_and_leaves_nothing_behind():
    from opendp.mod import OpenDPException

    drawn = opendp.gaussian(3, 1.25, -40)
    with pytest.raises(OpenDPException):
        drawn.cost(-1.0)
    assert drawn.cost(1.0) > 0


def test_float_releases_whose_shifts_differ_a_little_share_a_sampler_that_is_never_too_narrow():
    shifts = np.linspace(0.01, 0.011, 50)
    scales = {grid.real_scale(2.0, shift=shift, dim=11) for shift in shifts}
    assert len(scales) == 1
    assert max(scales) < 2.0 * (1 + 1e-7)
    for shift in (1e-4, 0.01, 1.0):
        for bits in (30, 44):
            safe = grid.real_scale(2.0, shift=shift, dim=11, bits=bits)
            sampler = GAUSSIAN.float_sampler(11, safe, grid.grid_exponent(safe, bits))
            assert sampler.cost(shift) <= (shift / 2.0) ** 2


# ------------------------------------------------------------------ simulation noise


@pytest.mark.parametrize("name", ["gaussian", "laplace", "laplace-l2"])
def test_simulated_noise_is_added_to_the_value_and_scales(name):
    source, value = Simulation(seed=3), np.array([10.0, -4.0])
    zero = Pending(np.zeros(2))
    unit = source.release(name, zero, scale=1.0, shift=1.0, index=9)
    scaled = source.release(name, Pending(value), scale=2.5, shift=1.0, index=9)
    np.testing.assert_allclose(scaled, value + 2.5 * unit, rtol=1e-12)
    assert (source.release(name, zero, scale=1.0, shift=1.0, index=10) != unit).all()
    assert (Simulation(seed=3).release(name, zero, scale=1.0, shift=1.0, index=9) == unit).all()


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE, KNORM])
def test_simulated_noise_has_the_standard_deviation_that_it_says(noise):
    d, n = 3, 4000
    sample = np.array([noise.simulate(5, i, 2.0, np.zeros(d)) for i in range(n)])
    # the mean of n·d squares of noise with kurtosis below 10: 3.5% is above six standard errors
    spread = 2.0 * noise.standard_deviation(d)
    assert np.sqrt((sample**2).mean()) == pytest.approx(spread, rel=0.06)


@pytest.mark.slow
def test_simulated_wishart_noise_has_its_degrees_on_the_diagonal():
    sample = np.array([WISHART.simulate(5, i, 20.0, np.zeros(3)) for i in range(2000)])
    # a χ² of 20 degrees has standard deviation √40: six standard errors of the mean are 0.85
    assert np.abs(sample[:, [0, 2]].mean(axis=0) - 20.0).max() < 0.85
    assert abs(sample[:, 1].mean()) < 0.85
