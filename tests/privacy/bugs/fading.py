"""Planted bugs of sums that fade from release to release, and of rewards that are answered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from bugs.bent import Bent, bent, make, ones, stepwise_cost, stepwise_ratio, wholes
from dpbandit.auditor.watch import joint_cost, record
from dpbandit.learners import scale as scales
from dpbandit.learners.filter import FilterLearner
from dpbandit.privacy.grid import STEP
from dpbandit.release import anytime


def free_cost(one: float, two: float, others: int = 200, knee: float = 20.0) -> tuple[float, str]:
    """A reward of one or two, then others that vary little: exact joint cost over the claim."""
    xs, rewards = ones(others + 1), 0.1 * (-1.0) ** np.arange(others + 1)
    given = {"knee": knee, "first_release": 4, "ratio": 1.1, "backend": "reference"}

    def shipped():
        return make("anytime", horizon=None, public_contexts=ones(1), reward_variance=0.05, **given)

    first, second = rewards.copy(), rewards.copy()
    first[0], second[0] = one, two
    watched = record(shipped, xs, first)
    cost, why = joint_cost(watched, record(shipped, xs, second, script=watched))
    return math.sqrt(cost) / shipped().claim.mu, why


def plant_free_numbers_too_large() -> str:
    """Two numbers that ride along with a residual, at the weight of one that has the room alone."""
    sound = free_cost(100.0, 0.0)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scales, "BY_DISTANCE", math.sqrt(0.75))
        broken = free_cost(100.0, 0.0)[0]
    assert sound <= 1 < broken
    return f"{broken:.3f} × the claimed μ for a reward that moves to its prediction; {sound:.3f} × as it ships"


def clean_window(
    scale: scales.Scale, size: float, half: float, variance: float, seen: Any = scales.Scale.see
) -> Any:
    """The window of later rounds follows the residuals themselves, not what was released of them."""
    scale.widened = max(scale.widened, 20 * size)
    return seen(scale, size, half, variance)


def plant_window_of_clean_residuals() -> str:
    sound = free_cost(100.0, 0.0)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scales.Scale, "see", clean_window)
        broken, why = free_cost(100.0, 0.0)
    assert sound <= 1
    assert math.isinf(broken)
    return why


def plant_window_opened_by_clean_residuals() -> str:
    """Whether residuals are at the edge is read from the sum, not from what was released of it."""
    usual = FilterLearner._half_window

    def by_sums(learner: FilterLearner, variance: float) -> float:
        clean = max(abs(number) for number in learner.sum.sums[0]) * STEP
        return 0.5 * learner.width if clean > 0.4 else usual(learner, variance)

    sound = free_cost(100.0, 0.0)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "_half_window", by_sums)
        broken, why = free_cost(100.0, 0.0)
    assert sound <= 1
    assert math.isinf(broken)
    return why


def plant_window_changed_after_entering() -> str:
    """Residuals are kept as they are, and brought to the window of the day they are released on."""

    def later(learner: FilterLearner, noisy) -> None:
        before = learner.scale_of.window(0.0)
        commit(learner, noisy)
        share = before / learner.scale_of.window(0.0)
        if share > 1.0:
            learner.sum.sums[0] = [round(number * share) for number in learner.sum.sums[0]]

    given = {"others": 400, "knee": 300.0}
    commit, sound = FilterLearner.commit, free_cost(100.0, -100.0, **given)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "commit", later)
        broken = free_cost(100.0, -100.0, **given)[0]
    assert sound <= 1
    assert broken > 1.05
    return f"{broken:.2f} × the claimed μ when the window narrows; {sound:.2f} × as it ships"


def plant_early_release() -> str:
    """Weights 1/j² − 1/j′², where j′ is the planned time of the next release, and one that comes
    before j′."""

    def cost(planned: int, made: int) -> float:
        """What reward 100, released at 100 with weight 100, pays for that release and, from `made`
        on, for all later ones."""
        return 100**2 * ((1 / 100**2 - 1 / planned**2) + 1 / made**2)

    early = cost(105, 101)
    assert cost(105, 105) == pytest.approx(1)
    assert cost(105, 109) < 1
    assert early > 1.07
    # as it ships, a release spends a share of what is left, so its time does not matter
    given = {"first_release": 1, "ratio": 1.01, "knee": 1.0}
    shipped = stepwise_ratio(lambda: make("anytime", **given), ones(64), [0])
    assert shipped <= 1
    return (
        f"{early:.3f} × the budget when planned for 105 and made at 101; {shipped:.3f} × the μ as "
        "it ships"
    )


class Unshrunk(Bent):
    """An anytime release that shows its share and keeps the sum as it was."""

    def commit(self, noisy):
        self.inner.commit(noisy)
        t, fields = self.inner.rounds, self.inner.fields()
        rho = anytime.kept(t, anytime.next_time(t, 1.2), 10.0)
        for at, whole in enumerate(wholes(self.inner)[0]):
            high, low = divmod(round(whole / rho), 2**64)
            fields["sums_high"][0, at] = high
            fields["sums_low"][0, at] = low - 2**64 if low >> 63 else low


def plant_unshrunk_sum() -> str:
    def shipped():
        return make("anytime", first_release=2, ratio=1.2, knee=10.0)

    broken = stepwise_ratio(lambda: bent(shipped(), Unshrunk), ones(64), [0])
    sound = stepwise_ratio(shipped, ones(64), [0])
    assert broken > 1.5
    assert sound <= 1
    return f"{broken:.2f} × the claimed μ after 64 rounds; {sound:.3f} × as it ships"


def answering(**given):
    more = {
        "first_release": 1,
        "ratio": 1.2,
        "knee": 4.0,
        "backend": "reference",
        "find_scale": False,
    }
    return make("anytime", local=8, **more, **given)


def answers_ratio(prepare) -> float:
    """What the first reward pays where a learner prepares its rounds in this way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "prepare", prepare)
        return stepwise_ratio(answering, ones(24), [0])


