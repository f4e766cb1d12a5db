"""Judges of rewards that are answered by themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from judges.bandits import made, mu_worth, slates
from judges.common import DELTA, between, close, judge, refused


@judge
def answers_cost_what_their_chances_say() -> Any:
    """Of ±B/2 with chances ½ ± v/B: the largest ratio of chances is the cost, and B is coth(ε/2)."""
    from dpbandit import _core as core
    from dpbandit.privacy.noise import RESPONSE

    seen: list[Any] = []
    for epsilon in (1e-6, 0.1, 1.0, 3.0, 20.0):
        scale = RESPONSE.multiplier(epsilon, 1)
        assert RESPONSE.share(scale) <= epsilon
        close(RESPONSE.share(scale), epsilon, 1e-6 if epsilon < 10 else 1e-3)
        close(scale - 1, 1 / math.tanh(epsilon / 2) - 1, 1e-9 if epsilon < 10 else 1e-3)
        assert RESPONSE.multiplier(2 * epsilon, 2) == scale
        close(RESPONSE.shift_of(scale, RESPONSE.share(scale)), 1.0, 1e-9)
        seen.append(scale)
    scale = RESPONSE.multiplier(1.2, 1)
    for v0, v1 in ((-0.5, 0.5), (0.5, -0.3), (0.1, 0.1), (-0.5, -0.25)):
        chances = [0.5 + np.array([v, -v]) / scale for v in (v0, v1)]
        logs = np.log(chances[1] / chances[0])
        for y, expected in zip((scale / 2, -scale / 2), logs, strict=True):
            found = RESPONSE.log_ratio(np.array([y]), np.array([v0]), np.array([v1]), scale)
            close(found, expected, 1e-12, 1e-15)
            twice = [np.array([each, each]) for each in (y, v0, v1)]
            close(core.log_ratio("response", *twice, scale), 2 * expected, 1e-12, 1e-15)
        cost = RESPONSE.cost(np.array([v1 - v0]), scale)
        ends = [0.5 - (0.5 - abs(v1 - v0)) / scale, 0.5 - 0.5 / scale]  # of −, nearest an end
        close(cost, math.log(ends[0] / ends[1]), 1e-12)
        assert cost >= np.abs(logs).max() * (1 - 1e-12)
        close(RESPONSE.cost(np.array([abs(v1 - v0)]), scale), cost, 0.0)
        seen.append(cost)
    close(RESPONSE.shift_of(scale, seen[-1]), 0.25, 1e-9)
    assert RESPONSE.shift_of(scale, math.inf) == 1.0
    assert RESPONSE.multiplier(math.inf, 1) == 0.0
    assert RESPONSE.share(1.0) == RESPONSE.share(0.5) == math.inf
    one, zero = np.ones(1), np.zeros(1)
    assert RESPONSE.cost(one, 1.0) == RESPONSE.cost(one, 0.0) == math.inf
    assert RESPONSE.cost(zero, 0.0) == 0.0
    assert RESPONSE.log_ratio(one, one, one, 0.0) == 0.0
    assert RESPONSE.log_ratio(one, one, zero, 0.0) == -RESPONSE.log_ratio(zero, one, zero, 0.0)
    assert RESPONSE.log_ratio(one, one, zero, 0.0) < -100
    assert (RESPONSE.tail(3, 0.1), RESPONSE.standard_deviation(3)) == (1.0, 0.5)
    return seen


@judge
def real_answers_are_lots_and_opendps() -> Any:
    """A value goes to an end by an exact lot, and OpenDP answers for the end."""
    from dpbandit.privacy import opendp
    from dpbandit.privacy.noise import RESPONSE
    from dpbandit.reference import random

    class Lots:
        def __init__(self, lot: int) -> None:
            self.lot, self.counts = lot, []  # type: ignore[var-annotated]

        def randbelow(self, count: int) -> int:
            self.counts.append(count)
            return self.lot

    before, before_response = opendp.secrets, opendp.response
    asked: list[Any] = []

    class Honest:
        cost = 0.75

        def draw(self, bit: bool) -> bool:
            asked.append(bit)
            return bit

    try:
        for lot in (0, 2, 3, 4, 7):
            lots = opendp.secrets = Lots(lot)  # type: ignore[assignment]
            assert [opendp.one_of(n, 8) for n in range(9)] == [lot < n for n in range(9)]
            assert set(lots.counts) == {8}
        for wrong in (-1, 9):
            refused("NoiseError", lambda n=wrong: opendp.one_of(n, 8))
        opendp.response = lambda scale: asked.append(scale) or Honest()  # type: ignore[assignment,return-value]
        for lot in (0, 3, 7):
            opendp.secrets = Lots(lot)  # type: ignore[assignment]
            asked.clear()
            whole = [-4, -1, 0, 3, 4]
            out, cost = RESPONSE.answer(whole, scale=1.5, step=0.125)
            ends = [lot < 4 + number for number in whole]
            assert (asked, cost) == ([1.5, *ends], 0.75)
            close(out, np.where(ends, 0.75, -0.75), 0.0)
        for wrong_scale in (1.0, 0.5, math.nan):
            refused("NoiseError", lambda s=wrong_scale: RESPONSE.answer([0], scale=s, step=0.125))
        RESPONSE.answer([0], scale=1.01, step=0.125)
    finally:
        opendp.secrets, opendp.response = before, before_response
    opendp.response.cache_clear()
    seen = []
    for scale in (1.2, 2.0, 30.0):
        real = opendp.response(scale)
        proven = math.log1p(2 / (scale - 1))
        between(proven * (1 - 1e-9), real.cost, proven)
        seen.append(real.cost)
    sure = opendp.response(1 + 1e-9)
    assert [sure.draw(bit) for bit in (True, False) * 10] == [True, False] * 10
    drawn = np.array([RESPONSE.simulate(5, n, 1.5, np.array([0.3, -0.5])) for n in range(1500)])
    assert set(np.abs(drawn).ravel()) == {0.75}
    # One run in 10⁶ is further off by chance.
    close(drawn.mean(axis=0), [0.3, -0.5], 0.0, 5 * 0.75 / math.sqrt(1500))
    lots_ = np.array([random.uniforms(5, n, 2) for n in range(1500)])
    close(drawn > 0, lots_ < np.array([0.7, 0.5 - 0.5 / 1.5]), 0.0)
    return [*seen, drawn[:9]]


@judge
def phases_end_where_slates_say() -> Any:
    """Which rewards are answered, and when what they said is read: by both engines, in one way."""
    seen: list[Any] = []
    blocks = np.zeros((3, 9))
    for arm in range(3):
        blocks[arm, 3 * arm : 3 * arm + 2] = [0.6, 0.5]
    for label, rounds in (("anytime, answers", 9), ("anytime, blocks", 14), ("anytime, blocks", 3)):
        found = []
        for backend in ("reference", "core"):
            bandit = made(label, backend=backend)
            offered = [blocks] * rounds + [np.full((2, 9), 0.2)] * 3
            if label == "anytime, answers":
                offered = slates(bandit, 12)
            noted = []
            for t, slate in enumerate(offered):
                bandit.select(slate)
                bandit.update(slate[0], 0.25 + 0.1 * (t % 7))
                fields = bandit.engine.fields()
                names = ("central_from", "local_waiting", "local_due", "blocks_seen")
                noted.append([int(fields[name][0]) for name in names])
            groups = {row["group"]: row["releases"] for row in bandit.ledger.table()}
            found.append((noted, groups[1], np.array(bandit.theta)))
        assert found[0][:2] == found[1][:2], label
        close(found[0][2], found[1][2], 1e-8, 1e-9)
        noted, answered, _theta = found[0]
        assert answered == {"anytime, answers": 5, "anytime, blocks": rounds}[label]
        assert noted[-1][0] == answered
        seen += found[0]
    return seen


@judge
def answers_count_by_what_they_are_worth() -> Any:
    """Among costs in μ², pure ε counts as the μ² that is worth ε at the claim's δ."""
    from dpbandit.privacy.noise import GAUSSIAN, RESPONSE

    seen: list[Any] = []
    for label, answered in (("anytime, answers", 5), ("anytime, blocks", 0), ("anytime, never", 0)):
        bandit = made(label)
        release = bandit.release
        assert release.answered() == answered
        for cost in (0.3, 1.5, 4.0):
            assert release.counted(GAUSSIAN, cost) == cost
            if label != "anytime, never":
                found = release.counted(RESPONSE, cost)
                close(found, mu_worth(cost, release.local.delta) ** 2, 1e-8)
                seen.append(found)
        assert release.counted(RESPONSE, 0.0) == 0.0
        assert release.counted(RESPONSE, math.inf) == math.inf
        close(release.local.delta, 0.0 if label == "anytime, never" else DELTA, 1e-2)
        first = release.noise_now(bandit.engine)
        assert first is (GAUSSIAN if label == "anytime, never" else RESPONSE)
    return seen


