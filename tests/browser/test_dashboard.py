"""The dashboard in a real browser, over a real service: what it shows, who can use it, and where it sends nothing."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))
import harness
from harness import BANDIT, decide, learned, make_key, reward, until

from dpbandit.privacy.unit import person, spread, to_you, user

SECONDS = 1000  # Playwright counts milliseconds
TIMED = {
    **BANDIT,
    "name": "timed",
    "algorithm": "dgs",
    "horizon": 1000,
    "epsilon": 2.0,
    "delta": 1e-5,
}


@pytest.fixture(scope="module")
def shop(browser, tmp_path_factory):
    """A service with two bandits that have learned and one that nobody asks: (service, admin's key)."""
    from dpbandit.service.store import Store

    folder = tmp_path_factory.mktemp("dashboard")
    url = f"sqlite:///{folder}/store.db"
    key = make_key(url)
    opened = Store(url)
    opened.set_cap(8.0, 1e-4)
    opened.close()
    service = harness.Service(url, folder)
    call = service.caller(key)
    local = {**BANDIT, "name": "a.quiet-one", "algorithm": "local", "delta": None}
    for bandit in (BANDIT, TIMED, local):
        assert call("POST", "/v1/bandits", bandit)[0] == 201
    for turn in range(30):
        for name in ("shop", "timed"):
            decision = decide(call, name)
            if turn % 3 == 0:
                assert reward(call, decision, 1, name)[0] == 200
    for name in ("shop", "timed"):
        learned(call, 30, name)
    yield service, key
    service.stop()


@pytest.fixture
def open_page(browser, shop):
    """A page at the dashboard; afterwards: nothing in the console, and no request that left the service."""
    contexts, asked, problems = [], [], []

    def start(width=1200, scheme="light", **more):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **more
        )
        contexts.append(context)
        page = context.new_page()
        page.clock.install()  # time goes on as ever, and a test can hurry it
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda line: problems.append(line.text) if line.type in ("error", "warning") else None,
        )
        page.goto(f"http://127.0.0.1:{shop[0].port}/")
        return page

    start.problems = problems
    yield start
    for context in contexts:
        context.close()
    assert [url for url in asked if not url.startswith(f"http://127.0.0.1:{shop[0].port}/")] == []
    assert problems == []


def sign_in(page, key):
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Show the bandits").click()
    every_card(page)


def every_card(page):
    """Wait until every card has been in view and is filled: what a bandit without models has not
    (their table) is hidden in all of them before."""
    page.wait_for_selector("#board:not([hidden])", timeout=30 * SECONDS)
    for name in page.locator("article h3").all_inner_texts():
        page.locator(f"[id='bandit-{name}']").scroll_into_view_if_needed()
        page.wait_for_selector(f"[id='bandit-{name}']:not(.loading)", timeout=30 * SECONDS)


def card(page, name):
    return page.get_by_role("article", name=name, exact=True)


def test_what_the_api_says_is_what_is_shown(open_page, shop):
    service, key = shop
    page = open_page()
    sign_in(page, key)
    call = service.caller(key)
    assert page.locator("article h3").all_inner_texts() == ["a.quiet-one", "shop", "timed"]
    bandit, privacy = call.get("/v1/bandits/timed"), call.get("/v1/bandits/timed/privacy")
    timed = card(page, "timed")
    assert timed.locator("[data-is=version]").inner_text() == str(bandit["model_version"])
    assert timed.locator("[data-is=badge]").inner_text() == "Learning"
    assert timed.locator("[data-is=learner]").inner_text() == "At work"
    assert timed.locator("[data-is=waiting]").inner_text() == "0"
    assert "; 30 in all" in timed.locator("[data-is=decisions]").inner_text()
    share = 100 * privacy["spent"]["epsilon"] / 2.0
    meter = timed.get_by_role("meter")
    assert abs(float(meter.get_attribute("aria-valuenow")) - share) <= 0.5
    assert f"ε {privacy['spent']['epsilon']:.2f} of 2.00" in meter.get_attribute("aria-valuetext")
    assert "970 " in timed.locator("[data-is=projection]").inner_text()
    assert "by a factor of 7.39 at most" in timed.locator("[data-is=words]").inner_text()
    assert "1 in 100,000" in timed.locator("[data-is=words]").inner_text()
    assert "never runs out" in card(page, "shop").locator("[data-is=projection]").inner_text()
    assert "Laplace" in card(page, "a.quiet-one").locator("[data-is=formal]").inner_text()
    total = call.get("/v1/privacy")["total"]["epsilon"]
    assert f"ε {total:.2f} of 8.00" in page.locator("#cap-value").inner_text()


