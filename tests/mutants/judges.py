"""Who judges a mutant: fast checks that know nothing of the code as it was.

Each judge asserts what must hold (a formula of docs/privacy.md, an exact sum of costs, what the
other engine does) and returns the numbers that it saw. A mutant that no judge refuses, and whose
numbers are all as they were, changes nothing that is released. The judges run in `make test` on the
code as it ships, too.
"""

from __future__ import annotations

import fractions
import functools
import hashlib
import itertools
import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

Judge = Callable[[], Any]
JUDGES: dict[str, Judge] = {}

EPSILON, DELTA = 1.5, 1e-4
ROUNDS, DIM = 20, 3


def judge(function: Judge) -> Judge:
    JUDGES[function.__name__] = function
    return function


def close(a: Any, b: Any, rel: float = 1e-9, abs_: float = 0.0) -> None:
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    assert a.shape == b.shape, (a.shape, b.shape)
    assert np.allclose(a, b, rtol=rel, atol=abs_), (a, b)


def between(low: Any, value: Any, high: Any) -> None:
    assert low <= value <= high, (low, value, high)


def refused(kind: str, call: Callable[[], Any]) -> str:
    """The words of the error that a call must raise; its class is named, not imported."""
    try:
        call()
    except Exception as error:
        if kind in {each.__name__ for each in type(error).__mro__}:
            return kind
        raise AssertionError(f"{type(error).__name__}, not {kind}: {error}") from error
    raise AssertionError(f"nothing was refused: {kind} expected")


# ------------------------------------------------------------------ exchange of currencies


@functools.cache
def exact_delta(epsilon: float, mu: float) -> float:
    """Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2), to 60 digits."""
    import mpmath

    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)  # type: ignore[no-any-return]


@judge
def exchange_of_gaussian_budgets() -> Any:
    from dpbandit import budget
    from dpbandit.privacy import accounting

    seen = []
    for epsilon, mu in itertools.product(
        (0.0, 1e-3, 0.5, 2.0, 30.0, 800.0), (1e-3, 0.3, 2.0, 45.0)
    ):
        exact, ours = exact_delta(epsilon, mu), budget.delta_of(epsilon=epsilon, mu=mu)
        assert float(exact) <= ours
        assert ours <= float(exact) * (1 + 1e-9) + 1e-12 * max(1.0, (epsilon / mu) ** 2 * 1e-3), mu
        seen.append(ours)
    assert budget.delta_of(epsilon=1.0, mu=0.0) == 0.0
    assert budget.delta_of(epsilon=1.0, mu=math.inf) == 1.0
    for epsilon, delta in itertools.product((1e-2, 0.7, 2.0, 12.0, 300.0), (1e-9, 1e-5, 0.1, 0.6)):
        mu = budget.mu_of(epsilon=epsilon, delta=delta)
        assert exact_delta(epsilon, mu) <= delta, "the budget came out too large"
        assert exact_delta(epsilon, mu * (1 + 4e-10)) > delta, "more than 4e-10 was given away"
        back = budget.epsilon_of(mu=mu, delta=delta)
        assert exact_delta(back, mu) <= delta, "the cost came out too small"
        assert exact_delta(back * (1 - 4e-10) - 4e-12, mu) > delta
        seen += [mu, back]
    # Where ε and δ are tiny, more is given away, and still enough is left.
    tiny = budget.mu_of(epsilon=1e-5, delta=1e-10)
    assert exact_delta(1e-5, tiny) <= 1e-10 < exact_delta(1e-5, tiny * (1 + 1e-7))
    assert budget.epsilon_of(mu=0.2, delta=0.5) == 0.0
    assert budget.epsilon_of(mu=0.0, delta=0.5) == 0.0
    assert budget.epsilon_of(mu=math.inf, delta=0.1) == math.inf
    assert budget.mu_of(epsilon=math.inf, delta=0.1) == math.inf
    edge = 2 * 0.0627  # δ(0, μ) = 2Φ(μ/2) − 1
    between(0.04, budget.delta_of(epsilon=0.0, mu=edge), 0.06)
    from scipy.special import erfcx

    for x in (0.0, 0.5, 1.0, 1.9999, 2.0, 2.5, 4.0, 9.0, 100.0, 1e6):
        close(accounting.scaled_erfc(x), erfcx(x), 4e-15)
    for wrong in (0.0, -1.0, math.nan, True, "1", None):
        refused("OptionError", lambda w=wrong: budget.check_epsilon(w))
    for wrong in (0.0, 1.0, -0.1, math.nan, True, "1", None):
        refused("OptionError", lambda w=wrong: budget.check_delta(w))
        refused("OptionError", lambda w=wrong: budget.epsilon_of_rho(rho=0.1, delta=w))
    assert (budget.check_epsilon(3), budget.check_delta(0.25)) == (3.0, 0.25)
    return seen


@judge
def exchange_of_zcdp() -> Any:
    from dpbandit import budget

    seen = []
    for mu in (0.1, 1.0, 7.0):
        between(mu * mu / 2, budget.rho_of(mu=mu), mu * mu / 2 * (1 + 1e-9))
        between(mu * (1 - 1e-9), budget.mu_of_rho(rho=mu * mu / 2), mu * (1 - 1e-11))
        seen += [budget.rho_of(mu=mu), budget.mu_of_rho(rho=mu * mu / 2)]
    for rho, delta in itertools.product((1e-3, 0.1, 0.5, 4.0, 60.0), (1e-9, 1e-3, 0.3)):
        a = np.geomspace(1e-5, 1e8, 200_001)  # α − 1
        bound = rho * (a + 1) + np.log(1 / ((a + 1) * delta)) / a + np.log1p(-1 / (a + 1))
        exact = max(float(bound.min()), 0.0)
        ours = budget.epsilon_of_rho(rho=rho, delta=delta)
        between(exact * (1 - 1e-6), ours, exact * (1 + 1e-8) + 1e-12)
        seen.append(ours)
    assert budget.epsilon_of_rho(rho=0.0, delta=0.1) == 0.0
    assert budget.epsilon_of_rho(rho=1e-9, delta=0.5) == 0.0
    return seen


# ------------------------------------------------------------------ the ledger


class Book:
    """A ledger in the fewest words: every charge is kept."""

    def __init__(self, limit: float) -> None:
        self.limit, self.charges = limit, []

    def total(self, charges: list[Any]) -> float:
        groups: dict[int, dict[str, float]] = {}
        for cost, what, group, adds in charges:
            lanes = groups.setdefault(group, {})
            old = lanes.get(what, 0.0)
            lanes[what] = old + cost if adds else max(old, cost)
        return max((math.fsum(lanes.values()) for lanes in groups.values()), default=0.0)

    def takes(self, charge: Any) -> bool:
        group = [c for c in [*self.charges, charge] if c[2] == charge[2]]
        return self.total(group) <= self.limit * (1 + 1e-12)


@judge
def ledger_against_a_book() -> Any:
    from dpbandit.privacy.ledger import Ledger

    rng, seen = np.random.default_rng(3), []
    for limit, adds in ((2.0, False), (2.0, True), (math.inf, False)):
        ledger, book = Ledger(limit=limit, currency="mu²"), Book(limit)
        for when in range(1, 60):
            cost = float(rng.choice([0.0, 0.25, 0.5, 0.75]))
            what, group = f"lane {rng.integers(4)}", int(rng.integers(3))
            charge, before = (cost, what, group, adds), ledger.to_dict()
            given = {"when": when, "what": what, "group": group, "adds": adds}
            if not book.takes(charge):
                for call in (ledger.after, ledger.charge):
                    refused("BudgetError", lambda c=call, g=given, p=cost: c(p, **g))
                assert ledger.to_dict() == before
                continue
            later = ledger.after(cost, **given)
            assert ledger.to_dict() == before
            undo = ledger.charge(cost, **given)
            assert ledger == later
            undo()
            assert ledger.to_dict() == before
            if rng.random() < 0.3:  # a release that failed
                continue
            book.charges.append(charge)
            assert later.total == book.total(book.charges)
            assert later.releases == len(book.charges)
            link = f"{later.fingerprint}|{later.releases}|{later.total!r}|".encode() + b"seen"
            ledger = later.sealed(b"seen")
            assert ledger.fingerprint == hashlib.sha256(link).hexdigest()
            assert {**ledger.to_dict(), "fingerprint": ""} == {**later.to_dict(), "fingerprint": ""}
            assert ledger.remaining == max(limit - ledger.total, 0.0)
            seen.append((ledger.total, ledger.fingerprint))
        assert Ledger.from_dict(ledger.to_dict()) == ledger
        for group, lanes in ledger.groups.items():
            for what, lane in lanes.items():
                own = [c for c in book.charges if c[1] == what and c[2] == group]
                assert lane.releases == len(own)
                assert lane.first <= lane.last
        seen.append(str(ledger.to_dict()))
    one = Ledger(limit=1.0, currency="epsilon")
    full = one.after(1.0, when=1, what="all")
    assert full.remaining == 0.0
    one.after(1.0 + 5e-13, when=1, what="rounding")
    one.after(0.0, when=1, what="free")
    refused("BudgetError", lambda: one.after(1.0 + 5e-12, when=1, what="more"))
    for wrong in (-1e-9, math.nan):
        refused("BudgetError", lambda w=wrong: full.after(w, when=2, what="none"))
    twice = Ledger(5.0, "epsilon").after(1.0, when=3, what="x").after(2.0, when=9, what="x")
    lane = twice.groups[0]["x"]
    assert (lane.first, lane.last, lane.releases, lane.dearest) == (3, 9, 2, 2.0)
    return seen


# ------------------------------------------------------------------ grid, noises, samplers


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
    from dpbandit.auditor import guards
    from dpbandit.privacy import opendp

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
        assert guards.on_grid(out.ravel(), 2.0**-44 * 2**44)
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


# ------------------------------------------------------------------ sensitivities and bounds


@judge
def sensitivities() -> Any:
    from dpbandit.privacy import sensitivity as s

    rng, seen = np.random.default_rng(1), []
    arms = rng.normal(size=(6, 3))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True) * 1.1
    for norm in (1, 2):
        moved = s.on_grid(1.5, dim=9, norm=norm) - 1.5
        close(moved, 1.5 * 2e-9 + 2.0**-40 * (9 if norm == 1 else 3), 1e-4)
        seen.append(moved)
        from dpbandit.reference import bound

        for grow in (bound.growth,):
            for _ in range(6):
                x, z = rng.normal(size=(2, 3)) * 0.4
                a = np.eye(3) + np.outer(z, z) * 4
                inverse, step = np.linalg.inv(a), np.linalg.inv(a) @ x
                after = np.linalg.inv(a + np.outer(x, x))
                factor, far_ = grow(x, step, float(x @ step), 1.3, norm)
                far_ /= 1.3
                lengths = []
                for unit in [*np.eye(3), *rng.normal(size=(60, 3))]:
                    u = unit / np.linalg.norm(unit)
                    old, new = np.linalg.norm(inverse @ u, norm), np.linalg.norm(after @ u, norm)
                    lengths.append((new / old, abs(new - old)))
                assert max(r for r, _ in lengths) <= factor * (1 + 1e-9)
                assert max(d for _, d in lengths) <= far_ * (1 + 1e-9)
                # Attained: by the matrix itself, and by z along the step.
                m = np.eye(3) - np.outer(step, x) / (1 + x @ step)
                close(factor, max(np.linalg.norm(m, ord=norm), 1.0), 1e-9)
                tight = np.linalg.norm(step, norm) * np.linalg.norm(step) / (1 + x @ step)
                close(far_, tight, 1e-9)
                seen += [factor, far_]
    return seen


@judge
def lazy_bounds_hold_and_are_not_too_large() -> Any:
    from dpbandit.reference.bound import LazyBound

    rng, seen = np.random.default_rng(2), []
    for norm, known in itertools.product((1, 2), (0, 7)):
        arms = rng.normal(size=(known, 3))
        arms /= np.linalg.norm(arms, axis=1, keepdims=True) + 1e-300
        bound, a = LazyBound(max_norm=1.2, norm=norm), np.eye(3) * 0.3
        for t in range(1, 160):
            x = rng.normal(size=3) * np.array([1.0, 0.2, 0.05])
            x *= min(1.0, 1.0 / np.linalg.norm(x))
            step = np.linalg.inv(a) @ x
            quadratic = float(step @ x)
            a = a + np.outer(x, x)
            inverse = np.linalg.inv(a)
            if t % 50 == 0:
                bound.distrust()
            if t == 120:
                bound.forget()
            found = bound.after(inverse, arms, x, step, quadratic)
            if known:
                exact = np.linalg.norm(arms @ inverse, ord=norm, axis=1).max()
            else:
                exact = np.linalg.eigvalsh(inverse)[-1] * 1.2 * (math.sqrt(3) if norm == 1 else 1.0)
            assert exact <= found * (1 + 1e-12), "no bound"
            assert found <= exact * 2.2, "far too large"
            seen.append(found)
    return seen


