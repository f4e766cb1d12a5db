"""The anytime release in whole numbers: what neighbours see over all releases is what is
charged."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandit.errors import OptionError
from dpbandit.privacy.grid import GRID_BITS, to_whole
from dpbandit.privacy.noise import GAUSSIAN
from dpbandit.release import Anytime, anytime
from dpbandit.release.anytime import AnytimeSums
from dpbandit.release.whole import share_of


def release_for(**given):
    base = {"dim": 3, "knee": 50.0, "ratio": 1.025, "first": 3}
    return Anytime(GAUSSIAN, None, 1.0, 0.5, **{**base, **given})


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 200), st.sampled_from([1.01, 1.1, 2.0]))
def test_neighbours_are_no_further_apart_over_all_releases_than_the_bound(seed, changed, ratio):
    rng = np.random.default_rng(seed)
    release = release_for(ratio=ratio, knee=float(rng.choice([1.0, 50.0, 1e4])))
    given = {"knee": release.knee, "ratio": release.ratio, "first": release.first}
    one, other = AnytimeSums(3, **given), AnytimeSums(3, **given)
    total = 0
    for t in range(1, 401):
        u = rng.normal(size=3)
        u /= np.linalg.norm(u)
        low, high = to_whole(-0.5 * u), to_whole(0.5 * u)
        shown = one.add(t, low), other.add(t, high if t == changed else low)
        assert (shown[0] is None) == (shown[1] is None) == (t != one_release(release, t))
        if shown[0] is not None:
            total += int(((shown[1] - shown[0]) ** 2).sum())
    bound = 1 + math.sqrt(3) * 2.0**-GRID_BITS + anytime.rounding(ratio, 3)
    assert math.sqrt(total) / 2.0**GRID_BITS <= bound
    if changed < 10 and release.knee == 1.0:
        assert math.sqrt(total) / 2.0**GRID_BITS > 0.99  # nearly all has been spent


def one_release(release, t):
    """t itself if a release is due then."""
    return t if t in anytime.times(release.first, release.ratio, t)[-1:] else 0


@pytest.mark.parametrize("ratio", [1.001, 1.025, 1.5, 10.0])
def test_there_are_never_more_releases_than_are_charged_for(ratio):
    assert len(anytime.times(1, ratio, 2**62)) <= anytime.most_releases(ratio)


def test_the_charges_add_up_to_the_budget_and_no_further():
    release, ledger = release_for(), GAUSSIAN.ledger(0.5)
    for t in anytime.times(release.first, release.ratio, 10**7):
        charge = release.charge(SimpleNamespace(rounds=int(t)), int(t))
        ledger.charge(charge.share, when=int(t), what=charge.what, adds=charge.adds)
    assert 0.999 * ledger.limit < ledger.total <= ledger.limit


def test_a_ratio_too_near_one_is_refused():
    assert anytime.rounding(1.025, 11) < 1e-8
    with pytest.raises(OptionError, match="too near 1"):
        anytime.rounding(1 + 1e-9, 11)


def test_shares_round_to_nearest_and_never_grow():
    rng = np.random.default_rng(0)
    numbers = np.array([int(v) for v in rng.integers(-(2**60), 2**60, size=500)], dtype=object)
    for share in (0.0, 1e-9, 0.3, 0.999999, 1.0):
        found = share_of(numbers * 2**30, share)
        exact = [int(n) * 2**30 * int(share * 2.0**62) for n in numbers]
        assert all(abs(2 * ((f << 62) - e)) <= 1 << 62 for f, e in zip(found, exact, strict=True))
        assert all(abs(f) <= abs(n * 2**30) for f, n in zip(found, numbers, strict=True))


def test_without_a_budget_there_is_no_noise():
    assert Anytime(GAUSSIAN, None, 1.0, math.inf, 3, 50.0, 1.025, 3).scale == 0.0
