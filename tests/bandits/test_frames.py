"""Frames of pandas, polars and Arrow where arrays are taken, and where tables are given."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpbandit as dpb
from dpbandit.errors import LogError, NotFiniteError, OptionError, ShapeError

X = np.array([[0.6, 0.0, 1.0], [0.0, 0.8, 0.0], [0.5, 0.5, 0.0]]) / 2
COLUMNS = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
FRAMES = {
    "pandas": pd.DataFrame(COLUMNS),
    "pandas, nullable": pd.DataFrame(COLUMNS).astype("Float64"),
    "pandas, Arrow inside": pd.DataFrame(COLUMNS).astype("float64[pyarrow]"),
    "polars": pl.DataFrame(COLUMNS),
    "Arrow": pa.table(COLUMNS),
    "a record batch": pa.record_batch(COLUMNS),
    "lists of Arrow": pa.array(X.tolist()),
    "fixed lists of Arrow": pa.FixedSizeListArray.from_arrays(X.ravel(), 3),
    "lists of polars": pl.Series(X.tolist()),
    "arrays of polars": pl.Series(X.tolist(), dtype=pl.Array(pl.Float64, 3)),
    "lists of pandas": pd.Series(X.tolist()),
}
REWARDS = [0.5, 1.0, 0.0]
COLUMN = {
    "pandas": pd.Series(REWARDS),
    "pandas, nullable": pd.Series(REWARDS, dtype="Float64"),
    "polars": pl.Series(REWARDS),
    "Arrow": pa.array(REWARDS),
    "chunks of Arrow": pa.chunked_array([REWARDS[:1], REWARDS[1:]]),
    "whole numbers of polars": pl.Series([0, 1, 0]),
    "decimals": pl.Series(REWARDS).cast(pl.Decimal(10, 2)),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_contexts_may_be_any_frame(kind):
    one, other = (dpb.make("linucb", dim=3, seed=0) for _ in range(2))
    one.update(FRAMES[kind], REWARDS)
    other.update(X, REWARDS)
    assert np.array_equal(one.theta, other.theta)
    assert one.select(FRAMES[kind]) == other.select(X)
    assert one.select(FRAMES[kind], k=2).tolist() == other.select(X, k=2).tolist()
    assert np.array_equal(
        dpb.make("linucb", dim=3, public_contexts=FRAMES[kind]).options.public_contexts, X
    )


@pytest.mark.parametrize("kind", COLUMN)
def test_rewards_may_be_any_column(kind):
    one, other = (dpb.make("linucb", dim=3, seed=0) for _ in range(2))
    one.update(X, COLUMN[kind])
    other.update(
        X,
        np.array(
            [float(value) for value in COLUMN[kind].to_numpy(zero_copy_only=False)]
            if kind == "Arrow"
            else [float(v) for v in COLUMN[kind].to_numpy()]
        ),
    )
    assert np.array_equal(one.theta, other.theta)


@pytest.mark.parametrize(
    "users",
    [pd.Series(["a", "a", "b"]), pl.Series(["a", "a", "b"]), pa.array(["a", "a", "b"])],
    ids=["pandas", "polars", "Arrow"],
)
def test_users_may_be_a_column(users):
    bandit = dpb.make(
        "tree-gauss", dim=3, epsilon=1.0, delta=1e-5, horizon=5, unit=("user", 1), seed=0
    )
    bandit.update(X, REWARDS, user=users)
    assert (bandit.rounds, bandit.over_cap) == (2, 1)


def test_flags_and_numbers_side_by_side_are_numbers():
    mixed = pd.DataFrame({"a": [0.1, 0.2], "member": [True, False]})
    bandit = dpb.make("linucb", dim=2, max_norm=2.0, seed=0)
    assert np.array_equal(bandit.check_contexts(mixed), [[0.1, 1.0], [0.2, 0.0]])


@pytest.mark.parametrize(
    ("contexts", "error", "words"),
    [
        (pd.DataFrame({"a": [0.1, None], "b": [0.1, 0.2]}, dtype="Float64"), NotFiniteError, "NaN"),
        (pl.DataFrame({"a": [0.1, None], "b": [0.1, 0.2]}), NotFiniteError, "NaN"),
        (pa.table({"a": [0.1, None], "b": [0.1, 0.2]}), NotFiniteError, "NaN"),
        (pd.DataFrame({"a": ["0.1", "0.2"], "b": [0.1, 0.2]}), ShapeError, "not str"),
        (pl.DataFrame({"a": ["x", "y"], "b": [0.1, 0.2]}), ShapeError, "not str"),
        (pl.Series([[0.1, 0.2], [0.1]]), ShapeError, "one length"),
        (pl.DataFrame({"a": [0.1]}).lazy(), ShapeError, "collect"),
        (pl.DataFrame({"a": [0.1]}), ShapeError, r"\(1, 1\)"),
    ],
)
def test_what_is_no_context_is_refused_and_changes_nothing(contexts, error, words):
    bandit = dpb.make("linucb", dim=2, seed=0)
    with pytest.raises(error, match=words):
        bandit.select(contexts)
    with pytest.raises(error):
        bandit.update(contexts, [0.0] * 2)
    assert bandit.rounds == 0


def test_an_exported_model_ranks_frames(tmp_path):
    dpb.make("linucb", dim=3, seed=0).export(tmp_path / "model.json")
    model = dpb.load(tmp_path / "model.json")
    assert {model.select(given) for given in FRAMES.values()} == {model.select(X)}


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_log_may_be_a_frame(kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3_000, 2)) / 5
    table = {
        "a": x[:, 0],
        "b": x[:, 1],
        "won": (rng.random(3_000) < 0.5 + x[:, 0]).astype(float),
        "who": [f"u{i % 1500}" for i in range(3_000)],
    }
    options = {
        "context": ["a", "b"],
        "reward": "won",
        "user": "who",
        "unit": ("user", 1),
        "epsilon": 1.0,
        "delta": 1e-6,
    }
    bandit = dpb.warm_start(kind(table), reward_range=(0, 1), seed=0, **options)
    assert bandit.log.learned == 1_500
    assert bandit.theta == pytest.approx(
        dpb.warm_start(pa.table(table), reward_range=(0, 1), seed=0, **options).theta
    )


def test_what_is_no_log_is_refused():
    with pytest.raises(LogError, match="Series"):
        dpb.warm_start(pl.Series([1.0]), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_world_may_be_a_frame(kind):
    # rows of a round need not stand together
    rows = {
        "round": [2, 1, 1, 2],
        "arm": ["x", "x", "y", "y"],
        "f": [0.2, 1.0, 0.5, 0.9],
        "g": [0.0, 0.0, 0.1, 0.1],
        "reward": [0, 1, 0, 1],
        "mean": [0.1, 0.9, 0.2, 0.8],
    }
    world = dpb.worlds.Arrays.from_frame(kind(rows), context=["f", "g"], mean="mean")
    block = world.episode(0).block(2)
    assert block.pool[block.shown].tolist() == [[[1.0, 0.0], [0.5, 0.1]], [[0.2, 0.0], [0.9, 0.1]]]
    assert block.rewards.tolist() == [[1, 0], [0, 1]]
    assert block.means.tolist() == [[0.9, 0.2], [0.1, 0.8]]
    lists = dpb.worlds.Arrays.from_frame(
        kind({**rows, "x": [[0.2], [1.0], [0.5], [0.9]]}), context="x"
    )
    assert lists.dim == 1
    with pytest.raises(OptionError, match="did you mean 'reward'"):
        dpb.worlds.Arrays.from_frame(kind(rows), context=["f"], reward="rewards")
    with pytest.raises(ValueError, match="1 to 3 arms"):
        dpb.worlds.Arrays.from_frame(kind({**rows, "round": [1, 1, 1, 2]}), context=["f"])


def test_results_come_as_any_frame():
    results = dpb.run(
        dpb.worlds.Bernoulli(arms=3),
        ["random", "linucb"],
        horizon=20,
        seeds=2,
        record=[10],
        workers=1,
    )
    pandas = results.frame()
    assert list(pandas.columns) == ["algorithm", "seed", "round", "reward", "regret", "theta_error"]
    assert len(pandas) == 8
    assert pandas.dtypes["seed"] == np.int64
    polars, arrow = results.frame("polars"), results.frame("arrow")
    assert isinstance(polars, pl.DataFrame)
    assert isinstance(arrow, pa.Table)
    pd.testing.assert_frame_equal(arrow.to_pandas(), pandas, check_dtype=False)
    assert polars.to_dict(as_series=False)["regret"] == pandas["regret"].tolist()
    with pytest.raises(OptionError, match="pandas, polars, arrow"):
        results.frame("excel")
    empty = dpb.Results("nowhere", 1, {}, {})
    assert list(empty.frame().columns) == list(pandas.columns)
    assert empty.frame("polars").shape == (0, 6)


def test_a_plan_comes_as_any_frame():
    plan = dpb.plan(dim=2, arms=2, epsilon=2.0, delta=1e-5, horizon=50, algorithms=["local"])
    assert (
        plan.frame("polars").columns
        == list(plan.frame().columns)
        == plan.frame("arrow").column_names
    )


def test_a_frame_that_is_not_installed_is_named():
    code = "import sys; sys.modules['polars'] = None; import dpbandit as dpb; dpb.Results('', 1, {}, {}).frame('polars')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install polars" in ran.stderr.splitlines()[-1]
