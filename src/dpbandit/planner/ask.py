"""`dpb.plan`: the price of privacy before it is paid. No reward is touched."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpbandit.algorithms import registry
from dpbandit.errors import OptionError, UnknownAlgorithmError, nearest
from dpbandit.options import SHARED, Options, not_negative, whole
from dpbandit.planner.effort import SECONDS
from dpbandit.planner.forecast import REFERENCE, Plan
from dpbandit.planner.problem import Problem, draw_thetas, known_sample, sample_of
from dpbandit.planner.work import INTERRUPTED, Job, Progress, Work, notes_on
from dpbandit.privacy.accounting import check_delta, check_epsilon

ROUNDS = 100_000
PARTICLES = 24

# What a problem is made of, and what is assumed where nothing is said.
ABOUT: dict[str, Any] = {
    "dim": None,
    "arms": None,
    "reward_range": (-1.0, 1.0),
    "reward_noise": None,
    "contexts": None,
    "covariance": None,
    "in_order": False,
    "prior": "contexts",
    "reward_spread": None,
    "particles": PARTICLES,
    "seed": 0,
}


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
    algorithms: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
    particles: int = PARTICLES,
    seed: int = 0,
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
    return ask(
        SECONDS,
        epsilon=epsilon,
        delta=delta,
        horizon=horizon,
        rounds=rounds,
        known_contexts=known_contexts,
        algorithms=algorithms,
        progress=progress,
        dim=dim,
        arms=arms,
        reward_range=reward_range,
        reward_noise=reward_noise,
        contexts=contexts,
        covariance=covariance,
        in_order=in_order,
        prior=prior,
        reward_spread=reward_spread,
        particles=particles,
        seed=seed,
        **options,
    )


def ask(
    seconds: float,
    /,
    *,
    epsilon: float,
    delta: float,
    horizon: int | None,
    rounds: int | None = None,
    known_contexts: bool = False,
    algorithms: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
    progress: Progress | None = None,
    **others: Any,
) -> Plan:
    """`plan`, in about so many seconds of one core."""
    about = {**ABOUT, **{name: value for name, value in others.items() if name in ABOUT}}
    options = {name: value for name, value in others.items() if name not in ABOUT}
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    horizon = (
        None if horizon is None else whole("horizon", horizon, least=1, also="None for unknown")
    )
    if horizon is not None and rounds is not None and whole("rounds", rounds, least=1) > horizon:
        raise OptionError(f"rounds = {rounds} is beyond the horizon, {horizon}")
    ahead = whole("rounds", rounds or horizon or ROUNDS, least=1)
    max_norm = options.get("max_norm", 1.0)
    problem, assumptions = _problem(rounds=ahead, known=known_contexts, max_norm=max_norm, **about)
    assumptions["contexts known in advance"] = "yes" if known_contexts else "no"
    shared = _shared(problem, epsilon, delta, horizon, known_contexts, options)
    work = Work(problem, jobs_of(algorithms, options), shared, algorithms is not None)
    effort = work.effort(seconds)
    forecasts = work.forecasts(effort, progress)
    notes = notes_on(problem, effort, forecasts, delta)
    complete = all(forecast.why_not != INTERRUPTED for forecast in forecasts.values())
    return Plan(problem, epsilon, delta, horizon, forecasts, assumptions, tuple(notes), complete)


def _problem(**given: Any) -> tuple[Problem, dict[str, str]]:
    dim, arms = whole("dim", given["dim"], least=1), whole("arms", given["arms"], least=1)
    checked = Options(dim=dim, reward_range=given["reward_range"], max_norm=given["max_norm"])
    particles = whole("particles", given["particles"], least=2)
    seed = whole("seed", given["seed"], least=0)
    noise = checked.width / 4 if given["reward_noise"] is None else given["reward_noise"]
    noise = not_negative("reward_noise", noise)
    offered, source = sample_of(
        given["contexts"], given["covariance"], dim, arms, checked.max_norm, seed
    )
    if given["in_order"] and offered.ndim != 3:
        raise OptionError(
            "in_order=True needs contexts as slates in the order of time, of shape (n, arms, dim)"
        )
    if given["known"]:
        kept = known_sample(offered, seed)
        if len(kept) < len(offered):
            source += f", {len(kept):,} of them kept to be known in advance"
            offered = kept
    if offered.ndim == 2 and len(offered) < arms:
        source += f", fewer than {arms} arms: a round offers some of them twice"
    thetas, words = draw_thetas(
        given["prior"],
        offered.reshape(-1, dim),
        particles=particles,
        reward_range=checked.reward_range,
        reward_noise=noise,
        reward_spread=given["reward_spread"],
        seed=seed,
    )
    problem = Problem(
        dim,
        arms,
        given["rounds"],
        checked.reward_range,
        noise,
        offered,
        bool(given["in_order"]),
        thetas,
        seed,
    )
    assumptions = {
        "contexts": source + (", in the order of time" if given["in_order"] else ""),
        "prior": words,
        "reward noise": f"standard deviation {noise:g}"
        + (" (a quarter of the range's width)" if given["reward_noise"] is None else ""),
        "mean rewards": "linear in the context, θ constant",
    }
    return problem, assumptions


def _shared(
    problem: Problem,
    epsilon: float,
    delta: float,
    horizon: int | None,
    known: bool,
    options: dict[str, Any],
) -> dict[str, Any]:
    for forbidden in ("seed", "public_contexts", "context_noise"):
        if forbidden in options:
            raise OptionError(
                f"plan has no option {forbidden!r}: it works with a sample, contexts=…, and a seed "
                "of its own"
            )
    shared: dict[str, Any] = {
        "dim": problem.dim,
        "epsilon": epsilon,
        "delta": delta,
        "horizon": horizon,
        "reward_range": problem.reward_range,
        "public_contexts": problem.public() if known else None,
    }
    Options(**shared, **{name: value for name, value in options.items() if name in SHARED})
    return shared


def jobs_of(
    algorithms: Sequence[str | tuple[str, Mapping[str, Any]]] | None, options: dict[str, Any]
) -> list[Job]:
    """Every algorithm to predict, the non-private reference first."""
    known = registry.algorithms()
    if isinstance(algorithms, str):
        algorithms = [algorithms]
    wanted: list[Job] = []
    if algorithms is None:
        algorithms = [
            n for n, a in known.items() if n == REFERENCE or re.search(r"(?<!not )proven", a.claim)
        ]
    for entry in algorithms:
        name, own = (entry, {}) if isinstance(entry, str) else (entry[0], dict(entry[1]))
        if name not in known:
            raise UnknownAlgorithmError(f"no algorithm is called {name!r}: {nearest(name, known)}")
        label = name + "".join(f" {key}={value}" for key, value in own.items())
        wanted.append((label, name, own))
    if not wanted:
        raise OptionError("no algorithm was given: name at least one, for example ['anytime']")
    if all(label != REFERENCE for label, _, _ in wanted):
        wanted.insert(0, (REFERENCE, REFERENCE, {}))
    used = set(SHARED)
    for _, name, _ in wanted:
        used |= set(known[name].own_options)
    for unknown in set(options) - used:
        raise OptionError(
            f"none of the algorithms has an option {unknown!r}: {nearest(unknown, used)}"
        )
    taking = {name: set(SHARED) | set(known[name].own_options) for _, name, _ in wanted}
    return [
        (label, name, {k: v for k, v in options.items() if k in taking[name]} | own)
        for label, name, own in wanted
    ]
