"""Turns JSON features into contexts with norm ≤ 1, by the bandit's encoder or, without one, by
hashing them into its columns. Nothing is fitted, and no reward is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.encoder import Encoder
from dpbandit.errors import OptionError, nearest
from dpbandit.model import ReleasedModel
from dpbandit.types import Matrix

Pairs = list[tuple[str, Any]]

DEEPEST = 8
MOST_FEATURES = 1_000  # of a context, or of an action
MOST_NODES = 10_000  # of either: what holds no feature is looked at too
MOST_PRODUCTS = 1_000_000  # of both, over all actions of a request
# Features, and products, that become contexts at a time: a few milliseconds of work.
LOT, LOT_PRODUCTS = 1_000, 100_000
# So much of a name is repeated in an error.
QUOTED = 64

# What an encoder calls the ids that stand beside the features.
ACTION, SLOT = "id", "slot"
# Before a declared name, where features of the context and of actions have the same one.
OF_CONTEXT, OF_ACTION = "context.", "action."

_U64 = NDArray[np.uint64]
_Tokens = tuple[_U64, NDArray[np.float64]]  # hashes, and the numbers that go with them
# Odd constants of splitmix64 (Steele, Lea & Flood 2014): two hashes become a third, well mixed.
_ODD, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


def flat(features: list[Any] | None, where: str) -> Pairs:
    """Nested objects as (path, value) pairs: `{"user": {"age": 3}}` is ("user.age", 3).

    >>> flat([{"user": {"age": 3}}, {"likes": ["tea", "jam"]}], "the context")
    [('user.age', 3), ('likes', 'tea'), ('likes', 'jam')]
    """
    found: Pairs = []
    nodes = 0
    for one in features or []:
        if not isinstance(one, dict):
            raise OptionError(f"the features of {where} are a list of objects")
        for path, value in _walk("", one, DEEPEST, where):
            nodes += 1
            if value is not None:
                found.append((path, value))
            if len(found) > MOST_FEATURES or nodes > MOST_NODES:
                raise OptionError(f"{where} has more than the {MOST_FEATURES:,} features allowed")
    return found


def _walk(path: str, value: Any, deeper: int, where: str) -> Iterator[tuple[str, Any]]:
    """All that is in a value, and None for what holds others or nothing."""
    if deeper < 0:
        raise OptionError(f"the features of {where} are nested deeper than {DEEPEST}")
    if isinstance(value, dict | list):
        yield path, None
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _walk(f"{path}.{name}" if path else name, inner, deeper - 1, where)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            numbered = isinstance(inner, int | float) and not isinstance(inner, bool)
            yield from _walk(f"{path}[{at}]" if numbered else path, inner, deeper - 1, where)
    else:
        yield path, value


def contexts_in_lots(
    model: ReleasedModel, person: Pairs, actions: list[tuple[str, Pairs]], slot: str | None = None
) -> Iterator[Matrix]:
    """A row for each action (its id and features), for this context and, if there is one, slot. A
    few rows at a time: in between others can have their turn."""
    if model.encoder is not None:
        return _declared(model.encoder, person, actions, slot)
    return _hashed(model.dim, person, actions, slot)


def _lots(actions: list[tuple[str, Pairs]], most: int) -> Iterator[tuple[int, int]]:
    """Stretches of actions that have about so many features."""
    start, size = 0, 0
    for end, (_, features) in enumerate(actions, 1):
        size += 1 + len(features)
        if size >= most or end == len(actions):
            yield start, end
            start, size = end, 0


# ---------------------------------------------------------------------- declared


def _declared(
    encoder: Encoder, person: Pairs, actions: list[tuple[str, Pairs]], slot: str | None
) -> Iterator[Matrix]:
    items = [name for name in encoder.features if name in set(encoder.item)]
    others = [name for name in encoder.features if name not in set(encoder.item)]
    own = {} if slot is None else {SLOT: slot}
    context = _record(others, person, own, "the context", OF_CONTEXT)
    for start, end in _lots(actions, LOT):
        rows = [
            _record(items, features, {ACTION: name}, f"action {number}", OF_ACTION)
            for number, (name, features) in enumerate(actions[start:end], start + 1)
        ]
        yield encoder.slate(rows).contexts(context)


def _record(
    names: list[str], pairs: Pairs, own: dict[str, str], where: str, whose: str
) -> dict[str, Any]:
    """What the encoder asks for; what is not there is missing, which has a place."""
    record: dict[str, Any] = dict.fromkeys(names)
    record |= {name: value for name, value in own.items() if name in record}
    told: set[str] = set()
    for name, value in pairs:
        if name not in record and f"{whose}{name}" in record:
            name = f"{whose}{name}"
        if name not in record:
            raise OptionError(
                f"{where} has a feature {name[:QUOTED]!r} that the bandit's encoder does not "
                f"declare: {nearest(name[:QUOTED], tuple(names))}; declare it, or omit it. If context "
                f"and actions share a name, declare it with {OF_CONTEXT} and {OF_ACTION} before it"
            )
        if name in told:
            raise OptionError(f"{where} has the feature {name!r} twice, but the encoder has one")
        told.add(name)
        record[name] = value
    return record


# ---------------------------------------------------------------------- hashed


def _hashed(
    dim: int, person: Pairs, actions: list[tuple[str, Pairs]], slot: str | None
) -> Iterator[Matrix]:
    """Every feature, every product of one of the context with one of the action, and a constant,
    each in a column by its hash and with a sign by its hash; then every row scaled to norm 1."""
    whose = _tokens("context", person, "" if slot is None else slot)
    # With each action its constant and its id.
    if len(whose[0]) * sum(2 + len(features) for _, features in actions) > MOST_PRODUCTS:
        raise OptionError(
            f"more than {MOST_PRODUCTS:,} products of features of the context with those of the "
            "actions: send fewer, or declare an encoder"
        )
    for start, end in _lots(actions, min(LOT, LOT_PRODUCTS // len(whose[0]))):
        rows = [_tokens("action", features, name) for name, features in actions[start:end]]
        yield _crossed(dim, whose, rows)


def _crossed(dim: int, whose: _Tokens, rows: list[_Tokens]) -> Matrix:
    every = np.concatenate([hashes for hashes, _ in rows])
    whose_row = np.repeat(np.arange(len(rows)), [len(hashes) for hashes, _ in rows])
    mixed = _mix(whose[0][:, None], every[None, :])
    weights = np.outer(whose[1], np.concatenate([values for _, values in rows]))
    weights[(mixed & np.uint64(1)).astype(bool)] *= -1.0
    places = whose_row * dim + ((mixed >> np.uint64(1)) % np.uint64(dim)).astype(np.int64)
    contexts = np.bincount(places.ravel(), weights.ravel(), len(rows) * dim).reshape(-1, dim)
    lengths = np.linalg.norm(contexts, axis=1, keepdims=True)
    return contexts / np.where(lengths > 0.0, lengths, 1.0)


def _mix(one: _U64, other: _U64) -> _U64:
    mixed = np.asarray(one * _ODD + (other ^ (other >> np.uint64(29))) * _MIX, dtype=np.uint64)
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MIX
    return mixed ^ (mixed >> np.uint64(29))


def _tokens(kind: str, pairs: Pairs, own: str) -> _Tokens:
    """A hash and a number for each feature; the first is the constant, which has neither name nor
    value. A text or a truth is 1 at its own place; a number v is v / (1 + |v|) at its name's."""
    hashes, values = [_hash(kind, "", "")], [1.0]
    if own:
        hashes.append(_hash(kind, f"{kind} id", own))
        values.append(1.0)
    for name, value in pairs:
        if isinstance(value, bool):
            hashes.append(_hash(kind, name, "true" if value else "false"))
            values.append(1.0)
        elif isinstance(value, str):
            hashes.append(_hash(kind, name, value))
            values.append(1.0)
        elif isinstance(value, int | float):
            number = float(max(min(value, 1e300), -1e300))
            hashes.append(_hash(kind, name, ""))
            values.append(number / (1.0 + abs(number)))
        else:
            raise OptionError(
                f"a feature is text, a number, or true or false; {name!r} is none of these"
            )
    return np.array(hashes, dtype=np.uint64), np.array(values)


def _hash(kind: str, name: str, value: str) -> int:
    text = f"{kind}\0{name}\0{value}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
