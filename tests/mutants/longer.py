"""Judges of bandits over time: saved and loaded, over hundreds of rounds, from logs, in a fork.

Importing this module adds them to `judges.JUDGES`.
"""

from __future__ import annotations

import itertools
import math
import os
import pathlib
import tempfile
from typing import Any

import numpy as np
from judges import (
    BANDITS,
    HALVES,
    ROUNDS,
    between,
    close,
    judge,
    made,
    noises,
    play,
    pool,
    refused,
    slates,
    state_of,
)


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


@judge
def files_go_on_as_if_nothing_had_happened() -> Any:
    import dpbandit as dpb

    seen: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        for label in ("gauss", "linucb perturbed", "anytime", "laplace, users"):
            path = str(pathlib.Path(folder) / "bandit.npz")
            part, offered = made(label), None
            if "perturbed" in label:
                offered = slates(part, 1)[0]
                part.select(offered)
            else:
                play(part, 6)
            part.save(path)
            back = dpb.load(path, receipt=part.receipt())
            assert state_of(back) == state_of(part)
            assert back.ledger.to_dict() == part.ledger.to_dict()
            assert back.user_counts == part.user_counts
            x = slates(part, 1)[0][1] if offered is None else offered[part.select(offered)]
            if offered is not None:
                back.select(offered)
            for bandit in (back, part):
                bandit.update(x, 0.7, **({"user": "u9"} if "users" in label else {}))
            close(back.theta, part.theta, 1e-12, 1e-13)
            if label == "gauss":
                refused("RollbackError", lambda b=back, p=path: dpb.load(p, receipt=b.receipt()))
            back.export(path + ".json")
            close(dpb.load(path + ".json").view.theta, back.theta, 0.0)
            seen.append(back.theta)
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
            budget = bandit.claim.mu**2 if bandit.claim.mu else bandit.claim.epsilon
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
def a_forked_copy_does_not_learn() -> Any:
    bandit, quiet = made("gauss", backend="core"), made("linucb", backend="core")
    quiet.update([0.1, 0.2, 0.3], 0.5)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for copy in (bandit, quiet):
                refused("BudgetError", lambda c=copy: c.update([0.1, 0.2, 0.3], 0.5))
            refused("BudgetError", lambda: bandit.update([[0.1, 0.2, 0.3]] * 2, [0.5] * 2))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    bandit.update([0.1, 0.2, 0.3], 0.5)
    return bandit.theta


@judge
def propensities_are_of_what_is_played() -> Any:
    bandit = made("thompson")
    play(bandit, 5)
    slate = slates(bandit, 1)[0]
    found = bandit.propensities(slate[:2], seed=1).probabilities
    close(found.sum(), 1.0, 1e-12)
    picked = np.bincount([bandit.select(slate[:2]) for _ in range(600)], minlength=2) / 600
    close(picked, found, 0.0, 0.09)
    refused("PropensityError", lambda: made("gauss").propensities(slate))
    refused("PropensityError", lambda: made("thompson", context_noise=0.1).propensities(slate))
    assert made("anytime").values_depend_on_releases
    assert not made("gauss").values_depend_on_releases
    return found


@judge
def ways_of_a_bandit() -> Any:
    """Its keys, its short way, what it counts, and the width of its bonus."""
    from dpbandit.design import keys_for
    from dpbandit.reference.random import CONTEXTS, START, TIES, derive_key

    assert keys_for(4) == {purpose: derive_key(4, purpose) for purpose in (TIES, CONTEXTS, START)}
    for label, short in (("gauss", True), ("gauss, users", False), ("linucb", False)):
        assert made(label, backend="core").short_way == short
        assert not made(label, backend="reference").short_way
    clear, counted, told = made("linucb", backend="core"), made("gauss"), made("gauss, theory")
    clear.update([0.1, 0.2, 0.3], 0.5)
    assert clear.short_way
    counted.update([[0.1, 0.2, 0.3]] * 3, [9.0, 0.5, -9.0])
    assert counted.clipped == 2
    told.update([0.1, 0.2, 0.3], 0.5)
    slate, width = slates(told, 1)[0], float(told.alphas(2, 1)[0])
    assert width == told.design.theory(np.array([2.0]))[0]
    scores = told.policy.scores(told.model().view, slate, width, told.keys[TIES], 0)
    assert told.select(slate, k=4).tolist() == np.argsort(-scores).tolist()
    assert told.select(slate) == int(np.argmax(scores))
    assert told.model().alpha == width
    for wrong in (0, 5, 1.5, True, "2"):
        refused("OptionError", lambda w=wrong: told.select(slate, k=w))
    return [width, scores]


@judge
def densities_of_both_engines() -> Any:
    from dpbandit import _core as core
    from dpbandit.reference import random

    rng, seen = np.random.default_rng(3), []
    inside = 40.0 * np.array([1.0, 0, 0, 1, 0, 1])  # a packed matrix that is positive
    for name, noise in noises().items():
        for scale in (30.0, 0.0):
            y, zero, one = rng.normal(size=(3, 6))
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
