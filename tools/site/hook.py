"""What the site gets besides docs/: pages written from the program, and those that live at the root of the repository.

Nothing is written into docs/: the pages exist while the site is built, so they cannot grow old.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROOT_PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}

sys.path.insert(0, str(HERE))  # MkDocs takes it away again once this file is read
import commands  # noqa: E402
import endpoints  # noqa: E402


def on_files(files: Files, config: Any) -> Files:
    """Add the written pages."""
    written = {"reference/cli.md": commands.page(), "reference/http.md": endpoints.page()}
    for name, place in ROOT_PAGES.items():
        if (ROOT / name).exists():
            written[place] = as_site_page((ROOT / name).read_text())
    for place, text in written.items():
        files.append(File.generated(config, place, content=text))
    return files


EXTRAS = "<!-- the README's table of extras -->"


def extras() -> str:
    """The table as the README has it."""
    found = re.search(r"^\| extra \|.*?\n\n", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found, "the README has no table of extras"
    return found[0]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The home page has the README's table of extras. Where the technical note was set, its page
    links to it."""
    if page.file.src_uri == "index.md":
        assert EXTRAS in markdown
        return markdown.replace(EXTRAS, extras())
    if page.file.src_uri == "note/index.md" and files.get_file_from_path("note/dpbandit-note.pdf"):
        name = "`docs/note/dpbandit-note.pdf`"
        return markdown.replace(name, "[a PDF](dpbandit-note.pdf)")
    return markdown


def as_site_page(text: str) -> str:
    """Links from the root: into docs/ they lose that prefix, to other root pages they get the new name; the rest becomes plain text."""

    def changed(found: re.Match[str]) -> str:
        words, target = found[1], found[2]
        if re.match(r"https?:|#", target):
            return found[0]
        path, mark, place = target.partition("#")
        new = ROOT_PAGES.get(path) or (
            path.removeprefix("docs/") if path.startswith("docs/") else None
        )
        return f"[{words}]({new}{mark}{place})" if new else words

    return re.sub(r"(?<!!)\[([^]]+)\]\(([^)\s]+)\)", changed, text)
