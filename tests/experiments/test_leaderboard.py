"""The leaderboard: paired by seed, resumable, honest about what is proven and what was not run."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import dpbandit as dpb
from dpbandit.algorithms import registry
from dpbandit.cli.shared import app
from dpbandit.errors import OptionError
from dpbandit.spread import threads
from dpbandit.worlds.labelled import NAMED
from dpbandit.worlds.tails import RANGES
from experiments.leaderboard import default, grid, logged, page, published, runner, table
from experiments.leaderboard.grid import Budget, Entry, Place, Profile

BUDGET = Budget(2.0, 1e-5)
TINY = Profile("tiny", {60: 3, 120: 3}, {60: 2, 120: 0}, (BUDGET, Budget(1.0, 1e-6)))
LINES = [
    "tree-gauss",
    "local, Gaussian",
    "dgs-figure",
    "dgs-published",
    "private-linucb",
    "toeplitz + instruments",
]


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setitem(grid.PROFILES, "tiny", TINY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DPBANDIT_DATA", str(tmp_path / "nothing here"))
    monkeypatch.setattr("dpbandit.worlds.data.download", _no_network)


def _no_network(*_args, **_kwargs):
    raise OSError("no network in tests")


def played(folder, **kwargs):
    return runner.play(
        folder, TINY, **{"worlds": ["synthetic", "drifting"], "algorithms": LINES, **kwargs}
    )


def test_added_regret_is_the_mean_of_differences_to_linucb_on_the_same_seeds(tmp_path):
    run = played(tmp_path, worlds=["synthetic"], algorithms=["tree-gauss"])
    found = (
        table.standings(run)
        .set_index(["label", "epsilon", "horizon"])
        .loc[("tree-gauss", 2.0, 120)]
    )
    by_hand = dpb.run(
        dpb.worlds.Synthetic(),
        ["linucb", "tree-gauss"],
        horizon=120,
        seeds=3,
        record=[],
        reward_range=(-0.5, 1.5),
        **BUDGET._asdict(),
    ).frame()
    wide = by_hand.pivot(index="seed", columns="algorithm", values="regret")
    difference = wide["tree-gauss"] - wide["linucb"]
    assert found["added"] == pytest.approx(difference.mean(), rel=1e-12)
    assert found["added_se"] == pytest.approx(difference.std(ddof=1) / math.sqrt(3), rel=1e-12)
    assert found["linucb"] == pytest.approx(wide["linucb"].mean(), rel=1e-12)
    assert found["seeds"] == 3


def test_where_there_is_no_regret_it_is_the_reward_lost_to_linucb():
    row = {"world": "w", "horizon": 9, "regret": math.nan, "epsilon": 1.0, "delta": 0.1}
    rows = pd.DataFrame(
        [
            *(
                row | {"label": "linucb", "epsilon": math.nan, "seed": s, "reward": 10.0 + s}
                for s in (0, 1)
            ),
            *(row | {"label": "local", "seed": s, "reward": 6.0} for s in (0, 1)),
        ]
    )
    assert table.added(rows)["added"].tolist() == [4.0, 5.0]


def counted(monkeypatch):
    """What is played from here on: world, labels, horizon, ε and seeds of each task."""
    calls, prepare = [], runner.prepare

    def count(world, jobs, **kwargs):
        calls.append(
            (
                repr(world),
                list(jobs),
                kwargs["horizon"],
                kwargs.get("epsilon"),
                list(kwargs["seeds"]),
            )
        )
        return prepare(world, jobs, **kwargs)

    monkeypatch.setattr(runner, "prepare", count)
    return calls


def test_an_interrupted_run_goes_on_without_playing_finished_seeds_again(tmp_path, monkeypatch):
    whole = played(tmp_path / "whole")
    waits, wait = [], threads.wait

    def interrupted(*args, **kwargs):
        found = wait(*args, **kwargs)
        waits.append(1)
        if len(waits) == 10:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patched:
        patched.setattr(threads, "wait", interrupted)
        first = played(tmp_path / "parts", workers=1)
    assert not first.complete
    assert "run the same command again" in first.left_out[-1]
    assert 0 < len(first.rows) < len(whole.rows)
    page.write(first, table.standings(first), tmp_path / "shown")
    assert "This run was interrupted" in (tmp_path / "shown" / "leaderboard.md").read_text()
    calls = counted(monkeypatch)
    second = played(tmp_path / "parts")
    assert second.complete
    assert sum(len(labels) * len(seeds) for _, labels, _, _, seeds in calls) == len(
        whole.rows
    ) - len(first.rows)
    pd.testing.assert_frame_equal(second.rows, whole.rows)
    calls.clear()
    third = played(tmp_path / "parts")
    assert calls == []
    pd.testing.assert_frame_equal(third.rows, whole.rows)


def test_a_stored_row_is_not_used_when_code_or_options_differ(tmp_path, monkeypatch):
    lines = {"worlds": ["synthetic"], "algorithms": ["tree-gauss"]}
    played(tmp_path, **lines)
    calls = counted(monkeypatch)
    played(tmp_path, worlds=["synthetic"], algorithms=["tree-gauss", "toeplitz + instruments"])
    assert [labels for _, labels, *_ in calls] == [["toeplitz + instruments"]] * 4
    calls.clear()
    monkeypatch.setattr(runner, "code_version", lambda: "another")
    played(tmp_path, **lines)
    assert len(calls) == 6


def test_rows_of_older_code_are_used_where_todays_code_repeats_their_first_seed(
    tmp_path, monkeypatch
):
    lines = {"worlds": ["synthetic"], "algorithms": ["tree-gauss"]}
    monkeypatch.setattr(runner, "code_version", lambda: "of old")
    before = played(tmp_path, **lines)
    cell = tmp_path / "cells" / "synthetic-eps1-delta1e-06-60.parquet"
    rows = pd.read_parquet(cell)
    first = (rows["label"] == "tree-gauss, Honaker") & (rows["seed"] == 0)
    rows.loc[first, "regret"] += 1e-9  # as if another code had played that line
    rows.to_parquet(cell)
    monkeypatch.setattr(runner, "code_version", lambda: "of today")
    calls = counted(monkeypatch)
    after = played(tmp_path, older="of old", **lines)
    again = {label for _, labels, _, _, seeds in calls if len(seeds) > 1 for label in labels}
    assert again == {"tree-gauss, Honaker"}, "it alone is played anew, at all budgets and horizons"
    pd.testing.assert_frame_equal(
        after.rows.drop(columns=["key", "code"]), before.rows.drop(columns=["key", "code"])
    )
    codes = after.rows.groupby("label")["code"].agg(set).to_dict()
    assert codes.pop("tree-gauss, Honaker") == {"of today"}
    assert all(code == {"of old"} for code in codes.values())
    text = page.page(after, table.standings(after), "x.png")
    assert "Code `of today` played what is not said otherwise here" in text
    assert "Code `of old` played `tree-gauss`, `tree-gauss + instruments`" in text
    assert "today's code repeats their first seed" in text


def test_a_cell_that_was_not_played_is_kept_and_one_that_was_replaces_all_of_it(tmp_path):
    run = played(tmp_path, worlds=["synthetic"], algorithms=["tree-gauss"])
    found = table.standings(run)
    earlier = tmp_path / "earlier.csv"
    found.assign(code="of old", label="gone").to_csv(earlier, index=False)
    part = found[(found["epsilon"] == 1.0) & (found["horizon"] == 60)]
    both = table.merged(part, run, earlier)
    new = both[~both["kept"]]
    assert len(both) == len(found)
    pd.testing.assert_frame_equal(new.reset_index(drop=True), part.reset_index(drop=True))
    assert set(both.loc[both["kept"], "label"]) == {"gone"}
    assert set(both.loc[both["kept"], "code"]) == {"of old"}


def test_only_what_is_proven_is_ranked_and_statuses_come_from_claims(tmp_path):
    found = table.standings(played(tmp_path, worlds=["synthetic"]))
    status = found.groupby("label")["status"].first().to_dict()
    assert status["dgs-figure"] == "none"
    assert status["dgs-published"] == "as-published"
    assert {
        status[n]
        for n in ("tree-gauss", "local, Gaussian", "private-linucb", "toeplitz + instruments")
    } == {"proven"}
    assert found.loc[found["status"] != "proven", "rank"].isna().all()
    assert not found.loc[found["status"] != "proven", "tied"].any()
    for _, cell in found.groupby(table.CELL):
        proven = cell[cell["status"] == "proven"]
        assert sorted(proven["rank"]) == list(range(1, len(proven) + 1))
        assert proven.sort_values("comparable")["rank"].is_monotonic_increasing
        assert proven.loc[proven["rank"] == 1, "tied"].all()
    assert not {w.label for w in table.winners(found)} & {"dgs-figure", "dgs-published"}
    labels = table.order(found)
    assert set(labels[-2:]) == {"dgs-figure", "dgs-published"}


def test_lines_that_cannot_play_a_world_are_left_out_with_a_reason(tmp_path):
    run = played(tmp_path, worlds=["drifting", "lastfm-pca"])
    reasons = {label: reason for world, label, reason in run.skipped if world == "drifting"}
    assert "public_contexts" in reasons["toeplitz + instruments"]
    assert "dgs-published" in reasons
    assert any("LastFM" in text for text in run.left_out)
    assert run.complete
    text = page.page(run, table.standings(run), "x.png")
    assert "Not run: `toeplitz + instruments` on drifting" in text
    assert "Left out: LastFM" in text


def test_an_algorithm_that_refuses_the_contexts_is_left_out(tmp_path, monkeypatch):
    class Picky:
        def __init__(self, **options):
            pass

        def check_contexts(self, contexts):
            raise dpb.errors.ShapeError("only one-hot contexts")

    monkeypatch.setitem(
        registry.ALGORITHMS,
        "picky",
        registry.Algorithm("picky", "none", "", Picky, (), True, black_box=True),
    )
    run = played(tmp_path, worlds=["synthetic"], algorithms=["picky", "local"])
    assert run.skipped == [("synthetic", "picky", "only one-hot contexts")]
    references = {entry.label for entry in grid.REFERENCES}
    assert set(run.rows["label"]) == {*references, "local", "local, Gaussian"}


def test_every_built_in_algorithm_has_a_line_and_users_must_name_theirs():
    labels = {entry.label for entry in grid.entries()}
    built_in = {name for name, a in dpb.algorithms().items() if not a.registered_by_user}
    assert built_in - grid.NO_LINES <= labels
    assert len(labels) == len(grid.entries())
    assert {e.label for e in grid.entries(["tree-gauss"])} == {
        "tree-gauss",
        "tree-gauss + instruments",
        "tree-gauss, Honaker",
    }
    with pytest.raises(OptionError, match="toeplitz"):
        grid.entries(["toeplits"])
    with pytest.raises(OptionError, match="did you mean 'drifting'"):
        grid.places(["driftin"])
    with pytest.raises(OptionError, match="no profile"):
        grid.profile("huge")


def test_no_public_contexts_means_none_whatever_the_world_knows():
    seen = []

    class World(dpb.worlds.Synthetic):
        public_contexts = np.eye(10)

    class Look:
        def __init__(self, **options):
            seen.append(options["public_contexts"])

        def select(self, contexts):
            return 0

        def update(self, context, reward):
            pass

    dpb.register("looks-at-contexts", Look, replace=True)
    try:
        dpb.run(World(), [("looks-at-contexts", {"public_contexts": None})], horizon=2, seeds=1)
    finally:
        registry.ALGORITHMS.pop("looks-at-contexts")
    assert seen
    assert all(given is None for given in seen)


def test_slow_lines_get_fewer_seeds_in_many_dimensions():
    wide, narrow = grid.PLACES["synthetic-50"], grid.PLACES["synthetic"]
    assert grid.seeds_for(TINY, Entry("dgs", "dgs"), wide, 60) == 2
    assert grid.seeds_for(TINY, Entry("dgs", "dgs"), wide, 120) == 0
    assert grid.seeds_for(TINY, Entry("dgs", "dgs"), narrow, 120) == 3


def rows_of(label, values, claim):
    """A line's stored rows: the regret of each seed."""
    budget = (math.nan, math.nan) if label in grid.NO_LINES else BUDGET
    given = [
        ("synthetic", *budget, 60, label, label, seed, 0.0, value, claim, "k", "c")
        for seed, value in enumerate(values)
    ]
    return [dict(zip(runner.COLUMNS, one, strict=True)) for one in given]


def test_a_line_with_fewer_seeds_does_not_win_by_having_had_the_easy_ones():
    claim = json.dumps({"status": "proven", "notion": "gdp", "delta": 1e-5})
    hard = np.array([0.0, 0.0, 100.0, 100.0])
    rows = []
    for label, values in (
        ("linucb", 0 * hard),
        ("random", hard + 500),
        ("good", hard + 10),
        ("few", hard[:2] + 20),
    ):
        rows += rows_of(label, values, claim)
    found = table.standings(
        runner.Run(TINY, grid.places(["synthetic"]), [], pd.DataFrame(rows))
    ).set_index("label")
    assert found["added"].to_dict() == {"good": 60.0, "few": 20.0}
    assert found["comparable"].to_dict() == {"good": 60.0, "few": 70.0}
    assert found.loc["good", "rank"] == 1


def test_ties_are_judged_on_paired_differences():
    place = Place("synthetic", "Simulation", dpb.worlds.Synthetic, 10, (0.0, 1.0))
    claim = json.dumps({"status": "proven", "notion": "gdp", "delta": 1e-5})
    rng = np.random.default_rng(0)
    base = rng.normal(100.0, 30.0, size=8)  # seeds differ far more than lines do
    rows = []
    for label, values in (
        ("linucb", base),
        ("random", base + 500),
        ("best", base + 10),
        ("as good", base + 10 + np.tile([1.0, -0.9], 4)),
        ("worse", base + 12 + np.tile([0.1, -0.1], 4)),
    ):
        rows += rows_of(label, values, claim)
    found = table.standings(runner.Run(TINY, [place], [], pd.DataFrame(rows)))
    (winner,) = table.winners(found)
    assert winner.label == "best"
    assert winner.tied == ("as good",)
    assert winner.beats_random
    assert winner.added == pytest.approx(10)


