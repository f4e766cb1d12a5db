"""`dpb.protections`: the price of each kind of protection, in one measure, and a recommendation.

The kinds: one click; a whole person, by a cap on visits, on clicks or on how far their rewards move
sums; and contexts too. All are
planned on the same rounds at the same ε. The recommended one is also planned at half and twice the
ε.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpbandit.algorithms.anytime_joint import noise_of_person
from dpbandit.algorithms.rewards import KINDS, NUMBERS
from dpbandit.errors import OptionError
from dpbandit.planner import accuracy
from dpbandit.planner.ask import label_of, plan
from dpbandit.planner.forecast import REFERENCE, Forecast, Plan
from dpbandit.planner.visits import CAPS, EVERYTHING
from dpbandit.planner.work import Progress
from dpbandit.privacy.unit import Person, find_unit

SECONDS = 40.0  # of one core, for all protections together
RANDOM = "random"
ONLY_ONLINE = (
    "unit=('spread', m) is for bandits in Python that start without a log: a service counts users by "
    "numbers. There take the best ('user', m)"
)
# A smaller gain over random play is hardly learning.
LEAST_GAIN = 0.1


@dataclass(frozen=True)
class Protection:
    """Who is protected, and the bandit that does it."""

    words: str
    algorithm: str
    options: dict[str, Any] = field(default_factory=dict)
    whole_person: bool = False
    contexts: bool = False

    @property
    def label(self) -> str:
        """Its label in the plan."""
        return label_of(self.algorithm, self.options)

    def noise(self, width: float) -> float:
        """The noise of one reward, or one round, of this algorithm, times this."""
        unit = find_unit(self.options.get("unit", "reward"))
        if self.contexts and isinstance(unit, Person):
            rewards = KINDS[self.options.get("rewards", NUMBERS.name)]
            return noise_of_person(float(unit.option[1]), width, rewards)
        return unit.moves(width)


def kinds(clicks: bool) -> list[Protection]:
    """All kinds, the weakest promise first."""
    one, told = ("one click", {"rewards": "clicks"}) if clicks else ("one reward", {})
    found = [Protection(one, "anytime", told)]
    if clicks:
        untold = {"rewards": "numbers"}
        found.append(Protection(f"{one}, taken for a number", "anytime", untold))
    for cap in CAPS if clicks else ():
        own = {"unit": ("person", cap), **told}
        found.append(
            Protection(f"a person, C = {cap} {_count(cap, 'click')}", "anytime", own, True)
        )
    for cap in CAPS:
        own = {"unit": ("user", cap), **told}
        found.append(
            Protection(f"a person, m = {cap} {_count(cap, 'visit')}", "anytime", own, True)
        )
    for cap in () if clicks else CAPS[1:]:  # one visit counts once, wherever it points
        own = {"unit": ("spread", cap), **told}
        words = f"a person, as far as {cap} visits in one context move sums"
        found.append(Protection(words, "anytime", own, True))
    found.append(Protection(f"{one} and its context", "anytime-joint", told, contexts=True))
    for cap in CAPS if clicks else ():
        own = {"unit": ("person", cap), **told}
        words = f"a person and contexts, C = {cap} {_count(cap, 'click')}"
        found.append(Protection(words, "anytime-joint", own, True, True))
    for cap in CAPS:
        own = {"unit": ("user", cap), **told}
        words = f"a person and contexts, m = {cap} {_count(cap, 'visit')}"
        found.append(Protection(words, "anytime-joint", own, True, True))
    return found


def _count(cap: int, what: str) -> str:
    return f"{what} counts" if cap == 1 else f"{what}s count"


@dataclass(frozen=True)
class Protections:
    """The price of each kind. `plan` holds the forecasts; `other` those at half and twice ε."""

    plan: Plan
    kinds: list[Protection]
    private_contexts: bool
    other: dict[float, float]  # ε → loss of the recommended one

    @property
    def measure(self) -> str:
        """The one measure of all numbers here."""
        return "clicks lost" if self.plan.problem.bases is not None else "regret"

    def forecast(self, kind: Protection) -> Forecast:
        """The forecast of one kind."""
        return self.plan.forecasts[kind.label]

    def call(self, kind: Protection) -> str:
        """The arguments of `dpb.make`, besides the size of the problem and the budget."""
        low, high = self.plan.problem.reward_range
        own = {"reward_range": (low, high), **kind.options}
        return f'"{kind.algorithm}", ' + ", ".join(f"{name}={v!r}" for name, v in own.items())

    def possible(self, *, whole_person: bool, contexts: bool) -> list[Protection]:
        """The kinds that keep at least this promise, the cheapest first."""
        fit = [
            k
            for k in self.kinds
            if self.forecast(k).course is not None
            and (k.whole_person or not whole_person)
            and (k.contexts or not contexts)
        ]
        return sorted(fit, key=lambda kind: self.plan.final(kind.label))

    @property
    def recommended(self) -> Protection:
        """The cheapest kind that protects whole persons, and contexts if they are private."""
        return recommend(self)

    @property
    def gain(self) -> float:
        """The recommended one's gain over random play; 1 means no regret."""
        return 1 - self.plan.final(self.recommended.label) / max(self.plan.final(RANDOM), 1e-300)

    def rows(self) -> list[dict[str, Any]]:
        """One row per kind, in order of their promises; then no privacy and no learning."""
        found = []
        for kind in self.kinds:
            forecast = self.forecast(kind)
            low, high = self.plan.problem.reward_range
            unit = find_unit(kind.options.get("unit", "reward"))
            row = {"protected": kind.words, "make": self.call(kind), "unit": unit.option}
            row |= {"noise": kind.noise(high - low), "note": forecast.why_not}
            row |= {"status": forecast.status, "learned_from": forecast.learned.to_dict()}
            row["left_out"] = forecast.learned.left_out(self.plan.problem.rounds, self._rate)
            found.append(row | self._numbers(kind.label))
        for label, words in (
            (REFERENCE, "nobody (not private)"),
            (RANDOM, "everybody (random play)"),
        ):
            row = {"protected": words, "make": f'"{label}"', "unit": None, "noise": None}
            row |= {"note": "", "learned_from": None, "left_out": None}
            row["status"] = self.plan.forecasts[label].status
            found.append(row | self._numbers(label))
        return found

    @property
    def _rate(self) -> float | None:
        problem = self.plan.problem
        return None if problem.bases is None else problem.best_rate

    def _numbers(self, label: str) -> dict[str, Any]:
        forecast = self.plan.forecasts[label]
        if forecast.course is None:
            return {"lost": None, "lost_se": None}
        return {"lost": self.plan.final(label), "lost_se": forecast.standard_error}

    def headline(self) -> str:
        """The answer in one sentence."""
        best, plan = self.recommended, self.plan
        weak = (
            f". That gains {max(self.gain, 0.0):.0%} over random play: too little traffic, or too "
            "small an ε, to learn from people"
            if self.gain < LEAST_GAIN
            else ""
        )
        return (
            f"recommended: protect {best.words}, proven at ε = {plan.epsilon:g}, "
            f"δ = {plan.delta:g}: dpb.make({self.call(best)}, …); predicted {self.measure} in "
            f"{plan.problem.rounds:,} rounds {plan.final(best.label):,.0f}, not private "
            f"{plan.final(REFERENCE):,.0f}, random play {plan.final(RANDOM):,.0f}{weak}"
        )

    def alternatives(self) -> str:
        """The loss with another ε, one click only, the best C and m, and contexts too."""
        best = self.recommended
        # No ε is written without its claim, which is the same as before.
        found = [f"at ε = {e:g} (proven) {value:,.0f}" for e, value in self.other.items()]
        one = [k for k in self.kinds if not k.whole_person and k.contexts == best.contexts]
        public = [k for k in self.possible(whole_person=True, contexts=False) if not k.contexts]
        for fit in (
            one,
            [k for k in public if k.options["unit"][0] == "person"],
            [k for k in public if k.options["unit"][0] == "user"],
            [k for k in public if k.options["unit"][0] == "spread"],
            self.possible(whole_person=True, contexts=True),
        ):
            if fit and fit[0] != best and self.forecast(fit[0]).course is not None:
                found.append(f"{fit[0].words} {self.plan.final(fit[0].label):,.0f}")
        return f"{self.measure} instead: {'; '.join(found)}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "setting": self.plan.setting(),
            "measure": self.measure,
            "recommended": {
                "protected": self.recommended.words,
                "make": self.call(self.recommended),
                "algorithm": self.recommended.algorithm,
                "options": self.recommended.options,
                "status": self.forecast(self.recommended).status,
                "gain_over_random": self.gain,
            },
            "protections": self.rows(),
            "at_other_epsilons": [{"epsilon": e, "lost": v} for e, v in self.other.items()],
            "assumptions": self.plan.assumptions,
            "notes": list(self.notes),
            "complete": self.plan.complete,
            "accuracy": accuracy.to_dict(self.plan.extrapolated),
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the plan, and where the recommended bandit cannot be had."""
        spread = self.recommended.options.get("unit", "reward")[0] == "spread"
        return (*self.plan.notes, *([ONLY_ONLINE] if spread else []))

    def lines(self) -> list[tuple[str, str, str, str, str]]:
        """The table in words: who is protected, noise, what is learned from and what is not, loss."""
        found = []
        for row in self.rows():
            lost = row["note"]
            if row["lost"] is not None:
                lost = f"{row['lost']:,.0f} ± {row['lost_se']:,.0f}"
            noise = "–" if row["noise"] is None else f"× {row['noise']:.3g}"
            learned = learned_in_words(row["learned_from"])
            left_out = row["left_out"] or "–"
            found.append((row["protected"], noise, learned, left_out, lost))
        return found

    def __str__(self) -> str:
        width = max(len(kind.words) for kind in self.kinds) + 2
        head = ("protected", "noise", "learned from", "not learned from", self.measure)
        table = [
            f"{who:<{width}}{noise:>6}  {learned:<16}{left_out:<30}{lost:>14}"
            for who, noise, learned, left_out, lost in (head, *self.lines())
        ]
        about = [f"{what}: {words}" for what, words in self.plan.assumptions.items()]
        notes = [f"note: {note}" for note in self.notes]
        answer = [self.headline(), self.alternatives()]
        return "\n".join([*answer, "", *table, "", *about, *notes, self.plan.accuracy])


def learned_in_words(learned: dict[str, float] | None) -> str:
    """The share that a cap leaves, in a few words."""
    if learned is None:
        return "–"
    if learned == EVERYTHING.to_dict():
        return "everything"
    what, share = min(learned.items(), key=lambda item: item[1])
    return f"{share:.0%} of {what}"


def recommend(found: Protections) -> Protection:
    """The cheapest kind that protects whole persons, and contexts if they are private."""
    fit = found.possible(whole_person=True, contexts=found.private_contexts)
    if not found.private_contexts:
        # Contexts are public: kinds that protect them too promise more than needed.
        fit = [kind for kind in fit if not kind.contexts] or fit
    if not fit:
        reasons = {found.forecast(kind).why_not for kind in found.kinds} - {""}
        raise OptionError(f"no protection of people has a prediction: {'; '.join(sorted(reasons))}")
    return fit[0]


def protections(
    *,
    dim: int,
    arms: int,
    epsilon: float,
    delta: float,
    visits: Any,
    click_rate: float | None = None,
    private_contexts: bool = False,
    seconds: float | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Protections:
    """Predict the price of each kind of protection, in one measure, and recommend one.

    The kinds: one click or reward (`anytime`); a person, by a cap on clicks (`unit=("person", C)`)
    or on visits (`unit=("user", m)`, and where rewards are numbers `("spread", m)`), with C and m of
    1, 2, 5 and 10; and contexts too (`anytime-joint`). `visits` determines how much a cap leaves out.

    Parameters
    ----------
    dim, arms, epsilon, delta
        As in `plan`, like all other options.
    visits : float or list of int
        How often one person comes: the mean of a geometric distribution, or one number per person
        of a sample.
    click_rate : float, optional
        Rewards are clicks at this rate. Default: numbers, without a cap C for a person.
    private_contexts : bool, default False
        Whether contexts are private, so that they must be protected too.
    seconds, progress
        As in `plan`.

    Returns
    -------
    Protections

    Raises
    ------
    OptionError, ShapeError, NotFiniteError
        If an argument is not allowed.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> asked = {"dim": 3, "arms": 4, "epsilon": 2.0, "delta": 1e-5, "horizon": 500}
    >>> found = dpb.protections(visits=5, click_rate=0.2, particles=4, **asked)
    >>> found.measure, found.recommended.whole_person
    ('clicks lost', True)
    """
    for forbidden in ("unit", "algorithms", "rewards"):
        if forbidden in options:
            raise OptionError(f"protections compares every {forbidden}: omit it, or use plan")
    given: dict[str, Any] = {"dim": dim, "arms": arms, "delta": delta, "visits": visits}
    given |= {"click_rate": click_rate, **options}
    kept = kinds(click_rate is not None)
    share = 0.8  # of the time: the rest is for the other two ε

    def part_of(start: float, part: float) -> Progress | None:
        if progress is None:
            return None
        return lambda what, done: progress(what, start + part * done)

    limit = SECONDS if seconds is None else seconds
    wanted: list[str | tuple[str, dict[str, Any]]] = [RANDOM]
    wanted += [(kind.algorithm, kind.options) for kind in kept]
    first = plan(
        epsilon=epsilon,
        algorithms=wanted,
        seconds=share * limit,
        progress=part_of(0.0, share),
        **given,
    )
    found = Protections(first, kept, bool(private_contexts), {})
    if not first.complete and not found.possible(whole_person=True, contexts=private_contexts):
        raise KeyboardInterrupt
    if not first.complete or not np.isfinite(epsilon):
        return found
    best, rest = found.recommended, (1 - share) / 2
    for number, other in enumerate((epsilon / 2, 2 * epsilon)):
        tried = plan(
            epsilon=other,
            algorithms=[(best.algorithm, best.options)],
            seconds=rest * limit,
            progress=part_of(share + number * rest, rest),
            **given,
        )
        if not tried.complete:
            break
        found.other[other] = tried.final(best.label)
    return found
