"""Mutants that no judge refuses although a number changes, or that no judge reaches: each with its
reason. docs/audits.md shows this list.

A line names a function (or a file of the core) and the text before and after, as the runner prints
them; a text may end with `…`, and then the beginning counts. A line that explains nothing any more is
an error, like a survivor that has no line.
"""

from __future__ import annotations

from typing import NamedTuple


class Explained(NamedTuple):
    where: str  # module:function, or a file of the core
    change: str  # "before → after"; "" for every change there
    reason: str


PYTHON: list[Explained] = []
CORE: list[Explained] = []


def reason_for(lines: list[Explained], where: str, change: str) -> str:
    """Why this survivor is harmless; empty: nobody said."""
    for line in lines:
        begins = line.change.removesuffix("…")
        if where == line.where and (
            change == line.change
            or (line.change.endswith("…") and change.startswith(begins))
            or not line.change
        ):
            return line.reason
    return ""