def test_the_command_writes_table_figure_and_page(tmp_path):
    arguments = [
        "bench",
        "privacy-cost",
        "--profile",
        "tiny",
        "--worlds",
        "synthetic",
        "--worlds",
        "degenerate",
    ]
    for line in LINES:
        arguments += ["--algorithms", line]
    arguments += [
        "--out",
        str(tmp_path / "out"),
        "--docs",
        str(tmp_path / "docs" / "leaderboard.md"),
    ]
    ran = CliRunner().invoke(app, [*arguments, "--json"])
    assert ran.exit_code == 0, ran.output
    record = json.loads(ran.stdout)
    assert record["complete"]
    assert {row["label"] for row in record["standings"]} >= set(LINES)
    assert len(record["winners"]) == 8
    out, docs = tmp_path / "out", tmp_path / "docs"
    for ending in ("parquet", "csv", "svg", "png", "md"):
        assert (out / f"leaderboard.{ending}").stat().st_size > 500
    assert {path.name for path in docs.iterdir()} == {
        *(f"leaderboard.{e}" for e in ("md", "png", "svg", "csv")),
        "leaderboard-small.png",
    }
    text = (docs / "leaderboard.md").read_text()
    for words in (
        "# What privacy costs",
        "![",
        "](leaderboard.png)",
        "](leaderboard-small.png)",
        "## Who wins",
        "## Lower bounds",
        "*dgs-figure* †",
        "no claim",
    ):
        assert words in text
    assert "```console" not in text, "the page's own commands are too long for the tests"
    assert json.loads((out / "config.json").read_text())["profile"] == "tiny"
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0
    assert "best proven" in again.stdout
    assert (docs / "leaderboard.md").read_text() == text, "the same run gives the same page"
    only = [word if word != "--worlds" else "--only" for word in arguments]
    at = only.index("synthetic")
    ran = CliRunner().invoke(app, only[: at - 1] + only[at + 1 :])
    assert ran.exit_code == 0, ran.output
    merged = (docs / "leaderboard.md").read_text()
    mine = "**tree-gauss, Honaker**"
    assert text.count(table.KEPT) == 0
    assert "an earlier one, played 4 cells" in merged
    assert merged.count(f"{mine}{table.KEPT}") + merged.count(f"{mine} ") >= text.count(mine)
    section = "### " + grid.PLACES["synthetic"].title
    kept = [page[page.index(section) :].split("###")[1] for page in (text, merged)]
    assert kept[1].count(table.KEPT) == 4, "one in the head of each column"
    assert kept[1].replace(table.KEPT, "") == kept[0], "what was not played keeps its numbers"


