"""`dpb.plan`: the price of privacy before it is paid. No reward is touched."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dpbandit.bandits import registry
from dpbandit.bandits.options import SHARED, Options, positive, whole
from dpbandit.budget import check_delta, check_epsilon
from dpbandit.errors import DpbanditError, OptionError, UnknownAlgorithmError, nearest
from dpbandit.planning import anytime  # noqa: F401 - adds its predictor
from dpbandit.planning.forecast import REFERENCE, Forecast, Plan
from dpbandit.planning.march import march
from dpbandit.planning.models import model_for
from dpbandit.planning.problem import Problem, draw_thetas, sample_of

ROUNDS = 100_000
PARTICLES, SLATES = 24, 32
INTERRUPTED = "interrupted"

Progress = Callable[[str, float], None]
Job = tuple[str, str, dict[str, Any]]  # label, algorithm, options of its own


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

    `horizon=None` plans for an unknown horizon and looks `rounds` ahead (100,000). `contexts` is a sample, of shape
    (n, dim), or (n, arms, dim) for whole slates; `in_order=True` says slates are in the order of time and spread over the
    horizon. `known_contexts=True`: the sample will be given to the algorithms as `public_contexts`. `reward_noise` is the
    standard deviation of a reward around its mean (a quarter of the range's width if not given). `prior` says what θ may
    be: "contexts" (shaped like a context), "round" (Gaussian), or an array of θs; `reward_spread` how much mean rewards of
    arms differ (standard deviation). Other options go to `dpb.make`. Ctrl-C returns the predictions that are finished.

    >>> import dpbandit as dpb
    >>> found = dpb.plan(dim=3, arms=5, epsilon=2.0, delta=1e-5, horizon=500, algorithms=["toeplitz", "tree-gauss"])
    >>> found.recommended
    'toeplitz'
    >>> sorted(found.forecasts)
    ['linucb', 'toeplitz', 'tree-gauss']
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    horizon = None if horizon is None else whole("horizon", horizon, least=1, also="None for unknown")
    if horizon is not None and rounds is not None and whole("rounds", rounds, least=1) > horizon:
        raise OptionError(f"rounds = {rounds} is beyond the horizon, {horizon}")
    problem, assumptions = _problem(
        dim=dim,
        arms=arms,
        rounds=whole("rounds", rounds or horizon or ROUNDS, least=1),
        reward_range=reward_range,
        reward_noise=reward_noise,
        contexts=contexts,
        covariance=covariance,
        in_order=in_order,
        prior=prior,
        reward_spread=reward_spread,
        particles=particles,
        seed=seed,
        max_norm=options.get("max_norm", 1.0),
    )
    shared = _shared(problem, epsilon, delta, horizon, known_contexts, options)
    jobs = jobs_of(algorithms, options)
    forecasts = _forecasts(problem, jobs, shared, algorithms is not None, progress)
    assumptions["contexts known in advance"] = "yes" if known_contexts else "no"
    notes = []
    if delta > 1 / problem.rounds:
        notes.append(f"delta = {delta:g} is above 1/rounds: too large to protect people")
    complete = all(forecast.why_not != INTERRUPTED for forecast in forecasts.values())
    return Plan(problem, epsilon, delta, horizon, forecasts, assumptions, tuple(notes), complete)


def _problem(**given: Any) -> tuple[Problem, dict[str, str]]:
    dim, arms = whole("dim", given["dim"], least=1), whole("arms", given["arms"], least=1)
    checked = Options(dim=dim, reward_range=given["reward_range"], max_norm=given["max_norm"])
    particles = whole("particles", given["particles"], least=2)
    seed = whole("seed", given["seed"], least=0)
    noise = checked.width / 4 if given["reward_noise"] is None else given["reward_noise"]
    noise = 0.0 if noise == 0 else positive("reward_noise", noise)
    offered, source = sample_of(given["contexts"], given["covariance"], dim, arms, checked.max_norm, seed)
    if given["in_order"] and offered.ndim != 3:
        raise OptionError("in_order=True needs contexts as slates in the order of time, of shape (n, arms, dim)")
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
        max(SLATES, dim),
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
    problem: Problem, epsilon: float, delta: float, horizon: int | None, known: bool, options: dict[str, Any]
) -> dict[str, Any]:
    for forbidden in ("seed", "public_contexts", "context_noise"):
        if forbidden in options:
            raise OptionError(
                f"plan has no option {forbidden!r}: it works with a sample, contexts=…, and a seed of its own"
            )
    shared: dict[str, Any] = {
        "dim": problem.dim,
        "epsilon": epsilon,
        "delta": delta,
        "horizon": horizon,
        "reward_range": problem.reward_range,
        "public_contexts": problem.some_contexts() if known else None,
    }
    Options(**shared, **{name: value for name, value in options.items() if name in SHARED})
    return shared


def jobs_of(algorithms: Sequence[str | tuple[str, Mapping[str, Any]]] | None, options: dict[str, Any]) -> list[Job]:
    """Every algorithm to predict, the non-private reference first."""
    known = registry.algorithms()
    if isinstance(algorithms, str):
        algorithms = [algorithms]
    wanted: list[Job] = []
    if algorithms is None:
        algorithms = [n for n, a in known.items() if n == REFERENCE or re.search(r"(?<!not )proven", a.claim)]
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
        raise OptionError(f"none of the algorithms has an option {unknown!r}: {nearest(unknown, used)}")
    taking = {name: set(SHARED) | set(known[name].own_options) for _, name, _ in wanted}
    return [(label, name, {k: v for k, v in options.items() if k in taking[name]} | own) for label, name, own in wanted]


def _forecasts(
    problem: Problem, jobs: list[Job], shared: dict[str, Any], named: bool, progress: Progress | None
) -> dict[str, Forecast]:
    forecasts: dict[str, Forecast] = {}
    at = 0
    try:
        for at, job in enumerate(jobs):
            found = _forecast(problem, job, shared, named, partial(_tell, progress, jobs, at))
            if found is not None:
                forecasts[found.name] = found
    except KeyboardInterrupt:
        if REFERENCE not in forecasts or not any(f.course and f.status == "proven" for f in forecasts.values()):
            raise  # nothing that could be recommended
        forecasts |= {label: Forecast(label, None, None, INTERRUPTED) for label, _, _ in jobs[at:]}
    return forecasts


def _tell(progress: Progress | None, jobs: list[Job], at: int, part: float) -> None:
    if progress is not None:
        progress(jobs[at][0], (at + part) / len(jobs))


def _forecast(
    problem: Problem, job: Job, shared: dict[str, Any], named: bool, tell: Callable[[float], None]
) -> Forecast | None:
    """One algorithm's prediction; None for one that was not named and is not proven."""
    label, name, own = job
    try:
        bandit = registry.construct(name, {**shared, **own, "seed": 0})
    except DpbanditError as error:
        if named and name != REFERENCE:
            raise
        return Forecast(label, None, None, f"not with these options: {error}")
    claim = getattr(bandit, "claim", None)
    if not named and (claim is None or claim.status != "proven") and name != REFERENCE:
        return None
    model = model_for(bandit, problem)
    if model is None:
        return Forecast(label, claim, None, "no prediction: this algorithm has no model yet")
    return Forecast(label, claim, march(problem, model, tell), "")
