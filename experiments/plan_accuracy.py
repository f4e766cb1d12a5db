"""How well `dpb.plan` predicts: simulations of the default grid beside its predictions; writes docs/plan-accuracy.md.

python benchmarks/plan_accuracy.py simulate build/plan   # the slow part, once; goes on where it stopped
python benchmarks/plan_accuracy.py predict build/plan    # after every change of the model
python benchmarks/plan_accuracy.py told build/plan       # the same, for a plan that is told what θ may be
python benchmarks/plan_accuracy.py lastfm build/plan     # where the data is: whether the recommendation holds
python benchmarks/plan_accuracy.py report build/plan docs/plan-accuracy.md

A plan sees contexts of a seed that is not simulated, the reward range, and nothing else: θ's prior and the reward noise are
its defaults. `told` gives it θs drawn as the world draws them, of further seeds: what is left is the error of the model.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dpbandit as dpb
from dpbandit.errors import PrivacyWarning

RANGE = (-0.5, 1.5)
HELD_OUT = 12_345
BUDGETS = ((2.0, 0.1), (2.0, 1e-5), (1.0, 1e-6), (0.5, 1e-6))
HORIZONS = (1_000, 10_000, 100_000)
SEEDS = {1_000: 30, 10_000: 16, 100_000: 5}
SEEDS_50 = {1_000: 8, 10_000: 4, 100_000: 2}
FREE = ("random", "linucb")  # the same for every budget
PRIVATE = (
    "anytime",
    "toeplitz",
    "local",
    "tree-gauss",
    "adac-oful",
    "dgs",
    "private-linucb",
    "private-ts",
)
WORLDS = {
    "synthetic-10": lambda: dpb.worlds.Synthetic(),
    "drifting": lambda: dpb.worlds.Drifting(),
    "degenerate": lambda: dpb.worlds.Degenerate(),
    "synthetic-50": lambda: dpb.worlds.Synthetic(dim=50),
}


def private_for(world: str, horizon: int) -> tuple[str, ...]:
    """All of them, but for the slowest on the longest runs: they are far from the best there."""
    if horizon < 100_000:
        return PRIVATE
    return PRIVATE[:2] if world == "synthetic-50" else PRIVATE[:3]


def seeds_for(world: str, horizon: int) -> int:
    return SEEDS[horizon] if world != "synthetic-50" else SEEDS_50[horizon]


def settings() -> list[tuple[str, int, tuple[float, float]]]:
    return [(w, horizon, budget) for horizon in HORIZONS for w in WORLDS for budget in BUDGETS]


def key(world: str, horizon: int, budget: tuple[float, float] | None) -> str:
    return f"{world}|{horizon}|" + ("free" if budget is None else f"{budget[0]:g},{budget[1]:g}")


class Store:
    """A JSON file that is written after every entry."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name
        self.data: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def __setitem__(self, name: str, value: Any) -> None:
        self.data[name] = value
        self.path.write_text(json.dumps(self.data, indent=1))


def simulate(folder: Path) -> None:
    store = Store(folder, "measured.json")
    for world, horizon, budget in settings():
        for names, which in ((FREE, None), (private_for(world, horizon), budget)):
            name = key(world, horizon, which)
            if name in store.data:
                continue
            start = time.perf_counter()
            privacy = {"epsilon": budget[0], "delta": budget[1]}
            seeds = seeds_for(world, horizon)
            results = dpb.run(
                WORLDS[world](),
                names,
                horizon=horizon,
                seeds=seeds,
                workers=1,
                reward_range=RANGE,
                **privacy,
            )
            rows = results.summary()
            store[name] = {
                n: {
                    "regret": float(rows.loc[n, "regret"]),
                    "se": float(rows.loc[n, "regret_se"]),
                    "seeds": seeds,
                }
                for n in names
            }
            print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)


def sample(world: str, horizon: int) -> dict[str, Any]:
    """What a user would know: contexts as they are offered."""
    made = WORLDS[world]()
    episode = made.episode(HELD_OUT)
    if world.startswith("synthetic"):
        return {"contexts": episode.public_contexts, "known_contexts": True}
    slates, every, kept = [], 4096, min(horizon, 4000)
    wanted = np.unique(np.linspace(0, horizon - 1, kept).astype(int))
    for start in range(0, horizon, every):
        block = episode.block(min(every, horizon - start))
        inside = wanted[(wanted >= start) & (wanted < start + every)] - start
        slates.append(block.pool[block.shown[inside]])
    drifting = world == "drifting"
    return {
        "contexts": np.concatenate(slates),
        "in_order": drifting,
        "known_contexts": not drifting,
    }


def thetas(world: str) -> Any:
    """θs of seeds that are not simulated, in the frame of the contexts that the plan sees."""
    made = WORLDS[world]()
    episodes = [made.episode(HELD_OUT + 1 + n) for n in range(24)]
    if world != "degenerate":
        return np.array([episode.theta for episode in episodes])
    frame = made.episode(HELD_OUT).directions
    return np.array([episode.directions @ episode.theta @ frame for episode in episodes])


