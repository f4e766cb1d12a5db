"""The answer of a plan: predictions over time and a recommendation. Every ε is shown with its
claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpbandit import frames
from dpbandit.errors import OptionError, UnknownAlgorithmError, nearest
from dpbandit.planner import accuracy
from dpbandit.planner.clipping import Clipping
from dpbandit.planner.course import Course, geometric_steps
from dpbandit.planner.problem import Problem
from dpbandit.planner.visits import EVERYTHING, Learned
from dpbandit.privacy.claim import Claim

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

REFERENCE = "linucb"  # what private algorithms are compared with
PREDICTED = ("regret", "regret_se", "times_non_private", "theta_error", "close_after")


@dataclass(frozen=True)
class Forecast:
    """One algorithm's prediction, or why there is none."""

    name: str
    claim: Claim | None
    course: Course | None
    why_not: str
    learned: Learned = EVERYTHING
    told: str = ""  # what a plan tells it of its own accord
    algorithm: str = ""  # `name` is a label, with the options of its own in it
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """Status of the claim: proven, as-published or none."""
        return "none" if self.claim is None else self.claim.status

    @property
    def standard_error(self) -> float:
        """Standard error of the final regret over the worlds tried; more particles would narrow
        it."""
        if self.course is None:
            return float("nan")
        return float(self.course.final.std(ddof=1) / np.sqrt(len(self.course.final)))


