"""Random play: the floor for reward and the ceiling for privacy."""

from __future__ import annotations

from dpbandit.algorithms import bonus, presets
from dpbandit.design import Design
from dpbandit.options import Options
from dpbandit.policies import UNIFORM
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.noise import GAUSSIAN

DESCRIPTION = "plays an arm at random; learns nothing"
REFERENCE = "the reference of the paper's LastFM figure"
CLAIM = "ε = 0, proven: nothing depends on a reward"
OPTIONS: tuple[str, ...] = ()


def design(name: str, options: Options) -> Design:
    presets.refuse_pan_private(options, name, "it keeps no reward")
    promise = Claim(
        unit=options.unit_in_words,
        notion="pure",
        epsilon=0.0,
        delta=0.0,
        mu=0.0,
        status="proven",
        noise="none",
        assumptions=("no reward is used",),
    )
    return Design(
        learner="none",
        settings={},
        release=presets.nothing(options),
        noise=GAUSSIAN,
        policy=UNIFORM,
        claim=promise,
        ledger=Ledger(limit=0.0, currency="epsilon"),
        theory=bonus.in_the_clear(options),
        clips=False,
        is_private=False,
    )
