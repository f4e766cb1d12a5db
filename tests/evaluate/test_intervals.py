"""Intervals hold as often as they say, in the clear and with noise, over many seeds."""

import collections
import sys
from pathlib import Path

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.evaluate import players

sys.path.insert(0, str(Path(__file__).parent))
import logs

ALL = ("ips", "snips", "dr", "sndr")


def coverage(monkeypatch, algorithms, seeds, *, uniform, rare, rows=1500, **options):
    """How often the truth, the mean of what was chosen, lies inside; by algorithm and estimator."""
    hits, count = collections.Counter(), collections.Counter()
    options["reward_range"] = (0, 1)
    more = {} if uniform else {"propensity": "p", "clip": 25.0}
    choose = players.Player.choose
    for seed in seeds:
        log, means = logs.log_of(seed, rows, uniform=uniform, rare=rare)
        truth = collections.defaultdict(list)

        def watched(self, contexts, truth=truth, means=means):
            arm = choose(self, contexts)
            seen = truth[self.label]
            seen.append(means[len(seen), arm])
            return arm

        monkeypatch.setattr(players.Player, "choose", watched)
        found = dpb.replay(log, algorithms, seed=seed, **more, **options)
        for one in found.estimates:
            key = (one.algorithm, one.estimator)
            hits[key] += one.low <= np.mean(truth[one.algorithm]) <= one.high
            count[key] += 1
    return {key: hits[key] / count[key] for key in count}


def least(seeds, aim=0.95):
    """What coverage of `aim` stays above but once in a thousand times."""
    return aim - 3.1 * np.sqrt(aim * (1 - aim) / seeds)


NOISE = (1.0, 1e-6)
SETTINGS = [(True, False), (True, True), (False, False), (False, True)]


# Each with and without noise, and with one of the other two; the slow test has all combinations.
@pytest.mark.parametrize(
    ("uniform", "rare", "release"),
    [(True, False, None), (True, True, NOISE), (False, False, NOISE), (False, True, None)],
)
def test_intervals_hold(monkeypatch, uniform, rare, release):
    seeds = 60
    contestants = {
        "fixed": logs.fixed_model(),
        "anytime": ("anytime", {"epsilon": 1.0, "delta": 1e-6}),
    }
    found = coverage(
        monkeypatch,
        contestants,
        range(seeds),
        uniform=uniform,
        rare=rare,
        rows=800,
        release=release,
    )
    assert {name for _, name in found} >= set(ALL)
    assert min(found.values()) > least(seeds), found


@pytest.mark.slow
@pytest.mark.parametrize("release", [None, 0.3, NOISE])
@pytest.mark.parametrize(("uniform", "rare"), SETTINGS)
def test_intervals_hold_at_least_94_times_in_100(monkeypatch, uniform, rare, release):
    seeds = 1000
    found = coverage(
        monkeypatch,
        {"fixed": logs.fixed_model()},
        range(seeds),
        uniform=uniform,
        rare=rare,
        rows=1500,
        release=release,
    )
    assert min(found.values()) >= least(seeds, 0.95), found
    assert np.mean([*found.values()]) >= 0.94, found


def test_an_interval_that_forgets_the_noise_is_found_out(monkeypatch):
    """The test above can fail."""
    from dpbandit.evaluate import replay

    show = replay.show
    monkeypatch.setattr(
        replay, "show", lambda *given: (show(*given)[0], [replay.Spread()], show(*given)[2])
    )
    given = {"uniform": True, "rare": False, "rows": 800, "release": (0.3, 1e-6)}
    found = coverage(monkeypatch, {"fixed": logs.fixed_model()}, range(60), **given)
    assert found["fixed", "snips"] < 0.8


def test_with_less_and_less_noise_estimates_become_those_in_the_clear():
    log, _ = logs.log_of(1, 2000)
    model = {"fixed": logs.fixed_model()}
    clear = dpb.replay(log, model, seed=0, reward_range=(0, 1))
    for epsilon, apart in ((10.0, 0.05), (1000.0, 5e-4), (1e6, 1e-5)):
        noisy = dpb.replay(log, model, seed=0, reward_range=(0, 1), release=(epsilon, 1e-9))
        for name in (*ALL, "replay"):
            one, other = noisy.of("fixed", name), clear.of("fixed", name)
            assert abs(one.value - other.value) < apart
    assert noisy.of("fixed", "ips").sampling_error == pytest.approx(
        clear.of("fixed", "ips").sampling_error, rel=1e-4
    )
