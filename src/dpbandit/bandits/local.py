"""Noise on each reward before anything else sees it (the mechanism behind Zheng et al. 2020).

It is local privacy only if the client clips and adds the noise, once, and keeps the answer; run by the server, as here,
it protects the released stream like every other algorithm.
"""

from __future__ import annotations

from dpbandit.bandits import presets, rounds
from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.options import Options
from dpbandit.noise import CODES, check_noise

DESCRIPTION = "noise on each reward (Laplace; Gaussian as an option)"
REFERENCE = "Zheng, Cai, Huang, Li & Wang 2020"
CLAIM = "pure ε (GDP with noise='gaussian'), proven"
OWN: tuple[str, ...] = ()


def make(name: str, options: Options) -> LinearBandit:
    noise = check_noise(options.noise or "laplace", ("laplace", "gaussian"))
    presets.refuse_pan_private(options, name, "it needs none, its memory holds noisy rewards only")
    budget = presets.budget_per_reward(options, noise)
    plan = presets.plan(options, rounds.REWARD, noise=CODES[noise], multipliers=presets.shared_by_levels(budget, noise))
    claim = presets.claim(options, noise, budget, "proven", ())
    return LinearBandit(name, options, plan, claim, presets.ledger(noise, budget))
