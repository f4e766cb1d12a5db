"""Open Bandit replay: the log's counts, its contexts, and that only matched rounds count."""

import hashlib
import math
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dpbandit as dpb
from dpbandit.worlds import DataMissing, OpenBandit, Replay, data, replay

CAMPAIGNS = {"all": (80, 38), "men": (34, 46), "women": (46, 46)}
# Found once, before any test changes the environment.
FOLDER = Path(
    os.environ.get("DPBANDIT_DATA") or Path(__file__).parents[2].parent / "shared" / "data"
)


@pytest.fixture
def sample(monkeypatch, tmp_path):
    path = FOLDER / data.SOURCES["obd"].file
    if not path.is_file():
        pytest.skip(
            f"the Open Bandit sample is not in {FOLDER}: set DPBANDIT_DATA to a folder that holds {path.name}"
        )
    monkeypatch.setenv("DPBANDIT_DATA", str(FOLDER))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty cache"))
    return path


class Noting:
    """Plays one fixed item and notes what it is taught."""

    def __init__(self, world, item):
        self.item, self.world, self.round, self.taught = item, world, -1, []

    def select(self, contexts):
        self.round += 1
        own = self.world.contexts(self.round)[self.item]
        return int(np.flatnonzero((contexts == own).all(axis=1))[0])

    def update(self, context, reward):
        self.taught.append((self.round, reward))


@pytest.mark.parametrize(
    ("campaign", "items", "clicks"), [(name, *counts) for name, counts in CAMPAIGNS.items()]
)
def test_counts_are_those_of_the_sample(sample, campaign, items, clicks):
    world = OpenBandit(campaign)
    assert (world.rounds, world.arms, world.clicks) == (10_000, items, clicks)
    assert set(world.log.chosen) == set(range(items))
    assert set(world.log.positions) == {0, 1, 2}
    assert world.expected_matches == 10_000 / items


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_contexts_have_the_promised_shape_and_no_norm_above_one(sample, campaign):
    world = OpenBandit(campaign)
    busiest = int(world.log.affinities.max(axis=1).argmax())
    for index in (0, 17, busiest):
        contexts = world.contexts(index)
        assert contexts.shape == (world.arms, 20)
        assert np.linalg.norm(contexts, axis=1).max() <= 1.0
        np.testing.assert_allclose(contexts[:, 16:19].sum(axis=1), 1 / math.sqrt(3))
        affinity = world.log.affinities[index]
        np.testing.assert_allclose(contexts[:, 19], affinity / (1 + affinity) / math.sqrt(3))
    longest = np.linalg.norm(world.contexts(0)[:, :16], axis=1).max()
    assert longest == pytest.approx(1 / math.sqrt(3))


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_a_random_policy_matches_one_round_in_as_many_as_there_are_items(sample, campaign):
    """Two-sided binomial bound: a fresh seed would fail once in a million runs."""
    world = OpenBandit(campaign)
    result = replay(dpb.make("random", dim=world.dim, seed=0), world)
    low, high = stats.binom.interval(1 - 1e-6, world.rounds, 1 / world.arms)
    assert low <= result.matched <= high
    assert result.rounds == world.rounds
    assert 0 <= result.clicks <= min(result.matched, world.clicks)


def test_only_matched_rounds_are_learned_from_in_time_order(sample):
    world = OpenBandit("men")
    player = Noting(world, item=5)
    result = replay(player, world, seed=3)
    rounds = np.flatnonzero(world.log.chosen == 5)
    assert [when for when, _ in player.taught] == rounds.tolist()
    assert [reward for _, reward in player.taught] == world.log.clicked[rounds].tolist()
    assert (result.matched, result.clicks) == (len(rounds), world.log.clicked[rounds].sum())


def test_private_bandits_run_on_real_logs_and_seeds_decide_everything(sample):
    world = OpenBandit("men")
    bandit = dpb.make(
        "tree-gauss",
        dim=world.dim,
        epsilon=1.0,
        delta=1e-5,
        reward_range=world.reward_range,
        horizon=world.rounds,
        seed=0,
    )
    first = replay(bandit, world)
    assert first.matched > 0
    again = dpb.make("linucb", dim=world.dim, seed=1), dpb.make("linucb", dim=world.dim, seed=1)
    assert replay(again[0], world, seed=2) == replay(again[1], world, seed=2)


def test_rates_and_their_errors():
    assert Replay(rounds=100, matched=50, clicks=5).ctr == 0.1
    assert Replay(rounds=100, matched=50, clicks=5).standard_error == pytest.approx(
        math.sqrt(5.5 / 51 * (1 - 5.5 / 51) / 50)
    )
    assert (
        Replay(rounds=100, matched=50, clicks=0).standard_error > 0
    )  # no click seen is not certainty
    assert math.isnan(Replay(rounds=100, matched=0, clicks=0).ctr)
    assert math.isnan(Replay(rounds=100, matched=0, clicks=0).standard_error)


def test_run_is_refused_and_points_to_replay(sample):
    with pytest.raises(TypeError, match="replay"):
        dpb.run(OpenBandit("men"), ["random"], horizon=10, seeds=1)


