"""From rows of a log to rounds: what was on offer, what was shown, with which probability, what came.

A log is a table (Parquet, CSV, Arrow, a frame), an iterable of records, or arrays by name. It is gone
through once, and no more than a batch of it is in memory. Rows that cannot be used are counted by kind.
Rewards decide nothing here: whether a row is used is public.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from dpbandit.encoder import Category, Encoder
from dpbandit.encoder.features import plain, text_of
from dpbandit.errors import DpbanditError, LogError, OptionError, ShapeError, nearest
from dpbandit.frames import array_of, is_frame
from dpbandit.types import Matrix, Vector
from dpbandit.warmstart.source import check_user, open_log, texts_of, user_of

NO_REWARD, NO_ACTION = "reward missing", "what was shown is missing, or was not on offer"
NO_USER, NO_PROPENSITY = "user missing", "propensity missing, or not above 0 and at most 1"
NO_CONTEXT = "contexts missing, or of another shape"
SLATES = 4_096  # encoded slates that are kept
HEAD = 1_024  # rounds whose contexts are looked at once more


class Round(NamedTuple):
    """One row of a log that can be used."""

    contexts: Matrix
    action: int
    propensity: float
    reward: float
    user: str | None


Show = Callable[[Sequence[Any]], tuple[Matrix, int] | None]


@dataclass
class Rounds:
    """A log as rounds; `rows` and `bad` count what was read, once the rounds were gone through."""

    values: Iterator[Sequence[Any]]
    show: Show
    places: dict[str, int]  # of reward, propensity and user among a row's values
    total: int  # rows, or 0 if nobody knows
    missing_reward: float | None = None
    rows: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    head: list[Vector] = field(default_factory=list)  # contexts of what was shown first

    def __iter__(self) -> Iterator[Round]:
        for values in self.values:
            self.rows += 1
            found = self._round(values)
            if isinstance(found, str):
                self.bad[found] += 1
                continue
            if len(self.head) < HEAD:
                self.head.append(found.contexts[found.action].copy())
            yield found

    def _round(self, values: Sequence[Any]) -> Round | str:
        at = self.places
        reward = values[at["reward"]]
        if _missing(reward):
            if self.missing_reward is None:
                return NO_REWARD
            reward = self.missing_reward
        user = None
        if "user" in at:
            user = user_of(values[at["user"]])
            if user is None:
                return NO_USER
        shown = self.show(values)
        if shown is None:
            return NO_ACTION
        contexts, action = shown
        if contexts.ndim != 2 or not len(contexts):
            return NO_CONTEXT
        propensity = 1.0 / len(contexts)
        if "propensity" in at:
            propensity = _propensity(values[at["propensity"]])
            if not 0 < propensity <= 1:
                return NO_PROPENSITY
        try:
            number = float(reward)
        except (TypeError, ValueError):
            raise LogError(f"rewards must be numbers, not {type(reward).__name__}") from None
        except OverflowError:  # an error would tell of it: it counts as one that is no number
            number = math.nan
        return Round(contexts, action, propensity, number, user)


def _propensity(value: Any) -> float:
    try:
        return math.nan if _missing(value) else float(value)
    except (TypeError, ValueError):
        raise LogError(f"propensities must be numbers, not {type(value).__name__}") from None


def _missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def open_rounds(
    log: Any,
    *,
    action: str,
    reward: str,
    propensity: str | None,
    user: str | None,
    offered: str | None,
    contexts: str,
    items: Any,
    encoder: Encoder | None,
    missing_reward: float | None,
) -> Rounds:
    """The rounds of a log, its columns found by name; LogError or OptionError if they are not there."""
    names: list[str] = []

    def place(name: str) -> int:
        if name in names:
            raise OptionError(f"one column is asked for twice: {name!r}")
        names.append(name)
        return len(names) - 1

    show: Show
    if encoder is not None:
        person = encoder.person_fields
        catalogue = _catalogue(items, encoder, action)
        places = [place(name) for name in person]
        acted = person.index(action) if action in person else place(action)
        listed = None if offered is None else place(offered)
        show = _Encoded(encoder, catalogue, action, person, places, acted, listed)
    elif items is not None:
        if offered is not None:
            raise OptionError("offered=... needs an encoder, whose items have names")
        show = _Fixed(array_of(items, "items"), place(action))
    else:
        show = _Given(place(contexts), place(action))
    more = {"reward": reward, "propensity": propensity, "user": user}
    at = {kind: place(name) for kind, name in more.items() if name is not None}
    numbers = [name for name in (reward, propensity) if name is not None]
    texts = {} if encoder is None else texts_of(encoder)
    if isinstance(show, _Encoded):
        texts[action] = frozenset(show.index)
    values, total = _values(log, names, numbers, texts, user)
    return Rounds(values, show, at, total, missing_reward)


def _values(
    log: Any,
    names: list[str],
    numbers: list[str],
    texts: dict[str, frozenset[str]],
    user: str | None,
) -> tuple[Iterator[Sequence[Any]], int]:
    """The values of these columns, row by row; and how many rows there are, or 0."""
    if isinstance(log, Mapping):
        columns = [_entry(log, name) for name in names]
        lengths = {name: len(column) for name, column in zip(names, columns, strict=True)}
        if len(set(lengths.values())) > 1:
            raise ShapeError(f"the arrays of a log must have one length, not {lengths}")
        return zip(*columns, strict=True), len(columns[0])
    tables = is_frame(log) or isinstance(log, (str, list, tuple)) or hasattr(log, "__fspath__")
    if isinstance(log, (list, tuple)) and log and isinstance(log[0], Mapping):
        return ([_entry(row, name) for name in names] for row in log), len(log)
    if not tables and not hasattr(log, "read_next_batch"):
        if not isinstance(log, Iterable):
            raise LogError(
                "a log is a path, a frame, a stream of Arrow, records, or arrays by name, not "
                f"{type(log).__name__}"
            )
        return ([_entry(row, name) for name in names] for row in log), 0
    source = open_log(log, numbers)
    for name in names:
        if source.schema.names.count(name) != 1:
            raise LogError(f"the log has no column {name!r}: {nearest(name, source.schema.names)}")
    if user is not None and not check_user(source, user):
        texts = {**texts, user: frozenset()}
    parts = (part.batches(names, numbers=numbers, texts=texts) for part in source.parts)
    batches = chain.from_iterable(parts)
    rows = (zip(*(c.to_pylist() for c in batch.columns), strict=True) for batch in batches)
    return chain.from_iterable(rows), source.rows or 0


def _entry(row: Any, name: str) -> Any:
    try:
        return row[name]
    except KeyError:
        raise LogError(f"the log has no {name!r}: {nearest(name, map(str, row))}") from None
    except (TypeError, IndexError):
        raise LogError(f"a record of a log has names, not {type(row).__name__}") from None


def _catalogue(items: Any, encoder: Encoder, action: str) -> list[dict[str, Any]]:
    """All that can be shown, as records with the encoder's fields of the item and the name."""
    fields = encoder.item_fields
    if not fields:
        raise OptionError("no field describes what is shown: give the encoder item=[...]")
    if items is None:
        known = encoder.features.get(action)
        if fields != (action,) or not isinstance(known, Category):
            raise OptionError(
                "items=[...] is missing: all that can be shown, a record each, with "
                f"{', '.join(dict.fromkeys((action, *fields)))}"
            )
        return [{action: text} for text in known.known]
    records = items.to_pylist() if hasattr(items, "to_pylist") else items
    for method in ("to_dicts", "to_dict"):  # polars', pandas'
        if is_frame(records) and hasattr(records, method):
            records = records.to_dicts() if method == "to_dicts" else records.to_dict("records")
    if isinstance(records, (str, bytes)) or not isinstance(records, Sequence):
        raise OptionError("items must be a list of records, or a frame")
    return [{name: _entry(row, name) for name in (action, *fields)} for row in records]


