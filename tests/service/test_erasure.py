"""A person asks for erasure: their records go, the claim holds, and what was released stays."""

import sqlite3
import time

import numpy as np
import pytest
from harness import ARMS, BANDIT, decide, learned, make_key, reward, until
from test_leases import make_bandit

import dpbandit
from dpbandit.errors import LeaseError, OptionError
from dpbandit.privacy import unit
from dpbandit.service.learner import Learner
from dpbandit.service.records import ACCEPTED, LATE, Asked, judge, place
from dpbandit.service.schema import ERASED_COUNT
from dpbandit.service.settings import Settings
from dpbandit.service.trusted import TrustedStore as Store

ANN, BOB = b"a" * 16, b"b" * 16
MARK = np.array([0.123456789, 0.0, 0.0])


def write(store, bandit, people, value=1.0):
    """One decision with a reward for each of `people`; old enough to be learned."""
    db = store.connection
    context = MARK.tobytes()
    entries = [
        (
            (bandit, 0, "tea", context, person, 0, "k"),
            None,
            Asked(f"{time.time_ns()}-{i}", b"d" * 16, "{}"),
        )
        for i, person in enumerate(people)
    ]
    with db.write():
        places = place(db, entries)
    report = [(bandit, 600.0, "k", [(*where, value)], None) for where in places]
    with db.write():
        assert judge(db, report) == [[ACCEPTED]] * len(people)
        db.run("UPDATE decisions SET decided_at = decided_at - 1000000000")
    return places


@pytest.fixture
def opened(store_url, tmp_path):
    def make(**change):
        bandit = make_bandit(store_url, reward_window=600, **change)
        store = Store(store_url)
        learner = Learner(Settings(store=store_url, witness=tmp_path / "witness"))
        closing.extend([store.close, learner.stop])
        return bandit, store, learner

    closing = []
    yield make
    for close in closing:
        close()


def of(store, bandit, person):
    """(decisions of a person, what is counted of them)"""
    db, whose = store.connection, "WHERE bandit = ? AND person = ?"
    counted = db.one(f"SELECT decisions FROM people {whose}", (bandit, person))
    return db.one(f"SELECT count(*) FROM decisions {whose}", (bandit, person))[0], counted


def test_what_waits_is_not_learned_and_the_stream_goes_on(opened):
    bandit, store, learner = opened(unit=("user", 3))
    places = write(store, bandit, [ANN, BOB, ANN, ANN])
    assert store.erase_person(bandit, ANN) == 3
    assert store.erase_person(bandit, ANN) == 0  # again
    assert of(store, bandit, ANN) == (0, None)
    rows = store.connection.all(
        "SELECT nonce, arm_id, context, person, key, request, digest, details FROM decisions WHERE "
        "seq <> 2"
    )
    assert [tuple(map(_plain, row)) for row in rows] == [
        (0, None, b"", None, "", None, None, None)
    ] * 3
    assert store.connection.all("SELECT seq FROM rewards") == [(2,)]
    with store.connection.write():  # no reward for them any more
        assert judge(store.connection, [(bandit, 600.0, "k", [(*places[0], 1.0)], None)]) == [
            [LATE]
        ]
    turns(learner)
    (line,) = store.lines()
    assert (line.status, line.learned) == ("learning", 4)
    assert of(store, bandit, BOB) == (1, (1,))
    assert of(store, bandit, ANN) == (0, None)
    # Nobody had learned of her: she may come again.
    write(store, bandit, [ANN])
    turns(learner)
    assert of(store, bandit, ANN) == (1, (1,))


def _plain(value):
    return bytes(value) if isinstance(value, memoryview) else value


def test_a_learner_that_has_read_them_cannot_publish(opened):
    bandit, store, learner = opened(unit=("user", 3))
    write(store, bandit, [ANN, BOB])
    fences = []

    def erase(held):
        if not fences:
            fences.append(held.token)
            assert store.erase_person(bandit, ANN) == 1

    learner.before_publishing = erase
    learner.turn()
    assert store.lines()[0].learned == 0  # what it had learned is thrown away
    with pytest.raises(LeaseError):
        store.close_up_to(bandit, 1, fences[0], 1.0)
    assert store.lines()[0].holder == learner.holder  # nobody else takes over
    until(lambda: learner.turn() or store.lines()[0].learned == 2, 10)
    assert of(store, bandit, ANN) == (0, None)
    assert of(store, bandit, BOB) == (1, (1,))


