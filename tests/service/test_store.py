"""The store: migrations, caps, erasure, and copies that are older than they look."""

import json
import math
import re
import shutil
import sqlite3
import threading
import time
from dataclasses import replace

import pytest
from harness import BANDIT, decide, dpbandit, learned, make_key, until
from test_leases import add_decisions, make_bandit

from dpbandit.budget import mu_of
from dpbandit.errors import CapError, StoreError
from dpbandit.service import budgets, restore, schema
from dpbandit.service.database import connect
from dpbandit.service.learner import Learner
from dpbandit.service.settings import Settings
from dpbandit.service.trusted import NewRelease
from dpbandit.service.trusted import TrustedStore as Store
from dpbandit.service.witness import Witness


def test_an_older_store_is_brought_forward_and_a_newer_one_is_refused(store_url):
    connection = connect(store_url)
    schema.migrate(connection, to=1)
    assert schema.version_of(connection) == 1
    connection.run(
        "INSERT INTO keys (id, hash, role, label, created_at) VALUES ('a', ?, 'rank', 'kept', 1)",
        (b"x",),
    )
    store = Store(store_url)
    assert schema.version_of(store.connection) == len(schema.MIGRATIONS)
    assert store.connection.all("SELECT label FROM keys") == [("kept",)]
    assert store.connection.all("SELECT * FROM access_log") == []
    identity = store.meta("store")
    store.close()
    again = Store(store_url)
    assert again.meta("store") == identity
    again.set_meta("schema", "99")
    with pytest.raises(StoreError, match="newer program"):
        Store(store_url)
    again.close()
    connection.close()


def test_a_store_that_cannot_be_opened_says_why(tmp_path):
    for url in (
        "mysql://x",
        "sqlite:///",
        f"sqlite:///{tmp_path}/no/folder.db",
        "postgresql://u:secret@127.0.0.1:1/x",
    ):
        with pytest.raises(StoreError) as error:
            Store(url)
        assert "secret" not in str(error.value)
    ran = dpbandit("serve", "--store", f"sqlite:///{tmp_path}/no/folder.db", "--port", "1")
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr


def test_a_sqlite_store_is_for_its_owner_alone_and_durable(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/store.db")
    assert (tmp_path / "store.db").stat().st_mode & 0o777 == 0o600
    assert store.connection.all("PRAGMA synchronous") == [(2,)]
    assert store.connection.all("PRAGMA journal_mode") == [("wal",)]
    store.close()


# ---------------------------------------------------------------------- budgets


def claim(notion, epsilon, delta=0.0, status="proven"):
    mu = mu_of(epsilon=epsilon, delta=delta) if notion == "gdp" else None
    return {"notion": notion, "status": status, "epsilon": epsilon, "delta": delta, "mu": mu}


def test_processes_that_write_one_setting_at_once_do_not_fail(store_url):
    """Each ranker tries every two seconds whether it can write, and is not ready if that fails."""
    Store(store_url).close()
    failed = []

    def write():
        store = Store(store_url)
        try:
            for number in range(20):
                store.set_meta("written", str(number))
        except StoreError as error:
            failed.append(error)
        store.close()

    writers = [threading.Thread(target=write) for _ in range(3)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert not failed


def test_budgets_add_up_over_bandits():
    pure, gauss = claim("pure", 1.0), claim("gdp", 1.0, 1e-6)
    assert budgets.add_up([]).epsilon == 0.0
    assert budgets.add_up([(pure, 1)] * 3).epsilon == pytest.approx(3.0)
    assert budgets.add_up([(gauss, 1)]).epsilon == 1.0
    four = budgets.add_up([(gauss, 1)] * 4)
    assert four.mu == pytest.approx(2 * gauss["mu"], rel=1e-9)
    assert 1.0 < four.epsilon < 4.0
    assert budgets.add_up([(gauss, 4)]) == budgets.add_up([(gauss, 1)] * 4).__class__(
        four.epsilon, four.delta, four.mu, 0.0, True, 1
    )
    mixed = budgets.add_up([(pure, 1), (gauss, 2)], delta=2e-6)
    assert 1.0 < mixed.epsilon < 3.0
    # a smaller δ costs more ε, and with no δ at all nothing Gaussian is covered
    assert budgets.add_up([(gauss, 1)], delta=1e-9).epsilon > 1.0
    assert math.isinf(budgets.add_up([(gauss, 1)], delta=1e-9 * 0).epsilon)
    assert math.isinf(budgets.add_up([(claim("none", 1.0, status="none"), 1)]).epsilon)
    assert not budgets.add_up([(claim("approximate", 1.0, 0.1, "as-published"), 1)]).proven


def test_a_cap_refuses_what_does_not_fit_and_deleting_makes_no_room(store_url):
    store = Store(store_url)
    store.set_cap(2.0, 1e-5)
    with pytest.raises(CapError, match="never raised"):
        store.set_cap(3.0, 1e-5)
    first = make_bandit(store_url, name="first", algorithm="private-linucb", epsilon=1.5)
    with pytest.raises(CapError, match="the cap of this store is ε = 2"):
        make_bandit(store_url, name="second", algorithm="private-linucb", epsilon=1.0)
    store.delete(first)
    with pytest.raises(CapError):
        make_bandit(store_url, name="third", algorithm="private-linucb", epsilon=1.0)
    make_bandit(store_url, name="fits", algorithm="private-linucb", epsilon=0.5)
    store.set_cap(1.5, 1e-5)
    store.close()


def test_the_cap_over_http_is_a_conflict_and_shown(tmp_path, serve):
    url = f"sqlite:///{tmp_path}/store.db"
    key = make_key(url)
    service = serve(url, "--cap-epsilon", "1", "--cap-delta", "1e-6", role="ranker")
    call = service.caller(key)
    assert call("POST", "/v1/bandits", BANDIT)[0] == 201
    status, answer = call("POST", "/v1/bandits", {**BANDIT, "name": "more"})
    assert status == 409
    assert "cap" in answer["error"]
    total = call.get("/v1/privacy")
    assert total["cap"] == {"epsilon": 1.0, "delta": 1e-6}
    assert total["remaining_epsilon"] == 0.0
    assert call("DELETE", "/v1/bandits/shop")[0] == 200
    assert call("POST", "/v1/bandits", {**BANDIT, "name": "more"})[0] == 409


# ---------------------------------------------------------------------- erasure


def test_more_is_erased_than_fits_into_one_transaction(store_url, tmp_path, monkeypatch):
    monkeypatch.setattr("dpbandit.service.trusted.ERASE_LOT", 2)
    bandit = make_bandit(store_url, reward_window=0.05)
    add_decisions(store_url, bandit, 9, [(i, 1.0) for i in range(9)])
    learner = Learner(
        Settings(store=store_url, witness=tmp_path / "w", retain_rewards=0.0, retain_decisions=0.0)
    )
    learner.turn()
    learner._erased = -1e9
    time.sleep(0.01)
    learner.turn()
    for table in ("rewards", "decisions"):
        assert learner.store.connection.all(f"SELECT count(*) FROM {table}") == [(0,)]
    learner.stop()


def test_erasing_for_many_bandits_keeps_learning_waiting_no_longer_than_for_one(
    tmp_path, monkeypatch
):
    """Each of a hundred took its half second while none of them learned."""
    url = f"sqlite:///{tmp_path}/store.db"
    bandits = {make_bandit(url, name=f"b{number}") for number in range(8)}
    learner = Learner(Settings(store=url, witness=tmp_path / "witness"))
    seen = []

    def erase(self, bandit, **_):
        seen.append(bandit)
        time.sleep(0.02)
        return 1  # there is more

    monkeypatch.setattr(Store, "erase", erase)
    monkeypatch.setattr("dpbandit.service.learner.ERASE_AT_MOST", 0.03)
    for turn in range(1, 9):
        learner._erased = -1e9
        learner.turn()
        assert turn <= len(seen) <= 3 * turn
    assert set(seen) == bandits  # each in its turn
    learner.stop()


def test_rewards_are_erased_once_learned_and_old(store_url, tmp_path):
    bandit = make_bandit(store_url, reward_window=0.05)
    settings = Settings(
        store=store_url, witness=tmp_path / "w", retain_rewards=0.0, retain_decisions=3600.0
    )
    store = Store(store_url)
    places, statuses = add_decisions(store_url, bandit, 5, [(0, 1.0), (3, 0.5)])
    assert statuses == ["accepted", "accepted"]
    store.erase(bandit, rewards_after=0.0, decisions_after=0.0)
    assert len(store.connection.all("SELECT * FROM rewards")) == 2  # old, but not learned
    learner = Learner(settings)
    learner.turn()
    learner._erased = -1e9
    time.sleep(0.01)
    learner.turn()
    assert store.connection.all("SELECT * FROM rewards") == []
    assert len(store.connection.all("SELECT * FROM decisions")) == 5
    store.erase(bandit, rewards_after=0.0, decisions_after=0.0)
    assert store.connection.all("SELECT * FROM decisions") == []
    # a report for a decision that is long gone is late, not unknown
    _, statuses = add_decisions(store_url, bandit, 1)
    import asyncio

    from dpbandit.service.journal import Journal

    async def report():
        journal = Journal(store_url)
        await journal.start()
        found = await journal.report(bandit, 600.0, "k", [(*places[0], 1.0)])
        await journal.stop()
        return found

    assert asyncio.run(report()) == ["late"]
    learner.stop()
    store.close()


def test_what_is_counted_of_persons_is_erased_with_the_bandit_or_when_it_learns_no_more(store_url):
    store = Store(store_url)
    for name, end in (("ends", "spent"), ("goes", "deleted")):
        bandit = make_bandit(store_url, name=name, unit=("person", 1))
        for person in range(5):
            row = {"bandit": bandit, "person": bytes([person]), "decisions": 1 << 20}
            with store.connection.write():
                store.connection.add("people", **row)
        store.erase(bandit, rewards_after=0.0, decisions_after=0.0)
        assert len(store.connection.all("SELECT * FROM people")) == 5  # it still learns
        if end == "deleted":
            store.delete(bandit)
        else:
            store.set_status(bandit, end, "for this test")
            for _ in range(3):
                store.erase(bandit, rewards_after=0.0, decisions_after=0.0, limit=2)
        assert store.connection.all("SELECT * FROM people") == []
    store.close()


def test_an_erased_reward_is_overwritten_in_the_file(tmp_path):
    """SQLite leaves deleted rows in the file unless told to overwrite them."""
    import struct

    url = f"sqlite:///{tmp_path}/store.db"
    bandit = make_bandit(url)
    value = 0.73194268151234
    add_decisions(url, bandit, 3, [(1, value)])
    pattern = struct.pack(">d", value)

    def everything():
        return b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))

    assert pattern in everything()
    learner = Learner(Settings(store=url, witness=tmp_path / "w", retain_rewards=0.0))
    ranker = Store(url)  # as in life, the file stays open elsewhere
    ranker.lines()
    learner.turn()
    learner._erased = -1e9
    learner.turn()
    assert ranker.connection.all("SELECT count(*) FROM rewards") == [(0,)]
    assert pattern not in everything()
    learner.stop()
    ranker.close()


