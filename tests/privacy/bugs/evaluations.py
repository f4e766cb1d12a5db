"""Evaluations of a log that are watched, and planted bugs of them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.auditor import watch as watching
from dpbandit.auditor.watch import Watch
from dpbandit.evaluate import players as contestants
from dpbandit.evaluate import release as evaluations
from dpbandit.evaluate import replay as replays
from dpbandit.evaluate.release import _mu as mu_of_claim
from dpbandit.evaluate.tally import Range
from dpbandit.evaluate.tally import Tally as EvaluationTally
from dpbandit.privacy.accounting import mu_of
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.sources import Simulation


@dataclasses.dataclass
class Evaluated:
    """One evaluation, with all that its noise was drawn for."""

    found: Any
    transcript: watching.Transcript
    played: list[tuple[bool, int]]


def evaluation_log(unit: Any, rows: int = 48) -> tuple[dict[str, Any], dict[str, Any], list[int]]:
    """A log of one arm, so that every row matches, and one in which all rewards of a unit are others.

    Rows weigh 4, 2 or 1; those that change weigh 4, so that they are always learned from.
    """
    kind, most = (unit, 1) if isinstance(unit, str) else unit
    changed = [0] if kind == "reward" else [0, 5, 9, 13][: most if kind == "user" else 4]
    chances = np.tile([0.25, 0.5, 1.0], rows)[:rows]
    chances[changed] = 0.25
    users = [f"u{i}" for i in range(rows)]
    for at in changed:
        users[at] = "somebody"
    log = {"action": np.zeros(rows, dtype=int), "reward": np.zeros(rows), "p": chances}
    other = {**log, "reward": log["reward"].copy(), "who": users}
    other["reward"][changed] = 50.0  # far above the range, so that forgotten clipping shows
    return {**log, "who": users}, other, changed


def evaluated(log, name, *, release, unit="reward", script=None, seed=1, **options) -> Evaluated:
    """An evaluation that is watched; with a script it is told that one's noisy values."""
    learning = Watch(Simulation(seed), script)
    estimate = Watch(Simulation(seed + 77), script)
    estimate.transcript = learning.transcript
    played = []
    players, agree, choose = contestants.players, replays.agree, contestants.Player.choose

    def watched(*given):
        found = players(*given)
        for player in found:
            player.policy.source = learning
        return found

    def chosen(player, contexts):
        arm = choose(player, contexts)
        played.append((arm == log["action"][len(played)], arm))
        return arm

    def agreed(*given, **more):
        terms = agree(*given, **more)
        return dataclasses.replace(terms, source=tuple(estimate for _ in terms.source))

    given = {"items": np.eye(1), "reward_range": (0, 1), "unit": unit, "seed": seed, **options}
    if unit != "reward":
        given["user"] = "who"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contestants, "players", watched)
        patch.setattr(contestants.Player, "choose", chosen)
        patch.setattr(replays, "agree", agreed)
        found = dpb.replay(log, name, propensity="p", clip=4.0, release=release, **given)
    return Evaluated(found, learning.transcript, played)


def evaluation_ratio(name="anytime", *, release=(1.0, 1e-4), unit="reward", **given):
    """The exact joint cost of learning and estimate, over the claim, and why if it is infinite."""
    if name != "random":
        given["epsilon"] = 1.0
    if name in ("anytime", "tree-gauss", "dgs"):
        given["delta"] = 1e-4
    if name == "anytime":
        given |= {"first_release": 3, "knee": 20.0}
    log, changed, _ = evaluation_log(unit)
    one = evaluated(log, name, release=release, unit=unit, **given)
    two = evaluated(changed, name, release=release, unit=unit, script=one.transcript, **given)
    if one.found.to_dict() != two.found.to_dict() or one.played != two.played:
        return math.inf, "what is shown depends on a reward beside its noise"
    costs = {"mu²": 0.0, "epsilon": 0.0}
    if len(one.transcript.releases) != len(two.transcript.releases):
        return math.inf, watching.OTHER_RELEASES
    for mine, theirs in zip(one.transcript.releases, two.transcript.releases, strict=True):
        if not mine.has_noise_of(theirs):
            return math.inf, watching.OTHER_SCALE
        costs[mine.noise.currency] += mine.cost_of(theirs)
    claim = one.found.claim
    if claim.mu is None:
        assert costs["mu²"] == 0
        return costs["epsilon"] / claim.epsilon, "in ε"
    pure = Claim("", "pure", costs["epsilon"], 0.0, None, "proven", "none")
    return math.sqrt(costs["mu²"] + mu_of_claim(pure) ** 2) / claim.mu, "in μ"


def plant_evaluation_of_single_rows() -> str:
    """The noise of an estimate is scaled to one row where a user with three is protected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvaluationTally, "shift", lambda tally, by_user: tally.heaviest)
        broken, _ = evaluation_ratio("random", unit=("user", 3))
    sound, _ = evaluation_ratio("random", unit=("user", 3))
    assert broken > 2.9
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ for a user with three rows; {sound:.2f} × as it ships"


def plant_learning_that_is_not_charged() -> str:
    """An evaluation claims what its estimate costs, and not what its bandit released on the way."""

    def alone(claims, epsilon, delta, mu):
        return joint([], epsilon, delta, mu_of(epsilon=epsilon, delta=delta * 0.99))

    joint = evaluations._joint
    given = {"release": (0.3, 1e-4), "horizon": 64}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluations, "_joint", alone)
        broken, _ = evaluation_ratio("tree-gauss", **given)
    sound, _ = evaluation_ratio("tree-gauss", **given)
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ at (1, 10⁻⁴) for learning and (0.3, 10⁻⁴) for the estimate; {sound:.2f} × as it ships"


def plant_unclipped_evaluation() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Range, "share", lambda given, reward: reward)
        broken, _ = evaluation_ratio("random")
    sound, _ = evaluation_ratio("random")
    assert broken > 40
    assert sound <= 1
    return f"{broken:.0f} × the claimed μ for a reward of 50 in a range up to 1; {sound:.2f} × as it ships"