@judge
def answers_come_while_they_tell_more_than_sums() -> Any:
    """⌊2(d + 1)/(μ²B²/4)⌋ of them, unless public contexts are in no blocks."""
    import dpbandit as dpb

    blocks = np.array([[0.6, 0.5, 0.0, 0.0], [0.0, 0.0, 0.7, 0.2]])
    mixed = np.vstack([blocks, [0.0, 0.3, 0.3, 0.0]])
    noise = mu_worth(1.0, DELTA) / math.tanh(0.5) / 2
    seen = []
    for contexts, answered in ((None, True), (blocks, True), (mixed, False)):
        given = {"epsilon": 1.0, "delta": DELTA, "reward_range": (0, 1), "seed": 3}
        bandit = dpb.make("anytime", dim=4, public_contexts=contexts, **given)
        rounds = bandit.release.local.rounds
        assert rounds == (math.floor(2 * 5 / noise**2) if answered else 0)
        assert bandit.claim.notion == ("parallel" if answered else "gdp")
        seen.append(rounds)
    return seen


@judge
def what_rides_along_is_rounded_too() -> Any:
    """Of an item of `anytime`, d + 1 numbers, and two more where the scale of residuals is found."""
    import dpbandit as dpb

    given = {"epsilon": 1.0, "delta": DELTA, "reward_range": (0, 1), "seed": 3}
    found = [dpb.make("anytime", dim=4, find_scale=finds, **given) for finds in (False, True)]
    assert [bandit.release.dim for bandit in found] == [5, 7]
    one, more = (bandit.release.sensitivity for bandit in found)
    close(more - one, (math.sqrt(7) - math.sqrt(5)) * 2.0**-40, 1e-2)
    return [one, more]


