"""Writes docs/note/figures.json and the pictures; with --pdf also the note."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from experiments.note import board, checked, drawing, exact, measured, paper

NOTE = Path(__file__).parents[2] / "docs" / "note"
DATA = NOTE / "figures.json"
PARTS = ("checked", "measured", *measured.PARTS)


def main() -> None:
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument(
        "parts", nargs="*", help="what takes time, anew: checked, measured, or parts of it"
    )
    parser.add_argument("--pdf", action="store_true", help="set the note; takes the extra note")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part is named {', '.join(sorted(unknown))}: {', '.join(PARTS)} are")
    data: dict[str, Any] = json.loads(DATA.read_text()) if DATA.exists() else {}
    data |= {"exact": exact.everything(), "board": board.everything()}
    if "checked" in given.parts or "checked" not in data:
        data["checked"] = checked.everything()
    wanted = set(measured.PARTS) if "measured" in given.parts else set(given.parts)
    known = data.setdefault("measured", {})
    for name, make in measured.PARTS.items():
        if name in wanted or name not in known:
            print(name, flush=True)
            seeds = measured.SEEDS[name]
            known[name] = {"seeds": seeds, **make(seeds)}
            write(data)  # what is done stays when it is interrupted
    write(data)
    drawing.draw(data, NOTE)
    if given.pdf:
        print(f"open {paper.write()}")


def write(data: dict[str, Any]) -> None:
    text = json.dumps(data, indent=1, ensure_ascii=False)
    pairs = re.compile(r"\[\s+([^\s,\[\]]+),\s+([^\s,\[\]]+)\s+\]")
    DATA.write_text(pairs.sub(r"[\1, \2]", text) + "\n")  # a point of a curve on one line


if __name__ == "__main__":
    main()