@pytest.mark.parametrize("erased", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {"unit": ("user", 2)},
        {"unit": ("person", 2)},
        {"unit": ("person", 2), "algorithm": "anytime-joint"},
    ],
    ids=["user", "person", "visitor"],
)
def test_a_count_that_is_forgotten_does_not_let_a_person_begin_anew(opened, change, erased):
    """One of two rewards is learned, then erased. Whatever she earns later is in no clean sum: a
    count that began anew would let three in where the noise is for two. Without an erasure the
    second one is learned, and the sums differ."""
    sums = []
    for later in (0.0, 1.0):
        bandit, store, learner = opened(name=f"shop-{later:g}", **change)
        write(store, bandit, [ANN, BOB], 0.7)
        turns(learner)
        before = of(store, bandit, ANN)[1][0]
        assert before > 0
        if erased:
            assert store.erase_person(bandit, ANN) == 1
            # Her number is gone, her mark is not.
            assert of(store, bandit, ANN) == (0, (ERASED_COUNT,))
        # A tree forgets what it has merged: hers is the third of three that users have learned of
        # them, or among five.
        others = [] if change["unit"][0] == "user" else [BOB]
        write(store, bandit, [ANN, ANN], later)
        write(store, bandit, others, 0.7)
        turns(learner)
        assert store.lines(only=[bandit])[0].learned == 4 + len(others)
        assert (of(store, bandit, ANN)[1] == (ERASED_COUNT,)) is erased
        assert len(others) == 0 or of(store, bandit, BOB)[1][0] > before  # for whom all goes on
        fields = learner._held[bandit].bandit.state.engine.fields()
        sums.append({name: whole for name, whole in fields.items() if name.endswith("s_low")})
        assert sums[-1]
    same = all(np.array_equal(sums[0][name], sums[1][name]) for name in sums[0])
    assert same is erased


def turns(learner):
    learner._not_before.clear()
    while learner.turn():
        pass


def test_units_without_a_full_count_say_so():
    with pytest.raises(OptionError, match="full count"):
        unit.ONE_REWARD.full(1.0, 20)


