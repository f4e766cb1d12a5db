"""`dpb.run(..., device="cuda")`: the engine's jobs, played by kernels instead of compiled loops."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import OptionError
from dpbandit.gpu.machines import machine
from dpbandit.gpu.plans import Plan
from dpbandit.gpu.play import play
from dpbandit.gpu.translation import plan_of
from dpbandit.simulate.players import new_bandit
from dpbandit.worlds import Synthetic

if TYPE_CHECKING:
    from dpbandit.simulate.run import Match

# A launch plays this many groups of seeds: few enough that Ctrl-C is heard, enough to fill the largest devices.
GROUPS_AT_ONCE = 1056


def play_jobs(match: Match, device: str, advance: Callable[[int], None]) -> None:
    """Fill a match's results with rows for every job and seed, in the engine's order."""
    world, seeds, horizon, rounds = (
        match.game.world,
        match.seeds,
        match.game.horizon,
        match.game.rounds,
    )
    if type(world) is not Synthetic:
        raise OptionError(
            f"device='cuda' plays dpb.worlds.Synthetic alone, not {world!r}: use device='cpu'"
        )
    where = machine(device)
    columns: dict[str, list[NDArray[np.float64]]] = {}
    for label, name, options in match.game.jobs:

        def plan(
            group: int,
            pool: NDArray[np.float64],
            name: str = name,
            options: dict[str, Any] = options,
        ) -> Plan:
            # A bandit for each pool, because some scale their noise by the arms they are told of.
            episode = SimpleNamespace(public_contexts=pool)
            return plan_of(new_bandit(name, options, world, episode, group, horizon), horizon)

        given: dict[str, Any] = {"rounds": horizon, "seeds": seeds, "recorded": rounds}
        try:
            played = play(where, plan, world, **given, at_once=GROUPS_AT_ONCE)
        except KeyboardInterrupt:
            match.results.complete = False
            break
        columns[label] = [played.reward, played.regret, played.error]
        advance(horizon * len(seeds))
    for place, seed in enumerate(seeds):
        for label, (reward, regret, error) in columns.items():
            values = {"reward": reward[place], "regret": regret[place], "theta_error": error[place]}
            row = {"algorithm": label, "seed": seed, "round": rounds, **values}
            match.results.rows.append(row)