@judge
def matrices_packed() -> Any:
    from dpbandit.learners.joint import pack
    from dpbandit.privacy import matrices

    rng, seen = np.random.default_rng(4), []
    for size in (1, 2, 4):
        v = rng.normal(size=size)
        packed = pack(v)
        close(matrices.unpack(packed), np.outer(v, v), 1e-12, 1e-14)
        close(np.linalg.norm(packed), v @ v, 1e-12)
    gaussian, wishart = matrices.GaussianMatrix(), matrices.WishartMatrix()
    for d, tail, scale in ((2, 1.5, 3.0), (5, 3.0, 40.0)):
        sigma = math.sqrt(gaussian.amount(scale))
        close(sigma, scale, 1e-14)
        close(gaussian.lowest(scale**2, d, tail), scale * (math.sqrt(2 * d) + tail), 1e-13)
        close(gaussian.highest(scale**2, d, tail), scale * (math.sqrt(2 * d) + tail), 1e-13)
        close(
            gaussian.moments(scale**2, d, tail), scale * (math.sqrt(d) + tail) / math.sqrt(2), 1e-13
        )
        assert gaussian.mean(scale) == 0.0
        k = wishart.amount(scale)
        assert k == scale == wishart.mean(scale)
        low = max(math.sqrt(k) - math.sqrt(d) - tail, 0.0) ** 2
        close(wishart.lowest(k, d, tail), k - low, 1e-13)
        close(wishart.highest(k, d, tail), (math.sqrt(k) + math.sqrt(d) + tail) ** 2 - k, 1e-13)
        close(wishart.moments(k, d, tail), (math.sqrt(k) + tail) * (math.sqrt(d) + tail), 1e-13)
    assert wishart.highest(0.0, 3, 1.0) == wishart.moments(0.0, 3, 1.0) == 0.0
    from scipy.stats import wishart as law

    from dpbandit.privacy.noises.wishart import _log_density

    noise = noises()["wishart"]
    for p in (2, 3):
        one, other = law.rvs(9, np.eye(p), random_state=1), law.rvs(9, np.eye(p), random_state=2)
        exact = law.logpdf(one, 9, np.eye(p)) - law.logpdf(other, 9, np.eye(p))
        off = np.where(np.eye(p) > 0, 1.0, math.sqrt(2))[np.triu_indices(p)]
        packs = [m[np.triu_indices(p)] * off for m in (one, other)]
        found = [_log_density(x, 9.0) for x in packs]
        close(found[0] - found[1], exact, 1e-9)
        assert _log_density(-packs[0], 9.0) == -1e6
        zero = np.zeros_like(packs[0])
        close(noise.log_ratio(packs[0], zero, packs[0] - packs[1], 9.0), found[1] - found[0], 1e-9)
        shift = packs[0] - packs[1]
        close(noise.cost(shift, 9.0), shift @ shift / 18.0, 1e-12)
        assert noise.cost(shift, 0.0) == math.inf
        assert noise.log_ratio(shift, zero, shift, 0.0) == 1e6
        assert noise.shift_of(3.0, 0.1) == 1.0
        drawn = np.array([noise.simulate(3, i, 12.0, zero) for i in range(250)])
        close(matrices.unpack(drawn.mean(axis=0)), 12.0 * np.eye(p), 0.0, 1.6)
        close(drawn.var(axis=0), np.full(len(zero), 24.0), 0.45)
        seen.append(drawn[:3])
    for call in (
        lambda: noise.multiplier(1.0, 1),
        lambda: noise.share(1.0),
        lambda: noise.tail(1, 0.1),
    ):
        refused("NoiseError", call)
    for call in (
        lambda: noise.tail_at(1.0),
        lambda: noise.published_spread(np.ones(1)),
        noise.standard_deviation,
    ):
        refused("NoiseError", call)
    return seen


@judge
def wishart_noise_is_calibrated() -> Any:
    from scipy import integrate, stats

    from dpbandit.privacy import wishart

    seen: list[Any] = []
    for epsilon, delta, levels, rows in ((2.0, 1e-5, 3, 0), (0.5, 1e-3, 1, 0), (1.0, 1e-5, 2, 4)):
        given = {"delta": delta, "levels": levels, "rows": rows}
        found = wishart.calibrate(epsilon=epsilon, **given)
        assert found.first + levels * found.each <= epsilon
        refuses = wishart.losses(found.degrees - 1, **given)
        assert refuses.first + levels * refuses.each > epsilon, "fewer degrees would do"
        # The same bound by another quadrature, at the best λ on a grid.
        nu, part = found.degrees, 0.01 * delta / levels
        law = stats.chi2(nu)
        least, error = law.ppf(part), math.sqrt(rows * (rows + 1) / 2) * 2.0**-41
        share = 2 * error * rows / law.ppf(part / max(rows, 1))
        rounded = (nu / 2 - 1) * rows * share / (1 - share) + math.sqrt(rows) * error + share
        close(wishart.added_by_rounding(nu, least=20.0, rows=0), 0.0)
        close(
            wishart.added_by_rounding(nu, least=law.ppf(part / max(rows, 1)), rows=rows),
            rounded,
            1e-9,
        )
        close(wishart.margin(rows), 2 * rows * error, 1e-14)
        top = nu + 40 * math.sqrt(2 * nu)
        x, y = np.geomspace(1e-3, top, 20_001), np.geomspace(least, top, 20_001)
        f = 0.5 - (nu / 2 - 1) * np.log1p(1 / x)
        g = -0.5 - (nu / 2 - 1) * np.log1p(-1 / y)

        def logs(rate: float, x=x, y=y, f=f, g=g, law=law, part=part) -> float:
            of_f = integrate.trapezoid(np.exp(rate * f + law.logpdf(x)), x)
            of_g = integrate.trapezoid(np.exp(rate * g + law.logpdf(y)), y)
            of_g += part * math.exp(rate * g[0])
            return max(math.log(of_f), 0.0) + max(math.log(of_g), 0.0)

        left = delta * (0.98 if rows else 0.99)

        def total(rate: float, left=left, levels=levels, logs=logs, rounded=rounded) -> float:
            first = rate * math.log(rate) - (1 + rate) * math.log(1 + rate) - math.log(left)
            return (max(first, 0.0) + levels * (logs(rate) + rate * rounded)) / rate

        best = min(total(r) for r in np.geomspace(0.3, 60.0, 80))
        between(best * 0.999, found.first + levels * found.each, best * 1.002)
        seen.append(found)
    users = wishart.calibrate_all(epsilon=2.0, delta=1e-4, rewards_per_unit=2, levels=[1, 2])
    each = math.exp(math.log(1e-4) - math.log(2) - 1.0)
    for levels in (1, 2):
        assert users[levels] == wishart.calibrate(epsilon=1.0, delta=each, levels=levels)
    assert wishart.calibrate_all(epsilon=math.inf, delta=0.1, rewards_per_unit=1, levels=[1]) == {}
    refused(
        "OptionError",
        lambda: wishart.calibrate_all(epsilon=900.0, delta=1e-4, rewards_per_unit=50, levels=[1]),
    )
    refused("OptionError", lambda: wishart.losses(3, delta=1e-5, levels=3))
    refused("OptionError", lambda: wishart.calibrate(epsilon=1e-7, delta=1e-300, levels=3))
    return [*seen, users]


# ------------------------------------------------------------------ releases


def dense_tree(release: Any, horizon: int) -> tuple[Any, Any]:
    """Which rounds each node holds, and which nodes each sum reads."""
    strategy, reads = np.zeros((horizon, horizon)), np.zeros((horizon, horizon))
    for t in range(1, horizon + 1):
        block = 1 << (t.bit_length() - 1) if release.horizon is None else 1
        inside = t - block + 1
        strategy[t - 1, t - (inside & -inside) : t] = 1.0
        for end, _levels in release.nodes(t):
            reads[t - 1, end - 1] = 1.0
    return strategy, reads


def sums_of(release: Any, dim: int) -> Any:
    """The reference's state of a release, made as the learners make it."""
    from dpbandit.release import anytime, episodes, honaker, pan_private, toeplitz, tree

    if isinstance(release, toeplitz.Toeplitz):
        rates, weights = toeplitz.decays_for(release.horizon)
        return toeplitz.ToeplitzSums(dim, rates=rates, weights=weights)
    if isinstance(release, episodes.Episodes):
        return episodes.EpisodeSums(dim)
    if isinstance(release, anytime.Anytime):
        given = {name: getattr(release, name) for name in ("knee", "ratio", "first", "life")}
        return anytime.AnytimeSums(dim, **given)
    kinds = {"honaker": honaker.HonakerSums, "pan-private": pan_private.PanPrivateSums}
    kind = kinds.get(release.name, tree.TreeSums)
    return kind(dim, levels=release.levels, unknown_horizon=release.unknown_horizon)


def run_sums(release: Any, horizon: int, noise: Any) -> tuple[list[Any], list[Any]]:
    """What a release's own state shows of unit items, and the sums it makes of it."""
    sums = sums_of(release, 1)
    shown, made = [], []
    for t in range(1, horizon + 1):
        for level in getattr(sums, "starts", lambda t: [])(t):
            sums.begin(level, np.array([int(1000 * level + t) << 40], dtype=object))
        clean = sums.add(t, np.array([(t * t) << 40], dtype=object))
        if clean is not None:
            clean = clean.astype(float) / (2.0**40 if clean.dtype == object else 1.0)
        shown.append(clean)
        if clean is not None:
            made.append(np.array(sums.publish(t, clean + noise[t - 1])))
    return shown, made


@judge
def trees_in_dense_matrices() -> Any:
    from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
    from dpbandit.release import Tree
    from dpbandit.release.tree import levels_for, place

    seen: list[Any] = []
    for horizon in (1, 2, 3, 7, 8, 1000, 1024):
        assert levels_for(horizon) == math.floor(math.log2(horizon)) + 1
    assert levels_for(None) == 62
    refused("OptionError", lambda: levels_for(0))
    for horizon, noise in itertools.product((None, 1, 6, 8, 21), (GAUSSIAN, LAPLACE)):
        rounds = 21 if horizon is None else horizon
        tree = Tree(noise, horizon, 1.5, 0.8)
        strategy, reads = dense_tree(tree, rounds)
        prefix = np.tril(np.ones((rounds, rounds)))
        close(reads @ strategy, prefix)
        power = 2 if noise is GAUSSIAN else 1
        scales = np.array([tree.scale(t) for t in range(1, rounds + 1)])
        share = (1.5 * strategy / scales[:, None]) ** power
        most = share.sum(axis=0).max()
        assert most <= 0.8**power * (1 + 1e-12), "a reward pays more than the budget"
        if horizon in (1, 8):
            close(most, 0.8**power, 1e-12)
        variance = reads**2 @ scales**2
        close(tree.squares(np.arange(1, rounds + 1)), variance, 1e-12)
        close(tree.variance(rounds, 2), variance[-1] * noise.standard_deviation(2) ** 2, 1e-12)
        if horizon is not None:
            close(tree.squares(rounds + 5), variance[-1], 1e-12)
        assert tree.draws(4, horizon) == 4 * (levels_for(horizon) + 1)
        # What its state shows and makes of it.
        items = np.arange(1, rounds + 1) ** 2.0
        rng = np.random.default_rng(rounds)
        noises_ = rng.normal(size=rounds)
        shown, made = run_sums(tree, rounds, noises_)
        close(np.ravel(shown), strategy @ items, 1e-12)
        close(np.ravel(made), reads @ (strategy @ items + noises_), 1e-9)
        group, paid = {}, {}
        for t in range(1, rounds + 1):
            charge = tree.charge(None, t)
            node = np.flatnonzero(strategy[t - 1])
            for k in node:
                # No reward is twice in a lane, and in one group only.
                assert (k, charge.what) not in paid
                paid[k, charge.what] = charge.share
                assert group.setdefault(k, charge.group) == charge.group
            assert not charge.adds
            close(charge.share, (1.5 / scales[t - 1]) ** power, 1e-12)
            at = place(t, unknown_horizon=horizon is None, levels=tree.levels)
            assert at == tree.place(t)
            assert f"{at.level}" in charge.what
            assert charge.group == (t.bit_length() - 1 if horizon is None else 0)
        clock = Ticks(rounds - 1)
        tree.room(clock)
        seen += [scales, variance, str(sorted(paid.items()))]
        if horizon is not None:
            refused("BudgetError", lambda tree=tree: tree.room(Ticks((1 << tree.levels) - 1)))
            tree.room(Ticks((1 << tree.levels) - 2))
    return seen


class Ticks:
    """An engine as far as a release may know it."""

    def __init__(self, rounds: int, **fields: Any) -> None:
        self.rounds, self._fields = rounds, fields

    def fields(self) -> dict[str, Any]:
        return self._fields


@judge
def honaker_in_dense_matrices() -> Any:
    from dpbandit.privacy.noise import GAUSSIAN
    from dpbandit.release import Honaker

    refused("OptionError", lambda: Honaker(GAUSSIAN, None, 1.0, 1.0))
    seen: list[Any] = []
    for horizon in (1, 5, 8, 16):
        tree, levels = Honaker(GAUSSIAN, horizon, 1.5, 0.8), horizon.bit_length()
        rows = []  # all nodes, in the order in which they are shown
        for t in range(1, horizon + 1):
            for level in range((t & -t).bit_length()):
                row = np.zeros(horizon)
                row[t - (1 << level) : t] = 1.0
                rows.append(row)
        strategy = np.array(rows)
        sigma = float(tree.multipliers[levels]) * tree.sensitivity
        paid = (1.5**2 * strategy / sigma**2).sum(axis=0)
        assert paid.max() <= 0.64 * (1 + 1e-12)
        charge = tree.charge(None, 1)
        close(charge.share, 0.64, 1e-12)
        if horizon in (1, 8, 16):
            close(paid.max(), 0.64, 1e-12)
        # The estimate of a complete subtree is least squares over the nodes shown below it.
        items, rng = np.arange(1, horizon + 1) ** 2.0, np.random.default_rng(horizon)
        sums, read, values = sums_of(tree, 1), 0, strategy @ items + rng.normal(size=len(strategy))
        for t in range(1, horizon + 1):
            count = (t & -t).bit_length()
            clean = (
                np.asarray(sums.add(t, np.array([(t * t) << 40], dtype=object)), dtype=float)
                / 2.0**40
            )
            close(clean[:count], strategy[read : read + count] @ items, 1e-12)
            assert not clean[count:].any()
            noisy = np.zeros(levels)
            noisy[:count] = values[read : read + count]
            made = float(sums.publish(t, noisy)[0])
            read += count
            # Bottom-up: every complete node of t from the shown nodes inside it, by least squares.
            best, end = 0.0, 0
            for bit in reversed(range(t.bit_length())):
                if t >> bit & 1:
                    start, end = end, end + (1 << bit)
                    inside = [
                        i
                        for i in range(read)
                        if strategy[i, start:end].any() and strategy[i].sum() <= 1 << bit
                    ]
                    part = strategy[inside, start:end]
                    solution = np.linalg.lstsq(part, values[inside], rcond=None)[0]
                    best += solution.sum()
            close(made, best, 1e-9, 1e-9)
            seen.append(made)
        at = np.arange(1, horizon + 1)
        variances = []
        for t in at:
            total = 0.0
            for bit in range(int(t).bit_length()):
                if int(t) >> bit & 1:
                    total += 2.0**bit / (2.0 ** (bit + 1) - 1)
            variances.append(total * sigma**2)
        close(tree.squares(at), variances, 1e-12)
        close(tree.squares(horizon + 9), variances[-1], 1e-12)
        seen += [sigma, tree.squares(at)]
    return seen


