"""Noise on each reward before anything else sees it (the mechanism behind Zheng et al. 2020).

It is local privacy only if the client clips, adds the noise once, and keeps the answer. Run by the
server, as here, it protects the released stream like every other algorithm.
"""

from __future__ import annotations

from dpbandit.algorithms import bonus, presets
from dpbandit.design import Design
from dpbandit.options import Options
from dpbandit.privacy.noise import find_noise
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.release import Once

DESCRIPTION = "noise on each reward (Laplace; Gaussian as an option)"
REFERENCE = "Zheng, Cai, Huang, Li & Wang 2020"
CLAIM = "pure ε (GDP with noise='gaussian'), proven"
OPTIONS: tuple[str, ...] = ()


def design(name: str, options: Options) -> Design:
    noise = find_noise(options.noise or "laplace", ("laplace", "gaussian"))
    presets.refuse_pan_private(
        options, name, "it needs none, because its memory holds only noisy rewards"
    )
    presets.check_range(options)
    budget = noise.budget(options, Once.draws(1, options.horizon))
    one = on_grid(1.0, dim=1, norm=noise.norm, items=options.protects.items_per_move)
    release = Once(noise, options.horizon, one, budget)
    return presets.ridge(
        options,
        "reward",
        release,
        promise=presets.claim(options, noise, budget),
        theory=bonus.on_rewards(options, release),
    )
