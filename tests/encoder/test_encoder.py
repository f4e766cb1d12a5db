"""Records become contexts: by name, never longer than 1, the same in every process."""

import json
from fractions import Fraction

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import errors

PEOPLE = [
    {"age": 31, "country": "de"},
    {"age": -5.0, "country": "Narnia"},
    {"age": None, "country": None},
    {"age": float("inf"), "country": "fr"},
]
ITEMS = [{"article": f"a{i}", "topic": t} for i, t in enumerate(["sport", "news", "?"])]


def declared(**more):
    fields = {
        "age": dpb.Number(0, 100),
        "country": dpb.Category(["de", "fr"]),
        "article": dpb.Hashed(7),
        "topic": dpb.Category(["sport", "news"]),
    }
    given = {"crosses": [("age", "topic"), ("country", "article")], "item": ["article", "topic"]}
    return dpb.Encoder(fields, **{**given, **more})


def records():
    return [{**person, **item} for person in PEOPLE for item in ITEMS]


@pytest.mark.parametrize("per_arm", [None, "article", "topic"])
def test_a_slate_is_the_rows_of_transform(per_arm):
    encoder = declared(per_arm=per_arm)
    slate = encoder.slate(ITEMS)
    found = np.concatenate([slate.contexts(person) for person in PEOPLE])
    assert np.array_equal(found, encoder.transform(records()))


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 31, 999])
def test_no_record_is_longer_than_one_in_fractions_or_floats(blocks):
    fields = {f"n{i}": dpb.Number(0.1, 0.7) for i in range(blocks)}
    encoder = dpb.Encoder(fields, intercept=False)
    row = encoder.transform([dict.fromkeys(fields, 9.9)])[0]
    assert sum(Fraction(v) ** 2 for v in row.tolist()) <= 1
    assert float(row @ row) <= 1
    assert sum(v * v for v in row.tolist()) <= 1
    assert float(row @ row) > 1 - 1e-9  # nothing is given away
    assert dpb.make("linucb", dim=encoder.dim, seed=0).select(row[None, :]) == 0


def test_hostile_values_stay_inside_and_pass_the_gate():
    encoder = declared(per_arm="article")
    bandit = dpb.make("anytime", encoder=encoder, epsilon=1.0, delta=1e-6, seed=0)
    slate = encoder.slate(ITEMS)
    for age in (
        1e308,
        -1e308,
        5e-324,
        float("nan"),
        True,
        np.float32(3),
        np.int64(-(2**63)),
        10**400,
    ):
        contexts = slate.contexts({"age": age, "country": "x" * 999})
        assert (np.linalg.norm(contexts, axis=1) <= 1).all()
        bandit.select(contexts)


def test_every_kind_of_record_gives_the_same_contexts():
    import pandas as pd
    import pyarrow as pa

    encoder, rows = declared(), records()[:3]
    want = encoder.transform(rows)
    assert np.array_equal(encoder.transform(json.dumps(rows)), want)
    frame = pd.DataFrame(rows)
    assert np.array_equal(encoder.transform(frame), want)
    assert np.array_equal(encoder.transform(frame[frame.columns[::-1]]), want)  # by name
    assert np.array_equal(encoder.transform(pa.table(frame)), want)
    polars = pytest.importorskip("polars")
    assert np.array_equal(encoder.transform(polars.DataFrame(rows)), want)


def test_crosses_of_numbers_give_the_same_bits_either_way():
    fields = {name: dpb.Number(-0.3, 0.7) for name in "abcd"}
    encoder = dpb.Encoder(fields, crosses=[("a", "c", "b"), ("d", "c", "a", "b")], item=["c", "d"])
    rng = np.random.default_rng(3)
    for row in rng.uniform(-0.3, 0.7, size=(50, 4)).tolist():
        a, b, c, d = row
        one = encoder.slate([{"c": c, "d": d}]).contexts({"a": a, "b": b})
        assert np.array_equal(one, encoder.transform([{"a": a, "b": b, "c": c, "d": d}]))