def test_the_large_picture_has_a_number_for_every_line_of_every_world(tmp_path):
    found = table.standings(played(tmp_path))
    last = found[(found["epsilon"] == 1.0) & (found["horizon"] == 120)]
    drawn = page.drawing.figure(found).subfigs
    texts = drawn[0].axes[0].texts
    assert len(texts) == len(last)
    bold = [text.get_text() for text in texts if text.get_weight() == "bold"]
    assert bold == ["1.0", "1.0"], "the best proven line of each world"
    titles = [axes.get_title() for axes in drawn[1].axes if axes.get_visible()]
    assert titles == [grid.PLACES[name].title for name in ("synthetic", "drifting")]


def test_help_of_the_bench_has_examples():
    ran = CliRunner().invoke(app, ["bench", "privacy-cost", "--help"])
    assert "dpbandit bench privacy-cost --profile full" in " ".join(ran.stdout.split())
    assert "privacy-cost" in CliRunner().invoke(app, ["bench", "--help"]).stdout


def test_references_are_no_straw_men_and_worlds_move_within_the_rounds_played(tmp_path):
    run = played(tmp_path, worlds=["abrupt"], algorithms=["local"])
    found = table.standings(run)
    assert (found["best_linucb"] <= found["linucb"]).all()
    alphas = {dpb.make("linucb", dim=2, **entry.options).fixed_alpha for entry in grid.BONUSES}
    assert alphas == {1.0, 0.3, 0.1}, "three of them, and not one twice"
    own = run.rows[run.rows["label"] == grid.FORGETS.label].groupby("horizon")["regret"].mean()
    assert found["forgets"].tolist() == pytest.approx(found["horizon"].map(own).tolist())
    assert "LinUCB's, if it forgets" in table.world_table(found, "abrupt")
    assert [grid.PLACES["abrupt"].make(rounds).rounds for rounds in (90, 900)] == [90, 900]


