"""Judges of noise: the grid, prices, samplers, and numbers drawn from a seed."""

from __future__ import annotations

import fractions
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from judges.common import DELTA, EPSILON, between, close, judge, refused


@judge
def grid_in_fractions() -> Any:
    from dpbandit.privacy import grid

    step, seen = fractions.Fraction(1, 2**40), []
    assert fractions.Fraction(grid.STEP) == step
    rng = np.random.default_rng(0)
    for value in [*rng.normal(size=20), 0.5, -1.5 * 2.0**-40, 2.5 * 2.0**-40, 0.0, 1e6]:
        whole = grid.to_whole(np.array([value]))[0]
        exact = fractions.Fraction(float(value)) / step
        assert whole == round(exact), (whole, exact)  # Fraction's round is to even, too
        close(grid.to_floats([whole])[0], float(whole * step), 0.0)
        seen.append(whole)
    for draws, epsilon, part in ((1, 0.0, 0.5), (30, 2.0, 1e-3), (7, 1000.0, 1e-9)):
        exact = (1 + math.exp(min(epsilon, 700.0))) * draws * part**2 / 4
        close(grid.lattice_slack(draws, epsilon, part), exact, 1e-12)
    for scale, shift, dim in (
        (1.0, 1.0, 10),
        (0.3, 1e-3, 4),
        (8.0, 1e-9, 2),
        (1024.0, 3.0, 1),
        (1.0, 1e-12, 3),
    ):
        exponent = grid.grid_exponent(scale)
        between(2.0 ** (exponent + 44), scale, 2.0 ** (exponent + 45) * (1 - 1e-15))
        needed = 1 + 1e-9 + 2 * dim * 2.0**-44 * scale / shift
        found = grid.real_scale(scale, shift=shift, dim=dim) / scale
        # No less than needed; a slack that is small is rounded up to a power of two.
        between(needed * (1 - 1e-15), found, 1 + 2 * (needed - 1) + 1e-15)
        if needed - 1 < 2.0**-20:
            power = math.log2(found - 1)
            between(-1e-3, power - round(power), 1e-3)
        else:
            close(found, needed, 1e-12)
        seen.append(found)
    return seen


def noises() -> dict[str, Any]:
    from dpbandit.privacy.noise import NOISES

    return dict(NOISES)


class Asked:
    """Options, as far as a noise asks for them."""

    def __init__(self, epsilon=EPSILON, delta=DELTA, most=1, seed: int | None = 0, horizon=100):
        self.epsilon, self.delta, self.moves_per_unit = epsilon, delta, most
        self.items_per_unit = most
        self.seed, self.horizon = seed, horizon

    def need_epsilon(self):
        return self.epsilon

    def need_delta(self):
        return self.delta


def size_of(name: str, shift: Any) -> float:
    return float(np.abs(shift).sum()) if name == "laplace" else float(np.sqrt((shift**2).sum()))


