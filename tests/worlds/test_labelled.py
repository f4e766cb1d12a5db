"""Labelled data sets as bandits."""

import sys

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.worlds import Labelled
from dpbandit.worlds.labelled import NAMED


@pytest.mark.parametrize(
    ("name", "arms", "features", "rows"),
    [
        ("digits", 10, 9, 1797),
        ("wine", 3, 9, 178),
        ("breast_cancer", 2, 9, 569),
        ("iris", 3, 5, 150),
        ("phishing", 2, 9, 1250),
        ("image_segments", 7, 9, 2310),
        ("bananas", 2, 3, 5300),
    ],
)
def test_a_pass_shows_every_row_once_and_pays_its_label(name, arms, features, rows):
    pytest.importorskip({"scikit-learn": "sklearn", "river": "river"}[NAMED[name].package])
    world = Labelled(name)
    assert (world.arms, world.dim, world.rounds) == (arms, arms * features, None)
    whole, parts = world.episode(3).block(2 * rows), world.episode(3)
    cut = [parts.block(count) for count in (1, rows, rows - 1)]
    assert (np.concatenate([block.rewards for block in cut]) == whole.rewards).all()
    assert (np.concatenate([block.pool for block in cut]) == whole.pool).all()
    contexts = whole.pool[whole.shown].reshape(2 * rows, arms, arms, features)
    blocks = contexts[:, np.arange(arms), np.arange(arms)]
    assert (blocks == blocks[:, :1]).all()  # the same features for every arm
    assert np.count_nonzero(contexts) == np.count_nonzero(blocks)  # in its own block alone
    assert np.isclose(np.linalg.norm(blocks[:, 0], axis=1).max(), 1.0)
    assert (whole.rewards.sum(axis=1) == 1).all()
    assert (whole.means == whole.rewards).all()
    first, again = blocks[:rows, 0], blocks[rows:, 0]
    assert (np.sort(first, axis=0) == np.sort(again, axis=0)).all()
    assert (first != again).any()
    assert (np.bincount(whole.rewards[:rows].argmax(axis=1)) == np.bincount(world.label)).all()


def test_labels_may_be_words_and_a_constant_feature_stays_0():
    world = Labelled(([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]], ["b", "a", "b"]))
    assert world.labels.tolist() == ["a", "b"]
    assert (world.features[:, 1] == 0).all()
    assert (world.features[:, 2] == world.features[0, 2]).all()
    assert repr(world) == "Labelled(3 rows, arms=2, dim=6)"


def test_a_regression_for_each_arm_learns_them():
    """Regret of random play is 2/3 of the rounds; LinUCB's was 48 to 54 of 1,000 in three seeds."""
    found = dpb.run(Labelled("wine"), ["linucb", "random"], horizon=1000, seeds=3)
    regret = found.summary()["regret"]
    assert regret["linucb"] < 150
    assert abs(regret["random"] - 2000 / 3) < 6 * np.sqrt(1000 * 2 / 9 / 3)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("iriss", "did you mean 'iris'"),
        (([1.0, 2.0], [0, 1]), "shape"),
        (([[1.0], [2.0]], [0, 1, 1]), "shape"),
        (([[1.0], [np.nan]], [0, 1]), "NaN"),
        (([[1.0], [2.0]], [1, 1]), "two labels"),
    ],
)
def test_bad_data_are_named(source, words):
    with pytest.raises(ValueError, match=words):
        Labelled(source)


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("iris", "sklearn.datasets", "lab"), ("bananas", "river.datasets", "adapters")],
)
def test_without_its_package_the_message_says_what_to_install(monkeypatch, name, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'dpbandit\[{extra}\]'"):
        Labelled(name)
