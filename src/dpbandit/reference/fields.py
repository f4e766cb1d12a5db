"""Numbers that change, kept in arrays of one entry, so that everything a bandit must save is an
array with a name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Fields = dict[str, NDArray[Any]]


class Holder:
    """An object with numbers of its own. It must set each of them before it reads one."""

    numbers: Fields

    def __new__(cls, *_args: Any, **_given: Any) -> Any:
        made = super().__new__(cls)
        made.numbers = {}
        return made


class Number:
    """A float of a holder."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, holder: Holder, kind: type | None = None) -> float:
        return float(holder.numbers[self.name][0])

    def __set__(self, holder: Holder, value: float) -> None:
        holder.numbers.setdefault(self.name, np.zeros(1))[0] = value


class Count:
    """A whole number of a holder."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, holder: Holder, kind: type | None = None) -> int:
        return int(holder.numbers[self.name][0])

    def __set__(self, holder: Holder, value: int) -> None:
        holder.numbers.setdefault(self.name, np.zeros(1, dtype=np.int64))[0] = value