@judge
def noises_price_what_they_say() -> Any:
    from dpbandit.reference import random

    seen: list[Any] = []
    shifts = np.array([[0.3, -0.4, 1.2], [0.0, 0.0, 0.0], [0.0, -2.0, 0.0]])
    for name in ("gaussian", "laplace", "laplace-l2"):
        noise = noises()[name]
        power = 2 if name == "gaussian" else 1
        for budget, levels in itertools.product((0.3, 2.0), (1, 4, 11)):
            multiplier = noise.multiplier(budget, levels)
            close(multiplier, levels ** (1 / power) / budget, 1e-14)
            close(noise.share(multiplier) * levels, budget**power, 1e-13)
            close(noise.ledger(budget).limit, budget**power, 1e-15)
            close(noise.multipliers(budget, 12)[levels], multiplier, 0.0)
            close(noise.shift_of(3 * multiplier, noise.share(multiplier)), 3.0, 1e-13)
        assert len(noise.multipliers(1.0, 12)) == 13
        assert noise.multipliers(1.0, 12)[0] == 0.0
        assert noise.multiplier(math.inf, 3) == 0.0
        assert noise.share(0.0) == math.inf
        assert noise.shift_of(0.0, math.inf) == 1.0
        for shift in shifts:
            exact = (size_of(name, shift) / 0.7) ** power
            close(noise.cost(shift, 0.7), exact, 1e-13)
            assert noise.cost(shift, 0.0) == (math.inf if shift.any() else 0.0)
        many = noise.costs(shifts, np.array([0.7, 0.7, 0.0]))
        close(many[:2], [(size_of(name, s) / 0.7) ** power for s in shifts[:2]], 1e-13)
        assert math.isinf(many[2])
        assert noise.costs(shifts[1:2], np.zeros(1))[0] == 0.0
        # log p(y | v1) − log p(y | v0): the density's exponent.
        y, v0, v1 = np.array([0.2, -1.0]), np.array([1.0, 0.5]), np.array([-0.4, 0.1])
        exact = (size_of(name, y - v0) ** power - size_of(name, y - v1) ** power) / 0.7**power
        close(noise.log_ratio(y, v0, v1, 0.7), exact / power, 1e-12)
        assert noise.log_ratio(v1, v0, v1, 0.0) == 1e6
        assert noise.log_ratio(v0, v0, v1, 0.0) == -1e6
        assert noise.ledger(1.0).currency == ("mu²" if name == "gaussian" else "epsilon")
        spread = {"gaussian": 1.0, "laplace": 2.0, "laplace-l2": 4.0}[name]  # E‖z‖²/d = d + 1
        drawn = np.array(
            [noise.simulate(5, i, 2.0, np.array([7.0, -3.0, 1.0])) for i in range(700)]
        )
        assert len(np.unique(drawn)) == drawn.size
        # Both engines draw the same bits: value + scale·draw, by key and then by number.
        draws = {"gaussian": random.normals, "laplace": random.laplaces}.get(name)
        if draws is not None:
            assert (drawn[3] == [7.0, -3.0, 1.0] + 2.0 * draws(5, 3, 3)).all()
        close(drawn.mean(axis=0), [7.0, -3.0, 1.0], 0.0, 0.35)
        close((drawn - [7.0, -3.0, 1.0]).std() / 2, noise.standard_deviation(3), 0.09)
        close(noise.standard_deviation(3), math.sqrt(spread), 1e-12)
        two = [noise.simulate(5, 3, 2.0, np.zeros(3)), noise.simulate(5, 3, 1.0, np.ones(3))]
        close(two[0] / 2, two[1] - 1, 1e-12, 1e-12)
        seen += [drawn[:5], noise.tail(3, 0.1), noise.tail_at(2.0), noise.norm, noise.currency]
        scales = np.array([1.0, 2.0, 2.0])
        close(noise.published_spread(scales), 3.0 if power == 2 else 5.0, 1e-13)
        # Tails: the share of numbers beyond them.
        beyond = (np.abs(drawn - [7.0, -3.0, 1.0]) / 2 > noise.tail(3, 0.05)).any(axis=1).mean()
        between(0.0, beyond, 0.05)
        close(noise.tail_at(2.0), 2.0, 1e-14)
        close(noise.tail_at(4.5), 3.0 if power == 2 else 4.5, 1e-14)
    gaussian, laplace = noises()["gaussian"], noises()["laplace"]
    close(gaussian.tail(3, 0.1), math.sqrt(2 * math.log(60)), 1e-13)
    close(laplace.tail(3, 0.1), math.sqrt(8) * math.log(60), 1e-13)
    close(noises()["laplace-l2"].tail(3, 0.1), math.sqrt(8) * math.log(60) * 2.0, 1e-13)
    return seen


@judge
def budgets_of_units() -> Any:
    from dpbandit import budget

    seen = []
    for name, noise in noises().items():
        power = name == "gaussian"
        for most in (1, 4):
            found = noise.budget(Asked(most=most), 10)
            whole = budget.mu_of(epsilon=EPSILON, delta=DELTA) if power else EPSILON
            close(found, whole / most, 1e-12)
            mu = noise.mu(Asked(most=most), found)
            assert (mu is not None) == power
            if power:
                close(mu, whole, 1e-12)
                close(noise.epsilon(whole**2, DELTA), EPSILON, 1e-8)
            else:
                assert noise.epsilon(0.7, DELTA) == 0.7
            seen.append(found)
        assert noise.delta(Asked()) == (0.0 if noise.notion == "pure" else DELTA)
        assert noise.budget(Asked(epsilon=math.inf), 10) == math.inf
        if power:
            assert noise.mu(Asked(), math.inf) is None
    gaussian = noises()["gaussian"]
    step = max(2.0**-40 * budget.mu_of(epsilon=EPSILON, delta=DELTA), 2.0**-44)
    one = (1 + math.exp(EPSILON)) * step**2 / 4  # what the grid takes of δ for one number
    much = int(0.011 * DELTA / one)
    count = int(0.009 * DELTA / one / 3)
    real = gaussian.budget(Asked(seed=None, most=3), count)
    close(real, budget.mu_of(epsilon=EPSILON, delta=DELTA - 3 * count * one) / 3, 1e-12)
    assert real < budget.mu_of(epsilon=EPSILON, delta=DELTA) / 3 * (1 - 1e-5)
    refused("OptionError", lambda: gaussian.budget(Asked(seed=None), much))
    gaussian.budget(Asked(seed=None), int(much * 0.9 * 0.01 / 0.011))
    near = 2 * gaussian.budget(Asked(seed=None, epsilon=30.0, delta=0.5), 1)
    return [*seen, real, near]