@judge
def toeplitz_in_dense_matrices() -> Any:
    from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
    from dpbandit.release import Toeplitz
    from dpbandit.release import toeplitz as module
    from dpbandit.release.toeplitz_table import TABLE

    seen: list[Any] = []
    refused("OptionError", lambda: Toeplitz(LAPLACE, 10, 1.0, 1.0, 2, False))
    refused("OptionError", lambda: module.decays_for(0))
    for horizon, real in itertools.product((1, 2, 40, 1000, 1001, None), (False, True)):
        rates, weights = module.decays_for(horizon)
        covering = [n for n in TABLE if horizon is not None and n >= horizon]
        assert list(rates) == list(TABLE[min(covering, default=max(TABLE))][0])
        n = min(horizon or 60, 60)
        column = np.concatenate([[1.0], [weights @ (1 - rates) ** k for k in range(n - 1)]])
        gap = np.arange(n)[:, None] - np.arange(n)
        c = np.where(gap >= 0, column[np.maximum(gap, 0)], 0.0)
        b = np.tril(np.ones((n, n))) @ np.linalg.inv(c)
        at = np.arange(1.0, n + 1)
        close(module.squared_column(rates, weights, at), np.cumsum(column**2), 1e-12)
        close(module.squared_column(rates, weights, np.zeros(1)), [0.0])
        close(module.squared_row(rates, weights, at), (b**2).sum(axis=1), 1e-9)
        release = Toeplitz(GAUSSIAN, horizon, 1.1, 0.8, 2, real)
        length = horizon or 1
        k = np.arange(length - 1)
        exact = math.sqrt(
            1 + float(((1 - rates) ** k[:, None] @ weights) @ ((1 - rates) ** k[:, None] @ weights))
        )
        if horizon is None:
            both = rates[:, None] + rates - np.outer(rates, rates)
            exact = math.sqrt(1 + float((np.outer(weights, weights) / both).sum()))
        norm = module.column_norm(horizon)
        between(exact * (1 - 1e-12), norm, exact * (1 + 1e-9))
        rounds = horizon or 2**48
        largest = 1 + (weights / rates).sum()
        slack = 2 * math.sqrt(rounds) * (len(rates) + 9) * 2.0**-53 * largest * 0.51 / 1.1
        close(module.encoding_slack(rounds, horizon=horizon, size=0.51 / 1.1), slack, 1e-12)
        grid = math.sqrt(2 * rounds) * 2.0**-44 / 0.8 if real else 0.0
        close(release.column, (norm + slack) / (1 - grid), 1e-12)
        close(release.scale, release.column * 1.1 / 0.8, 1e-12)
        close(release.core()["sensitivity"], 1.1 * release.column, 1e-14)
        close(release.squares(at), release.scale**2 * (b**2).sum(axis=1), 1e-9)
        assert release.draws(2, horizon) == 2 * (rounds + 1)
        total, first = 0.0, None
        for t in range(1, n + 1):
            charge = release.charge(None, t)
            assert charge.adds
            total += charge.share
            close(charge.share, 0.64 * column[t - 1] ** 2 / norm**2, 1e-9)
            first = first or charge
            assert first.what == charge.what
            # What the sampler is asked to prove covers one release's shift with its rounding.
            close(charge.shift, release.scale * 0.8 / norm, 1e-12)
            assert charge.shift >= 1.1
        assert total <= 0.64 * (1 + 1e-12)
        release.room(Ticks(rounds - 1))
        refused("BudgetError", lambda r=release, m=rounds: r.room(Ticks(m)))
        items, noise = np.arange(1, n + 1) ** 2.0, np.random.default_rng(n).normal(size=n)
        shown, made = run_sums(release, n, noise)
        close(np.ravel(shown), c @ items, 1e-11)
        close(np.ravel(made), np.cumsum(items) + b @ noise, 1e-9)
        seen += [release.column, release.scale, total, np.ravel(made)]
        if horizon is not None:
            close(release.squares(horizon + 1000), release.squares(horizon), 1e-12)
    close(module.column_norm(10**7), module.column_norm(None), 1e-14)
    refused("OptionError", lambda: Toeplitz(GAUSSIAN, None, 1.0, 1e-9, 2, True).column)
    assert Toeplitz(GAUSSIAN, None, 1.0, math.inf, 2, True).column > 2
    close(module.geometric(0.0, np.array([0.0, 5.0])), [0.0, 5.0])
    for rate in (1e-9, 1e-3, 0.4999, 0.5, 0.9, 1.0):
        powers = (1 - rate) ** np.arange(7)
        close(
            module.geometric(rate, np.array([0.0, 1.0, 3.0, 7.0])),
            [0.0, 1.0, powers[:3].sum(), powers.sum()],
            1e-12,
        )
        close(module.geometric(rate, np.array([math.inf])), [1 / rate], 1e-12)
    rates, weights = module.inverse_decays(np.array([0.5]), np.array([0.5]))
    close(rates, [0.0, 1.0], 0.0, 1e-14)
    close(weights, [0.5, 0.5], 1e-12)
    # Rounding is kept beside: a slow buffer over many rounds.
    total, low = np.zeros(1), np.zeros(1)
    for _ in range(3000):
        module._add_up(total, low, np.array([0.1]))
    exact_sum = fractions.Fraction(0.1) * 3000
    off = abs(fractions.Fraction(float(total[0])) + fractions.Fraction(float(low[0])) - exact_sum)
    assert off < fractions.Fraction(1, 10**13), float(off)
    return seen


