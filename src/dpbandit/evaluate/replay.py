"""`replay`: off-policy evaluation, from a log of what another algorithm showed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from dpbandit.encoder import Encoder
from dpbandit.encoder.encode import encoder_of
from dpbandit.errors import LogError, LogWarning, OptionError
from dpbandit.evaluate import players as contestants
from dpbandit.evaluate.estimates import Estimate, Spread, estimates
from dpbandit.evaluate.release import Terms, agree, show
from dpbandit.evaluate.rounds import Round, Rounds, open_rounds
from dpbandit.evaluate.support import Support, support
from dpbandit.evaluate.tally import Range, Tally
from dpbandit.options import positive, range_of, whole
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.unit import find_unit

Progress = Callable[[int, int], None]
MOST_CLIP = 1e18  # squares of heavier weights, and their sums, would leave the floats
EVERY = 256  # rows between two calls of `progress`
IN_THE_CLEAR = Claim("anybody in the log", "none", math.inf, 1.0, None, "none", "none")


@dataclass(frozen=True)
class Evaluation:
    """The result of `dpb.replay`. `estimates` are values with intervals; `claim` says who may see
    them.

    >>> import dpbandit as dpb
    >>> log = [{"action": i % 2, "reward": float(i % 2)} for i in range(400)]
    >>> found = dpb.replay(log, "linucb", items=[[1.0, 0.0], [0.0, 1.0]], reward_range=(0, 1), seed=0)
    >>> found.best().algorithm, found.of("linucb").value > 0.9, found.claim.brief()
    ('linucb', True, 'no claim: not private')
    """

    estimates: list[Estimate]
    claim: Claim
    rows: int
    used: int
    bad: dict[str, int] = field(default_factory=dict)
    clipped: dict[str, int] = field(default_factory=dict)  # rows with a weight above clip, by label
    ledger: Ledger | None = None  # of the release; None in the clear
    complete: bool = True

    def best(self, estimator: str = "snips") -> Estimate:
        """The highest estimate."""
        found = [one for one in self.estimates if one.estimator == estimator]
        if not found:
            raise OptionError(f"there is no estimate {estimator!r}: no row matched a choice")
        return max(found, key=lambda one: one.value)

    def of(self, algorithm: str, estimator: str = "snips") -> Estimate:
        """One estimate, or an error that lists the existing ones."""
        for one in self.estimates:
            if (one.algorithm, one.estimator) == (algorithm, estimator):
                return one
        there = ", ".join(f"{e.algorithm} {e.estimator}" for e in self.estimates)
        raise OptionError(f"there is no estimate {algorithm!r}, {estimator!r}: {there or 'none'}")

    def summary(self) -> Any:
        """A pandas data frame, with one row per estimate."""
        import pandas as pd

        return pd.DataFrame([one.to_dict() for one in self.estimates])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "estimates": [one.to_dict() for one in self.estimates],
            "claim": self.claim.to_dict(),
            "rows": self.rows,
            "used": self.used,
            "bad": self.bad,
            "clipped": self.clipped,
            "ledger": None if self.ledger is None else self.ledger.to_dict(),
            "complete": self.complete,
        }

    def __str__(self) -> str:
        left = ", ".join(f"{count:,} {kind}" for kind, count in self.bad.items()) or "none"
        lines = [f"{self.used:,} of {self.rows:,} rows used; left out: {left}"]
        return "\n".join([*lines, *map(str, self.estimates), str(self.claim)])


def replay(
    log: Any,
    algorithms: Any,
    *,
    reward_range: tuple[float, float],
    action: str = "action",
    reward: str = "reward",
    propensity: str | None = None,
    clip: float | None = None,
    user: str | None = None,
    offered: str | None = None,
    contexts: str = "contexts",
    items: Any = None,
    encoder: Encoder | None = None,
    release: float | tuple[float, float] | None = None,
    rows_per_user: int | None = None,
    ledger: Ledger | None = None,
    missing_reward: float | None = None,
    level: float = 0.95,
    seed: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Evaluation:
    """Estimate what algorithms would have earned per round, from a log with randomised choices.

    Each algorithm goes through the log once. Where it chooses the logged action it learns the
    reward, as it would online; elsewhere it does not see the reward. Estimators: `replay` (the rows
    that an online run would have had), `ips`, `snips` (propensity weights, also self-normalised),
    `dr`, `sndr` (doubly robust, with the algorithm's own released parameter).

    Parameters
    ----------
    log : path, frame, stream of Arrow, list or iterator of records, or dict of arrays
        Parquet, CSV or Arrow files, also folders and globs. Read once, a batch at a time.
    algorithms : str, list or dict
        As for `dpb.run`: names, (name, options), or {label: …}. Released models work too; they do
        not learn.
    reward_range : (float, float)
        Rewards are clipped to it, here and by the algorithms: (0, 1) for clicks.
    action : str
        The column of logged actions: an item's name or, without an encoder, a row's number.
    reward : str
        The column of rewards.
    propensity : str, optional
        The column of the logged action's probability. Default: all offers were equally likely.
    clip : float, optional
        The largest weight 1/propensity. Larger ones are clipped, which biases estimates. Required
        with `propensity`. Otherwise it is the number of arms in the first row, which clips nothing
        if all rows offer the same number.
    user : str, optional
        The column of users, for unit=('user', m) or ('person', C).
    offered : str, optional
        With an encoder: a column of lists of names, if not every item is always on offer.
    contexts : str
        Without encoder and items: the column with an array of shape (arms, dim) in each row.
    items : list of records, frame, or array of shape (arms, dim)
        All items that can be shown. With an encoder: records with its item fields and `action`; not
        needed if `action` is a category and the only field.
    encoder : Encoder, optional
        Turns records into contexts.
    release : ε or (ε, δ), optional
        The budget per unit for all estimates together, on top of the algorithms' own learning. The
        estimates then carry noise, and the claim covers both. Without it estimates are in the
        clear, only for people who may see the log.
    rows_per_user : int, optional
        How many matched rows of a user count in an estimate, at most: fewer rows, and less noise.
    ledger : Ledger, optional
        A ledger to charge, also your own for all evaluations of a log; BudgetError if too little
        is left.
    missing_reward : float, optional
        The reward of a row without one. Without it such rows are left out.
    level : float, default 0.95
        Confidence level of the intervals.
    seed : int, optional
        Makes it a simulation. Without a seed all noise is real.
    progress : callable, optional
        Called with the number of rows read, and the total, or 0 if it is unknown.
    **options
        Options of `dpb.make`, for all algorithms.

    Returns
    -------
    Evaluation

    Raises
    ------
    LogError
        If the log cannot be read, or fewer than half of its rows are usable. Nothing is shown then.
    OptionError
        If an option is not allowed, or its release cannot be proven.

    Notes
    -----
    Intervals cover sampling error, noise, and what clipping leaves out. They assume independent rows: if many rows belong to
    one person, or the world moves, intervals are too narrow.

    Examples
    --------
    >>> import dpbandit as dpb, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> arms = np.eye(2)
    >>> shown = rng.integers(0, 2, 4000)
    >>> clicked = (rng.random(4000) < np.array([0.2, 0.6])[shown]).astype(float)
    >>> log = {"action": shown, "reward": clicked}
    >>> given = {"items": arms, "epsilon": 1.0, "delta": 1e-6, "seed": 1}
    >>> given["reward_range"] = (0, 1)
    >>> found = dpb.replay(log, ["random", "anytime"], release=(0.5, 1e-7), **given)
    >>> found.of("anytime").low > found.of("random").high
    True
    >>> found.claim.status, round(found.claim.epsilon, 2)
    ('proven', 1.5)
    """
    low, high = range_of(reward_range)
    encoder = encoder_of(encoder)
    if not 0 < level < 1:
        raise OptionError(f"level must lie strictly between 0 and 1, not {level!r}")
    if rows_per_user is not None:
        whole("rows_per_user", rows_per_user, least=1)
        if user is None:
            raise OptionError("rows_per_user needs the log's column of users, user=...")
    if clip is not None and not 1 <= positive("clip", clip) <= MOST_CLIP:
        raise OptionError(f"clip is a weight, 1/propensity: from 1 to {MOST_CLIP:g}, not {clip!r}")
    if propensity is not None and clip is None:
        raise OptionError(
            "clip is missing: with a column of propensities give the largest weight 1/propensity; "
            "learning by replay keeps a row with probability weight/clip"
        )
    if ledger is not None and release is None:
        raise OptionError("a ledger is charged for a release: give release=(ε, δ)")
    wanted = contestants.wanted(algorithms, {**options, "reward_range": (low, high)})
    rounds = open_rounds(
        log,
        action=action,
        reward=reward,
        propensity=propensity,
        user=user,
        offered=offered,
        contexts=contexts,
        items=items,
        encoder=encoder,
        missing_reward=missing_reward,
    )
    first = next(iter(rounds), None)
    if first is None:
        raise LogError(
            f"no row is usable: {_left_out(rounds)}" if rounds.rows else "the log has no rows"
        )
    chosen = contestants.players(wanted, first.contexts.shape[1], encoder, seed)
    unit = find_unit(options.get("unit", "reward"), high if low == 0 else 1.0)
    counted = unit.needs_user or any(getattr(p.policy, "counts_users", False) for p in chosen)
    if user is not None and not counted and rows_per_user is None:
        raise OptionError(
            f"user={user!r} protects nobody, as the unit of privacy is {unit.words}: give unit=('user', m) "
            "or ('person', C), or omit user"
        )
    terms: Terms | None = None
    if release is not None:
        terms = agree(release, chosen, unit, (low, high), user=user, seed=seed, ledger=ledger)
    most = len(first.contexts) if clip is None else clip
    tallies = [
        Tally(p, Range(low, high), float(most), protects=terms is not None, most=rows_per_user)
        for p in chosen
    ]
    fits = support(stated=propensity is not None)
    complete = _play(
        chain([first], rounds), rounds, tallies, fits, seed, progress, terms is not None
    )
    used = rounds.rows - sum(rounds.bad.values())
    if used < rounds.rows / 2:
        raise LogError(
            f"fewer than half of the log's rows are usable: {_left_out(rounds)}. Nothing was shown"
        )
    if rounds.bad:
        warnings.warn(f"rows are left out: {_left_out(rounds)}", LogWarning, stacklevel=2)
    if encoder is not None and (strange := encoder.doubt(rounds.head)):
        warnings.warn(strange, LogWarning, stacklevel=2)
    if doubt := fits.doubt():
        warnings.warn(doubt, LogWarning, stacklevel=2)
    totals = [0.0 if t.seen is None else t.seen.wy for t in tallies]
    spreads = [Spread() for _ in tallies]
    after = None
    if terms is not None:
        totals, spreads, after = show(terms, tallies)
    # Which rows matched follows from what was learned: nothing says so before that is charged.
    clipped = {t.player.label: t.public.clipped for t in tallies if t.public.clipped}
    if clipped:
        warnings.warn(
            f"weights above clip = {most:g} were clipped, which biases estimates: {clipped} rows",
            LogWarning,
            stacklevel=2,
        )
    found = [
        one
        for t, total, spread in zip(tallies, totals, spreads, strict=True)
        for one in estimates(
            t.player.label,
            t.public,
            total,
            t.seen,
            rewards=t.rewards,
            noise=spread,
            level=level,
        )
    ]
    claim = IN_THE_CLEAR if terms is None else terms.claim
    return Evaluation(found, claim, rounds.rows, used, dict(rounds.bad), clipped, after, complete)


def _play(
    rows: Any,
    rounds: Rounds,
    tallies: Sequence[Tally],
    fits: Support,
    seed: int | None,
    progress: Progress | None,
    protects: bool,
) -> bool:
    """Play all algorithms through the log, side by side. Returns whether it reached the end."""
    coins = np.random.default_rng(seed)
    row: Round
    try:
        for row in rows:
            coin = float(coins.random())
            fits.add(row)
            for tally in tallies:
                tally.add(row, coin)
            if progress is not None and rounds.rows % EVERY == 0:
                progress(rounds.rows, rounds.total)
    except KeyboardInterrupt:
        if protects:
            raise  # nothing was shown, and the release was priced for the whole log
        return False
    if progress is not None:
        progress(rounds.rows, rounds.total or rounds.rows)
    return True


def _left_out(rounds: Rounds) -> str:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in rounds.bad.items())
    return f"{kinds or 'none'}, of {rounds.rows:,} rows"
