"""What lots with known probabilities cost: policy="sampled" beside the same algorithm without. Held-out seeds.

    python -m experiments.lots                       # everything, a few minutes on two cores
    python -m experiments.lots anytime --seeds 8 --json lots.json

Both play the same worlds with the same seeds. `ratio` is that of the mean regrets; its standard error is
that of paired differences, which the means' own errors overstate.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd

import dpbandit as dpb
from dpbandit import worlds
from experiments import parts
from experiments.rewards import NARROW, PARTS, TOLD, WIDE, Setting

CLICKS: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "reward_range": (0.0, 1.0)}
SETTINGS: dict[str, dict[str, Setting]] = {
    "anytime": {
        **{name: PARTS["simulation"][name] for name in PARTS["simulation"]},
        **PARTS["catalogues"],
        **PARTS["clicks"],
        **{f"moving: {kind}": PARTS["moving"][kind] for kind in ("abrupt", "walk")},
        **{name: PARTS["blocks"][name] for name in ("wine", "breast cancer", "iris")},
    },
    "anytime-joint": {
        "T = 10⁴, (2, 1e-5)": (worlds.Synthetic(), 10_000, WIDE, 4, {}),
        "T = 10⁴, (1, 1e-6)": (worlds.Synthetic(), 10_000, NARROW, 4, {}),
        "T = 10⁵, (2, 1e-5)": (worlds.Synthetic(), 100_000, WIDE, 1, {}),
        "d = 25": (worlds.Synthetic(dim=25), 10_000, WIDE, 1, {}),
        "d = 50": (worlds.Synthetic(dim=50), 10_000, WIDE, 0.5, {}),
        "degenerate": (worlds.Degenerate(), 10_000, WIDE, 4, {}),
        "10 one-hot arms": (worlds.Bernoulli(10), 10_000, CLICKS, 4, TOLD),
        "20 one-hot arms": (worlds.Bernoulli(20), 10_000, CLICKS, 4, TOLD),
        "clicks 2%, d = 10": (worlds.Clicks(0.02), 100_000, CLICKS, 1, TOLD),
    },
}


def measure(name: str, setting: Setting, seeds: int) -> pd.DataFrame:
    """Mean regrets with their standard errors, and their ratio with its own."""
    world, horizon, given, share, told = setting
    rivals = {"without": (name, told), "by lot": (name, {**told, "policy": "sampled"})}
    count = max(2, round(share * seeds))
    results = dpb.run(world, rivals, horizon=horizon, seeds=count, record=[], **given)
    last = results.frame().pivot(index="seed", columns="algorithm", values="regret")
    plain, lots = last["without"], last["by lot"]
    ratio, root = lots.mean() / plain.mean(), count**0.5
    row = {
        "without": plain.mean(),
        "se": plain.std(ddof=1) / root,
        "by lot": lots.mean(),
        "se by lot": lots.std(ddof=1) / root,
        "ratio": ratio,
        "se ratio": (lots - ratio * plain).std(ddof=1) / root / plain.mean(),
        "seeds": count,
    }
    return pd.DataFrame(row, index=[name])


def tables(name: str, seeds: int) -> Iterator[tuple[str, pd.DataFrame]]:
    for label, setting in SETTINGS[name].items():
        yield label, measure(name, setting, seeds)


if __name__ == "__main__":
    parts.measure(
        __doc__, {name: partial(tables, name) for name in SETTINGS}, dict.fromkeys(SETTINGS, 24)
    )
