"""Judges of bandits over time: saved and loaded, over hundreds of rounds, from logs, in a fork.

Importing this module adds them to `judges.JUDGES`.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import pathlib
import pickle
import tempfile
import types
from typing import Any

import numpy as np
from judges import (
    BANDITS,
    HALVES,
    ROUNDS,
    Drawn,
    between,
    budget_of,
    close,
    judge,
    len_most,
    made,
    noises,
    play,
    pool,
    refused,
    slates,
    state_of,
    with_drawn,
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


def twins(label: str, **options: Any) -> Any:
    """Both engines of a bandit."""
    return [made(label, backend=b, **options).engine for b in ("reference", "core")]


def alike(engines: Any, seen: list[Any]) -> None:
    """What is released, counted and summed up is the same in both."""
    wholes = []
    for engine in engines:
        fields = {name: np.array(field) for name, field in engine.fields().items()}
        found = {name: fields[name] for name in COUNTED & set(fields)}
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


# What runs in the child alone, where nobody watches.
a_forked_copy_does_not_learn.reaches = {"bandit:_in_a_forked_child"}  # type: ignore[attr-defined]


@judge
def pan_private_nodes_begin_with_real_noise() -> Any:
    """What lies in memory after a context of zeros is the first noise of every node."""
    seen: list[Any] = []
    for label, backend in itertools.product(
        ("gauss, pan-private", "laplace, pan-private"), ("core", "reference")
    ):

        def run(label: str = label, backend: str = backend) -> Any:
            bandit, drawn = made(label, seed=None, backend=backend), []
            for t in range(1, 7):
                bandit.update(np.zeros(3), 0.3)
                starts = bandit.release.place(t)
                begun = [n for n in range(starts.levels) if (starts.position - 1) % (1 << n) == 0]
                rows = np.asarray(bandit.engine.fields()["sums_low"])
                for level in begun:
                    assert rows[level].tolist() == [3, 2, 1], (label, t, level)
                asked = [one[2] * STEP for one in Drawn.asked[sum(drawn) :][: len(begun)]]
                close(asked, [bandit.release.scale(t)] * len(begun), 1e-6)
                drawn.append(len(begun) + 1)
            assert len(Drawn.asked) == sum(drawn)
            scales = [asked[2] for asked in Drawn.asked]
            return scales, np.array(bandit.theta)

        seen.append(with_drawn(run))
    return seen


@judge
def pairs_have_the_numbers_of_the_documentation() -> Any:
    import dpbandit as dpb

    given = {"dim": 3, "epsilon": 1.5, "delta": 1e-4, "reward_range": (0.25, 1.75), "seed": 0}
    bandit = dpb.make("anytime-joint", **given)
    release, knee = bandit.release, 45 * 3 * 2 * 0.375 / bandit.claim.mu
    assert (release.dim, release.n, release.ratio) == (14, 4, 1.025)
    close(release.knee, knee, 1e-9)
    assert (release.first, release.change) == (math.ceil(0.09 * knee), math.ceil(0.18 * knee))
    close(release.sensitivity, 1 + 2e-9 + math.sqrt(14) * STEP, 1e-15)
    assert (release.growth, release.versions) == (3.0, 8)
    assert (release.first_eta2, release.later_eta2) == (0.25, 0.125)
    close(bandit.spec["window"], 0.375 * 1.5, 1e-15)
    close(bandit.spec["reward_variance"], 1.5**2 / 16, 1e-15)
    assert bandit.values_depend_on_releases
    assert bandit.contexts_are_private
    tiny = dpb.make("anytime-joint", **given, knee=0.1, first_release=7)
    assert (tiny.release.knee, tiny.release.first, tiny.release.change) == (0.1, 7, 1)
    assert dpb.make("anytime-joint", **given, knee=0.1).release.first == 1
    assert dpb.make("anytime-joint", **given, knee=1e12).release.knee == 1e9
    for wrong in ({"window": 1.1}, {"ratio": 1.0}, {"ratio": 10.5}, {"context_noise": 0.1}):
        refused("OptionError", lambda w=wrong: dpb.make("anytime-joint", **given, **w))
    real = dpb.make("anytime-joint", **{**given, "seed": None})
    numbers = 14 * (len_most(1.025) + 1)
    close(real.release.budget, noises()["gaussian"].budget(real.options, numbers), 1e-15)
    # Of people: each of so many small moves may be rounded, and persons' residuals reach to C.
    for label, n, items in (
        ("pair, persons", 14, 2**20),
        ("anytime, persons", 4, 2**20),
        ("gauss, persons", 3, 2**20),
        ("anytime, spread", 4, 3),
    ):
        found = made(label).release.sensitivity
        close(found - 1 - 2e-9, 1.001 * items * math.sqrt(n) * STEP, 1e-9, 1e-15)
    person = made("pair, persons", unit=("person", 2.5), knee=None)
    close(person.release.knee, 45 * 3 * 2 * 2.5 / 1.25 / person.claim.mu, 1e-9)
    assert (person.release.first_eta2, person.release.later_eta2) == (0.125, 0.125)
    assert (person.spec["reach"], person.spec["window"]) == (2.5, 1.25)
    assert bandit.spec["reach"] == bandit.spec["window"]
    assert (person.release.persons, release.persons) == (True, False)
    return [release.scale, real.release.budget]


@judge
def nobody_copies_a_bandit() -> Any:
    bandit = made("gauss")
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        refused("BudgetError", lambda c=call: c(bandit))
    log, people = types.SimpleNamespace(learned=5), bandit.people
    assumed = len(bandit.claim.assumptions)
    bandit.remember(log, people)
    assert bandit.log is log
    assert bandit.people is people
    assert len(bandit.claim.assumptions) == assumed + 1
    return bandit.theta


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


@judge
def people_are_counted_by_what_was_learned_of_them() -> Any:
    """Whole steps of a residual up to the reach; of spread users the instruments that were used."""
    from dpbandit.privacy.unit import rows_of

    seen: list[Any] = []
    for prediction, reward in ((0.0, 9.0), (1.25, -9.0), (0.0, 0.3), (1.25, 1.1)):
        for counted in (0, 1, 2, 500, 2**19, 2**20, 2**20 + 1):
            for engine in twins("pair, persons"):
                engine.fields()["estimate"][:] = [0.0, 0.0, 0.0, prediction]
                engine.prepare(np.zeros(3), reward, True, counted)
                # Of length 1 where √2 is usual; the window and the reach are the range, 1.25.
                residual = min(max(reward, 0.0), 1.25) - prediction
                share = min(abs(residual) * math.sqrt(2) / 1.25, 1.0)
                steps = min(int(share * 2**20), 2**20 - max(counted - 1, 0))
                assert engine.growth == steps + (counted == 0), (reward, counted)
                seen.append(engine.growth)
                # Who comes next is a stranger, if nobody says otherwise.
                engine.prepare(np.zeros(3), reward, True)
                assert engine.growth == min(int(share * 2**20), 2**20) + 1
    for backend in ("core", "reference"):
        bandit, learned = made("anytime, spread", backend=backend), []
        for slate in slates(bandit, 14):
            before = bandit.rounds
            bandit.update(slate[0], 0.4, user="anna")
            if bandit.rounds > before:
                learned.append(np.array(bandit.engine.fields()["instrument"]))
            close(rows_of(bandit.counters["anna"], 4), learned, 0.0)
        assert 2 < len(learned) < 14
        seen.append(len(learned))
    return seen


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


STEP, ZETA = 2.0**-40, 0.05


def numbers_of(label: str, **options: Any) -> Any:
    return made(label, **options).spec


@judge
def designs_have_the_numbers_of_the_documentation() -> Any:
    """What engines are given, by the formulas of docs/privacy.md and the defaults of `dpb.make`."""
    seen: list[Any] = []
    for label, norm, one in (
        ("laplace", 1, math.sqrt(3)),
        ("gauss", 2, 1.0),
        ("laplace-l2", 2, 1.0),
    ):
        spec = numbers_of(label)
        exact = one * (1 + 2e-9) + STEP * (3 if norm == 1 else math.sqrt(3))
        close(spec["sensitivity"], exact, 1e-15)
        assert spec["l1_limit"] == math.inf
        seen.append(spec["sensitivity"])
    longest = np.abs(pool()).sum(axis=1).max()
    for label, options in (("laplace, known", {}), ("laplace, known", {"max_norm": 2.0})):
        spec = numbers_of(label, **options)
        close(spec["l1_limit"], longest, 1e-15)
        most = options.get("max_norm", 1.0)
        close(spec["sensitivity"], longest / most * (1 + 2e-9) + 3 * STEP, 1e-15)
    assert numbers_of("laplace, known", context_noise=0.1)["l1_limit"] == math.inf
    assert numbers_of("laplace, known", noise="gaussian")["l1_limit"] == math.inf
    short = numbers_of(
        "laplace, known", max_norm=0.9, public_contexts=np.full((1, 3), 0.9 / math.sqrt(3))
    )
    close(short["l1_limit"], 0.9 * math.sqrt(3), 1e-12)
    for label, norm in (("dgs", 2), ("dgs, laplace, ball", 1)):
        bandit = made(label)
        exact = (1 + 2e-9 + STEP * (3 if norm == 1 else math.sqrt(3))) * bandit.options.width
        close(bandit.spec["sensitivity"], exact, 1e-15)
    assert len(numbers_of("dgs, known")["public_arms"]) == 12
    assert len(numbers_of("dgs, known", context_noise=0.1)["public_arms"]) == 0
    close(numbers_of("local")["sensitivity"], 1 + 2e-9 + STEP, 1e-15)
    arms = numbers_of("arms")
    close(arms["sensitivity"], 1 + 2e-9 + STEP, 1e-15)
    assert (arms["privacy_bonus"], arms["published_term"], arms["failure"]) == (0.75, False, ZETA)
    published = numbers_of("arms, split")
    assert (published["privacy_bonus"], published["published_term"]) == (0.0, True)
    for noise, power in (("laplace", 1), ("gaussian", 2)):
        whole, split = (
            numbers_of("arms", noise=noise, split_budget=flag)["multipliers"]
            for flag in (False, True)
        )
        close(split, whole * 3 ** (1 / power), 1e-12)
    assert numbers_of("arms", privacy_bonus=0.0)["privacy_bonus"] == 0.0
    batches = made("batches", ratio=1.25, first_release=None)
    assert (batches.spec["alpha"], batches.spec["reward_variance"]) == (1.0, 0.0)
    assert made("batches", alpha="theory").spec["alpha"] == 1.0
    for epsilon, first in ((1.0, 11), (0.1, 113), (90.0, 1)):
        assert numbers_of("batches", epsilon=epsilon, first_release=None)["first"] == first
        found = numbers_of("batches", epsilon=epsilon)
        close(found["scale"], (1 + 2e-9 + STEP) / epsilon, 1e-15)
    assert numbers_of("batches, gauss")["ratio"] == 1.25
    close(numbers_of("episodes")["growth"], math.log(2), 1e-15)
    close(numbers_of("episodes", determinant_growth=0.4)["growth"], math.log(1.4), 1e-15)
    for real in (False, True):
        seed = {"seed": None} if real else {}
        assert made("toeplitz", **seed).release.real == real
    assert made("toeplitz").release.dim == 3
    import dpbandit as dpb

    given = {"dim": 3, "epsilon": 1.5, "delta": 1e-4, "reward_range": (0.25, 1.75), "seed": 0}
    plain = dpb.make("anytime", local="never", find_scale=False, **given)
    release, mu = plain.release, plain.claim.mu
    assert (release.ratio, release.dim) == (1.025, 4)
    answers = dpb.make("anytime", find_scale=False, **given)
    assert (answers.claim.notion, answers.claim.mu) == ("parallel", None)
    variance = 1 / math.tanh(0.75) ** 2 / 4
    assert answers.spec["local"] == math.floor(2 * 4 / (mu * mu * variance))
    close(answers.spec["local_variance"], 4 * variance * (0.375 * 1.5) ** 2, 1e-12)
    close(release.knee, 45 * 3 * 2 * 0.375 / mu, 1e-9)
    assert release.first == max(1, math.ceil(release.knee / 20))
    close(release.sensitivity, 1 + 2e-9 + 2 * STEP, 1e-15)
    usual = plain.spec
    close(usual["window"], 0.375 * 1.5, 1e-15)
    close(usual["reward_variance"], 1.5**2 / 16, 1e-15)
    assert usual["first"] == release.first
    assert (usual["empirical_bayes"], usual["neglected"]) == (True, True)
    assert usual["memories"].tolist() == [27_000, 9_000, 4_000, 2_000, 1_000]
    assert usual["life"] == release.life == 10_000
    slow = dpb.make("anytime", dim=3, epsilon=1.5, delta=1e-4, knee=1e5, seed=0).release
    assert (slow.life, slow.first) == (12e5, 5_000)
    close(made("anytime, known", knee=1e12).release.knee, 1e9, 1e-15)
    for label, options, centre, furthest, share in (
        ("joint", {}, 0.0, 1.75, 1.0),
        ("joint, centred", {}, 1.0, 0.75, 1.0),
        (
            "joint",
            {"reward_weight": 0.5, "max_norm": 2.0, "ridge": 0.3, "shift": 1.5},
            0.0,
            1.75,
            0.5,
        ),
        ("joint", {"reward_range": (-3.0, 1.0)}, 0.0, 3.0, 1.0),
    ):
        spec = numbers_of(label, **options)
        most = options.get("max_norm", 1.0)
        close(spec["size"], most**2 * (1 + share), 1e-15)
        close(spec["reward_weight"], math.sqrt(share) * most / furthest, 1e-15)
        assert spec["reward_centre"] == centre
        assert spec["shift"] == options.get("shift", 2.0)
        assert spec["ridge"] == options.get("ridge", 1.0)
        close(spec["log_rounds"], math.log(4 * ROUNDS / ZETA), 1e-15)
        margin = 4e-9 + 2 * math.sqrt(10) * STEP
        close(spec["sensitivity"], math.sqrt(2) * (1 + margin), 1e-15)
    wishart = numbers_of("joint, wishart")
    rounded = 2 * 4 * math.sqrt(10) * STEP / 2
    close(wishart["size"], 2 * (1 + 4e-9 + 2 * math.sqrt(10) * STEP + rounded), 1e-15)
    assert wishart["sensitivity"] == 1.0
    close(numbers_of("joint, unknown horizon")["log_rounds"], math.log(4 / ZETA), 1e-15)
    for label, said in (("joint", False), ("joint, wishart", True)):
        assert any("quadrature" in words for words in made(label).claim.assumptions) == said
    second = pool().T @ pool() / 12
    for label, longest_of in (("gauss, ellipsoid", True), ("gauss, instruments", False)):
        spec = numbers_of(label)
        shape, back = np.asarray(spec["shape"]), np.asarray(spec["unshape"])
        close(shape @ back, np.eye(3), 1e-9, 1e-9)
        values, vectors = np.linalg.eigh(second)
        roots = np.sqrt(values + 1e-4 * values.mean())
        close(shape, vectors / roots @ vectors.T, 1e-9, 1e-12)
        floor = np.linalg.norm(pool() @ shape, axis=1).max() if longest_of else 0.0
        close(spec["floor"], floor, 1e-12)
    flat = np.array([[1.0, 0.0, 0.0]])
    spec = numbers_of("gauss, instruments", public_contexts=flat)
    assert np.isfinite(np.asarray(spec["shape"])).all()
    for label, notion in (
        ("dgs published", "approximate"),
        ("dgs figure", "none"),
        ("linucb", "none"),
    ):
        assert made(label).claim.notion == notion
    assert numbers_of("dgs published")["form"] == "simplified"
    for name, options in (("clips", {"clip_rewards": True}), ("clips", {})):
        assert numbers_of("linucb", **options)[name] == bool(options)
    assert made("gauss").alpha == 0.3
    seen.append(str(sorted(numbers_of("gauss"))))
    return seen


@judge
def the_table_of_algorithms_is_whole() -> Any:
    import dpbandit as dpb
    from dpbandit.algorithms import registry
    from dpbandit.model import FORMAT

    assert FORMAT == 2
    seen = []
    for name, line in dpb.algorithms().items():
        for words in (line.description, line.claim, line.reference):
            assert isinstance(words, str)
            assert len(words) > 3
        assert callable(line.factory)
        assert isinstance(line.own_options, tuple)
        assert line.one_hot == (name in ("private-ucb", "dp-klucb"))
        assert not line.registered_by_user
        assert not line.black_box
        proven = made_claim(name)
        assert ("proven" in line.claim and "not proven" not in line.claim) == (
            proven == "proven"
        ), name
        seen.append(f"{line.description} {line.claim} {line.reference} {line.own_options}")
    assert registry.find("dgs").own_options == ("smallest_eigenvalue",)
    model = made("gauss").model()
    assert model.dim == 3
    close(model.theta, np.zeros(3))
    return seen


def made_claim(name: str) -> str:
    label = next(label for label, (algorithm, _, _) in BANDITS.items() if algorithm == name)
    return str(made(label).claim.status)


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
