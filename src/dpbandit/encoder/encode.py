"""`dpb.Encoder`: turn records with texts and numbers into contexts with norm ≤ 1.

A context is a row of blocks: an intercept, one block per feature, one per cross. A block has at
most one non-zero number, between -w and w, where w² times the number of blocks is at most 1. So no
record makes a context longer than 1, and nothing is fitted to private data. Nothing here may read
rewards.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpbandit.encoder import features as kinds
from dpbandit.encoder.features import Category, Feature, Hashed, Number
from dpbandit.errors import OptionError, SaveError, ShapeError, nearest
from dpbandit.frames import frame, is_frame
from dpbandit.types import Matrix, Vector

FORMAT = 1
# A bound on blocks: their squares, added up in floats in any order, are then off by less than SLACK
# leaves (2 · 2⁻⁴⁰ against 1,000 · 2⁻⁵³).
MOST_BLOCKS = 1_000
SLACK = 1.0 - 2.0**-40
MANY = 0.25  # of rows with no known category: perhaps they are spelt in another way
LARGEST = 100_000  # columns; no private bandit learns that many
DECLARED, FROM_PUBLIC = "declared", "read from public data"
READ = (
    "the encoder's bounds and categories were read from data that are public: of the people in them "
    "this claim protects nobody from that"
)


class Encoder:
    """Turns records into contexts, by declared features. Norms are at most 1 for every record.

    Parameters
    ----------
    features : dict of str to Number, Category or Hashed
        The fields of a record. `Number(low, high)` has public bounds, `Category([...])` known
        values; `Hashed(places)` takes any text.
    crosses : list of tuples of str, optional
        Fields whose products are also features, such as ("country", "article").
    item : list of str, optional
        Fields that describe the item; the others describe the person.
    per_arm : str, optional
        A field of the item. Every field of the person is crossed with it, so each arm has its own
        weights and intercept.
    intercept : bool, default True
        Add a constant feature.
    private : list of str, optional
        Fields that the claim must protect. `dpb.make` then refuses algorithms with public contexts,
        and passes the columns as `private_features` if an algorithm has that option.

    Notes
    -----
    Fields are found by name, and a record must have exactly the declared ones: a missing or unknown
    field is an error. Unseen and missing categories have their own place. An encoder works as a
    scikit-learn transformer; `fit` checks only the names.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> encoder = dpb.Encoder(
    ...     {"age": dpb.Number(0, 100), "article": dpb.Category(["a", "b"])},
    ...     crosses=[("age", "article")], item=["article"],
    ... )
    >>> encoder.dim
    8
    >>> encoder.slate([{"article": "a"}, {"article": "b"}]).contexts({"age": 40}).shape
    (2, 8)
    """

    _fixed = False

    def __init__(
        self,
        features: Mapping[str, Feature],
        *,
        crosses: Sequence[Sequence[str]] = (),
        item: Sequence[str] = (),
        per_arm: str | None = None,
        intercept: bool = True,
        private: Sequence[str] = (),
        source: str = DECLARED,
    ) -> None:
        self.features = features
        self.crosses = crosses
        self.item = item
        self.per_arm = per_arm
        self.intercept = intercept
        self.private = private
        self.source = source
        self._build()

    def _build(self) -> None:
        if not isinstance(self.features, Mapping) or not self.features:
            raise OptionError("an encoder needs features: {'age': dpb.Number(0, 100), ...}")
        for name, feature in self.features.items():
            if not isinstance(name, str) or not isinstance(feature, Feature):
                raise OptionError(
                    f"{name!r} must be a name with a Number, Category or Hashed, not {feature!r}"
                )
        fields = tuple(self.features)
        for names in (self.item, self.private, *self.crosses):
            if isinstance(names, str):
                raise OptionError(f"a list of names is needed, not {names!r}")
            for name in names:
                if name not in self.features:
                    raise OptionError(f"no feature is called {name!r}: {nearest(name, fields)}")
        crosses = [tuple(cross) for cross in self.crosses]
        if self.per_arm is not None:
            if self.per_arm not in self.item:
                raise OptionError(f"per_arm must be a field of the item, not {self.per_arm!r}")
            crosses += [(f, self.per_arm) for f in fields if f not in self.item]
        crosses = list(dict.fromkeys(crosses))
        for cross in crosses:
            if len(set(cross)) < max(len(cross), 2):
                raise OptionError(f"a cross needs two or more different fields, not {cross!r}")
        self._fields = fields
        self._blocks = [*([()] if self.intercept else []), *((f,) for f in fields), *crosses]
        if len(self._blocks) > MOST_BLOCKS:
            raise OptionError(f"at most {MOST_BLOCKS} blocks, not {len(self._blocks)}")
        self._starts, end = [], 0
        for block in self._blocks:
            self._starts.append(end)
            end += math.prod(self.features[name].size for name in block)
        if end > LARGEST:
            raise OptionError(
                f"{end:,} columns exceed {LARGEST:,}: hash into fewer places, or cross fewer fields"
            )
        self.dim = end
        self.weight = math.sqrt(1.0 / len(self._blocks)) * SLACK
        self.item_fields = tuple(f for f in fields if f in set(self.item))
        self.person_fields = tuple(f for f in fields if f not in set(self.item))

    @classmethod
    def from_public(
        cls, data: Any, *, hashed: Mapping[str, int] | None = None, **options: Any
    ) -> Encoder:
        """An encoder with bounds and categories read from public data.

        People in these data are not protected: the smallest and largest numbers and all categories
        become public. The encoder (`source`) and the claims of its bandits say so. The contexts of a
        log are public where only rewards are protected. There is no private fit: where the claim
        protects contexts, declare the fields, and hash what you cannot list.

        Parameters
        ----------
        data : frame, or list of records
            Public data, with exactly the fields to encode.
        hashed : dict of str to int, optional
            Fields to hash instead, with the number of places.
        **options
            Options of `Encoder`.
        """
        columns, names = _columns(data, None)
        declared: dict[str, Feature] = {}
        for name, values in zip(names, columns, strict=True):
            if hashed and name in hashed:
                declared[name] = Hashed(hashed[name])
                continue
            try:
                there = [v for v in values if kinds.text_of(v) is not None]
            except OptionError as error:
                raise OptionError(f"{name!r}: {error}") from None
            if not there:
                raise OptionError(f"the public data have no values in {name!r}: declare it")
            if any(isinstance(v, str) or type(v).__name__ in ("bool", "bool_") for v in there):
                declared[name] = Category(sorted({str(kinds.text_of(v)) for v in there}))
            else:
                declared[name] = Number(float(min(there)), float(max(there)))
        return cls(declared, source=FROM_PUBLIC, **options)

    # ------------------------------------------------------------ records in, contexts out

    def transform(self, records: Any) -> Any:
        """Contexts: one row per record with the fields of person and item.

        Parameters
        ----------
        records : list of dicts, JSON text of one, frame of pandas, polars or Arrow, or array
            Fields are found by name. Columns of an array must be in the declared order.

        Returns
        -------
        array of shape (records, dim)
            Or a frame, after `set_output`.
        """
        contexts = self.contexts(records)
        kind = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        if kind == "default":
            return contexts
        found = frame(dict(zip(self.get_feature_names_out(), contexts.T, strict=True)), kind)
        if kind == "pandas" and hasattr(records, "index") and is_frame(records):
            found.index = records.index
        return found

    def contexts(self, records: Any) -> Matrix:
        """`transform`, always as an array."""
        columns, _ = _columns(records, self._fields)
        count = len(columns[0])
        places: dict[str, NDArray[np.int64]] = {}
        values: dict[str, NDArray[np.float64]] = {}
        for name, column in zip(self._fields, columns, strict=True):
            found = [self._place(name, value) for value in column]
            places[name] = np.array([p for p, _ in found], dtype=np.int64)
            values[name] = np.array([v for _, v in found], dtype=np.float64)
        contexts = np.zeros((count, self.dim))
        rows = np.arange(count)
        for start, block in zip(self._starts, self._blocks, strict=True):
            at, value = np.full(count, 0, dtype=np.int64), np.full(count, self.weight)
            for name in block:
                at = at * self.features[name].size + places[name]
            # In the same order as in `Slate`, so that both give the same bits.
            for name in (
                *(n for n in reversed(block) if n in self.item_fields),
                *self.person_fields,
            ):
                value = value * values[name] if name in block else value
            contexts[rows, start + at] = value
        return contexts

    def slate(self, items: Any) -> Slate:
        """Encode the items on offer once; `slate.contexts(person)` is then quick."""
        return Slate(self, items)

    def _place(self, name: str, value: Any) -> tuple[int, float]:
        try:
            return self.features[name].place(value)
        except OptionError as error:
            raise OptionError(f"{name!r}: {error}") from None

    # ------------------------------------------------------------ what it says of itself

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """The columns' names, in order. Crosses have × between their parts."""
        if input_features is not None and tuple(input_features) != self._fields:
            raise ShapeError(f"the fields are {list(self._fields)}, not {list(input_features)}")
        found: list[str] = []
        for block in self._blocks:
            parts = [[f"{name}{part}" for part in self.features[name].names()] for name in block]
            found += [" × ".join(parts) or "(intercept)" for parts in product(*parts)]
        return np.array(found, dtype=object)

    @property
    def read(self) -> bool:
        """Whether anything in it was read from data."""
        return self.source != DECLARED

    @property
    def private_columns(self) -> list[int]:
        """The columns that involve a private field."""
        found: list[int] = []
        ends = [*self._starts[1:], self.dim]
        for block, start, end in zip(self._blocks, self._starts, ends, strict=True):
            if set(block) & set(self.private):
                found += range(start, end)
        return found

    @property
    def ranks_no_arms(self) -> list[str]:
        """Private fields of the person that are in no cross with the item: the same for all arms.

        >>> fields = {"age": Number(0, 100), "zip": Hashed(4), "article": Hashed(8)}
        >>> given = {"item": ["article"], "private": ["age", "zip"]}
        >>> Encoder(fields, **given, crosses=[("zip", "article")]).ranks_no_arms
        ['age']
        """
        beside = {f for block in self._blocks if set(block) & set(self.item) for f in block}
        return [f for f in self.private if self.item and f not in beside]

    def doubt(self, contexts: Sequence[Vector] | Matrix) -> str:
        """A warning if many of these contexts have none of the known categories of a field; or ""."""
        rows, found = np.asarray(contexts), []
        for block, start in zip(self._blocks, self._starts, strict=True):
            feature = self.features[block[0]] if len(block) == 1 else None
            if isinstance(feature, Category) and len(rows):
                share = float(np.mean(rows[:, start + len(feature.known)] != 0))
                found += [f"{block[0]!r} in {share:.0%}"] if share > MANY else []
        if not found:
            return ""
        return (
            f"rows where a category is missing, or none of those declared: {', '.join(found)} of the "
            "rows looked at. Are they spelt alike? 007 is not 7"
        )

    def to_record(self) -> dict[str, Any]:
        """The whole declaration, ready for JSON; public."""
        return {
            "format": FORMAT,
            "features": [[n, kinds.to_record(f)] for n, f in self.features.items()],
            "crosses": [list(cross) for cross in self.crosses],
            "item": list(self.item),
            "per_arm": self.per_arm,
            "intercept": self.intercept,
            "private": list(self.private),
            "source": self.source,
        }

    @classmethod
    def from_record(cls, record: Any) -> Encoder:
        """The encoder of a record, or SaveError."""
        try:
            given = dict(record)
            if given.pop("format") != FORMAT:
                raise SaveError(f"the encoder has a format other than {FORMAT}")
            declared = {n: kinds.from_record(f) for n, f in given.pop("features")}
            return cls(declared, **given)
        except (KeyError, TypeError, OptionError) as error:
            raise SaveError(f"not an encoder that can be read: {error}") from error
        except ValueError as error:
            raise error if isinstance(error, SaveError) else SaveError(str(error)) from error

    def fixed(self) -> Encoder:
        """An unchangeable copy for a bandit to keep."""
        found = Encoder.from_record(self.to_record())
        found._fixed = True
        return found

    def save(self, path: str | Path) -> None:
        """Write the declaration as JSON: public."""
        Path(path).write_text(json.dumps(self.to_record(), indent=1))

    @classmethod
    def load(cls, path: str | Path) -> Encoder:
        """Read an encoder that `save` wrote, or raise SaveError."""
        try:
            return cls.from_record(json.loads(Path(path).read_text()))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise SaveError(f"{path} is not an encoder that can be read: {error}") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoder) and self.to_record() == other.to_record()

    def __hash__(self) -> int:
        # Equal encoders need equal hashes, and `set_params` changes what is equal. scikit-learn puts
        # its steps into sets.
        return hash(Encoder)

    def __repr__(self) -> str:
        hidden = f", {', '.join(self.private)} private" if self.private else ""
        words = f"{len(self._fields)} fields, {len(self.crosses)} crosses, {self.dim} columns"
        return f"<Encoder of {words}{hidden}; {self.source}>"

    # ------------------------------------------------------------ scikit-learn

    def fit(self, X: Any = None, y: Any = None) -> Encoder:
        """Check the names. It learns nothing: the declaration is complete."""
        del y
        if X is not None:
            _columns(X, self._fields)
        self.feature_names_in_ = np.array(self._fields, dtype=object)
        self.n_features_in_ = len(self._fields)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """`fit` and `transform`."""
        return self.fit(X, y).transform(X)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The declaration, as keywords."""
        del deep
        names = ("features", "crosses", "item", "per_arm", "intercept", "private", "source")
        return {name: getattr(self, name) for name in names}

    def set_params(self, **given: Any) -> Encoder:
        """Change the declaration, after checking all of it."""
        if self._fixed:
            raise OptionError(
                "this encoder belongs to a bandit, whose claim and columns follow from it: make "
                "another one, dpb.Encoder(**encoder.get_params())"
            )
        changed = Encoder(**{**self.get_params(), **given})
        self.__dict__.update(changed.__dict__)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(string=True, allow_nan=True, categorical=True),
            requires_fit=False,
        )

    def set_output(self, *, transform: str | None = None) -> Encoder:
        """What `transform` returns: an array ("default"), or a frame of "pandas" or "polars"."""
        if transform not in (None, "default", "pandas", "polars"):
            raise OptionError(f"the output is 'default', 'pandas' or 'polars', not {transform!r}")
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}  # which `clone` copies
        return self


def encoder_of(given: Any) -> Encoder | None:
    """An encoder or None, or an error."""
    if given is None or isinstance(given, Encoder):
        return given
    raise OptionError(
        f"encoder must be a dpb.Encoder, not {type(given).__name__}: a file is read by "
        "dpb.Encoder.load(path)"
    )


class Slate:
    """Items on offer, with everything that does not depend on the person computed once."""

    def __init__(self, encoder: Encoder, items: Any) -> None:
        if not encoder.item_fields:
            raise OptionError("no field describes the item: give the encoder item=[...]")
        columns, _ = _columns(items, encoder.item_fields)
        self.encoder, self.arms = encoder, len(columns[0])
        if self.arms == 0:
            raise ShapeError("a slate needs at least one item")
        found = {
            name: [encoder._place(name, value) for value in column]
            for name, column in zip(encoder.item_fields, columns, strict=True)
        }
        fields = encoder.person_fields
        self._fields = [(name, encoder.features[name].place) for name in fields]
        width = len(encoder._blocks)
        self._flat = np.zeros((self.arms, width), dtype=np.int64)
        self._value = np.full((self.arms, width), encoder.weight)
        # Per block and field of the person: how far the field moves the block's place, and whether
        # its value counts.
        self._strides = np.zeros((len(fields), width), dtype=np.int64)
        self._counts = np.zeros((len(fields), width), dtype=bool)
        for b, (start, block) in enumerate(zip(encoder._starts, encoder._blocks, strict=True)):
            self._flat[:, b] = start + encoder.dim * np.arange(self.arms)
            stride = 1
            for name in reversed(block):
                if name in found:
                    self._flat[:, b] += stride * np.array([p for p, _ in found[name]])
                    self._value[:, b] *= [v for _, v in found[name]]
                else:
                    self._strides[fields.index(name), b] = stride
                    self._counts[fields.index(name), b] = True
                stride *= encoder.features[name].size
        self._shape = (self.arms, encoder.dim)
        self._numbers = [i for i, n in enumerate(fields) if isinstance(encoder.features[n], Number)]

    def subset(self, rows: Sequence[int]) -> Slate:
        """Some of the items, in this order, without encoding again."""
        chosen = np.asarray(rows, dtype=np.int64)
        found = copy(self)
        found.arms = len(chosen)
        found._flat = (
            self._flat[chosen] + self.encoder.dim * (np.arange(len(chosen)) - chosen)[:, None]
        )
        found._value = self._value[chosen]
        found._shape = (len(chosen), self.encoder.dim)
        return found

    def contexts(self, person: Mapping[str, Any]) -> Matrix:
        """One row per item, for this person: the input of `select`."""
        try:
            if len(person) != len(self._fields):
                self._refuse(person)
            found = [place(person[name]) for name, place in self._fields]
        except (KeyError, TypeError, IndexError):
            self._refuse(person)
        except OptionError:
            for name, _ in self._fields:
                self.encoder._place(name, person[name])  # says which field it was
            raise
        flat: NDArray[np.int64] = self._flat
        value: Matrix = self._value
        if found:
            flat = flat + np.array([at for at, _ in found], dtype=np.int64) @ self._strides
            for i in self._numbers:
                value = value * np.where(self._counts[i], found[i][1], 1.0)
        contexts = np.zeros(self._shape)
        contexts.reshape(-1)[flat] = value
        return contexts

    def _refuse(self, person: Any) -> NoReturn:
        """Say why this is no person."""
        if is_frame(person) and hasattr(person, "columns"):
            raise ShapeError("one person is a dict of fields, not a frame: give row.to_dict()")
        if not (isinstance(person, Mapping) or hasattr(person, "keys")):
            raise ShapeError(f"one person is a dict of fields, not {type(person).__name__}")
        _refuse(person.keys(), self.encoder.person_fields)


def _columns(records: Any, fields: tuple[str, ...] | None) -> tuple[list[Any], tuple[str, ...]]:
    """Columns in the order of `fields`, found by name; if `fields` is None, in their own order."""
    if hasattr(records, "toarray"):
        raise ShapeError("sparse arrays are not records: give a frame, or a dense array")
    if isinstance(records, (str, bytes)):
        try:
            records = json.loads(records)
        except ValueError as error:
            raise ShapeError(f"records that are not JSON: {error}") from None
    if isinstance(records, Mapping):
        records = [records]
    if hasattr(records, "collect") and not is_frame(records):
        raise ShapeError("collect the lazy frame first")
    if is_frame(records) and not hasattr(records, "columns"):
        raise ShapeError(
            "one column, or one row of a frame, has no names of fields: give a frame, or row.to_dict()"
        )
    if is_frame(records):
        names = tuple(map(str, getattr(records, "column_names", None) or records.columns))
        order = _order(names, fields)
        found = [records[name] for name in order]
        return [c.to_pylist() if hasattr(c, "to_pylist") else c.to_list() for c in found], order
    if isinstance(records, np.ndarray):
        if fields is None or records.ndim != 2 or records.shape[1] != len(fields):
            want = "names" if fields is None else f"{len(fields)} columns: {', '.join(fields)}"
            raise ShapeError(f"an array of records needs {want}, not shape {records.shape}")
        return [records[:, i].tolist() for i in range(len(fields))], fields
    if not isinstance(records, Iterable):
        raise ShapeError(f"records are dicts, JSON or a frame, not {type(records).__name__}")
    rows = list(records)
    if not all(isinstance(row, Mapping) for row in rows):
        raise ShapeError("records are dicts, JSON or a frame: every row must have names")
    if not rows and fields is None:
        raise ShapeError("there is no record")
    order = _order(tuple(rows[0]) if rows else fields or (), fields)
    for row in rows:
        if len(row) != len(order) or any(name not in row for name in order):
            _refuse(row, order)
    return [[row[name] for row in rows] for name in order], order


def _order(names: tuple[str, ...], fields: tuple[str, ...] | None) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ShapeError("two columns have the same name")
    if fields is None:
        return names
    if set(names) != set(fields):
        _refuse(names, fields)
    return fields


def _refuse(found: Iterable[str], fields: Sequence[str]) -> NoReturn:
    have = set(found)
    lacking = [name for name in fields if name not in have]
    more = sorted(map(str, have - set(fields)))
    words = [f"no {lacking[0]!r}"] if lacking else []
    words += [f"an unknown {more[0]!r}"] if more else []
    raise ShapeError(f"a record has {' and '.join(words)}; the fields are {', '.join(fields)}")