class _Encoded:
    """Rows of a table: fields of the person, and the name of what was shown."""

    def __init__(
        self,
        encoder: Encoder,
        items: list[dict[str, Any]],
        action: str,
        person: tuple[str, ...],
        places: list[int],
        acted: int,
        listed: int | None,
    ) -> None:
        names = [text_of(item[action]) for item in items]
        if len(set(names)) < len(items) or None in names or not items:
            raise OptionError(f"every item needs its own {action!r}, and none may be missing")
        self.index = {plain(name): i for i, name in enumerate(names) if name is not None}
        self.index |= {name: i for i, name in enumerate(names) if name is not None}
        self.encoder, self.person, self.places = encoder, person, places
        self.items = [{name: item[name] for name in encoder.item_fields} for item in items]
        self.acted, self.listed = acted, listed
        self.all = encoder.slate(self.items)
        self.kept: dict[tuple[int, ...], Any] = {}

    def __call__(self, values: Sequence[Any]) -> tuple[Matrix, int] | None:
        chosen = self._at(values[self.acted])
        if chosen is None:
            return None
        slate, action = self.all, chosen
        if self.listed is not None:
            offered = values[self.listed]
            if not isinstance(offered, (list, tuple, np.ndarray)):
                return None
            here = tuple(self._at(name) for name in offered)
            if None in here or chosen not in here or len(set(here)) < len(here):
                return None
            slate, action = self._slate(here), here.index(chosen)  # type: ignore[arg-type]
        record = dict(zip(self.person, (values[at] for at in self.places), strict=True))
        return slate.contexts(record), action

    def _at(self, name: Any) -> int | None:
        try:
            text = text_of(name)
        except DpbanditError:
            return None
        if text is None:
            return None
        found = self.index.get(text)
        return self.index.get(plain(text)) if found is None else found

    def _slate(self, here: tuple[int, ...]) -> Any:
        found = self.kept.get(here)
        if found is None:
            found = self.all.subset(here)
            if len(self.kept) < SLATES:
                self.kept[here] = found
        return found


class _Fixed:
    """The same contexts in every round; actions are numbers of rows."""

    def __init__(self, items: Matrix, acted: int) -> None:
        if items.ndim != 2 or not len(items):
            raise ShapeError(f"items must have shape (arms, dim), not {items.shape}")
        self.items, self.acted = items, acted

    def __call__(self, values: Sequence[Any]) -> tuple[Matrix, int] | None:
        return _numbered(self.items, values[self.acted])


class _Given:
    """Contexts of its own in every row; actions are numbers of rows."""

    def __init__(self, at: int, acted: int) -> None:
        self.at, self.acted = at, acted

    def __call__(self, values: Sequence[Any]) -> tuple[Matrix, int] | None:
        given = values[self.at]
        return None if given is None else _numbered(array_of(given, "contexts"), values[self.acted])


def _numbered(contexts: Matrix, action: Any) -> tuple[Matrix, int] | None:
    whole = isinstance(action, (int, np.integer)) and not isinstance(action, bool)
    # pandas writes 1.0 for 1 where another row's is missing.
    whole |= isinstance(action, float) and action.is_integer()
    if not whole or not 0 <= action < len(contexts):
        return None
    return contexts, int(action)
