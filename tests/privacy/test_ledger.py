"""The ledger at work: it is asked first, it refuses, the bandit still ranks, and an old save is
recognised."""

import copy

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.errors import BudgetError, RollbackError
from dpbandit.privacy.ledger import Ledger

X = np.array([[1.0, 0.0], [0.0, 1.0]])


def bandit(**given):
    return dpb.make(
        "tree-gauss",
        **({"dim": 2, "epsilon": 1.0, "delta": 1e-4, "horizon": 64, "seed": 2} | given),
    )


def test_a_refused_release_learns_nothing_and_the_last_model_still_ranks():
    b = bandit()
    for t in range(20):
        b.update(X[t % 2], 0.5)
    b.ledger.limit = b.ledger.total  # spent: the next new level is not affordable
    for t in range(20, 31):
        b.update(X[t % 2], 0.5)  # levels already paid for
    theta, state = b.theta, copy.deepcopy(b.engine.fields())
    with pytest.raises(BudgetError, match="would bring the total"):
        b.update(X[0], 0.5)
    assert (b.theta == theta).all()
    now = b.engine.fields()
    assert all((now[name] == before).all() for name, before in state.items())
    assert b.select(X) in (0, 1)


def test_the_ledger_is_asked_before_noise_is_drawn():
    b = bandit()
    asked, after = [], Ledger.after

    class Spy:
        kind = "simulation"

        def release(self, noise, pending, *, scale, shift, index):
            asked.append("noise")
            return pending.values

    def spied(ledger, cost, **given):
        asked.append("ledger")
        return after(ledger, cost, **given)

    b.source = Spy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "after", spied)
        b.update(X, [0.1, 0.2])
    assert asked == ["ledger", "noise"] * 2
    b.ledger.limit = b.ledger.total
    b.update(X[0], 0.1)
    del asked[:]
    with pytest.raises(BudgetError):
        b.update(X[0], 0.1)  # a third level
    assert asked == []


def test_the_table_for_a_reviewer_says_when_what_cost_and_total():
    b = bandit(horizon=None)
    for t in range(10):
        b.update(X[t % 2], 0.5)
    table = b.ledger.table()
    assert {"when", "what", "cost", "total", "releases", "currency"} <= set(table[0])
    assert sum(row["releases"] for row in table) == 10
    for block in {row["group"] for row in table}:
        rows = [row for row in table if row["group"] == block]
        assert rows[-1]["total"] <= b.ledger.limit * (1 + 1e-12)


def test_unknown_horizons_never_overdraw_however_long_they_run():
    b = bandit(horizon=None)
    for t in range(300):
        b.update(X[t % 2], 0.5)
    assert b.ledger.total <= b.ledger.limit * (1 + 1e-12)
    assert b.spent.epsilon <= 1.0


def test_an_older_save_of_the_same_bandit_is_recognised(tmp_path):
    b = bandit()
    b.update(X, [0.1, 0.2])
    b.save(tmp_path / "old")
    b.update(X, [0.3, 0.4])
    b.save(tmp_path / "new")
    receipt = b.receipt()
    assert dpb.load(tmp_path / "new", receipt=receipt).rounds == 4
    with pytest.raises(RollbackError, match="old save: it has 2 releases, and 4 have been made"):
        dpb.load(tmp_path / "old", receipt=receipt)


def test_two_copies_that_went_on_apart_are_told_apart(tmp_path):
    b = bandit(seed=None, delta=1e-3)
    b.update(X[0], 0.1)
    b.save(tmp_path / "one")
    clone = dpb.load(tmp_path / "one")
    b.update(X[0], 0.2)
    clone.update(X[0], 0.2)
    clone.save(tmp_path / "two")
    with pytest.raises(RollbackError, match="two copies"):
        dpb.load(tmp_path / "two", receipt=b.receipt())


def test_a_receipt_of_another_bandit_does_not_fit(tmp_path):
    b = bandit()
    b.save(tmp_path / "one")
    with pytest.raises(RollbackError, match="not the receipt's bandit"):
        dpb.load(tmp_path / "one", receipt=bandit().receipt())


def test_the_fingerprint_follows_every_release():
    a, b = bandit(), bandit()
    prints = set()
    for t in range(5):
        a.update(X[t % 2], 0.5)
        b.update(X[t % 2], 0.5)
        assert a.ledger.fingerprint == b.ledger.fingerprint
        prints.add(a.ledger.fingerprint)
    assert len(prints) == 5
    b.update(X[0], 0.5)
    a.update(X[1], 0.5)
    assert a.ledger.fingerprint != b.ledger.fingerprint
