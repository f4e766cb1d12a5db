"""A log whose choices do not fit their probabilities says so: no interval covers that."""

import math
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import errors

sys.path.insert(0, str(Path(__file__).parent))
import logs

GIVEN = {"reward_range": (0, 1), "seed": 0}


def shown(seed, shares, rows=2000):
    """A log in which each arm is shown in this share of the rows."""
    rng = np.random.default_rng(seed)
    action = rng.choice(len(shares), size=rows, p=shares)
    log = {"action": action, "reward": rng.random(rows), "p": np.asarray(shares)[action]}
    return log, np.eye(len(shares))


def said(log, arms=None, **given):
    """All warnings of an evaluation of random play."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", errors.LogWarning)
        dpb.replay(log, "random", items=arms, **given, **GIVEN)
    return " ".join(str(one.message) for one in caught)


@pytest.mark.parametrize("seed", range(30))
def test_sound_logs_are_not_doubted(seed):
    """A sound log is doubted once in a million: thirty of each kind never are."""
    log, arms = shown(seed, [0.25] * 4)
    assert said(log, arms) == ""
    log, arms = shown(seed, [0.9, 0.05, 0.04, 0.01])
    assert said(log, arms, propensity="p", clip=1e3) == ""
    log, _ = logs.log_of(seed, 300, uniform=False)
    assert said(log, propensity="p", clip=1e3) == "", seed


def test_a_log_that_is_not_uniform_needs_its_probabilities():
    log, arms = shown(1, [0.4, 0.2, 0.2, 0.2])
    assert "number 0 of 4 was shown in" in said(log, arms)
    log, arms = shown(1, [1.0, 0.0])
    with pytest.warns(errors.LogWarning, match=r"in 100% of the rows, instead of 50%"):
        dpb.replay(log, "random", items=arms, release=(1.0, 1e-6), **GIVEN)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: np.ones_like(p), "estimates of what shows other offers are too low"),  # a greedy page
        (lambda p: p / 2, "are too high"),
        (lambda p: np.full_like(p, 1e-300), "are too high"),
    ],
)  # fmt: skip
def test_probabilities_that_are_not_those_of_what_was_shown_are_said(change, words):
    log, arms = shown(2, [0.25] * 4)
    log["p"] = change(log["p"])
    assert words in said(log, arms, propensity="p", clip=100)


@pytest.mark.parametrize("release", [None, (1.0, 1e-6)])
@pytest.mark.parametrize(("rare", "clip"), [(0.001, 1e4), (0.05, 1e4), (0.05, 4.0), (0.5, 1.0)])
def test_intervals_hold_what_never_came_and_what_was_clipped(rare, clip, release):
    """Where arm 1 was hardly ever shown it earns most: the rows that came do not tell. Once intervals of
    `ips` held the truth in 69 of 100 logs of the first kind."""
    model = dpb.make("linucb", dim=2, seed=0, reward_range=(0, 1))
    for _ in range(50):
        model.update([0.0, 1.0], 1.0)
    given = {"items": np.eye(2), "propensity": "p", "clip": clip, "reward_range": (0, 1)}
    held, runs = Counter(), 60
    for seed in range(runs):
        rng = np.random.default_rng([seed, 3])
        hidden = rng.random(400) < 0.2
        chance = np.where(hidden, rare, 0.5)
        action = (rng.random(400) < chance).astype(int)
        clicked = (rng.random(400) < np.where(hidden, 0.9, 0.3)).astype(float)
        log = {"action": action, "reward": clicked, "p": np.where(action == 1, chance, 1 - chance)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.LogWarning)
            found = dpb.replay(log, {"m": model.model()}, seed=seed, release=release, **given)
        truth = 0.2 * 0.9 + 0.8 * 0.3
        held.update(one.estimator for one in found.estimates if one.low <= truth <= one.high)
    assert min(
        held[name] for name in ("ips", "snips", "dr", "sndr")
    ) >= 0.95 * runs - 3.1 * np.sqrt(runs * 0.0475)


def test_a_few_rows_prove_nothing():
    log, arms = shown(3, [0.9, 0.1], rows=9)
    assert said(log, arms) == ""
    one = {name: column[:1] for name, column in log.items()}
    assert said(one, arms, propensity="p", clip=10) == ""


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("release", [None, (0.02, 1e-6)])
def test_intervals_have_two_ends_in_the_range_however_few_rows_there_are(rows, release):
    log, arms = shown(4, [0.5, 0.5], rows=rows)
    log["reward"] = np.zeros(rows)
    for seed in range(20):
        given = {"items": arms, "reward_range": (0, 1), "release": release, "seed": seed}
        for one in dpb.replay(log, "random", **given).estimates:
            assert 0 <= one.low <= one.high <= 1
            assert all(map(math.isfinite, (one.value, one.sampling_error, one.effective)))


def test_where_nothing_matched_there_is_no_best():
    log, arms = shown(5, [1.0, 0.0], rows=4)
    model = dpb.make("linucb", dim=2, seed=0)
    model.update(arms[1], 1.0)
    with pytest.warns(errors.LogWarning):
        found = dpb.replay({**log, "p": np.ones(4)}, {"m": model.model()}, items=arms, propensity="p", clip=9, **GIVEN)  # fmt: skip
    assert found.estimates == []
    with pytest.raises(errors.OptionError, match="no row matched"):
        found.best()
