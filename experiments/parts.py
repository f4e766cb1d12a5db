"""The command line of an experiment in parts: which of them are run, with how many seeds, and a file of what was found."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

import dpbandit as dpb

# Run with so many seeds; each table as soon as it is there, and what it is of.
Part = Callable[[int], Iterable[tuple[str, pd.DataFrame]]]


def measure(about: str | None, parts: Mapping[str, Part], seeds: Mapping[str, int]) -> None:
    """Run the parts that the command line names, with their own number of seeds if none is given."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=raw)
    parser.add_argument(
        "parts", nargs="*", help=f"some of {', '.join(parts)}; all if none is given"
    )
    parser.add_argument("--seeds", type=int, help="how many, instead of each part's own number")
    parser.add_argument("--json", help="write the numbers into this file")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(parts):
        parser.error(f"no part is named {', '.join(sorted(unknown))}: {', '.join(parts)} are")
    warnings.simplefilter("ignore", dpb.errors.PrivacyWarning)
    found: dict[str, dict[str, Any]] = {}
    for name in given.parts or parts:
        for label, table in parts[name](given.seeds or seeds[name]):
            found.setdefault(name, {})[label] = table.to_dict("index")
            print(f"\n{name}: {label}\n{table.round(3).to_string()}", flush=True)
            if given.json:  # after each, so that what is done stays when it is interrupted
                with open(given.json, "w") as file:
                    json.dump(found, file, indent=1)
