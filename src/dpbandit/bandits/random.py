"""Random play: the floor for reward and the ceiling for privacy."""

from __future__ import annotations

from dpbandit.bandits import presets, rounds
from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.options import Options
from dpbandit.budget import Claim, Ledger

DESCRIPTION = "plays an arm at random; learns nothing"
REFERENCE = "the reference of the paper's LastFM figure"
CLAIM = "ε = 0, proven: nothing depends on a reward"
OWN: tuple[str, ...] = ()


def make(name: str, options: Options) -> LinearBandit:
    presets.refuse_pan_private(options, name, "it keeps no reward")
    claim = Claim(
        unit=options.unit_in_words,
        notion="pure",
        epsilon=0.0,
        delta=0.0,
        mu=0.0,
        status="proven",
        noise="none",
        assumptions=("no reward is used",),
    )
    ledger = Ledger(limit=0.0, currency="epsilon")
    return LinearBandit(name, options, presets.plan(options, rounds.RANDOM), claim, ledger, clips=False)
