"""What editors and type checkers know of `dpb.make`: the names of our algorithms."""

from __future__ import annotations

from typing import Literal

Name = Literal[
    "random",
    "linucb",
    "private-linucb",
    "private-linucb-published",
    "dgs",
    "dgs-published",
    "dgs-figure",
    "local",
    "tree-gauss",
    "toeplitz",
    "anytime",
    "private-ts",
    "adac-oful",
    "private-ucb",
    "joint",
]
