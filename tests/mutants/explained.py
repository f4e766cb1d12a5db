"""Mutants that no judge refuses although a number changes, or that no judge reaches: why each does not
change what is released. docs/audits.md shows these lines.

    python tests/mutants/explained.py --write        puts them there

By reason: `function | before → after`, as the runner prints them, or `file | kind: line` for the core.
A text may end with `…`: then the beginning counts. What explains nothing any more is an error, like a
survivor that nobody explains.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "audits.md"
START, END = "<!-- mutants: start -->", "<!-- mutants: end -->"
Reasons = dict[str, list[str]]

PYTHON: Reasons = {}
CORE: Reasons = {}


def line_for(reasons: Reasons, where: str, change: str) -> str:
    """The line that explains this survivor; empty: nobody did."""
    for lines in reasons.values():
        for line in lines:
            place, _, text = line.partition(" | ")
            begins = text.removesuffix("…")
            if place == where and (
                text == change or (begins != text and change.startswith(begins))
            ):
                return line
    return ""


def table() -> str:
    """For the documentation."""
    rows = ["| where | change | why no released number changes |", "|---|---|---|"]
    for reasons in (PYTHON, CORE):
        for reason, lines in reasons.items():
            for line in lines:
                place, _, text = line.replace("|", "\\|").partition(" \\| ")
                rows.append(f"| `{place}` | `{text}` | {reason} |")
    return "\n".join(rows)


def written() -> str:
    """What the documentation shows."""
    return DOCS.read_text(encoding="utf-8").split(START)[1].split(END)[0].strip()


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        before, rest = DOCS.read_text(encoding="utf-8").split(START)
        after = rest.split(END)[1]
        DOCS.write_text(f"{before}{START}\n{table()}\n{END}{after}", encoding="utf-8")
    else:
        print(table())