def test_an_erased_reward_leaves_the_log_though_somebody_read_and_the_learner_was_killed(tmp_path):
    """A reader keeps SQLite's log from being emptied; whoever erased may be dead when it ends."""
    import struct

    url = f"sqlite:///{tmp_path}/store.db"
    bandit = make_bandit(url)
    value = 0.73194268151234
    add_decisions(url, bandit, 3, [(1, value)])
    settings = Settings(store=url, witness=tmp_path / "w", retain_rewards=0.0)
    killed, reader = Learner(settings), Store(url)
    reader.connection.run("BEGIN")
    reader.lines()
    for _ in range(2):
        killed._erased = -1e9
        killed.turn()

    def found():
        files = tmp_path.glob("store.db*")
        return struct.pack(">d", value) in b"".join(path.read_bytes() for path in files)

    reader.connection.run("ROLLBACK")
    assert reader.connection.all("SELECT count(*) FROM rewards") == [(0,)]
    assert found()
    after = Learner(settings)
    after.turn()
    assert not found()
    for one in (killed, after):
        one.stop()
    reader.close()


def test_what_never_changes_is_read_once(tmp_path):
    """Config and claim: rankers look at all bandits several times a second."""
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url)
    store, said = Store(url), []
    first = store.lines()
    store.connection._db.set_trace_callback(said.append)
    assert store.lines() == first
    assert len(said) == 1
    assert not re.search("config|claim", said[0])
    make_bandit(url, name="another")
    assert [line.name for line in store.lines()] == [first[0].name, "another"]
    store.close()