@judge
def anytime_spends_no_more_than_one_budget() -> Any:
    from dpbandit.privacy.noise import GAUSSIAN
    from dpbandit.release import Anytime
    from dpbandit.release import anytime as module

    seen: list[Any] = []
    for ratio, knee, first, life in (
        (1.3, 10.0, 2, math.inf),
        (1.05, 3.0, 1, math.inf),
        (1.3, 10.0, 2, 16.0),  # a generation has 160 rounds
        (1.05, 3.0, 7, 5.0),
        (1.5, 4.0, 25, 2.0),  # the first release is in the second generation
    ):
        release = Anytime(GAUSSIAN, None, 1.0, 0.8, 3, knee, ratio, first, life=life)
        close(release.scale, (1.0 + module.rounding(ratio, 3)) / 0.8, 1e-13)
        between(1.0 / 0.8, release.scale, 1.001 / 0.8)

        def after(j: int, ratio: float = ratio, life: float = life) -> int:
            return max(math.ceil(j * ratio if j <= life else j + life * (ratio - 1)), j + 1)

        def generation(j: int, life: float = life) -> int:
            return 0 if math.isinf(life) else int(j // (10 * life))

        at = module.times(first, ratio, 200, life).tolist()
        expected, j = [], first
        while j <= 200:
            expected.append(j)
            j = after(j)
        assert at == expected
        weight, total = 1.0, 0.0
        for j in at:
            later = after(j)
            assert module.next_time(j, ratio, life) == later
            rho = ((knee + min(j, life)) / (knee + min(j, life) + later - j)) ** 2
            if generation(j) != generation(later):
                rho = 0.0
            close(module.kept(j, later, knee, life), rho, 1e-14)
            q = module.shown(rho)
            close(q * q + rho * rho, 1.0, 1e-14)
            charge = release.charge(None, j)
            close(charge.share, 0.64 * weight * q * q, 1e-9)
            assert charge.adds
            close(charge.shift, q * release.scale * 0.8 + math.sqrt(3) * 2.0**-40, 1e-12)
            weight *= rho * rho
            total += charge.share
        close(total, 0.64 * (1 - weight), 1e-9)
        sums, kept = sums_of(release, 1), fractions.Fraction(0)
        for t in range(1, 60):
            item = t << 41
            kept += item
            shown = sums.add(t, np.array([item], dtype=object))
            assert (shown is not None) == (t in at)
            if shown is not None:
                rho = module.kept(t, after(t), knee, life)
                assert abs(shown[0] - kept * fractions.Fraction(module.shown(rho))) < 100
                kept = fractions.Fraction(int(sums.sums[0][0]))
                close(float(kept), float(shown[0]) / module.shown(rho) * rho, 1e-9)
                assert sums.due[0] == after(t)
                seen.append(int(shown[0]))
        most = module.most_releases(ratio)
        assert most == len_most(ratio)
        assert sums.publish(1, np.array([2.5])).tolist() == [2.5]
        # Without an end there are so many; in a generation that never grew, so many more at most.
        longest = len(module.times(1, ratio, 2**62)) + 10 / (ratio - 1)
        between(longest, most, longest * 1.6 + 12)
        releases = most
        slack = (releases + math.sqrt(releases)) * math.sqrt(3) * 2.0**-40 + releases * 2.0**-50
        close(module.rounding(ratio, 3), slack, 1e-12)
        assert release.draws(3, None, ratio) == 3 * (most + 1)
        close(release.squares([1, 2]), [release.scale**2] * 2, 1e-13)
        assert release.core() == {
            "scale": release.scale,
            "knee": knee,
            "ratio": ratio,
            "first": first,
        }
        release.room(Ticks(10**9))
        seen += [release.scale, total, most]
    refused("OptionError", lambda: module.rounding(1 + 1e-8, 5))
    module.rounding(1 + 1e-6, 1)
    assert Anytime(GAUSSIAN, None, 1.0, math.inf, 3, 9.0, 1.1, 1).scale == 0.0
    return seen


SILENT = SimpleNamespace(fields=lambda: {"before": [0.0]})


@judge
def pairs_spend_no_more_than_one_budget() -> Any:
    """Two sums side by side: what the first person has paid after every release, by the definition."""
    from dpbandit.privacy.noise import GAUSSIAN
    from dpbandit.release import Pair
    from dpbandit.release import pair as module
    from dpbandit.release.anytime import kept, next_time, times

    t, seen = np.linspace(0.0, 1.0, 100_001), []

    def largest(eta2: float, moments: float, directions: float) -> float:
        return float(((1 + t) / 2 * moments + 2 * eta2 * (1 - t * t) * directions).max())

    for eta2, moments, directions in itertools.product(
        (0.0, 0.1, 0.25, 2.0), (1.0, 0.3), (1.0, 0.6)
    ):
        found = module.largest_move(eta2, moments, directions)
        close(found, largest(eta2, moments, directions), 1e-9)
        seen.append(found)
    assert module.largest_move(0.125) == module.largest_move(0.0) == 1.0
    assert [module.packed_size(n) for n in (1, 2, 5)] == [1, 3, 15]
    assert module.most_move(0.25, 0.5, persons=False) == module.largest_move(0.25)
    assert module.most_move(0.25, 0.5, persons=True) == 2.0
    for ratio, knee, first, change, versions, persons in (
        (1.3, 10.0, 2, 5, 4, False),
        (1.05, 3.0, 1, 1, 2, False),
        (1.3, 9.0, 3, 4, 1, False),
        (1.3, 10.0, 2, 5, 4, True),
    ):
        plan = {"knee": knee, "ratio": ratio, "first": first, "change": change, "growth": 3.0}
        release = Pair(
            GAUSSIAN,
            None,
            1.0,
            0.8,
            dim=9,
            n=3,
            versions=versions,
            first_eta2=0.25,
            later_eta2=0.125,
            persons=persons,
            **plan,
        )
        sums, turned, due = module.PairSums(3, versions=versions, **plan), [], change
        left, paid, booked = [1.0, 1.0], [0.0, 0.0], 0.0
        for j in times(first, ratio, 400).tolist():
            whole = j >= due and len(turned) + 1 < versions
            assert sums.shows_whole(j) == whole
            rho = kept(j, next_time(j, ratio), knee)
            close(sums.shares(j), [rho, 0.0 if whole else rho], 1e-15)
            for which, keeps in enumerate(sums.shares(j)):
                # What is in the later Gram matrices is nobody's of the first release any more.
                paid[which] += (1 - keeps**2) * left[which] ** 2
                left[which] *= keeps
            charge = release.charge(SILENT, j)
            booked += charge.share
            exact = 0.64 * largest(0.25, *paid) / largest(0.25, 1.0, 1.0)
            if persons:  # residuals and one direction, which need not be of one round
                exact = 0.64 * (paid[0] + 0.5 * paid[1]) / 1.5
            close(booked, exact, 1e-7)
            assert (charge.adds, charge.group) == (True, 0)
            q = 1.0 if whole else math.sqrt(1 - rho**2)
            close(charge.shift, q * release.scale * 0.8 + 3 * 2.0**-40, 1e-14)
            if whole:
                turned.append(j)
                due = math.ceil(max(due, j) * 3.0)
                sums.turn(j)
                assert (sums.version[0], sums.change_due[0]) == (len(turned), due)
        assert list(release.shown_whole) == turned
        # A log has used up the first whitener, if there is another.
        after, first_turn = release.after_log, math.ceil(change * 3.0)
        assert (after.first_eta2, after.change) == (0.125, first_turn)
        assert after.versions == max(versions - 1, 1)
        for before in (0.0, 9.0):
            engine = SimpleNamespace(fields=lambda b=before: {"before": [b]})
            owner = after if before and versions > 1 else release
            for j in times(first, ratio, 60).tolist():
                assert release.charge(engine, j) == owner.charge(SILENT, j)
        assert booked <= 0.64 * (1 + 1e-12)
        assert release.core()["versions"] == versions
        seen += [booked, turned]
        # Whole numbers: what is shown and what stays.
        sums, total = module.PairSums(3, versions=versions, **plan), np.zeros(9)
        for j in range(1, 30):
            item = (np.arange(9) + j) << 40
            total += np.arange(9) + j
            shown = sums.add(j, item.astype(object))
            assert (shown is not None) == (j in times(first, ratio, 30))
            if shown is None:
                continue
            rhos = np.repeat(sums.shares(j), [3, 6])
            close(shown.astype(float) / 2.0**40, total * np.sqrt(1 - rhos**2), 1e-9)
            total *= rhos
            stays = np.concatenate([sums.moments[0], sums.directions[0]]).astype(float) / 2.0**40
            close(stays, total, 1e-9, 1e-10)
            assert sums.due[0] == next_time(j, ratio)
            assert sums.publish(j, total) is total
            if sums.shows_whole(j):
                sums.turn(j)
    assert Pair.draws(9, None, 1.3) == 9 * (len_most(1.3) + 1)
    return seen


def len_most(ratio: float) -> int:
    """More releases than there can be in 2⁶² rounds, and in ten lives of any length after them."""
    return math.ceil(11 / (ratio - 1) + 62 * math.log(2) / math.log(ratio)) + 3


@judge
def whole_numbers_and_their_shares() -> Any:
    from dpbandit.release.whole import WholeRows, share_of

    seen: list[Any] = []
    rows = WholeRows(2, 3)
    assert len(rows) == 2
    numbers = [[-1, 3 << 70, 2**63], [2**64 - 1, -(2**63), 0]]
    for at, row in enumerate(numbers):
        rows[at] = row
    for at, row in enumerate(numbers):
        assert rows[at].tolist() == row
    fields = rows.fields("sums")
    assert set(fields) == {"sums_high", "sums_low"}
    assert fields["sums_high"] is rows.high
    for share in (0.0, 1.0, 0.5, 1 / 3, 0.999):
        factor = fractions.Fraction(math.floor(fractions.Fraction(share) * 2**62), 2**62)
        for number in (0, 1, -1, 7, -7, 10**15 + 1, -(3 << 75)):
            found = share_of(np.array([number], dtype=object), share)[0]
            exact = fractions.Fraction(number) * factor
            # To the nearest; from a tie away from 0.
            nearest = math.floor(abs(exact) + fractions.Fraction(1, 2)) * (1 if number >= 0 else -1)
            assert found == nearest, (number, share)
            seen.append(int(found))
    return seen


@judge
def releases_shown_once() -> Any:
    from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
    from dpbandit.privacy.wishart import Calibration
    from dpbandit.release import (
        ArmBatches,
        ArmTrees,
        Episodes,
        Nothing,
        Once,
        PanPrivate,
        Tree,
        WishartTree,
    )

    seen: list[Any] = []
    for noise in (GAUSSIAN, LAPLACE):
        power = 2 if noise is GAUSSIAN else 1
        once = Once(noise, None, 1.5, 0.8)
        charge = once.charge(None, 3)
        close(charge.share, 0.8**power, 1e-12)
        assert (charge.adds, charge.group) == (False, 0)
        close(once.squares([1, 9]), [(1.5 / 0.8) ** 2] * 2, 1e-12)
        close(once.core()["multipliers"][1] * once.core()["sensitivity"], 1.5 / 0.8, 1e-12)
        assert once.draws(7, None) == 2
        episodes = Episodes(noise, 50, 1.5, 0.8, math.log(2), 3, 1.2, 1.3)
        close(episodes.scale, 1.5 / 0.8, 1e-12)
        close(episodes.charge(None, 1).share, 0.8**power, 1e-12)
        t = np.array([1.0, 20.0, 50.0, 90.0])
        count = 1 + 3 * np.log(1 + np.minimum(t, 50.0) * 1.69 / 3.6) / math.log(2)
        close(episodes.squares(t), episodes.scale**2 * count, 1e-12)
        assert episodes.draws(3, 50) == 6
        state = sums_of(episodes, 1)
        for item in (3, 4):
            assert state.add(1, np.array([item], dtype=object)) is None
        assert state.end().tolist() == [7]
        assert state.end().tolist() == [0]
        assert state.publish(2, np.array([1.5])).tolist() == [1.5]
        assert state.publish(3, np.array([2.0])).tolist() == [3.5]
        seen += [episodes.scale, charge.share, episodes.squares(t)]
        for release in (once, episodes):
            release.room(Ticks(10**12))
            core = release.core()
            assert core["levels"] == 1
            assert core["unknown_horizon"] == (release.horizon is None)
            close(core["multipliers"][1], 1 / 0.8, 1e-12)
            assert len(core["multipliers"]) == 63
    nothing = Nothing(GAUSSIAN, None, 1.0, math.inf)
    assert nothing.charge(None, 1).share == math.inf
    assert not nothing.multipliers.any()
    assert not nothing.squares([3]).any()
    assert nothing.core()["release"] == "once"
    for horizon in (None, 8):
        plain, pan = Tree(GAUSSIAN, horizon, 1.5, 0.8), PanPrivate(GAUSSIAN, horizon, 1.5, 0.8)
        close(pan.squares([1, 5, 8]), 2 * plain.squares([1, 5, 8]), 1e-12)
        assert pan.draws(3, horizon) == 2 * plain.draws(3, horizon)
        state, begun = sums_of(pan, 1), {}
        for t in range(1, 9):
            block = 1 << (t.bit_length() - 1) if horizon is None else 1
            index = t - block + 1
            levels = t.bit_length() if horizon is None else 4
            starts = state.starts(t)
            assert starts == [lv for lv in range(levels) if (index - 1) % (1 << lv) == 0]
            for level in starts:
                begun[level] = (100 * t + level, t)
                state.begin(level, np.array([begun[level][0] << 40], dtype=object))
            shown = float(state.add(t, np.array([t << 40], dtype=object))[0]) / 2.0**40
            level = (index & -index).bit_length() - 1
            noise0, since = begun[level]
            close(shown, noise0 + sum(range(since, t + 1)), 1e-12)
            made = float(state.publish(t, np.array([float(sum(range(since, t + 1))) + 0.5]))[0])
            nodes = len(pan.nodes(t))
            close(made, sum(range(1, t + 1)) + 0.5 * nodes, 1e-12)
            seen.append(made)
    arms = ArmTrees(LAPLACE, 8, 1.0, 0.8)
    for arm, pulls in ((0, 1), (0, 2), (2, 8), (2, 3)):
        fields = {"arm": np.array([arm]), "pulls": np.array([pulls, 0, pulls])}
        found, plain = (
            arms.charge(Ticks(5, **fields), 5),
            Tree(LAPLACE, 8, 1.0, 0.8).charge(None, pulls),
        )
        assert found.share == plain.share
        assert found.group == 63 * arm
        assert isinstance(found.group, int)
        assert str(arm) in found.what
        assert plain.what in found.what
        seen.append(found.group)
    groups = set()
    ahead = ArmTrees(LAPLACE, None, 1.0, 0.8)
    for arm, pulls in itertools.product(range(3), (1, 2, 4, 2**61)):
        fields = {"arm": np.array([arm]), "pulls": np.full(3, pulls)}
        groups.add(ahead.charge(Ticks(5, **fields), 5).group)
    assert len(groups) == 12, "groups of different arms meet"
    assert groups == {63 * arm + block for arm in range(3) for block in (0, 1, 2, 61)}
    arms.room(Ticks(3, pulls=np.array([14, 2])))
    refused("BudgetError", lambda: arms.room(Ticks(3, pulls=np.array([2, 15]))))
    rounds = [0, 3, 4, 8, 11, 12, 17, 18, 26, 27, 99]
    for horizon, many in ((20, 4), (None, 8)):
        batches = ArmBatches(LAPLACE, horizon, 1.1, 0.8, first=4, ratio=1.5)
        late = [4, 4 if horizon else 5, many]  # ends: 4, 8, 12, 18, 27, 41, 62, 93
        close(batches.squares(rounds) * (0.8 / 1.1) ** 2, [0, 0, 1, 2, 2, 3, 3, 4, *late], 1e-12)
    close(batches.squares([]), [], 1e-12)
    found = {4: Calibration(50, 0.3, 0.2)}
    tree = WishartTree(GAUSSIAN, 8, 1.0, 2.0, dim=3, calibrations=found)
    assert tree.multipliers[4] == 53
    assert tree.multipliers[3] == 0
    close([tree.charge(None, t).share for t in (1, 2, 3, 4)], [0.5, 0.2, 0.5, 0.2], 1e-12)
    assert {tree.charge(None, t).what for t in (1, 2, 4, 8)} == {
        Tree(GAUSSIAN, 8, 1.0, 1.0).charge(None, t).what for t in (1, 2, 4, 8)
    }
    assert WishartTree(GAUSSIAN, 8, 1.0, 2.0, dim=3).charge(None, 1).share == math.inf
    assert {tree.charge(None, t).group for t in (1, 2, 3, 8)} == {0}
    blocks = WishartTree(
        GAUSSIAN,
        None,
        1.0,
        2.0,
        dim=3,
        calibrations={n: Calibration(9, 0.1, 0.1) for n in range(1, 9)},
    )
    assert [blocks.charge(None, t).group for t in (1, 2, 3, 4, 9)] == [0, 1, 1, 2, 3]
    return seen


# ------------------------------------------------------------------ random numbers


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


# ------------------------------------------------------------------ whole bandits

UNIT = {"dim": DIM, "epsilon": EPSILON, "delta": DELTA, "horizon": ROUNDS, "seed": 5}
AHEAD = {"horizon": None}
REWARDS = {"reward_range": (0.25, 1.75)}
LONGER = {"max_norm": 2.0, "ridge": 0.7}
USERS = {"unit": ("user", 2)}
PERSONS = {"unit": ("person", 2.5), "reward_range": (0.0, 1.25)}
KNOWN = {"public_contexts": "pool"}
PAIR = {"first_release": 2, "ratio": 1.3, "knee": 6.0}
WIDE = {"dim": 9}  # more than two vectors of the core hold

# name, options, and whether the exact cost attains the budget on the streams below.
BANDITS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "random": ("random", {}, False),
    "linucb": ("linucb", REWARDS, False),
    "linucb clipped": ("linucb", {"clip_rewards": True}, False),
    "linucb, forgetful": ("linucb", {"forget": 0.8, **LONGER}, False),
    "linucb perturbed": ("linucb", {"context_noise": 0.3}, False),
    "laplace": ("private-linucb", {}, True),
    "laplace, known": ("private-linucb", KNOWN, False),
    "laplace, users": ("private-linucb", {**USERS, **REWARDS}, False),
    "laplace, unknown horizon": ("private-linucb", AHEAD, False),
    "laplace-l2": ("private-linucb", {"noise": "laplace-l2", **LONGER}, True),
    "laplace, pan-private": ("private-linucb", {"pan_private": True, **AHEAD}, False),
    "published": ("private-linucb-published", {}, False),
    "published, unknown horizon": ("private-linucb-published", {**AHEAD, **USERS}, False),
    "gauss": ("tree-gauss", {**REWARDS, **LONGER}, True),
    "gauss, users": ("tree-gauss", {**USERS, **AHEAD}, False),
    "gauss, pan-private": ("tree-gauss", {"pan_private": True, **REWARDS}, False),
    "gauss, ellipsoid": ("tree-gauss", {"shape": "ellipsoid", **KNOWN, **REWARDS}, False),
    "gauss, instruments": ("tree-gauss", {"shape": "instruments", **KNOWN}, False),
    "gauss, perturbed": ("tree-gauss", {"context_noise": 0.3}, False),
    "gauss, theory": ("tree-gauss", {"alpha": "theory"}, True),
    "honaker": ("tree-gauss", {"honaker": True, **REWARDS}, True),
    "dgs": ("dgs", {**REWARDS, **LONGER}, False),
    "dgs, known": ("dgs", KNOWN, False),
    "dgs, laplace": ("dgs", {"noise": "laplace", **KNOWN, **AHEAD}, False),
    "dgs, laplace, ball": ("dgs", {"noise": "laplace"}, False),
    "dgs, users": ("dgs", USERS, False),
    "dgs published": ("dgs-published", {"smallest_eigenvalue": 0.2}, False),
    "dgs published, gauss": (
        "dgs-published",
        {"smallest_eigenvalue": 0.2, "noise": "gaussian", "form": "full", **AHEAD},
        False,
    ),
    "dgs figure": ("dgs-figure", {"printed_index": True}, False),
    "local": ("local", REWARDS, True),
    "local, gauss": ("local", {"noise": "gaussian", **USERS}, False),
    "toeplitz": ("toeplitz", REWARDS, False),
    "toeplitz, to the end": ("toeplitz", {"horizon": 16, **LONGER}, True),
    "toeplitz, unknown horizon": ("toeplitz", {**AHEAD, **LONGER}, False),
    "anytime": ("anytime", {"first_release": 2, "ratio": 1.3, "knee": 6.0, **REWARDS}, False),
    "anytime, known": (
        "anytime",
        {"first_release": 2, "ratio": 1.3, "window": 0.5, **KNOWN},
        False,
    ),
    "anytime, bayes": ("anytime", {"first_release": 3, "empirical_bayes": True, **USERS}, False),
    "anytime, life": ("anytime", {**PAIR, **REWARDS, "life": 1.6, "memories": ()}, False),
    "anytime, answers": ("anytime", {**PAIR, **REWARDS, "local": 5}, False),
    "anytime, answers, users": ("anytime", {**PAIR, "local": 7, "unit": ("user", 1)}, False),
    "anytime, blocks": ("anytime", {**PAIR, **WIDE, "local": "blocks"}, False),
    "anytime, never": ("anytime", {**PAIR, **REWARDS, "local": "never"}, False),
    "anytime, spread": ("anytime", {**PAIR, "unit": ("spread", 2.5), **AHEAD}, False),
    "anytime, persons": ("anytime", {**PAIR, **PERSONS, "rewards": "clicks"}, False),
    "gauss, persons": ("tree-gauss", PERSONS, False),
    "thompson": ("private-ts", {}, True),
    "episodes": ("adac-oful", REWARDS, True),
    "episodes, unknown horizon": ("adac-oful", {**AHEAD, "determinant_growth": 0.4}, True),
    "arms": ("private-ucb", REWARDS, True),
    "arms, gauss": ("private-ucb", {"noise": "gaussian", **AHEAD}, False),
    "arms, split": ("private-ucb", {"split_budget": True, "alpha": "theory", **USERS}, False),
    "batches": ("dp-klucb", {"first_release": 2, "ratio": 1.9, **REWARDS}, True),
    "batches, gauss": ("dp-klucb", {"noise": "gaussian", "first_release": 3, **AHEAD}, True),
    "batches, users": ("dp-klucb", {"epsilon": 9.0, "reward_variance": 0.2, **USERS}, False),
    "joint": ("joint", REWARDS, True),
    "joint, unknown horizon": ("joint", {**AHEAD, **LONGER}, False),
    "joint, users": ("joint", {**USERS, "reward_weight": 0.5}, False),
    "joint, wishart": ("joint", {"noise": "wishart", "horizon": 6}, False),
    "joint, theory": ("joint", {"alpha": "theory"}, True),
    "joint, centred": ("joint", {**REWARDS, "centre_rewards": True}, True),
    "joint, raised": ("joint", {**REWARDS, "shift": 0.0, "epsilon": 0.05}, True),
    "pair": ("anytime-joint", {**PAIR, **REWARDS}, False),
    "pair, longer": ("anytime-joint", {**PAIR, **LONGER, **USERS, "knee": 20.0}, False),
    "pair, known": ("anytime-joint", {**PAIR, **KNOWN, **AHEAD}, False),
    "pair, persons": (
        "anytime-joint",
        {**PAIR, "unit": ("person", 1.25), "reward_range": (0.0, 1.25), "window": 1.0},
        False,
    ),
    "arms, published": ("private-ucb", {"noise": "gaussian", "privacy_bonus": "theory"}, True),
    "wide laplace": ("private-linucb", WIDE, True),
    "wide gauss": ("tree-gauss", {**WIDE, **REWARDS, **AHEAD}, False),
    "wide honaker": ("tree-gauss", {**WIDE, **REWARDS, "honaker": True}, True),
    "wide gauss, pan-private": ("tree-gauss", {**WIDE, **REWARDS, "pan_private": True}, False),
    "wide ellipsoid": ("tree-gauss", {**WIDE, **REWARDS, **KNOWN, "shape": "ellipsoid"}, False),
    "wide dgs": ("dgs", {**WIDE, **REWARDS, **KNOWN, "noise": "laplace"}, False),
    "wide dgs, ball": ("dgs", {**WIDE, **REWARDS}, False),
    "wide toeplitz": ("toeplitz", {**WIDE, **REWARDS}, False),
    "wide anytime": ("anytime", {**WIDE, **REWARDS, "first_release": 2, "ratio": 1.3}, False),
    "wide pair": ("anytime-joint", {**WIDE, **PAIR, **REWARDS}, False),
    "wide joint": ("joint", {**WIDE, **REWARDS}, True),
    "wide episodes": ("adac-oful", {**WIDE, **REWARDS}, False),
    "wide arms": ("private-ucb", {**WIDE, "max_norm": 2.0}, True),
    "no noise": ("tree-gauss", {"epsilon": math.inf}, False),
    "no noise, laplace": ("private-linucb", {"epsilon": math.inf}, False),
    "no noise, pair": ("anytime-joint", {"epsilon": math.inf, **PAIR}, False),
    "no noise, joint": ("joint", {"epsilon": math.inf}, False),
    "no noise, anytime": ("anytime", {"epsilon": math.inf, "knee": 9.0, "first_release": 2}, False),
}
PROVEN = {"random": "none"}


