"""`dpbandit reproduce` and `dpbandit bench` are in a clone's `experiments/`, which no wheel has.

A package that runs from a clone has them from the start. An installed one looks into the working
directory, and only when they are asked for: no other command runs code of the folder it is in.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from dpbandit.cli.shared import app, join_lines
from dpbandit.errors import OptionError

COMMANDS = ("reproduce", "bench")


def attach(clone: Path) -> bool:
    """Add the commands of the clone at that place; False if there is none."""
    if not (clone / "experiments/cli.py").is_file() or not (clone / "src/dpbandit").is_dir():
        return False
    sys.path.insert(0, str(clone))
    import_module("experiments.cli")
    join_lines(app)
    return True


attached = attach(Path(__file__).resolve().parents[3])


def look_for(words: Sequence[str]) -> None:
    """Load the clone's commands if they are requested, or say where they are."""
    if attached or not set(words[:1]) & set(COMMANDS) or attach(Path.cwd()):
        return
    raise OptionError(
        f"dpbandit {words[0]} is not part of the installed package: "
        "clone the repository and call it there"
    )