def test_a_bandit_that_returns_no_row_is_refused(sample):
    world = OpenBandit("men")
    bad = Noting(world, 0)
    bad.select = lambda contexts: len(contexts)
    with pytest.raises(ValueError, match="index of a row"):
        replay(bad, world)


@pytest.mark.parametrize(
    ("option", "value"), [("campaign", "kids"), ("dim", 4), ("dim", 26), ("policy", "ucb")]
)
def test_options_out_of_range_are_refused(option, value):
    with pytest.raises(ValueError, match=option):
        OpenBandit(**{option: value})


def test_missing_data_is_an_error_that_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("DPBANDIT_DATA", str(tmp_path / "given"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(data, "find_spec", lambda package: None)  # as if obp were not installed
    with pytest.raises(
        DataMissing, match=r"obd-small\.zip.*no automatic download.*obp==0\.4\.1.*Apache-2\.0"
    ):
        OpenBandit()


def test_a_zip_made_anew_from_the_same_files_is_as_good_and_a_changed_one_is_refused(
    sample, monkeypatch, tmp_path
):
    monkeypatch.setenv("DPBANDIT_DATA", str(tmp_path))
    target = tmp_path / data.SOURCES["obd"].file
    target.parent.mkdir()
    with zipfile.ZipFile(sample) as old, zipfile.ZipFile(target, "w") as new:
        for name in data.SOURCES["obd"].members:
            new.writestr(name, old.read(name))
    assert hashlib.sha256(target.read_bytes()).hexdigest() != data.SOURCES["obd"].sha256
    assert data.find("obd") == target
    content = target.read_bytes()
    target.write_bytes(content.replace(b",0,", b",1,", 1))
    with pytest.raises(ValueError, match="Delete it"):
        data.find("obd")
    target.write_bytes(b"not a zip")
    assert data.available()["obd"] is None


LOG = "timestamp,item_id,position,click,propensity_score,user-item_affinity_0,user-item_affinity_1,user-item_affinity_2"
ITEMS = """item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3
0,-0.5,a,c,e
1,0.1,a,d,f
2,0.9,b,c,g
"""


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """A package obp with a log of our own: item 1 is clicked, and was shown with 1/2 by "bts"."""
    rng = np.random.default_rng(0)
    folder, members = tmp_path / "site" / "obp", {}

    def put(name, text):
        path = folder / "dataset" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        members[name] = hashlib.sha256(text.encode()).hexdigest()

    for policy, chances in {"random": (1 / 3, 1 / 3, 1 / 3), "bts": (0.25, 0.5, 0.25)}.items():
        rows = [
            f"2020-01-01 00:00:{at:04d},{item},{1 + at % 3},{int(item == 1)},{chances[item]},0,{at % 2},0"
            for at, item in enumerate(rng.choice(3, size=1200, p=chances))
        ]
        put(f"obd/{policy}/men/men.csv", "\n".join([LOG, *rows]) + "\n")
        put(f"obd/{policy}/men/item_context.csv", ITEMS)
    (folder / "__init__.py").write_text("raise ImportError('nothing of it is imported')")
    monkeypatch.delitem(sys.modules, "obp", raising=False)  # the real one, where a test used it
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("DPBANDIT_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    source = data.SOURCES["obd"]._replace(members=members)
    monkeypatch.setattr(data, "SOURCES", {**data.SOURCES, "obd": source})
    return folder / "dataset"


def test_the_sample_is_found_in_an_installed_package(installed):
    assert data.find("obd") == data.available()["obd"] == installed
    world = OpenBandit("men", dim=7)
    assert (world.rounds, world.arms) == (1200, 3)
    log = installed / "obd/bts/men/men.csv"
    log.write_text(log.read_text().replace(",0.5,", ",0.6,"))
    assert data.available()["obd"] is None
    with pytest.raises(ValueError, match="is not the released"):
        OpenBandit("men", dim=7)


@pytest.mark.parametrize("policy", ["random", "bts"])
def test_propensities_make_a_log_of_another_policy_say_the_same(installed, policy):
    """Always item 1 is worth 1, always another 0, uniform play 1/3, whoever wrote the log."""
    world = OpenBandit("men", dim=7, policy=policy)
    assert set(world.log.propensities) == ({1 / 3} if policy == "random" else {0.25, 0.5})
    given = {"reward_range": (0, 1), "propensity": "propensity", "clip": 4.0, "seed": 0}
    found = dpb.replay(world.records(order=3), ["random", "linucb"], **given)
    for estimator in ("ips", "snips"):
        assert abs(found.of("random", estimator).value - 1 / 3) < 0.09  # 3 standard errors
        assert found.of("linucb", estimator).value > 0.9
    again = [row["action"] for row in world.records(order=3)]
    assert again == [row["action"] for row in world.records(order=3)]
    assert again != world.log.chosen.tolist()  # items come in another order each round
    assert [row["action"] for row in world.records()] == world.log.chosen.tolist()


def test_rejection_needs_a_uniform_log(installed):
    with pytest.raises(ValueError, match="was not logged uniformly"):
        replay(dpb.make("random", dim=7, seed=0), OpenBandit("men", dim=7, policy="bts"))
