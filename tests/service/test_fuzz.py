"""Whatever is sent: an answer that says what was wrong, never a 5xx, never a changed budget."""

import json
import random
import time

import pytest
import schemathesis
from harness import ARMS, BANDIT, Service, decide, learned, make_key
from hypothesis import HealthCheck, Phase, settings

from dpbandit.service.openapi import document
from dpbandit.service.settings import Settings

EXAMPLES = 15
LONG = "9" * 5_000
DEEP = "[" * 100_000 + "]" * 100_000

BAD = [
    "",
    "{",
    "null",
    "true",
    "[]",
    "{}",
    "NaN",
    "nul\0l",
    "\ud800".encode("utf-16", "surrogatepass"),
    b"\xff\xfe\xfa",
    DEEP,
    '{"a":' * 50_000 + "1" + "}" * 50_000,
    json.dumps("x" * 100_000),
    "[" + LONG + "]",
    "1e999999999",
]
CONTEXTS = [
    "NaN",
    "Infinity",
    "[[NaN,0,0]]",
    "[[1e999,0,0]]",
    "[[1e308,1e308,1e308]]",
    f"[[{LONG},0,0]]",
    "[]",
    "[[]]",
    "[[1,0]]",
    "[[1,0,0],[1,0]]",
    "[[1,0,0,0]]",
    '[["1",0,0]]',
    "[[true,0,0]]",
    "[[null,0,0]]",
    "[1,0,0]",
    "[[[1,0,0]]]",
    '{"0":[1,0,0]}',
    "[[9,9,9]]",
    DEEP,
    "[" + ",".join(["[0,0,0]"] * 1001) + "]",
]
REWARDS = ["NaN", "-Infinity", "1e999", LONG, '"1"', "null", "true", "[1]", "{}", DEEP, "-" + LONG]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def fuzzed(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    url = (
        f"sqlite:///{folder}/store.db"
        if request.param == "sqlite"
        else request.getfixturevalue("new_database")()
    )
    key = make_key(url)
    service = Service(url, folder, "--release-seconds", "0.05")
    call = service.caller(key)
    assert call("POST", "/v1/bandits", {**BANDIT, "reward_window": 3600})[0] == 201
    personal = {**BANDIT, "name": "personal", "unit": ["user", 2], "reward_window": 3600}
    assert call("POST", "/v1/bandits", personal)[0] == 201
    # One that learns at once: what enters learning is paid for, so anything bad that entered would show.
    assert call("POST", "/v1/bandits", {**BANDIT, "name": "quick", "reward_window": 0.05})[0] == 201
    decide(call, "quick")
    learned(call, 1, "quick")
    yield service, key
    service.stop()
    assert "unexpected" not in service.log.read_text()


def budget(call):
    total = call.get("/v1/privacy")
    time.sleep(0.5)  # longer than the quick one's window and the learner's pause
    return total["total"], [
        call.get(f"/v1/bandits/{name}/privacy") for name in ("shop", "personal", "quick")
    ]


def refused(answer, allowed=(400, 404, 408, 413, 422)):
    status, body = answer
    assert status in allowed, answer
    assert isinstance(body["error"], str)
    assert len(body["error"]) > 5
    assert "Traceback" not in body["error"]


def test_bad_bodies_by_hand(fuzzed):
    service, key = fuzzed
    call = service.caller(key)
    decision = decide(call)
    before = budget(call)
    for path in ("/v1/bandits", "/v1/bandits/shop/decisions", "/v1/bandits/shop/rewards"):
        for body in BAD:
            if path == "/v1/bandits" or body != "[]":  # nothing is asked for
                refused(call("POST", path, raw=body))
    for contexts in CONTEXTS:
        for name in ("shop", "quick"):
            refused(call("POST", f"/v1/bandits/{name}/decisions", raw=f'{{"contexts":{contexts}}}'))
    for value in REWARDS:
        refused(
            call(
                "POST",
                "/v1/bandits/shop/rewards",
                raw=f'{{"decision":"{decision}","reward":{value}}}',
            )
        )
        refused(
            call(
                "POST",
                "/v1/bandits/shop/rewards",
                raw=f'[{{"decision":"{decision}","reward":{value}}}]',
            )
        )
    good = {"contexts": ARMS}
    for more in (
        {"arms": ["a"]},
        {"arms": ["a", "b", 3]},
        {"arms": ["\0", "\0", "\0"]},
        {"arms": ["x" * 300] * 3},
        {"arms": ["a", "b", "x" * 300]},
        {"user": 7},
        {"extra": 1},
        {"contexts": None},
    ):
        for name in ("shop", "quick"):
            refused(call("POST", f"/v1/bandits/{name}/decisions", {**good, **more}))
    for user in ("", "x" * 300, None, 7, ["a"]):
        refused(call("POST", "/v1/bandits/personal/decisions", {**good, "user": user}))
    assert (
        call("POST", "/v1/bandits/personal/decisions", {**good, "user": "n\0l ü 漢 😀"})[0] == 201
    )
    million = '{"contexts":[' + ",".join(["[0,0,0]"] * 1_000_000) + "]}"
    refused(call("POST", "/v1/bandits/shop/decisions", raw=million))
    many = [{"decision": decision, "reward": 1}] * 1001
    refused(call("POST", "/v1/bandits/shop/rewards", many))
    for name in (
        "..",
        "%00",
        "shop%2f",
        "x" * 5000,
        "%ff%fe",
        "shop/decisions/more",
        "ünicode".encode().hex(),
    ):
        refused(call("POST", f"/v1/bandits/{name}/decisions", good))
    for headers in (
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer " + "x" * 8000},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "bearer \xff\xfe"},
    ):
        status, _ = call("GET", "/v1/bandits", headers=headers)
        assert status in (400, 401)
    assert budget(call) == before
    assert (
        call("POST", "/v1/bandits/shop/rewards", {"decision": decision, "reward": 1})[1]["status"]
        == "accepted"
    )


def test_random_bytes(fuzzed):
    service, key = fuzzed
    call = service.caller(key)
    rng = random.Random(5)
    good = json.dumps({"contexts": ARMS, "arms": ["a", "b", "c"]}).encode()
    before = budget(call)
    for _ in range(300):
        body = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(body))
            body[at : at + rng.randrange(0, 3)] = rng.randbytes(rng.randrange(0, 3))
        status, answer = call("POST", "/v1/bandits/shop/decisions", raw=bytes(body))
        assert status in (201, 400, 413, 422), (status, answer, bytes(body))
    assert budget(call) == before


