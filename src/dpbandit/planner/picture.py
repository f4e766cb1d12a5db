"""Pictures of a plan, readable without colour: regret and parameter error, and the effect of
clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpbandit.planner.forecast import REFERENCE, claim_in_words
from dpbandit.simulate.figures import dress, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpbandit.planner.clipping import Clipping
    from dpbandit.planner.forecast import Plan


def courses(plan: Plan) -> Figure:
    """Two panels that share their legend, best algorithm first."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [row["algorithm"] for row in plan.rows() if row["regret"] is not None]
    best = plan.recommended if plan.ranked() else ""
    for name, style in styled(names):
        course = plan.course(name)
        style |= {"markersize": 4.0, "lw": 2.6 if name == best else 1.4}
        if name == "random":
            style = {"color": "#555555", "ls": ":", "lw": 1.4}
        mark = " (recommended)" if name == best else ""
        words = f"{name}{mark}\n{claim_in_words(plan.forecasts[name])}"
        shown = course.rounds >= min(10, plan.problem.rounds)
        every = max(1, int(shown.sum()) // 9)
        left.plot(course.rounds[shown], course.regret[shown], label=words, markevery=every, **style)
        if name != "random" and np.isfinite(course.theta_error).all():
            right.plot(course.rounds[shown], course.theta_error[shown], markevery=every, **style)
    dress(left, f"predicted {plan.measure}, in all", log=True)
    dress(right, "predicted parameter error ‖θ − θ*‖₂", log=True)
    close = plan.rounds_until_close(best) if best and best != REFERENCE else None
    if close is not None:
        left.axvline(close, color="black", lw=1.0, ls=":")
        left.annotate(
            f"{best} within 10%\nof non-private",
            (close, left.get_ylim()[0]),
            xytext=(-4, 6),
            textcoords="offset points",
            fontsize=8,
            ha="right",
        )
    errors = np.concatenate([plan.course(n).theta_error for n in names if n != "random"])
    errors = errors[np.isfinite(errors)]
    if len(errors) == 0:  # clicks: no parameter is the true one
        right.remove()
    else:
        right.set_ylim(top=min(float(errors.max()) * 1.2, 30 * float(np.median(errors))))
    used = (
        "no reward was used" if plan.clipping is None else "a public sample of rewards among them"
    )
    figure.suptitle(
        f"{plan.problem.dim} features, {plan.problem.arms} arms, rewards in "
        f"{list(plan.problem.reward_range)}; claims beside the names. "
        f"Predicted from public quantities, {used}",
        fontsize=9.5,
        x=0.01,
        ha="left",
    )
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside right upper", fontsize=8, frameon=False
    )
    return figure


def clipped(found: Clipping) -> Figure:
    """The error of an arm's mean for each range, and the distribution of rewards."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    places = np.arange(len(found.ranges))
    parts = {
        "in all": [one.error for one in found.ranges],
        "clipping moves it": [one.moved for one in found.ranges],
        "rewards vary": [one.spread for one in found.ranges],
        "noise of privacy": [one.noise for one in found.ranges],
    }
    for name, style in styled(list(parts)):
        left.plot(places, parts[name], label=name, lw=2.6 if name == "in all" else 1.4, **style)
    best = found.ranges.index(found.recommended)
    left.axvline(best, color="black", lw=1.0, ls=":", label="recommended")
    left.set_xticks(places, [one.words for one in found.ranges], rotation=40, ha="right")
    left.legend(fontsize=8, frameon=False)
    dress(left, "an arm's mean is off by", log=False)
    left.set_yscale("log")
    left.set_xlabel(f"reward_range, after {found.horizon:,} rounds")
    right.hist(found.rewards, bins=60, color="#7F7F7F", log=True)
    for end in (found.recommended.low, found.recommended.high):
        right.axvline(end, color="black", lw=1.0, ls=":")
    dress(right, "rewards of the sample", log=False)
    right.set_xlabel("reward (dotted: the recommended range)")
    claim = found.claim
    figure.suptitle(
        f"noise of {found.algorithm}, {claim.status} at ε = {claim.epsilon:g}, δ = {claim.delta:g} "
        f"for {claim.unit}; a public or invented sample",
        fontsize=9.5,
        x=0.01,
        ha="left",
    )
    return figure
