"""Documents for whoever carries on the work agree with the code, and with each other."""

import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import dpbandit

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
PAGES = [*DECISIONS, ROOT / "docs/decisions/index.md", ROOT / "docs/architecture.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]  # fmt: skip


def rows():
    """The rooms in layers, each once: one with two floors stands on the upper."""
    seen, found = set(), []
    for layer in PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]:
        names = {name.strip().partition(".")[0] for name in re.split(r"[|:]", layer)} - seen
        seen |= names
        found += [names] if names else []
    return found


def rooms():
    return set.union(*rows())


def test_the_picture_and_the_page_show_every_room():
    texts = [
        e.text
        for e in ET.parse(ROOT / "docs/architecture.svg").iter("{http://www.w3.org/2000/svg}text")
    ]
    assert rooms() <= set(texts)
    page = (ROOT / "docs/architecture.md").read_text()
    assert rooms() <= set(re.findall(r"`(\w+)`", page))


def test_rooms_that_are_above_others_are_drawn_above_them():
    drawn = ET.parse(ROOT / "docs/architecture.svg").iter("{http://www.w3.org/2000/svg}text")
    height = {e.text: float(e.get("y")) for e in drawn if e.text in rooms()}
    heights = [{height[name] for name in row} for row in rows()]
    assert all(len(one) == 1 for one in heights)
    assert sorted(heights, key=min) == heights


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_says_what_would_change_our_mind(page):
    headings = re.findall(r"^## (.+)$", page.read_text(), re.M)
    assert headings == ["Context", "Decision", "Consequences", "What would change our mind"]
    assert f"]({page.name})" in (ROOT / "docs/decisions/index.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_and_links_on_a_page_exist(page):
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#]+?)(?:#[\w-]+)?\)", text):
        assert link.startswith("http") or (page.parent / link).exists(), (
            f"{page.name} links to {link}"
        )
    for name in re.findall(
        r"`((?:docs|tests|src|benchmarks|experiments|examples)/[\w./-]+)`", text
    ):
        assert (ROOT / name).exists(), f"{page.name} names {name}"
    for name in re.findall(
        r"`((?:algorithms|release|privacy|policies|learners|reference|service|simulate|worlds|auditor|planner|gpu|spread|cli)/[\w./-]+\.\w+)`",
        text,
    ):
        assert (ROOT / "src/dpbandit" / name).exists(), f"{page.name} names {name}"


def test_versions_agree_and_the_citation_names_the_paper():
    citation = dict(re.findall(r"^ *([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text(), re.M))
    assert citation["version"] == PROJECT["project"]["version"] == dpbandit.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert citation["doi"] == "10.1145/3523227.3546781"


def test_no_address_was_invented():
    for page in (ROOT / "SECURITY.md", ROOT / "CITATION.cff", ROOT / "CONTRIBUTING.md"):
        assert not re.search(r"[\w.]+@[\w-]+\.\w+", page.read_text())


EXCERPT = re.compile(
    r"<!-- not run: part of (examples/[\w./-]+), .*? -->\n```python\n(.*?)```", re.S
)


def test_what_contributing_shows_of_the_examples_stands_in_them():
    found = EXCERPT.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert {file for file, _ in found} == {
        str(file.relative_to(ROOT)) for file in (ROOT / "examples/extend").glob("*.py")
    }
    for file, text in found:
        assert text in (ROOT / file).read_text(), f"{file} has changed: {text}"


def test_every_source_of_an_algorithm_has_its_title_in_the_proofs():
    """A claim sheet names its source by authors and year."""
    from dpbandit.algorithms import registry
    from dpbandit.auditor.sheet import proofs

    titles = proofs().partition("## References")[2]
    sources = {registry.find(name).reference for name in dpbandit.algorithms()}
    named = {one for source in sources for one in re.findall(r"([A-Z]\w+)[^;]*? (\d{4})", source)}
    assert len(named) >= 12
    for author, year in named:
        assert re.search(rf"^- {author}\b.*\b{year}: \*.+\*, ", titles, re.M), (author, year)
