"""Slates, scores, propensities, and many decisions in one call: each arm of a slate is a decision."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from harness import ARMS, BANDIT, Caller, decide, learned, make_key, reward
from test_leases import make_bandit

import dpbandit
from dpbandit.errors import RequestError, StoreError
from dpbandit.model import ReleasedModel
from dpbandit.service import rounds
from dpbandit.service.answers import Refused
from dpbandit.service.api import App
from dpbandit.service.journal import Journal
from dpbandit.service.records import Asked
from dpbandit.service.settings import Settings
from dpbandit.service.store import Store

PATH = "/v1/bandits/shop/decisions"


@pytest.fixture
def shop(shared):
    service, key = shared
    call = service.caller(key)
    for name, change in (
        ("shop", {}),
        ("lots", {"algorithm": "private-ts", "horizon": 1000}),
        ("visits", {"algorithm": "anytime-joint"}),
    ):
        asked = {**BANDIT, "reward_window": 600, "name": name, **change}
        status, said = call("POST", "/v1/bandits", asked)
        assert status in (200, 201), said
    return call


def test_a_slate_is_ranked_and_each_arm_has_an_id_and_a_score(shop):
    names = ["tea", "coffee", "water"]
    status, said = shop("POST", PATH, {"contexts": ARMS, "arms": names, "k": 3})
    assert status == 201, said
    slate = said["slate"]
    assert sorted(one["arm"] for one in slate) == [0, 1, 2]
    assert [one["arm_id"] for one in slate] == [names[one["arm"]] for one in slate]
    scores = [one["score"] for one in slate]
    assert scores == sorted(scores, reverse=True)
    assert {name: said[name] for name in ("decision", "arm", "arm_id")} == {
        name: slate[0][name] for name in ("decision", "arm", "arm_id")
    }
    assert "propensity" not in slate[0]
    assert len({one["decision"] for one in slate}) == 3
    # Each has a reward of its own.
    for one, value in zip(slate, (0.0, 1.0, 1.0), strict=True):
        assert reward(shop, one["decision"], value) == (200, {"status": "accepted"})
    assert "slate" not in shop("POST", PATH, {"contexts": ARMS})[1]


def decisions(shop):
    time.sleep(0.1)  # a page may be so old
    return shop.get("/v1/bandits/shop")["decisions"]


@pytest.mark.parametrize("k", [0, 4, -1, "x", 1.5])
def test_k_is_a_number_of_arms(shop, k):
    assert shop("POST", PATH, {"contexts": ARMS, "k": k})[0] == 422


def test_asking_again_gives_the_same_slate_and_scores(shop):
    path = "/v1/bandits/lots/decisions"  # whose scores are drawn by lot
    asked = {"contexts": ARMS, "k": 2, "propensities": True, "request": "again"}
    first, second = shop("POST", path, asked), shop("POST", path, asked)
    if first[0] == 200:  # the other store's turn of a shared service
        assert first[1] == second[1]
    assert (second[0], second[1]) == (200, first[1])
    for other in ({"k": 3}, {"k": None}, {"propensities": False}, {"contexts": ARMS[::-1]}):
        assert shop("POST", path, {**asked, **other})[0] == 409
    # Nobody else's id can be one of a slate's: those are longer than ids may be.
    assert shop("POST", path, {"contexts": ARMS, "request": "1:again:" + "." * 64})[0] == 422


def test_propensities_where_the_policy_has_them(shop):
    asked = {"contexts": ARMS, "k": 3, "propensities": True}
    slate = shop("POST", "/v1/bandits/lots/decisions", asked)[1]["slate"]
    assert sum(one["propensity"] for one in slate) == pytest.approx(1.0, abs=0.01)
    assert all(one["propensity_error"] >= 0 for one in slate)
    # One that plays the highest bound has none.
    (one,) = shop("POST", PATH, {"contexts": ARMS, "propensities": True})[1]["slate"]
    assert (one["propensity"], one["propensity_error"]) == (None, None)


def test_propensities_of_many_arms_are_drawn_in_a_moment(shop):
    """They took a minute for a thousand arms, on threads that others needed too."""
    path = "/v1/bandits/lots/decisions"
    arms = np.random.default_rng(0).uniform(-0.5, 0.5, (1000, 3)).tolist()
    asked = {"contexts": arms, "propensities": True}
    with ThreadPoolExecutor(9) as pool:
        began = time.monotonic()
        waiting = [pool.submit(Caller(shop.port, shop.key), "POST", path, asked) for _ in range(8)]
        assert shop("GET", "/metrics")[0] == 200  # which needs a thread, too
        assert time.monotonic() - began < 5
        assert {one.result()[0] for one in waiting} == {201}
    few = {"contexts": arms[:101], "propensities": True}
    assert shop("POST", path, [few] * 100)[0] == 413
    assert shop("POST", path, [{**few, "propensities": False}] * 100)[0] == 200


def test_many_in_one_call(shop):
    many = [
        {"contexts": ARMS, "request": "m1"},
        {"contexts": ARMS, "request": "m2", "k": 2},
        {"contexts": ARMS, "request": "m1"},
        {"contexts": ARMS[:2], "request": "m1"},
    ]
    before = decisions(shop)
    status, said = shop("POST", PATH, many)
    assert status == 200, said
    assert said[2] == said[0]
    assert (said[3]["status"], "request id" in said[3]["error"]) == (409, True)
    assert shop("POST", PATH, many) == (200, said)
    assert decisions(shop) == before + 3  # 1, and a slate of 2
    ids = [said[0]["decision"], *(one["decision"] for one in said[1]["slate"])]
    reports = [{"decision": one, "reward": 1.0} for one in ids]
    _, statuses = shop("POST", "/v1/bandits/shop/rewards", reports)
    assert [one["status"] for one in statuses] == ["accepted"] * 3
    assert shop("POST", PATH, []) == (200, [])


def test_one_that_is_wrong_and_nothing_is_made(shop):
    before = decisions(shop)
    status, said = shop("POST", PATH, [{"contexts": ARMS}, {"contexts": [[9.0, 9.0, 9.0]]}])
    assert (status, said["error"][:22]) == (422, "number 1 of the list: ")
    many = [{"contexts": ARMS, "k": 3}] * 334
    assert shop("POST", PATH, many)[0] == 413  # slates count by their arms
    assert decisions(shop) == before


@pytest.mark.parametrize("wrong", [False, True])
def test_what_is_drawn_for_a_list_is_waited_for_together(tmp_path, monkeypatch, wrong):
    """One after the other, a thousand of them took twelve seconds beside other work: each waited for
    the thread that draws, and that for the next."""
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url, algorithm="private-ts", horizon=1000)
    plain, here, all_here = rounds.drawn, [], asyncio.Event()
    many = [{"contexts": ARMS, "propensities": True} for _ in range(150)]
    if wrong:
        many[120]["contexts"] = [[9.0, 9.0, 9.0]]

    async def drawn(*given, **more):
        here.append(1)
        if len(here) == rounds.TOGETHER:
            all_here.set()
        await asyncio.wait_for(all_here.wait(), 30)
        return await plain(*given, **more)

    async def receive():
        return {"type": "http.request", "body": json.dumps(many).encode()}

    async def live():
        app = App(Settings(store=url))
        await app.start()
        app._working[asyncio.current_task()] = time.monotonic()
        try:
            return json.loads((await rounds.decide(app, "shop", "key", receive))[2])
        finally:
            await app.stop()

    monkeypatch.setattr(rounds, "drawn", drawn)
    if wrong:
        with pytest.raises(Refused, match="number 120 of the list: "):
            asyncio.run(live())
    else:
        said = asyncio.run(live())
        assert [int(one["decision"].split("-")[0], 16) for one in said] == [*range(1, 151)]
        assert all(one["slate"][0]["propensity"] > 0 for one in said)
    store = Store(url)
    assert store.connection.one("SELECT count(*) FROM decisions") == (0 if wrong else 150,)
    store.close()


@pytest.mark.parametrize("drawn", [False, True])
def test_a_list_leaves_others_their_turn(tmp_path, monkeypatch, drawn):
    """A thousand decisions of 512 features kept everybody else waiting for four seconds."""
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url, algorithm="private-ts", horizon=1000)
    many = [rounds.DecisionRequest(ARMS, propensities=drawn) for _ in range(150)]
    plain, busy, turns = rounds._prepare, [], []

    async def prepare(*given):
        busy.append(1)
        return await plain(*given)

    async def others():
        while True:
            turns.append(len(busy))
            await asyncio.sleep(0)

    async def live():
        app = App(Settings(store=url))
        await app.start()
        waiting = asyncio.create_task(others())
        await rounds._prepare_all(app, await app.served("shop"), "key", many, listed=True)
        waiting.cancel()
        await app.stop()

    monkeypatch.setattr(rounds, "_prepare", prepare)
    monkeypatch.setattr(rounds.Turn, "SECONDS", 0.0)  # each takes longer than that
    asyncio.run(live())
    assert len(busy) == 150
    assert set(turns) >= set(range(1, 150))


def test_the_client(shop):
    client = dpbandit.Client(f"http://127.0.0.1:{shop.port}", key=shop.key)
    with client:
        shown = client.decide("lots", ARMS, ["a", "b", "c"], k=2, propensities=True)
        assert [shown.arm, shown.arm_id] == [shown.slate[0].arm, shown.slate[0].arm_id]
        assert 0 <= shown.slate[1].propensity <= 1
        assert client.reward("lots", shown.slate[1], 1.0) == "accepted"
        many = client.decide_many("lots", [{"contexts": ARMS}, {"contexts": ARMS, "k": 3}])
        assert [len(one.slate) for one in many] == [0, 3]
        pairs = [(one, 0.0) for one in many[1].slate]
        assert client.rewards("lots", pairs) == ["accepted"] * 3
        client.decide("lots", ARMS, request="mine")
        with pytest.raises(RequestError, match="number 0"):
            client.decide_many("lots", [{"contexts": ARMS[:1], "request": "mine"}])
        with pytest.raises(dpbandit.errors.OptionError):
            client.decide_many("lots", [{"context": ARMS}])

    async def one():
        async with dpbandit.AsyncClient(f"http://127.0.0.1:{shop.port}", key=shop.key) as client:
            return await client.decide_many("lots", [{"contexts": ARMS, "k": 1}])

    assert len(asyncio.run(one())[0].slate) == 1


def test_a_person_s_own_slate_is_theirs_alone(shop, shared):
    """Scores of private contexts are told to who sent the contexts: nobody else can ask for them."""
    service, _ = shared
    path = "/v1/bandits/visits/decisions"
    context = [[0.123456, 0.2, 0.1], [0.3, 0.654321, 0.0]]
    asked = {"contexts": context, "k": 2, "request": "private"}
    status, said = shop("POST", path, asked)
    assert status in (200, 201), said
    score = str(said["slate"][0]["score"])
    rank = service.caller(make_key(service.store, "rank"))
    guess = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.1]]
    status, other = rank("POST", path, {**asked, "contexts": guess})
    assert status == 409
    assert score not in str(other) or score == "0.0"
    for page in ("/v1/bandits/visits", "/v1/bandits/visits/releases", "/metrics"):
        shown = str(rank.get(page))
        assert "0.123456" not in shown
        assert "slate" not in shown
    # Nor does an error say what is in a context.
    status, other = shop("POST", path, [{"contexts": [[77.125, 0.0, 0.0]], "k": 1}])
    assert status == 422
    assert "77.1" not in str(other)


def test_learning_counts_every_arm_that_was_shown(serve, store_url):
    key = make_key(store_url)
    service = serve(store_url)
    call = service.caller(key)
    assert call("POST", "/v1/bandits", {**BANDIT, "reward_window": 0.2})[0] == 201
    assert call("POST", PATH, {"contexts": ARMS, "k": 3})[0] == 201
    learned(call, 3)
    decide(call)
    learned(call, 4)


def test_all_of_a_slate_or_nothing(store_url, monkeypatch):
    """However many are waiting, a slate is in one transaction; when that fails, none of it is."""
    bandit = make_bandit(store_url)
    context = np.array([0.5, 0.5, 0.0]).tobytes()
    sizes = []

    async def write():
        journal = Journal(store_url)
        await journal.start()
        inner = journal._decisions._write

        def watch(decisions, reports):
            sizes.append(len(decisions))
            inner(decisions, reports)

        journal._decisions._write = watch
        slate = [((bandit, 0, None, context, None, 0, "test"), None)] * 200
        await asyncio.gather(*journal.decide_all(slate))
        bad = [*slate[:3], ((bandit, "x", None, None, None, 0, "test"), None)]
        found = await asyncio.gather(*journal.decide_all(bad), return_exceptions=True)
        assert all(isinstance(one, StoreError) for one in found)
        await journal.stop()

    asyncio.run(write())
    assert sizes == [200, 4]
    store = Store(store_url)
    assert store.connection.one("SELECT count(*), max(seq) FROM decisions") == (200, 200)
    assert store.connection.one("SELECT last_seq FROM streams") == (200,)
    store.close()


EVENT = "/v1/bandits/shop/personalizer/multislot/rank"
ACTIONS = [{"id": name, "features": []} for name in "abc"]
PLACES = [{"id": f"place {name}", "baselineAction": name} for name in "abc"]


@pytest.mark.parametrize(
    ("path", "asked", "other"),
    [
        (PATH, {"contexts": ARMS, "request": "one", "k": 1}, {"k": 3}),
        (PATH, {"contexts": ARMS, "request": "none"}, {"k": 2, "propensities": True}),
        (EVENT, {"actions": ACTIONS, "slots": PLACES[:1], "eventId": "e"}, {"slots": PLACES}),
    ],
)
def test_a_request_that_contradicts_its_id_makes_no_decision(shared, shop, path, asked, other):
    """Those of its arms that were new were written, learned, and shown to nobody."""
    service, _ = shared
    store = Store(service.store)
    (bandit,) = [line.id for line in store.lines() if line.name == "shop"]
    made = "SELECT count(*), max(seq) FROM decisions WHERE bandit = ?"
    assert shop("POST", path, asked)[0] == 201
    before = store.connection.one(made, (bandit,))
    again = [shop("POST", path, {**asked, **other})[0] for _ in range(2)]
    if path == PATH:
        several = [asked, {**asked, **other}, {**asked, "request": f"{asked['request']}!"}]
        status, answers = shop("POST", path, several)
        assert (status, [answer.get("status") for answer in answers]) == (200, [None, 409, None])
        before = (before[0] + 1, before[1] + 1)
    assert again == [409, 409]
    assert store.connection.one(made, (bandit,)) == before
    (line,) = store.lines(only=[bandit])
    assert line.decisions == before[1]  # no hole in the stream
    store.close()


def test_a_slate_of_which_a_part_is_erased_is_not_made_again(store_url):
    """A lot of erased decisions may end within a slate."""
    bandit = make_bandit(store_url)
    decision = (bandit, 0, None, b"", None, 0, "test")
    slate = [(decision, Asked(name, b"same", arms=3)) for name in "abc"]

    async def write():
        journal = Journal(store_url)
        await journal.start()
        await asyncio.gather(*journal.decide_all(slate))
        store = Store(store_url)
        store.connection.run("DELETE FROM decisions WHERE seq = 1")
        again = await asyncio.gather(*journal.decide_all(slate))
        assert [one.same for one in again] == [False] * 3
        store.connection.run("DELETE FROM decisions")
        anew = await asyncio.gather(*journal.decide_all([*slate, *slate]))
        assert [seq for seq, _ in anew[:3]] == [4, 5, 6]
        assert [(one.seq, one.same) for one in anew[3:]] == [(4, True), (5, True), (6, True)]
        assert store.connection.one("SELECT last_seq FROM streams") == (6,)
        store.close()
        await journal.stop()

    asyncio.run(write())


def test_rank_is_choose_for_the_first_and_breaks_ties_by_lot():
    bandit = dpbandit.make("tree-gauss", dim=3, epsilon=1.0, delta=1e-6)
    model = ReleasedModel.from_record(bandit.model().to_record())
    given = model.check([[0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    seen = set()
    for _ in range(200):
        order, scores = model.rank(given, 2)
        assert len(order) == 2
        assert scores[order[0]] >= scores.max() - 1e-12
        seen.add(tuple(order))
    assert seen >= {(0, 1), (1, 0)}
