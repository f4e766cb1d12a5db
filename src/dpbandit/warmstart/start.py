"""`warm_start`: turn a log of contexts and rewards into a private bandit that keeps learning
online."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from dpbandit import spread
from dpbandit.algorithms import registry
from dpbandit.algorithms.given import Given
from dpbandit.algorithms.registry import Name
from dpbandit.bandit import Bandit
from dpbandit.encoder.encode import encoder_of
from dpbandit.engine import backend_for
from dpbandit.errors import LogError, LogWarning, OptionError, PrivacyWarning
from dpbandit.logs import enter
from dpbandit.logs.record import Log
from dpbandit.logs.sums import GOOD, OVER_CAP, Recipe, inspect
from dpbandit.logs.users import Persons, Tally, persons_of
from dpbandit.model import NORM_TOLERANCE
from dpbandit.options import whole
from dpbandit.privacy.unit import Person
from dpbandit.spread import Place
from dpbandit.types import Matrix
from dpbandit.warmstart.rows import contexts_of
from dpbandit.warmstart.scan import Reading
from dpbandit.warmstart.source import (
    Columns,
    Source,
    find_columns,
    numbers_of,
    open_log,
    texts_of,
)
from dpbandit.warmstart.total import scan_all

Progress = Callable[[int, int], None]

# Features in single precision that were brought to norm 1 miss it by their own rounding.
SINGLE_TOLERANCE = 1e-6
# The spread of contexts is estimated from this many rows at the heads of this many parts: a peek,
# not a pass.
PEEKS, PEEK = 16, 4096
# How many of those go into the saved bandit, if the algorithm keeps contexts.
KEPT = 2048
# If a larger share of users has no reward left, it is said.
MOST_FULL = 0.5


def warm_start(
    source: Any,
    algorithm: Name = "anytime",
    *,
    context: str | Sequence[str] = "context",
    reward: str = "reward",
    user: str | None = None,
    missing_reward: float | None = None,
    least_used: float = 0.5,
    workers: int | None = None,
    cluster: str | Place | None = None,
    progress: Progress | None = None,
    **options: Unpack[Given],
) -> Bandit:
    """Make a bandit from a log, in one pass and one release. It then keeps learning online.

    The logged rewards spend all of their budget on one release; online rewards pay as always.
    **Starting twice from the same log spends the same rewards' budget twice.** Rows with unusable
    contexts are left out and counted by kind, with a warning: see `bandit.log`. Which rows are
    learned from is public, so no reward may decide it: a reward that is NaN or infinite is replaced
    by the middle of `reward_range`, and counts as clipped. (With persons it counts as 0.)

    Parameters
    ----------
    source : path, list of paths or records, Arrow table or stream, or frame
        A Parquet, CSV or Arrow file, a folder, a glob, a list of these, a list of dicts, an Arrow
        table, a RecordBatchReader, or a frame of pandas or polars.
    algorithm : str, default 'anytime'
        The algorithm.
    context : str or list of str
        One column of lists, or several columns of numbers.
    reward : str
        The column of rewards.
    user : str, optional
        The column of users, for unit=('user', m) or ('person', C).
    missing_reward : float, optional
        The reward of a row without one. Without it such rows are left out, and the fact that they
        lack a reward is public. pandas writes a missing reward as NaN.
    least_used : float, default 0.5
        The smallest usable share of the rows, apart from users' caps. Below it nothing is released.
    workers : int, optional
        Number of parts read at a time; default one per core.
    cluster : str, optional
        A Ray cluster to read with ("local", "auto" or its address). Its nodes must have the same
        files at the same paths; the bandit is the same.
    progress : callable, optional
        Called with the number of rows read, and the total.
    **options
        Options of `dpb.make`; `dim` is inferred. With an encoder its fields are columns of the log,
        found by name, and `context` is not used.

    Returns
    -------
    Bandit

    Raises
    ------
    LogError
        If the log cannot be read, or too few rows are usable for `least_used`. Nothing is released
        then.
    OptionError
        If an option is not allowed, or the algorithm cannot start from a log.

    Examples
    --------
    >>> import dpbandit as dpb, numpy as np, pyarrow as pa
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(5000, 2)) / 5
    >>> clicked = (rng.random(5000) < 0.5 + x[:, 0]).astype(float)
    >>> log = pa.table({"a": x[:, 0], "b": x[:, 1], "clicked": clicked})
    >>> given = {"epsilon": 1.0, "delta": 1e-6, "reward_range": (0, 1), "seed": 0}
    >>> bandit = dpb.warm_start(log, context=["a", "b"], reward="clicked", **given)
    >>> print(bandit.log)
    5,000 of 5,000 rows learned from; left out: none
    >>> bandit.select([[-0.5, 0.0], [0.5, 0.0]])
    1
    """
    if workers is not None:
        whole("workers", workers, least=1)
    if not 0 <= least_used <= 1:
        raise OptionError(f"least_used must lie between 0 and 1, not {least_used!r}")
    encoder = encoder_of(options.get("encoder"))
    names = [context] if isinstance(context, str) else list(context)
    texts = () if encoder is None else texts_of(encoder)
    opened = open_log(source, numbers_of(names, reward, encoder), texts)
    elsewhere = cluster is not None and getattr(cluster, "elsewhere", True)
    if elsewhere and any(part.table is not None or part.rows is None for part in opened.parts):
        raise OptionError(
            "a cluster reads Parquet files that all its nodes see, not CSV, a stream, or a table in "
            "one machine's memory"
        )
    private = registry.find(algorithm).contexts_are_private
    columns = find_columns(
        opened,
        context=names,
        reward=reward,
        user=user,
        dim_given=options.get("dim"),
        private=private,
        encoder=encoder,
    )
    if options.get("dim", columns.dim) != columns.dim:
        raise OptionError(
            f"dim = {options['dim']} was given, but the log's contexts have {columns.dim} features"
        )
    longest = float(options.get("max_norm", 1.0))
    sample = np.empty((0, columns.dim)) if private else peek(opened, columns, longest)
    if encoder is not None and (doubt := encoder.doubt(sample)):
        warnings.warn(doubt, LogWarning, stacklevel=2)
    given = {**options, "dim": columns.dim}
    if options.get("shape", "round") != "round" and options.get("public_contexts") is None:
        given["public_contexts"] = sample[:: max(1, len(sample) // KEPT)][:KEPT]
    bandit = registry.make_named(algorithm, **given)
    made: Any = bandit
    if user is not None and not made.options.protects.needs_user:
        raise OptionError(
            f"user={user!r} protects nobody, as the unit of privacy is "
            f"{made.options.unit_in_words}: give unit=('user', m) or ('person', C), or omit user"
        )
    log = learn_log(
        bandit,
        opened,
        columns,
        sample=sample,
        missing_reward=missing_reward,
        workers=workers,
        cluster=cluster,
        progress=progress,
        least_used=least_used,
    )
    if encoder is None and not columns.is_list:
        bandit.feature_names = columns.context
    if any(log.bad.values()):
        warnings.warn(f"rows of the log are left out: {log}", LogWarning, stacklevel=2)
    if log.full is not None and log.users is not None and log.full > MOST_FULL * log.users:
        warnings.warn(
            f"{log.full:,} of {log.users:,} users have no reward left: the log has used up their cap of "
            f"{made.options.protects.cap}. Nothing they do later is learned, or measured in a shadow. "
            "Give a larger cap, or fewer rows",
            LogWarning,
            stacklevel=2,
        )
    if bandit.claim.status != "none" and bandit.claim.delta * log.learned > 1:
        warnings.warn(
            f"delta = {bandit.claim.delta:g} is above 1/{log.learned:,}, one over the number of "
            "logged rewards: too large to protect people (it would allow publishing one random reward "
            "in the clear)",
            PrivacyWarning,
            stacklevel=2,
        )
    started: Bandit = bandit
    return started


def learn_log(
    bandit: Any,
    source: Source,
    columns: Columns,
    *,
    sample: Matrix,
    missing_reward: float | None = None,
    workers: int | None = None,
    cluster: str | Place | None = None,
    progress: Progress | None = None,
    least_used: float = 0.0,
) -> Log:
    """Read the log into a bandit that has learned nothing yet.

    Until the last step nothing is released, and the bandit stays unchanged.
    """
    ready = enter.check(bandit)
    unit = ready.options.protects
    if unit.needs_user and columns.user is None:
        raise OptionError(
            f"the unit of privacy is {ready.options.unit_in_words}: name the log's column of "
            "users, user=..."
        )
    if unit.cap is not None and unit.cap >= 2**31:
        raise OptionError(f"a log's users are counted up to 2**31 - 1, not to {unit.cap}")
    if missing_reward is not None and not np.isfinite(missing_reward):
        raise OptionError(f"missing_reward must be a finite number, not {missing_reward!r}")
    tolerance = SINGLE_TOLERANCE if columns.single else NORM_TOLERANCE
    start = enter.prepare(ready, sample, tolerance)
    tally: Tally | Persons | None = None if unit.cap is None else Tally(unit.cap)
    steps = None
    if isinstance(unit, Person):
        tally = persons_of(unit, ready.options.width, ready.design.reward_bits)
        steps = tally.steps
    seen = spread.adding_up(lambda rows: progress(rows, source.rows or 0) if progress else None)
    reading = Reading(columns, start.recipe, missing_reward, steps)
    with spread.over(cluster, workers) as place:
        sums = scan_all(place, source, reading, tally=tally, seen=seen)
    usable = sums.learned + int(sums.counts[OVER_CAP])
    if usable < least_used * sums.rows:
        raise LogError(
            f"only {usable:,} of {sums.rows:,} rows can be learned from, and least_used = "
            f"{least_used:g}: {enter.why_left_out(sums)}. Nothing was released"
        )
    return enter.enter(ready, start, sums, None if tally is None else tally.people())


def peek(source: Source, columns: Columns, max_norm: float) -> Matrix:
    """Some contexts from all over the log: the heads of up to 16 parts.

    Contexts are public; no reward is looked at.
    """
    found = []
    last = len(source.parts) - 1
    chosen = sorted({i * last // (PEEKS - 1) for i in range(PEEKS)}) if source.parts else []
    per_part = PEEK * PEEKS // max(len(chosen), 1)
    check = Recipe(backend_for(None, ()), columns.dim, max_norm, SINGLE_TOLERANCE, whole=False)
    for number in chosen:
        left = per_part
        part = source.parts[number]
        heads = part.batches(list(columns.context), numbers=columns.numbers, texts=columns.texts)
        for batch in heads:
            status = np.zeros(min(left, batch.num_rows), dtype=np.uint8)
            contexts = contexts_of(batch.slice(0, left), columns, status)
            inspect(contexts, status, check)
            found.append(contexts[status == GOOD])
            left -= batch.num_rows
            if left <= 0:
                break
    if not found:
        raise LogError("the log has no rows")
    sample = np.concatenate(found)
    if len(sample) == 0:
        raise LogError(
            f"no context of at most norm {max_norm:g} was found at the heads of the log's parts: "
            "scale the contexts, or give a larger max_norm"
        )
    return sample
