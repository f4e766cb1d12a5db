"""What the service answers, on both stores, through real sockets."""

import contextlib
import http.client
import json
import re
import socket
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from harness import ARMS, BANDIT, Caller, decide, dpbandit, learned, make_key, reward, until

import dpbandit as dpb


@pytest.fixture
def call(shared):
    service, key = shared
    return service.caller(key)


@pytest.fixture
def shop(call):
    status, answer = call("POST", "/v1/bandits", BANDIT)
    assert status in (200, 201), answer
    return call


def test_a_bandit_is_made_once(call):
    mine = {**BANDIT, "name": "once"}
    status, made = call("POST", "/v1/bandits", mine)
    assert status == 201
    assert made["claim"]["status"] == "proven"
    assert made["claim"]["noise"] == "real"
    assert made["default_reward"] == 0.0
    assert call("POST", "/v1/bandits", mine)[0] == 200
    assert call("POST", "/v1/bandits", {**mine, "default_reward": 0.0})[0] == 200
    assert call("POST", "/v1/bandits", {**mine, "epsilon": 2.0})[0] == 409
    assert "once" in {bandit["name"] for bandit in call.get("/v1/bandits")["bandits"]}
    assert call("GET", "/v1/bandits/nobody")[0] == 404


def test_lists_come_in_pages_and_without_contexts_known_in_advance(call):
    contexts = [[0.25, 0.5, 0.0], [0.0, 0.125, 0.5]]
    for name in ("zz-1", "zz-2", "zz-3"):
        known = {**BANDIT, "name": name, "algorithm": "anytime"}
        known["options"] = {"public_contexts": contexts, "alpha": 0.5}
        known["encoder"] = dpb.Encoder({"b": dpb.Hashed(1)}).to_record()
        assert call("POST", "/v1/bandits", known)[0] == 201
        assert call("POST", "/v1/bandits", known)[0] == 200
    page = call.get("/v1/bandits?after=zz&limit=2")
    assert [one["name"] for one in page["bandits"]] == ["zz-1", "zz-2"]
    assert page["bandits"][0]["options"] == {"alpha": 0.5}
    assert "encoder" not in page["bandits"][0]
    assert page["next"] == "zz-2"
    rest = call.get(f"/v1/bandits?limit=2&after={page['next']}")
    assert [one["name"] for one in rest["bandits"]] == ["zz-3"]
    assert rest["next"] is None
    assert call.get("/v1/bandits")["next"] is None
    whole = call.get("/v1/bandits/zz-1")
    assert (whole["options"]["public_contexts"], whole["encoder"]) == (contexts, known["encoder"])
    for wrong in ("0", "1001", "x", "-1", "²", "9" * 5_000):
        assert call("GET", f"/v1/bandits?limit={quote(wrong)}")[0] == 422


def test_the_window_is_half_an_hour_unless_set(call):
    asked = {key: value for key, value in BANDIT.items() if key != "reward_window"}
    assert call("POST", "/v1/bandits", {**asked, "name": "slow"})[1]["reward_window"] == 1800


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"seed": 7}},
        {"options": {"seed": 0}},
        {"seed": 7},
        {"options": {"pan_private": True}},
        {"options": {"context_noise": 0.1}},
        {"algorithm": "dgs-figure"},
        {"algorithm": "linucb"},
        {"algorithm": "nothing"},
        {"epsilon": -1},
        {"epsilon": None},
        {"delta": 2},
        {"dim": 0},
        {"dim": 10**9},
        {"reward_range": [1, 0]},
        {"default_reward": 5},
        {"reward_window": 0},
        {"reward_window": 1e300},
        {"unit": ["user", 0]},
        {"unit": "household"},
        {"horizon": 0},
        {"name": "../etc"},
        {"name": "a" * 65},
        {"options": {"ridge": "wide"}},
        {"options": {"public_contexts": [[1, "x"]]}},
        {"options": {"epsilon": 3}},
    ],
)
def test_what_cannot_be_served_is_refused_with_words(shared, change):
    service, key = shared
    call = service.caller(key)
    before = call.get("/v1/privacy")["total"]
    status, answer = call("POST", "/v1/bandits", {**BANDIT, "name": "refused", **change})
    assert status == 422, answer
    assert len(answer["error"]) > 10
    assert call.get("/v1/privacy")["total"] == before


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/bandits", {"options": {"shape" * 10_000: 1}}),
        ("/v1/bandits/shop/decisions", {"x" * 50_000: 1}),
        ("/v1/bandits/shop/personalizer/rank", {"x" * 50_000: 1}),
    ],
)
def test_a_refusal_does_not_repeat_all_that_was_sent(shop, path, asked):
    status, answer = shop("POST", path, {**(BANDIT if path == "/v1/bandits" else {}), **asked})
    assert status in (400, 422)
    assert len(json.dumps(answer)) < 1_200


