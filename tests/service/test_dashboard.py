"""The dashboard's files without a browser: who gets them, under which headers, and that they reveal nothing."""

import http.client
import re
from importlib.resources import files

import pytest
from harness import BANDIT, Caller, decide, make_key

STATIC = files("dpbandit.service") / "static"
TYPES = {
    "/": "text/html; charset=utf-8",
    "/dashboard.css": "text/css; charset=utf-8",
    "/dashboard.js": "text/javascript; charset=utf-8",
    "/dashboard-cards.js": "text/javascript; charset=utf-8",
    "/dashboard-words.js": "text/javascript; charset=utf-8",
    "/favicon.svg": "image/svg+xml",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    import harness

    folder = tmp_path_factory.mktemp("dashboard")
    url = f"sqlite:///{folder}/store.db"
    key = make_key(url)
    running = harness.Service(url, folder, role="ranker")
    yield running, key
    running.stop()


def fetch(service, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


@pytest.mark.parametrize(("path", "kind"), TYPES.items())
def test_every_file_comes_without_a_key_and_under_a_strict_policy(service, path, kind):
    status, headers, body = fetch(service[0], path)
    assert status == 200
    assert headers["content-type"] == kind
    assert headers["cache-control"] == "no-cache"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    rules = dict(
        rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";")
    )
    assert (
        rules["default-src"]
        == rules["base-uri"]
        == rules["form-action"]
        == rules["frame-ancestors"]
        == "'none'"
    )
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert body


def test_a_file_that_is_known_is_not_sent_again_and_head_sends_none(service):
    _, headers, body = fetch(service[0], "/dashboard.js")
    assert fetch(service[0], "/dashboard.js", **{"If-None-Match": headers["etag"]})[::2] == (
        304,
        "",
    )
    assert fetch(service[0], "/dashboard.js", **{"If-None-Match": '"another"'})[::2] == (200, body)
    status, head, nothing = fetch(service[0], "/dashboard.js", "HEAD")
    assert (status, head["content-length"], nothing) == (200, headers["content-length"], "")


def test_nothing_else_comes_without_a_key(service):
    for path in (
        "/dashboard.html",
        "/static/dashboard.js",
        "/dashboard.py",
        "//",
        "/../api.py",
        "/%2e%2e/api.py",
        "/dashboard.js/",
    ):
        assert fetch(service[0], path)[0] == 401, path
    for method in ("POST", "PUT", "DELETE"):
        assert fetch(service[0], "/", method)[0] == 401


def test_a_learner_serves_no_page(serve, tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    make_key(url)
    assert fetch(serve(url, role="learner"), "/")[0] == 401


def test_the_files_are_the_same_whatever_the_store_holds(service):
    running, key = service
    before = {path: fetch(running, path)[2] for path in TYPES}
    call = Caller(running.port, key)
    assert call("POST", "/v1/bandits", {**BANDIT, "name": "only-in-this-store"})[0] == 201
    decide(call, "only-in-this-store")
    assert {
        path: fetch(running, path, Authorization=f"Bearer {key}")[2] for path in TYPES
    } == before
    everything = "".join(before.values())
    assert "only-in-this-store" not in everything
    assert key not in everything


def test_what_the_page_refers_to_is_served_and_nothing_comes_from_elsewhere():
    page = (STATIC / "dashboard.html").read_text()
    scripts = {
        name: (STATIC / name).read_text()
        for name in ("dashboard.js", "dashboard-cards.js", "dashboard-words.js")
    }
    wanted = set(re.findall(r'(?:src|href)="(?!#)([^"]+)"', page))
    for text in scripts.values():
        wanted |= {name.removeprefix("./") for name in re.findall(r'from "([^"]+)"', text)}
    assert {f"/{name}" for name in wanted} == set(TYPES) - {"/"}
    for text in (page, *scripts.values(), (STATIC / "dashboard.css").read_text()):
        assert not re.search(r"(?i)(https?:)?//(?!www\.w3\.org/2000/svg)[a-z0-9-]+\.", text)
        assert "@import" not in text
        assert "url(" not in text


def test_there_is_no_inline_code_and_text_never_becomes_markup():
    page = (STATIC / "dashboard.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", page)
    for name in ("dashboard.js", "dashboard-cards.js", "dashboard-words.js"):
        text = (STATIC / name).read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|DOMParser",
            text,
        )
        assert "localStorage" not in text
        assert "cookie" not in text


def test_the_page_asks_for_nothing_that_comes_from_rewards():
    asked = set()
    for name in ("dashboard.js", "dashboard-cards.js"):
        text = (STATIC / name).read_text()
        asked |= set(re.findall(r'ask\(["`]([^"`]+)["`]', text))
        assert "rewards" not in re.sub(r"//.*", "", text)
    # And of one bandit itself, its account and its releases.
    assert asked == {"v1/bandits", "v1/privacy", "metrics"}
    page = (STATIC / "dashboard.js").read_text()
    assert re.findall(r"(\S.*)\.map\(\(more\) => ask\(path \+ more", page)[0].endswith(
        '["/privacy", "/releases", ""]'
    )
    assert page.count("ask(") == len(asked) + 2  # its own definition, and the one above


def test_ids_are_unique_and_every_label_finds_its_input():
    page = (STATIC / "dashboard.html").read_text()
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    pointed = " ".join(
        re.findall(r'(?:for|aria-labelledby|aria-describedby)="([^"]+)"', page)
    ).split()
    assert set(pointed) <= set(ids)
    for tag in re.findall(r"<input[^>]*>", page):
        assert f'for="{re.search(r"id=.([a-z-]+)", tag)[1]}"' in page