def test_people_are_told_in_plain_words_what_is_learned_of_them(open_page):
    page = open_page()
    units = [person(1).words, person(2).words_with_contexts, spread(2.5).words, user(3).words]
    for unit in units:
        asked = "unit => import('/dashboard-words.js').then(({toYou}) => toYou(unit))"
        assert page.evaluate(asked, unit) == to_you(unit)
    claim = {"unit": units[0], "status": "proven", "notion": "gdp", "epsilon": 1, "delta": 1e-6}
    asked = "claim => import('/dashboard-words.js').then(({promise}) => promise(claim))"
    said = page.evaluate(asked, claim)
    assert said.startswith(
        "Whoever you are, however often you come, at most 1 of your clicks (or rewards of 1 in "
        "total) is learned from. Whoever sees everything"
    )


def test_the_chart_and_its_table_hold_every_release(open_page, shop):
    service, key = shop
    page = open_page()
    sign_in(page, key)
    releases = service.caller(key).get("/v1/bandits/timed/releases")["releases"]
    noisy = [release for release in releases if release["noise_scale"] is not None]
    timed = card(page, "timed")
    assert timed.locator("svg .rug").count() == len(noisy)
    assert f"the {'only' if len(noisy) == 1 else f'last {len(noisy)}'} from" in timed.locator(
        "[data-is=chart]"
    ).get_attribute("aria-label")
    timed.get_by_text("The latest models as a table").click()
    rows = timed.locator("tbody tr").all_inner_texts()
    assert len(rows) == min(len(releases), 20)
    assert rows[0].split("\t")[0] == str(releases[-1]["model_version"])
    assert timed.locator("caption").inner_text().startswith("The latest")
    assert (
        card(page, "a.quiet-one").locator("[data-is=chart] text").text_content()
        == "No model has been learned yet."
    )


def test_offers_times_of_decisions_and_errors_are_what_the_service_counted(open_page, shop):
    service, key = shop
    page = open_page()
    sign_in(page, key)
    call = service.caller(key)
    offers = call.get("/v1/bandits/shop")["offers"]
    assert sum(one["offers"] for one in offers) == call.get("/v1/bandits/shop")["decisions"] == 30
    rows = card(page, "shop").locator("[data-is=offers] li").all_inner_texts()
    assert [row.split("\n")[0].strip() for row in rows] == [one["arm"] for one in offers][:8]
    assert f"{100 * offers[0]['offers'] / 30:.0f}%" in rows[0]
    assert (
        "Nothing was offered"
        in card(page, "a.quiet-one").locator("[data-is=offers-note]").inner_text()
    )
    assert re.fullmatch(r"under [\d.]+ m?s", page.locator("[data-is=latency]").inner_text())
    assert page.locator("[data-is=errors]").inner_text() == "0"
    label = card(page, "shop").locator("[data-is=traffic]").get_attribute("aria-label")
    assert label.startswith("Decisions a second since this page was opened")


def test_there_is_no_reward_rate_and_the_page_says_why(open_page, shop):
    page = open_page()
    sign_in(page, shop[1])
    assert page.get_by_role("region", name="Why there is no reward rate").is_visible()
    for label in page.locator("dt, th").all_inner_texts():
        assert not re.search(r"(?i)reward|click", label)


