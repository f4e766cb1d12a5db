"""`dpb.plan`: the price of privacy before it is paid. No reward is touched."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpbandit.algorithms import registry
from dpbandit.errors import OptionError
from dpbandit.options import SHARED, Options, not_negative, positive, whole
from dpbandit.planner.effort import SECONDS
from dpbandit.planner.forecast import REFERENCE, Plan
from dpbandit.planner.problem import Problem, draw_thetas, known_sample, sample_of
from dpbandit.planner.work import INTERRUPTED, Progress, Work, notes_on
from dpbandit.privacy.accounting import check_delta, check_epsilon
from dpbandit.simulate.jobs import Job, named, share_out

ROUNDS = 100_000
PARTICLES = 24
# How often one person comes, and clicks, is not among a plan's assumptions.
UNCAPPED = (
    "noise is that of persons whose rewards count up to {0:g}; rewards are predicted as if nobody's "
    "added up to more. What the cap leaves out of those who come often makes learning slower"
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
    reward_range: tuple[float, float] = (-1.0, 1.0),
    reward_noise: float | None = None,
    contexts: Any = None,
    covariance: Any = None,
    known_contexts: bool = False,
    in_order: bool = False,
    prior: Any = "contexts",
    reward_spread: float | None = None,
    algorithms: Algorithms | None = None,
    particles: int = PARTICLES,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Plan:
    """Predict parameter error and regret over time for each algorithm, and recommend one.

    The real bandits are run, with seeded noise, on problems drawn from public assumptions. No
    reward of yours is touched. Ctrl-C returns the predictions that are finished.

    Parameters
    ----------
    dim, arms : int
        Features of a context, and arms in a round.
    epsilon, delta : float
        The budget.
    horizon : int or None, default 10_000
        Rounds that the algorithms are made for; None: they do not know.
    rounds : int, optional
        How far to look; the horizon, or 100,000 without one.
    reward_range : (float, float), default (-1, 1)
        What rewards are clipped to.
    reward_noise : float, optional
        Standard deviation of a reward around its mean; a quarter of the range's width.
    contexts : array of shape (n, dim), or (n, arms, dim) for whole slates, optional
        A sample.
    covariance : array of shape (dim, dim), optional
        Instead of a sample.
    known_contexts : bool, default False
        Whether the sample will be given to the algorithms as `public_contexts`.
    in_order : bool, default False
        Whether slates are in the order of time, spread over the rounds.
    prior : {'contexts', 'round'} or array of θs, default 'contexts'
        What θ may be: shaped like a context, Gaussian, or one of these.
    reward_spread : float, optional
        How much mean rewards of arms differ (standard deviation).
    algorithms : list of names or (name, options), optional
        All proven ones if not given.
    particles : int, default 24
        Worlds to average over. A large question is answered with fewer, and says so.
    seed : int, default 0
        Of the worlds.
    seconds : float, optional
        About how long one core may take; 20 if not given.
    progress : callable, optional
        Told what is being predicted, and which share is done.
    **options
        For `dpb.make`.

    Returns
    -------
    Plan

    Raises
    ------
    OptionError, ShapeError, NotFiniteError, UnknownAlgorithmError
        If what was given is not allowed.

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
                f"plan has no option {forbidden!r}: it works with a sample, contexts=…, and a seed "
                "of its own"
            )
    dim, arms, seed = (
        whole("dim", dim, least=1),
        whole("arms", arms, least=1),
        whole("seed", seed, least=0),
    )
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    shared: dict[str, Any] = {"dim": dim, "epsilon": epsilon, "delta": delta, "horizon": horizon}
    mine = {name: options[name] for name in options if name in SHARED}
    checked = Options(**shared, reward_range=reward_range, **mine)
    horizon = checked.horizon
    if horizon is not None and rounds is not None and whole("rounds", rounds, least=1) > horizon:
        raise OptionError(f"rounds = {rounds} is beyond the horizon, {horizon}")
    noise = checked.width / 4 if reward_noise is None else reward_noise
    noise = not_negative("reward_noise", noise)
    offered, source = sample_of(contexts, covariance, dim, arms, checked.max_norm, seed)
    if in_order and offered.ndim != 3:
        raise OptionError(
            "in_order=True needs contexts as slates in the order of time, of shape (n, arms, dim)"
        )
    if known_contexts:
        kept = known_sample(offered, seed)
        if len(kept) < len(offered):
            source += f", {len(kept):,} of them kept to be known in advance"
            offered = kept
    if offered.ndim == 2 and len(offered) < arms:
        source += f", fewer than {arms} arms: a round offers some of them twice"
    thetas, believed = draw_thetas(
        prior,
        offered.reshape(-1, dim),
        particles=whole("particles", particles, least=2),
        reward_range=checked.reward_range,
        reward_noise=noise,
        reward_spread=reward_spread,
        seed=seed,
    )
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
    )
    assumptions = {
        "contexts": source + (", in the order of time" if in_order else ""),
        "prior": believed,
        "reward noise": f"standard deviation {noise:g}"
        + (" (a quarter of the range's width)" if reward_noise is None else ""),
        "mean rewards": "linear in the context, θ constant",
        "contexts known in advance": "yes" if known_contexts else "no",
    }
    shared |= {
        "reward_range": checked.reward_range,
        "public_contexts": problem.public() if known_contexts else None,
    }
    work = Work(problem, jobs_of(algorithms, options), shared, algorithms is not None)
    effort = work.effort(SECONDS if seconds is None else positive("seconds", seconds))
    forecasts = work.forecasts(effort, progress)
    notes = notes_on(problem, effort, forecasts, delta)
    if not checked.protects.counts_are_public:
        notes.append(UNCAPPED.format(checked.unit[1]))
    complete = all(forecast.why_not != INTERRUPTED for forecast in forecasts.values())
    return Plan(problem, epsilon, delta, horizon, forecasts, assumptions, tuple(notes), complete)


def jobs_of(algorithms: Algorithms | None, options: dict[str, Any]) -> list[Job]:
    """Every algorithm to predict, the non-private reference first."""
    if algorithms is None:
        known = registry.algorithms()
        algorithms = [
            n for n, a in known.items() if n == REFERENCE or re.search(r"(?<!not )proven", a.claim)
        ]
    wanted = [
        (name + "".join(f" {key}={value}" for key, value in own.items()), name, own)
        for name, own in named(algorithms)
    ]
    if all(label != REFERENCE for label, _, _ in wanted):
        wanted.insert(0, (REFERENCE, REFERENCE, {}))
    return share_out(options, wanted)
