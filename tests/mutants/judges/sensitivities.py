"""Judges of how far a neighbour moves a sum, and of the algebra behind bounds."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from judges.common import between, close, judge, refused
from judges.noises import noises


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


@judge
def factors_never_fail() -> Any:
    """Of singular, indefinite and other bad matrices: what the core would make of them."""
    from dpbandit.reference import algebra

    good = np.array([[4.0, 2.0, 1.0], [2.0, 3.0, 0.5], [1.0, 0.5, 2.0]])
    lower = algebra.factor(good)
    close(lower @ lower.T, good, 1e-12, 0)
    close(algebra._with_pivots(good), lower, 1e-12, 1e-15)
    close(algebra.inverse(good) @ good, np.eye(3), 0, 1e-12)
    close(algebra.solved(good, np.arange(3.0)), np.linalg.solve(good, np.arange(3.0)), 1e-12, 0)
    assert algebra.inverse_if_positive(np.diag([1.0, -1.0])) is None
    assert algebra.inverse_if_positive(np.zeros((2, 2))) is None
    close(algebra.inverse_if_positive(good), np.linalg.inv(good), 1e-12, 0)
    values, vectors = algebra.eigen(good)
    close((vectors * values) @ vectors.T, good, 1e-12, 0)
    seen: list[Any] = [lower, values]
    # What rounding left of a pivot is at least 10⁻¹⁶ of its diagonal, and 10⁻³⁰⁰.
    singular = algebra.factor(np.array([[4.0, 2.0], [2.0, 1.0]]))
    assert (singular == [[2.0, 0.0], [1.0, 1e-8]]).all()
    tiny = algebra.factor(np.zeros((2, 2)))
    assert (tiny == np.eye(2) * 1e-150).all()
    close(algebra.inverse(np.diag([0.0, 4.0])), np.diag([1e300, 0.25]), 1e-12, 0)
    close(algebra.solved(np.diag([0.0, 4.0]), np.array([1.0, 8.0])), [1e300, 2.0], 1e-12, 0)
    ones = np.ones((3, 3))
    half = algebra._with_pivots(ones)
    close(half[:, 0], np.ones(3), 0, 0)
    close(np.diag(half), [1.0, 1e-8, 1e-8], 1e-12, 0)
    close(algebra.below(half, half), np.eye(3), 0, 1e-9)
    # A lower triangle with a 0 on its diagonal: what does not hang on it is solved all the same.
    broken = np.array([[2.0, 0.0, 0.0], [1.0, 4.0, 0.0], [1.0, 1.0, 0.0]])
    solved = algebra.below(broken, np.array([2.0, 5.0, 3.0]))
    close(solved[:2], [1.0, 1.0], 0, 0)
    assert solved[2] == np.inf
    turned = algebra.inverse_of_lower(broken)
    close(turned[:2], np.array([[0.5, 0.0, 0.0], [-0.125, 0.25, 0.0]]), 0, 0)
    nothing = np.full((2, 2), np.nan)
    values, vectors = algebra.eigen(nothing)
    assert np.isnan(values).all()
    assert vectors.shape == (2, 2)
    assert algebra.factor(nothing).shape == algebra.inverse(nothing).shape == (2, 2)
    return [*seen, singular, half, turned[:2], solved]
