"""A decision that is asked for twice under one request id is made once."""

import asyncio
import json
import threading
import time

import numpy as np
import pytest
from harness import ARMS, BANDIT, make_key
from test_leases import make_bandit

from dpbandit.service import schema
from dpbandit.service.database import connect
from dpbandit.service.journal import Journal
from dpbandit.service.records import Asked, Earlier
from dpbandit.service.trusted import TrustedStore as Store

PATH = "/v1/bandits/named/decisions"


@pytest.fixture
def named(shared):
    service, key = shared
    call = service.caller(key)
    assert call("POST", "/v1/bandits", {**BANDIT, "name": "named", "reward_window": 600})[0] in (
        200,
        201,
    )
    return call


def decisions(call):
    time.sleep(0.1)  # longer than a ranker remembers a count
    return call.get("/v1/bandits/named")["decisions"]


def test_asking_again_gives_the_same_decision(named):
    body = {"contexts": ARMS, "arms": ["a", "b", "c"], "request": "first"}
    before = decisions(named)
    status, first = named("POST", PATH, body)
    assert status == 201
    for _ in range(5):
        assert named("POST", PATH, body) == (200, first)
    # also when the same numbers are written in another way
    again = json.dumps(body).replace("1.0", "1e0").replace("0.0", "-0.0")
    assert named("POST", PATH, raw=again) == (200, first)
    assert decisions(named) == before + 1
    assert (
        named("POST", "/v1/bandits/named/rewards", {"decision": first["decision"], "reward": 1})[0]
        == 200
    )
    assert named("POST", PATH, {**body, "request": "second"})[0] == 201


@pytest.mark.parametrize(
    "change",
    [
        {"contexts": ARMS[::-1]},
        {"contexts": ARMS[:2], "arms": None},
        {"arms": ["a", "b", "d"]},
        {"user": "x"},
    ],
)
def test_another_question_under_the_same_id_is_a_conflict(named, change):
    body = {"contexts": ARMS, "arms": ["a", "b", "c"], "request": "taken"}
    assert named("POST", PATH, body)[0] in (200, 201)
    before = decisions(named)
    status, answer = named("POST", PATH, {**body, **change})
    assert status == 409
    assert "request id" in answer["error"]
    assert decisions(named) == before


@pytest.mark.parametrize("request_id", ["", "x" * 65, "a\0b", 7, ["x"], {}])
def test_an_id_that_cannot_be_one_is_refused(named, request_id):
    before = decisions(named)
    assert named("POST", PATH, {"contexts": ARMS, "request": request_id})[0] == 422
    assert decisions(named) == before


def test_ids_of_any_script_work_and_belong_to_one_bandit(named):
    assert named("POST", "/v1/bandits", {**BANDIT, "name": "other", "reward_window": 600})[0] in (
        200,
        201,
    )
    body = {"contexts": ARMS, "request": "Bestellung №7 ✓" + "ü" * 49}
    assert named("POST", PATH, body)[0] in (200, 201)
    assert named("POST", "/v1/bandits/other/decisions", body)[0] in (200, 201)
    assert named("POST", PATH, body)[0] == 200


def test_all_who_ask_at_once_through_two_rankers_get_one_decision(store_url, serve):
    key = make_key(store_url)
    rankers = [serve(store_url, role="ranker") for _ in range(2)]
    assert rankers[0].caller(key)("POST", "/v1/bandits", {**BANDIT, "reward_window": 600})[0] == 201
    found, start = [], threading.Barrier(12)

    def ask(number):
        call = rankers[number % 2].caller(key)
        start.wait()
        for turn in range(20):
            body = {"contexts": ARMS, "request": f"turn {turn}"}
            found.append((turn, *call("POST", "/v1/bandits/shop/decisions", body)))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for turn in range(20):
        answers = [(status, answer["decision"]) for n, status, answer in found if n == turn]
        assert sorted(status for status, _ in answers) == [200] * 11 + [201]
        assert len({decision for _, decision in answers}) == 1
    store = Store(store_url)
    assert [
        row[0] for row in store.connection.all("SELECT seq FROM decisions ORDER BY seq")
    ] == list(range(1, 21))
    assert store.lines()[0].decisions == 20
    store.close()


def test_a_batch_that_mixes_all_kinds_leaves_no_hole_in_the_stream(store_url):
    bandit = make_bandit(store_url)
    context = np.zeros(3).tobytes()

    async def write():
        journal = Journal(store_url)
        await journal.start()
        ids = [None, "a", "b", "a", None, "c", "a", "b"] + [f"n{i}" for i in range(150)]
        given = [(None if name is None else Asked(name, b"same")) for name in ids]
        given[6] = Asked("a", b"different")
        results = []
        for _ in range(2):
            asked = [
                journal.decide((bandit, 0, None, context, None, 0, "test"), one) for one in given
            ]
            results.append(await asyncio.gather(*asked))
        await journal.stop()
        return results

    first, second = asyncio.run(write())
    assert [isinstance(place, Earlier) for place in first[:8]] == [
        False,
        False,
        False,
        True,
        False,
        False,
        True,
        True,
    ]
    assert (first[3].same, first[6].same, first[7].same) == (True, False, True)
    assert first[3].seq == first[1][0] == second[1].seq
    assert sum(isinstance(place, Earlier) for place in second) == len(second) - 2
    store = Store(store_url)
    seqs = [row[0] for row in store.connection.all("SELECT seq FROM decisions ORDER BY seq")]
    assert seqs == list(range(1, 5 + 150 + 2 + 1))
    assert store.lines()[0].decisions == seqs[-1]
    # an id goes with its decision, and is then free
    store.connection.run("UPDATE progress SET learned = closed")
    store.delete(bandit)
    assert store.connection.all("SELECT request FROM decisions") == []
    store.close()


def test_the_lookup_uses_its_index(store_url):
    make_bandit(store_url)
    store = Store(store_url)
    explain = "EXPLAIN QUERY PLAN" if store.connection.kind == "sqlite" else "EXPLAIN"
    sql = "SELECT d.seq FROM NAMES CROSS JOIN decisions d WHERE d.bandit = ? AND d.request = names.value"
    plan = str(store.connection.naming(f"{explain} {sql}", [f"n{i}" for i in range(64)], (1,)))
    assert "decisions_by_request" in plan  # of an empty table, never analysed
    store.close()


def test_a_store_from_before_request_ids_takes_them_after_its_migration(store_url):
    connection = connect(store_url)
    schema.migrate(connection, to=2)
    with connection.write():
        names = ("bandit", "seq", "nonce", "decided_at", "arm", "context", "version", "key")
        types = ("int", "bigint", "bigint", "bigint", "int", "bytea", "bigint", "text")
        columns = dict(zip(names, types, strict=True))
        rows = [(1, i, i, 0, 0, b"", 0, "k") for i in range(1, 4)]
        connection.insert("decisions", columns, rows)
    schema.migrate(connection)
    assert connection.all("SELECT request, digest FROM decisions") == [(None, None)] * 3
    connection.close()
