"""LinUCB (Li et al. 2010; Abbasi-Yadkori et al. 2011): the non-private reference."""

from __future__ import annotations

import math

from dpbandit.bandits import presets, rounds
from dpbandit.bandits.linear import LinearBandit
from dpbandit.bandits.options import Options
from dpbandit.budget import Claim, Ledger

DESCRIPTION = "ridge regression with an upper confidence bound; not private"
REFERENCE = "Li, Chu, Langford & Schapire 2010"
CLAIM = "none"
OWN = ("clip_rewards",)


def make(name: str, options: Options) -> LinearBandit:
    """`clip_rewards=True` clips like the private algorithms do, to compare with them at ε = ∞."""
    presets.refuse_pan_private(options, name, "it is not private at all")
    claim = Claim(
        unit=options.unit_in_words,
        notion="none",
        epsilon=math.inf,
        delta=0.0,
        mu=None,
        status="none",
        noise="none",
        assumptions=("not private: every reward shows in the next choice",),
    )
    clips = bool(options.take("clip_rewards", False))
    ledger = Ledger(limit=math.inf, currency="epsilon")
    return LinearBandit(name, options, presets.plan(options, rounds.NOTHING), claim, ledger, clips=clips)