def test_bounds_for_linear_rewards_are_drawn_where_rewards_are_linear():
    without = {place.name for place in grid.places() if not place.bounded}
    moving = {"abrupt", "walk", "seasonal", "new-arm", "worst-becomes-best"}
    clicks = {"clicks", "logistic", "catalogue-clicks"}
    others = {"lastfm-pca", "lastfm-svd", "movielens", *RANGES}
    assert without == {*others, *moving, *clicks, *NAMED}


def test_a_logistic_bandit_is_a_reference_where_rewards_are_0_or_1(tmp_path):
    run = played(tmp_path, worlds=["logistic", "degenerate"], algorithms=["private-linucb"])
    found = table.standings(run)
    where = set(run.rows.loc[run.rows["label"] == grid.CLICKED.label, "world"])
    assert where == {"logistic"}
    assert "a logistic bandit's" in table.world_table(found, "logistic")
    assert "a logistic bandit's" not in table.world_table(found, "degenerate")
    few = {"horizon": 1500, "seeds": 2, "record": []}
    results = dpb.run(dpb.worlds.Logistic(), ["linucb", grid.LOGISTIC, "random"], **few)
    lost = results.summary()["regret"]
    assert lost[grid.LOGISTIC] < lost["linucb"] / 2  # 14, 73 and 605
    assert lost["linucb"] < lost["random"] / 2
    assert registry.find(grid.LOGISTIC).registered_by_user