def test_a_decision_names_arm_and_model(shop):
    status, answer = shop(
        "POST", "/v1/bandits/shop/decisions", {"contexts": ARMS, "arms": ["a", "b", "c"]}
    )
    assert status == 201
    assert set(answer) == {"decision", "arm", "arm_id", "model_version"}
    assert answer["arm_id"] == ["a", "b", "c"][answer["arm"]]
    assert shop("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})[1]["arm_id"] is None


def test_before_the_first_release_equal_arms_are_drawn_by_lot(shop):
    assert shop("POST", "/v1/bandits", {**BANDIT, "name": "lot", "reward_window": 600})[0] in (
        200,
        201,
    )
    equal = {"contexts": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}
    shown = {shop("POST", "/v1/bandits/lot/decisions", equal)[1]["arm"] for _ in range(40)}
    assert shown == {0, 1, 2}  # false alarm: 3 · (2/3)⁴⁰ < 3e-7


def test_a_reward_is_counted_once(shop):
    assert shop("POST", "/v1/bandits", {**BANDIT, "name": "counted", "reward_window": 600})[0] in (
        200,
        201,
    )
    decision = decide(shop, "counted")
    assert reward(shop, decision, 1, "counted") == (200, {"status": "accepted"})
    assert reward(shop, decision, 1.0, "counted") == (200, {"status": "duplicate"})
    status, answer = reward(shop, decision, 0, "counted")
    assert status == 409
    assert not re.search(r"[01]\.\d|= ?[01]\b", answer["error"])
    for unknown in (
        "1-0000000000000000",
        "zz",
        "",
        "1",
        "-1-0000000000000000",
        decision[:-1] + "x",
        "9" * 400,
    ):
        assert reward(shop, unknown, 1, "counted")[0] == 404
    # the same place in the stream with another nonce: a decision of a lost copy of the store
    other = decision.split("-")[0] + "-" + "0" * 15 + "1"
    assert reward(shop, other, 1, "counted")[0] == 404


def test_rewards_come_in_lists_too(shop):
    assert shop("POST", "/v1/bandits", {**BANDIT, "name": "listed", "reward_window": 600})[0] in (
        200,
        201,
    )
    one, two, three = (decide(shop, "listed") for _ in range(3))
    items = [(one, 1), (two, 0), (one, 1), (two, 1), ("nonsense", 1), (three, 7)]
    status, answer = shop(
        "POST", "/v1/bandits/listed/rewards", [{"decision": d, "reward": r} for d, r in items]
    )
    assert status == 200
    assert [row["status"] for row in answer] == [
        "accepted",
        "accepted",
        "duplicate",
        "conflict",
        "unknown",
        "accepted",
    ]
    assert [row["decision"] for row in answer] == [d for d, _ in items]
    # beyond the range is kept as the end of the range
    assert reward(shop, three, 1, "listed") == (200, {"status": "duplicate"})
    assert shop("POST", "/v1/bandits/listed/rewards", [])[1] == []


def test_decisions_are_learned_at_a_fixed_age_and_late_rewards_are_not(shop):
    before = shop.get("/v1/bandits/shop")
    decision = decide(shop)
    rewarded = decide(shop)
    assert reward(shop, rewarded, 1)[1] == {"status": "accepted"}
    time.sleep(1.1)
    assert reward(shop, decision, 1) == (200, {"status": "late"})
    learned(shop, before["decisions"] + 2)
    after = shop.get("/v1/bandits/shop")
    assert after["model_version"] > before["model_version"]
    # learned without its reward: the budget of both was used alike
    privacy = shop.get("/v1/bandits/shop/privacy")
    assert privacy["releases"] == after["learned"]
    assert reward(shop, decision, 1) == (200, {"status": "late"})
    assert reward(shop, rewarded, 1) == (200, {"status": "duplicate"})


def test_rankers_pick_up_a_new_model_within_a_second(shared, shop):
    from dpbandit.service.store import Store

    service, _ = shared
    store = Store(service.store)

    def newest():
        return store.connection.all(
            "SELECT p.version FROM progress p JOIN bandits b ON b.id = p.bandit WHERE b.name = 'shop'"
        )

    decide(shop)
    before = newest()
    until(
        lambda: newest() != before
    )  # seen in the store: asking the ranker would make it look there
    (version,) = newest()[0]
    began = time.monotonic()
    until(
        lambda: (
            shop("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})[1]["model_version"]
            >= version
        ),
        5,
    )
    assert time.monotonic() - began < 1.0
    store.close()


def test_privacy_says_claim_spent_remaining_releases_and_ledger(shop):
    before = shop.get("/v1/bandits/shop")["learned"]
    decide(shop)
    learned(shop, before + 1)
    privacy = shop.get("/v1/bandits/shop/privacy")
    assert {"claim", "spent", "remaining", "releases", "ledger"} <= set(privacy)
    assert 0 < privacy["spent"]["epsilon"] <= privacy["claim"]["epsilon"] * 1.001
    assert privacy["claim"]["words"].startswith("proven: ε = 1")
    assert sum(row["releases"] for row in privacy["ledger"]) == privacy["releases"]
    # JSON has no infinity: None is one that forgets nothing.
    assert privacy["memory"] is None
    total = shop.get("/v1/privacy")
    assert total["total"]["bandits"] >= 1
    assert total["cap"] is None


def test_a_horizon_ends_learning_and_never_ranking(shop):
    small = {**BANDIT, "name": "short", "horizon": 3, "reward_window": 0.2}
    assert shop("POST", "/v1/bandits", small)[0] in (200, 201)
    for _ in range(6):
        decide(shop, "short")
    until(lambda: shop.get("/v1/bandits/short")["status"] == "spent", 60)
    assert shop.get("/v1/bandits/short")["learned"] == 3
    decision = decide(shop, "short")
    assert reward(shop, decision, 1, "short") == (200, {"status": "late"})
    spent = shop.get("/v1/bandits/short/privacy")
    assert spent["releases"] == 3


def test_a_user_counts_by_decisions_and_only_up_to_the_cap(shop):
    personal = {**BANDIT, "name": "personal", "unit": ["user", 2], "reward_window": 0.2}
    assert shop("POST", "/v1/bandits", personal)[0] in (200, 201)
    assert shop("POST", "/v1/bandits/personal/decisions", {"contexts": ARMS})[0] == 422
    assert shop("POST", "/v1/bandits/personal/decisions", {"contexts": ARMS, "user": ""})[0] == 422
    for user in ("ann", "ann", "ann", "bob"):
        decide(shop, "personal", user=user)
    learned(shop, 4, "personal")
    for user in ("ann", "bob"):  # counts outlive the batch
        decide(shop, "personal", user=user)
    learned(shop, 6, "personal")
    assert shop.get("/v1/bandits/personal/privacy")["releases"] == 4  # ann 2, bob 2
    assert "at most 2 rewards" in shop.get("/v1/bandits/personal")["claim"]["unit"]


def test_a_person_is_learned_from_at_every_visit_and_nothing_shows_what_is_left(shop):
    capped = {**BANDIT, "name": "capped", "unit": ["person", 1], "reward_window": 0.2}
    assert shop("POST", "/v1/bandits", capped)[0] in (200, 201)
    assert shop("POST", "/v1/bandits/capped/decisions", {"contexts": ARMS})[0] == 422
    seen = []
    for click in (1.0, 0.0):  # ann clicks always, then bob never
        for _ in range(3):
            decision = decide(shop, "capped", user="ann" if click else "bob")
            reward(shop, decision, click, "capped")
        seen.append(shop.get("/v1/bandits/capped"))
    learned(shop, 6, "capped")
    assert shop.get("/v1/bandits/capped/privacy")["releases"] == 6  # every visit enters
    assert "however often they come" in seen[0]["claim"]["unit"]
    for path in ("", "/privacy", "/releases", "/model"):
        assert "1048576" not in str(shop("GET", f"/v1/bandits/capped{path}"))
    uneven = {**capped, "name": "uneven", "reward_range": [-1, 1]}
    status, answer = shop("POST", "/v1/bandits", uneven)
    assert status == 422
    assert "must start at 0" in str(answer)


def test_deleting_gives_nothing_back_and_names_are_not_reused(shop):
    mine = {**BANDIT, "name": "gone"}
    assert shop("POST", "/v1/bandits", mine)[0] == 201
    before = shop.get("/v1/privacy")["total"]
    assert shop("DELETE", "/v1/bandits/gone")[0] == 200
    assert shop("GET", "/v1/bandits/gone")[0] == 404
    assert shop("POST", "/v1/bandits/gone/decisions", {"contexts": ARMS})[0] == 404
    assert shop.get("/v1/privacy")["total"] == before
    assert shop("POST", "/v1/bandits", mine)[0] == 409


# ---------------------------------------------------------------------- keys


def test_without_a_key_there_is_no_answer(shared):
    service, key = shared
    for path in (
        "/v1/bandits",
        "/v1/privacy",
        "/metrics",
        "/openapi.json",
        "/v1/bandits/shop",
        "/nothing",
    ):
        for wrong in (
            "",
            "wrong",
            "dpb_000000000000_" + "x" * 43,
            key[:-1] + ("A" if key[-1] != "A" else "B"),
        ):
            assert Caller(service.port, wrong)("GET", path)[0] == 401, (path, wrong)
    for path in ("/healthz", "/readyz"):
        assert Caller(service.port, "")("GET", path) == (200, {"ok": True})


def test_each_role_may_do_its_own(shared, shop):
    service, _ = shared
    rank, rewarder = (service.caller(make_key(service.store, role)) for role in ("rank", "reward"))
    decision = decide(rank)
    assert reward(rank, decision, 1)[0] == 403
    assert reward(rewarder, decision, 1)[0] == 200
    assert rewarder("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})[0] == 403
    for caller in (rank, rewarder):
        assert caller("POST", "/v1/bandits", BANDIT)[0] == 403
        assert caller("DELETE", "/v1/bandits/shop")[0] == 403
        assert caller("GET", "/v1/bandits/shop")[0] == 200


def test_a_revoked_key_ends_within_a_second(shared):
    service, _ = shared
    created = dpbandit("keys", "create", "--role", "rank", "--store", service.store)
    key = created.stdout.split()[-1]
    call = service.caller(key)
    # Not a list of bandits: asking for that makes a ranker look at the store again.
    asked = ("POST", "/v1/bandits/nothing-of-this-name/decisions", {"contexts": ARMS})
    assert call(*asked)[0] == 404
    assert dpbandit("keys", "revoke", key.split("_")[1], "--store", service.store).returncode == 0
    until(lambda: call(*asked)[0] == 401, 1.5)
    listed = json.loads(dpbandit("keys", "list", "--store", service.store, "--json").stdout)
    assert any(row["revoked_at"] for row in listed)
    assert key.split("_")[2] not in json.dumps(listed)


def test_keys_are_stored_as_hashes(shared):
    from dpbandit.service.store import Store

    service, key = shared
    store = Store(service.store)
    rows = store.connection.all("SELECT id, hash, role, label FROM keys")
    store.close()
    assert key.split("_")[2] not in repr(rows)
    assert all(len(bytes(row[1])) == 32 for row in rows)


# ---------------------------------------------------------------------- limits, metrics, logs


def test_metrics_count_decisions_and_never_rewards(shop):
    text = shop("GET", "/metrics")[1]
    assert 'dpbandit_decisions_total{bandit="shop"}' in text
    assert "dpbandit_decision_seconds_bucket" in text
    assert "reward" not in text.replace("rewards are not counted", "")


def test_the_access_log_says_who_asked_and_does_not_count_rewards(shared, shop):
    from dpbandit.service.store import Store

    service, key = shared
    reward(shop, decide(shop), 1)

    def rows():
        store = Store(service.store)
        found = store.connection.all("SELECT key, action, bandit, status, requests FROM access_log")
        store.close()
        return {(row[1], row[2], row[3]): row[4] for row in found if row[0] == key.split("_")[1]}

    until(lambda: ("rewards", "shop", 200) in rows() and ("decisions", "shop", 201) in rows(), 15)
    assert rows()["rewards", "shop", 200] is None
    assert rows()["decisions", "shop", 201] >= 1


def test_a_head_that_is_too_large_or_too_slow_is_refused(shared):
    service, _ = shared
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as babbler:
        babbler.sendall(b"GET /healthz HTTP/1.1\r\n" + b"x: " + b"y" * 40_000)
        answer = http.client.HTTPResponse(babbler)
        answer.begin()
        assert answer.status == 431
        assert "head" in json.loads(answer.read())["error"]
    begun, whole = b"GET /healthz HTTP/1.1\r\nhost:", b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    with contextlib.ExitStack() as stack:
        silent, dawdler, returning = (
            stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=20))
            for _ in range(3)
        )
        # a connection that was of use before is not let off
        returning.sendall(whole)
        answer = b""
        while not answer.endswith(b"}"):
            answer += returning.recv(2000)
        began = time.monotonic()
        dawdler.sendall(begun)
        returning.sendall(begun)
        for connection in (silent, dawdler, returning):  # their time runs out side by side
            assert connection.recv(200) == b""
            assert 1 < time.monotonic() - began < 10


def test_strangers_leave_nothing_behind(shared):
    service, _ = shared
    stranger = Caller(service.port, "dpb_000000000000_" + "x" * 6000)

    def memory():
        text = Path(f"/proc/{service.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024

    for _ in range(300):
        assert stranger("GET", "/v1/bandits")[0] == 401
    before = memory()
    for _ in range(3000):
        stranger("GET", "/v1/bandits")
    assert memory() - before < 8  # MB; each head has 6 kB


def test_a_body_that_is_too_large_or_too_slow_is_refused(shared, shop):
    service, key = shared
    status, answer = shop("POST", "/v1/bandits/shop/decisions", raw=b"[" + b"1," * (3 << 20))
    assert status == 413
    assert "bytes" in answer["error"]
    many = {"contexts": [[0.0, 0.0, 0.0]] * 1001}
    assert shop("POST", "/v1/bandits/shop/decisions", many)[0] == 413
    with socket.create_connection(("127.0.0.1", service.port)) as slow:
        head = f"POST /v1/bandits/shop/decisions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        slow.sendall(head.encode() + b"content-length: 100\r\n\r\n{")
        slow.settimeout(20)
        assert b" 408 " in slow.recv(200)


def test_no_answer_log_or_metric_shows_a_reward(shared, shop):
    """A reward with a value like no other is found in the store alone."""
    service, _ = shared
    assert shop("POST", "/v1/bandits", {**BANDIT, "name": "odd", "reward_window": 0.5})[0] in (
        200,
        201,
    )
    decision = decide(shop, "odd")
    value = 0.7319426815
    texts = [
        repr(reward(shop, decision, value, "odd")),
        repr(reward(shop, decision, value / 2, "odd")),
    ]
    texts.append(
        repr(shop("POST", "/v1/bandits/odd/rewards", {"decision": decision, "reward": [value]}))
    )
    learned(shop, 1, "odd")
    for path in (
        "/v1/bandits",
        "/v1/bandits/odd",
        "/v1/bandits/odd/privacy",
        "/v1/bandits/odd/releases",
        "/metrics",
    ):
        texts.append(repr(shop("GET", path)))
    texts.append(service.log.read_text())
    for text in texts:
        assert "73194268" not in text  # fewer digits stand in a time by chance
        assert "36597134" not in text


def test_methods_that_are_not_there_are_refused(shop):
    for method, path in (
        ("PUT", "/v1/bandits"),
        ("GET", "/v1/bandits/shop/decisions"),
        ("POST", "/v1/privacy"),
    ):
        assert shop(method, path)[0] == 405


def test_the_openapi_document_names_every_route(shop):
    document = shop.get("/openapi.json")
    assert document["openapi"].startswith("3.")
    for path, methods in document["paths"].items():
        status, _ = shop("GET", path.replace("{name}", "shop").replace("{user}", "ann"))
        assert status == (200 if "get" in methods else 405), path