class Drawn:
    """What a sampler of OpenDP's would be asked, with its price by formula and no lots."""

    asked: ClassVar[list[Any]] = []
    dearer: ClassVar[float] = 1.0

    def __init__(self, name: str, dim: int, scale: float, exponent: int | None) -> None:
        self.name, self.dim, self.scale, self.exponent = name, dim, scale, exponent
        Drawn.asked.append((name, dim, scale, exponent))

    def cost(self, shift: float) -> float:
        power = 2 if self.name == "gaussian" else 1
        return (shift / self.scale) ** power * (1 + 1e-13) * Drawn.dearer

    def draw(self, value: Any) -> Any:
        return value + 0.25

    def draw_whole(self) -> list[int]:
        return [3 - at for at in range(self.dim)]


class Answered:
    """The same of a randomised response."""

    def __init__(self, scale: float) -> None:
        self.cost = math.log1p(2 / (scale - 1)) * (1 - 1e-13)
        Drawn.asked.append(("response", 1, scale, None))

    def draw(self, bit: bool) -> bool:
        return bit


def with_drawn(call: Callable[[], Any]) -> Any:
    """Run with OpenDP's samplers replaced by `Drawn`."""
    from dpbandit.privacy import opendp

    before = opendp.gaussian, opendp.laplace, opendp.response, opendp.one_of
    Drawn.asked = []
    opendp.gaussian = lambda dim, scale, exponent=None: Drawn("gaussian", dim, scale, exponent)  # type: ignore[assignment]
    opendp.laplace = lambda dim, scale, exponent=None: Drawn("laplace", dim, scale, exponent)  # type: ignore[assignment]
    opendp.response = Answered  # type: ignore[assignment,misc]
    opendp.one_of = lambda number, count: 2 * number >= count
    try:
        return call()
    finally:
        opendp.gaussian, opendp.laplace, opendp.response, opendp.one_of = before


