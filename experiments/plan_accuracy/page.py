"""Predictions beside measurements: what `docs/plan-accuracy.md` shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.plan_accuracy import clicks
from experiments.plan_accuracy.measure import (
    FREE,
    HORIZONS,
    LASTFM_NAMES,
    LASTFM_ROUNDS,
    LASTFM_SEEDS,
    PRIVATE,
    SEEDS,
    SEEDS_50,
    WORLDS,
    Store,
    key,
    settings,
)


def lastfm_lines(folder: Path) -> list[str]:
    data = Store(folder, "lastfm.json").data
    if not data:
        return []
    lines = [
        "",
        "## LastFM: not predicted",
        "",
        "Rewards there are not linear in the context and nobody knows the means, so there "
        "is no regret to compare with. What can be "
        f"checked is the order: reward earned in {LASTFM_ROUNDS:,} rounds ({LASTFM_SEEDS} "
        "seeds), as multiples of random play, beside "
        "the plan's order.",
        "",
        "| features, (ε, δ) | linucb | " + " | ".join(LASTFM_NAMES) + " | plan's order |",
        "|---|---|" + "---|" * (len(LASTFM_NAMES) + 1),
    ]
    for name, found in data.items():
        features, budget = name.split("|")
        earned = found["reward"]
        cells = [f"{earned[n] / earned['random']:.2f}" for n in ("linucb", *LASTFM_NAMES)]
        lines.append(
            f"| {features}, ({budget.replace(',', ', ')}) | "
            + " | ".join(cells)
            + f" | {', '.join(found['ranked'])} |"
        )
    return lines


def cases(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Every prediction beside its measurement."""
    measured, predicted = (Store(folder, f"{n}.json").data for n in ("measured", kind))
    found = []
    for world, horizon, budget in settings():
        name, free = key(world, horizon, budget), key(world, horizon, None)
        if name not in measured or name not in predicted or free not in measured:
            continue
        for algorithm, truth in (measured[name] | measured[free]).items():
            found.append(
                {
                    "world": world,
                    "horizon": horizon,
                    "budget": budget,
                    "algorithm": algorithm,
                    "measured": truth["regret"],
                    "se": truth["se"],
                    "predicted": predicted[name]["regret"][algorithm],
                    "recommended": predicted[name]["recommended"],
                }
            )
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The figures that `dpbandit.planner.accuracy` states. Free algorithms count once, not once
    for each budget.
    """
    once = {
        (
            r["world"],
            r["horizon"],
            r["algorithm"],
            None if r["algorithm"] in FREE else r["budget"],
        ): r
        for r in rows
    }
    errors = np.array([abs(r["predicted"] / r["measured"] - 1) for r in once.values()])
    good = recommendations(rows)
    return {
        "CASES": len(errors),
        "WITHIN_30": float((errors <= 0.3).mean()),
        "MEDIAN_ERROR": float(np.median(errors)),
        "ERROR_90": float(np.quantile(errors, 0.9)),
        "SETTINGS": len(good),
        "RECOMMENDED_GOOD": float(np.mean([g["loss"] <= 0.1 for g in good])),
    }


def recommendations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each setting: the recommended algorithm's measured regret against the measured best of
    all that are private.
    """
    found = []
    for world, horizon, budget in settings():
        here = [
            r
            for r in rows
            if (r["world"], r["horizon"], tuple(r["budget"])) == (world, horizon, budget)
            and r["algorithm"] != "linucb"
        ]
        if here:
            best = min(here, key=lambda r: r["measured"])
            chosen = next(r for r in here if r["algorithm"] == here[0]["recommended"])
            found.append(
                {
                    "world": world,
                    "horizon": horizon,
                    "budget": budget,
                    "recommended": chosen["algorithm"],
                    "best": best["algorithm"],
                    "loss": chosen["measured"] / best["measured"] - 1,
                }
            )
    return found


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Ratios, one line a setting."""
    algorithms = [*FREE, *PRIVATE]
    lines = [
        "| world | rounds | (ε, δ) | "
        + " | ".join(algorithms)
        + " | recommended | measured best |",
        "|---|---|---|" + "---|" * (len(algorithms) + 2),
    ]
    for g in recommendations(rows):
        here = {
            r["algorithm"]: r
            for r in rows
            if (r["world"], r["horizon"], tuple(r["budget"]))
            == (g["world"], g["horizon"], g["budget"])
        }
        cells = []
        for name in algorithms:
            r = here.get(name)
            if r is None:
                cells.append("–")
                continue
            text = f"{r['predicted'] / r['measured']:.2f}"
            text = f"**{text}**" if abs(r["predicted"] / r["measured"] - 1) > 0.3 else text
            cells.append(f"({text})" if r["se"] > 0.1 * r["measured"] else text)
        best = g["best"] + (
            ""
            if g["best"] == g["recommended"]
            else f" (lower by {g['loss'] / (1 + g['loss']):.0%})"
        )
        lines.append(
            f"| {g['world']} | {g['horizon']:,} | ({g['budget'][0]:g}, {g['budget'][1]:g}) | "
            + " | ".join(cells)
            + f" | {g['recommended']} | {best} |"
        )
    return lines


def shares(rows: list[dict[str, Any]]) -> list[str]:
    """By world and by algorithm."""
    lines = ["| | within 30% | median ratio | lowest | highest |", "|---|---|---|---|---|"]
    for what, values in (("world", WORLDS), ("algorithm", [*FREE, *PRIVATE])):
        for value in values:
            ratios = np.array([r["predicted"] / r["measured"] for r in rows if r[what] == value])
            if len(ratios):
                share = (np.abs(ratios - 1) <= 0.3).mean()
                lines.append(
                    f"| {value} | {share:.0%} | {np.median(ratios):.2f} | "
                    f"{ratios.min():.2f} | {ratios.max():.2f} |"
                )
    return lines


def report(folder: Path, page: Path) -> None:
    """Write the page, of what is in the folder."""
    run = sorted({row["horizon"] for row in cases(folder, "told")})
    lines = [
        "# How well `plan` predicts",
        "",
        "Written by `python -m experiments.plan_accuracy`. Each number is the predicted final regret "
        "over the measured one. Measured is the mean over seeds of the bandits, played in the world "
        "with rewards clipped to [−0.5, 1.5].",
        "",
        "- **Bold**: off by more than 30%.",
        "- (In brackets): the measured mean has a standard error above 10%, so the ratio says less.",
        "- –: not simulated.",
        "",
        "A plan saw the reward range, and contexts of a seed that was not simulated; reward noise was "
        "its default. Both sides run the bandits, so with the right prior only sampling is left. The "
        "recommendation is compared with the best proven algorithm simulated in its row. That is a "
        "weak test where one algorithm wins everywhere; the column of measured bests says whether it "
        "did." + (" At 100,000 rounds the slow algorithms are left out." if 100_000 in run else ""),
        "",
        "Seeds: "
        + ", ".join(f"{SEEDS[h]} at {h:,} rounds" for h in run)
        + "; d = 50: "
        + ", ".join(str(SEEDS_50[h]) for h in run)
        + "."
        + "".join(f" Not run: {h:,} rounds." for h in HORIZONS if h not in run),
    ]
    titles = {
        "told": "With the right prior: θs drawn as the world draws them (what is left is sampling)",
        "predicted": "With the default prior: nothing is said about rewards but their range (the "
        "error of the whole plan)",
    }
    for kind, title in titles.items():
        rows = cases(folder, kind)
        found = summary(rows)
        lines += [
            "",
            f"## {title}",
            "",
            f"{found['WITHIN_30']:.1%} of {found['CASES']} predictions are within 30%; the "
            "median error is "
            f"{found['MEDIAN_ERROR']:.1%}, nine in ten are within {found['ERROR_90']:.1%}. "
            "The recommended algorithm was the "
            f"measured best or within 10% of it in {found['RECOMMENDED_GOOD']:.1%} of "
            f"{found['SETTINGS']} settings.",
            "",
            *shares(rows),
            "",
            *table(rows),
        ]
        print(kind, found)
    lines += [*lastfm_lines(folder), *clicks.lines(folder)]
    page.write_text("\n".join(lines) + "\n")
