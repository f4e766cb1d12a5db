"""The predictor of `anytime`: its own filter, prior and schedule, on a march from release to release."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.bandits import anytime_steps, rounds
from dpbandit.bandits import outlook as outlooks
from dpbandit.planning.march import Array, Played, View, clipped, geometric_steps
from dpbandit.planning.models import WIDE, predicts
from dpbandit.planning.problem import Problem
from dpbandit.release import anytime as releases

# Releases are made a little more rarely than the bandit makes them, which its regret hardly notices (docs/plan.md).
RATIO, WIDE_RATIO = 1.05, 1.1


@predicts(anytime_steps.Plan)
def anytime_model(bandit: Any, problem: Problem) -> AnytimeModel | None:
    """None with perturbed contexts."""
    return None if bandit.plan.context_noise > 0 else AnytimeModel(bandit, problem)


class AnytimeModel:
    """One real learner for each particle; what is added to its sums stands for many rounds."""

    def __init__(self, bandit: Any, problem: Problem) -> None:
        ratio = RATIO if problem.dim <= WIDE else WIDE_RATIO
        self.plan: anytime_steps.Plan = bandit.plan._replace(ratio=max(bandit.plan.ratio, ratio))
        self.problem, self.bandit = problem, bandit
        self.public = bandit.options.public_contexts
        self.rng = np.random.default_rng([problem.seed, 3])
        self.learners = [anytime_steps.new_learner(self.plan, self.public) for _ in problem.thetas]

    def steps(self, rounds: int) -> NDArray[np.int64]:
        """From release to release; before the first, contexts are seen and nothing else is learned."""
        made = releases.times(self.plan.first, self.plan.ratio, rounds)
        early = geometric_steps(min(self.plan.first, rounds), 2.0) if self.public is None else np.array([0])
        return np.unique(np.concatenate([early, made, [rounds]]))

    def view(self, start: int, stop: int) -> View:
        del stop
        thetas = np.stack([learner.theta for learner in self.learners])[:, None]
        spread = np.stack([learner.spread for learner in self.learners])
        return View(thetas, spread, float(self.bandit.alphas(start + 1, 1)[0]), about_mean=True)

    def learn(self, played: Played, stop: int) -> None:
        normals = self.rng.normal(size=(len(self.learners), self.problem.dim + 1))
        for p, learner in enumerate(self.learners):
            self._look(learner, played.slates[p], played.rounds, stop)
            self._add(learner, played.x[p], played.mean[p], played.normal[p], played.weight)
            learner.clock[0] = learner.clock[1] = stop
            if stop >= learner.clock[3]:
                self._release(learner, stop, normals[p])

    def _look(self, learner: anytime_steps.Learner, slates: Array, count: int, stop: int) -> None:
        """Where contexts are not known in advance, those offered change the whitener and the prior."""
        if learner.outlook.counts[4] > 0.0:
            return
        seen = count if stop <= outlooks.LOOKED_AT else max(1, count // 8)
        used = slates[: min(seen, len(slates))]
        arms = used.shape[1]
        weight, outlook, middles = seen / len(used), learner.outlook, used.mean(axis=1)
        outlook.second[:] += weight / arms * np.einsum("ski,skj->ij", used, used)
        outlook.first[:] += weight * middles.sum(axis=0)
        outlook.counts[:2] += (seen, seen * arms)
        if arms > 1:
            scatter = ((used - middles[:, None]) ** 2).sum() / (arms - 1)
            outlook.counts[2:4] += (seen, weight * scatter)
        if learner.clock[4] == 0:
            anytime_steps._conclude(learner, self.plan)
        else:
            outlooks.refresh(outlook, self.plan.low, self.plan.high, 1.0)

    def _add(self, learner: anytime_steps.Learner, x: Array, mean: Array, normal: Array, weight: float) -> None:
        """What `prepare` adds for one round, for `weight` rounds at each of these contexts."""
        plan, d = self.plan, self.problem.dim
        says_something = np.abs(x).sum(axis=1) > 0.0
        images = np.linalg.solve(
            np.tril(learner.outlook.factor), np.column_stack([x / learner.outlook.counts[5], says_something]).T
        ).T
        sizes = np.linalg.norm(images, axis=1, keepdims=True)
        u = np.where(sizes > 0.0, images / np.maximum(sizes, 1e-300), 0.0)
        half = plan.window
        prediction = np.clip(x @ learner.estimate[:d] + learner.estimate[d], plan.low + half, plan.high - half)
        residual, variance = clipped(mean, self.problem.reward_noise, prediction - half, prediction + half)
        residual -= prediction
        unit = 0.5 / half
        items = unit * (weight * residual + np.sqrt(weight * variance) * normal)
        learner.sums[:] += items @ u
        state = learner.filter
        state.offset[:] += unit * weight * prediction @ u
        state.design[:, :d] += unit * weight * u.T @ x
        state.design[:, d] += unit * weight * u.sum(axis=0)
        state.spread[:] += unit * unit * weight * u.T @ u

    def _release(self, learner: anytime_steps.Learner, stop: int, normal: Array) -> None:
        rho = releases.kept(stop, releases.next_time(stop, self.plan.ratio), self.plan.knee)
        noisy = releases.shown(rho) * learner.sums + self.plan.scale * normal
        learner.sums[:] *= rho
        rounds.commit_one(learner, self.plan, noisy)

    def estimates(self) -> Array:
        return np.stack([learner.theta for learner in self.learners])