def test_missing_numbers_are_the_same_from_pandas():
    import pandas as pd

    frame = pd.DataFrame({"n": [1.0, None], "c": ["17", None]})
    encoder = dpb.Encoder({"n": dpb.Number(0, 2), "c": dpb.Category([17])})
    plain = encoder.transform([{"n": 1.0, "c": 17.0}, {"n": None, "c": None}])
    assert np.array_equal(encoder.transform(frame), plain)


def test_names_are_checked_at_every_call():
    encoder = declared()
    slate = encoder.slate(ITEMS)
    for person in ({"age": 3}, {"age": 3, "county": "de"}, {"age": 3, "country": "de", "x": 1}):
        with pytest.raises(errors.ShapeError, match="the fields are age, country"):
            slate.contexts(person)
    with pytest.raises(errors.ShapeError, match="an unknown 'reward'"):
        encoder.transform([{**records()[0], "reward": 1}])
    with pytest.raises(errors.ShapeError, match="no 'topic'"):
        encoder.slate([{"article": "a"}])
    with pytest.raises(errors.ShapeError, match="columns"):
        encoder.transform(np.zeros((2, 3)))
    with pytest.raises(errors.OptionError, match="'age': a number is needed, not str"):
        slate.contexts({"age": "old", "country": "de"})


def test_the_hash_is_the_stated_one():
    """Computed apart: `b2sum -l 64` of "article 17", read as a little-endian number."""
    import hashlib

    digest = hashlib.blake2b(b"article 17", digest_size=8).digest()
    number = sum(byte << 8 * i for i, byte in enumerate(digest))
    assert dpb.Hashed(1000).place("article 17") == (number % 1000, 1.0)
    assert number % 1000 == 83


def test_column_names_are_where_the_numbers_are():
    encoder = declared()
    names = encoder.get_feature_names_out()
    assert len(names) == len(set(names)) == encoder.dim
    row = encoder.transform([{"age": 100, "country": "fr", "article": "a", "topic": "news"}])[0]
    lit = set(names[row != 0])
    assert {"(intercept)", "age", "country=fr", "topic=news", "age × topic=news"} <= lit
    assert len(lit) == 7
    assert any(name.startswith("country=fr × article#") for name in lit)


def test_saved_and_exported_with_the_bandit(tmp_path):
    encoder = declared()
    bandit = dpb.make("anytime", encoder=encoder, epsilon=1.0, delta=1e-6, seed=0)
    bandit.save(tmp_path / "bandit.npz")
    bandit.export(tmp_path / "model.json")
    loaded, model = dpb.load(tmp_path / "bandit.npz"), dpb.load(tmp_path / "model.json")
    assert loaded.encoder == model.encoder == encoder
    contexts = model.encoder.slate(ITEMS).contexts(PEOPLE[0])
    assert np.array_equal(contexts, encoder.slate(ITEMS).contexts(PEOPLE[0]))
    assert 0 <= model.select(contexts) < 3
    assert dpb.make(**bandit.get_params()).encoder == encoder
    record = json.loads((tmp_path / "model.json").read_text())
    record["encoder"]["intercept"] = False
    with pytest.raises(errors.SaveError, match="columns beside a model"):
        _read(record)


def _read(record):
    from dpbandit.model import ReleasedModel

    return ReleasedModel.from_record(record)


def test_private_fields_are_the_private_columns():
    encoder = declared(private=["country"])
    names = encoder.get_feature_names_out()
    assert all("country" in names[i] for i in encoder.private_columns)
    assert sum("country" in name for name in names) == len(encoder.private_columns)
    given = {"encoder": encoder, "epsilon": 1.0, "delta": 1e-6, "seed": 0}
    bandit = dpb.make("anytime-joint", **given)
    assert bandit.get_params()["private_features"] == encoder.private_columns
    with pytest.raises(errors.OptionError, match="contexts as public"):
        dpb.make("anytime", **given)


def test_private_fields_that_rank_no_arms_are_named_and_rank_none():
    """They move all scores alike: without them the order of arms is the same, whatever was learned."""
    encoder = declared(private=["age", "country"], crosses=[("country", "article")])
    assert encoder.ranks_no_arms == ["age"]
    given = {"epsilon": 1.0, "delta": 1e-6, "seed": 0}
    with pytest.raises(errors.OptionError, match="age in no cross with the item rank no arms"):
        dpb.make("anytime", encoder=encoder, **given)
    theta = np.random.default_rng(0).normal(size=encoder.dim)
    slate = encoder.slate(ITEMS)
    scores = [slate.contexts({"age": age, "country": "de"}) @ theta for age in (3, 70, None)]
    for other in scores[1:]:
        assert np.ptp(other - scores[0]) < 1e-12
    assert declared(private=["age"], item=[]).ranks_no_arms == []  # who knows what differs