def test_whatever_the_description_allows_or_forbids(fuzzed):
    """Requests made from the OpenAPI document, valid and not: answers are as described, and never a 5xx."""
    service, key = fuzzed
    call = service.caller(key)
    described = call.get("/openapi.json")
    assert described == json.loads(json.dumps(document(Settings(store="", role="ranker"))))
    schema = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=f"http://127.0.0.1:{service.port}")
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    before = [call.get(f"/v1/bandits/{name}/privacy") for name in ("shop", "personal")]
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.method.upper() == "DELETE":
            continue

        def attempt(case):
            nonlocal tried
            tried += 1
            if case.path_parameters and "name" in case.path_parameters and tried % 2:
                case.path_parameters["name"] = "shop"
            answer = case.call(headers={"Authorization": f"Bearer {key}"})
            case.validate_response(answer, checks=checks)

        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            try:
                strategy = operation.as_strategy(generation_mode=mode)
            except Exception:  # nothing can be wrong with a request that takes nothing
                continue
            from hypothesis import errors, given

            run = settings(
                max_examples=EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )(given(case=strategy)(attempt))
            try:
                run()
            except (errors.Unsatisfiable, errors.FailedHealthCheck):
                continue
    assert tried > 8 * EXAMPLES
    assert [call.get(f"/v1/bandits/{name}/privacy") for name in ("shop", "personal")] == before