def pool(dim: int = DIM) -> Any:
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(12, dim)) * np.array([1.0, 0.6, 0.3] * 3)[:dim]
    return rows / (
        np.linalg.norm(rows, axis=1, keepdims=True) * rng.uniform(1.0, 2.0, size=(12, 1))
    )


def made(label: str, **more: Any) -> Any:
    import dpbandit as dpb

    name, options, _attained = BANDITS[label]
    given = {**UNIT, **options, **more}
    if isinstance(given.get("public_contexts"), str):
        given["public_contexts"] = pool(given["dim"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dpb.make(name, **given)


def slates(bandit: Any, rounds: int) -> Any:
    rng = np.random.default_rng(9)
    if bandit.one_hot:
        return [np.eye(bandit.dim)[rng.permutation(bandit.dim)] for _ in range(rounds)]
    rows = pool(bandit.dim) * bandit.options.max_norm
    if bandit.options.own("local", "") == "blocks":  # features that no two arms share
        third = np.kron(np.eye(3), np.ones(bandit.dim // 3))
        return [rows[rng.choice(12, 3)] * third for _ in range(rounds)]
    return [np.ascontiguousarray(rows[rng.choice(12, 4, replace=False)]) for _ in range(rounds)]


def play(bandit: Any, rounds: int) -> Any:
    """Choose, be paid, learn. All that is public after every round."""
    rng, seen = np.random.default_rng(10), []
    low, high = bandit.options.reward_range
    for t, slate in enumerate(slates(bandit, rounds)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arm = bandit.select(slate)
            reward = float(rng.uniform(low - 0.5, high + 0.5))
            counted = bandit.options.protects.needs_user
            bandit.update(slate[arm], reward, **({"user": f"u{t % 7}"} if counted else {}))
        model = bandit.model()
        seen.append((arm, bandit.theta, model.view.matrix, bandit.spent.epsilon))
    return seen


def state_of(bandit: Any) -> Any:
    table = bandit.ledger.table()
    return [
        bandit.rounds,
        bandit.clipped,
        bandit.over_cap,
        str(table),
        str(bandit.claim),
        bandit.ledger.total,
    ]


def both_engines(label: str) -> Judge:
    def check() -> Any:
        rounds = min(UNIT["horizon"], BANDITS[label][1].get("horizon") or ROUNDS)  # type: ignore[call-overload]
        one, two = made(label, backend="reference"), made(label, backend="core")
        first, second = play(one, rounds), play(two, rounds)
        for a, b in zip(first, second, strict=True):
            assert a[0] == b[0], "another arm"
            # Without noise the filter's equations are nearly singular.
            rel, abs_ = (1e-2, 1e-3) if label == "no noise, anytime" else (1e-8, 1e-9)
            close(a[1], b[1], rel, abs_)
            close(a[2], b[2], rel, abs_)
            assert a[3] == b[3]
        assert state_of(one) == state_of(two)
        unit, visits = one.options.protects, np.bincount(np.arange(rounds) % 7)
        if not unit.needs_instruments:
            assert one.over_cap == np.maximum(visits - (unit.cap or rounds), 0).sum()
        return [np.array([row[1] for row in first]), [row[0] for row in first], state_of(one)]

    return check


def budget_of(claim: Any) -> float:
    """What its releases may cost together: ε, or the μ² that is worth ε and δ."""
    if claim.notion == "parallel":
        return mu_worth(claim.epsilon, claim.delta) ** 2
    return float(claim.mu**2 if claim.mu else claim.epsilon)


@functools.cache
def mu_worth(epsilon: float, delta: float) -> float:
    """The μ that costs δ at ε."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exact_delta(epsilon, middle) < delta else (low, middle)
    return high


def positions(bandit: Any, rounds: int) -> Any:
    together = min(bandit.options.protects.together(bandit.options.width), rounds)
    starts = sorted({0, 1, 7, rounds - together})
    return np.array(
        [range(s, s + together) for s in starts if s + together <= rounds], dtype=np.int64
    )


def exact_cost(label: str) -> Judge:
    """What changing a reward costs over all releases, exactly: `verify` on one short stream."""

    def check() -> Any:
        from dpbandit.auditor.frozen import allowed, freeze, opposed

        seen = []
        _name, options, attained = BANDITS[label]
        for backend in ("core", "reference"):
            bandit = made(label, backend=backend)
            rounds = min(16, options.get("horizon") or 16)
            rows = (
                np.full((rounds, bandit.dim), 1 / math.sqrt(bandit.dim)) * bandit.options.max_norm
            )
            frozen = freeze(bandit, opposed(bandit, allowed(bandit, rows)))
            claim = bandit.claim
            if claim.status == "proven" and claim.noise == "simulation" and claim.epsilon > 0:
                assert not frozen.uses_noise_twice
                worst = float(frozen.costs(positions(bandit, rounds)).max())
                budget = budget_of(claim)
                if bandit.noise.name != "wishart":
                    assert worst <= budget * (1 + 1e-9), f"{worst / budget} of the budget"
                    if attained:
                        assert worst >= budget * (1 - 1e-6), f"{worst / budget}: noise is wasted"
                seen.append(worst)
            seen.append(frozen.scales)
        close(np.asarray(seen[len(seen) // 2 - 1]), np.asarray(seen[-1]), 1e-12)
        if len(seen) == 4:
            close(seen[0], seen[2], 1e-6)
        return seen

    return check


def as_shipped(label: str) -> Judge:
    """The same through `update`, with noise from a source that is watched."""

    def check() -> Any:
        from dpbandit.auditor.frozen import allowed
        from dpbandit.auditor.verify import as_shipped as shipped

        bandit = made(label)
        rounds = min(6, BANDITS[label][1].get("horizon") or 6)
        rows = allowed(bandit, pool(bandit.dim)[:rounds] * bandit.options.max_norm)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cost, why = shipped(lambda: made(label), rows)
        claim = bandit.claim
        if claim.status == "proven" and bandit.noise.name != "wishart" and claim.epsilon > 0:
            assert cost <= budget_of(claim) * (1 + 1e-9), why
        return [cost, why]

    return check


def real_noise(label: str) -> Judge:
    """Without a seed: what the samplers are asked, and what is released of it."""

    def check() -> Any:
        def run(backend: str) -> Any:
            bandit = made(label, seed=None, backend=backend)
            bandit.use_keys({1: 11, 2: 12, 3: 0})
            seen = play(bandit, 9)
            assert bandit.claim.noise == ("none" if label == "linucb" else "real")
            assert not bandit.ledger.total > bandit.ledger.limit * (1 + 1e-12)
            asked = list(Drawn.asked)
            if bandit.claim.status == "proven":
                assert asked, "nothing was drawn"
            return [
                np.array([row[1] for row in seen]),
                asked,
                str(bandit.ledger.table()),
                bandit.spent.epsilon,
            ]

        one, two = with_drawn(lambda: run("reference")), with_drawn(lambda: run("core"))
        close(one[0], two[0], 1e-8, 1e-9)
        assert [(a[0], a[1], a[3]) for a in one[1]] == [(a[0], a[1], a[3]) for a in two[1]]
        close([a[2] for a in one[1]], [a[2] for a in two[1]], 1e-12)
        assert one[2:] == two[2:]
        return one

    return check


WATCHED = (
    "laplace",
    "gauss, users",
    "gauss, pan-private",
    "laplace, pan-private",
    "honaker",
    "dgs, known",
)
WATCHED += (
    "toeplitz",
    "anytime",
    "anytime, bayes",
    "anytime, answers",
    "anytime, answers, users",
    "anytime, blocks",
    "episodes",
    "arms, gauss",
    "joint, users",
    "local",
    "linucb",
    "pair",
)
WATCHED += ("anytime, spread", "anytime, persons", "gauss, persons", "pair, persons")
WATCHED += ("batches", "dgs, users", "arms, split", "laplace, users", "random", "thompson")
REAL = (
    "laplace",
    "gauss, users",
    "gauss, pan-private",
    "dgs",
    "toeplitz",
    "anytime",
    "episodes",
    "arms",
    "batches",
    "joint",
    "local",
    "linucb",
    "pair",
    "pair, persons",
    "anytime, spread",
    "anytime, life",
    "anytime, answers",
    "gauss, persons",
)
for each in BANDITS:
    JUDGES[f"both engines: {each}"] = both_engines(each)
    JUDGES[f"exact cost: {each}"] = exact_cost(each)
for each in WATCHED:
    JUDGES[f"as shipped: {each}"] = as_shipped(each)
for each in REAL:
    JUDGES[f"real noise: {each}"] = real_noise(each)


@judge
def claims_say_what_is_promised() -> Any:
    seen = []
    for label, (name, options, _attained) in BANDITS.items():
        bandit = made(label)
        claim, epsilon = bandit.claim, options.get("epsilon", EPSILON)
        status = "proven"
        if math.isinf(epsilon) or name in ("linucb", "dgs-figure"):
            status = "none"
        elif name.endswith("published"):
            status = "as-published"
        assert claim.status == status, (label, claim.status)
        assert claim.noise == ("none" if name in ("linucb", "random") else "simulation")
        if status == "proven" and name != "random":
            assert claim.epsilon == epsilon
            gaussian = bandit.noise.name == "gaussian"
            joint = name in ("joint", "anytime-joint")
            pure = not gaussian and not joint
            assert claim.delta == (0.0 if pure else DELTA)
            answers = bool(bandit.spec.get("local"))  # some rewards may pay pure ε instead
            usual = "parallel" if answers else "gdp"
            assert claim.notion == ("joint" if joint else "pure" if pure else usual)
            assert (claim.mu is not None) == (gaussian and not answers)
            kind, most = options.get("unit", ("user", 1))
            if kind == "person":  # as much here in one stream as there in the other
                most = 1 if joint else 2 * most / options["reward_range"][1]
            if gaussian:  # μ of the pair, where some rewards pay pure ε, is the ledger's
                mu = most * math.sqrt(bandit.ledger.limit) if answers else claim.mu
                exact = exact_delta(claim.epsilon, mu)
                between(DELTA * (1 - 1e-6), float(exact), DELTA)
                close(bandit.ledger.limit, (mu / most) ** 2, 1e-12)
            else:
                close(bandit.ledger.limit, epsilon / most, 1e-12)
            who = "one person" if kind == "person" else "one user"
            if "unit" not in options:
                who = "one context with its reward" if joint else "one reward"
            assert claim.unit.startswith(who)
            private = any(words in claim.unit for words in ("contexts", "context with"))
            assert private == joint
            assert len(claim.assumptions) >= 3
        seen.append(str(claim))
        seen.append(str(bandit.ledger.to_dict()))
    return seen


@judge
def claims_assume_what_their_units_need() -> Any:
    """Each assumption where it is needed and nowhere else."""
    own, clicks, visits, sample = (
        "their own visits and contexts do not depend on their rewards",
        "counts as 0: rewards are clicks or none",
        "who comes when, and how often, is public",
        "public_contexts come from nobody who is protected",
    )
    for label, options, expected in (
        ("gauss", {}, ()),
        ("gauss", {"unit": ("user", 1)}, ()),
        ("gauss", {"unit": ("user", 2)}, (own,)),
        ("gauss, persons", {}, (own,)),
        ("anytime, spread", {"unit": ("spread", 1)}, (own,)),
        ("dgs", {}, ()),
        ("dgs", {**PERSONS}, (own, clicks)),
        ("pair", {}, ()),
        ("pair", KNOWN, (sample,)),
        ("pair, persons", {}, (visits,)),
    ):
        said = made(label, **options).claim.assumptions
        for words in (own, clicks, visits, sample):
            found = sum(words in each for each in said)
            assert found == (words in expected), (label, options, words)
    for columns, said in (
        ([1], "where feature 1 is private"),
        ([2, 0, 2], "where features [0, 2] are private"),
        ([False, True, False], "where feature 1 is private"),
        ([True, True], ""),
        ([], ""),
        ([3], ""),
        ([-1], ""),
        ([0.0], ""),
        ([[0, 1]], ""),
        ([[0], [1, 2]], ""),
        (1, ""),
    ):
        if said:
            assert made("pair", private_features=columns).claim.unit.endswith(f", {said}")
        else:
            refused("OptionError", lambda c=columns: made("pair", private_features=c))
    return []


@judge
def units_take_what_they_allow() -> Any:
    """What is learned of people, in fractions and singular values."""
    from dpbandit.privacy import unit

    seen: list[Any] = []
    for most, width, bits in ((2.5, 1.25, 20), (1.0, 0.75, 3), (7.0, 7.0, 20), (3.0, 1.0, 0)):
        who, step = unit.person(most), fractions.Fraction(width) / 2**bits
        cap, before = int(fractions.Fraction(most) / step), 0
        assert (who.moves(width), who.together(width)) == (2 * most / width, 2 * int(most / width))
        for reward in (-1.0, 0.3 * width, 9 * width, 0.7 * width, width, width, 9.0, 0.0, width):
            inside = fractions.Fraction(min(max(reward, 0.0), width))
            steps = min(int(inside / step), cap - before)
            taken = who.take(reward, before, width, bits)
            assert taken == (float(steps * step), steps, True), (most, reward, taken)
            before += taken.counts
            seen.append(taken)
        assert before <= cap
        assert who.take(width, cap + 3, width, bits).counts == 0
    who = unit.person(2.0)
    private = who.with_contexts()
    assert private.words == who.words_with_contexts
    assert private.take(0.3, 5, 1.0, 20) == (0.3, 0, True)
    shape = (private.moves(1.0), private.together(1.0), private.items_per_move)
    assert shape == (1, 1, 1)
    assert (private.counted_by_engine, private.here_or_there) == (True, False)
    assert (who.counted_by_engine, who.here_or_there, who.items_per_move) == (False, True, 2**20)
    assert who.counts_are_public == private.counts_are_public is False
    for each in (who, private):
        each.check((0.0, 2.0))
        refused("OptionError", lambda e=each: e.check((0.1, 1.0)))
        refused("OptionError", lambda e=each: e.check((-0.1, 1.0)))
        refused("OptionError", lambda e=each: e.check((0.0, 2.0001)))
    who.check((0.0, 2e-6))
    private.check((0.0, 2e-3))
    refused("OptionError", lambda: who.check((0.0, 1.9e-6)))
    refused("OptionError", lambda: private.check((0.0, 1.9e-3)))
    assert unit.ONE_REWARD.take(0.3, 0, 1.0, 20) == unit.user(3).take(0.3, 2, 1.0, 20)
    assert unit.ONE_REWARD.take(0.3, 0, 1.0, 20) == (0.3, 1, True)
    assert (unit.user(3).moves(2.0), unit.user(3).together(2.0), unit.ONE_REWARD.moves(2.0)) == (
        3,
        3,
        1,
    )
    rng = np.random.default_rng(2)
    for most, dim, one_way in ((2.5, 3, False), (3.0, 2, True), (1.0, 4, False), (1.0, 2, True)):
        who, counted, learned = unit.spread(most), "", np.empty((0, dim))
        assert (who.moves(0.5), who.items_per_move) == (most, math.ceil(most))
        for _ in range(12):
            u = np.eye(dim)[0] if one_way else rng.normal(size=dim)
            u = u / np.linalg.norm(u)
            both = np.vstack([learned, u])
            fits = len(both) * np.linalg.norm(both, 2) ** 2 <= most**2 * (1 + 1e-9)
            taken = who.take(0.3, counted, 1.0, 20, u)
            assert (taken.reward, taken.learns) == (0.3, fits)
            assert taken.counts == (u.tobytes().hex() if fits else "")
            counted += taken.counts
            learned = both if fits else learned
            assert who.number(counted, dim) == len(learned)
        close(unit.rows_of(counted, dim), learned, 0.0)
        seen.append(len(learned))
        # Nothing beyond what rounding of floats explains.
        longer = unit.spread(1).take(0.3, "", 1.0, 20, np.array([1 + 4e-9, 0.0]))
        assert not longer.learns
        refused("OptionError", lambda w=who: w.take(0.3, "", 1.0, 20))
    assert seen[-1] == 1
    assert seen[-3] == 3
    for given in (
        "reward",
        ("reward",),
        ["user", 2],
        ("user", 3.0),
        ("spread", 1),
        ("spread", 1000),
    ):
        found = unit.find_unit(given)
        assert unit.find_unit(found) is found
        seen.append([found.words, found.option, found.cap, found.flags])
    for kind in ("spread", "person"):
        for most in (2.5, np.float64(2.5), 2, 2.0, np.int64(2)):
            found = unit.find_unit((kind, most)).option
            assert found == (kind, most)
            assert type(found[1]) is (float if most > 2 else int)
    for wrong in (
        "user",
        ("user",),
        ("reward", 1),
        ("user", 0),
        ("user", 1.5),
        ("user", True),
        ("user", "2"),
        ("spread", 0.99),
        ("spread", 1000.1),
        ("spread", True),
        ("person", 0.0),
        ("person", -1),
        ("person", 1e100),
        ("person", math.nan),
        ("person", "1"),
        ("persons", 1),
        ("user", 1, 1),
        (),
        7,
    ):
        refused("OptionError", lambda w=wrong: unit.find_unit(w))
    return seen


# ------------------------------------------------------------------ gates and refusals


def wrong_contexts() -> dict[str, Any]:
    return {
        "too long": np.array([[0.0, 0.0, 1.0], [0.6, 0.8, 2e-4]]),
        "a hair too long": np.array([[1.0 + 5e-10, 0.0, 0.0]]),
        "just too long": np.array([[1.0 + 3e-9, 0.0, 0.0]]),
        "not finite": np.array([[0.0, math.nan, 0.0]]),
        "infinite": np.array([[0.0, 0.0, 0.0], [0.0, -math.inf, 0.0]]),
        "two ones": np.array([[0.5, 0.5, 0.0]]),
        "one hot": np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
        "all zero": np.zeros((2, 3)),
        "long in L1": np.array([[0.55, 0.55, 0.55]]),
        "just long in L1": np.array([[0.4 + 3e-9, 0.4, 0.4]]),
        "a hair long in L1": np.array([[0.4 + 5e-10, 0.4, 0.4]]),
        "minus one hot": np.array([[0.0, -1.0, 0.0]]),
        "long in L1, both signs": np.array([[0.55, -0.55, 0.55]]),
        "other dimension": np.zeros((2, 4)),
        "no arms": np.zeros((0, 3)),
        "huge": np.full((1, 3), 1e200),
        "one of two long in L1": np.array([[0.1, 0.0, 0.0], [0.55, 0.55, 0.55]]),
        "one of two too long": np.array([[0.1, 0.0, 0.0], [1.0, 1.0, 0.0]]),
    }


def admitted(rows: Any, l1_limit: float | None, one_hot: bool) -> str:
    """By the definition, in exact numbers."""
    if rows.shape[1] != 3 or len(rows) == 0:
        return "ShapeError"
    if not np.isfinite(rows).all():
        return "NotFiniteError"
    if (
        max(math.fsum(v * v for v in row) if max(abs(row)) < 1e100 else math.inf for row in rows)
        > (1 + 1e-9) ** 2
    ):
        return "NormError"
    if l1_limit is not None and max(math.fsum(abs(row)) for row in rows) > l1_limit * (1 + 1e-9):
        return "NormError"
    if one_hot and not all(sorted(row) == [0, 0, 1] for row in rows.tolist()):
        return "ShapeError"
    return ""


def is_refused(rows: Any, bandit: Any) -> bool:
    """Whether such contexts are to be refused, by the definition."""
    if len(rows) == 0 or rows.shape[1] != bandit.dim or not np.isfinite(rows).all():
        return True
    scaled = np.minimum(np.abs(rows / bandit.options.max_norm), 1e100)
    if max(math.fsum(v * v for v in row) for row in scaled) > (1 + 1e-9) ** 2:
        return True
    limit = bandit.l1_limit
    if limit is not None and max(math.fsum(abs(row)) for row in rows) > limit * (1 + 1e-9):
        return True
    named = [0.0] * (bandit.dim - 1) + [1.0]
    return bandit.one_hot and not all(sorted(row) == named for row in rows.tolist())


@judge
def gates_let_in_what_is_allowed() -> Any:
    from dpbandit import codes
    from dpbandit.model import Gate
    from dpbandit.reference.gate import Gate as Reference

    seen = []
    names = {
        codes.TOO_LONG: "NormError",
        codes.TOO_LONG_L1: "NormError",
        codes.NOT_FINITE: "NotFiniteError",
    }
    names |= {codes.NOT_ONE_HOT: "ShapeError", codes.DIMENSION: "ShapeError", codes.LEARNED: ""}
    for (limit, one_hot), scale in itertools.product(
        ((None, False), (1.2, False), (None, True)), (1.0, 4.0)
    ):
        if one_hot and scale != 1.0:
            continue
        gate = Gate(
            dim=3,
            max_norm=scale,
            l1_limit=None if limit is None else limit * scale,
            one_hot=one_hot,
        )
        spec = {
            "dim": 3,
            "max_norm": scale,
            "l1_limit": math.inf if limit is None else limit * scale,
        }
        spec |= {"one_hot": one_hot, "clips": True, "low": -1.0, "high": 2.0}
        other = Reference(spec)
        for label, rows in wrong_contexts().items():
            expected = admitted(rows, limit, one_hot)
            if expected:
                refused(expected, lambda g=gate, r=rows * scale: g.check(r))
            else:
                gate.check(rows * scale)
            if len(rows):
                assert names[other.admit(rows * scale)] == expected, label
            seen.append(expected)
        assert [other.clip(v) for v in (-3.0, -1.0, 0.5, 2.0, 7.0)] == [-1.0, -1.0, 0.5, 2.0, 2.0]
        assert Reference({**spec, "clips": False}).clip(7.0) == 7.0
        assert other.admit_rewards(np.array([1.0, 5e300])) == codes.LEARNED
        assert other.admit_rewards(np.array([1.0, math.nan])) == codes.REWARD_NOT_FINITE
    for private in (False, True):
        gate, words = Gate(dim=1, max_norm=1.0, private=private), ""
        try:
            gate.check(np.array([[5.5]]))
        except ValueError as error:
            words = str(error)
        assert "norm" in words
        assert ("5.5" in words) != private, "a private context is in the message"
    refused("ShapeError", lambda: Gate(dim=3).check(np.zeros(3)))
    return seen


@judge
def engines_refuse_with_the_same_codes() -> Any:
    seen = []
    for label, options in (
        ("linucb", {}),
        ("arms", {}),
        ("arms", {"max_norm": 2.0}),
        ("laplace, known", {}),
        ("anytime", {}),
        ("wide laplace", {"public_contexts": "pool"}),
        ("wide arms", {}),
    ):
        one, two = (made(label, backend=b, **options) for b in ("reference", "core"))
        dim, most = one.dim, one.options.max_norm
        short = [rows for rows in wrong_contexts().values() if rows.shape[1] == 3]
        cases = [np.pad(rows, ((0, 0), (0, dim - 3))) for rows in short]
        cases += [np.ascontiguousarray(rows[:, ::-1]) for rows in cases]
        cases += [np.zeros((2, dim + 1)), np.eye(dim)[:2] * 2.0]
        cases += [np.array([[1.0, 0.5] + [0.0] * (dim - 2)])]
        for rows in cases:
            given = np.ascontiguousarray(rows if one.one_hot else rows * most)
            found = [bandit.engine.select(given) for bandit in (one, two)]
            expected = is_refused(given, one)
            # Which fault is found first may differ.
            assert [code < 0 for code in found] == [expected] * 2, (label, given)
            if len(rows):
                x = np.ascontiguousarray(given[-1])
                admits = [bandit.engine.admit(x, 0.5) < 0 for bandit in (one, two)]
                assert admits == [is_refused(x[None, :], one)] * 2, (label, x)
            seen.append(min(found))
        if dim != 3:
            continue
        for wrong in (
            np.zeros(3),
            [[1.0, 0.0, 0.0]],
            np.zeros((2, 3), dtype=np.float32),
            np.zeros((3, 2)).T,
        ):
            assert one.engine.select(wrong) == two.engine.select(wrong) < 0
        x = np.array([1.0, 0.0, 0.0])
        for engine in (one.engine, two.engine):
            assert engine.admit(x, math.nan) < 0
            assert engine.learn_many(np.array([x, x]), np.array([1.0, math.inf]))[0] == 0
            assert engine.learn_many(np.array([x, x]), np.array([1.0]))[1] < 0
            assert engine.rounds == 0
    return seen


@judge
def horizons_caps_and_failures() -> Any:
    """The way of a reward where something is wrong with it: nothing is counted twice or lost."""
    import dpbandit as dpb
    from dpbandit.privacy.sources import Simulation

    seen: list[Any] = []
    x = [0.6, 0.0, 0.8]
    for backend in ("core", "reference"):
        bandit = made("gauss, theory", horizon=5, backend=backend)
        bandit.update([x] * 4, [0.1] * 4)
        refused("HorizonError", lambda b=bandit: b.update([x] * 2, [0.1] * 2))
        refused("HorizonError", lambda b=bandit: b.check_horizon(2))
        bandit.check_horizon(1)
        bandit.update(x, 0.1)
        refused("HorizonError", lambda b=bandit: b.update(x, 0.1))
        assert (bandit.rounds, bandit.ledger.releases) == (5, 5)
        for wrong in (math.nan, math.inf):
            refused(
                "NotFiniteError", lambda w=wrong, b=backend: made("gauss", backend=b).update(x, w)
            )
        refused("ShapeError", lambda b=backend: made("gauss", backend=b).update([x], [0.1, 0.2]))
        refused("ShapeError", lambda b=backend: made("gauss", backend=b).update([[x]], [0.1]))
        refused(
            "NormError", lambda b=backend: made("laplace", backend=b).update([3.0, 0.0, 0.0], 0.1)
        )
        empty = made("gauss", backend=backend)
        empty.update(np.zeros((0, 3)), np.zeros(0))
        assert empty.rounds == 0
        users = made("gauss, users", backend=backend)
        users.update([x] * 5, [0.1] * 5, user=["a", "b", "a", "a", 7])
        assert (users.rounds, users.over_cap, users.user_counts) == (4, 1, {"a": 3, "b": 1, "7": 1})
        users.update(x, 0.3, user="a")
        assert (users.rounds, users.over_cap) == (4, 2)
        users.update(x, 0.3, user="b")
        assert (users.rounds, users.over_cap, users.user_counts["b"]) == (5, 2, 2)
        for wrong in (None, True, 1.5, ["a", "b"], [b"u"]):
            refused("OptionError", lambda w=wrong, u=users: u.update(x, 0.3, user=w))
        refused("NotFiniteError", lambda u=users: u.update(x, math.nan, user="z"))
        before = state_of(users)
        for rows, rs, kind in (
            ([x, x], [0.1, math.nan], "NotFiniteError"),
            ([x, [9.0, 0.0, 0.0]], [0.1, 0.1], "NormError"),
        ):
            refused(kind, lambda u=users, r=rows, v=rs: u.update(r, v, user=["y", "z"]))
            assert state_of(users) == before
        refused("NormError", lambda u=users: u.update([9.0, 0.0, 0.0], 0.1, user="z"))
        short = made("laplace, users", horizon=2, backend=backend)
        refused("HorizonError", lambda s=short: s.update([x] * 3, [0.1] * 3, user=["a", "b", "c"]))
        short.update([x] * 2, [0.1] * 2, user=["a", "a"])
        assert short.user_counts == {"a": 2}
        # What fails leaves no trace.
        failing = made("gauss", backend=backend)
        failing.update(x, 0.4)
        before = (
            state_of(failing),
            failing.theta,
            failing.ledger.fingerprint,
            failing.ledger.to_dict(),
        )
        engine = failing.engine

        class Fails(Simulation):
            def release(self, *args, **given):
                raise MemoryError

        failing.source = type("Source", (), {"release": Fails.release, "kind": "simulation"})()
        refused("MemoryError", lambda f=failing: f.update(x, 0.4))
        after = (
            state_of(failing),
            failing.theta,
            failing.ledger.fingerprint,
            failing.ledger.to_dict(),
        )
        assert before[0] == after[0]
        assert (before[1] == after[1]).all()
        assert before[2:] == after[2:]
        assert failing.engine is engine
        failing.source = Simulation(5)
        failing.update(x, 0.4)
        whole = made("gauss", backend=backend)
        whole.update([x, x], [0.4, 0.4])
        close(failing.theta, whole.theta, 0.0)
        assert failing.ledger.fingerprint == whole.ledger.fingerprint
        fresh = made("gauss, users", backend=backend)
        fresh.source = type("Source", (), {"release": Fails.release, "kind": "simulation"})()
        refused("MemoryError", lambda f=fresh: f.update(x, 0.4, user="a"))
        assert fresh.user_counts == {}
        # In the clear: the first reward costs everything.
        clear = made("linucb", backend=backend)
        assert clear.ledger.total == 0.0
        refused("NormError", lambda c=clear: c.update([3.0, 0.0, 0.0], 0.1))
        assert clear.ledger.total == 0.0
        clear.update(x, 0.1)
        clear.update(x, 0.1)
        assert (clear.ledger.total, clear.ledger.releases) == (math.inf, 1)
        assert [lane.first for lane in clear.ledger.groups[0].values()] == [1]
        # Within a release nobody else learns.
        inner = made("gauss", backend=backend)

        class Again:
            kind = "simulation"

            def release(self, noise, pending, *, scale, shift, index, inner=inner):
                refused("BudgetError", lambda: inner.update(x, 0.1))
                assert (index, inner.engine.rounds) == (1, 0)  # it works on a draft
                between(0.99, shift, 1.01)
                return pending.values

        inner.source = Again()
        inner.update(x, 0.9)
        assert inner.rounds == 1
        seen += [state_of(inner), whole.theta, users.user_counts]
        # A context that was not announced widens the bound for good.
        known = made("dgs, known", backend=backend)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            known.update(pool()[3], 0.2)
            assert not known.engine.outside
            assert not caught
            known.update([0.0, 0.0, 1.0], 0.2)
            assert known.engine.outside
            known.update([0.0, 1.0, 0.0], 0.2)
            assert len(caught) == 1
        assert known.in_public_set(np.array([pool()[3], [0.0, 0.0, 1.0]])).tolist() == [True, False]
        seen.append(known.theta)
    assert made("gauss").spent.epsilon == 0.0
    for label, each in (("laplace", 1.5 / 5), ("laplace, users", 1.5 / 5)):
        bandit = made(label)
        bandit.update(x, 0.1, **({"user": "a"} if "users" in label else {}))
        close(bandit.spent.epsilon, each, 1e-9)
    full = made("gauss", horizon=1)
    full.update(x, 0.1)
    close(full.spent.epsilon, EPSILON, 1e-7)
    assert full.spent.mu == full.claim.mu
    assert made("dgs, known").alphas(3, 2).tolist() == [0.3, 0.3]
    assert dpb.make("random", dim=3, seed=1).alphas(1, 1).shape == (1,)
    process = made("gauss")
    process._process += 1
    refused("BudgetError", lambda: process.update(np.array([x]), np.array([0.1])))
    return seen


@judge
def models_show_what_was_released() -> Any:
    from dpbandit.model import ReleasedModel

    seen = []
    for label in ("gauss", "thompson", "anytime", "arms", "joint", "random", "dgs, known"):
        bandit = made(label)
        play(bandit, 6)
        model = bandit.model()
        record = model.to_record()
        again = ReleasedModel.from_record(record)
        assert again.to_record() == record
        if label != "random":
            close(model.view.theta, bandit.theta, 0.0)
            close(again.view.theta, bandit.theta, 0.0)
        assert (model.round, again.round) == (6, 6)
        slate = slates(bandit, 1)[0]
        if label not in ("thompson", "random"):
            assert again.select(slate) == bandit.select(slate)
            scores = bandit.policy.scores(model.view, slate, model.alpha, 1, 0)
            assert again.select(slate.tolist()) == int(np.argmax(scores))
        for rows in wrong_contexts().values():
            expected = admitted(rows, again.gate.l1_limit, again.gate.one_hot)
            wide = (
                rows * bandit.options.max_norm if expected != "" or not again.gate.one_hot else rows
            )
            if again.gate.one_hot:
                wide = rows
            if expected:
                refused(expected, lambda m=again, r=wide: m.select(r))
            else:
                again.check(wide)
        seen.append(str(record))
        for broken in (
            {"policy": "nobody"},
            {"dpbandit_model": 9},
            {"more": 1},
            {"one_hot": 1},
            {"dim": 9},
        ):
            if label == "random" and "dim" in broken:
                continue
            refused("SaveError", lambda b=broken, r=record: ReleasedModel.from_record({**r, **b}))
        refused(
            "SaveError",
            lambda r=record: ReleasedModel.from_record(
                {k: v for k, v in r.items() if k != "claim"}
            ),
        )
    old = {
        "dpbandit_model": 1,
        "name": "linucb",
        "dim": 1,
        "round": 2,
        "theta": [0.5],
        "inverse_gram": [[1.0]],
    }
    old |= {"alpha": 0.3, "claim": made("linucb").claim.to_dict()}
    read = ReleasedModel.from_record(old)
    assert (read.policy.name, read.gate.max_norm, read.gate.l1_limit, read.gate.one_hot) == (
        "ucb",
        math.inf,
        None,
        False,
    )
    for flag, policy in (
        ("plays_at_random", "uniform"),
        ("draws_from_posterior", "thompson"),
        ("bonus_about_mean", "centred-ucb"),
    ):
        assert ReleasedModel.from_record({**old, flag: True}).policy.name == policy
    refused(
        "SaveError",
        lambda: ReleasedModel.from_record(
            {**old, "plays_at_random": True, "draws_from_posterior": True}
        ),
    )
    refused("SaveError", lambda: ReleasedModel.from_record({**old, "else": 1}))
    limited = ReleasedModel.from_record({**old, "max_norm": 2.0, "l1_limit": 1.5})
    assert (limited.gate.max_norm, limited.gate.l1_limit) == (2.0, 1.5)
    seen.append(str(read.to_record()))
    return seen


@judge
def designs_fit_together() -> Any:
    import dataclasses

    from dpbandit.design import keys_for
    from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
    from dpbandit.release import Tree

    design = made("gauss").design
    refused("OptionError", lambda: dataclasses.replace(design, noise=LAPLACE))
    other = dataclasses.replace(design.release)
    object.__setattr__(other, "noise", LAPLACE)
    refused("OptionError", lambda: dataclasses.replace(design, release=other))

    class Mine(Tree):
        name = "tree"
        in_core = True

    refused("OptionError", lambda: dataclasses.replace(design, release=Mine(GAUSSIAN, 8, 1.0, 1.0)))

    class Elsewhere(Tree):
        name = "elsewhere"
        in_core = False

    refused(
        "OptionError", lambda: dataclasses.replace(design, release=Elsewhere(GAUSSIAN, 8, 1.0, 1.0))
    )
    assert design.not_in_core == []
    assert design.source(made("gauss").options).kind == "simulation"
    assert len(set(keys_for(4).values())) == 3
    assert keys_for(4) == keys_for(4)
    one, two = keys_for(None), keys_for(None)
    assert one != two
    refused("NoiseError", lambda: made("laplace-l2", seed=None))
    refused("NoiseError", lambda: made("joint, wishart", seed=None))
    for wrong in (
        ("user", 0),
        ("user", 1.5),
        ("user", True),
        ("user",),
        "user",
        ("reward", 2),
        3,
        (),
    ):
        refused("OptionError", lambda w=wrong: made("gauss", unit=w))
    assert made("gauss", unit=("user", np.int64(3))).options.moves_per_unit == 3
    assert made("gauss", unit=["user", 3.0]).options.protects.cap == 3
    for name, options in (
        ("laplace", {"shape": "instruments", "public_contexts": pool()}),
        ("honaker", {"pan_private": True}),
        ("honaker", {"horizon": None}),
        ("dgs", {"pan_private": True}),
        ("joint", {"context_noise": 0.1}),
        ("arms", {"context_noise": 0.1}),
        ("arms", {"max_norm": 0.5}),
        ("anytime", {"window": 0.6}),
        ("anytime", {"ratio": 1.0}),
        ("gauss", {"reward_range": (1e12, 1e12 + 1)}),
        ("gauss", {"backend": "nothing"}),
        ("gauss", {"noise": "laplace"}),
        ("gauss", {"shape": "ellipsoid"}),
        ("joint", {"noise": "laplace"}),
    ):
        refused("OptionError", lambda n=name, o=options: made(n, **o))
    return str(made("gauss"))


@judge
def perturbed_contexts_keep_their_norm() -> Any:
    seen = []
    for backend in ("core", "reference"):
        bandit = made("gauss, perturbed", backend=backend, context_noise=3.0)
        for slate in slates(bandit, 4):
            arm = bandit.select(slate)
            bandit.update(slate[arm], 0.4)
        assert bandit.engine.decisions == 4
        bandit.update([0.1, 0.2, 0.3], 0.4)  # not offered last
        gram = np.asarray(bandit.engine.fields()["gram"]) + np.asarray(
            bandit.engine.fields()["gram_low"]
        )
        recent = np.asarray(bandit.engine.fields()["recent"])[
            : int(np.asarray(bandit.engine.fields()["waiting"])[0])
        ]
        gram = gram + recent.T @ recent
        between(0.0, np.trace(gram) - 3.0, 5.0 * (1 + 1e-9))
        seen.append(bandit.theta)
    close(*seen, 1e-8)
    return seen[1]


@judge
def core_scores_are_the_references() -> Any:
    """The loops: audits' scores and traces, and simulated play, of both engines."""
    seen: list[Any] = []
    for label in (
        "laplace",
        "gauss",
        "laplace-l2",
        "joint, wishart",
        "linucb",
        "anytime",
        "dgs, known",
        "arms",
        "gauss, pan-private",
        "no noise",
    ):
        one, two = made(label, backend="reference"), made(label, backend="core")
        rounds = 6
        xs = np.array([slate[0] for slate in slates(one, rounds)])
        rs = np.linspace(-0.5, 2.0, rounds)
        others = rs[::-1].copy() if label != "linucb" else rs + 0.01
        known = np.array([t % 3 > 0 for t in range(rounds)])
        found = []
        for bandit in (one, two):
            engine = bandit.engine
            told = engine.trace(xs, rs, known, noise_key=3, start_key=4)
            forced = engine.trace(
                xs, others, known, noise_key=3, start_key=4, noisy=np.asarray(told[0])
            )
            scores = engine.scores(xs, rs, xs, others, known, key=77, first=3, count=4)
            found.append([*map(np.asarray, (*told, *forced)), np.asarray(scores)])
            pool_, arms = np.concatenate(slates(one, rounds)), np.zeros(rounds, dtype=np.int64)
            shown = np.arange(len(pool_), dtype=np.int64).reshape(rounds, -1)
            means = np.linspace(-1, 1, shown.size).reshape(shown.shape)
            totals, record = np.zeros(2), np.array([0, 3, 5])
            fresh = bandit.engine.copy()
            fresh.reset()
            if label != "linucb":
                out = fresh.play(
                    pool_,
                    shown,
                    means * 1.5,
                    means,
                    alphas=np.array([0.3]),
                    noise_key=3,
                    start_key=4,
                    in_public_set=np.arange(len(pool_)) % 5 > 0,
                    truth=np.ones(DIM),
                    record=record,
                    totals=totals,
                    arms=arms,
                )
                close(
                    totals[1], sum(means[t].max() - means[t, a] for t, a in enumerate(arms)), 1e-9
                )
                close(totals[0], sum(1.5 * means[t, a] for t, a in enumerate(arms)), 1e-9)
                found[-1] += [np.asarray(out), arms, np.asarray(fresh.theta())]
        for a, b in zip(*found, strict=True):
            close(a, b, 1e-7, 1e-8)
        seen.append(found[0])
        # Scores again, from traces and densities, by the definition.
        if label in ("laplace", "gauss", "laplace-l2"):
            from dpbandit.reference.random import lot

            for n, score in enumerate(found[0][6]):
                key, start = lot(77, 2 * (3 + n), 0), lot(77, 2 * (3 + n) + 1, 0)
                noisy, clean, scales = one.engine.trace(
                    xs, rs, known, noise_key=key, start_key=start
                )
                other = one.engine.trace(
                    xs, others, known, noise_key=key, start_key=start, noisy=noisy
                )[1]
                power = 2 if label == "gauss" else 1
                exact = sum(
                    (
                        size_of(one.noise.name, y - v) ** power
                        - size_of(one.noise.name, y - w) ** power
                    )
                    / s**power
                    / power
                    for y, w, v, s in zip(noisy, clean, other, scales, strict=True)
                )
                close(score, exact, 1e-6, 1e-7)
    return seen


# ------------------------------------------------------------------ to the last bit

HALVES = np.array([[0.5, 0.5, 0.5], [0.25, 0.0, 0.5], [0.0, -0.5, 0.125], [0.5, 0.25, -0.75]])


@judge
def engines_agree_to_the_last_bit() -> Any:
    """Contexts and rewards are halves of halves, so that items are exact: then clean sums must be
    the same whole numbers, and Toeplitz buffers the same doubles, lost digits included."""
    seen: list[Any] = []
    for label, options in (
        ("laplace", {}),
        ("laplace, unknown horizon", {}),
        ("gauss, pan-private", {"reward_range": (-1.0, 1.0)}),
        ("laplace, pan-private", {}),
        ("honaker", {"reward_range": (-1.0, 1.0)}),
        ("episodes", {"reward_range": (-1.0, 1.0)}),
        ("toeplitz", {"reward_range": (-1.0, 1.0), "horizon": 40}),
        ("local", {"reward_range": (-1.0, 1.0)}),
        ("dgs", {"reward_range": (-1.0, 1.0), "max_norm": 1.0}),
        ("joint", {"reward_range": (-1.0, 1.0)}),
    ):
        one, two = (made(label, backend=b, **options).engine for b in ("reference", "core"))
        rng = np.random.default_rng(6)
        for t in range(38 if label == "toeplitz" else 19):
            x, reward = HALVES[t % 4], float(rng.integers(-8, 9)) / 8
            codes = [engine.learn(x, reward) for engine in (one, two)]
            assert codes[0] == codes[1]
            if codes[0] == 0:
                continue
            starts = [list(engine.starts()) for engine in (one, two)]
            assert starts[0] == starts[1]
            for level in starts[0]:
                for engine in (one, two):
                    engine.begin(level, [(t + 1) * 1000 + level, -(2**66) - t, 7])
            scales = [engine.prepare(x, reward) for engine in (one, two)]
            close(*scales, 1e-12)
            if scales[0] == -1.0:
                continue
            wholes = [engine.pending_whole() for engine in (one, two)]
            floats = [np.asarray(engine.pending()) for engine in (one, two)]
            assert wholes[0] == wholes[1], (label, t)
            if wholes[0] is None and label == "toeplitz":
                assert (floats[0] == floats[1]).all(), (label, t)
            close(*floats, 1e-12, 1e-13)
            seen.append(floats[0])
            noisy = floats[0] + rng.normal(size=len(floats[0]))
            for engine in (one, two):
                engine.commit(noisy)
        fields = [engine.fields() for engine in (one, two)]
        same = (
            "sums_high",
            "sums_low",
            "episode_sum_high",
            "episode_sum_low",
            "clean",
            "clean_low",
        )
        same += (
            "noisy_buffers",
            "noisy_low",
            "total",
            "total_low",
            "noisy",
            "carry",
        )
        for name in same:
            if name in fields[0] and label != "dgs":
                a, b = (np.asarray(f[name]) for f in fields)
                if name in ("noisy", "carry"):
                    close(a, b, 1e-12, 1e-12)
                else:
                    assert (a == b).all(), (label, name)
    return seen


@judge
def shares_of_sums_are_the_same_whole_numbers() -> Any:
    """The anytime release of sums of every size, and of zeros: what is shown and what is kept."""
    from dpbandit.release import anytime

    seen = []
    for number in (
        0,
        1,
        -1,
        10**12 + 7,
        -(10**12) - 7,
        2**62 + 12345,
        -(3 << 75) - 1,
        (5 << 90) + 3,
    ):
        found = []
        for backend in ("reference", "core"):
            engine = made("anytime", backend=backend, first_release=1).engine
            fields = {name: np.array(field) for name, field in engine.fields().items()}
            for at in range(DIM + 1):
                high, low = divmod(number + at, 2**64)
                fields["sums_high"][0, at] = high
                fields["sums_low"][0, at] = low - 2**64 if low >> 63 else low
            engine.load_fields(fields)
            engine.prepare(np.zeros(DIM), 1.0)
            kept = {name: np.array(field) for name, field in engine.fields().items()}
            words = zip(kept["sums_high"][0].tolist(), kept["sums_low"][0].tolist(), strict=True)
            found.append((engine.pending_whole(), [(h << 64) + low % 2**64 for h, low in words]))
        assert found[0] == found[1]
        rho = anytime.kept(1, anytime.next_time(1, 1.3), 6.0)
        for at in range(DIM + 1):
            for share, whole in ((anytime.shown(rho), found[0][0][at]), (rho, found[0][1][at])):
                exact = (
                    fractions.Fraction(number + at)
                    * math.floor(fractions.Fraction(share) * 2**62)
                    / 2**62
                )
                assert abs(whole - exact) <= fractions.Fraction(1, 2)
        seen.append(found[0])
    return seen


@judge
def rounding_is_paid_for_where_a_is_nearly_singular() -> Any:
    """`dgs`, λ tiny and arms on one axis: what rounding may add is then of the size of the bound."""
    seen: list[Any] = []
    for noise, dim in (("gaussian", 3), ("laplace", 2)):
        arms = np.eye(dim)[:1] * 0.5
        for backend in ("reference", "core"):
            bandit = made(
                "dgs",
                dim=dim,
                noise=noise,
                ridge=5e-11,
                max_norm=0.5,
                public_contexts=arms,
                backend=backend,
                reward_range=(-1.0, 1.0),
                horizon=32,
            )
            engine, spec = bandit.engine, bandit.spec
            for t in range(1, 33):
                scale = engine.prepare(arms[0], 0.25, True)
                fields = {name: np.asarray(field) for name, field in engine.fields().items()}
                gram = 5e-11 * np.eye(dim)
                gram[0, 0] += 0.25 * t
                trace = np.trace(np.linalg.inv(gram))
                items = t & -t
                ulps = (2 * (dim + 4) * items + 512) * 2.0**-53
                entries = dim if noise == "laplace" else math.sqrt(dim)
                extra = trace * 0.5 * entries * (2.0**-40 + ulps)
                bound = float(fields["bound_bound"][0] * fields["bound_growth"][0])
                exact = 0.5 / gram[0, 0]
                between(exact, bound, exact * 1.6)
                per = float(spec["multipliers"][6]) * float(spec["sensitivity"])
                close((scale / per - bound) / extra, 1.0, 1e-3)
                assert extra > 1e-3 * bound
                seen.append(scale)
                engine.commit(np.asarray(engine.pending()))
        close(seen[-64:-32], seen[-32:], 1e-9)
    return seen


@judge
def parts_that_leave_something_out_are_refused() -> Any:
    """Noises, releases and algorithms of one's own."""
    import dpbandit as dpb
    from dpbandit.algorithms import registry
    from dpbandit.privacy import noise as table
    from dpbandit.privacy.noises.base import Noise
    from dpbandit.privacy.noises.gaussian import Gaussian
    from dpbandit.release.base import PythonRelease, Release
    from dpbandit.release.tree import Tree

    words = {"name": "mine", "description": "x", "norm": 2, "currency": "mu²", "notion": "gdp"}
    words |= {"has_real_source": False, "in_core": False, "matrices": None}
    for left_out in words:
        kept = {k: v for k, v in words.items() if k != left_out}
        refused("TypeError", lambda k=kept: type("Mine", (Noise,), k))
    for norm in (0, 3, None):
        refused("TypeError", lambda n=norm: type("Mine", (Noise,), {**words, "norm": n}))
    for norm in (1, 2):
        type("Mine", (Noise,), {**words, "norm": norm})
    refused("TypeError", lambda: type("Mine", (Gaussian,), {}))
    mine = type("Mine", (Gaussian,), {"name": "mine", "cost": lambda self, shift, scale: 7.0})
    assert not mine.in_core
    assert not mine.has_real_source
    assert mine.costs is Noise.costs
    close(mine().costs(np.ones((2, 1)), np.ones(2)), [7.0, 7.0])
    claims = type("Mine", (Gaussian,), {"name": "mine", "in_core": True, "has_real_source": True})
    assert claims.in_core
    assert claims.has_real_source
    assert claims.costs is Gaussian.costs
    for left_out in ("name", "in_core"):
        kept = {k: v for k, v in {"name": "m", "in_core": False}.items() if k != left_out}
        refused("TypeError", lambda k=kept: type("Mine", (Release,), k))
        refused("TypeError", lambda k=kept: type("Mine", (Tree,), k))
    refused("OptionError", lambda: table.add(Gaussian()))
    refused("OptionError", lambda: table.find_noise("gausian"))
    refused("OptionError", lambda: table.find_noise("laplace", ("gaussian",)))
    assert table.find_noise(table.LAPLACE, ("laplace",)) is table.LAPLACE

    class Every(PythonRelease):
        """Every round's item is shown with noise, in a lane of its own."""

        name = "every"
        in_core = False

        @staticmethod
        def draws(dim, horizon):
            return dim * 2

        def scale(self, t):
            return self.sensitivity * self.noise.multiplier(self.budget, 1)

        def lane(self, t):
            return "rounds"

        def room(self, engine):
            pass

        def squares(self, t):
            return np.asarray(t) * self.scale(1) ** 2

        def sums(self, dim):
            from dpbandit.release.base import Sums

            class Shown(Sums):
                total = np.zeros(2)

                def add(self, t, item):
                    return item

                def publish(self, t, noisy):
                    self.total = self.total + noisy
                    return self.total

                def fields(self):
                    return {}

            return Shown()

    from dpbandit.algorithms.moments import on_moments

    before = dict(registry.ALGORITHMS)
    try:
        dpb.register("every", design=lambda name, o: on_moments(name, o, "gaussian", release=Every))
        bandit = dpb.make("every", dim=2, epsilon=1.0, delta=1e-5, horizon=9, seed=0)
        assert bandit.backend == "reference"
        for _ in range(4):
            bandit.update([0.6, 0.8], 0.5)
        close(bandit.ledger.total, bandit.claim.mu**2, 1e-8)
        charge = bandit.release.charge(bandit.engine, 1)
        close(charge.shift, bandit.release.sensitivity, 1e-15)
        spec = bandit.release.core()
        assert np.isnan(spec["multipliers"]).all()
        assert len(spec["multipliers"]) == 63
        refused("OptionError", lambda: dpb.register("every", lambda **o: None))
        refused("OptionError", lambda: dpb.register("tree-gauss", lambda **o: None, replace=True))
        refused("OptionError", lambda: dpb.register("another"))
        refused("OptionError", lambda: dpb.register("another", len, design=len))
        refused("OptionError", lambda: dpb.register("another", len, options=("x",)))
        refused("OptionError", lambda: dpb.register("another", 3))
        dpb.register("every", lambda **o: "made", replace=True)
        assert dpb.make("every", dim=2) == "made"
        assert registry.find("every").black_box
        dpb.register("wrong", design=lambda name, o: "no design")
        refused("OptionError", lambda: dpb.make("wrong", dim=2))
        registry.know(before)
    finally:
        registry.ALGORITHMS.clear()
        registry.ALGORITHMS.update(before)
    refused("UnknownAlgorithmError", lambda: dpb.make("nothing of that name", dim=2))
    return [bandit.theta, bandit.claim.mu]


@judge
def logs_are_refused_where_nothing_is_proven() -> Any:
    """Which bandits may start from a log; the reasons are words."""
    from dpbandit.logs.enter import why_not

    never = (
        "random",
        "joint",
        "local",
        "arms",
        "batches",
        "published",
        "pan-private",
        "perturbed",
        "theory",
        "figure",
    )
    # What is left of people is not in a log, nor is a whitener that public contexts shape.
    nobody = ("pair, persons", "anytime, spread", "pair, known", "linucb, forgetful")
    seen = []
    for label in BANDITS:
        reason = why_not(made(label))
        assert isinstance(reason, str)
        expected = any(word in label for word in never) or label in nobody
        assert bool(reason) == expected, (label, reason)
        assert isinstance(made(label).release.no_log(), str)
        seen.append(reason)
    return seen
