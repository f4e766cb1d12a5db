"""Judges of engines over many rounds: batches, ends, fields put in and taken out, logs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from judges.bandits import BANDITS, budget_of, made, play, pool, slates
from judges.common import ROUNDS, between, close, judge, refused
from judges.engines import HALVES


def play_on(engine: Any, bandit: Any, start: int, end: int) -> None:
    """The rounds of `play` from one to another, by an engine alone, as seeded bandits play them."""
    rng = np.random.default_rng(10)
    low, high = bandit.options.reward_range
    for t, slate in enumerate(slates(bandit, end)):
        reward = float(rng.uniform(low - 0.5, high + 0.5))
        if t < start:
            continue
        arm = engine.select(slate, float(bandit.alphas(t + 1, 1)[0]))
        if engine.learn(slate[arm], reward) == 1:
            known = bool(bandit.in_public_set(slate[arm][None, :])[0])
            key = getattr(bandit.source, "key", 0)
            engine.simulate(slate[arm], reward, known, key, bandit.keys[3])


@judge
def fields_are_all_that_changes() -> Any:
    """Half of the rounds, then all fields into a fresh engine, and into the other engine."""
    seen: list[Any] = []
    for label, (_name, options, _attained) in BANDITS.items():
        rounds = options.get("horizon") or ROUNDS
        # Users beyond their cap are not learned from, and perturbed contexts are remembered elsewhere.
        if "unit" in options or "context_noise" in options or rounds < 10:
            continue
        rounds, half = min(rounds, ROUNDS), min(rounds, ROUNDS) // 2
        one, whole = made(label, backend="core"), made(label, backend="core")
        resumed, other = made(label, backend="core"), made(label, backend="reference")
        play(whole, rounds)
        play(one, half)
        fields = {name: np.array(field) for name, field in one.engine.fields().items()}
        for bandit in (resumed, other):
            missing = set(bandit.engine.fields()) - set(fields)
            assert not missing, (label, missing)
            wanted = {name: fields[name] for name in bandit.engine.fields()}
            bandit.engine.load_fields(wanted)
            assert bandit.engine.rounds == half
        for name, field in resumed.engine.fields().items():
            assert (fields[name] == np.asarray(field)).all(), (label, name)
        snapshot = one.engine.snapshot()
        for engine in (one.engine, resumed.engine, other.engine):
            play_on(engine, one, half, rounds)
        close(resumed.theta, whole.theta, 1e-9, 1e-10)
        close(one.theta, whole.theta, 1e-9, 1e-10)
        rel, abs_ = (1e-2, 1e-3) if label == "no noise, anytime" else (1e-7, 1e-8)
        close(other.theta, whole.theta, rel, abs_)
        for start, back in (
            (half, lambda e=one.engine, s=snapshot: e.restore(s)),
            (0, one.engine.reset),
        ):
            back()
            assert one.engine.rounds == start
            play_on(one.engine, one, start, rounds)
            close(one.theta, whole.theta, 1e-9, 1e-10)
        seen.append(whole.theta)
    return seen


def twins(label: str, **options: Any) -> Any:
    """Both engines of a bandit."""
    return [made(label, backend=b, **options).engine for b in ("reference", "core")]


def alike(engines: Any, seen: list[Any]) -> None:
    """What is released, counted and summed up is the same in both."""
    wholes = []
    for engine in engines:
        fields = {name: np.array(field) for name, field in engine.fields().items()}
        # Sorted: a set has another order in every process, and what was seen would be other numbers.
        found = {name: fields[name] for name in sorted(COUNTED & set(fields))}
        for name in [name.removesuffix("_high") for name in fields if name.endswith("_high")]:
            high, low = (fields[f"{name}_{part}"].astype(object) for part in ("high", "low"))
            found[name] = high * 2**64 + low % 2**64
        wholes.append({name: np.asarray(field, dtype=float) for name, field in found.items()})
    for name, field in wholes[0].items():
        close(field, wholes[1][name], 1e-7, 1e-8 * max(1.0, np.abs(field).max(initial=0.0)))
        seen.append(field)


COUNTED = {"theta", "rounds", "clipped", "decisions", "outside", "due", "change_due", "version"}


COUNTED |= {"pulls", "carry", "clean", "total"}


@judge
def batches_are_learned_row_by_row() -> Any:
    """Rows that differ, batches that are refused as a whole, and the users of perturbed contexts."""
    from dpbandit import codes

    seen: list[Any] = []
    rng = np.random.default_rng(21)
    labels = ("anytime", "pair", "episodes", "linucb", "gauss, theory", "random")
    for label in (*labels, "wide anytime", "wide pair"):
        planned = {"first_release": 6} if label.endswith(("anytime", "pair")) else {}
        engines = twins(label, horizon=12, **planned)
        dim = len(engines[0].theta())
        xs, rs = np.ascontiguousarray(pool(dim)[:9] * 0.9), rng.uniform(-2, 2, size=9)
        longer, missing = xs.copy(), rs.copy()
        longer[7], missing[3] = 1.0, np.nan
        for given, code in (
            ((longer, rs), codes.TOO_LONG),
            ((xs, missing), codes.REWARD_NOT_FINITE),
        ):
            for engine in engines:
                told: list[int] = []
                assert engine.learn_many(*given, told) == (0, code), label
                assert (engine.rounds, sum(told)) == (0, 0)
        for start, end in ((0, 3), (3, 5), (5, 9)):
            found = []
            for engine in engines:
                told = []
                found.append(engine.learn_many(xs[start:end].copy(), rs[start:end].copy(), told))
                assert sum(told) == found[-1][0]
            assert found[0] == found[1], label
            alike(engines, seen)
            left = end - start - found[0][0]
            for at in range(end - left, end):
                scales = [engine.simulate(xs[at], rs[at], True, 3, 4) for engine in engines]
                close(*scales, 1e-9)
        alike(engines, seen)
        if label != "random":
            assert [engine.rounds for engine in engines] == [9, 9]
            for engine in engines:
                assert engine.learn_many(xs[:4].copy(), rs[:4].copy()) == (0, codes.HORIZON)
                assert engine.admit(xs[0], 0.5) == codes.LEARNED
    engines = twins("gauss, perturbed", context_noise=0.8)
    for slate in slates(made("gauss, theory"), 3):
        for k in (1, 3):
            ranked = [list(engine.rank(slate, k)) for engine in engines]
            assert ranked[0] == ranked[1]
            assert len(set(ranked[0])) == k
            seen.append(ranked[0])
            for arm in ranked[0][:2]:
                for engine in engines:
                    engine.simulate(slate[arm], 0.5, True, 3, 4)
                alike(engines, seen)
    one, two = (made("linucb perturbed", backend=b) for b in ("reference", "core"))
    for bandit in (one, two):
        with_no = slates(bandit, 1)[0]
        bandit.select(with_no, k=2)
        bandit.update(with_no[:3].copy(), [0.1, 0.9, 0.4])
    close(one.theta, two.theta, 1e-9)
    return seen


@judge
def engines_end_and_wait_where_they_must() -> Any:
    """The last reward that is covered; and nobody learns, or chooses, in the midst of a release."""
    from dpbandit.codes import BUSY, HORIZON, LEARNED

    x, seen = np.array([0.6, 0.0, 0.8]), []
    slate = np.array([x, -x])
    for label, most in (
        ("gauss", ROUNDS),
        ("toeplitz, unknown horizon", 2**48),
        ("laplace, pan-private", 2**57 - 1),
        ("laplace, unknown horizon", 2**62 - 1),
        ("anytime", ROUNDS),
        ("pair", ROUNDS),
        ("joint, unknown horizon", 2**62 - 1),
    ):
        for engine in twins(label):
            for rounds, code in ((most - 2, LEARNED), (most - 1, LEARNED), (most, HORIZON)):
                fields = {name: np.array(field) for name, field in engine.fields().items()}
                fields["rounds"][0] = rounds
                engine.load_fields(fields)
                assert engine.admit(x, 0.5) == code, (label, rounds)
                two = engine.learn_many(slate, np.array([0.5, 0.5]))[1]
                assert (two == HORIZON) == (rounds > most - 2), (label, rounds)
    for label in ("gauss", "joint", "dgs", "local", "toeplitz", "arms"):
        for engine in twins(label):
            row = np.array([1.0, 0.0, 0.0])
            engine.prepare(row, 0.5)
            copied, before = engine.copy(), engine.snapshot()
            for busy in (engine, copied):
                assert busy.admit(row, 0.5) == BUSY, label
                assert busy.learn(row, 0.5) == BUSY
                assert busy.learn_many(row[None, :], np.array([0.5])) == (0, BUSY)
            refused("ValueError", lambda e=engine, r=row: e.prepare(r, 0.5))
            engine.commit(np.array(engine.pending()))
            assert engine.admit(row, 0.5) == LEARNED
            for back in (
                copied.reset,
                lambda c=copied: c.load_fields({k: np.array(v) for k, v in c.fields().items()}),
            ):
                copied.prepare(row, 0.5) if copied.admit(row, 0.5) == LEARNED else None
                back()
                assert copied.admit(row, 0.5) == LEARNED, label
            del before
            draft = engine.draft()
            assert (
                engine.admit(row, 0.5) == engine.learn(row, 0.5) == engine.select(np.eye(3)) == BUSY
            )
            assert draft.admit(row, 0.5) == LEARNED
            engine.go_on()
            assert engine.admit(row, 0.5) == LEARNED
            seen.append(np.array(engine.theta()))
    return seen


@judge
def nothing_is_learned_along_a_context_of_zeros() -> Any:
    seen: list[Any] = []
    for label in (
        "gauss, ellipsoid",
        "gauss, instruments",
        "pair",
        "anytime",
        "joint",
        "dgs",
        "gauss",
    ):
        engines = twins(label)
        for engine in engines:
            for at, x in enumerate((np.zeros(3), pool()[2], np.zeros(3), np.full(3, 1e-200))):
                engine.simulate(x, 1.0 + at, True, 3, 4)
        alike(engines, seen)
    return seen


@judge
def bounds_of_both_engines_over_many_rounds() -> Any:
    """`dgs`: the noise follows A; 300 rounds, so that A⁻¹ is computed anew on the way."""
    seen: list[Any] = []
    rng = np.random.default_rng(12)
    for label, options in (
        ("dgs", {}),
        ("dgs, known", {"ridge": 0.05}),
        ("dgs, laplace", {"ridge": 0.05}),
        ("dgs, laplace, ball", {}),
        ("wide dgs", {"ridge": 0.05}),
        ("wide dgs, ball", {"ridge": 0.05}),
    ):
        one, two = (made(label, backend=b, horizon=300, **options) for b in ("reference", "core"))
        dim, most = one.dim, one.options.max_norm
        rows = pool(dim)[rng.integers(12, size=300)] * most
        rows[:120] = pool(dim)[rng.integers(3, size=120)] * most  # few directions at first
        rs, known = rng.uniform(-2, 2, size=300), np.ones(300, dtype=np.bool_)
        known[280:] = label not in ("dgs, known", "wide dgs")
        traces = [
            e.trace(np.ascontiguousarray(rows), rs, known, noise_key=1, start_key=2)
            for e in (one.engine, two.engine)
        ]
        scales = [np.asarray(trace[2]) for trace in traces]
        close(*scales, 1e-9)
        close(np.asarray(traces[0][1]), np.asarray(traces[1][1]), 1e-7, 1e-9)
        # No scale is below what the exact A needs.
        gram, norm, arms = one.options.ridge * np.eye(dim), one.noise.norm, one.design.public_set
        for t in range(300):
            gram += np.outer(rows[t], rows[t])
            inverse = np.linalg.inv(gram)
            if len(arms) and known[: t + 1].all():
                reach = np.linalg.norm(arms @ inverse, ord=norm, axis=1).max()
            else:
                root = math.sqrt(dim) if norm == 1 else 1.0
                reach = np.linalg.eigvalsh(inverse)[-1] * most * root
            levels = one.release.place(t + 1).levels
            per = float(one.spec["multipliers"][levels]) * float(one.spec["sensitivity"])
            for each in scales:
                between(reach * per * (1 - 1e-9), each[t], reach * per * 1.8)
        seen.append(scales[0])
    return seen


@judge
def a_bound_that_no_longer_holds_is_made_anew() -> Any:
    """Where A⁻¹ was computed anew it may be above its bound, which is lowered here instead."""
    seen: list[Any] = []
    for share in (0.3, 0.7):
        for engine in twins("dgs", horizon=40):
            for t in range(30):  # later than where it is computed anew in every round
                engine.simulate(pool()[t % 5], 1.0, True, 3, 4)
            fields = engine.fields()
            fields["bound_bound"][:] *= share
            fields["bound_distrusted"][:] = 1.0
            engine.simulate(pool()[5], 1.0, True, 3, 4)
            fields = engine.fields()
            largest = np.linalg.eigvalsh(np.array(fields["inverse"]))[-1]
            between(largest, fields["bound_bound"].item(), largest * (1 + 1e-8))
            assert fields["bound_distrusted"].item() == 0.0
            seen.append(largest)
    return seen


@judge
def long_trees_are_the_same_whole_numbers() -> Any:
    """Nodes of 2²² items and more, whose sums need more than 64 bits: counters and sums are put in."""
    seen: list[Any] = []
    labels = ("laplace, unknown horizon", "laplace", "honaker", "wide gauss")
    for label, levels in itertools.product(labels, (5, 22, 23, 30)):
        unknown = BANDITS[label][1].get("horizon", 1) is None
        given = {} if unknown else {"horizon": 2**31}
        found = []
        for backend in ("reference", "core"):
            engine = made(label, backend=backend, reward_range=(-1.0, 1.0), **given).engine
            fields = {name: np.array(field) for name, field in engine.fields().items()}
            rng, width = np.random.default_rng(levels), fields["sums_low"].shape[1]
            fields["rounds"][0] = (2**levels - 1) * (2 if unknown else 1)
            for at in range(min(levels, len(fields["sums_low"]))):
                numbers = rng.integers(-(2**40), 2**40, size=width)
                fields["sums_low"][at] = numbers << min(at, 22)
                fields["sums_high"][at] = np.where(numbers < 0, -1, 0)
                fields["noisy"][at] = rng.normal(size=width)
            engine.load_fields(fields)
            engine.prepare(np.pad(HALVES[1], (0, width - 3)), 0.5)
            whole = engine.pending_whole()
            engine.commit(np.asarray(engine.pending()) + 0.5)
            after = engine.fields()
            words = [np.asarray(after[name]).tolist() for name in ("sums_low", "sums_high")]
            found.append((whole, words, np.array(engine.theta())))
        assert found[0][:2] == found[1][:2], (label, levels)
        close(found[0][2], found[1][2], 1e-9, 1e-9)
        seen.append(found[0][0])
    return seen


@judge
def logs_cost_what_is_claimed() -> Any:
    """A start from a log, exactly: a logged reward, an online one, and a user in both."""
    from dpbandit.auditor import warm

    seen: list[Any] = []
    labels = ("gauss", "toeplitz", "dgs, known", "anytime", "episodes", "gauss, ellipsoid")
    for label in (*labels, "laplace, users", "wide anytime"):
        costs = []
        for backend in ("core", "reference"):
            bandit = made(label, backend=backend, horizon=6)
            rows = pool(bandit.dim)[:11] * bandit.options.max_norm
            budget = budget_of(bandit.claim)
            kinds = warm.neighbours(6, 5, bandit.options.protects.cap)
            for changed, users in kinds.values():
                stream = warm.Stream(rows, np.zeros(11), users, 6)
                cost, why = warm.cost(
                    lambda b=backend, n=label: made(n, backend=b, horizon=6), stream, changed
                )
                assert cost <= budget * (1 + 1e-9), (label, why)
                if len(changed) == 1 and label == "gauss" and changed[0] < 6:
                    lengths = np.linalg.norm(rows[:6], axis=1)
                    close(cost, budget * (lengths[changed[0]] / lengths.max()) ** 2, 1e-6)
                costs.append(cost)
        half = len(costs) // 2
        close(costs[:half], costs[half:], 1e-7)
        seen.append(costs)
    return seen


@judge
def engines_take_a_log_alike() -> Any:
    """Before round 1: a noisy sum, or a parameter from what was put into the fields."""
    seen: list[Any] = []
    for label in BANDITS:
        engines = twins(label)
        if BANDITS[label][0] not in ("random", "linucb") and label != "pair, persons":
            noisy = np.linspace(0.5, 1.5, engines[0]._learner.pending_size)
            for engine in engines:
                if "pair" in label:
                    engine.fields()["before"][0] = 10.0
            started = [engine.start(noisy, 2.0) for engine in engines]
            assert started[0] == started[1] == ("anytime" in label or "pair" in label), label
        assert engines[0].conclude() == engines[1].conclude(), label
        alike(engines, seen)
    return seen