def test_a_wrong_key_is_refused_in_words_and_forgotten(open_page):
    page = open_page()
    for wrong in ("nonsense", "dpb_000000000000_" + "x" * 43, "schlüssel"):
        page.get_by_label("Key", exact=True).fill(wrong)
        page.keyboard.press("Enter")
        page.get_by_text("This key is not valid here.").first.wait_for()
        until(
            lambda: page.evaluate(
                "document.activeElement.id === 'key' && document.activeElement.value === ''"
            ),
            10,
        )
        assert page.locator("#key").get_attribute("aria-invalid") == "true"
        assert page.evaluate("sessionStorage.length") == 0
        assert page.locator("#board").is_hidden()
    # The browser itself notes each 401; nothing else may be there.
    assert all("401" in line for line in open_page.problems)
    open_page.problems.clear()


def test_the_key_lives_in_this_tab_until_signing_out(open_page, shop):
    page = open_page()
    sign_in(page, shop[1])
    assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [
        1,
        0,
        "",
    ]
    assert shop[1] not in page.content()
    assert shop[1] not in page.url
    page.reload()
    page.wait_for_selector("#board:not([hidden])")
    page.get_by_role("button", name="Sign out").click()
    assert page.evaluate("sessionStorage.length") == 0
    assert page.locator("article").count() == 0
    assert page.evaluate("document.activeElement.id") == "key"
    page.reload()
    assert page.get_by_label("Key", exact=True).is_visible()


def test_everything_can_be_reached_with_the_keyboard_and_focus_is_seen(open_page, shop):
    page = open_page()
    until(lambda: page.evaluate("document.activeElement.id === 'key'"), 10)
    page.keyboard.type(shop[1])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Show the bandits"
    page.keyboard.press("Enter")
    every_card(page)  # not the first alone, which has no table: Tab would be faster than the rest
    assert page.evaluate("document.activeElement.id") == "main"
    reached = []
    for _ in range(15):
        page.keyboard.press("Tab")
        here = page.evaluate(
            "() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return [e.textContent.trim(), s.outlineStyle, parseFloat(s.outlineWidth)]; }"
        )
        if here[0] == "" or page.evaluate("document.activeElement === document.body"):
            break
        assert here[1] == "solid", here
        assert here[2] >= 2, here
        reached.append(here[0])
    assert "What the promise rests on" in reached
    assert "The latest models as a table" in reached
    page.locator("article").nth(1).locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("article").nth(1).get_by_text("is clipped to").first.is_visible()
    page.locator("#pause").focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="Resume updates").is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.get_by_label("Key", exact=True).is_visible()


def test_a_screen_reader_finds_names_for_everything(open_page, shop):
    page = open_page()
    sign_in(page, shop[1])
    for summary in page.locator("summary:visible").all():
        summary.click()
    nameless = page.evaluate("""() => {
        const named = (e) => (e.getAttribute('aria-label') || '').trim() || (e.labels && e.labels.length) ||
            (e.getAttribute('aria-labelledby') || '').split(' ').filter(Boolean).every((id) =>
                document.getElementById(id) && document.getElementById(id).textContent.trim()) && e.hasAttribute('aria-labelledby') ||
            (['BUTTON', 'A', 'SUMMARY'].includes(e.tagName) && e.textContent.trim());
        const wanted = 'input, button, a, summary, svg, [role=meter], [role=region], main ~ nav, article, #board > section';
        return [...document.querySelectorAll(wanted)].filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 120));
    }""")
    assert nameless == []
    assert (
        page.locator("table").count()
        == page.locator("table caption").count()
        == page.locator("svg[role=img]").count() // 2  # traffic and noise
    )
    assert page.evaluate("[...document.querySelectorAll('th')].every((e) => e.scope === 'col')")
    assert page.evaluate(
        "[...document.querySelectorAll('img')].every((e) => e.hasAttribute('alt'))"
    )
    assert page.evaluate(
        "(() => { const i = [...document.querySelectorAll('[id]')].map((e) => e.id); return i.length === new Set(i).size; })()"
    )
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4')].filter((e) => e.offsetParent).map((e) => Number(e.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels)), (
        "a heading's level is skipped"
    )
    assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
    assert page.evaluate(
        "[...document.querySelectorAll('[aria-live]')].map((e) => e.ariaLive)"
    ) == ["polite"]
    assert page.evaluate("document.documentElement.lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(open_page, shop, scheme):
    page = open_page(scheme=scheme)
    sign_in(page, shop[1])
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 380) == (scheme == "light")
    weak = page.evaluate("""() => {
        const parts = (c) => c.match(/[\\d.]+/g).map(Number);
        const light = (c) => parts(c).slice(0, 3).map((v) => v / 255)
            .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const under = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
            if (parts(c)[3] !== 0) return c; } return 'rgb(255, 255, 255)'; };
        const found = [];
        for (const e of document.querySelectorAll('body *')) {
            if (!e.getClientRects().length || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
            const style = getComputedStyle(e), ink = e instanceof SVGElement ? style.fill : style.color;
            const [a, b] = [light(ink), light(under(e))].sort((p, q) => q - p);
            if ((a + 0.05) / (b + 0.05) < 4.5) found.push([e.textContent.slice(0, 40), ink, under(e)]);
        }
        return found;
    }""")
    assert weak == []


