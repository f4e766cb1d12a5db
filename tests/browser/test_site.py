"""The documentation site: it builds without a warning, loads nothing from elsewhere, describes all there is, and fits a narrow screen."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeout

import dpbandit
from dpbandit.options import SHARED

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "site"))
import commands  # noqa: E402
import hook  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return place


def test_nothing_is_loaded_from_elsewhere(site):
    loads = r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//[^"]*"|<link\b[^>]*\bhref="(?:https?:)?//[^"]*"'
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [
        (page.name, found) for page in pages for found in re.findall(loads, page.read_text())
    ] == []
    styles = {
        page.name: re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//[^)\s]+", page.read_text())
        for page in site.rglob("*.css")
    }
    assert styles
    assert not any(styles.values())


def test_every_public_name_is_described(site):
    page = (site / "reference" / "api.html").read_text()
    inside = {
        "worlds": (
            "Synthetic",
            "Arrays",
            "Bernoulli",
            "Gaussian",
            "Drifting",
            "Degenerate",
            "Moving",
            "Labelled",
            "LastFM",
            "OpenBandit",
        ),
        "theory": ("noise_bound", "confidence_radius", "regret_bound", "perturbed_regret_bound"),
        "errors": ("DpbanditError", "BudgetError", "PrivacyWarning"),
        "budget": ("mu_of", "epsilon_of", "delta_of"),
        "adapters": (
            "coba.CobaLearner",
            "coba.CobaWorld",
            "river.RiverPolicy",
            "gymnasium.WorldEnv",
        ),
    }
    names = [name for name in dpbandit.__all__ if name not in inside and name != "__version__"]
    names += [f"{module}.{name}" for module, some in inside.items() for name in some]
    assert [name for name in names if f'id="dpbandit.{name}"' not in page] == []


def test_examples_in_docstrings_are_shown_as_code(site):
    assert "&gt;&gt;&gt;" not in re.sub(
        r"<pre>.*?</pre>", "", (site / "reference" / "api.html").read_text(), flags=re.S
    )


def test_every_command_and_every_option_is_described(site):
    import typer

    from dpbandit.cli import app

    page = (site / "reference" / "cli.html").read_text()
    found = list(commands.walk(typer.main.get_command(app)))
    assert len(found) > 12
    for path, command in found:
        assert f"{' '.join(path[1:])}<a" in page
        for parameter in command.params:
            if (
                parameter.opts[0].startswith("--")
                and not parameter.hidden
                and parameter.name != "help"
            ):
                assert f"<code>{parameter.opts[0]}" in page, (path, parameter.opts)


def test_every_endpoint_is_described(site):
    from dpbandit.service.openapi import document
    from dpbandit.service.settings import Settings

    page = (site / "reference" / "http.html").read_text()
    described = document(Settings(store=""))
    for path, item in described["paths"].items():
        for method in item.keys() - {"parameters"}:
            assert f"{method.upper()} {path}<a" in page
    for name in described["components"]["schemas"]:
        assert f'id="{name.lower()}"' in page


def test_every_option_of_make_is_on_its_page():
    page = (ROOT / "docs" / "reference" / "options.md").read_text()
    own = {name for algorithm in dpbandit.algorithms().values() for name in algorithm.own_options}
    assert [name for name in {*SHARED, *own} if f"`{name}`" not in page] == []


def test_every_field_of_a_claim_is_in_its_table():
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    assert [f.name for f in dataclasses.fields(dpbandit.Claim) if f"`{f.name}`" not in page] == []


def test_links_of_root_pages_are_turned_to_the_site():
    text = "[a](docs/plan.md#x) [b](CHANGELOG.md) [c](src/dpbandit/noise.py) [d](https://example.org) [e](#f) ![g](docs/g.png)"
    assert (
        hook.as_site_page(text)
        == "[a](plan.md#x) [b](changelog.md) c [d](https://example.org) [e](#f) ![g](docs/g.png)"
    )


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_no_page_scrolls_sideways_on_a_wide_or_a_narrow_screen_and_every_picture_loads(
    site, address, browser
):
    page = browser.new_page()
    fetched, problems = [], []
    page.on("request", lambda request: fetched.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    # Reading the index of the search takes longer than all else, on each page anew; the next test looks at it once.
    empty = json.loads((site / "search" / "search_index.json").read_text()) | {"docs": []}
    page.route("**/search_index.json", lambda route: route.fulfill(json=empty))
    # The theme moves its parts over a quarter of a second. Where they end is what counts.
    page.add_init_script(
        "addEventListener('DOMContentLoaded', () => { const style = document.createElement('style');"
        " style.textContent = '*, ::before, ::after { transition: none !important }';"
        " document.head.append(style); })"
    )
    for file in sorted(site.rglob("*.html")):
        if file.name in ("404.html", "report.html"):  # the report has a test of its own
            continue
        page.goto(f"{address}/{file.relative_to(site)}")
        assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)"), (
            file
        )
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            # The theme lays its parts out after the screen has changed; a page that is too wide stays so.
            fits = f"innerWidth == {width} && document.documentElement.scrollWidth <= {width} + 1"
            try:
                page.wait_for_function(fits, timeout=5_000)
            except PlaywrightTimeout:
                pytest.fail(f"{file.name} scrolls sideways on a screen of {width}")
    assert [url for url in fetched if not url.startswith((address, "data:", "blob:"))] == []
    assert problems == []
    page.close()


def test_the_search_finds_a_page(address, browser):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{address}/index.html")
    page.get_by_role("textbox", name="Search").fill("reward_window")
    page.wait_for_selector(".md-search-result__item a[href*='delayed-rewards']", timeout=20_000)
    page.close()