@judge
def real_noise_is_charged_as_proven() -> Any:
    from dpbandit.privacy import sources

    seen: list[Any] = []
    for name in ("gaussian", "laplace"):
        noise, whole = noises()[name], [5, -7, 2**70]
        for scale, shift, step in ((2.0, 1.0, 2.0**-40), (0.25, 0.5, 0.5)):
            pending = sources.Pending(np.array([0.0, 1.0, 2.0]), list(whole), step)
            given = {"scale": scale, "shift": shift}
            out = with_drawn(
                lambda p=pending, g=given, n=noise: sources.Real().release(n, p, index=1, **g)
            )
            ((kind, dim, asked, exponent),) = Drawn.asked
            assert (kind, dim, exponent) == (name, 3, None)
            between(scale / step * (1 + 1e-10), asked, scale / step * (1 + 1e-8))
            close(
                out,
                np.array([w + e for w, e in zip(whole, (3, 2, 1), strict=True)], dtype=float)
                * step,
                1e-15,
            )
            seen += [asked, out]
            floats = sources.Pending(np.array([0.5, 1.0]))
            out = with_drawn(
                lambda p=floats, g=given, n=noise: sources.Real().release(n, p, index=1, **g)
            )
            ((kind, dim, asked, exponent),) = Drawn.asked
            assert (kind, dim) == (name, 2)
            between(scale, asked, scale * (1 + 1e-6))
            between(2.0 ** (exponent + 44), asked, 2.0 ** (exponent + 45))
            close(out, [0.75, 1.25], 0.0)
            seen += [asked, exponent]
        # A sampler that proves a hair more than was charged is not asked for noise.
        for dear, pending in itertools.product(
            (1.0, 1 + 1e-8), (floats, sources.Pending(np.zeros(2), [0, 0], 0.5))
        ):
            Drawn.dearer = dear
            call = functools.partial(
                sources.Real().release, noise, pending, index=1, scale=2.0, shift=0.7
            )
            if dear == 1.0:
                with_drawn(call)
            elif pending is floats:  # its scale has room for rounding: twice the price has none
                Drawn.dearer = 2.0
                refused("NoiseError", lambda c=call: with_drawn(c))
            else:
                refused("NoiseError", lambda c=call: with_drawn(c))
        Drawn.dearer = 1.0
        zero = sources.Pending(np.zeros(1), [0])
        refused(
            "NoiseError",
            lambda n=noise, p=zero: sources.Real().release(n, p, scale=0.0, shift=1.0, index=1),
        )
        refused("NoiseError", lambda n=noise: sources.add_whole_noise(n, [0], scale=0.0, shift=1.0))
    refused("NoiseError", lambda: sources._check(1.0000001, 1.0))
    refused("NoiseError", lambda: sources._check(math.nan, 1.0))
    sources._check(1.0, 1.0)
    for name in ("laplace-l2", "wishart"):
        pending = sources.Pending(np.zeros(3), [0, 0, 0])
        refused(
            "NoiseError",
            lambda n=name, p=pending: sources.Real().release(n, p, scale=1.0, shift=1.0, index=1),
        )
    simulated = sources.Simulation(7)
    value = sources.Pending(np.array([1.0, 2.0]))
    one = simulated.release("gaussian", value, scale=2.0, shift=1.0, index=4)
    other = noises()["gaussian"].simulate(simulated.key, 4, 2.0, np.array([1.0, 2.0]))
    close(one, other, 0.0)
    assert sources.Simulation(key=9).key == 9
    from dpbandit.reference import random

    assert sources.Simulation(7).key == random.derive_key(7, random.NOISE)
    return [*seen, one]


@judge
def samplers_are_opendps() -> Any:
    from dpbandit.privacy import opendp
    from dpbandit.privacy.grid import FLOAT_GRID_BITS, grid_exponent

    seen: list[Any] = []
    for make, power in ((opendp.gaussian, 2), (opendp.laplace, 1)):
        whole = make(3, 1000.0)
        for shift in (10.0, 10.0, 20.0, 10.0):
            between(
                (shift / 1000.0) ** power * (1 - 1e-12),
                whole.cost(shift),
                (shift / 1000.0) ** power * (1 + 1e-9),
            )
        drawn = np.array([whole.draw_whole() for _ in range(400)])
        assert drawn.shape == (400, 3)
        between(850.0 if power == 2 else 1150.0, drawn.std(), 1150.0 if power == 2 else 1680.0)
        between(-160.0, drawn.mean(), 160.0)
        floats = make(2, 1.5, -44)
        out = np.array([floats.draw(np.array([100.0, -100.0])) for _ in range(300)])
        between(99.0, out[:, 0].mean(), 101.0)
        between(-101.0, out[:, 1].mean(), -99.0)
        between(1.1, (out - out.mean(axis=0)).std(), 2.8)
        steps = out / 2.0 ** grid_exponent(1.0, FLOAT_GRID_BITS)
        assert (steps == np.rint(steps)).all()
        refused("ValueError", lambda f=floats: f.draw(np.zeros(3)))
        refused("ValueError", lambda f=floats: f.draw_whole())
        reach = 40.0 if power == 2 else 745.0
        refused("NoiseError", lambda m=make, r=reach: m(1, 2.0**63 / r * 1.001))
        make(1, 2.0**63 / reach * 0.999)
        refused("NoiseError", lambda m=make: m(1, math.nan))
        # Where the wrappers are called in another way, the same noise.
        before, opendp._found[:] = list(opendp._found), [None]
        try:
            plain = opendp.Sampler(whole._measurement, 3, whole._weight, opendp.WHOLE)
            assert plain._library is None
            close(plain.cost(10.0), whole.cost(10.0), 1e-15)
            drawn = np.array([plain.draw(np.array([10**6, 0, 0])) for _ in range(40)])
            between(10**6 - 1500, drawn[:, 0].mean(), 10**6 + 1500)
        finally:
            opendp._found[:] = before
        assert opendp._found[0] is not None, "OpenDP's wrappers are not declared as expected"
    return seen


