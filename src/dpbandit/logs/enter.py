"""How a log enters a bandit: what the pass over it must add up, and the one release of its sums.

A logged reward is in this release and in no other, so it pays its whole budget here; online
rewards pay as before (docs/privacy.md). `prepare` looks at public things alone; `enter` is the only
way in for what is clean.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpbandit.bandit import Bandit
from dpbandit.errors import OptionError
from dpbandit.logs import sums as log_sums
from dpbandit.logs.record import Log, People
from dpbandit.logs.sums import Recipe, Sums
from dpbandit.logs.ways import Found, Start, Way, way_of
from dpbandit.privacy.grid import STEP, to_floats
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.privacy.sources import Pending
from dpbandit.state import alone, come_true
from dpbandit.types import Matrix

# Where the log's release stands in the ledger: a group of its own, because a reward is in the log
# or online, not in both. Its noise has a number that no round has.
GROUP, WHAT, INDEX = -1, "the log, once", 0
# No noise scale vanishes, however short the log's contexts are, in units of max_norm.
SHORTEST = 1e-9


def why_not(bandit: Any) -> str:
    """Why this bandit's design cannot start from a log; empty if it can."""
    if not isinstance(bandit, Bandit):
        return "its sums are its own"
    design, options = bandit.design, bandit.options
    if not design.is_private and not design.in_the_clear:
        return "it does not learn"
    if reason := design.release.no_log():
        return reason
    if way_of(bandit) is None:
        return "nothing is proven for it, or its sums are its own"
    if len(design.settings.get("known_second", ())):
        return (
            "public_contexts whiten its first rounds, and a log is learned without: leave them out"
        )
    if design.settings.get("forget", 1.0) != 1.0:
        return "forget fades rewards by their age, and a log's sums have none"
    if options.protects.needs_instruments:
        return "a log's contexts point where its own whitener says"
    if options.context_noise > 0:
        return (
            "context_noise perturbs contexts as they are offered, and those of a log were played "
            "as they are"
        )
    if bandit.alpha == "theory" and callable(design.theory):
        return "alpha='theory' (Lemma 2) does not know of a log, so give a number"
    return ""


def check(bandit: Any) -> Bandit:
    """The bandit, or an error that says why it cannot start from a log."""
    name = getattr(bandit, "name", type(bandit).__name__)
    if why := why_not(bandit):
        raise OptionError(
            f"{name} cannot start from a log like this: {why}. Use another algorithm, such as "
            "'anytime' or 'tree-gauss', or feed the log to `update`, row by row"
        )
    if bandit.rounds or bandit.ledger.releases:
        raise OptionError(
            "a bandit that has learned cannot start from a log any more: make a new one"
        )
    found: Bandit = bandit
    return found


def prepare(bandit: Bandit, sample: Matrix, tolerance: float) -> Start:
    """What to add up for this bandit. Changes nothing.

    `sample` are contexts of the log: public, and used only where nothing else says how contexts are
    spread.
    """
    return _way(bandit).prepare(bandit, sample, tolerance)


def shift(bandit: Bandit, recipe: Recipe, sums: Sums) -> float:
    """How far apart neighbours can be in the sum of the items, in the noise's norm.

    One reward moves v by at most 1, so its item by at most the longest u; and each of the two items
    is rounded to the grid.
    """
    norm = bandit.noise.norm
    if len(recipe.whitener):
        longest = 1.0 if norm == 2 else math.sqrt(recipe.length)
    else:
        # Contexts are public: those in the log, not the worst possible.
        longest = max(float(sums.longest[norm % 2]), SHORTEST)
    unit = bandit.options.protects
    items = 1 if unit.counts_are_public else 1 << bandit.design.reward_bits
    return on_grid(longest, dim=recipe.numbers, norm=norm, items=items)


def enter(bandit: Bandit, start: Start, sums: Sums, people: People | None = None) -> Log:
    """The one release: ask the ledger, draw the noise, put the noisy sum into the engine.

    It comes true in one step. What fails before leaves no trace: nobody has seen the noise.
    """
    # How many persons have any reward is theirs to say.
    public = bandit.options.protects.counts_are_public
    log = _log_of(sums, people if public else None, bandit.options.protects.cap)
    if log.learned == 0:
        raise OptionError(f"there is nothing to start from: {log}")
    alone(bandit, _enter, bandit, start, sums, log, people or People.nobody())
    return log


def _enter(bandit: Bandit, start: Start, sums: Sums, log: Log, people: People) -> None:
    check(bandit)
    bandit.check_process()
    state = bandit.state
    draft = state.engine.draft()
    try:
        found, ledger = _release(bandit, start.recipe, sums)
        found = found._replace(persons=len(people.hashes))
        _way(bandit).put(bandit, draft, start, found)
        draft.fields()["clipped"][0] += int(sums.counts[log_sums.CLIPPED])
        changed = {
            "engine": draft,
            "ledger": ledger.sealed(np.asarray(draft.theta()).tobytes()),
            "over_cap": state.over_cap + log.over_cap,
            **bandit.remembered(log, people),
        }
        come_true(bandit, state.but(**changed), [])
    finally:
        bandit.state.engine.go_on()
        bandit.open_short_way()


def why_left_out(sums: Sums) -> str:
    """How many rows of which kind cannot be learned from."""
    bad = _log_of(sums, None).bad.items()
    return ", ".join(f"{count:,} {kind}" for kind, count in bad if count) or "none"


def _log_of(sums: Sums, people: People | None, cap: int | None = None) -> Log:
    """What was read, in numbers that no reward decides."""
    full = None
    if people is not None and cap is not None:
        full = int(np.count_nonzero(people.counts >= np.int64(cap)))
    return Log(
        rows=sums.rows,
        learned=sums.learned,
        bad={words: int(sums.counts[kind]) for kind, words in log_sums.KINDS.items()},
        over_cap=int(sums.counts[log_sums.OVER_CAP]),
        users=None if people is None else len(people.hashes),
        full=full,
    )


def _release(bandit: Bandit, recipe: Recipe, sums: Sums) -> tuple[Found, Ledger]:
    """The noisy sum of the items, and the ledger after it, which is asked first."""
    ledger = bandit.ledger
    if not recipe.whole:
        later = ledger.after(math.inf, when=0, what="rewards in the clear")
        return Found(sums, np.zeros(0), 0.0), later
    later = ledger.after(ledger.limit, when=0, what=WHAT, group=GROUP)
    apart = shift(bandit, recipe, sums)
    scale = bandit.noise.multiplier(bandit.release.budget, 1) * apart
    pending = _on_a_grid_for(apart, sums.whole)
    noisy = bandit.source.release(bandit.noise, pending, scale=scale, shift=apart, index=INDEX)
    return Found(sums, noisy, scale), later


def _on_a_grid_for(apart: float, whole: list[int]) -> Pending:
    """The clean sum on a grid as fine for its noise as the usual one is for a shift of 1.

    δ pays for noise on a grid of STEP for a shift of at least 1; contexts may all be shorter.
    """
    finer = max(0, math.ceil(-math.log2(apart)))
    return Pending(to_floats(whole), [number << finer for number in whole], STEP * 2.0**-finer)


def _way(bandit: Bandit) -> Way:
    found = way_of(bandit)
    if found is None:
        raise OptionError(f"nobody has said how a log enters {bandit.name}")
    return found
