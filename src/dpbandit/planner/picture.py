"""A picture of a plan: regret and parameter error over rounds, readable without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpbandit.planner.forecast import REFERENCE, claim_in_words
from dpbandit.simulate.figures import dress, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    figure.suptitle(
        f"{plan.problem.dim} features, {plan.problem.arms} arms, rewards in "
        f"{list(plan.problem.reward_range)}; claims beside the names. "
        "Predicted from public quantities, no reward was used",
        fontsize=9.5,
        x=0.01,
        ha="left",
    )
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside right upper", fontsize=8, frameon=False
    )
    return figure
