"""The features that an encoder declares: each maps a value to a place and a size.

A value becomes one place among `size` and one number between -1 and 1. This bounds the norm of a
context, so nothing here may return more. Bounds, categories and sizes are declared, so they reveal
nothing about the data.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from dpbandit.errors import OptionError

MISSING = ("NAType", "NaTType")  # pandas' own types for missing values
LARGEST = 1_000_000


@dataclass(frozen=True)
class Number:
    """A number between public bounds, scaled to -1 … 1.

    Values outside are clipped; a missing value becomes the middle.

    >>> Number(0, 100).place(75.0), Number(0, 100).place(1e9), Number(0, 100).place(None)
    ((0, 0.5), (0, 1.0), (0, 0.0))
    """

    low: float
    high: float
    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        bounds = (self.low, self.high)
        if not all(isinstance(v, Real) and not isinstance(v, bool) for v in bounds):
            raise OptionError(f"bounds of a number must be numbers, not {bounds!r}")
        width = float(self.high) - float(self.low)
        if not (self.low < self.high and math.isfinite(width)):
            raise OptionError(f"bounds of a number must be finite, low < high, not {bounds!r}")
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))

    @property
    def size(self) -> int:
        return 1

    def names(self) -> list[str]:
        return [""]

    def place(self, value: Any) -> tuple[int, float]:
        if value is None or type(value).__name__ in MISSING:
            return 0, 0.0
        if not isinstance(value, (Real, Decimal, np.bool_)):
            raise OptionError(f"a number is needed, not {type(value).__name__}{advice(value)}")
        low, high = self.low, self.high
        if isinstance(value, Decimal) and value.is_nan():
            return 0, 0.0
        try:
            number = float(value)
        except OverflowError:  # a whole number beyond all floats
            number = high if value >= 0 else low  # type: ignore[operator]
        if number != number:
            return 0, 0.0
        share = (min(max(number, low), high) - low) / (high - low)
        return 0, min(max(2.0 * share - 1.0, -1.0), 1.0)


@dataclass(frozen=True)
class Category:
    """One of a few known texts. All other and missing values share a last place.

    >>> Category(["de", "fr"]).place("fr"), Category(["de", "fr"]).place("Narnia")
    ((1, 1.0), (2, 1.0))
    """

    known: tuple[str, ...]
    kind: ClassVar[str] = "category"

    def __init__(self, known: Sequence[Any]) -> None:
        for method in ("tolist", "to_list"):  # of what `unique` returns: NumPy, pandas, polars
            if not isinstance(known, Sequence) and hasattr(known, method):
                known = getattr(known, method)()
        if isinstance(known, str) or not isinstance(known, Sequence) or len(known) == 0:
            raise OptionError(f"a category needs a list of its known values, not {known!r}")
        texts = tuple(text_of(value) for value in known)
        if None in texts or len(set(texts)) < len(texts):
            raise OptionError(
                "the known values of a category must differ, and none may be missing: missing values "
                "have a place anyway"
            )
        object.__setattr__(self, "known", texts)
        places = {plain(text): (i, 1.0) for i, text in enumerate(texts)}  # type: ignore[arg-type]
        places |= {text: (i, 1.0) for i, text in enumerate(texts)}  # type: ignore[misc]
        object.__setattr__(self, "_places", places)
        object.__setattr__(self, "_unseen", (len(texts), 1.0))

    @property
    def size(self) -> int:
        return len(self.known) + 1

    def names(self) -> list[str]:
        return [*(f"={text}" for text in self.known), "=(other)"]

    def place(self, value: Any) -> tuple[int, float]:
        text = value if type(value) is str else text_of(value)
        found = self._places.get(text)  # type: ignore[attr-defined]
        if found is None and text is not None:
            found = self._places.get(plain(text))  # type: ignore[attr-defined]
        return self._unseen if found is None else found  # type: ignore[attr-defined,no-any-return]


@dataclass(frozen=True)
class Hashed:
    """Any text, such as an id, in one of `places` by its hash. Missing values have a last place.

    The hash is BLAKE2b of the UTF-8 text (17 for 17.0) with a digest of 8 bytes, read as a little-endian number,
    modulo `places`: the same in every process, on every machine, and in other languages. It hides
    nobody: anyone with the ids can compute it.

    >>> Hashed(64).place("article 17") == Hashed(64).place("article 17")
    True
    """

    places: int
    kind: ClassVar[str] = "hashed"

    def __post_init__(self) -> None:
        if (
            not isinstance(self.places, Integral)
            or isinstance(self.places, bool)
            or self.places < 1
        ):
            raise OptionError(f"a hash needs a whole number of places, not {self.places!r}")
        object.__setattr__(self, "places", int(self.places))

    @property
    def size(self) -> int:
        return self.places + 1

    def names(self) -> list[str]:
        return [*(f"#{i}" for i in range(self.places)), "=(missing)"]

    def place(self, value: Any) -> tuple[int, float]:
        text = value if type(value) is str else text_of(value)
        if text is None:
            return self.places, 1.0
        text = plain(text) if text.endswith(".0") else text
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self.places, 1.0


Feature = Number | Category | Hashed
KINDS: dict[str, type[Feature]] = {"number": Number, "category": Category, "hashed": Hashed}


def text_of(value: Any) -> str | None:
    """A value as text; None if it is missing. 17, 17.0 and "17" are the same.

    >>> [text_of(v) for v in (17, 17.0, "17", True, None, float("nan"))]
    ['17', '17', '17', 'true', None, None]
    """
    if isinstance(value, str):
        return str(value)
    if value is None or type(value).__name__ in MISSING:
        return None
    if type(value).__name__ in ("bool", "bool_"):
        return "true" if value else "false"
    if isinstance(value, Integral):
        return str(int(value))  # exact, even where no float is
    if isinstance(value, Decimal):
        if value.is_nan():
            return None
        if value.is_finite() and value == value.to_integral_value():
            return str(int(value))
    if isinstance(value, (Real, Decimal)):
        number = float(value)
        if number != number:
            return None
        return str(int(number)) if number.is_integer() else repr(number)
    raise OptionError(f"a category is text or a number, not {type(value).__name__}{advice(value)}")


def advice(value: Any) -> str:
    """What to do with a value of a kind that no field takes, if it is a usual one."""
    if isinstance(value, timedelta):
        return ": give its seconds or days"
    if isinstance(value, (date, time)):
        return ": give its hour, weekday or year, as a field of its own"
    if isinstance(value, (list, tuple, np.ndarray)):
        return ": a record has one value for each field"
    if isinstance(value, str):
        return ": convert the column to numbers first"
    return ""


def plain(text: str) -> str:
    """A text as `text_of` writes its value: files hold whole numbers as 17.0, and truths as True.

    >>> [plain(text) for text in ("17.0", "-3.0", "True", "FALSE", "007", "1.0.0", "v1.0", "de")]
    ['17', '-3', 'true', 'false', '007', '1.0.0', 'v1.0', 'de']
    """
    if text in ("True", "TRUE", "False", "FALSE"):
        return text.lower()
    whole = text.removesuffix(".0")
    return whole if whole.removeprefix("-").isdecimal() and whole.isascii() else text


def to_record(feature: Feature) -> dict[str, Any]:
    """Ready for JSON."""
    return {"kind": feature.kind, **asdict(feature)}


def from_record(record: dict[str, Any]) -> Feature:
    """The feature of a record, or an error."""
    given = dict(record)
    kind = given.pop("kind", None)
    if kind not in KINDS:
        raise OptionError(f"a feature is one of {', '.join(KINDS)}, not {kind!r}")
    if "known" in given:
        given["known"] = list(given["known"])
    try:
        return KINDS[kind](**given)
    except TypeError as error:
        raise OptionError(f"a {kind} that cannot be read: {error}") from None
