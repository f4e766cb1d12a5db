"""Replay: the estimators' formulas, every form of a log, and what is refused."""

import functools
import sys
from pathlib import Path

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import errors

sys.path.insert(0, str(Path(__file__).parent))
import logs

PLAIN = {"seed": 0, "reward_range": (0, 1)}
PRIVATE = {"epsilon": 1.0, "delta": 1e-6, "reward_range": (0, 1)}


def choices(model, log):
    return np.array([model.select(x) for x in log["contexts"]])


def test_estimates_are_the_formulas_written_out():
    """With a fixed policy, no clipping and no noise, in NumPy and from the definitions."""
    log, _ = logs.log_of(1, 2000, uniform=False)
    model = logs.fixed_model()
    found = dpb.replay(log, {"fixed": model}, propensity="p", clip=1e9, **PLAIN)
    arms, every = choices(model, log), np.arange(2000)
    w = (arms == log["action"]) / log["p"]
    r, q = log["reward"], log["contexts"] @ model.theta
    resid = r - q[every, log["action"]]
    want = {
        "ips": np.mean(w * r),
        "snips": np.sum(w * r) / np.sum(w),
        "dr": np.mean(q[every, arms] + w * resid),
        "sndr": np.mean(q[every, arms]) + np.sum(w * resid) / np.sum(w),
    }
    for name, value in want.items():
        assert found.of("fixed", name).value == pytest.approx(value, abs=1e-9), name
    errors_of = {
        "ips": np.std(w * r),
        "snips": np.std(w * (r - want["snips"])) / np.mean(w),
        "dr": np.std(q[every, arms] + w * resid),
    }
    for name, spread in errors_of.items():
        # Four made-up rows are in the standard error, too.
        got = found.of("fixed", name).sampling_error
        assert got == pytest.approx(spread / np.sqrt(2000), rel=0.1), name


def test_replay_is_li_chu_langford_and_wang():
    """The rows that match, played one by one by a bandit of our own."""
    log, _ = logs.log_of(2, 3000)
    found = dpb.replay(log, "anytime", seed=4, **PRIVATE)
    bandit = dpb.make("anytime", dim=logs.DIM, seed=4, **PRIVATE)
    matched, earned = 0, 0.0
    for x, action, reward in zip(log["contexts"], log["action"], log["reward"], strict=True):
        if bandit.select(x) == action:
            bandit.update(x[action], reward)
            matched, earned = matched + 1, earned + reward
    one = found.of("anytime", "replay")
    assert (one.matched, one.value) == (matched, pytest.approx(earned / matched, abs=1e-12))
    assert one.value == found.of("anytime", "snips").value
    assert found.of("anytime", "ips").value == pytest.approx(logs.ARMS * earned / 3000, abs=1e-9)


def test_rejection_keeps_rows_with_the_chance_of_an_online_run():
    """On a log that is not uniform, kept rows show every arm's contexts as if nobody had chosen."""
    log, means = logs.log_of(3, 20_000, uniform=False)
    model = logs.fixed_model()
    found = dpb.replay(log, {"fixed": model}, propensity="p", clip=25.0, **PLAIN)
    truth = np.mean(means[np.arange(20_000), choices(model, log)])
    one = found.of("fixed", "replay")
    assert abs(one.value - truth) < 4 * one.sampling_error
    assert one.matched == pytest.approx(20_000 / 25, rel=0.15)
    assert not found.clipped


def records(rows=600):
    rng = np.random.default_rng(8)
    person = rng.choice(["de", "fr"], rows)
    shown = rng.choice(["a", "b", "c"], rows)
    chance = 0.2 + 0.5 * ((person == "de") == (shown == "a"))
    clicked = (rng.random(rows) < chance).astype(float)
    return [
        {"country": p, "article": a, "clicked": float(c), "who": f"u{i % 50}", "more": 1}
        for i, (p, a, c) in enumerate(zip(person, shown, clicked, strict=True))
    ]


def encoder():
    fields = {"country": dpb.Category(["de", "fr"]), "article": dpb.Category(["a", "b", "c"])}
    return dpb.Encoder(fields, item=["article"], per_arm="article")


TABLE = {"action": "article", "reward": "clicked", "seed": 1, **PRIVATE}


def test_every_form_of_a_log_gives_the_same(tmp_path):
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyarrow import csv, feather, parquet

    rows = records()
    given = {**TABLE, "encoder": encoder()}
    want = dpb.replay(rows, ["random", "anytime"], **given).to_dict()
    table = pa.Table.from_pylist(rows)
    csv.write_csv(table, tmp_path / "log.csv")
    parquet.write_table(table, tmp_path / "log.parquet")
    feather.write_feather(table, str(tmp_path / "log.arrow"))
    forms = [
        iter(rows),
        table,
        pd.DataFrame(rows),
        pl.DataFrame(rows),
        pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=77)),
        {name: [row[name] for row in rows] for name in rows[0]},
        *(tmp_path / f"log.{kind}" for kind in ("csv", "parquet", "arrow")),
    ]
    items = [{"article": text} for text in "abc"]
    for form in forms:
        assert dpb.replay(form, ["random", "anytime"], **given).to_dict() == want, form
    assert dpb.replay(rows, ["random", "anytime"], items=items, **given).to_dict() == want
    frame = dpb.replay(rows, ["random", "anytime"], items=pd.DataFrame(items), **given)
    assert frame.to_dict() == want
    assert set(frame.summary()["estimator"]) == {"replay", "ips", "snips", "dr", "sndr"}