@judge
def random_numbers() -> Any:
    """Philox's published answers, distributions, and the core's bits."""
    from scipy import stats

    from dpbandit.reference import random

    words = [f"{int(word[0]):08x}" for word in random.philox(0, 0, [0])]
    assert words == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    ones = (1 << 64) - 1
    words = [f"{int(word[0]):08x}" for word in random.philox(ones, ones, [ones])]
    assert words == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]
    keys = {random.derive_key(seed, purpose) for seed in range(40) for purpose in range(5)}
    assert len(keys) == 200
    seen: list[Any] = [sorted(keys)[:5]]
    x = np.concatenate([np.linspace(1e-9, 3, 400), [2.0**-52, 1.0, 1e300]])
    close(random.log(x), np.log(x), 4e-16, 4e-16)
    u = (np.arange(400) + 0.5) / 400
    sine, cosine = random.circle(u)
    close(sine, np.sin(2 * np.pi * u), 0.0, 2e-15)
    close(cosine, np.cos(2 * np.pi * u), 0.0, 2e-15)
    for draw, law in (
        (random.normals, stats.norm),
        (random.laplaces, stats.laplace),
        (random.uniforms, stats.uniform),
    ):
        numbers = np.concatenate([draw(3, stream, 50) for stream in range(30)])
        assert stats.kstest(numbers, law.cdf).pvalue > 1e-3
        assert len(np.unique(numbers)) == len(numbers)
        close(draw(3, 7, 11)[:3], draw(3, 7, 3), 0.0)
        seen.append(numbers[:9])
    radius = np.array([np.linalg.norm(random.knorm(3, s, 4)) for s in range(250)])
    assert stats.kstest(radius, stats.gamma(4).cdf).pvalue > 1e-3
    for shape in (1.0, 3.5, 40.0):
        drawn = np.array([random.gamma(3, n, shape) for n in range(200)])
        assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > 1e-3
        seen.append(drawn[:5])
    assert not random.wishart(3, 1, 0.0, 6).any()
    try:
        from dpbandit import _core as core
    except ImportError:
        return seen
    zeros = np.zeros(11)
    for key, stream in ((0, 0), (ones, 2**62 | 3), (7, 5_000_000_000)):
        for noise, draw in (("gaussian", random.normals), ("laplace", random.laplaces)):
            close(
                np.asarray(core.noise(noise, key, stream, 1.0, zeros)), draw(key, stream, 11), 0.0
            )
        close(np.asarray(core.uniforms(key, stream, 11)), random.uniforms(key, stream, 11), 0.0)
        close(
            np.asarray(core.noise("laplace-l2", key, stream, 1.0, zeros)),
            random.knorm(key, stream, 11),
            1e-13,
        )
        assert core.lot(key, stream, 2**40) == random.lot(key, stream, 2**40)
        packed = np.asarray(core.noise("wishart", key, stream, 30.0, np.zeros(15)))
        close(packed, random.wishart(key, stream, 30.0, 15), 1e-12, 1e-12)
    return seen


@judge
def densities_of_both_engines() -> Any:
    from dpbandit import _core as core
    from dpbandit.reference import random

    rng, seen = np.random.default_rng(3), []
    inside = 40.0 * np.array([1.0, 0, 0, 1, 0, 1])  # a packed matrix that is positive
    for name, noise in noises().items():
        for scale in (30.0, 0.0):
            y, zero, one = rng.normal(size=(3, 6))
            close(core.log_ratio(name, y, one, one, 0.0), noise.log_ratio(y, one, one, 0.0))
            y = one if scale == 0.0 else y + (inside if name == "wishart" else 0.0)
            for v0, v1 in ((zero, one), (one, zero)):
                ratio = noise.log_ratio(y, v0, v1, scale)
                close(core.log_ratio(name, y, v0, v1, scale), ratio, 1e-9)
                seen.append(ratio)
    for stream in range(120):
        packed = np.asarray(core.noise("wishart", 5, stream, 4.0, np.zeros(6)))
        close(packed, random.wishart(5, stream, 4.0, 6), 1e-12, 1e-12)
    assert not np.asarray(core.noise("wishart", 5, 1, 0.0, np.zeros(6))).any()
    outside = core.log_ratio("wishart", -inside, np.zeros(6), -2 * inside, 30.0)
    assert (
        outside == noises()["wishart"].log_ratio(-inside, np.zeros(6), -2 * inside, 30.0)
        or outside > 1e5
    )
    return seen