def test_a_claim_names_all_that_the_encoder_declares_private():
    given = {"epsilon": 1.0, "delta": 1e-6, "seed": 0, "encoder": declared(private=["country"])}
    columns = given["encoder"].private_columns
    with pytest.raises(errors.OptionError, match="leaves out columns"):
        dpb.make("anytime-joint", **given, private_features=columns[:1])
    more = dpb.make("anytime-joint", **given, private_features=[0, *columns])
    assert more.get_params()["private_features"] == sorted({0, *columns})
    assert str([0, *columns]) in more.claim.unit


def test_a_bandit_keeps_its_encoder_whatever_becomes_of_the_callers(tmp_path):
    encoder = declared(private=["country"])
    bandit = dpb.make("anytime-joint", encoder=encoder, epsilon=1.0, delta=1e-6, seed=0)
    before = bandit.encoder.to_record()
    encoder.set_params(features={"age": dpb.Number(0, 1)}, crosses=[], item=[], private=[])
    assert bandit.encoder.to_record() == before
    bandit.save(tmp_path / "bandit.npz")
    bandit.export(tmp_path / "model.json")
    kept = bandit, dpb.load(tmp_path / "bandit.npz"), dpb.load(tmp_path / "model.json")
    for holder in kept:
        assert holder.encoder.to_record() == before
        with pytest.raises(errors.OptionError, match="belongs to a bandit"):
            holder.encoder.set_params(private=[])
    another = dpb.Encoder(**bandit.encoder.get_params())
    assert another.set_params(private=[]).private == []


def test_what_is_no_table_of_records_is_said():
    from scipy.sparse import csr_array

    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = pd.DataFrame(records())
    for given, words in (
        (table.iloc[0], "row.to_dict"),
        (pl.DataFrame(table).to_series(0), "row.to_dict"),
        (pl.LazyFrame(table), "collect"),
        (csr_array(np.eye(3)), "sparse"),
    ):
        with pytest.raises(errors.ShapeError, match=words):
            declared().transform(given)


def test_values_as_other_packages_have_them():
    from datetime import timedelta
    from decimal import Decimal

    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    known = dpb.Category(["1", "2"])
    for given in (
        np.array([1, 2]),
        pd.Series(["1", "2"]).unique(),
        pl.Series([1, 2]).unique(),
        (1.0, 2),
    ):
        assert dpb.Category(given) == known
    assert dpb.Hashed(np.int64(7)) == dpb.Hashed(7)
    for one in (2, 2.0, "2", "2.0", Decimal("2.00"), np.float32(2)):
        assert known.place(one) == (1, 1.0)
        assert dpb.Hashed(9).place(one) == dpb.Hashed(9).place("2")
    assert known.place(Decimal("NaN")) == known.place(None)
    truths = dpb.Category([True, False])
    assert truths.place("True") == truths.place(np.bool_(True)) == truths.place("true") == (0, 1.0)
    assert dpb.Category(["1.0", "1.1"]).place(1.0) == (0, 1.0)
    number = dpb.Number(0, 10)
    assert number.place(Decimal("7.5")) == number.place(7.5)
    assert number.place(Decimal("sNaN")) == number.place(None)
    for value, words in (
        ("7", "to numbers first"),
        (pd.Timestamp("2026-01-01"), "hour"),
        (timedelta(1), "seconds"),
        ([7], "one value"),
    ):
        with pytest.raises(errors.OptionError, match=words):
            number.place(value)