def test_a_release_costs_the_same_however_many_came_before(store_url):
    """Old releases lose their models and accounts by number; those that charged nothing are dropped in the end."""
    bandit = make_bandit(store_url)
    store = Store(store_url)
    token = store.acquire(bandit, "me", 60.0)
    with store.connection.write():
        store.connection.run("UPDATE progress SET closed = 5000 WHERE bandit = ?", (bandit,))
    privacy = json.dumps({"spent": {"epsilon": 0.1}, "ledger": ["x" * 1000]})
    for number in range(1, 1300):
        charged = 1 if number < 200 else 2
        new = NewRelease(
            number, number, f"seal {charged}", charged, privacy, 1.0, "{}", None, b"", {}
        )
        store.publish(bandit, new, token, 60.0)
    rows = store.connection.all(
        "SELECT number, model, privacy FROM releases WHERE bandit = ? ORDER BY number", (bandit,)
    )
    assert sum(model is not None for _, model, _ in rows) == 5
    assert sum("ledger" in account for _, _, account in rows) == 1
    assert {0, 1, 200, 300, 1299} <= {row[0] for row in rows}
    assert len(rows) == 3 + 1000
    assert store.release_seal(bandit, 150) == "seal 1"
    assert store.release_seal(bandit, 250) == store.release_seal(bandit, 1299) == "seal 2"
    assert store.release_seal(bandit, 1300) is None
    assert store.privacy(bandit)["ledger"]
    store.close()


# ---------------------------------------------------------------------- old copies


def copied(url, tmp_path, name):
    """Take a copy of a store at rest; returns how to put it back."""
    if url.startswith("sqlite"):
        source = tmp_path / "store.db"
        with sqlite3.connect(source) as plain:
            plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        plain.close()
        shutil.copy(source, tmp_path / name)

        def put_back():
            for ending in ("-wal", "-shm"):
                (tmp_path / f"store.db{ending}").unlink(missing_ok=True)
            shutil.copy(tmp_path / name, source)

        return put_back
    import psycopg

    head, query = url.split("?", 1)
    base, database = head.rsplit("/", 1)
    admin = f"{base}/postgres?{query}"

    def swap(*commands):
        with psycopg.connect(admin, autocommit=True) as connection:
            for command in commands:
                connection.execute(command)

    swap(f"CREATE DATABASE {database}_{name.split('.')[0]} TEMPLATE {database}")

    def put_back():
        swap(
            f"DROP DATABASE {database} WITH (FORCE)",
            f"CREATE DATABASE {database} TEMPLATE {database}_{name.split('.')[0]}",
        )

    return put_back


def learn(settings):
    learner = Learner(settings)
    learner.turn()
    learner.stop()
    store = Store(settings.store)
    lines = {line.name: line for line in store.lines()}
    store.close()
    return lines


def test_an_old_copy_is_noticed_and_an_operator_decides(settings, tmp_path):
    bandit = make_bandit(settings.store)
    add_decisions(settings.store, bandit, 3)
    assert learn(settings)["shop"].learned == 3
    put_back = copied(settings.store, tmp_path, "old.db")
    add_decisions(settings.store, bandit, 3)
    assert learn(settings)["shop"].version == 2
    put_back()
    add_decisions(settings.store, bandit, 3)
    found = learn(settings)["shop"]
    assert (found.status, found.learned, found.version) == ("restored", 3, 1)
    assert "old copy" in found.reason
    assert learn(settings)["shop"].learned == 3  # and stays so
    store, witness = Store(settings.store), Witness(settings.witness)
    words = restore.accept_restore(store, witness, "shop", pay_again=True)
    assert "counted once more" in words
    found = learn(settings)["shop"]
    assert (found.status, found.learned, found.timelines) == ("learning", 6, 2)
    assert budgets.add_up(store.claims()).mu == pytest.approx(
        math.sqrt(2) * found.claim["mu"], rel=1e-9
    )
    store.close()
    # a second time, retired for good
    put_back()
    assert learn(settings)["shop"].status == "restored"
    store = Store(settings.store)
    restore.accept_restore(store, witness, "shop", pay_again=False)
    add_decisions(settings.store, bandit, 1)
    assert learn(settings)["shop"].status == "retired"
    store.close()


def test_paying_again_is_subject_to_the_cap(settings, tmp_path):
    store = Store(settings.store)
    store.set_cap(1.2, 1e-6)
    bandit = make_bandit(settings.store)
    add_decisions(settings.store, bandit, 1)
    learn(settings)
    store.set_status(bandit, "restored", "test")
    with pytest.raises(CapError):
        restore.accept_restore(store, Witness(settings.witness), "shop", pay_again=True)
    assert store.lines()[0].timelines == 1
    store.close()


def test_a_copy_that_went_another_way_is_noticed(settings, tmp_path):
    bandit = make_bandit(settings.store)
    put_back = copied(settings.store, tmp_path, "fork.db")
    add_decisions(settings.store, bandit, 2)
    assert learn(settings)["shop"].version == 1
    put_back()
    # the copy learns where the witness does not see it, as far as the original had come
    add_decisions(settings.store, bandit, 2)
    elsewhere = Settings(store=settings.store, witness=tmp_path / "other", lease_seconds=0.2)
    assert learn(elsewhere)["shop"].version == 1
    found = learn(settings)["shop"]
    assert found.status == "restored"
    assert "another history" in found.reason


