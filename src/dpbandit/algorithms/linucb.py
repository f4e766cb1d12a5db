"""LinUCB (Li et al. 2010; Abbasi-Yadkori et al. 2011): the non-private reference."""

from __future__ import annotations

import math

from dpbandit.algorithms import bonus, presets
from dpbandit.design import Design
from dpbandit.errors import OptionError
from dpbandit.options import Options, positive
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.ledger import Ledger

DESCRIPTION = "ridge regression with an upper confidence bound; not private"
REFERENCE = "Li, Chu, Langford & Schapire 2010"
CLAIM = "none"
OPTIONS = ("clip_rewards", "forget")


def design(name: str, options: Options) -> Design:
    """`clip_rewards=True` clips as the private algorithms do, to compare with them at ε = ∞.

    `forget=γ` follows a θ that moves: A = λI + Σ γ^(t−s)·xxᵀ and b alike, a memory of 1/(1 − γ)
    rounds (Russac, Vernade & Cappé 2019, with A⁻¹ itself in the bonus).
    """
    forget = positive("forget", options.own("forget", 1.0))
    if forget > 1:
        raise OptionError(f"forget must lie above 0, and at most be 1 (nothing), not {forget!r}")
    if forget < 1 and options.alpha == "theory":
        raise OptionError(
            "alpha='theory' is for a θ that stays, and forget for one that moves: give a number"
        )
    presets.refuse_pan_private(options, name, "it is not private at all")
    promise = Claim(
        unit=options.unit_in_words,
        notion="none",
        epsilon=math.inf,
        delta=0.0,
        mu=None,
        status="none",
        noise="none",
        assumptions=("not private: every reward affects the next choice",),
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
        forget=forget,
    )
