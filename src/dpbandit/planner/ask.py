"""`dpb.plan`: the price of privacy before it is paid. It uses no reward, or public ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbandit.algorithms import registry
from dpbandit.defaults import REWARD_RANGE
from dpbandit.errors import OptionError
from dpbandit.options import SHARED, Options, not_negative, positive, whole
from dpbandit.planner.clipping import Clipping, clipping
from dpbandit.planner.effort import SECONDS
from dpbandit.planner.forecast import REFERENCE, Plan
from dpbandit.planner.prior import draw_clicks, draw_thetas
from dpbandit.planner.problem import Problem, known_sample, sample_of
from dpbandit.planner.visits import CAPS, Visits, visits_of
from dpbandit.planner.work import CLICKS, INTERRUPTED, Progress, Work, notes_on
from dpbandit.privacy.accounting import check_delta, check_epsilon
from dpbandit.simulate.jobs import Job, named, share_out

ROUNDS = 100_000
PARTICLES = 24
BLOCKS = 3  # columns per arm: with so many, contexts may be blocks
# Notes on missing facts.
UNCAPPED = (
    "noise is for {0}, but this plan learns from every reward, as if nobody exceeded the cap. The cap "
    "slows learning from people who come often: give visits={1}"
)
MAYBE_BLOCKS = (
    "contexts are assumed to use all features. If each arm has a block of its own, {0} columns each and "
    "0 elsewhere, learning takes far longer: give a sample of slates, contexts=…"
)
MAYBE_CLICKS = (
    "rewards are assumed to be numbers, {0}. If they are clicks, give click_rate: most clicks are 0, "
    "which changes both the regret and the price of privacy"
)

Algorithms = Sequence[str | tuple[str, Mapping[str, Any]]]


def plan(
    *,
    dim: int,
    arms: int,
    epsilon: float,
    delta: float,
    horizon: int | None = 10_000,
    rounds: int | None = None,
    reward_range: tuple[float, float] | None = None,
    reward_noise: float | None = None,
    click_rate: float | None = None,
    visits: Any = None,
    contexts: Any = None,
    covariance: Any = None,
    known_contexts: bool = False,
    in_order: bool = False,
    prior: Any = "contexts",
    reward_spread: float | None = None,
    rewards_sample: Any = None,
    algorithms: Algorithms | None = None,
    particles: int = PARTICLES,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Plan:
    """Predict parameter error and regret over time for each algorithm, and recommend one.

    It runs the real bandits, with seeded noise, on problems drawn from public assumptions, and uses
    none of your rewards. Ctrl-C returns the finished predictions.

    Parameters
    ----------
    dim, arms : int
        Features of a context, and arms in a round.
    epsilon, delta : float
        The budget.
    horizon : int or None, default 10_000
        Rounds that the algorithms are made for; None if they do not know.
    rounds : int, optional
        Rounds to predict. Default: the horizon, or 100,000 without one.
    reward_range : (float, float), optional
        Range that rewards are clipped to. Default: (-1, 1), or (0, 1) with a click rate.
    reward_noise : float, optional
        Standard deviation of a reward around its mean. Default: a quarter of the range's width.
    click_rate : float, optional
        Rewards are clicks, 0 or the top of the range; this is their rate under random play.
        Algorithms that can use this are told (`rewards="clicks"`).
    visits : float or list of int, optional
        How often one person comes, to account for a unit's cap: the mean of a geometric
        distribution, or one number per person of a sample.
    contexts : array of shape (n, dim), or (n, arms, dim) for whole slates, optional
        A sample of contexts.
    covariance : array of shape (dim, dim), optional
        The covariance of contexts, instead of a sample.
    known_contexts : bool, default False
        Whether the algorithms will get the sample as `public_contexts`.
    in_order : bool, default False
        Whether slates are in chronological order, spread over the rounds.
    prior : {'contexts', 'round'} or array of θs, default 'contexts'
        The prior of θ: shaped like a context, Gaussian, or one of the given θs.
    reward_spread : float, optional
        Standard deviation of mean rewards between arms.
    rewards_sample : array of shape (n,), or dict of arrays by arm, optional
        Public or invented rewards, such as money. The plan shows what clipping does to them
        (`plan.clipping`, as from `dpb.clipping`), and takes what is not given from them:
        reward_range, reward_noise and, by arm, reward_spread. Never use those of protected people.
    algorithms : list of names or (name, options), optional
        Default: all proven ones.
    particles : int, default 24
        Worlds to average over. A large question is answered with fewer, and says so.
    seed : int, default 0
        Seed of the worlds.
    seconds : float, optional
        Approximate time on one core, default 20.
    progress : callable, optional
        Called with the current algorithm and the share done.
    **options
        Options of `dpb.make`.

    Returns
    -------
    Plan

    Raises
    ------
    OptionError, ShapeError, NotFiniteError, UnknownAlgorithmError
        If an argument is not allowed.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> names = ["toeplitz", "tree-gauss"]
    >>> found = dpb.plan(dim=3, arms=5, epsilon=2.0, delta=1e-5, horizon=500, algorithms=names)
    >>> found.recommended
    'toeplitz'
    >>> sorted(found.forecasts)
    ['linucb', 'toeplitz', 'tree-gauss']
    """
    for forbidden in ("public_contexts", "context_noise"):
        if forbidden in options:
            raise OptionError(
                f"plan has no option {forbidden!r}: it takes a sample as contexts=…, and has its own "
                "seed"
            )
    dim, arms, seed = (
        whole("dim", dim, least=1),
        whole("arms", arms, least=1),
        whole("seed", seed, least=0),
    )
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    jobs = jobs_of(algorithms, options)
    if click_rate is None:
        if any(CLICKS in own.items() for _, _, own in jobs):
            raise OptionError(
                "rewards='clicks' needs click_rate, the share of offers that are clicked, for example "
                "click_rate=0.02"
            )
    else:
        click_rate, jobs = _rate(click_rate, reward_noise), [_told(job) for job in jobs]
    cut: Clipping | None = None
    level: float | None = None
    if rewards_sample is not None:
        if click_rate is not None:
            raise OptionError("clicks are 0 or 1 and are not clipped: leave rewards_sample out")
        cut = _clipped(
            rewards_sample,
            arms,
            epsilon=epsilon,
            delta=delta,
            horizon=rounds or horizon or ROUNDS,
            reward_range=reward_range,
            unit=options.get("unit", "reward"),
        )
        one = cut.chosen
        reward_range, level = (one.low, one.high), one.level
        reward_noise = one.deviation if reward_noise is None else reward_noise
        reward_spread = one.arms_differ if reward_spread is None else reward_spread
    if reward_range is None:
        reward_range = REWARD_RANGE if click_rate is None else (0.0, 1.0)
    coming = None if visits is None else visits_of(visits)
    shared: dict[str, Any] = {"dim": dim, "epsilon": epsilon, "delta": delta, "horizon": horizon}
    mine = {name: options[name] for name in options if name in SHARED}
    checked = Options(**shared, reward_range=reward_range, **mine)
    low, top = checked.reward_range
    if click_rate is not None and (low != 0 or top <= 0):
        raise OptionError(
            f"clicks are 0 or a number above it: reward_range must be (0, b), not {low, top}"
        )
    horizon = checked.horizon
    if horizon is not None and rounds is not None and whole("rounds", rounds, least=1) > horizon:
        raise OptionError(f"rounds = {rounds} is beyond the horizon, {horizon}")
    noise = checked.width / 4 if reward_noise is None else reward_noise
    noise = not_negative("reward_noise", noise)
    offered, source = sample_of(contexts, covariance, dim, arms, checked.max_norm, seed)
    if in_order and offered.ndim != 3:
        raise OptionError(
            "in_order=True needs contexts as slates in chronological order, of shape (n, arms, dim)"
        )
    if known_contexts:
        kept = known_sample(offered, seed)
        if len(kept) < len(offered):
            source += f", {len(kept):,} of them known in advance"
            offered = kept
    if offered.ndim == 2 and len(offered) < arms:
        source += f", fewer than {arms} arms: a round offers some of them twice"
    bases = None
    about: dict[str, Any] = {"reward_spread": reward_spread, "seed": seed}
    about["particles"] = whole("particles", particles, least=2)
    rows = offered.reshape(-1, dim)
    if click_rate is None:
        about |= {"reward_range": checked.reward_range, "reward_noise": noise, "level": level}
        thetas, believed = draw_thetas(prior, rows, **about)
    else:
        if reward_spread is not None:
            about["reward_spread"] = positive("reward_spread", reward_spread) / top
        thetas, bases, believed = draw_clicks(prior, rows, rate=click_rate, **about)
    problem = Problem(
        dim=dim,
        arms=arms,
        rounds=whole("rounds", rounds or horizon or ROUNDS, least=1),
        reward_range=checked.reward_range,
        reward_noise=noise,
        offered=offered,
        in_order=bool(in_order),
        thetas=thetas,
        seed=seed,
        bases=bases,
    )
    assumptions = {
        "contexts": source + (", in the order of time" if in_order else ""),
        "prior": believed,
        "rewards": _rewards(problem, reward_noise is None) + _sampled(cut),
        "contexts known in advance": "yes" if known_contexts else "no",
    }
    shared |= {
        "reward_range": checked.reward_range,
        "public_contexts": problem.public() if known_contexts else None,
    }
    if coming is not None:
        assumptions["visits"] = _visits(problem, coming)
    unit = checked.protects
    counted = unit.counts_are_public or click_rate is not None
    if coming is not None and unit.needs_user and counted and not unit.needs_instruments:
        rate = None if problem.bases is None else problem.best_rate
        left_out = coming.learned(unit, checked.width, rate).left_out(problem.rounds, rate)
        assumptions["not learned from"] = left_out + ", beyond what one person may say"
    work = Work(problem, jobs, shared, algorithms is not None, coming)
    effort = work.effort(SECONDS if seconds is None else positive("seconds", seconds))
    forecasts = work.forecasts(effort, progress)
    notes = notes_on(problem, effort, forecasts, delta)
    if unit.needs_user and (coming is None or not counted):
        missing = "…" if counted else "… and click_rate=…"
        notes.append(UNCAPPED.format(unit.words.split(":")[0], missing))
    if (
        contexts is None
        and covariance is None
        and dim % arms == 0
        and dim >= BLOCKS * arms > BLOCKS
    ):
        notes.append(MAYBE_BLOCKS.format(dim // arms))
    if click_rate is None and low == 0 and cut is None:
        notes.append(MAYBE_CLICKS.format(believed.split("; ")[-1]))
    complete = all(forecast.why_not != INTERRUPTED for forecast in forecasts.values())
    return Plan(
        problem, epsilon, delta, horizon, forecasts, assumptions, tuple(notes), complete, cut
    )


def _clipped(sample: Any, arms: int, **about: Any) -> Clipping:
    """What clipping does to a sample, which has names of arms or has none."""
    if not isinstance(sample, Mapping):
        return clipping(sample, arms=arms, **about)
    if not sample:
        raise OptionError("rewards_sample has no arm: give {arm: rewards, …}")
    parts = {str(arm): np.atleast_1d(given) for arm, given in sample.items()}
    names = [arm for arm, part in parts.items() for _ in range(len(part))]
    return clipping(np.concatenate([*parts.values()]), arm=names, arms=arms, **about)


def _sampled(cut: Clipping | None) -> str:
    return (
        ""
        if cut is None
        else f"; what was not given is from {len(cut.rewards):,} sampled rewards, which must be public "
        "or invented"
    )


def _rate(given: Any, reward_noise: float | None) -> float:
    rate = positive("click_rate", given)
    if not rate < 1:
        raise OptionError(f"click_rate must lie strictly between 0 and 1, not {given!r}")
    if reward_noise is not None:
        raise OptionError("a click's noise follows from its rate: omit reward_noise")
    return rate


def _told(job: Job) -> Job:
    """The same job, told that rewards are clicks if its algorithm has the option and none was
    given."""
    label, name, own = job
    return label, name, {"rewards": "clicks", **own} if _can_be_told(name) else own


def _can_be_told(name: str) -> bool:
    return "rewards" in registry.find(name).own_options


def _rewards(problem: Problem, by_default: bool) -> str:
    if problem.bases is not None:
        return (
            f"clicks, 0 or {problem.reward_range[1]:g}; the best arms get {problem.best_rate:.3g}. "
            'Algorithms with the option get rewards="clicks"'
        )
    default = " (a quarter of the range's width)" if by_default else ""
    return (
        "numbers, linear in the context with a constant θ; standard deviation "
        f"{problem.reward_noise:g} around the mean{default}"
    )


def _visits(problem: Problem, coming: Visits) -> str:
    """How often people come, and the share that caps leave."""
    caps = ", ".join(f"{cap}" for cap in CAPS)
    visits = ", ".join(f"{coming.up_to(cap):.0%}" for cap in CAPS)
    words = f"{coming.words}; the first {caps} of a person are {visits} of all visits"
    if problem.bases is None:
        return words
    rate = problem.best_rate
    clicks = ", ".join(f"{coming.clicks_up_to(cap, rate):.0%}" for cap in CAPS)
    return f"{words}, and their first {caps} clicks {clicks} of all clicks (at {rate:.3g})"


def jobs_of(algorithms: Algorithms | None, options: dict[str, Any]) -> list[Job]:
    """Every algorithm to predict, the non-private reference first."""
    if algorithms is None:
        known = registry.algorithms()
        algorithms = [
            n for n, a in known.items() if n == REFERENCE or re.search(r"(?<!not )proven", a.claim)
        ]
    wanted = [(label_of(name, own), name, own) for name, own in named(algorithms)]
    if all(label != REFERENCE for label, _, _ in wanted):
        wanted.insert(0, (REFERENCE, REFERENCE, {}))
    return share_out(options, wanted)


def label_of(name: str, own: Mapping[str, Any]) -> str:
    """The label of an algorithm with its own options in a plan."""
    return name + "".join(f" {key}={value}" for key, value in own.items())
