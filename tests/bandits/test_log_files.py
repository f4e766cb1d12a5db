"""A log as CSV, as an Arrow file or stream, with texts and an encoder: the same bandit, and no silent losses."""

import traceback
import warnings
from collections import Counter

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import errors

pa = pytest.importorskip("pyarrow")
from pyarrow import csv, feather  # noqa: E402
from pyarrow import parquet as pq  # noqa: E402

GIVEN = {"epsilon": 1.0, "delta": 1e-6, "reward_range": (0, 1), "seed": 3, "reward": "clicked"}


def table(rows=3000):
    rng = np.random.default_rng(5)
    country = rng.choice(["de", "fr", "uk"], rows)
    article = rng.choice(["a", "b"], rows)
    chance = 0.3 + 0.4 * ((country == "de") == (article == "a"))
    clicked = (rng.random(rows) < chance).astype(float)
    ages = rng.uniform(0, 90, rows)
    return pa.table({"age": ages, "country": country, "article": article, "clicked": clicked})


def encoder():
    fields = {
        "age": dpb.Number(0, 100),
        "country": dpb.Category(["de", "fr", "uk"]),
        "article": dpb.Category(["a", "b"]),
    }
    return dpb.Encoder(fields, crosses=[("country", "article")], item=["article"])


def written(folder, kind, log):
    file = str(folder / f"log.{kind}")
    if kind == "csv":
        csv.write_csv(log, file)
    elif kind == "parquet":
        pq.write_table(log, file)
    elif kind == "feather":
        feather.write_feather(log, file)
    elif kind == "arrows":
        with pa.ipc.new_stream(file, log.schema) as writer:
            writer.write_table(log, max_chunksize=700)
    else:
        raise AssertionError(kind)
    return file


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "arrows"])
def test_every_kind_of_file_gives_the_same_bandit(tmp_path, kind):
    log = table()
    want = dpb.warm_start(log, encoder=encoder(), **GIVEN)
    found = dpb.warm_start(written(tmp_path, kind, log), encoder=encoder(), **GIVEN)
    assert found.theta == pytest.approx(want.theta, abs=1e-9)  # public sums: batches differ
    assert found.log == want.log
    assert found.encoder == encoder()
    folder = dpb.warm_start(tmp_path, encoder=encoder(), **GIVEN)
    assert np.array_equal(folder.theta, found.theta)


def test_a_stream_longer_than_its_head_is_read_once(monkeypatch):
    from dpbandit.warmstart import streams

    monkeypatch.setattr(streams, "HEAD", 1000)
    log = table(9000)
    given = {**GIVEN, "context": ["age"], "max_norm": 100.0}
    reader = pa.RecordBatchReader.from_batches(log.schema, log.to_batches(max_chunksize=500))
    part = streams.StreamPart(reader)
    names = ["age", "clicked"]
    looked = part.batches(names)
    assert sum(next(looked).num_rows for _ in range(2)) == 1000
    rows = sum(batch.num_rows for batch in part.batches(names))
    assert rows == 9000
    with pytest.raises(errors.LogError, match="read once"):
        list(part.batches(names))
    monkeypatch.undo()
    stream = pa.RecordBatchReader.from_batches(log.schema, log.to_batches(max_chunksize=500))
    found = dpb.warm_start(stream, **given)
    assert found.log.learned == 9000
    assert found.theta == pytest.approx(dpb.warm_start(log, **given).theta, abs=1e-9)


