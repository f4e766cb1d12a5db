"""Judges that compare the two engines round by round, to the last bit where they can."""

from __future__ import annotations

import fractions
import math
from typing import Any

import numpy as np

from judges.bandits import made, slates
from judges.common import DIM, between, close, judge
from judges.noises import size_of


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
