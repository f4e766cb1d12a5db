"""Writes docs/note/figures.json and the pictures; with --pdf also the note."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from experiments.note import board, checked, drawing, exact, measured, paper

NOTE = Path(__file__).parents[2] / "docs" / "note"
DATA = NOTE / "figures.json"
PARTS = ("checked", "measured")


def main() -> None:
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument("parts", nargs="*", help="checked, measured: what takes time, anew")
    parser.add_argument("--pdf", action="store_true", help="set the note; takes the extra note")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part is named {', '.join(sorted(unknown))}: {', '.join(PARTS)} are")
    data: dict[str, Any] = json.loads(DATA.read_text()) if DATA.exists() else {}
    data |= {"exact": exact.everything(), "board": board.everything()}
    if "checked" in given.parts or "checked" not in data:
        data["checked"] = checked.everything()
    if "measured" in given.parts or "measured" not in data:
        data["measured"] = measured.everything(lambda part: print(part, flush=True))
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    drawing.draw(data, NOTE)
    if given.pdf:
        print(f"open {paper.write()}")


if __name__ == "__main__":
    main()