def standings_of(*lines):
    """Standings of our own making: world, horizon, label, added, LinUCB's, rank, tied."""
    names = ("world", "horizon", "label", "comparable", "linucb", "rank", "tied")
    rows = [dict(zip(names, line, strict=True)) for line in lines]
    for row in rows:
        measure = grid.PLACES[row["world"]].measure
        row |= {"epsilon": 1.0, "delta": 1e-6, "status": "proven", "measure": measure}
    return pd.DataFrame(rows)


def test_the_default_is_compared_with_the_best_of_each_world():
    made = standings_of(
        ("digits", 10_000, "local", 20.0, 100.0, 1, True),
        ("digits", 10_000, "anytime", 50.0, 100.0, 3, False),
        ("digits", 10_000, "anytime, clicks", 26.0, 100.0, 2, True),
        ("synthetic", 10_000, "anytime", -10.0, 100.0, 1, True),
        ("lastfm-pca", 10_000, "anytime", 200.0, 1000.0, 2, False),
        ("lastfm-pca", 10_000, "local", 0.0, 1000.0, 1, True),
        ("wine", 1_000, "anytime", 1.0, 1.0, 1, True),  # not among the horizons of the table
    )
    found = {gap.world: gap for gap in default.against_best(made)}
    assert set(found) == {"digits", "synthetic", "lastfm-pca"}
    assert found["digits"].ratio == pytest.approx(150 / 120)
    assert found["digits"].told == pytest.approx(126 / 120)
    assert found["synthetic"].ratio == found["synthetic"].told == 1.0
    assert found["lastfm-pca"].ratio == pytest.approx(1000 / 800), "of rewards, where no regret is"
    said = default.sentences([*found.values()])
    assert "1 of 3 worlds" in said[0]
    assert "LastFM, PCA, d = 25 1.25" in said[0]
    assert "Digits, d = 90 1.25" in said[0]
    assert "2 of 3 worlds" in said[1]
    text = default.markdown([*found.values()])
    assert "| Digits, d = 90 | `local` 120 | **1.25** | 1.05 ≈ |" in text
    assert "| Simulation, d = 10 | `anytime` 90 | 1.00 | – |" in text