def test_what_is_no_person_is_said():
    pd = pytest.importorskip("pandas")
    slate, person = declared().slate(ITEMS), PEOPLE[0]
    assert np.array_equal(slate.contexts(pd.Series(person)), slate.contexts(person))
    row = next(pd.DataFrame([person]).itertuples(index=False))
    for given in (None, 7, "age", list(person), [person, person], row, pd.DataFrame([person])):
        with pytest.raises(errors.ShapeError, match="one person is a dict of fields, not"):
            slate.contexts(given)
    with pytest.raises(errors.ShapeError, match="no 'country'; the fields are age, country"):
        slate.contexts(pd.Series({"age": 31}))


def test_what_is_wrong_is_said():
    number = dpb.Number(0, 1)
    for wrong in (
        lambda: dpb.Number(1, 1),
        lambda: dpb.Number(-1.7e308, 1.7e308),
        lambda: dpb.Category("de"),
        lambda: dpb.Category(["a", "a"]),
        lambda: dpb.Hashed(0),
        lambda: dpb.Encoder({}),
        lambda: dpb.Encoder({"a": number}).slate([{"a": 1}]),
        lambda: dpb.Encoder({"a": number}, crosses=[("a", "b")]),
        lambda: dpb.Encoder({"a": number}, crosses=[("a", "a")]),
        lambda: dpb.Encoder({"a": number}, per_arm="a"),
        lambda: dpb.Encoder({"a": dpb.Hashed(999), "b": dpb.Hashed(999)}, crosses=[("a", "b")]),
        lambda: dpb.make("linucb", encoder=dpb.Encoder({"a": number}), dim=7),
        lambda: dpb.make("linucb", encoder="age"),
        lambda: dpb.make("dp-klucb", encoder=dpb.Encoder({"a": number}), epsilon=1.0),
    ):
        with pytest.raises(errors.OptionError):
            wrong()


def test_read_off_public_data_and_said():
    data = [{"n": 1, "c": "x", "id": "u"}, {"n": 3, "c": "y", "id": "v"}]
    encoder = dpb.Encoder.from_public(data, hashed={"id": 5})
    assert encoder.features == {
        "n": dpb.Number(1, 3),
        "c": dpb.Category(["x", "y"]),
        "id": dpb.Hashed(5),
    }
    assert "public data" in repr(encoder)
    from datetime import date

    with pytest.raises(errors.OptionError, match=r"'when': .*: give its hour"):
        dpb.Encoder.from_public([{"when": date(2026, 1, 1)}])
    assert "declared" in repr(declared())


def test_a_claim_says_that_the_encoder_was_read_from_data(tmp_path):
    read = dpb.Encoder.from_public([{"n": 1, "c": "x"}, {"n": 3, "c": "y"}])
    given = {"epsilon": 1.0, "delta": 1e-6, "seed": 0}
    bandit = dpb.make("anytime", encoder=read, **given)
    bandit.save(tmp_path / "bandit.npz")
    started = dpb.warm_start([{"n": 2, "c": "x", "reward": 1.0}] * 9, encoder=read, reward_range=(0, 1), **given)  # fmt: skip
    for one in (
        bandit,
        dpb.load(tmp_path / "bandit.npz"),
        dpb.make(**bandit.get_params()),
        started,
    ):
        words = [line for line in one.claim.assumptions if "were read from data" in line]
        assert len(words) == 1
    assert "read from data" not in str(dpb.make("anytime", encoder=declared(), **given).claim)
    assert "read from data" not in str(dpb.make("linucb", encoder=read, seed=0).claim)


def test_a_transformer_of_scikit_learn():
    import pandas as pd
    from sklearn.base import clone
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    frame = pd.DataFrame(records()).assign(other=1.0)
    fields = ["age", "country", "article", "topic"]
    encoder = declared()
    assert clone(encoder) == encoder
    both = ColumnTransformer([("mine", encoder, fields), ("rest", "passthrough", ["other"])])
    found = both.fit_transform(frame)
    assert found.shape == (12, encoder.dim + 1)
    assert next(iter(both.get_feature_names_out())) == "mine__(intercept)"
    piped = make_pipeline(encoder, FunctionTransformer()).fit(frame[fields])
    assert np.array_equal(piped.transform(frame[fields]), encoder.transform(frame[fields]))