@pytest.mark.parametrize("column", ["x", "clicked"])
@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(("zero", "one"), [("0", "1"), ("false", "TRUE")])
def test_no_value_of_a_csv_file_decides_whether_it_can_be_read(
    tmp_path, column, encoded, zero, one
):
    """Whole numbers, or true and false, in the first megabyte, and one after it that is neither: once
    an error quoted it."""
    lines = [f"{zero},{one},{'.' * 1000}"] * 1200
    lines[1199] = lines[1199].replace(zero if column == "x" else one, "0.25", 1)
    (tmp_path / "log.csv").write_text("\n".join(["x,clicked,text", *lines]))
    context = {"encoder": dpb.Encoder({"x": dpb.Number(0, 1)})} if encoded else {"context": ["x"]}
    bandit = dpb.warm_start(tmp_path, "anytime-joint", **context, **GIVEN)
    assert bandit.log.learned == 1200
    lines[1199] = lines[1199].replace("0.25", "secret")
    (tmp_path / "log.csv").write_text("\n".join(["x,clicked,text", *lines]))
    with pytest.raises(errors.LogError, match="text in a column of numbers") as found:
        dpb.warm_start(tmp_path, "anytime-joint", **context, **GIVEN)
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("odd", ["A1", "1.5", "true", "2026-01-02"])
def test_no_private_context_of_a_csv_file_decides_what_others_are(tmp_path, odd):
    """007 is a text, whoever else is in the file: once it was the number 7 where all others were
    numbers, so that one person's context moved everybody's."""
    declared = {"zip": dpb.Category(["007", "008"]), "street": dpb.Hashed(8)}
    given = {**GIVEN, "encoder": dpb.Encoder(declared, private=["zip", "street"])}

    def theta(last, algorithm="anytime-joint"):
        lines = [*(f"00{7 + i % 2},0{i % 5},{i % 2}" for i in range(400)), f"{last},{last},1"]
        (tmp_path / "log.csv").write_text("\n".join(["zip,street,clicked", *lines]))
        return dpb.warm_start(tmp_path / "log.csv", algorithm, **given).theta

    numbers, others = theta("007"), theta(odd)
    assert np.abs(numbers - others).max() < 0.02  # as one row in 400 may; it was 0.4


@pytest.mark.parametrize("frame", ["records", "pandas"])
@pytest.mark.parametrize(
    ("column", "usual", "odd", "encoded"),
    [
        ("age", True, 0.5, False),
        ("age", 1, 10**30, False),
        ("age", 1, True, True),
        ("country", "de", 7, True),
        ("country", 2**60 + 1, 0.5, True),
        ("clicked", False, 0.5, False),
        ("clicked", 1, True, True),
    ],
)
def test_no_value_of_a_record_decides_whether_a_log_can_be_read(frame, column, usual, odd, encoded):
    """Nor what others' values are: all rows but one give the same bandit as without it."""
    records = [{"age": 0.5, "country": "de", "article": "a", "clicked": 0.0} for _ in range(40)]
    for record in records:
        record[column] = usual
    given = {"encoder": encoder()} if encoded else {"context": ["age"], "dim": 1}
    found = []
    for value in (usual, odd):
        records[7] = {**records[7], column: value}
        log = records
        if frame == "pandas":
            log = pytest.importorskip("pandas").DataFrame(records, dtype=object)
        found.append(dpb.warm_start(log, "anytime-joint", **given, **GIVEN).log)
    assert found[0] == found[1]
    assert found[0].learned == 40


def test_two_columns_of_one_name_are_refused_whatever_they_hold():
    pd = pytest.importorskip("pandas")
    log = pd.DataFrame([[1, True, 0.5]] * 3, columns=["x", "x", "clicked"], dtype=object)
    with pytest.raises(errors.LogError, match=r"more than one column|a name of its own"):
        dpb.warm_start(log, context=["x"], **GIVEN)


def test_no_error_quotes_a_row(tmp_path):
    """Arrow's own words do, for a row that is too long, and for a stream that is parsed as it comes."""
    (tmp_path / "log.csv").write_text("x,clicked\n0.5,0.731\n0.5,0.731,7\n")
    with pytest.raises(errors.LogError, match="as many values") as found:
        dpb.warm_start(tmp_path / "log.csv", context=["x"], **GIVEN)
    assert "731" not in "".join(traceback.format_exception(found.value))
    for rows in (100, 400_000):  # while its head is kept, and after that
        text = "x,clicked\n" + "0.5,1\n" * rows + "0.5,0.731\n"
        stream = csv.open_csv(
            pa.py_buffer(text.encode()), read_options=csv.ReadOptions(block_size=1 << 9)
        )
        with pytest.raises(errors.LogError, match=r"stream cannot be read \(Arrow") as found:
            dpb.warm_start(stream, context=["x"], **GIVEN)
        assert "731" not in "".join(traceback.format_exception(found.value))


def test_columns_are_found_by_name_in_any_order(tmp_path):
    log = table()
    other = log.select(["clicked", "article", "age", "country"])
    one = dpb.warm_start(written(tmp_path, "csv", other), encoder=encoder(), **GIVEN)
    want = dpb.warm_start(log, encoder=encoder(), **GIVEN).theta
    assert one.theta == pytest.approx(want, abs=1e-9)
    with pytest.raises(errors.LogError, match="no column 'country'"):
        dpb.warm_start(log.drop_columns("country"), encoder=encoder(), **GIVEN)


