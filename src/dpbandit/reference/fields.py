"""Numbers that change, in arrays of one entry: all that must be saved is then an array by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Fields = dict[str, NDArray[Any]]
Kind = TypeVar("Kind", int, float)


class Holder:
    """An object with numbers of its own. It must set each of them before it reads one."""

    numbers: Fields
    arrays: ClassVar[str] = ""  # the attributes that are arrays and change

    def __new__(cls, *_args: Any, **_given: Any) -> Any:
        made = super().__new__(cls)
        made.numbers = {}
        return made

    def fields(self) -> Fields:
        """Everything that changes, by name."""
        return {**{name: getattr(self, name) for name in self.arrays.split()}, **self.numbers}


class Number(Generic[Kind]):
    """A number of a holder: whole, or a float."""

    def __init__(self, kind: type[Kind]) -> None:
        self.kind: Callable[[Any], Kind] = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, holder: Holder, owner: type | None = None) -> Kind:
        return self.kind(holder.numbers[self.name][0])

    def __set__(self, holder: Holder, value: Kind) -> None:
        empty = np.zeros(1, dtype=np.int64 if self.kind is int else np.float64)
        holder.numbers.setdefault(self.name, empty)[0] = value
