"""Every block of code on every page works as printed, or says why it is not run."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import pages

PAGES = pages.pages()


def name(page):
    return str(page.relative_to(pages.ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if pages.to_run(page)], ids=name)
def test_the_page_works_as_printed(page, tmp_path):
    pages.play(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_run_or_says_why_not(page):
    silent = [
        f"line {b.line}: {b.language or 'no language'}"
        for b in pages.blocks(page)
        if b.language not in pages.RUN and not b.not_run
    ]
    assert not silent, (
        f"{name(page)}: mark these with <!-- not run: the reason -->, or write them so that they run"
    )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_fence_is_overlooked(page):
    """As many fences are opened and closed as blocks were read."""
    fences = re.findall(r"^ *```", page.read_text(), re.M)
    assert len(fences) == 2 * len(pages.blocks(page))


def test_files_that_pages_name_exist():
    for page in PAGES:
        for file in re.findall(
            r"`((?:docs|tests|src|tools|examples|benchmarks|experiments)/[\w./-]+)`",
            page.read_text(),
        ):
            assert (pages.ROOT / file).exists(), f"{name(page)} names {file}"


def test_from_a_table_to_a_launch_takes_sixty_lines():
    page = pages.ROOT / "docs" / "how-to" / "from-a-table.md"
    code = [b for b in pages.blocks(page) if b.language != "output" and not b.not_run]
    assert 40 < sum(bool(line.strip()) for b in code for line in b.text.splitlines()) <= 60


# ---------------------------------------------------------------------- what runs the pages can fail


def write(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```\n",
        "```sh\nfalse\ntrue\n```\n",
        "```sh\nfalse | cat\n```\n",
        "```sh\npip install dpbandit\n```\n",
        "```console\n$ A=1 make run\n```\n",
        "```console\n$ dpbandit no-such-command\n```\n",
        "```console\n$ echo one\nuno\n```\n",
        "```python\nprint(1)\n```\n```output\n2\n```\n",
        "```console\n$ echo 1\n```\n\n```output\n1 2\n```\n",
    ],
)
def test_a_page_that_does_not_work_is_found_out(tmp_path, monkeypatch, text):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(AssertionError):
        pages.play(write(tmp_path, text), tmp_path)


@pytest.mark.parametrize(
    ("expected", "printed", "within", "good"),
    [
        ("a 1.0", "a 1.0", 0, True),
        ("a 1.0", "a 1.05", 0, False),
        ("loses 100 of 5,000", "loses 109 of 5,100", 0.1, True),
        ("loses 100 of 5,000", "loses 112 of 5,000", 0.1, False),
        ("loses 100 of 5,000", "wins 100 of 5,000", 0.1, False),
        ("x   0.6  -0.1", "x 0.7 0.0", 0.1, True),
        ("x 0.6", "x 0.8", 0.1, False),
        ("from … to 3", "from here to 3", 0, True),
    ],
)
def test_numbers_may_differ_where_the_page_says_so_and_by_as_much(expected, printed, within, good):
    assert pages.matches(expected, printed, within) is good


def test_a_page_is_one_terminal_and_one_interpreter(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    text = (
        "```sh\nexport WORD=hello\nsleep 60 &\necho $! > child\n```\n```python\nimport os\nword = os.environ['WORD']\n```\n"
        "- in a list:\n\n  ```python\n  print(word)\n  if word:\n      print(len(word), 'letters')\n  ```\n\n  ```output\n  hello\n  … letters\n  ```\n"
        "```console\n$ echo \\\n    $WORD 8080\n```\n```output\nhello 8080\n```\n"
    )
    pages.play(write(tmp_path, text), tmp_path)
    assert not Path(f"/proc/{(tmp_path / 'child').read_text().strip()}").exists()


def test_a_reason_belongs_to_the_block_below_it(tmp_path):
    text = "<!-- not run: needs a GPU -->\n\n```python\na\n```\n```python\nb\n```\n"
    assert [block.not_run for block in pages.blocks(write(tmp_path, text))] == ["needs a GPU", None]
