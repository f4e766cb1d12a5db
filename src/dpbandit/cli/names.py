"""Names for quick completion and listing: read from the source, because importing the algorithms
imports NumPy.

The registry remains the only list: what is read here is its dictionary and the constants that it refers to.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1]
REGISTRY = "dpbandit.algorithms.registry"
PARTS = ("DESCRIPTION", "CLAIM", "REFERENCE")

WORLDS = {
    "synthetic": "the paper's simulation",
    "drifting": "the contexts change over time",
    "degenerate": "the contexts lack diversity",
}

Pairs = list[tuple[str, str]]


class Line(NamedTuple):
    """One line of `dpbandit algorithms`."""

    description: str
    claim: str
    reference: str


def algorithms() -> dict[str, Line]:
    """All algorithms; if the registry has been imported, with registered ones.

    >>> algorithms()["dgs-figure"].claim[:4]
    'none'
    """
    registry = sys.modules.get(REGISTRY)
    if registry is not None:
        return {
            n: Line(a.description, a.claim, a.reference) for n, a in registry.algorithms().items()
        }
    tree = ast.parse((PACKAGE / "algorithms/registry.py").read_text(encoding="utf-8"))
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "ALGORITHMS"
    )
    assert isinstance(table, ast.Dict)
    found = {}
    for name, value in zip(table.keys, table.values, strict=True):
        assert isinstance(name, ast.Constant)
        assert isinstance(value, ast.Call)
        module = ast.unparse(value.args[0])
        # entry(module), or entry(module, "WORD") for the second algorithm of a file
        word = f"{ast.literal_eval(value.args[1])}_" if len(value.args) > 1 else ""
        constants = _constants(module)
        found[str(name.value)] = Line(*(constants[word + part] for part in PARTS))
    return found


@functools.cache
def _constants(module: str) -> dict[str, str]:
    tree = ast.parse((PACKAGE / f"algorithms/{module}.py").read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def algorithm(incomplete: str) -> Pairs:
    """Completions of an algorithm's name."""
    return [
        (name, _short(line.description))
        for name, line in algorithms().items()
        if name.startswith(incomplete)
    ]


def _short(words: str, most: int = 60) -> str:
    """Shells treat a line break as the next word, and Typer breaks lines at 80."""
    return words if len(words) <= most else words[:most].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def world(incomplete: str) -> Pairs:
    """Completions of a simulated world's name."""
    return [(name, words) for name, words in WORLDS.items() if name.startswith(incomplete)]


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Completions among a few words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete
