"""LinUCB (Li et al. 2010; Abbasi-Yadkori et al. 2011): the non-private reference."""

from __future__ import annotations

import math

from dpbandit.algorithms import bonus, presets
from dpbandit.design import Design
from dpbandit.options import Options
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.ledger import Ledger

DESCRIPTION = "ridge regression with an upper confidence bound; not private"
REFERENCE = "Li, Chu, Langford & Schapire 2010"
CLAIM = "none"
OPTIONS = ("clip_rewards",)


def design(name: str, options: Options) -> Design:
    """`clip_rewards=True` clips like the private algorithms do, to compare with them at ε = ∞."""
    presets.refuse_pan_private(options, name, "it is not private at all")
    promise = Claim(
        unit=options.unit_in_words,
        notion="none",
        epsilon=math.inf,
        delta=0.0,
        mu=None,
        status="none",
        noise="none",
        assumptions=("not private: every reward shows in the next choice",),
    )
    return presets.ridge(
        options,
        "nothing",
        presets.nothing(options),
        promise=promise,
        ledger=Ledger(limit=math.inf, currency="epsilon"),
        theory=bonus.in_the_clear(options),
        clips=options.own_flag("clip_rewards"),
        is_private=False,
        in_the_clear=True,
    )
