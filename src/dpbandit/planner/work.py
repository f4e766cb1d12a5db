"""The work behind one plan: make every algorithm, give it its share of the time, and play it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpbandit.algorithms import registry
from dpbandit.bandit import Bandit
from dpbandit.errors import DpbanditError
from dpbandit.learning import instrument
from dpbandit.planner.effort import LEAST_ROUNDS, Effort, effort_for, round_cost
from dpbandit.planner.forecast import REFERENCE, Forecast
from dpbandit.planner.play import Unplayable, predict
from dpbandit.planner.problem import Problem
from dpbandit.planner.visits import EVERYTHING, PLAYED_VISITS, Learned, Visits, chances_of
from dpbandit.privacy.unit import Spread
from dpbandit.simulate.jobs import Job

INTERRUPTED = "interrupted"
PLAYED_SLATES = 64  # whose directions say what is learned of a spread user
DEFAULT, FAR_FROM_BEST = "anytime", 1.25
CLICKS = ("rewards", "clicks")

Progress = Callable[[str, float], None]


class Work:
    """The algorithms of one question: made once for inspection, then played."""

    def __init__(
        self,
        problem: Problem,
        jobs: list[Job],
        shared: dict[str, Any],
        named: bool,
        visits: Visits | None = None,
    ) -> None:
        self.problem, self.visits = problem, visits
        self.makers: dict[str, Callable[[int], Any]] = {}
        self.found: dict[str, Forecast] = {}  # in the order of the jobs; predictions come later
        self.costs: dict[str, float] = {}
        for label, name, own in jobs:
            make = partial(_make, name, {**shared, **own})
            try:
                bandit = make(0)
            except Exception as error:
                theirs = registry.find(name).black_box  # whose factory may raise anything
                if (named and name != REFERENCE) or not (
                    theirs or isinstance(error, DpbanditError)
                ):
                    raise
                self.found[label] = Forecast(label, None, None, f"not with these options: {error}")
                continue
            claim = getattr(bandit, "claim", None)
            proven = claim is not None and claim.status == "proven"
            if not (named or proven or name == REFERENCE):
                words = "not proven with these options: name it to get a prediction"
                self.found[label] = Forecast(label, claim, None, words)
                continue
            told = ' with rewards="clicks"' if CLICKS in own.items() else ""
            self.found[label] = Forecast(
                label, claim, None, INTERRUPTED, self._learned(bandit), told, name, own
            )
            self.makers[label] = make
            self.costs[label] = round_cost(bandit, problem.arms)

    def _learned(self, bandit: Any) -> Learned:
        """The share that caps leave of frequent visitors; a bandit that is not private has no
        cap."""
        private = type(bandit) is Bandit and bandit.claim.status != "none"
        if self.visits is None or not private:
            return EVERYTHING
        rate = None if self.problem.bases is None else self.problem.best_rate
        unit, chances = bandit.options.protects, None
        if isinstance(unit, Spread):
            slates = self.problem.contexts[self.problem.block(0, 0, PLAYED_SLATES)[0]]
            for slate in slates:  # whiteners are of contexts that were offered
                bandit.select(slate)
            instruments = np.array([instrument(bandit, slate[0]) for slate in slates])
            most = min(int(self.visits.counts.max()), PLAYED_VISITS)
            chances = chances_of(unit, instruments, most, self.problem.seed)
        return self.visits.learned(unit, bandit.options.width, rate, chances)

    def effort(self, seconds: float) -> Effort:
        """How much to play of each. The reference is always played: the others are compared with
        it."""
        effort = effort_for(self.costs, self.problem.rounds, len(self.problem.thetas), seconds)
        if effort.rounds.get(REFERENCE) == 0:
            effort.rounds[REFERENCE] = min(LEAST_ROUNDS, self.problem.rounds)
        return effort

    def forecasts(self, effort: Effort, progress: Progress | None) -> dict[str, Forecast]:
        """All predictions; after Ctrl-C the finished ones."""

        def tell(label: str, at: int, part: float) -> None:
            if progress is not None:
                progress(label, (at + part) / len(self.makers))

        try:
            for at, label in enumerate(self.makers):
                self._forecast(label, effort, partial(tell, label, at))
        except KeyboardInterrupt:
            finished = [f for f in self.found.values() if f.course is not None]
            if self.found[REFERENCE].course is None or all(f.status != "proven" for f in finished):
                raise  # nothing to recommend
        return self.found

    def _forecast(self, label: str, effort: Effort, tell: Callable[[float], None]) -> None:
        course, why_not, rounds = None, "", effort.rounds[label]
        learned = self.found[label].learned
        try:
            if rounds == 0:
                raise Unplayable(
                    f"a round takes about {1e-6 * self.costs[label]:.2g} s, too long to play enough "
                    "of them; ask for fewer algorithms"
                )
            course = predict(
                self.makers[label], self.problem, effort.particles, rounds, tell, learned
            )
        except Unplayable as error:
            why_not = f"no prediction: {error}"
        self.found[label] = replace(self.found[label], course=course, why_not=why_not)


def _make(name: str, options: dict[str, Any], seed: int) -> Any:
    return registry.construct(name, {**options, "seed": seed})


def notes_on(
    problem: Problem, effort: Effort, forecasts: dict[str, Forecast], delta: float
) -> list[str]:
    notes = _on_the_default(forecasts)
    if delta > 1 / problem.rounds:
        notes.append(f"delta = {delta:g} is above 1/rounds: too large to protect people")
    if effort.particles < len(problem.thetas):
        notes.append(
            f"{effort.particles} particles were played instead of {len(problem.thetas)}, to answer "
            "in seconds"
        )
    shorter: dict[int, list[str]] = {}
    for label, forecast in forecasts.items():
        if forecast.course is not None and forecast.course.extrapolated:
            shorter.setdefault(forecast.course.played, []).append(label)
    if shorter:
        words = "; ".join(f"{played:,} ({', '.join(names)})" for played, names in shorter.items())
        notes.append(
            f"of {problem.rounds:,} rounds these were simulated, to answer in seconds: {words}. The "
            "rest is extrapolated: with each doubling of time, added regret keeps growing by its last "
            "factor, between 1 and 2. Ask for fewer algorithms to simulate them longer"
            + (". Drift after the simulated rounds is not seen" if problem.in_order else "")
        )
    return notes


def _on_the_default(forecasts: dict[str, Forecast]) -> list[str]:
    """A note where the default algorithm is a bad choice."""
    finals = {
        label: float(forecast.course.regret[-1])
        for label, forecast in forecasts.items()
        if forecast.course is not None and forecast.status == "proven"
    }
    ours = [label for label in finals if forecasts[label].algorithm == DEFAULT]
    if not ours:
        return []
    best = min(finals, key=lambda label: finals[label])
    nearest = min(ours, key=lambda label: finals[label])
    times = finals[nearest] / max(finals[best], 1e-300)
    if times < FAR_FROM_BEST:
        return []
    return [
        f"{DEFAULT}, the default elsewhere, is predicted {times:.2f} × the regret of {best} here: see "
        "docs/how-to/which-algorithm.md"
    ]
