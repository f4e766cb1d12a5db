"""Judges of sums that fade from release to release: whole numbers, and what they pay."""

from __future__ import annotations

import fractions
import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from judges.common import between, close, judge, refused
from judges.trees import Ticks, sums_of


@judge
def anytime_spends_no_more_than_one_budget() -> Any:
    from dpbandit.privacy.noise import GAUSSIAN
    from dpbandit.release import Anytime
    from dpbandit.release import anytime as module

    seen: list[Any] = []
    for ratio, knee, first, life in (
        (1.3, 10.0, 2, math.inf),
        (1.05, 3.0, 1, math.inf),
        (1.3, 10.0, 2, 16.0),  # a generation has 160 rounds
        (1.05, 3.0, 7, 5.0),
        (1.5, 4.0, 25, 2.0),  # the first release is in the second generation
    ):
        release = Anytime(GAUSSIAN, None, 1.0, 0.8, 3, knee, ratio, first, life=life)
        close(release.scale, (1.0 + module.rounding(ratio, 3)) / 0.8, 1e-13)
        between(1.0 / 0.8, release.scale, 1.001 / 0.8)

        def after(j: int, ratio: float = ratio, life: float = life) -> int:
            return max(math.ceil(j * ratio if j <= life else j + life * (ratio - 1)), j + 1)

        def generation(j: int, life: float = life) -> int:
            return 0 if math.isinf(life) else int(j // (10 * life))

        at = module.times(first, ratio, 200, life).tolist()
        expected, j = [], first
        while j <= 200:
            expected.append(j)
            j = after(j)
        assert at == expected
        weight, total = 1.0, 0.0
        for j in at:
            later = after(j)
            assert module.next_time(j, ratio, life) == later
            rho = ((knee + min(j, life)) / (knee + min(j, life) + later - j)) ** 2
            if generation(j) != generation(later):
                rho = 0.0
            close(module.kept(j, later, knee, life), rho, 1e-14)
            q = module.shown(rho)
            close(q * q + rho * rho, 1.0, 1e-14)
            charge = release.charge(None, j)
            close(charge.share, 0.64 * weight * q * q, 1e-9)
            assert charge.adds
            close(charge.shift, q * release.scale * 0.8 + math.sqrt(3) * 2.0**-40, 1e-12)
            weight *= rho * rho
            total += charge.share
        close(total, 0.64 * (1 - weight), 1e-9)
        sums, kept = sums_of(release, 1), fractions.Fraction(0)
        for t in range(1, 60):
            item = t << 41
            kept += item
            shown = sums.add(t, np.array([item], dtype=object))
            assert (shown is not None) == (t in at)
            if shown is not None:
                rho = module.kept(t, after(t), knee, life)
                assert abs(shown[0] - kept * fractions.Fraction(module.shown(rho))) < 100
                kept = fractions.Fraction(int(sums.sums[0][0]))
                close(float(kept), float(shown[0]) / module.shown(rho) * rho, 1e-9)
                assert sums.due[0] == after(t)
                seen.append(int(shown[0]))
        most = module.most_releases(ratio)
        assert most == len_most(ratio)
        assert sums.publish(1, np.array([2.5])).tolist() == [2.5]
        # Without an end there are so many; in a generation that never grew, so many more at most.
        longest = len(module.times(1, ratio, 2**62)) + 10 / (ratio - 1)
        between(longest, most, longest * 1.6 + 12)
        releases = most
        slack = (releases + math.sqrt(releases)) * math.sqrt(3) * 2.0**-40 + releases * 2.0**-50
        close(module.rounding(ratio, 3), slack, 1e-12)
        assert release.draws(3, None, ratio) == 3 * (most + 1)
        close(release.squares([1, 2]), [release.scale**2] * 2, 1e-13)
        assert release.core() == {
            "scale": release.scale,
            "knee": knee,
            "ratio": ratio,
            "first": first,
        }
        release.room(Ticks(10**9))
        seen += [release.scale, total, most]
    refused("OptionError", lambda: module.rounding(1 + 1e-8, 5))
    module.rounding(1 + 1e-6, 1)
    assert Anytime(GAUSSIAN, None, 1.0, math.inf, 3, 9.0, 1.1, 1).scale == 0.0
    return seen


SILENT = SimpleNamespace(fields=lambda: {"before": [0.0]})


@judge
def pairs_spend_no_more_than_one_budget() -> Any:
    """Two sums side by side: what the first person has paid after every release, by the definition."""
    from dpbandit.privacy.noise import GAUSSIAN
    from dpbandit.release import Pair
    from dpbandit.release import pair as module
    from dpbandit.release.anytime import kept, next_time, times

    t, seen = np.linspace(0.0, 1.0, 100_001), []

    def largest(eta2: float, moments: float, directions: float) -> float:
        return float(((1 + t) / 2 * moments + 2 * eta2 * (1 - t * t) * directions).max())

    for eta2, moments, directions in itertools.product(
        (0.0, 0.1, 0.25, 2.0), (1.0, 0.3), (1.0, 0.6)
    ):
        found = module.largest_move(eta2, moments, directions)
        close(found, largest(eta2, moments, directions), 1e-9)
        seen.append(found)
    assert module.largest_move(0.125) == module.largest_move(0.0) == 1.0
    assert [module.packed_size(n) for n in (1, 2, 5)] == [1, 3, 15]
    assert module.most_move(0.25, 0.5, persons=False) == module.largest_move(0.25)
    assert module.most_move(0.25, 0.5, persons=True) == 2.0
    for ratio, knee, first, change, versions, persons in (
        (1.3, 10.0, 2, 5, 4, False),
        (1.05, 3.0, 1, 1, 2, False),
        (1.3, 9.0, 3, 4, 1, False),
        (1.3, 10.0, 2, 5, 4, True),
    ):
        plan = {"knee": knee, "ratio": ratio, "first": first, "change": change, "growth": 3.0}
        release = Pair(
            GAUSSIAN,
            None,
            1.0,
            0.8,
            dim=9,
            n=3,
            versions=versions,
            first_eta2=0.25,
            later_eta2=0.125,
            persons=persons,
            **plan,
        )
        sums, turned, due = module.PairSums(3, versions=versions, **plan), [], change
        left, paid, booked = [1.0, 1.0], [0.0, 0.0], 0.0
        for j in times(first, ratio, 400).tolist():
            whole = j >= due and len(turned) + 1 < versions
            assert sums.shows_whole(j) == whole
            rho = kept(j, next_time(j, ratio), knee)
            close(sums.shares(j), [rho, 0.0 if whole else rho], 1e-15)
            for which, keeps in enumerate(sums.shares(j)):
                # What is in the later Gram matrices is nobody's of the first release any more.
                paid[which] += (1 - keeps**2) * left[which] ** 2
                left[which] *= keeps
            charge = release.charge(SILENT, j)
            booked += charge.share
            exact = 0.64 * largest(0.25, *paid) / largest(0.25, 1.0, 1.0)
            if persons:  # residuals and one direction, which need not be of one round
                exact = 0.64 * (paid[0] + 0.5 * paid[1]) / 1.5
            close(booked, exact, 1e-7)
            assert (charge.adds, charge.group) == (True, 0)
            q = 1.0 if whole else math.sqrt(1 - rho**2)
            close(charge.shift, q * release.scale * 0.8 + 3 * 2.0**-40, 1e-14)
            if whole:
                turned.append(j)
                due = math.ceil(max(due, j) * 3.0)
                sums.turn(j)
                assert (sums.version[0], sums.change_due[0]) == (len(turned), due)
        assert list(release.shown_whole) == turned
        # A log has used up the first whitener, if there is another.
        after, first_turn = release.after_log, math.ceil(change * 3.0)
        assert (after.first_eta2, after.change) == (0.125, first_turn)
        assert after.versions == max(versions - 1, 1)
        for before in (0.0, 9.0):
            engine = SimpleNamespace(fields=lambda b=before: {"before": [b]})
            owner = after if before and versions > 1 else release
            for j in times(first, ratio, 60).tolist():
                assert release.charge(engine, j) == owner.charge(SILENT, j)
        assert booked <= 0.64 * (1 + 1e-12)
        assert release.core()["versions"] == versions
        seen += [booked, turned]
        # Whole numbers: what is shown and what stays.
        sums, total = module.PairSums(3, versions=versions, **plan), np.zeros(9)
        for j in range(1, 30):
            item = (np.arange(9) + j) << 40
            total += np.arange(9) + j
            shown = sums.add(j, item.astype(object))
            assert (shown is not None) == (j in times(first, ratio, 30))
            if shown is None:
                continue
            rhos = np.repeat(sums.shares(j), [3, 6])
            close(shown.astype(float) / 2.0**40, total * np.sqrt(1 - rhos**2), 1e-9)
            total *= rhos
            stays = np.concatenate([sums.moments[0], sums.directions[0]]).astype(float) / 2.0**40
            close(stays, total, 1e-9, 1e-10)
            assert sums.due[0] == next_time(j, ratio)
            assert sums.publish(j, total) is total
            if sums.shows_whole(j):
                sums.turn(j)
    assert Pair.draws(9, None, 1.3) == 9 * (len_most(1.3) + 1)
    return seen


def len_most(ratio: float) -> int:
    """More releases than there can be in 2⁶² rounds, and in ten lives of any length after them."""
    return math.ceil(11 / (ratio - 1) + 62 * math.log(2) / math.log(ratio)) + 3


@judge
def whole_numbers_and_their_shares() -> Any:
    from dpbandit.release.whole import WholeRows, share_of

    seen: list[Any] = []
    rows = WholeRows(2, 3)
    assert len(rows) == 2
    numbers = [[-1, 3 << 70, 2**63], [2**64 - 1, -(2**63), 0]]
    for at, row in enumerate(numbers):
        rows[at] = row
    for at, row in enumerate(numbers):
        assert rows[at].tolist() == row
    fields = rows.fields("sums")
    assert set(fields) == {"sums_high", "sums_low"}
    assert fields["sums_high"] is rows.high
    for share in (0.0, 1.0, 0.5, 1 / 3, 0.999):
        factor = fractions.Fraction(math.floor(fractions.Fraction(share) * 2**62), 2**62)
        for number in (0, 1, -1, 7, -7, 10**15 + 1, -(3 << 75)):
            found = share_of(np.array([number], dtype=object), share)[0]
            exact = fractions.Fraction(number) * factor
            # To the nearest; from a tie away from 0.
            nearest = math.floor(abs(exact) + fractions.Fraction(1, 2)) * (1 if number >= 0 else -1)
            assert found == nearest, (number, share)
            seen.append(int(found))
    return seen