def test_rows_that_are_left_out_are_said_aloud_and_too_many_are_refused():
    """Once 102 of 20,000 rows were learned from without a word, and the budget was spent."""
    long = np.full(2000, 7.0)
    long[:102] = 0.5
    log = pa.table({"x": long, "clicked": np.ones(2000)})
    with pytest.raises(errors.LogError, match=r"only 102 of 2,000 rows.*longer.*Nothing was rel"):
        dpb.warm_start(log, context=["x"], **GIVEN)
    with pytest.warns(errors.LogWarning, match="1,898 context longer than max_norm"):
        bandit = dpb.warm_start(log, context=["x"], least_used=0.01, **GIVEN)
    assert bandit.log.learned == 102


def test_files_of_two_kinds_and_broken_ones_are_refused(tmp_path):
    log = table(50)
    written(tmp_path, "csv", log)
    file = written(tmp_path, "parquet", log)
    with pytest.raises(errors.LogError, match="one kind of files, not of csv and parquet"):
        dpb.warm_start(tmp_path, encoder=encoder(), **GIVEN)
    (tmp_path / "broken.arrow").write_bytes(b"no arrow")
    with pytest.raises(errors.LogError, match="not a file of arrow"):
        dpb.warm_start(tmp_path / "broken.arrow", encoder=encoder(), **GIVEN)
    (tmp_path / "late.csv").write_text("x,clicked\n" + "0.5,1\n" * 400_000 + "word,1\n")
    with pytest.raises(errors.LogError, match="Nothing was released"):
        dpb.warm_start(tmp_path / "late.csv", context=["x"], **GIVEN)
    with pytest.raises(errors.LogError, match="'age'"):
        dpb.warm_start(log.set_column(0, "age", [["old"] * 50]), encoder=encoder(), **GIVEN)
    assert file.endswith("parquet")


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_a_frame_with_columns_in_another_order_is_refused(tmp_path, kind):
    from dpbandit.frames import frame

    rng = np.random.default_rng(0)
    log = pa.table({"a": rng.random(200) / 2, "b": rng.random(200) / 2, "clicked": np.ones(200)})
    bandit = dpb.warm_start(log, context=["b", "a"], **GIVEN)
    bandit.save(tmp_path / "b.npz")
    rows = {"b": [0.1, 0.2], "a": [0.3, 0.4]}
    for one in (bandit, dpb.load(tmp_path / "b.npz")):
        one.select(frame(rows, kind))
        one.update(frame(rows, kind), [1.0, 0.0])
        one.select([[0.1, 0.3]])
        for wrong in ({"a": rows["a"], "b": rows["b"]}, {"b": rows["b"], "c": rows["a"]}):
            with pytest.raises(errors.ShapeError, match="learned from b, a, in this order"):
                one.select(frame(wrong, kind))
            with pytest.raises(errors.ShapeError, match="learned from b, a, in this order"):
                one.update(frame(wrong, kind), [1.0, 0.0])
    assert bandit.rounds == 2


def named(rows=2_000):
    """Names that a reader of CSV would take for numbers, missing values or truths."""
    rng = np.random.default_rng(7)
    columns = {
        "country": rng.choice(["de", "NA"], rows),
        "zip": rng.choice(["01067", "02067", "10115"], rows),
        "version": rng.choice(["1.0", "1.1"], rows),
        "premium": rng.choice(["True", "False"], rows),
        "article": rng.choice(["007", "008", "100"], rows),
        "visitor": [f"{v:03d}" for v in rng.integers(0, 900, rows)],
        "clicked": rng.integers(0, 2, rows),
    }
    return pa.table(columns)


NAMED = {
    "country": dpb.Category(["de", "NA"]),
    "zip": dpb.Category(["01067", "02067", "10115"]),
    "version": dpb.Category(["1.0", "1.1"]),
    "premium": dpb.Category([True, False]),
    "article": dpb.Category(["007", "008", "100"]),
}


