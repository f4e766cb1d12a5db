"""The note as a PDF, set by Typst, which the extra `note` brings. The same sources give the same bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

NOTE = Path(__file__).parents[2] / "docs" / "note"
SOURCES = ("note.typ", "figures.json", "information.svg", "regret.svg")
PDF = NOTE / "dpbandit-note.pdf"


def sources() -> str:
    """A hash of all that the note is made of; it stands in the PDF's keywords."""
    found = hashlib.sha256()
    for name in SOURCES:
        found.update((NOTE / name).read_bytes())
    return found.hexdigest()


def pages() -> bytes:
    """The PDF."""
    import typst

    given = {"sys_inputs": {"sources": sources()}, "root": str(NOTE), "ignore_system_fonts": True}
    made: bytes = typst.compile(str(NOTE / "note.typ"), **given)
    return made


def write() -> Path:
    PDF.write_bytes(pages())
    return PDF
