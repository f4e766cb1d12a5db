"""`dpb.run(..., device="cuda")`: the engine's jobs, played by kernels instead of compiled loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import OptionError
from dpbandit.gpu.machines import machine
from dpbandit.gpu.plans import Plan, World
from dpbandit.gpu.play import play
from dpbandit.gpu.translation import plan_of
from dpbandit.worlds import Synthetic

Rows = list[dict[str, Any]]
# A launch plays this many groups of seeds: few enough that Ctrl-C is heard, enough to fill the largest devices.
GROUPS_AT_ONCE = 1056


def play_jobs(
    world: Any,
    jobs: Sequence[tuple[str, str, dict[str, Any]]],
    seeds: list[int],
    horizon: int,
    rounds: NDArray[np.int64],
    device: str,
    make: Callable[..., Any],
    advance: Callable[[int], None],
) -> tuple[Rows, bool]:
    """Rows for every job and seed, in the engine's order, and whether all of them were played."""
    if type(world) is not Synthetic:
        raise OptionError(
            f"device='cuda' plays dpb.worlds.Synthetic alone, not {world!r}: use device='cpu'"
        )
    where = machine(device)
    setting = World(world.pool_size, world.dim, world.arms, world.reward_noise)
    columns: dict[str, list[NDArray[np.float64]]] = {}
    complete = True
    for label, name, options in jobs:

        def plan(
            group: int,
            pool: NDArray[np.float64],
            name: str = name,
            options: dict[str, Any] = options,
        ) -> Plan:
            # A bandit for each pool, because some scale their noise by the arms they are told of.
            episode = SimpleNamespace(public_contexts=pool)
            return plan_of(make(name, options, world, episode, group, horizon), horizon)

        try:
            played = play(
                where,
                plan,
                setting,
                rounds=horizon,
                seeds=seeds,
                recorded=rounds,
                at_once=GROUPS_AT_ONCE,
            )
        except KeyboardInterrupt:
            complete = False
            break
        columns[label] = [played.reward, played.regret, played.error]
        advance(horizon * len(seeds))
    rows: Rows = []
    for place, seed in enumerate(seeds):
        for label, (reward, regret, error) in columns.items():
            values = {"reward": reward[place], "regret": regret[place], "theta_error": error[place]}
            rows.append({"algorithm": label, "seed": seed, "round": rounds, **values})
    return rows, complete