def predict(folder: Path, *, told: bool) -> None:
    store = Store(folder, "told.json" if told else "predicted.json")
    for world, horizon, budget in settings():
        name = key(world, horizon, budget)
        if name in store.data:
            continue
        start = time.perf_counter()
        made = WORLDS[world]()
        plan = dpb.plan(
            dim=made.dim,
            arms=made.arms,
            epsilon=budget[0],
            delta=budget[1],
            horizon=horizon,
            reward_range=RANGE,
            algorithms=[*FREE, *private_for(world, horizon)],
            **sample(world, horizon),
            **({"prior": thetas(world)} if told else {}),
        )
        store[name] = {
            "recommended": plan.recommended,
            "regret": {n: plan.final(n) for n in plan.forecasts},
        }
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)


LASTFM_ROUNDS, LASTFM_SEEDS, LASTFM_NAMES = (
    10_000,
    2,
    ("anytime", "toeplitz", "local", "tree-gauss"),
)


def lastfm(folder: Path) -> None:
    """Rewards there are no linear function of contexts and regret is unknown: rewards earned are compared, nothing predicted."""
    store = Store(folder, "lastfm.json")
    for features in ("pca", "svd"):
        world = dpb.worlds.LastFM(features)
        for epsilon, delta in BUDGETS[1:3]:
            name = f"{features}|{epsilon:g},{delta:g}"
            if name in store.data:
                continue
            privacy = {
                "epsilon": epsilon,
                "delta": delta,
                "horizon": LASTFM_ROUNDS,
                "reward_range": (0.0, 1.0),
            }
            names = [*FREE, *LASTFM_NAMES]
            earned = dpb.run(world, names, seeds=LASTFM_SEEDS, workers=1, **privacy).summary()[
                "reward"
            ]
            plan = dpb.plan(
                dim=world.dim,
                arms=world.arms,
                contexts=world.public_contexts,
                known_contexts=True,
                algorithms=names,
                **privacy,
            )
            store[name] = {"reward": {n: float(earned[n]) for n in names}, "ranked": plan.ranked()}
            print(name, store.data[name], flush=True)


def lastfm_lines(folder: Path) -> list[str]:
    data = Store(folder, "lastfm.json").data
    if not data:
        return []
    lines = [
        "",
        "## LastFM: not predicted",
        "",
        "Rewards there are not linear in the context and nobody knows the means, so there is no regret to compare with. What can be "
        f"checked is the order: reward earned in {LASTFM_ROUNDS:,} rounds ({LASTFM_SEEDS} seeds), as multiples of random play, beside "
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
    """The figures that `dpbandit.planning.accuracy` states. Free algorithms count once, not once for each budget."""
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
    """For each setting: the recommended algorithm's measured regret against the measured best of all that are private."""
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
                    f"| {value} | {share:.0%} | {np.median(ratios):.2f} | {ratios.min():.2f} | {ratios.max():.2f} |"
                )
    return lines


def report(folder: Path, page: Path) -> None:
    lines = [
        "# How well `plan` predicts",
        "",
        "Written by `benchmarks/plan_accuracy.py`. Each number is predicted / measured final regret; measured is the mean over "
        "seeds of `dpb.run`, rewards clipped to [−0.5, 1.5]. **Bold**: off by more than 30%. (In brackets): the measured mean has a "
        "standard error above 10%, so the ratio says less. –: not simulated. A plan saw contexts of a seed that was not simulated "
        "and the reward range; reward noise was its default. The recommendation is compared with the best of the proven algorithms "
        "that were simulated in its row. A weak test where one algorithm wins everywhere: the column of measured bests says whether "
        "it did. At 100,000 rounds the slow algorithms are left out; they are far from the best at 10,000.",
        "",
        "Seeds: "
        + ", ".join(f"{SEEDS[h]} at {h:,} rounds" for h in HORIZONS)
        + "; d = 50: "
        + ", ".join(str(SEEDS_50[h]) for h in HORIZONS)
        + ".",
    ]
    titles = {
        "told": "With the right prior: θs drawn as the world draws them (the error of the model)",
        "predicted": "With the default prior: nothing is said about rewards but their range (the error of the whole plan)",
    }
    for kind, title in titles.items():
        rows = cases(folder, kind)
        found = summary(rows)
        lines += [
            "",
            f"## {title}",
            "",
            f"{found['WITHIN_30']:.1%} of {found['CASES']} predictions are within 30%; the median error is "
            f"{found['MEDIAN_ERROR']:.1%}, nine in ten are within {found['ERROR_90']:.1%}. The recommended algorithm was the "
            f"measured best or within 10% of it in {found['RECOMMENDED_GOOD']:.1%} of {found['SETTINGS']} settings.",
            "",
            *shares(rows),
            "",
            *table(rows),
        ]
        print(kind, found)
    lines += lastfm_lines(folder)
    page.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore", PrivacyWarning)
    verb, folder = sys.argv[1], Path(sys.argv[2])
    if verb == "simulate":
        simulate(folder)
    elif verb == "lastfm":
        lastfm(folder)
    elif verb in ("predict", "told"):
        predict(folder, told=verb == "told")
    else:
        report(folder, Path(sys.argv[3]))