def test_the_command_says_how_far_the_default_is(tmp_path):
    path = tmp_path / "table.csv"
    standings_of(("clicks", 100_000, "anytime", 5.0, 10.0, 1, True)).to_csv(path, index=False)
    ran = CliRunner().invoke(app, ["bench", "default", "--table", str(path), "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["worlds"][0]["regret"] == 15.0
    shown = CliRunner().invoke(app, ["bench", "default", "--table", str(path)])
    assert "1 of 1 worlds within 1.1 ×" in " ".join(shown.stdout.split())
    ran = CliRunner().invoke(app, ["bench", "default", "--table", str(tmp_path / "none.csv")])
    assert isinstance(ran.exception, OptionError)


class TinyLog:
    """A log in which item 1 is clicked, and nothing else."""

    arms = 3

    def __init__(self, campaign, policy):
        self.campaign, self.policy = campaign, policy

    def records(self, order):
        rng = np.random.default_rng(order)
        chances = np.array([0.2, 0.6, 0.2]) if self.policy == "bts" else np.full(3, 1 / 3)
        for item in rng.choice(3, size=300, p=chances):
            about = {"contexts": np.eye(3), "action": int(item), "reward": float(item == 1)}
            yield about | {"propensity": float(chances[item])}


def test_a_log_is_replayed_and_never_ranked(tmp_path, monkeypatch):
    monkeypatch.setattr(logged, "OpenBandit", TinyLog)
    lines = {name: logged.LINES[name] for name in ("linucb", "local", "random")}
    monkeypatch.setattr(logged, "LINES", lines)
    for drawing in (page.drawing, page.summary):
        monkeypatch.setattr(drawing, "figure", lambda standings: Figure())
    given = {"algorithms": ["tree-gauss"]}
    run = played(tmp_path / "out", worlds=["synthetic", "open-bandit"], **given)
    assert set(run.sections[logged.NAME]["policy"]) == {"random", "bts"}
    rates = run.sections[logged.NAME].groupby(["label", "policy"])["rate"].mean()
    for policy in ("random", "bts"):
        assert rates["linucb", policy] > 0.9
        assert 0.2 < rates["random", policy] < 0.5
    standings, docs = table.standings(run), tmp_path / "docs" / "leaderboard.md"
    assert set(standings["world"]) == {"synthetic"}
    page.write(run, standings, tmp_path / "out", docs)
    text = docs.read_text()
    section = text[text.index("## Logged clicks") : text.index("## Setting")]
    assert "**replays**, not runs" in section
    assert "`linucb`" in section
    monkeypatch.setattr(logged, "OpenBandit", None)  # what is finished is not played again
    again = played(tmp_path / "out", worlds=["open-bandit"], **given).sections
    pd.testing.assert_frame_equal(again[logged.NAME], run.sections[logged.NAME])
    other = played(tmp_path / "out", worlds=["synthetic"], **given)
    page.write(other, table.standings(other), tmp_path / "out", docs)
    assert section in docs.read_text(), "kept, as worlds are that were not played"


def test_a_log_that_is_not_there_is_left_out_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr("dpbandit.worlds.data.find_spec", lambda package: None)
    run = played(tmp_path, worlds=["open-bandit", "synthetic"], algorithms=["local"])
    assert not run.sections
    assert any("Open Bandit" in text and "obp" in text for text in run.left_out)


def test_another_papers_figures_stand_beside_ours_and_are_called_printed(tmp_path):
    found, why_not = published.play(tmp_path, norms=(3.0,), rounds=200, seeds=2)
    assert not why_not
    text = published.markdown(found)
    row = next(line for line in text.splitlines() if line.startswith("| `joint` | (2, 1e-05)"))
    mine = found[(found["algorithm"] == "joint") & (found["budget"] == "(2, 1e-05)")]["regret"]
    assert f"{mine.mean():,.0f} ± {mine.sem():,.0f}" in row
    assert "| *as printed there: Private-GLM, contexts private* | (4, 0.02) | 487 |" in text
    assert "not our runs" in text
    again, _ = published.play(tmp_path, norms=(3.0,), rounds=200, seeds=2)
    pd.testing.assert_frame_equal(found, again)


def test_lines_for_clicks_play_where_rewards_are_0_or_1(tmp_path):
    given = {"worlds": ["synthetic", "logistic"], "algorithms": ["anytime, clicks"]}
    run = runner.play(tmp_path, TINY, **given)
    assert set(run.rows.loc[run.rows["label"] == "anytime, clicks", "world"]) == {"logistic"}
    assert [(world, label) for world, label, _ in run.skipped] == [("synthetic", "anytime, clicks")]


def test_lower_bounds_grow_as_they_should():
    from dpbandit import theory

    assert theory.worst_case_regret(40_000, dim=10) == pytest.approx(
        2 * theory.worst_case_regret(10_000, dim=10)
    )
    assert theory.worst_case_regret(100, dim=4, reward_noise=1.0) == pytest.approx(
        4 * 10 / (16 * math.sqrt(3))
    )
    with pytest.raises(ValueError, match="dim ≤ 2·horizon"):
        theory.worst_case_regret(2, dim=5)
    assert theory.privacy_order(dim=20, mu=1.0) == pytest.approx(20 / math.sqrt(1 / 2))
    assert theory.arms_privacy_order(100, arms=3, epsilon=0.5) == pytest.approx(6 * math.log(100))