def test_a_machine_without_a_witness_does_not_learn_until_told(settings, tmp_path):
    bandit = make_bandit(settings.store)
    add_decisions(settings.store, bandit, 2)
    learn(settings)
    shutil.rmtree(settings.witness)
    add_decisions(settings.store, bandit, 2)
    assert learn(settings)["shop"].status == "restored"
    ran = dpbandit(
        "store",
        "trust",
        "--store",
        settings.store,
        "--bandit",
        "shop",
        "--witness",
        str(settings.witness),
    )
    assert ran.returncode == 0, ran.stderr
    assert learn(settings)["shop"].learned == 4


def test_a_learner_that_stands_by_gathers_a_witness_of_its_own(settings, tmp_path):
    # However slow the machine: the lease ends when it is given back.
    settings = replace(settings, lease_seconds=600.0)
    bandit = make_bandit(settings.store)
    add_decisions(settings.store, bandit, 2)
    active = Learner(settings)
    active.turn()
    standby = Learner(replace(settings, witness=tmp_path / "other machine"))
    standby.turn()
    assert standby.witness.everything() == {}  # a lease alone could be a copy's
    add_decisions(settings.store, bandit, 1)
    active.turn()
    standby.turn()  # the lease was renewed meanwhile: its holder lives
    assert [seen.number for seen in standby.witness.everything().values()] == [2]
    active.stop()
    add_decisions(settings.store, bandit, 1)
    standby.turn()
    store = Store(settings.store)
    assert store.lines()[0].learned == 4
    standby.stop()
    store.close()


def test_a_copy_from_before_a_bandit_was_made_refunds_nothing(settings, tmp_path):
    bandit = make_bandit(settings.store, name="early")
    add_decisions(settings.store, bandit, 1)
    learn(settings)
    put_back = copied(settings.store, tmp_path, "before.db")
    make_bandit(settings.store, name="later")
    learn(settings)
    put_back()
    learn(settings)
    with pytest.raises(CapError, match="operator"):
        make_bandit(settings.store, name="new")
    arguments = ["--store", settings.store, "--witness", str(settings.witness)]
    status = json.loads(dpbandit("store", "status", "--store", settings.store, "--json").stdout)
    assert "later" in status["restored"]
    ran = dpbandit("store", "accept-restore", "--lost", *arguments)
    assert ran.returncode == 0, ran.stderr
    store = Store(settings.store)
    assert {line.name: line.status for line in store.lines()} == {
        "early": "learning",
        "later": "deleted",
    }
    assert budgets.add_up(store.claims()).bandits == 2
    store.close()
    make_bandit(settings.store, name="new")
    learn(settings)


def test_a_restored_store_goes_on_ranking_over_http(tmp_path, serve):
    url = f"sqlite:///{tmp_path}/store.db"
    key = make_key(url)
    service = serve(url)
    call = service.caller(key)
    assert call("POST", "/v1/bandits", {**BANDIT, "reward_window": 0.2})[0] == 201
    decide(call)
    learned(call, 1)
    service.stop()
    put_back = copied(url, tmp_path, "old.db")
    service = serve(url)
    call = service.caller(key)
    decide(call)
    learned(call, 2)
    service.stop()
    put_back()
    service = serve(url)
    call = service.caller(key)
    until(lambda: call.get("/v1/bandits/shop")["status"] == "restored", 60)
    assert "old copy" in call.get("/v1/bandits/shop")["reason"]
    before = call.get("/v1/bandits/shop/privacy")
    decide(call)
    time.sleep(0.6)
    assert call.get("/v1/bandits/shop/privacy") == before
    assert 'dpbandit_restored{bandit="shop"} 1.0' in call("GET", "/metrics")[1]
    folder = str(tmp_path / "witness")
    ran = dpbandit(
        "store",
        "accept-restore",
        "--bandit",
        "shop",
        "--pay-again",
        "--store",
        url,
        "--witness",
        folder,
    )
    assert ran.returncode == 0, ran.stderr
    learned(call, 2, seconds=60)
    assert call.get("/v1/bandits/shop/privacy")["timelines"] == 2
    assert call.get("/v1/bandits/shop/privacy")["claim"]["epsilon"] > 1.0