@judge
def sums_begin_where_answers_end() -> Any:
    """The last answer is one, and what is summed after it is charged as if there had been no answers."""
    import dpbandit as dpb
    from dpbandit.privacy.noise import GAUSSIAN, RESPONSE

    given = {"epsilon": 1.0, "delta": DELTA, "reward_range": (0, 1), "seed": 3, "knee": 2.0}
    given |= {"dim": 2, "memories": (), "find_scale": False}
    found = []
    for answers, local in ((5, 5), (0, "never")):
        bandit = dpb.make("anytime", local=local, **given)
        for t in range(1, answers + 61):
            bandit.update([0.6, 0.8], 0.5)
            noise = bandit.release.noise_now(bandit.engine)
            assert noise is (RESPONSE if t <= answers else GAUSSIAN), t
        found.append([row for row in bandit.ledger.table() if row["what"] == "releases"])
    (one,), (other,) = found
    assert one["releases"] == other["releases"] > 20
    close(one["total"], other["total"], 1e-12)
    return [one["total"], one["releases"]]


@judge
def blocks_are_groups_of_features_that_no_context_mixes() -> Any:
    """Where answers without sums pay, by joining groups one context at a time."""
    from dpbandit.algorithms.phase import in_blocks

    rng, seen = np.random.default_rng(4), []
    for _ in range(150):
        rows, dim = rng.integers(1, 6), rng.integers(2, 8)
        contexts = rng.normal(size=(rows, dim)) * (rng.random((rows, dim)) < rng.choice([0.2, 0.4]))
        groups: list[set[int]] = []
        for context in contexts:
            if mine := set(np.flatnonzero(context).tolist()):
                mixed = [group for group in groups if group & mine]
                apart = [group for group in groups if not group & mine]
                groups = [*apart, mine.union(*mixed)]
        expected = len(groups) > 1 and bool(((contexts != 0).sum(axis=1) > 1).any())
        assert in_blocks(contexts) == expected, contexts
        seen.append(expected)
    between(20, sum(seen), 130)
    return seen