PREPARE = FilterLearner.prepare


def answered_and_summed(learner, x, reward):
    found = PREPARE(learner, x, reward)
    if learner.local.has(learner.clock.rounds):
        item = learner.instrument * found.numbers[0]
        learner.sum.sums[0] = learner.sum.sums[0] + np.array([int(one) for one in item], object)
    return found


def plant_answer_that_is_summed() -> str:
    broken, sound = answers_ratio(answered_and_summed), answers_ratio(PREPARE)
    assert broken > 1.2
    assert sound <= 1 + 1e-12
    return f"{broken:.2f} × the claimed μ for a reward that is answered and summed; {sound:.2f} × as it ships"


def plant_answer_drawn_twice() -> str:
    before = {}

    def prepare(learner, x, reward):
        found, t = PREPARE(learner, x, reward), learner.clock.rounds
        if learner.local.has(t):
            before[t] = found.numbers
            return found._replace(numbers=before[t - (t % 2 == 0)])
        return found

    broken = answers_ratio(prepare)
    assert broken > 1.4
    return (
        f"{broken:.2f} × the claimed μ for a reward that is answered in its round and in the next"
    )


def plant_phase_that_a_reward_ends() -> str:
    shipped = FilterLearner.prepare

    def prepare(learner, x, reward):
        found = shipped(learner, x, reward)
        t = learner.clock.rounds
        if learner.local.has(t) and reward > learner.centre:
            learner.local.central_from = t
        return found

    def found() -> tuple[float, str]:
        return stepwise_cost(answering, ones(24), [2])

    assert math.isfinite(found()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "prepare", prepare)
        cost, why = found()
    assert math.isinf(cost)
    return why


def predicted_from_the_clean_sum(learner, x, reward):
    found = PREPARE(learner, x, reward)
    clean = float(np.sum(learner.sum.fields()["sums_low"].astype(float))) * STEP
    learner.estimate[-1] = learner.centre + 0.1 * clean
    return found


def plant_prediction_from_the_clean_sum() -> str:
    def found() -> tuple[float, str]:
        return stepwise_cost(lambda: answering(window=0.25), ones(24), [9])

    assert math.isfinite(found()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterLearner, "prepare", predicted_from_the_clean_sum)
        cost, why = found()
    assert math.isinf(cost)
    return why