def test_what_was_on_offer_may_differ_from_row_to_row():
    rng = np.random.default_rng(0)
    rows = []
    for row in records():
        others = [a for a in "abc" if a != row["article"]]
        offered = [row["article"], others[rng.integers(2)]]
        rows.append({**row, "offered": offered if rng.random() < 0.5 else offered[::-1]})
    found = dpb.replay(rows, "anytime", offered="offered", encoder=encoder(), **TABLE)
    assert 200 < found.of("anytime").matched < 400  # half
    wrong = [{**rows[0], "offered": ["b", "c"], "article": "a"}, *rows]
    with pytest.warns(errors.LogWarning, match="1 what was shown is missing, or was not on offer"):
        dpb.replay(wrong, "anytime", offered="offered", encoder=encoder(), **TABLE)


def test_a_subset_of_a_slate_is_the_slate_of_the_subset():
    one = encoder().slate([{"article": a} for a in "abc"])
    two = encoder().slate([{"article": a} for a in "ca"])
    person = {"country": "fr"}
    assert np.array_equal(one.subset([2, 0]).contexts(person), two.contexts(person))


def test_rows_that_cannot_be_used_are_counted_said_and_refused_if_many():
    rows = records(100)
    rows[3]["clicked"] = None
    rows[4]["article"] = "unheard of"
    given = {**TABLE, "encoder": encoder()}
    with pytest.warns(errors.LogWarning, match="1 reward missing, 1 what was shown"):
        found = dpb.replay(rows, "anytime", **given)
    assert (found.rows, found.used) == (100, 98)
    full = dpb.replay(rows[:4] + rows[5:], "anytime", missing_reward=0.0, **given)
    assert full.used == 99
    for row in rows[:60]:
        row["clicked"] = None
    with pytest.raises(errors.LogError, match="fewer than half of the log's rows"):
        dpb.replay(rows, "anytime", **given)


def test_weights_above_clip_are_said():
    log, _ = logs.log_of(1, 500, uniform=False)
    with pytest.warns(errors.LogWarning, match="above clip = 3"):
        found = dpb.replay(log, "random", propensity="p", clip=3.0, **PLAIN)
    assert found.clipped["random"] > 0


def test_an_interrupt_keeps_what_was_read_in_the_clear_and_shows_nothing_in_private():
    rows = records()

    def stops():
        yield from rows[:400]
        raise KeyboardInterrupt

    given = {**TABLE, "encoder": encoder()}
    found = dpb.replay(stops(), "anytime", **given)
    assert (found.complete, found.rows) == (False, 400)
    with pytest.raises(KeyboardInterrupt):
        dpb.replay(stops(), "anytime", release=(1.0, 1e-6), **given)


def test_memory_does_not_grow_with_the_log():
    import tracemalloc

    def rows(count):
        rng = np.random.default_rng(0)
        arms = np.eye(3)
        for _ in range(count):
            yield {"contexts": arms, "action": int(rng.integers(3)), "reward": 0.5}

    peaks = []
    for count in (500, 5000):
        tracemalloc.start()
        dpb.replay(rows(count), "anytime", seed=0, release=(1.0, 1e-6), **PRIVATE)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 200_000


def test_actions_in_a_column_of_floats_are_whole_numbers():
    """pandas writes 1.0 for 1 where another row's is missing."""
    log, _ = logs.log_of(1, 200)
    want = dpb.replay(log, "random", **PLAIN)
    assert dpb.replay({**log, "action": log["action"] * 1.0}, "random", **PLAIN) == want
    with pytest.raises(errors.LogError, match="200 what was shown is missing"):
        dpb.replay({**log, "action": log["action"] + 0.5}, "random", **PLAIN)


def test_what_is_wrong_is_said():
    log, _ = logs.log_of(1, 20)
    rows = records(20)
    replay = functools.partial(dpb.replay, reward_range=(0, 1))
    for words, call in {
        "clip is missing": lambda: replay(log, "random", propensity="p"),
        "no 'who'": lambda: replay(log, "random", user="who"),
        "did you mean 'clicked'": lambda: replay(rows, "random", action="article", reward="click", encoder=encoder()),
        "has an option 'epsilonn'": lambda: replay(log, "random", epsilonn=1.0),
        "would learn from the log": lambda: replay(log, dpb.make("linucb", dim=4, seed=0)),
        "repeat": lambda: replay(log, ["random", "random"]),
        "rows_per_user needs": lambda: replay(log, "random", rows_per_user=2),
        "no algorithm is called": lambda: replay(log, "randomm"),
        "level must": lambda: replay(log, "random", level=95),
        "has 9 columns": lambda: replay(log, dpb.make("linucb", dim=9, seed=0).model()),
        "items=.* is missing": lambda: replay(rows, "random", encoder=encoder(), action="more"),
        "a log is a path": lambda: replay(7, "random"),
        "from 1 to 1e": lambda: replay(log, "random", propensity="p", clip=1e300),
        "propensities must be numbers": lambda: replay({**log, "p": ["x"] * 20}, "random", propensity="p", clip=9),
        "this list is empty": lambda: replay([], "random"),
        "is charged for a release": lambda: replay(log, "random", ledger=dpb.Ledger(1.0, "mu²")),
    }.items():  # fmt: skip
        with pytest.raises(errors.DpbanditError, match=words):
            call()
