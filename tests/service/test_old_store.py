"""A store that 0.1 has left: its models rank, its states are refused, and nothing is lost."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from harness import ARMS, BANDIT, decide, learned, make_key, reward, until
from test_leases import add_decisions, make_bandit

from dpbandit.files import OLD
from dpbandit.service import restore, schema
from dpbandit.service.backup import versions
from dpbandit.service.database import connect
from dpbandit.service.learner import Learner
from dpbandit.service.settings import Settings
from dpbandit.service.trusted import TrustedStore as Store
from dpbandit.service.witness import Witness

THETA = [-1.0, 0.5, 0.25]
# Stores and witnesses that the service of 0.1 (commit 3c200cb) left, PostgreSQL's as its dump in
# SQL: shop and people (tree-gauss, people with a cap of two rewards), front (anytime), empty, and
# gone, which was deleted; twelve decisions each, under request ids, and every other one had a reward.
HERE = Path(__file__).parent


def model_of_0_1(claim):
    """What the service of 0.1 wrote into `releases.model`."""
    return {
        "dpbandit_model": 1,
        "name": "tree-gauss",
        "dim": 3,
        "round": 40,
        "claim": {key: value for key, value in claim.items() if key != "words"},
        "theta": THETA,
        "inverse_gram": np.eye(3).tolist(),
        "alpha": 0.0,
        "plays_at_random": False,
        "max_norm": 1.0,
        "l1_limit": None,
        "one_hot": False,
    }


def state_of_0_1(identity):
    """The saved file of 0.1, as far as anybody looks: arrays of floats and a record of format 1."""
    record = {"format": 1, "version": "0.1.0", "name": "tree-gauss", "identity": identity}
    packed = io.BytesIO()
    text = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
    np.savez(packed, record=text, array_tree_sums=np.zeros((62, 3)))
    return packed.getvalue()


@pytest.fixture
def old(store_url, tmp_path):
    """(settings, bandit) of a store in which 0.1 has learned five decisions and made a release."""
    bandit = make_bandit(store_url)
    settings = Settings(store=store_url, witness=tmp_path / "witness")
    add_decisions(store_url, bandit, 5)
    until(lambda: learn(settings) or line(settings).learned == 5, 10)
    store = Store(store_url)
    found = line(settings)
    model = json.dumps(model_of_0_1(found.claim))
    with store.connection.write():
        store.connection.run("UPDATE releases SET model = ? WHERE bandit = ?", (model, bandit))
        state = state_of_0_1(found.identity)
        store.connection.run("UPDATE states SET state = ? WHERE bandit = ?", (state, bandit))
    store.close()
    return settings, bandit


def learn(settings):
    learner = Learner(settings)
    learner.turn()
    learner.stop()


def line(settings, name="shop"):
    store = Store(settings.store)
    found = next(line for line in store.lines() if line.name == name)
    store.close()
    return found


def test_a_state_of_0_1_is_refused_and_the_status_says_what_to_do(old):
    settings, bandit = old
    before = line(settings)
    add_decisions(settings.store, bandit, 3)
    learn(settings)
    found = line(settings)
    assert found.status == "failed"
    assert OLD in found.reason
    assert "format 1" in found.reason
    assert "ranks" in found.reason
    assert "make a new bandit" in found.reason
    assert (found.version, found.learned, found.decisions) == (before.version, 5, 8)
    # it stays so, whoever says that it should go on
    store = Store(settings.store)
    restore.resume(store, "shop")
    learn(settings)
    assert line(settings).status == "failed"
    assert store.model(bandit)[1]["theta"] == THETA
    assert len(store.connection.all("SELECT seq FROM decisions WHERE bandit = ?", (bandit,))) == 8
    store.close()


def test_a_model_of_0_1_ranks_and_a_new_bandit_learns_beside_it(old, tmp_path, serve):
    settings, _bandit = old
    service = serve(settings.store)
    call = service.caller(make_key(settings.store))
    until(lambda: call.get("/v1/bandits/shop")["status"] == "failed", 20)
    shown = call.get("/v1/bandits/shop")
    assert OLD in shown["reason"]
    assert shown["model_version"] >= 1
    for _ in range(5):  # θ prefers the second of these, and there is no bonus
        status, answer = call("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})
        assert (status, answer["arm"], answer["model_version"]) == (201, 1, shown["model_version"])
        assert reward(call, answer["decision"], 1.0)[0] == 200
    # limits that 0.1 kept beside the model are kept
    assert call("POST", "/v1/bandits/shop/decisions", {"contexts": [[2.0, 0.0, 0.0]]})[0] == 422
    assert call("POST", "/v1/bandits", {**BANDIT, "name": "second"})[0] == 201
    assert reward(call, decide(call, "second"), 1.0, "second")[0] == 200
    learned(call, 1, "second")
    assert call.get("/v1/privacy")["total"]["bandits"] == 2


@pytest.fixture(params=["sqlite", "postgresql"])
def real(request, tmp_path):
    """(url, witness) of what a real 0.1 left."""
    name = "store-0.1" if request.param == "sqlite" else "store-0.1-postgresql"
    with tarfile.open(HERE / f"{name}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/{name}/store.db", tmp_path / name / "witness"
    import psycopg

    url = request.getfixturevalue("new_database")()
    with psycopg.connect(url) as connection:
        connection.execute((tmp_path / name / "store.sql").read_text())
    return url, tmp_path / name / "witness"


def test_a_store_of_0_1_goes_on_while_rankers_of_0_1_still_run(real, serve):
    url, witness = real
    assert versions(url) == (3, len(schema.MIGRATIONS))
    ranker = serve(url, role="ranker")  # the first process of this version: it migrates
    call = ranker.caller(make_key(url))
    assert versions(url)[0] == len(schema.MIGRATIONS)
    # Asked again under the request ids of then, decisions are those of then.
    asked = {"contexts": ARMS, "arms": ["tea", "coffee", "water"], "request": "shop-3"}
    status, answer = call("POST", "/v1/bandits/shop/decisions", asked)
    assert (status, answer["decision"].split("-")[0]) == (200, "4")
    # What a ranker of 0.1 writes beside: it knows none of the newer columns.
    db = connect(url)
    with db.write():
        db.run("UPDATE streams SET last_seq = last_seq + 1 WHERE bandit = 1")
        row = {"bandit": 1, "seq": 13, "nonce": 7, "decided_at": db.now(), "arm": 0}
        row |= {"arm_id": "tea", "context": np.array(ARMS[0]).tobytes(), "person": None}
        db.add("decisions", **row, version=1, key="old", request="old", digest=b"0" * 16)
    db.close()
    shown = {"contexts": ARMS}
    for name in ("shop", "front", "empty"):
        assert call("POST", f"/v1/bandits/{name}/decisions", shown)[0] == 201
    assert call("POST", "/v1/bandits/people/decisions", {**shown, "user": "user 1"})[0] == 201
    assert call("POST", "/v1/bandits/gone/decisions", shown)[0] == 404
    assert reward(call, "d-0000000000000007", 1.0)[0] == 200
    serve(url, "--witness", str(witness), role="learner", listens=False)
    for name in ("shop", "people", "front"):  # it had learned: sums of floats cannot go on
        until(lambda name=name: call.get(f"/v1/bandits/{name}")["status"] == "failed")
        found = call.get(f"/v1/bandits/{name}")
        assert OLD in found["reason"]
        assert (found["learned"], found["model_version"]) == (12, 1)
    # Persons are counted as then, and can be erased.
    assert call("DELETE", "/v1/bandits/people/users/user%201")[1]["decisions"] == 4
    assert call("POST", "/v1/bandits", {**BANDIT, "name": "next"})[0] == 201
    assert reward(call, decide(call, "next"), 1.0, "next")[0] == 200
    learned(call, 1, "next")
    assert call.get("/v1/privacy")["total"]["bandits"] == 6


def test_a_model_that_nobody_can_read_is_refused_by_name_and_the_others_go_on(tmp_path, serve):
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url)
    bandit = make_bandit(url, name="strange")
    store = Store(url)
    _, record = store.model(bandit)
    with store.connection.write():
        changed = json.dumps({**record, "policy": "clairvoyant"})
        store.connection.run("UPDATE releases SET model = ? WHERE bandit = ?", (changed, bandit))
    service = serve(url, role="ranker")
    call = service.caller(make_key(url))
    decide(call)
    status, answer = call("POST", "/v1/bandits/strange/decisions", {"contexts": ARMS})
    assert status == 503
    assert "cannot read" in answer["error"]
    assert "clairvoyant" in service.log.read_text()
    # and when it can be read again it is served
    with store.connection.write():
        store.connection.run(
            "UPDATE releases SET model = ? WHERE bandit = ?", (json.dumps(record), bandit)
        )
    store.close()
    until(lambda: call("POST", "/v1/bandits/strange/decisions", {"contexts": ARMS})[0] == 201, 10)


def test_without_a_witness_an_old_store_waits_for_an_operator_first(old, tmp_path):
    settings, _bandit = old
    elsewhere = Settings(store=settings.store, witness=tmp_path / "another")
    learn(elsewhere)
    assert line(settings).status == "restored"
    store = Store(settings.store)
    restore.trust(store, Witness(tmp_path / "another"), "shop")
    store.close()
    learn(elsewhere)
    assert line(settings).status == "failed"
