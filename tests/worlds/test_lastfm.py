"""LastFM: the counts of the recipe, what a round is, and where the data comes from."""

import os
import shutil
import subprocess
import sys
import urllib.error
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dpbandit as dpb
from dpbandit.worlds import DataMissing, LastFM, data, lastfm

# Found once, before any test changes the environment.
FOLDER = Path(
    os.environ.get("DPBANDIT_DATA") or Path(__file__).parents[2].parent / "shared" / "data"
)


def released():
    """The released file; without it the test is skipped."""
    path = FOLDER / data.SOURCES["lastfm"].file
    if not path.is_file():
        pytest.skip(
            f"the LastFM data is not in {FOLDER}: set DPBANDIT_DATA to a folder that holds {path.name}"
        )
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        released()
        patch.setenv("DPBANDIT_DATA", str(FOLDER))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield LastFM()


@pytest.fixture(scope="module")
def listened(world):
    """Who listened to what, read from the released files without any of the world's code."""
    with zipfile.ZipFile(data.find("lastfm")) as archive:
        read = {
            name: [
                line.split("\t")
                for line in archive.read(name).decode("latin-1").replace("\r", "").split("\n")[1:-1]
            ]
            for name in ("artists.dat", "user_artists.dat", "user_taggedartists.dat")
        }
    known = {int(row[0]) for row in read["artists.dat"]}
    artists = sorted({int(row[1]) for row in read["user_taggedartists.dat"]} & known)
    users = sorted({int(row[0]) for row in read["user_artists.dat"]})
    place, number = {a: i for i, a in enumerate(artists)}, {u: i for i, u in enumerate(users)}
    table = np.zeros((len(users), len(artists)), dtype=bool)
    for user, artist, _ in read["user_artists.dat"]:
        if int(artist) in place:
            table[number[int(user)], place[int(artist)]] = True
    return table


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Empty data and cache folders, and no network."""

    def fail(*_):
        raise urllib.error.URLError("no network in this test")

    monkeypatch.setenv("DPBANDIT_DATA", str(tmp_path / "given"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(data, "download", fail)
    return tmp_path


def test_counts_are_those_of_the_recipe(world, listened):
    assert (world.artists, world.words, world.users) == (12_133, 7_653, 1_892)
    assert listened.shape == (1_892, 12_133)
    assert len(world.table.listened) == listened.sum() == 86_608
    assert "white space" in world.tag_rule


@pytest.mark.parametrize(("features", "zeros"), [("pca", 0), ("svd", 57)])
def test_features_have_25_dimensions_and_unit_norm(world, features, zeros):
    contexts = LastFM(features=features).public_contexts
    norms = np.linalg.norm(contexts, axis=1)
    assert contexts.shape == (12_133, 25)
    assert (norms == 0).sum() == zeros
    np.testing.assert_allclose(norms[norms > 0], 1.0, atol=1e-12)


def test_pca_is_centred_and_svd_is_not(world):
    uncentred = LastFM(features="svd").public_contexts
    assert (
        uncentred[:, 0].min() >= -1e-9
    )  # counts are never negative: neither is their first singular direction
    assert (world.public_contexts[:, 0] < 0).mean() > 0.1


def test_artists_that_share_tags_are_closer_than_others(world, listened):
    """Features are worth something: two artists of one user are more alike than two of different users."""
    rng = np.random.default_rng(0)
    users = rng.integers(0, world.users, size=2000)
    pick = [rng.choice(np.flatnonzero(listened[user]), size=2) for user in users]
    first, second = world.public_contexts[np.array(pick).T]
    same, different = (
        (first * second).sum(axis=1).mean(),
        (first * np.roll(second, 1, axis=0)).sum(axis=1).mean(),
    )
    assert same > different + 0.1


def test_a_round_has_one_listened_artist_and_24_distinct_others(world, listened):
    episode = world.episode(seed=1)
    block = episode.block(3000)
    heard = listened[episode.users_of_last_block()[:, None], block.shown]
    assert block.shown.shape == block.rewards.shape == (3000, 25)
    assert (heard.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(block.rewards, heard.astype(float))
    assert all(len(set(row)) == 25 for row in block.shown)
    assert np.isnan(block.means).all()
    assert episode.theta is None
    assert block.pool is episode.public_contexts is world.public_contexts


def test_users_places_and_others_are_drawn_uniformly(world, listened):
    """Chi-square tests at p > 1e-4: with this fixed seed they pass; a fresh seed would fail one in 3,300 runs."""
    episode = world.episode(seed=2)
    block = episode.block(60_000)
    users, places = episode.users_of_last_block(), block.rewards.argmax(axis=1)
    others = block.shown[block.rewards == 0]
    drawn = np.bincount(others, minlength=world.artists)
    per_round = (~listened) / (~listened).sum(axis=1, keepdims=True)
    expected = 24 * np.bincount(users, minlength=world.users) @ per_round
    assert stats.chisquare(np.bincount(users, minlength=world.users)).pvalue > 1e-4
    assert stats.chisquare(np.bincount(places, minlength=25)).pvalue > 1e-4
    # Others are distinct within a round, which makes the counts a hair more even than independent draws: 24/12,133.
    assert stats.chisquare(drawn, expected * drawn.sum() / expected.sum()).pvalue > 1e-4


def test_the_listened_artist_is_a_uniform_one_of_the_user(world, listened):
    """A user of few artists makes it countable. Chi-square at p > 1e-4: false alarm 1 in 10,000 for a fresh seed."""
    few = int(np.flatnonzero((listened.sum(axis=1) >= 4) & (listened.sum(axis=1) <= 8))[0])
    episode = world.episode(seed=3)
    counts = np.zeros(world.artists)
    for _ in range(8):
        block = episode.block(16_384)
        mine = episode.users_of_last_block() == few
        np.add.at(counts, block.shown[mine][block.rewards[mine] == 1], 1)
    assert counts[~listened[few]].sum() == 0
    assert stats.chisquare(counts[listened[few]]).pvalue > 1e-4


def test_one_seed_gives_the_same_rounds_however_they_are_cut(world):
    whole = world.episode(seed=4)
    expected = whole.block(3000)
    parts, users = [], []
    episode = world.episode(seed=4)
    for count in (1, 1023, 1, 1500, 475):
        parts.append(episode.block(count))
        users.append(episode.users_of_last_block())
    np.testing.assert_array_equal(np.concatenate([part.shown for part in parts]), expected.shown)
    np.testing.assert_array_equal(
        np.concatenate([part.rewards for part in parts]), expected.rewards
    )
    np.testing.assert_array_equal(np.concatenate(users), whole.users_of_last_block())
    assert (world.episode(seed=5).block(100).shown != expected.shown[:100]).any()


def test_large_pools_hold_distinct_artists_too(world, listened):
    big = LastFM(pool=500)
    episode = big.episode(seed=0)
    shown = episode.block(50).shown
    assert all(len(set(row)) == 500 for row in shown)
    assert (listened[episode.users_of_last_block()[:, None], shown].sum(axis=1) == 1).all()


def test_linucb_earns_several_times_what_random_play_does(world):
    """Measured: 8 times at 3,000 rounds, 8.9 times at 50,000."""
    reward = (
        dpb.run(world, ["linucb", "random"], horizon=3000, seeds=1)
        .frame()
        .groupby("algorithm")["reward"]
        .max()
    )
    assert reward["linucb"] > 4 * reward["random"]
    assert abs(reward["random"] - 3000 / 25) < 5 * np.sqrt(
        3000 * 0.04 * 0.96
    )  # binomial: one false alarm in a million


def test_cached_features_equal_rebuilt_ones(world, monkeypatch, tmp_path):
    path = data.find("lastfm")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lastfm.load.cache_clear()
    built = lastfm.load(path, "pca", 25)
    (cached,) = (tmp_path / "dpbandit" / "features").iterdir()
    lastfm.load.cache_clear()
    monkeypatch.setattr(lastfm, "build", None)  # whatever is loaded now comes from the file
    for fresh, saved in zip(built, lastfm.load(path, "pca", 25), strict=True):
        np.testing.assert_array_equal(fresh, saved)
    monkeypatch.undo()
    np.testing.assert_allclose(built.contexts, world.public_contexts, atol=1e-9)

    cached.write_bytes(cached.read_bytes()[:1000])  # a damaged cache is rebuilt, not believed
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lastfm.load.cache_clear()
    np.testing.assert_allclose(lastfm.load(path, "pca", 25).contexts, built.contexts, atol=1e-9)


def test_missing_data_is_an_error_that_says_what_to_do(nowhere, monkeypatch):
    with pytest.raises(DataMissing) as caught:
        LastFM()
    message = str(caught.value)
    for part in (
        str(nowhere / "given"),
        str(nowhere / "cache" / "dpbandit" / "lastfm" / "hetrec2011-lastfm-2k.zip"),
        "https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip",
        "no network in this test",
        "DPBANDIT_DATA",
        "non-commercial",
        "Cantador",
    ):
        assert part in message
    assert isinstance(caught.value, FileNotFoundError)
    monkeypatch.setattr(data, "find_spec", lambda package: None)  # as if obp were not installed
    assert data.available() == {"lastfm": None, "obd": None}


def test_a_corrupted_copy_is_refused(nowhere):
    copy = nowhere / "given" / data.SOURCES["lastfm"].file
    copy.parent.mkdir(parents=True)
    content = bytearray(released().read_bytes())
    content[1_000_000] ^= 1
    copy.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"hetrec2011-lastfm-2k\.zip is not the released .* Delete it"
    ) as caught:
        data.find("lastfm")
    assert str(copy) in str(caught.value)
    assert data.available()["lastfm"] is None


def test_the_user_cache_is_looked_at_after_the_given_folder(nowhere):
    cached = nowhere / "cache" / "dpbandit" / data.SOURCES["lastfm"].file
    cached.parent.mkdir(parents=True)
    shutil.copy(released(), cached)
    assert data.find("lastfm") == cached
    assert data.available()["lastfm"] == cached


def test_a_download_lands_whole_and_checked_or_not_at_all(monkeypatch, tmp_path):
    source = tmp_path / "source.bin"
    source.write_bytes(b"abc")
    target = tmp_path / "folder" / "target.bin"
    right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(ValueError, match="sha256"):
        data.download(source.as_uri(), target, "0" * 64)
    assert not target.parent.exists()
    data.download(source.as_uri(), target, right)
    assert target.read_bytes() == b"abc"
    assert [path.name for path in target.parent.iterdir()] == ["target.bin"]


@pytest.mark.parametrize(
    "options", [{"features": "tags"}, {"dim": 0}, {"pool": 1}, {"pool": 20_000}]
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        LastFM(**options)


def test_worlds_import_neither_sklearn_nor_pandas():
    code = "import sys, dpbandit.worlds; sys.exit(any(name in sys.modules for name in ('sklearn', 'pandas', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
