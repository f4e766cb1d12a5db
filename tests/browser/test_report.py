"""The report in a real browser: pictures load, the verdict table is complete, nothing is cut off, nothing is fetched."""

import json
from pathlib import Path

import pytest

REPORT = Path(__file__).parents[2] / "docs" / "reproduction" / "report.html"


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_the_published_report_is_whole_on_wide_and_narrow_screens(browser, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    fetched, problems = [], []
    page.on("request", lambda request: fetched.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(REPORT.as_uri())
    sizes = page.eval_on_selector_all(
        "figure img", "all => all.map(i => [i.complete, i.naturalWidth])"
    )
    assert len(sizes) == 7
    assert all(done and natural > 600 for done, natural in sizes)
    rows = page.eval_on_selector_all("#verdict-table tbody tr", "all => all.map(r => r.innerText)")
    claims = json.loads((REPORT.parent / "verdicts.json").read_text())
    assert len(rows) == len(claims) == 10
    for row, claim in zip(rows, claims, strict=True):
        assert claim["claim"] in row
        assert claim["verdict"] in row
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1"), (
        "the page scrolls sideways"
    )
    assert [url for url in fetched if not url.startswith(("file:", "data:"))] == []
    assert problems == []
    context.close()
