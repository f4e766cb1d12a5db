"""Small catalogues and people who come often: predicted beside measured.

A catalogue is K one-hot arms. A plan is given a log of 1,000 contexts, each article many times.
*Before*: as plans were once, with a log's rows offered side by side as if they were different and one
article alone that is paid for. Seeds from 10,000 on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import dpbandit as dpb
from dpbandit.worlds import Bernoulli, Clicks
from experiments.people import CLICKS, play
from experiments.plan_accuracy.measure import Store

FIRST_SEED = 10_000
SIZES = (5, 10, 20, 50)
# ε, δ, rounds, seeds, and the largest catalogue.
SETTINGS = ((2.0, 1e-5, 10_000, 24, 50), (1.0, 1e-6, 10_000, 24, 50), (1.0, 1e-6, 50_000, 12, 20))
NAMES = ("random", "linucb", "anytime", "anytime-joint", "toeplitz")
RATE = 0.1
HEADING = "## Small catalogues, and people who come often"
VISITS, ROUNDS, PEOPLE_SEEDS = 20, 30_000, 6
RATES = (0.02, 0.1)
UNITS: dict[str, Any] = {
    "one click": "reward",
    "a person, C = 1": ("person", 1),
    "a person, C = 5": ("person", 5),
    "a person, m = 5": ("user", 5),
}


def catalogues(folder: Path) -> None:
    """Regret of one-hot arms: measured, predicted, and predicted as it was once."""
    store = Store(folder, "catalogues.json")
    for size in SIZES:
        log = np.eye(size)[np.random.default_rng(1).integers(0, size, 1000)]
        side_by_side = log[np.random.default_rng(2).integers(0, 1000, (1000, size))]
        both: list[tuple[Any, dict[str, Any]]] = [
            (Clicks(RATE, arms=size, one_hot=True), {"click_rate": RATE}),
            (Bernoulli(size), {}),
        ]
        for world, rewards in both:
            for epsilon, delta, rounds, seeds, largest in SETTINGS:
                name = f"{type(world).__name__}|{size}|{epsilon:g},{delta:g}|{rounds}"
                if size > largest or name in store.data:
                    continue
                common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "horizon": rounds}
                common |= {"reward_range": (0.0, 1.0)}
                told: dict[str, Any] = {"rewards": "clicks"} if rewards else {}
                who = range(FIRST_SEED, FIRST_SEED + seeds)
                run = dpb.run(world, NAMES, seeds=who, record=[], workers=1, **common, **told)
                asked = {"dim": size, "arms": size, "algorithms": list(NAMES), **common}
                asked |= {"known_contexts": True}
                now = dpb.plan(contexts=log, **asked, **rewards)
                once = dpb.plan(contexts=side_by_side, prior=0.75 * np.eye(size), **asked)
                found: Any = run.summary()
                store[name] = {
                    n: {
                        "measured": float(found.loc[n, "regret"]),
                        "se": float(found.loc[n, "regret_se"]),
                        "predicted": now.final(n),
                        "before": once.final(n),
                    }
                    for n in NAMES
                }
                print(name, store.data[name]["anytime"], flush=True)


def persons(folder: Path) -> None:
    """Gain over random play with 20 visits a person, measured through the public API."""
    store = Store(folder, "persons.json")
    for rate in RATES:
        pool = Clicks(rate).episode(FIRST_SEED - 1).public_contexts
        for words, unit in UNITS.items():
            name = f"{rate:g}|{words}"
            found = store.data.get(name)
            if found is None:
                seeds = range(FIRST_SEED, FIRST_SEED + PEOPLE_SEEDS)
                given = {"unit": unit, "visits": VISITS, **CLICKS}
                runs = [play(Clicks(rate), ROUNDS, seed, "anytime", **given) for seed in seeds]
                gains = [1.0 - lost / at_random for lost, at_random in runs]
                error = float(np.std(gains, ddof=1) / PEOPLE_SEEDS**0.5)
                found = {"measured": float(np.mean(gains)), "se": error}
            plan = dpb.plan(
                dim=10,
                arms=10,
                epsilon=1.0,
                delta=1e-6,
                horizon=ROUNDS,
                contexts=pool,
                known_contexts=True,
                algorithms=["random", "anytime"],
                click_rate=rate,
                visits=[VISITS],
                unit=unit,
            )
            store[name] = found | {
                "predicted": 1 - plan.final("anytime") / plan.final("random"),
                "learned_from": plan.forecasts["anytime"].learned.to_dict(),
            }
            print(name, store.data[name], flush=True)


def lines(folder: Path) -> list[str]:
    """The section of the page, of what is in the folder."""
    found, people = Store(folder, "catalogues.json").data, Store(folder, "persons.json").data
    if not found or not people:
        return []
    seeds = "; ".join(f"{s[3]} seeds at {s[2]:,} rounds, ε = {s[0]:g}" for s in SETTINGS)
    factors = "; ".join(
        f"`{world}`, before {_factor(found, world, 'before')}, now {_factor(found, world, 'predicted')}"
        for world in ("Clicks", "Bernoulli")
    )
    text = [
        "",
        HEADING,
        "",
        f"K articles without features, one-hot. In `Clicks` chances are {RATE:.0%} on average, and the plan knows the "
        "rate. In `Bernoulli` chances are U(0, 1), and the plan knows only the range [0, 1]. Each cell is predicted / "
        "measured final regret, *before* → now. (In brackets): the measured mean has a standard error above 20%, because "
        f"LinUCB and some others lock in on some seeds. Seeds from {FIRST_SEED:,}: {seeds}.",
        "",
        "A plan is given a log of 1,000 contexts. *Before*, it offered the log's rows side by side as if they were "
        "different, and one article alone paid. Now each article counts once and has a mean of its own. Both columns ask "
        "today's planner; *before* gets such slates and such θs. The error as a factor, in the median and for nine in ten "
        f"(without LinUCB): {factors}. Means U(0, 1) lie twice as far apart as a plan assumes from the range alone.",
        "",
        "*How far to trust it.* On `Clicks` the prior is right in kind and size: by default a plan's chances differ by as "
        "much as that world's. What is left there is mostly sampling. The assumptions about catalogues were chosen after "
        "plans failed on these seeds, and no other seeds were kept back.",
        "",
        "| world | K | (ε, δ), setting | rounds | " + " | ".join(NAMES) + " |",
        "|---|---|---|---|" + "---|" * len(NAMES),
    ]
    for name, cell in found.items():
        world, size, budget, rounds = name.split("|")
        row = [world, size, f"({budget.replace(',', ', ')})", f"{int(rounds):,}"]
        for n in NAMES:
            one = cell[n]
            ratio = [one[kind] / one["measured"] for kind in ("before", "predicted")]
            words = f"*{ratio[0]:.2f}* → {ratio[1]:.2f}"
            row.append(f"({words})" if one["se"] > 0.2 * one["measured"] else words)
        text.append("| " + " | ".join(row) + " |")
    text += [
        "",
        f"People who come {VISITS} times: `worlds.Clicks`, d = 10, {ROUNDS:,} rounds, (1, 10⁻⁶), `anytime` with "
        f'`rewards="clicks"`. The measure is the gain over random play, 1 − regret/its regret; {PEOPLE_SEEDS} seeds from '
        f"{FIRST_SEED:,}. Visits come in any order over all rounds, and the plan assumes that. Its first version let caps "
        "take their share from the start, and predicted 0.71 for C = 1 and 0.42 for m = 5 at 10%. Visits were spread after "
        "these runs were seen, so the runs do not test that choice. Where people come in bursts, expect less.",
        "",
        "| click rate | protected | learned from, as planned | gain measured | gain predicted |",
        "|---|---|---|---|---|",
    ]
    for name, one in people.items():
        rate, words = name.split("|")
        what, share = min(one["learned_from"].items(), key=lambda item: item[1])
        learned = "everything" if share == 1 else f"{share:.0%} of {what}"
        text.append(
            f"| {float(rate):.0%} | {words} | {learned} | {one['measured']:.2f} ± {one['se']:.2f} | "
            f"{one['predicted']:.2f} |"
        )
    return text


def _factor(found: dict[str, Any], world: str, kind: str) -> str:
    """How far off, up or down: the median and what nine in ten are within."""
    cells = [cell for name, cell in found.items() if name.startswith(world)]
    ratios = [c[n][kind] / c[n]["measured"] for c in cells for n in NAMES if n != "linucb"]
    off = np.exp(np.abs(np.log(ratios)))
    return f"{np.median(off):.2f} and {np.quantile(off, 0.9):.2f}"


def put_into(page: Path, folder: Path) -> None:
    """Replace the section in a page, or add it at the end."""
    text = page.read_text()
    before, _, after = text.partition(f"\n{HEADING}\n")
    rest = after[after.index("\n## ") :] if "\n## " in after else ""
    page.write_text(before.rstrip("\n") + "\n" + "\n".join(lines(folder)) + "\n" + rest)