@pytest.mark.parametrize("width", [320, 360, 768, 1200])
def test_nothing_is_cut_off_at_any_width(open_page, shop, width):
    page = open_page(width=width)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    sign_in(page, shop[1])
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (
        "the page scrolls sideways"
    )
    small = page.evaluate(
        "[...document.querySelectorAll('button')].filter((e) => e.offsetParent && e.getBoundingClientRect().height < 44).length"
    )
    assert small == 0


def test_a_chart_of_little_traffic_shows_its_whole_scale(open_page, shop):
    """The scale was the words "under 0.1" once, which the picture cut off."""

    def little(route):
        answer = route.fetch()
        bandits = answer.json()["bandits"]
        slow = [{**bandit, "decisions_per_second": 0.02} for bandit in bandits]
        route.fulfill(response=answer, json={**answer.json(), "bandits": slow})

    page = open_page()
    page.route("**/v1/bandits?*", little)
    page.route("**/v1/bandits", little)
    sign_in(page, shop[1])
    page.clock.fast_forward(5 * SECONDS)
    svg = card(page, "shop").locator("svg[aria-label*='at most under 0.1']")
    svg.wait_for(timeout=20 * SECONDS)
    assert svg.locator("text").all_text_contents() == ["0", "0.1"]


def test_nothing_moves_for_those_who_asked_for_that(open_page, shop):
    page = open_page(reduced_motion="reduce")
    sign_in(page, shop[1])
    moving = "[...document.querySelectorAll('*')].filter((e) => parseFloat(getComputedStyle(e).transitionDuration) > 0).length"
    assert page.evaluate(moving) == 0


def test_figures_follow_by_themselves_and_what_was_opened_stays_open(open_page, shop):
    service, key = shop
    page = open_page()
    sign_in(page, key)
    quiet = card(page, "a.quiet-one")
    quiet.locator("summary").first.click()
    quiet.locator("summary").first.focus()
    decide(service.caller(key), "a.quiet-one")
    page.clock.fast_forward(5 * SECONDS)
    quiet.get_by_text("; 1 in all").wait_for(timeout=20 * SECONDS)
    assert quiet.get_by_text("is clipped to").first.is_visible()
    assert page.evaluate("document.activeElement.textContent") == "What the promise rests on"


def test_a_service_that_does_not_answer_is_said_and_tried_again(open_page, shop):
    page = open_page()
    sign_in(page, shop[1])
    page.context.set_offline(True)
    page.clock.fast_forward(5 * SECONDS)
    page.get_by_text("The service cannot be reached.").first.wait_for(timeout=20 * SECONDS)
    assert "the last ones known" in page.locator("#problem").inner_text()
    assert card(page, "shop").is_visible()
    page.context.set_offline(False)
    page.clock.fast_forward(5 * SECONDS)
    page.wait_for_selector("#problem", state="hidden", timeout=20 * SECONDS)
    open_page.problems.clear()  # the browser's own notes about the failed requests
