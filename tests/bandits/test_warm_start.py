"""A log becomes a bandit: sums are right, bad rows counted, users capped, and nothing half done."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbandit as dpb
from dpbandit.algorithms import registry
from dpbandit.engine import has_core
from dpbandit.errors import LogError, LogWarning, OptionError
from dpbandit.learners.bank import Bank
from dpbandit.learners.filter import Filter
from dpbandit.logs import enter, sums
from dpbandit.logs.record import People, hash_name
from dpbandit.logs.users import Tally
from dpbandit.privacy.grid import STEP
from dpbandit.privacy.sources import Pending, Real, Simulation
from dpbandit.warmstart import source as sources
from dpbandit.warmstart.start import learn_log

BACKENDS = ["core", "reference"]
needs_core = pytest.mark.skipif(not has_core(), reason="there is no compiled core here")
PRIVATE = {"epsilon": 1.0, "delta": 1e-6}
D = 4


def contexts(n, seed=0, dim=D):
    x = np.random.default_rng(seed).random((n, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def log_of(n=2000, seed=0, *, layout="fixed", kind=np.float64, **more):
    rng = np.random.default_rng([seed, 1])
    x = contexts(n, seed).astype(kind)
    theta = np.array([0.8, 0.5, 0.3, 0.1])
    r = x @ theta + rng.normal(size=n) / 4
    flat = pa.array(x.ravel())
    if layout == "fixed":
        columns = {"context": pa.FixedSizeListArray.from_arrays(flat, D)}
    elif layout == "list":
        columns = {
            "context": pa.ListArray.from_arrays(
                pa.array(np.arange(0, n * D + 1, D), pa.int32()), flat
            )
        }
    else:
        columns = {name: pa.array(np.ascontiguousarray(x[:, i])) for i, name in enumerate("abcd")}
    return pa.table({**columns, "reward": r, **more}), x.astype(np.float64), r


def ridge(x, r):
    return np.linalg.solve(np.eye(x.shape[1]) + x.T @ x, x.T @ r)


@pytest.mark.parametrize("layout", ["fixed", "list", "columns"])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_linucb_from_a_log_is_ridge_regression_on_it(layout, kind):
    table, x, r = log_of(layout=layout, kind=kind)
    bandit = dpb.warm_start(
        table, "linucb", context=list("abcd") if layout == "columns" else "context", seed=0
    )
    assert bandit.log.learned == 2000
    assert bandit.theta == pytest.approx(ridge(x, r), abs=1e-12)
    more, rewards = contexts(50, 9), np.linspace(-1, 1, 50)
    bandit.update(more, rewards)
    assert bandit.theta == pytest.approx(
        ridge(np.vstack([x, more]), np.append(r, rewards)), abs=1e-11
    )


MOMENTS = ["tree-gauss", "toeplitz", "private-linucb", "private-ts", "dgs"]


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_without_noise_the_log_and_online_rewards_give_ridge_regression_on_both(name, backend):
    """So the log's sums are where the algorithm keeps what was released before round 1, also when
    blocks end, and whatever the middle of the range is.
    """
    table, x, r = log_of()
    given = {"epsilon": math.inf, "delta": 1e-6, "seed": 0, "backend": backend, "max_norm": 2.0}
    for horizon, limits in ((40, (-3, 3)), (None, (-3, 5))):
        bandit = dpb.warm_start(table, name, horizon=horizon, reward_range=limits, **given)
        more, rewards = contexts(40, 9), np.linspace(-1, 1, 40)
        assert bandit.theta == pytest.approx(ridge(x, r), abs=1e-11)
        bandit.update(more, rewards)
        both = ridge(np.vstack([x, more]), np.append(r, rewards))
        assert bandit.theta == pytest.approx(both, abs=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("limits", [(-3, 3), (-3, 5)])
def test_shaped_sums_solve_their_own_equations(backend, limits):
    table, x, r = log_of()
    given = {"epsilon": math.inf, "delta": 1e-6, "horizon": 10, "seed": 0, "backend": backend}
    shaped = dpb.warm_start(table, "toeplitz", shape="instruments", reward_range=limits, **given)
    weights = 1 / np.linalg.norm(x @ shaped.design.settings["shape"].T, axis=1)
    weighted = x * weights[:, None]
    a = np.eye(D) / math.sqrt(D) + weighted.T @ x
    assert shaped.theta == pytest.approx(np.linalg.solve(a, weighted.T @ r), abs=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_log_enters_the_anytime_filter_as_its_rows_one_by_one_would(backend):
    table, x, r = log_of(300)
    low, high = -0.5, 1.5
    given = {"reward_range": (low, high), "epsilon": 50.0, "delta": 1e-3, "seed": 3}
    bandit = dpb.warm_start(table, backend=backend, **given)
    again = registry.construct("anytime", {"dim": D, "backend": backend, **given})
    recipe = enter.prepare(again, x, 1e-9).recipe
    one, total = Filter(D + 1), np.zeros(D + 1)
    for row, reward in zip(x, np.clip(r, low, high), strict=True):
        u = recipe.whitener @ np.append(row / recipe.size, 1.0)
        u /= np.linalg.norm(u)
        one.see(np.append(row, 1.0), u, 0.5, 0.5)
        total += 0.5 * (reward - 0.5) * u
    found = sums.new_sums(recipe)
    sums.absorb(x, r, np.zeros(300, np.uint8), recipe, found)
    assert np.array(found.whole) * STEP == pytest.approx(total, abs=300 * STEP)
    scale = enter.shift(again, recipe, found) / math.sqrt(again.ledger.limit)
    clean = Pending(np.array(found.whole) * STEP)
    noisy = again.source.release("gaussian", clean, scale=scale, shift=1.0, index=0)
    said = one.learn(noisy, 1.0, 0.0, scale, again.spec["reward_variance"])
    bank = Bank(D + 1, again.spec["memories"])
    bank.learn(*said, 0.0, (np.eye(D + 1), np.zeros(D + 1)), first=True)
    fields, own = bandit.engine.fields(), bank.fields()
    for name in ("information_root", "target"):
        assert fields[name] == pytest.approx(own[name], rel=1e-8, abs=1e-8)


@needs_core
@pytest.mark.parametrize("name", ["anytime", "adac-oful", "linucb", *MOMENTS])
def test_both_engines_start_from_a_log_alike(name):
    table, x, _ = log_of(500)
    given = {"horizon": 30, "reward_range": (0, 1.5), "seed": 0}
    given |= {} if name == "linucb" else PRIVATE
    one, two = (dpb.warm_start(table, name, backend=backend, **given) for backend in BACKENDS)
    for bandit in (one, two):
        bandit.update(x[:25], np.linspace(0, 1, 25))
    assert one.theta == pytest.approx(two.theta, abs=1e-9)
    assert (one.clipped, one.log) == (two.clipped, two.log)


def test_files_threads_and_layout_change_nothing_that_matters(tmp_path, monkeypatch):
    table, _, _ = log_of(30_000)
    monkeypatch.setattr(sources, "PART", 4_000)
    for i in range(3):
        pq.write_table(
            table.slice(i * 10_000, 10_000), tmp_path / f"{i}.parquet", row_group_size=1_700
        )
    given = {**PRIVATE, "reward_range": (-0.5, 1.5), "seed": 0}
    one = dpb.warm_start(tmp_path, workers=1, **given)
    three = dpb.warm_start(str(tmp_path / "*.parquet"), workers=3, **given)
    listed = dpb.warm_start([tmp_path / f"{i}.parquet" for i in (2, 0, 1)] + [tmp_path], **given)
    assert len(sources.open_log(tmp_path).parts) == 6
    assert one.log == three.log == listed.log
    assert one.theta.tobytes() == three.theta.tobytes() == listed.theta.tobytes()
    public = {"public_contexts": contexts(100)}
    assert dpb.warm_start(table, **given, **public).theta == pytest.approx(
        dpb.warm_start(tmp_path, **given, **public).theta, abs=1e-9
    )


def test_columns_are_found_by_name_wherever_they_stand_in_the_file(tmp_path):
    table, x, r = log_of(50, layout="columns")
    pq.write_table(table.select(["reward", "d", "b", "a", "c"]), tmp_path / "log.parquet")
    bandit = dpb.warm_start(tmp_path, "linucb", context=list("abcd"), seed=0)
    assert bandit.theta == pytest.approx(ridge(x, r), abs=1e-12)


def test_a_delta_that_protects_nobody_in_the_log_is_warned_of():
    table, _, _ = log_of(2000)
    with pytest.warns(dpb.errors.PrivacyWarning, match="above 1/2,000"):
        dpb.warm_start(table, "tree-gauss", epsilon=1.0, delta=1e-3, seed=0)


def test_bad_rows_are_counted_by_kind_and_never_guessed():
    good = [0.1, 0.2]
    rows = [
        (good, 1.0, "a"),
        (None, 1.0, "a"),
        ([0.1, None], 1.0, "a"),
        ([0.1], 1.0, "a"),
        ([0.1, 0.2, 0.3], 1.0, "a"),
        ([math.nan, 0.0], 1.0, "a"),
        ([math.inf, 0.0], 1.0, "a"),
        ([3.0, 0.0], 1.0, "a"),
        (good, None, "a"),
        (good, math.nan, "a"),
        (good, -math.inf, "a"),
        (good, 1.0, None),
        (good, 0.5, "b"),
    ]
    x, r, who = zip(*rows, strict=True)
    table = pa.table(
        {
            "context": pa.array(x, pa.list_(pa.float64())),
            "reward": pa.array(r, pa.float64()),
            "who": who,
        }
    )
    given = {"user": "who", "unit": ("user", 5), "horizon": 9, "seed": 0, "least_used": 0}
    with pytest.warns(LogWarning, match="4 of 13 rows learned from"):
        bandit = dpb.warm_start(table, "tree-gauss", **given, **PRIVATE)
    assert bandit.log.learned == 4  # rewards that are no numbers stand in the middle
    assert bandit.clipped == 2
    assert bandit.log.rows == 13
    assert bandit.log.users == 2
    assert {kind: count for kind, count in bandit.log.bad.items() if count} == {
        "context missing": 2,
        "context of another length": 2,
        "context not finite": 2,
        "context longer than max_norm": 1,
        "reward missing": 1,
        "user missing": 1,
    }
    with pytest.warns(LogWarning, match="6 of 13"):
        with_default = dpb.warm_start(table, "linucb", missing_reward=0.25, seed=0, least_used=0.4)
    used = [(v, w) for v, w, _ in rows if v == good]
    # In the middle of (−1, 1) where it is no number and not missing either.
    filled = [0.0 if w == -math.inf else 0.25 if w is None or math.isnan(w) else w for _, w in used]
    assert with_default.theta == pytest.approx(
        ridge(np.tile(good, (len(used), 1)), np.array(filled)), abs=1e-12
    )


def test_rewards_are_clipped_and_how_many_stays_on_the_trusted_side():
    table, x, r = log_of(500)
    bandit = dpb.warm_start(
        table, "tree-gauss", epsilon=math.inf, delta=1e-6, horizon=9, reward_range=(0, 0.5), seed=0
    )
    assert bandit.theta == pytest.approx(ridge(x, np.clip(r, 0, 0.5)), abs=1e-11)
    assert bandit.clipped == int(((r < 0) | (r > 0.5)).sum())
    assert "clipped" not in json.dumps(bandit.log.to_dict())


def test_single_precision_contexts_of_norm_1_are_not_too_long():
    table, _, _ = log_of(5000, kind=np.float32)
    assert dpb.warm_start(table, "linucb", seed=0).log.learned == 5000


# ------------------------------------------------------------------------------------------ users


def test_a_users_first_rewards_count_and_the_cap_holds_for_log_and_online_together():
    users = ["anna", "bob", "anna", "anna", "carl"]
    table, x, r = log_of(5, user=users)
    given = {
        "unit": ("user", 2),
        "reward_range": (-2, 2),
        "epsilon": math.inf,
        "delta": 1e-6,
        "horizon": 20,
        "seed": 0,
    }
    bandit = dpb.warm_start(table, "tree-gauss", user="user", **given)
    first = [0, 1, 2, 4]
    assert bandit.theta == pytest.approx(ridge(x[first], r[first]), abs=1e-10)
    assert (bandit.log.over_cap, bandit.log.users) == (1, 3)
    before = bandit.theta
    bandit.update(x[0], 1.0, user="anna")
    assert bandit.rounds == 0
    assert bandit.theta.tobytes() == before.tobytes()
    bandit.update(x[:3], [1.0, 1.0, 1.0], user=["bob", "bob", "dora"])
    assert bandit.rounds == 2
    assert bandit.over_cap == 3


def test_numbers_and_their_text_are_the_same_user():
    for users in (
        pa.array([17, 18, 17]),
        pa.array(["17", "18", "17"]).dictionary_encode(),
        pa.array(["17", "18", "17"]),
    ):
        table, x, _ = log_of(3, user=users)
        bandit = dpb.warm_start(
            table, "tree-gauss", user="user", unit=("user", 2), horizon=9, seed=0, **PRIVATE
        )
        bandit.update(x[:2], [0.0, 0.0], user=[17, "18"])
        assert (bandit.rounds, bandit.over_cap) == (1, 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_tally_counts_as_a_dictionary_does_and_collisions_only_lower_what_is_learned(backend):
    rng = np.random.default_rng(0)
    tally, counts = Tally(3, backend), {}
    for _ in range(5):
        # All begin at the same place.
        names = rng.integers(1, 9_000, 5_000).astype(np.uint64) * np.uint64(64)
        status = np.zeros(len(names), dtype=np.uint8)
        tally.admit(names[:900], status[:900], over=9)
        tally.admit(names[900:], status[900:], over=9)
        for name, mark in zip(names.tolist(), status, strict=True):
            assert (mark == 0) == (counts.get(name, 0) < 3)
            counts[name] = min(counts.get(name, 0) + 1, 3)
    people = tally.people()
    assert {int(h): int(c) for h, c in zip(people.hashes, people.counts, strict=True)} == counts
    assert People.nobody().count("x") == 0


def test_users_are_needed_where_they_are_the_unit():
    table, _, _ = log_of(9)
    with pytest.raises(OptionError, match="name the log's column of users"):
        dpb.warm_start(table, unit=("user", 2), seed=0, **PRIVATE)


# ---------------------------------------------------------------------------- what is left behind


@pytest.mark.parametrize(
    "name", ["anytime", "tree-gauss", "toeplitz", "dgs", "adac-oful", "private-linucb"]
)
def test_it_is_saved_loaded_and_exported_with_its_log(name, tmp_path):
    table, x, _ = log_of(200, user=[f"u{i % 90}" for i in range(200)])
    given = {"unit": ("user", 2), "horizon": 50, "reward_range": (-0.5, 1.5), "seed": 0}
    bandit = dpb.warm_start(table, name, user="user", **given, **PRIVATE)
    bandit.update(x[:7], np.linspace(0, 1, 7), user=[f"v{i}" for i in range(7)])
    bandit.save(tmp_path / "bandit.npz")
    bandit.export(tmp_path / "model.json")
    loaded = dpb.load(tmp_path / "bandit.npz", receipt=bandit.receipt())
    assert loaded.log == bandit.log
    assert loaded.claim == bandit.claim
    assert "warm start: the 180 logged rewards" in str(loaded.claim)
    assert loaded.ledger.table() == bandit.ledger.table()
    for other in (bandit, loaded):
        other.update(x[8], 0.3, user="u0")  # has two rewards in the log
        other.update(x[9], 0.3, user="w")
    assert loaded.rounds == bandit.rounds == 8
    assert loaded.theta.tobytes() == bandit.theta.tobytes()
    model = dpb.load(tmp_path / "model.json")
    assert "log" not in json.loads((tmp_path / "model.json").read_text())
    assert model.select(x[:5]) in range(5)


def test_the_ledger_has_one_line_for_the_log_and_online_rewards_do_not_pay_for_it():
    table, x, _ = log_of(500)
    bandit = dpb.warm_start(
        table, "tree-gauss", horizon=4, reward_range=(-0.5, 1.5), seed=0, **PRIVATE
    )
    (line,) = bandit.ledger.table()
    assert (line["what"], line["when"], line["releases"]) == ("the log, once", "0", 1)
    assert line["cost"] == pytest.approx(bandit.ledger.limit)
    assert bandit.spent.epsilon == pytest.approx(1.0)
    bandit.update(x[:4], np.zeros(4))
    assert bandit.ledger.total == pytest.approx(bandit.ledger.limit)
    cold = dpb.make("tree-gauss", dim=D, horizon=4, reward_range=(-0.5, 1.5), seed=0, **PRIVATE)
    cold.update(x[:4], np.zeros(4))
    assert bandit.ledger.table()[1:] == cold.ledger.table()


def test_real_noise_by_default_on_its_grid():
    table, _, _ = log_of(2000)
    for name in ("anytime", "tree-gauss"):
        given = {"horizon": 9, "reward_range": (-0.5, 1.5), **PRIVATE}
        one, two = (dpb.warm_start(table, name, **given) for _ in range(2))
        assert one.claim.noise == "real"
        assert isinstance(one.source, Real)
        assert (one.theta != two.theta).all()
    carry = one.engine.fields()["carry"]
    assert (carry / STEP == np.rint(carry / STEP)).all()
    assert (carry / STEP % 64 != 0).any()


class Broken:
    kind = "simulation"

    def release(self, *args, **kwargs):
        raise KeyboardInterrupt


def test_what_is_interrupted_leaves_no_trace():
    table, x, _ = log_of(500)

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dpb.warm_start(table, seed=0, progress=stop, **PRIVATE)
    for name in ("anytime", "tree-gauss"):
        bandit = registry.construct(name, {"dim": D, "horizon": 50, "seed": 0, **PRIVATE})
        opened = sources.open_log(table)
        columns = sources.find_columns(opened, context="context", reward="reward", user=None)
        before = {name: field.copy() for name, field in bandit.engine.fields().items()}
        source, bandit.source = bandit.source, Broken()
        with pytest.raises(KeyboardInterrupt):
            learn_log(bandit, opened, columns, sample=x)
        assert bandit.log is None
        for name_of, field in bandit.engine.fields().items():
            assert np.array_equal(field, before[name_of]), name_of
        assert (bandit.ledger.releases, bandit.ledger.total, bandit.ledger.fingerprint) == (
            0,
            0.0,
            "",
        )
        bandit.source = source
        learn_log(bandit, opened, columns, sample=x)
        assert (
            bandit.theta.tobytes()
            == dpb.warm_start(table, name, horizon=50, seed=0, **PRIVATE).theta.tobytes()
        )


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("joint", PRIVATE, "contexts are private"),
        ("local", {"epsilon": 1.0}, "would not be local"),
        ("dgs-figure", PRIVATE, "nothing is proven"),
        ("dgs-published", {**PRIVATE, "smallest_eigenvalue": 0.1}, "nothing is proven"),
        ("private-linucb-published", {"epsilon": 1.0}, "nothing is proven"),
        ("random", {}, "does not learn"),
        ("tree-gauss", {**PRIVATE, "pan_private": True, "horizon": 9}, "in the clear"),
        ("tree-gauss", {**PRIVATE, "alpha": "theory"}, "Lemma 2"),
        ("tree-gauss", {**PRIVATE, "context_noise": 0.1}, "as they are offered"),
        ("tree-gauss", {**PRIVATE, "dim": 3}, "have 4 features"),
        ("tree-gauss", {"epsilon": 1.0}, "delta is missing"),
        ("tree-gauss", {**PRIVATE, "missing_reward": math.nan}, "finite number"),
    ],
)
def test_what_cannot_start_from_a_log_says_why(name, options, words):
    table, _, _ = log_of(9)
    with pytest.raises(OptionError, match=words):
        dpb.warm_start(table, name, seed=0, **options)


def test_a_bandit_that_has_learned_cannot_start_any_more():
    bandit = dpb.make("tree-gauss", dim=2, horizon=9, seed=0, **PRIVATE)
    bandit.update([0.1, 0.1], 0.0)
    with pytest.raises(OptionError, match="make a new one"):
        enter.check(bandit)


def test_columns_that_are_not_there_are_named_with_those_that_are(tmp_path):
    table, _, _ = log_of(9, layout="columns", name=["x"] * 9)
    with pytest.raises(LogError, match=r"no column 'clicked'.*a double, b double.*reward double"):
        dpb.warm_start(table, context=list("abcd"), reward="clicked", **PRIVATE)
    with pytest.raises(LogError, match="holds string: numbers are needed"):
        dpb.warm_start(table, context=["a", "name"], **PRIVATE)
    with pytest.raises(LogError, match="must be whole numbers"):
        dpb.warm_start(table, context=["a", "b"], user="c", unit=("user", 2), **PRIVATE)
    with pytest.raises(LogError, match="asked for twice"):
        dpb.warm_start(table, context=["a", "a"], **PRIVATE)
    with pytest.raises(LogError, match="no Parquet, CSV or Arrow file"):
        dpb.warm_start(tmp_path / "nothing.parquet", **PRIVATE)
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(LogError, match="not a Parquet file"):
        dpb.warm_start(tmp_path / "text.parquet", **PRIVATE)
    with pytest.raises(LogError, match="larger max_norm"):
        dpb.warm_start(table, context=["a", "b"], max_norm=1e-3, **PRIVATE)


def test_a_release_that_does_not_say_where_a_log_goes_has_none():
    bandit = dpb.make("tree-gauss", dim=2, horizon=9, seed=0, **PRIVATE)
    kind = type(bandit.release)

    class Homeless(kind):
        name, in_core, log_field = "homeless", False, ""

    homeless = Homeless(
        *(getattr(bandit.release, f) for f in ("noise", "horizon", "sensitivity", "budget"))
    )
    settings = {**bandit.design.settings, "release": homeless}
    bandit.design = replace(bandit.design, release=homeless, settings=settings)
    with pytest.raises(OptionError, match="no place for the sums of a log"):
        enter.check(bandit)


# ---------------------------------------------------------------------------------- whole numbers


def recipe_of(name="tree-gauss", backend=None, **more):
    given = {"dim": D, "reward_range": (0, 1), "seed": 0, "backend": backend, **PRIVATE, **more}
    bandit = registry.construct(name, given)
    return bandit, enter.prepare(bandit, contexts(500), 1e-9).recipe


def absorbed(recipe, x, r):
    found = sums.new_sums(recipe)
    status = np.zeros(len(x), np.uint8)
    sums.inspect(x, status, recipe)
    sums.absorb(x, r, status, recipe, found)
    return found


SHAPED = {"shape": "instruments", "public_contexts": contexts(50), "horizon": 5}


@pytest.mark.parametrize(
    ("name", "more"), [("tree-gauss", {}), ("anytime", {}), ("toeplitz", SHAPED)]
)
def test_private_sums_are_exact_in_any_order_and_any_parts(name, more):
    _, recipe = recipe_of(name, **more)
    rng = np.random.default_rng(1)
    x, r = contexts(5000, 3), rng.random(5000)
    whole = absorbed(recipe, x, r).whole
    order = rng.permutation(5000)
    assert absorbed(recipe, x[order], r[order]).whole == whole
    total = sums.new_sums(recipe)
    for piece in rng.permutation(np.arange(0, 5000, 500)):
        part = slice(piece, piece + 500)
        sums.merge(total, absorbed(recipe, x[part], r[part]))
    assert total.whole == whole
    assert total.learned == 5000


def test_sums_go_beyond_64_bits():
    _, recipe = recipe_of()
    total = absorbed(recipe, contexts(1), np.zeros(1))
    for _ in range(70):
        sums.merge(total, sums.Sums(*(part.copy() for part in total)))
    first = absorbed(recipe, contexts(1), np.zeros(1)).whole
    assert total.whole == [number << 70 for number in first]
    assert min(total.whole) < -(2**100)


@needs_core
@pytest.mark.parametrize(
    ("name", "more"), [("tree-gauss", {}), ("anytime", {}), ("toeplitz", SHAPED)]
)
def test_the_core_adds_up_what_the_reference_does(name, more):
    rng = np.random.default_rng(2)
    x, r = contexts(5000, 3), rng.normal(size=5000)
    x[::7] *= 1.5
    x[::11, 2] = np.nan
    x[::13] *= 1e-170
    x[::17] = 0.0
    r[::19] = np.inf
    one, two = (absorbed(recipe_of(name, backend, **more)[1], x, r) for backend in BACKENDS)
    assert one.counts.tolist() == two.counts.tolist()
    assert one.longest == pytest.approx(two.longest, rel=1e-14)
    assert np.array(one.whole, float) == pytest.approx(np.array(two.whole, float), abs=len(x) / 100)
    for field in ("gram", "second"):
        halves = [sums.symmetric(getattr(part, field)) for part in (one, two)]
        assert halves[0] == pytest.approx(halves[1], abs=1e-9)
    assert one.first == pytest.approx(two.first, abs=1e-9)


@needs_core
def test_every_width_of_vectors_adds_up_to_the_same_bits():
    """Those that this processor can run: v2 at least."""
    code = """if True:
        import hashlib, numpy as np
        from tests.bandits.test_warm_start import absorbed, contexts, recipe_of, SHAPED
        r = np.random.default_rng(0).random(5000)
        for name, more in (("tree-gauss", {}), ("anytime", {}), ("toeplitz", SHAPED)):
            found = absorbed(recipe_of(name, "core", **more)[1], contexts(5000), r)
            print(hashlib.sha256(b"".join(part.tobytes() for part in found)).hexdigest())
    """
    seen = set()
    for width in ("v2", "v3", "v4", ""):
        ran = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "DPBANDIT_ARCH": width},
            cwd=Path(__file__).parents[2],
        )
        if "more than this processor can run" in ran.stderr or "no instruction set" in ran.stderr:
            continue
        assert ran.returncode == 0, ran.stderr
        seen.add(ran.stdout)
    assert len(seen) == 1


def test_what_is_charged_covers_the_widest_pair_of_rewards_and_little_more():
    x = contexts(200) * 0.3
    for name, more in (("tree-gauss", {}), ("private-linucb", {"horizon": 9}), ("anytime", {})):
        bandit, recipe = recipe_of(name, **more)
        r = np.random.default_rng(0).random(200)
        widest = 0.0
        for row in range(0, 200, 10):
            low, high = r.copy(), r.copy()
            low[row], high[row] = -100.0, 100.0
            ends = [np.array(absorbed(recipe, x, given).whole) for given in (low, high)]
            moved = (ends[1] - ends[0]).astype(float) * STEP
            widest = max(widest, float(np.linalg.norm(moved, ord=bandit.noise.norm)))
        charged = enter.shift(bandit, recipe, absorbed(recipe, x, r))
        assert widest <= charged
        assert widest > (0.7 if name == "private-linucb" else 0.999) * charged


def test_short_contexts_get_noise_on_a_finer_grid_that_they_pay_for_like_others():
    """δ was lowered for a grid of 2⁻⁴⁰ of the shift, and the log's longest context is short."""
    seen = []

    class Looking(Simulation):
        def release(self, noise, pending, *, scale, shift, index):
            seen.append((pending, shift))
            return super().release(noise, pending, scale=scale, shift=shift, index=index)

    x = contexts(50) * 1e-5
    bandit, recipe = recipe_of()
    bandit.source = Looking(0)
    enter.enter(bandit, enter.Start(recipe), absorbed(recipe, x, np.ones(50)))
    ((pending, shift),) = seen
    assert shift == pytest.approx(1e-5, rel=1e-6)
    assert pending.step <= STEP * shift < 2 * pending.step
    assert np.array(pending.whole) * pending.step == pytest.approx(pending.values, rel=1e-15)


