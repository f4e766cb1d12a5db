"""The note as a PDF, set by Typst, which the extra `note` brings. The same sources give the same bytes.

The PDF is made, like the site: no repository holds it.
"""

from __future__ import annotations

from pathlib import Path

NOTE = Path(__file__).parents[2] / "docs" / "note"
PDF = NOTE / "dpbandit-note.pdf"


def pages() -> bytes:
    """The PDF."""
    import typst

    made: bytes = typst.compile(str(NOTE / "note.typ"), root=str(NOTE), ignore_system_fonts=True)
    return made


def write() -> Path:
    PDF.write_bytes(pages())
    return PDF


if __name__ == "__main__":
    print(f"open {write()}")
