"""Judges of what is let in and what is refused."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np

from judges.bandits import made, play, pool, slates, state_of
from judges.common import EPSILON, between, close, judge, refused


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
def refusals_say_what_was_wrong() -> Any:
    """Which error a code becomes, and its words: those of the gate where the gate finds the same."""
    from dpbandit import codes
    from dpbandit.engine import refuse

    def said(label: str, code: int, rows: Any, *count: int, **options: Any) -> str:
        try:
            refuse(made(label, **options), code, np.array(rows), *count)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    good, long = [[0.6, 0.0, 0.8]], [[3.0, 0.0, 4.0]]
    known = said("gauss, theory", codes.HORIZON, good * 2, horizon=5)
    assert "horizon = 5 and has learned 0 rewards; 2 more" in known
    assert "; 7 more" in said("gauss, theory", codes.HORIZON, good * 2, 7, horizon=5)
    unknown = said("gauss, theory", codes.HORIZON, good * 2, horizon=None)
    assert unknown.startswith("HorizonError: this bandit has learned 0 rewards, and 2 more")
    assert "has norm 5, above max_norm = 1" in said("laplace", codes.TOO_LONG, long)
    rounded = said("laplace", codes.TOO_LONG, good)
    assert rounded == "NormError: a context has a norm above max_norm"
    others = [codes.REWARD_NOT_FINITE, codes.BUSY, codes.FORKED, -99]
    kinds = [said("laplace", code, good).partition(":")[0] for code in others]
    assert kinds == ["NotFiniteError", "BudgetError", "BudgetError", "RuntimeError"]
    return [known, unknown, rounded]