def test_names_in_a_csv_file_stay_as_they_stand_there(tmp_path):
    """007 became 7, and NA nothing: half of the rows taught nothing, and the budget was spent."""
    encoder = dpb.Encoder(NAMED, item=["article"])
    asked = {**GIVEN, "encoder": encoder, "user": "visitor", "unit": ("user", 2)}
    log = named()
    found = []
    for kind in ("csv", "parquet"):
        file = written(tmp_path, kind, log)
        started = dpb.warm_start(file, "tree-gauss", horizon=5_000, **asked)
        replayed = dpb.replay(file, "tree-gauss", horizon=5_000, action="article", **asked)
        found.append((started.theta.tolist(), replayed.of("tree-gauss").to_dict()))
        assert replayed.used == log.num_rows
        # Online, the same names are the same persons.
        often = Counter(log.column("visitor").to_pylist()).most_common(1)[0]
        assert often[1] >= 2
        before = started.rounds
        started.update(np.zeros(encoder.dim), 1.0, user=often[0])
        assert started.rounds == before
    assert found[0] == found[1]


def test_whole_numbers_in_a_csv_file_may_have_a_point(tmp_path):
    """pandas writes 17.0 where another row's value is missing."""
    encoder = dpb.Encoder({"id": dpb.Hashed(50), "kind": dpb.Category([1, 2])})
    lines = [f"{i % 9}{end},{1 + i % 2}{end},1" for i in range(60) for end in ("", ".0")]
    (tmp_path / "log.csv").write_text("\n".join(["id,kind,clicked", *lines, ",,0"]))
    with_points = dpb.warm_start(tmp_path / "log.csv", encoder=encoder, **GIVEN)
    log = [{"id": i % 9, "kind": 1 + i % 2, "clicked": 1} for i in range(60) for _ in range(2)]
    log = pa.Table.from_pylist([*log, {"id": None, "kind": None, "clicked": 0}])
    assert (
        with_points.theta.tolist() == dpb.warm_start(log, encoder=encoder, **GIVEN).theta.tolist()
    )
    # Numbers at the head, and a point far below: one person all the same.
    lines = ["1,1,1,17," + "x" * 5_000] * 300 + ["1,1,1,17.0,x"]
    (tmp_path / "log.csv").write_text("\n".join(["id,kind,clicked,who,long", *lines]))
    started = dpb.warm_start(
        tmp_path / "log.csv",
        "toeplitz",
        horizon=10,
        encoder=encoder,
        user="who",
        unit=("user", 1),
        **GIVEN,
    )
    assert started.log.learned == 1


def test_users_in_a_column_of_floats_are_whole_numbers(tmp_path):
    """pandas makes floats of ids where one is missing; 17.0 is 17, online too."""
    pd = pytest.importorskip("pandas")
    encoder = dpb.Encoder({"id": dpb.Category([1, 2])}, item=["id"])
    who = [17.0, 17.0, 18.0, float("nan"), 17.0, 2.0**52]
    log = pd.DataFrame({"id": [1, 2] * 3, "clicked": 1, "who": who})
    given = {**GIVEN, "encoder": encoder, "user": "who"}
    evaluated = {"action": "id", "rows_per_user": 1, **given}
    log.to_csv(tmp_path / "log.csv", index=False)
    log.to_parquet(tmp_path / "log.parquet")
    arrow = pa.table({name: pa.array(log[name].to_numpy()) for name in log})  # NaN is no null there
    records = log.to_dict("records")
    for form in (log, tmp_path / "log.csv", tmp_path / "log.parquet", arrow, records):
        with pytest.warns(errors.LogWarning, match="1 user missing"):
            started = dpb.warm_start(form, "toeplitz", horizon=9, unit=("user", 2), **given)
        assert (started.log.learned, started.log.users, started.log.full) == (4, 3, 1)
        before = started.rounds
        started.update(np.zeros(encoder.dim), 1.0, user=17)
        assert started.rounds == before
        with pytest.warns(errors.LogWarning, match="1 user missing"):
            found = dpb.replay(form, "random", **evaluated)
        assert found.used == 5
    for broken in (17.5, 2.0**53, float("inf")):
        log["who"] = [17.0, broken] * 3
        with pytest.raises(errors.LogError, match="whole numbers below"):
            dpb.warm_start(log, unit=("user", 2), **given)
        with pytest.raises(errors.LogError, match="whole numbers below"):
            dpb.replay(log, "random", **evaluated)
    log["who"] = log["who"].astype("float32")  # in which 2²⁴ + 1 is 2²⁴
    with pytest.raises(errors.LogError, match="holds float"):
        dpb.warm_start(log, unit=("user", 2), **given)