@dataclass(frozen=True)
class Plan:
    """Predictions for every algorithm. `forecasts` by name; `assumptions` in words.

    >>> import dpbandit as dpb
    >>> asked = {"dim": 2, "arms": 3, "epsilon": 2.0, "delta": 1e-4, "horizon": 300}
    >>> found = dpb.plan(**asked, algorithms=["anytime", "random"])
    >>> found.recommended
    'anytime'
    >>> list(found.table().columns)
    ['regret', 'regret_se', 'times_non_private', 'theta_error', 'close_after', 'status', 'note']
    """

    problem: Problem
    epsilon: float
    delta: float
    horizon: int | None
    forecasts: dict[str, Forecast]
    assumptions: dict[str, str]
    notes: tuple[str, ...] = ()
    complete: bool = True  # False after Ctrl-C: some algorithms then have no prediction
    clipping: Clipping | None = None  # what it does to the sample of rewards, if one was given

    # ------------------------------------------------------------------ answers

    @property
    def measure(self) -> str:
        """The name of the regret: "regret", or "clicks lost" if rewards are clicks."""
        return "regret" if self.problem.bases is None else "clicks lost"

    @property
    def accuracy(self) -> str:
        """The measured error of such predictions, in words."""
        return accuracy.statement(self.extrapolated, clicks=self.problem.bases is not None)

    def course(self, name: str) -> Course:
        """One algorithm's predicted course, or an error if there is none."""
        forecast = self.forecasts.get(name)
        if forecast is None:
            raise UnknownAlgorithmError(
                f"the plan has no algorithm {name!r}: {nearest(name, self.forecasts)}"
            )
        if forecast.course is None:
            raise OptionError(f"{name}: {forecast.why_not}")
        return forecast.course

    def final(self, name: str) -> float:
        """Predicted regret in the last round."""
        return float(self.course(name).regret[-1])

    def ranked(self) -> list[str]:
        """The proven algorithms that have a prediction, the lowest final regret first."""
        names = [
            n for n, f in self.forecasts.items() if f.course is not None and f.status == "proven"
        ]
        return sorted(names, key=self.final)

    @property
    def recommended(self) -> str:
        """The proven algorithm with the lowest predicted regret; "random" if none pays off."""
        ranked = self.ranked()
        if not ranked:
            raise OptionError(
                "no proven algorithm has a prediction: name some, for example "
                "algorithms=['anytime']"
            )
        return ranked[0]

    def rivals(self) -> list[str]:
        """Proven algorithms that are not clearly worse than the recommended one.

        Their regret is higher by less than 5%, or by less than two standard errors over the worlds
        tried.
        """
        best, *others = self.ranked()
        found = []
        for name in others:
            pairs = (self.course(name).final, self.course(best).final)
            most = min(len(final) for final in pairs)  # a particle is the same world in both
            gap = pairs[0][:most] - pairs[1][:most]
            if gap.mean() < max(2 * gap.std(ddof=1) / np.sqrt(len(gap)), 0.05 * self.final(best)):
                found.append(name)
        return found

    @property
    def extrapolated(self) -> list[str]:
        """Algorithms that were simulated for fewer rounds than requested; see `notes`."""
        courses = {name: forecast.course for name, forecast in self.forecasts.items()}
        return [name for name, course in courses.items() if course and course.extrapolated]

    def at(self, name: str, rounds: Any, what: str = "regret") -> NDArray[np.float64]:
        """Predicted regret, or theta_error, after this many rounds."""
        if what not in ("regret", "theta_error"):
            raise OptionError(f"a plan predicts regret and theta_error, not {what!r}")
        course = self.course(name)
        values = getattr(course, what)
        times, first = course.rounds, 0.0 if what == "regret" else values[0]
        found = np.interp(rounds, np.concatenate([[0], times]), np.concatenate([[first], values]))
        return np.asarray(found, dtype=np.float64)

    def rounds_until_close(self, name: str, within: float = 0.1) -> int | None:
        """The round from which recent regret stays close to the non-private one's.

        Recent regret is that of the last half of the rounds; close is within 10%. None if that is
        not reached within the planned rounds.
        """
        times = geometric_steps(self.problem.rounds, 1.1)[1:].astype(np.float64)
        times = times[times >= min(32, self.problem.rounds)]
        mine, theirs = (self.at(n, times) - self.at(n, times / 2) for n in (name, REFERENCE))
        close = mine <= (1 + within) * theirs
        if not close[-1]:
            return None
        far = np.flatnonzero(~close)
        return int(times[far[-1] + 1]) if len(far) else int(times[0])

    # ------------------------------------------------------------------ showing

    def frame(self, kind: Literal["pandas", "polars", "arrow"] = "pandas") -> Any:
        """A frame of this kind with columns algorithm, round, regret, theta_error."""
        courses = {n: f.course for n, f in self.forecasts.items() if f.course is not None}
        columns = {
            "algorithm": [n for n, course in courses.items() for _ in course.rounds],
            "round": np.concatenate([course.rounds for course in courses.values()]),
            "regret": np.concatenate([course.regret for course in courses.values()]),
            "theta_error": np.concatenate([course.theta_error for course in courses.values()]),
        }
        return frames.frame(columns, kind)

    def table(self) -> pd.DataFrame:
        """One row per algorithm at the last round, lowest regret first; those without prediction
        last."""
        import pandas as pd

        return pd.DataFrame(self.rows()).set_index("algorithm")

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `table`, without pandas."""
        reference = max(self.final(REFERENCE), 1e-300)
        found = []
        for name, forecast in self.forecasts.items():
            row: dict[str, Any] = {"algorithm": name, **dict.fromkeys(PREDICTED)}
            row |= {"status": forecast.status, "note": forecast.why_not}
            if (course := forecast.course) is not None:
                row["regret"] = float(course.regret[-1])
                row["regret_se"] = forecast.standard_error
                row["times_non_private"] = row["regret"] / reference
                row["theta_error"] = _number(course.theta_error[-1])
                row["close_after"] = self.rounds_until_close(name)
            found.append(row)
        return sorted(found, key=lambda row: (row["regret"] is None, row["regret"] or 0.0))

    def plot(self) -> Figure:
        """A picture: predicted regret and parameter error over rounds."""
        from dpbandit.planner.picture import courses

        return courses(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        rows = {row.pop("algorithm"): row for row in self.rows()}
        for name, row in rows.items():
            forecast = self.forecasts[name]
            row["claim"] = None if forecast.claim is None else _brief(forecast.claim)
            if forecast.course is not None:
                row["rounds"] = forecast.course.rounds.tolist()
                row["regret_over_time"] = forecast.course.regret.tolist()
                row["theta_error_over_time"] = [_number(v) for v in forecast.course.theta_error]
                row["rounds_played"] = forecast.course.played
                row["learned_from"] = forecast.learned.to_dict()
        return {
            "setting": self.setting(),
            "recommended": self.recommended if self.ranked() else None,
            "recommended_status": "proven" if self.ranked() else None,
            "not_clearly_worse": self.rivals() if self.ranked() else [],
            "algorithms": rows,
            "assumptions": self.assumptions,
            "notes": list(self.notes),
            "complete": self.complete,
            "accuracy": accuracy.to_dict(self.extrapolated),
            "clipping": None if self.clipping is None else self.clipping.to_dict(),
        }

    def setting(self) -> dict[str, Any]:
        """The setting of the question."""
        return {
            "dim": self.problem.dim,
            "arms": self.problem.arms,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "horizon": self.horizon,
            "rounds": self.problem.rounds,
            "reward_range": list(self.problem.reward_range),
            "reward_noise": None if self.problem.bases is not None else self.problem.reward_noise,
            "measure": self.measure,
        }

    def headline(self) -> str:
        """The answer in one sentence."""
        if not self.ranked():
            return "no proven algorithm has a prediction"
        best = self.recommended
        ratio = self.final(best) / max(self.final(REFERENCE), 1e-300)
        close = self.rounds_until_close(best)
        reached = (
            f"within 10% of LinUCB's from round {close:,}"
            if close
            else f"not within 10% of LinUCB's in {self.problem.rounds:,} rounds"
        )
        rivals = f"; not clearly worse: {', '.join(self.rivals())}" if self.rivals() else ""
        claim = self.forecasts[best].claim
        whom = f" for {claim.unit}" if claim is not None and claim.epsilon > 0 else ""
        return (
            f"recommended: {best}{self.forecasts[best].told} (proven at ε = {self.epsilon:g}, δ = {self.delta:g}{whom}), "
            f"predicted {self.measure} {self.final(best):,.0f} after {self.problem.rounds:,} rounds, "
            f"{ratio:.2f} × non-private; recent regret {reached}{rivals}"
        )

    def __str__(self) -> str:
        lines = [self.headline(), ""]
        lines.append(
            f"{'algorithm':<28}{self.measure:>14}{'× linucb':>10}{'‖θ − θ*‖':>10}"
            f"{'close after':>13}  claim"
        )
        for row in self.rows():
            if row["regret"] is None:
                lines.append(f"{row['algorithm']:<28}{row['note']}")
                continue
            close = f"{row['close_after']:,}" if row["close_after"] else "–"
            regret = f"{row['regret']:,.0f} ± {row['regret_se']:,.0f}"
            error = "–" if row["theta_error"] is None else f"{row['theta_error']:.3g}"
            lines.append(
                f"{row['algorithm']:<28}{regret:>14}{row['times_non_private']:>10.2f}"
                f"{error:>10}{close:>13}  " + claim_in_words(self.forecasts[row["algorithm"]])
            )
        lines += ["", *(f"{what}: {words}" for what, words in self.assumptions.items())]
        if self.clipping is not None:
            lines.append(f"clipping: {self.clipping.headline()}")
        lines += [*(f"note: {note}" for note in self.notes), self.accuracy]
        return "\n".join(lines)


def claim_in_words(forecast: Forecast) -> str:
    """The algorithm's promise, in a few words."""
    claim = forecast.claim
    if claim is None or claim.status == "none":
        return "not private"
    if claim.epsilon == 0:
        return "proven, uses no reward"
    delta = f", δ = {claim.delta:g}" if claim.delta else ""
    # Beside claims for one reward this is a stronger promise, so the prices are not comparable.
    more = ", contexts too" if claim.notion == "joint" else ""
    return f"{claim.status}, ε = {claim.epsilon:g}{delta}{more}"


def _number(value: float) -> float | None:
    """For JSON, which has no NaN: a bandit may have no parameter, and so no parameter error."""
    return float(value) if np.isfinite(value) else None


def _brief(claim: Claim) -> dict[str, Any]:
    """The claim without its noise: no bandit with real noise was made."""
    return {
        "status": claim.status,
        "notion": claim.notion,
        "unit": claim.unit,
        "epsilon": claim.epsilon if np.isfinite(claim.epsilon) else None,
        "delta": claim.delta,
    }