def test_rewards_that_are_not_clipped_are_not_added_to_private_sums():
    for backend in BACKENDS:
        _, recipe = recipe_of(backend=backend)
        with pytest.raises(ValueError, match="clipped, centred and scaled"):
            absorbed(recipe._replace(clips=False), contexts(3), np.ones(3))


def test_names_have_the_hashes_that_saved_files_hold():
    names = ["anna", "", "ünïcode", "x" * 100]
    text = "".join(names).encode()
    ends = np.cumsum([0, *(len(name.encode()) for name in names)])
    found = sums.hash_names(np.frombuffer(text, np.uint8), ends)
    assert found.tolist() == [hash_name(name) for name in names]
    assert found[0] == 0x8ED227C0EE63F504


# ------------------------------------------------------------------------------ what it is worth


@pytest.mark.parametrize("name", ["anytime", "tree-gauss"])
def test_a_warm_bandit_has_less_regret_than_a_cold_one(name):
    """On the same rounds, seeds 0 to 4; the worst warm run beats the best cold one: not luck."""
    found = {"cold": [], "warm": []}
    for seed in range(5):
        rng = np.random.default_rng([seed, 5])
        theta = rng.normal(size=8)
        theta /= np.linalg.norm(theta)

        def draw(n, rng=rng):
            x = rng.normal(size=(n, 8))
            return x / np.linalg.norm(x, axis=1, keepdims=True)

        x = draw(3000)
        table = pa.table({"context": list(x), "reward": x @ theta + rng.normal(size=3000) / 2})
        given = {
            "epsilon": 2.0,
            "delta": 1e-5,
            "reward_range": (-1.5, 1.5),
            "horizon": 300,
            "seed": seed,
        }
        bandits = {
            "cold": dpb.make(name, dim=8, **given),
            "warm": dpb.warm_start(table, name, **given),
        }
        regret = dict.fromkeys(bandits, 0.0)
        for _ in range(300):
            arms, noise = draw(10), rng.normal() / 2
            for label, bandit in bandits.items():
                arm = bandit.select(arms)
                regret[label] += (arms @ theta).max() - arms[arm] @ theta
                bandit.update(arms[arm], arms[arm] @ theta + noise)
        for label, value in regret.items():
            found[label].append(value)
    assert max(found["warm"]) < min(found["cold"])
    assert np.mean(found["warm"]) < 0.4 * np.mean(found["cold"])