def test_a_transformer_that_may_give_frames():
    """ColumnTransformer puts its steps into a set, and passes `set_output` on."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pytest.importorskip("sklearn")
    from sklearn.base import clone
    from sklearn.compose import ColumnTransformer

    encoder = declared()
    table = pd.DataFrame(records()).iloc[::-1]
    both = ColumnTransformer([("mine", encoder, list(table))], remainder="passthrough")
    found = both.set_output(transform="pandas").fit_transform(table.assign(more=1.0))
    assert list(found.index) == list(table.index)
    assert np.array_equal(found.to_numpy()[:, :-1], declared().transform(table))
    framed = clone(declared().set_output(transform="polars"))
    assert isinstance(framed.transform(table), pl.DataFrame)
    assert framed.transform(table).columns == list(framed.get_feature_names_out())
    assert isinstance(framed.contexts(table), np.ndarray)
    assert isinstance(framed.set_output(transform="default").transform(table), np.ndarray)
    assert hash(declared()) == hash(declared())  # as they are equal
    with pytest.raises(errors.OptionError, match="'arrow'"):
        framed.set_output(transform="arrow")


class AnyNumbers(dpb.Encoder):
    """A stand-in for scikit-learn's checks, which choose the number of columns."""

    def __init__(self, low=-3.0, high=3.0):
        self.low, self.high = low, high
        super().__init__({"x0": dpb.Number(-3.0, 3.0)})

    def get_params(self, deep=True):
        return {"low": self.low, "high": self.high}

    def set_params(self, **given):
        self.__dict__.update(given)
        return self

    def fit(self, X, y=None):
        count = X.shape[1] if hasattr(X, "shape") else np.asarray(X).shape[1]
        dpb.Encoder.__init__(self, {f"x{i}": dpb.Number(-3.0, 3.0) for i in range(count)})
        return super().fit(X, y)


@pytest.mark.filterwarnings("ignore:Estimator AnyNumbers does not inherit")
def test_the_checks_of_scikit_learn_pass_where_they_apply():
    pytest.importorskip("sklearn", minversion="1.6")
    from sklearn.utils.estimator_checks import check_estimator

    declares = "its columns are declared, before any data"
    words = "its own words say what is wrong"
    apart = {
        "check_no_attributes_set_in_init": declares,
        "check_dont_overwrite_parameters": declares,
        "check_transformers_unfitted_stateless": declares,
        "check_fit1d": declares,
        "check_transformer_data_not_an_array": "records are dicts, JSON, frames or arrays",
        "check_estimators_empty_data_messages": "no record has no contexts: nothing is wrong",
        "check_complex_data": "fit looks at names alone",
        "check_n_features_in_after_fitting": words,
        "check_fit2d_predict1d": words,
    }
    found = check_estimator(AnyNumbers(), expected_failed_checks=apart, on_skip=None)
    assert sum(one["status"] == "passed" for one in found) >= 30
    assert {one["check_name"] for one in found if one["status"] == "failed"} == set()


def test_sizing_says_when_there_are_too_many_columns():
    traffic = {"arms": 5, "rounds": 2_000, "epsilon": 1.0, "delta": 1e-6}
    small = dpb.sizing(dpb.Encoder({"n": dpb.Number(0, 1)}), **{**traffic, "epsilon": 50.0})
    large = dpb.sizing(dpb.Encoder({"id": dpb.Hashed(100)}), **{**traffic, "rounds": 300})
    assert small.enough
    assert not large.enough
    assert "too many columns" in str(large)
    assert "too many" not in str(small)


def test_sizing_asks_about_contexts_as_declared():
    fields = {"country": dpb.Category(["de", "fr"]), "article": dpb.Category(["a", "b", "c"])}
    encoder = dpb.Encoder(fields, item=["article"], crosses=[("country", "article")])
    asked = {"arms": 3, "click_rate": 0.05, "epsilon": 1.0, "delta": 1e-6}
    few, many = (dpb.sizing(encoder, rounds=rounds, **asked) for rounds in (100, 20_000))
    # With contexts that fill all columns, 100 rounds seemed to be enough.
    assert few.gain < 0.1
    assert not few.enough
    assert many.gain > 0.3
    assert many.enough
    told = dpb.sizing(dpb.Encoder({"id": dpb.Hashed(2_000)}), rounds=100, **asked)
    assert (told.gain, told.enough) == (None, False)
    assert "too many columns" in str(told)
