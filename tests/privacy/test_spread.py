"""Users whose contexts are spread: as many rewards as together move sums no further than m would."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bugs.people import spread_ratio, spread_user

import dpbandit as dpb
from dpbandit import files, learning, saving
from dpbandit.auditor.watch import joint_cost, record
from dpbandit.errors import OptionError
from dpbandit.privacy.unit import rows_of, spread

GIVEN = {"dim": 3, "epsilon": 2.0, "delta": 1e-4, "seed": 1}
EARLY = {"first_release": 1, "ratio": 1.1, "knee": 4.0}


def make(most=2, **more):
    return dpb.make("anytime", unit=("spread", most), **(GIVEN | EARLY | more))


def ways(rows, seed=0, dim=3):
    xs = np.random.default_rng(seed).normal(size=(rows, dim))
    return xs / np.linalg.norm(xs, axis=1, keepdims=True)


def test_equal_contexts_are_a_user_with_m_rewards_and_others_are_more():
    assert spread_ratio(xs=np.tile(np.eye(4)[:1], (9, 1))) > 0.9
    bandit = make(3)
    for _ in range(9):
        bandit.update([1.0, 0.0, 0.0], 1.0, user="anna")
    assert (bandit.rounds, bandit.over_cap, bandit.user_counts) == (3, 6, {"anna": 3})
    orthogonal = spread_user(2.1)
    for t in range(12):
        orthogonal.update(np.eye(4)[t % 4], 1.0, user="anna")
    assert (orthogonal.rounds, orthogonal.over_cap) == (4, 8)  # N·λ_max = 4·1


@pytest.mark.parametrize("backend", ["core", "reference"])
@pytest.mark.parametrize("public", [True, False])
def test_a_users_rewards_cost_what_is_claimed_at_most_whichever_way_they_move(backend, public):
    """Among all signs of the moves of those that are learned, the costliest."""
    more = {"public_contexts": ways(20, 9)} if public else {}
    rows = 24 if backend == "core" else 16
    most, costs = 2.5, []
    xs = ways(rows, 4)
    users = ["anna" if t % 2 else f"u{t}" for t in range(rows)]

    def new():
        return make(most, backend=backend, **more)

    bandit = new()
    for x, name in zip(xs, users, strict=True):
        bandit.update(x, 0.0, user=name)
    learned = rows_of(bandit.counters["anna"], 4)
    assert most < len(learned) < 12
    hers = [t for t in range(rows) if users[t] == "anna"]
    rng = np.random.default_rng(5)
    for signs in rng.choice([-9.0, 9.0], size=(12, len(hers))):
        one = np.zeros(rows)
        one[hers] = signs
        first = record(new, xs, one, users=users)
        cost, why = joint_cost(first, record(new, xs, -one, users=users, script=first))
        assert not why
        costs.append(math.sqrt(cost) / bandit.claim.mu)
    assert 0.5 < max(costs) <= 1


def test_the_bound_holds_for_any_weights_and_moves():
    """Δᵀ(K∘G)Δ ≤ N·λ_max(G) for K of diagonal at most 1: by brute force, and attained."""
    rng, most = np.random.default_rng(0), 0.0
    for _ in range(300):
        n, rows, shown = rng.integers(1, 6), int(rng.integers(1, 9)), int(rng.integers(1, 6))
        u = ways(rows, int(rng.integers(1 << 30)), int(n))
        weights = rng.normal(size=(shown, rows))
        weights /= np.linalg.norm(weights, axis=0)
        gram = u @ u.T
        moves = rng.choice([-1.0, 1.0], size=rows)
        square = moves @ ((weights.T @ weights) * gram) @ moves
        most = max(most, square / (rows * np.linalg.eigvalsh(gram)[-1]))
    assert 0.9 < most <= 1 + 1e-12


def test_what_is_counted_is_public_and_no_reward_decides_it(tmp_path):
    xs = ways(30, 6)
    bandits = [make(2), make(2)]
    for bandit, reward in zip(bandits, (1.0, -1.0), strict=True):
        for x in xs:
            bandit.update(x, reward, user="anna")
    assert bandits[0].counters == bandits[1].counters
    assert bandits[0].over_cap == bandits[1].over_cap > 0
    bandits[0].save(tmp_path / "b.npz")
    again = dpb.load(tmp_path / "b.npz")
    assert again.counters == bandits[0].counters
    for each in (bandits[0], again):
        each.update(xs[::-1], np.full(30, 0.5), user=["anna"] * 15 + ["bert"] * 15)
    assert again.counters == bandits[0].counters
    assert np.array_equal(again.theta, bandits[0].theta)
    core, reference = make(2), make(2, backend="reference")
    for each in (core, reference):
        each.update(xs, np.full(30, 0.5), user=["anna", "bert"] * 15)
    assert core.user_counts == reference.user_counts


def test_a_save_that_forgets_where_contexts_pointed_costs_too_much():
    def forgets(bandit, _):
        again = files.unpack(saving.pack(bandit))
        again.counters = {}
        return again

    xs, users = np.tile(np.eye(4), (4, 1)), ["anna"] * 16
    first = record(spread_user, xs, np.full(16, -9.0), users=users, between=forgets)
    two = record(spread_user, xs, np.full(16, 9.0), users=users, between=forgets, script=first)
    assert math.sqrt(joint_cost(first, two)[0]) > 1.5 * spread_user().claim.mu


def test_verify_knows_it():
    given = {"epsilon": 2.0, "delta": 1e-3, "horizon": 60, "dim": 2, "tries": 4, **EARLY}
    found = dpb.verify("anytime", unit=("spread", 2.5), **given)
    assert found.holds
    assert found.worst.ratio > 0.7


@pytest.mark.parametrize("most", [0.5, math.nan, "2", 1001])
def test_what_is_no_such_unit_is_refused(most):
    with pytest.raises(OptionError, match="from 1 to 1,000"):
        make(most)


@pytest.mark.parametrize("name", ["tree-gauss", "dgs", "anytime-joint", "private-linucb", "linucb"])
def test_where_nothing_is_proven_for_it_it_is_refused(name):
    with pytest.raises(OptionError, match="no proof for that unit"):
        dpb.make(name, unit=("spread", 2), horizon=20, **GIVEN)
    assert spread(2).option == ("spread", 2)


def test_logs_and_the_service_refuse_it():
    from dpbandit.service import blueprint

    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": [[0.5, 0.1]] * 4, "reward": [1.0] * 4, "who": list("abcd")})
    given = {"epsilon": 1.0, "delta": 1e-5, "seed": 0, "context": "x", "user": "who"}
    with pytest.raises(OptionError, match="whitener"):
        dpb.warm_start(table, unit=("spread", 2), **given)
    request = {"name": "s", "algorithm": "anytime", "dim": 2, "epsilon": 1.0, "delta": 1e-6}
    request |= {"reward_range": (0, 1), "unit": ("spread", 2)}
    with pytest.raises(OptionError, match="cannot be served"):
        blueprint.normalised(blueprint.Request(**request), max_dim=9)


@pytest.mark.parametrize("backend", ["core", "reference"])
def test_no_decision_falls_between_counting_an_instrument_and_learning_it(monkeypatch, backend):
    """A slate moves the whitener: what is learned would not be what was counted (3.7 × the claim)."""
    bandit = dpb.make(
        "anytime", dim=3, epsilon=1.0, delta=1e-6, unit=("spread", 2), seed=0, backend=backend
    )
    counted, measure = [], learning.instrument

    def interrupted(*given):
        counted.append(measure(*given))
        with pytest.raises(dpb.errors.BudgetError):
            bandit.select(1e-3 * np.eye(3))
        return counted[-1]

    monkeypatch.setattr(learning, "instrument", interrupted)
    for t in range(3):
        bandit.update(np.eye(3)[t] / 2, 1.0, user="u")
        learned = bandit.state.engine.copy().fields()["instrument"]
        np.testing.assert_array_equal(learned, counted[-1])