def test_in_lots_and_after_a_crash(opened, monkeypatch):
    bandit, store, learner = opened()
    write(store, bandit, [ANN, BOB] * 5)
    calls, erase = [], Store._erase_some_of

    def dies(self, *given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return erase(self, *given)

    monkeypatch.setattr(Store, "_erase_some_of", dies)
    with pytest.raises(KeyboardInterrupt):
        store.erase_person(bandit, ANN, lot=2)
    assert of(store, bandit, ANN)[0] == 3
    assert store.erase_person(bandit, ANN, lot=2) == 3
    turns(learner)
    assert (store.lines()[0].status, store.lines()[0].learned) == ("learning", 10)
    assert store.connection.one("SELECT count(*) FROM rewards") == (5,)


def test_a_learner_that_is_between_two_lots_does_not_take_the_mark_back(opened, monkeypatch):
    """She had never been learned of when the first lot went, so there was nothing to mark; her third
    decision is learned before the other lot goes, and her fourth is being learned when it does."""
    bandit, store, learner = opened(unit=("user", 3))
    write(store, bandit, [ANN, ANN, ANN])
    lots, erase = [], Store._erase_some_of

    def erase_later(self, *given):
        if len(lots) != 1:
            lots.append(erase(self, *given))
            return lots[-1]
        turns(learner)
        assert of(store, bandit, ANN) == (1, (1,))
        write(store, bandit, [ANN])
        learner.before_publishing = lambda held: lots.append(erase(self, *given))
        turns(learner)
        learner.before_publishing = lambda held: None
        assert len(lots) == 2
        return lots[-1]

    monkeypatch.setattr(Store, "_erase_some_of", erase_later)
    store.erase_person(bandit, ANN, lot=2)
    turns(learner)
    assert store.lines()[0].learned == 4
    assert of(store, bandit, ANN)[1] == (ERASED_COUNT,)


def test_only_a_bandit_that_will_never_learn_again_forgets_the_mark_too(opened):
    bandit, store, learner = opened(unit=("user", 3))
    write(store, bandit, [ANN])
    turns(learner)
    store.set_status(bandit, "retired", "")
    assert store.erase_person(bandit, ANN) == 1
    assert of(store, bandit, ANN) == (0, None)


def test_nothing_is_left_in_the_file_or_its_log(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    bandit = make_bandit(url, reward_window=600, unit=("user", 3))
    store = Store(url)
    write(store, bandit, [ANN, ANN])

    def copies(what):
        return sum(path.read_bytes().count(what) for path in tmp_path.glob("store.db*"))

    assert copies(ANN) > 0
    assert copies(MARK.tobytes()) > 0
    store.erase_person(bandit, ANN)
    assert copies(ANN) == 0
    assert copies(MARK.tobytes()) == 0
    # While somebody reads, the log cannot be emptied; afterwards the learner does.
    write(store, bandit, [ANN])
    reader = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM decisions").fetchall()
    store.erase_person(bandit, ANN)
    reader.close()
    learner = Learner(Settings(store=url, witness=tmp_path / "witness"))
    learner.turn()
    learner._erased = -1e9
    learner.turn()
    assert copies(MARK.tobytes()) == 0
    learner.stop()
    store.close()


def test_over_http(store_url, serve):
    admin, rank = make_key(store_url), make_key(store_url, "rank")
    service = serve(store_url)
    call = service.caller(admin)
    assert call("POST", "/v1/bandits", {**BANDIT, "reward_window": 600})[0] == 201
    # A name with everything in it; this bandit does not count by it, and finds it all the same.
    name = "a/b c?ü%2F"
    mine = decide(call, user=name, request="first")
    yours = decide(call, user="bob")
    assert reward(call, mine, 1.0) == (200, {"status": "accepted"})
    before = service.caller(rank).get("/metrics")
    with dpbandit.Client(f"http://127.0.0.1:{service.port}", key=admin) as client:
        said = client.erase_user("shop", name)
        assert said["decisions"] == 1
        assert "stays released" in said["status"]
        assert client.erase_user("shop", name)["decisions"] == 0
        assert client.erase_user("shop", "nobody")["decisions"] == 0
        with pytest.raises(OptionError):
            client.erase_user("shop", "")
    assert reward(call, mine, 1.0) == (200, {"status": "late"})
    assert reward(call, yours, 1.0) == (200, {"status": "accepted"})
    # Its request id went with it.
    asked = {"contexts": ARMS, "user": name, "request": "first"}
    assert call("POST", "/v1/bandits/shop/decisions", asked)[0] == 201
    for path, status in (
        ("/v1/bandits/shop/users/", 404),
        ("/v1/bandits/shop/users", 404),
        ("/v1/bandits/none/users/ann", 404),
        ("/v1/bandits/shop/users/" + "x" * 257, 422),
    ):
        assert call("DELETE", path)[0] == status, path
    assert call("GET", "/v1/bandits/shop/users/ann")[0] == 405
    assert service.caller(rank)("DELETE", "/v1/bandits/shop/users/bob")[0] == 403
    assert service.caller("")("DELETE", "/v1/bandits/shop/users/bob")[0] == 401
    after = service.caller(rank).get("/metrics")

    def counted(text):
        return [
            line for line in text.splitlines() if "requests_total{" in line and "metr" not in line
        ]

    grown = set(counted(after)) - set(counted(before))
    assert {line.split("{")[1].split("}")[0] for line in grown} <= {
        'action="decisions",status="201"',
        'action="other",status="404"',
    }
    assert "a/b" not in service.log.read_text()


def test_the_person_is_found_by_its_index(store_url):
    make_bandit(store_url)
    store = Store(store_url)
    explain = "EXPLAIN QUERY PLAN" if store.connection.kind == "sqlite" else "EXPLAIN"
    sql = f"{explain} SELECT seq FROM decisions WHERE bandit = ? AND person = ? AND seq <= ?"
    assert "decisions_by_person" in str(store.connection.all(sql, (1, ANN, 5)))
    store.close()


def test_learned_ones_are_late_too(serve, tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    key = make_key(url)
    service = serve(url)
    call = service.caller(key)
    assert call("POST", "/v1/bandits", {**BANDIT, "reward_window": 0.2})[0] == 201
    mine = decide(call, user="ann")
    learned(call, 1)
    assert call("DELETE", "/v1/bandits/shop/users/ann")[1]["decisions"] == 1
    assert reward(call, mine, 1.0) == (200, {"status": "late"})
    decide(call, user="ann")
    learned(call, 2)
    assert call.get("/v1/bandits/shop")["status"] == "learning"