# ------------------------------------------------------------------------------- the command line


def test_the_command_makes_a_bandit_and_does_not_write_over_one(dpbandit_, tmp_path):
    table, x, _ = log_of(1000, layout="columns", who=[f"u{i % 300}" for i in range(1000)])
    pq.write_table(table, tmp_path / "log.parquet")
    given = [
        "log.parquet",
        "--context",
        "a,b,c,d",
        "--user",
        "who",
        "--user-rewards",
        2,
        *("--reward-range", "0", "1"),
        "--delta",
        "1e-6",
        "--out",
        "b.npz",
    ]
    ran = dpbandit_("warm-start", *given, "--json", "--export", "model.json")
    assert ran.status == 0, ran.err
    report = json.loads(ran.out)
    assert report["log"]["learned"] == 600
    assert report["log"]["over_cap"] == 400
    assert report["claim"]["noise"] == "real"
    assert report["claim"]["unit"] == "one user with at most 2 rewards"
    bandit = dpb.load(tmp_path / "b.npz", receipt=report["receipt"])
    bandit.update(x[0], 0.5, user="u1")
    assert bandit.rounds == 0
    assert dpb.load(tmp_path / "model.json").theta == pytest.approx(bandit.theta)
    again = dpbandit_("warm-start", *given)
    assert again.status == 2
    assert "budget a second time" in " ".join(again.err.split())
    wrong = dpbandit_(
        "warm-start",
        "log.parquet",
        "--context",
        "a,b",
        "--reward",
        "click",
        *("--reward-range", "0", "1"),
        "--delta",
        "1e-6",
        "--out",
        "c.npz",
    )
    assert wrong.status == 2
    assert "no column 'click'" in " ".join(wrong.err.split())
    assert not (tmp_path / "c.npz").exists()