def test_a_log_that_uses_up_the_caps_says_so():
    """In a shadow nothing more would be learned or measured, without a word."""
    pd = pytest.importorskip("pandas")
    log = pd.DataFrame({"id": [1, 2] * 30, "clicked": 1, "who": np.arange(60) // 2})
    given = {**GIVEN, "encoder": dpb.Encoder({"id": dpb.Category([1, 2])}), "user": "who"}
    with pytest.warns(errors.LogWarning, match="30 of 30 users have no reward left"):
        started = dpb.warm_start(log, unit=("user", 2), **given)
    assert str(started.log).endswith("; 30 users have no reward left")
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.LogWarning)
        started = dpb.warm_start(log, unit=("user", 3), **given)
        persons = dpb.warm_start(log, unit=("person", 1), **given)
    assert started.log.full == 0
    assert persons.log.full is None  # what is left to a person is theirs


def test_categories_that_no_row_has_are_said_before_anything_is_spent():
    log = named().to_pandas()
    log["zip"], log["article"] = log["zip"].astype(int), log["article"].astype(int)
    asked = {**GIVEN, "encoder": dpb.Encoder(NAMED, item=["article"])}
    with pytest.warns(errors.LogWarning, match=r"'zip' in \d\d%, 'article' in \d\d% of the rows"):
        dpb.warm_start(log, **asked)
    log["article"] = "007"
    with pytest.warns(errors.LogWarning, match=r"'zip' in \d\d% of the rows"):
        dpb.replay(log, "random", action="article", **asked)


def test_records_and_what_is_no_log(tmp_path):
    log = table(200)
    asked = {**GIVEN, "encoder": encoder()}
    records = log.to_pylist()
    started = dpb.warm_start(records, **asked)
    assert started.theta.tolist() == dpb.warm_start(log, **asked).theta.tolist()
    twice = log.append_column("age", log.column("age"))
    for given, words in (
        ([*records, {"age": 3}], "the same fields"),
        ([{**records[0], "age": "old"}, *records], "one kind of values"),
        (log[:0], "the log has no rows"),
        (pytest.importorskip("polars").LazyFrame(records), "collect"),
        (twice, "more than one column"),
    ):
        with pytest.raises(errors.LogError, match=words):
            dpb.warm_start(given, **asked)
    for call in (dpb.warm_start, dpb.replay):
        more = {"algorithm": "anytime"} if call is dpb.warm_start else {"algorithms": "anytime"}
        with pytest.raises(errors.OptionError, match=r"Encoder.load"):
            call(log, **more, **{**asked, "encoder": "encoder.json"})
    with pytest.raises(errors.LogError, match="no rows"):
        dpb.replay(log[:0], "random", action="article", **asked)


def test_a_column_of_users_that_counts_nobody_is_refused():
    """It protected one reward, and not the users that it named."""
    log = named(300)
    asked = {**GIVEN, "encoder": dpb.Encoder(NAMED, item=["article"]), "user": "visitor"}
    with pytest.raises(errors.OptionError, match="user='visitor' protects nobody"):
        dpb.warm_start(log, **asked)
    for release in (None, (1.0, 1e-6)):
        with pytest.raises(errors.OptionError, match="user='visitor' protects nobody"):
            dpb.replay(log, "anytime", action="article", release=release, **asked)
    dpb.replay(log, "random", action="article", rows_per_user=2, **asked)
    counted = {"mine": ("anytime", {"unit": ("user", 2)})}
    assert dpb.replay(log, counted, action="article", **asked).used == 300


def test_a_bandit_with_an_encoder_says_what_to_do_with_records():
    bandit = dpb.make("anytime", encoder=encoder(), epsilon=1.0, delta=1e-6, reward_range=(0, 1))
    record = {"age": 3, "country": "de", "article": "a"}
    for call in (
        lambda: bandit.select([record]),
        lambda: bandit.update(record, 1.0),
        lambda: bandit.select(pa.Table.from_pylist([record])),
    ):
        with pytest.raises(errors.ShapeError, match=r"bandit\.encoder\.transform"):
            call()
    assert bandit.select(bandit.encoder.transform([record])) == 0
