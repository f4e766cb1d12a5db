"""One learner per bandit, whatever sleeps, wakes or dies."""

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from harness import BANDIT, Caller, decide, learned, make_key, until

from dpbandit.errors import LeaseError
from dpbandit.service import blueprint
from dpbandit.service.journal import Journal
from dpbandit.service.learner import Learner
from dpbandit.service.settings import Settings
from dpbandit.service.trusted import TrustedStore as Store


def make_bandit(url, **change):
    """A bandit put into the store directly."""
    asked = blueprint.Request(**{**BANDIT, "reward_range": (0, 1), "reward_window": 0.05, **change})
    config = blueprint.normalised(asked, max_dim=100)
    bandit = blueprint.draft(config, allow_unproven=False)
    store = Store(url)
    made = store.create(
        config,
        text=blueprint.canonical(config),
        **blueprint.records(bandit, config),
        key="test",
    )
    assert made
    store.close()
    return next(line.id for line in _lines(url) if line.name == config["name"])


def _lines(url):
    store = Store(url)
    lines = store.lines()
    store.close()
    return lines


def add_decisions(url, bandit, count, rewards=()):
    """Decisions through the journal, with rewards for some of them; returns when they are old
    enough.
    """
    import asyncio

    async def write():
        journal = Journal(url)
        await journal.start()
        context = np.array([0.5, 0.5, 0.0]).tobytes()
        places = await asyncio.gather(
            *(journal.decide((bandit, 0, None, context, None, 0, "test")) for _ in range(count))
        )
        statuses = await asyncio.gather(
            *(journal.report(bandit, 600.0, "test", [(*places[i], value)]) for i, value in rewards)
        )
        await journal.stop()
        return places, [status for (status,) in statuses]

    found = asyncio.run(write())
    time.sleep(0.06)
    return found


@pytest.fixture
def settings(store_url, tmp_path):
    return Settings(
        store=store_url, role="learner", witness=tmp_path / "witness", lease_seconds=0.4
    )


def test_a_second_learner_is_refused_until_the_first_is_gone(settings):
    settings = replace(settings, lease_seconds=30.0)
    bandit = make_bandit(settings.store)
    add_decisions(settings.store, bandit, 3)
    first, second = Learner(settings), Learner(settings)
    first.turn()
    assert _lines(settings.store)[0].learned == 3
    add_decisions(settings.store, bandit, 2)
    second.turn()
    assert bandit not in second._held
    assert "refused" in second._said[bandit]
    first.stop()  # gives its lease back
    second.turn()
    assert _lines(settings.store)[0].learned == 5
    second.stop()


def test_a_learner_that_sleeps_through_its_lease_cannot_write(settings):
    bandit = make_bandit(settings.store)
    add_decisions(settings.store, bandit, 4, [(1, 1.0)])

    class Sleepy(Learner):
        def before_publishing(self, held):
            time.sleep(0.6)  # its noise is drawn, its lease runs out, and another takes over
            other.turn()

    other, sleepy = Learner(settings), Sleepy(settings)
    sleepy.turn()
    (line,) = _lines(settings.store)
    assert (line.learned, line.version) == (4, 1)
    store = Store(settings.store)
    token = store.connection.all("SELECT token FROM releases WHERE number = 1")[0][0]
    assert token == other._held[bandit].token > 1
    assert bandit not in sleepy._held
    # nor later, with the token it still remembers
    assert store.renew({bandit: 1}, 1.0) == [bandit]
    for attempt in (
        lambda: store.close_up_to(bandit, 4, 1, 1.0),
        lambda: store.end(bandit, 1, "restored", "it thinks"),
    ):
        with pytest.raises(LeaseError):
            attempt()
    store.close()
    other.stop()
    sleepy.stop()


def test_a_paused_learner_process_wakes_up_fenced(store_url, tmp_path, serve):
    """SIGSTOP to a real learner; another takes over; SIGCONT: not one release by the first after
    that.
    """
    key = make_key(store_url)
    options = ("--lease-seconds", "1", "--release-seconds", "0.05")
    ranker = serve(store_url, role="ranker")
    call = ranker.caller(key)
    assert call("POST", "/v1/bandits", {**BANDIT, "reward_window": 0.2})[0] == 201
    first = serve(store_url, *options, role="learner", listens=False)
    decide(call)
    learned(call, 1)
    second = serve(store_url, *options, role="learner", listens=False)
    until(lambda: "standing by" in second.log.read_text() if second.log.exists() else False, 60)
    store = Store(store_url)
    _pause_outside_a_transaction(first.process.pid, store)
    for _ in range(5):
        decide(call)
    learned(call, 6, seconds=60)
    old = store.connection.all("SELECT max(token) FROM leases")[0][0] - 1
    before = store.connection.all("SELECT max(number) FROM releases WHERE token <= ?", (old,))[0][0]
    os.kill(first.process.pid, signal.SIGCONT)
    for _ in range(10):
        decide(call)
        time.sleep(0.05)
    learned(call, 16, seconds=60)
    time.sleep(0.5)
    after = store.connection.all("SELECT max(number) FROM releases WHERE token <= ?", (old,))[0][0]
    assert before == after
    assert first.process.poll() is None
    assert "refused" in first.log.read_text()
    store.close()


def _pause_outside_a_transaction(pid, store):
    """SQLite's lock is held by a process that is stopped while it writes, and then nobody can: stop
    it at another moment.
    """
    for _ in range(200):
        os.kill(pid, signal.SIGSTOP)
        wrote = threading.Event()
        threading.Thread(target=_write, args=(_url_of(store), wrote), daemon=True).start()
        if wrote.wait(1.0):
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.03)
    raise AssertionError("always in a transaction")


def _write(url, wrote):
    other = Store(url)
    other.set_meta("probe", "1")
    other.close()
    wrote.set()


def _url_of(store):
    if store.connection.kind == "sqlite":
        return "sqlite:///" + store.connection.all("PRAGMA database_list")[0][2]
    return store.connection._url


def test_a_reward_accepted_at_the_last_moment_is_learned(settings):
    """Closing a stretch and accepting a reward exclude each other: accepted means learned."""
    import asyncio

    bandit = make_bandit(settings.store, reward_window=0.05)
    learner = Learner(settings)
    accepted = {}

    async def report():
        journal = Journal(settings.store)
        await journal.start()
        context = np.array([0.5, 0.5, 0.0]).tobytes()
        for number in range(60):
            place = await journal.decide((bandit, 0, None, context, None, 0, "test"))
            await asyncio.sleep(0.03 + 0.0006 * number)
            (status,) = await journal.report(bandit, 0.05, "test", [(*place, 1.0)])
            if status == "accepted":
                accepted[place[0]] = 1.0
        await journal.stop()

    stop = threading.Event()
    thread = threading.Thread(target=learner.run, args=(stop,))
    learner.settings = settings
    thread.start()
    asyncio.run(report())
    until(lambda: _lines(settings.store)[0].learned == 60, 60)
    stop.set()
    thread.join(30)
    assert 0 < len(accepted) < 60
    from dpbandit.files import unpack

    store = Store(settings.store)
    state = unpack(store.state(bandit)[2])
    store.close()
    replay = blueprint.build(_lines(settings.store)[0].config)
    replay.source = state.source
    for seq in range(1, 61):
        replay.update([0.5, 0.5, 0.0], accepted.get(seq, 0.0))
    # the clean sums of tree-gauss, in whole numbers: of the rewards that were accepted, and no
    # others
    assert np.array_equal(replay.engine.fields()["sums_low"], state.engine.fields()["sums_low"])
    assert state.engine.fields()["sums_low"].any()


def test_decisions_flow_and_rewards_are_taken_while_no_learner_runs(store_url, tmp_path, serve):
    key = make_key(store_url)
    ranker = serve(store_url, role="ranker")
    second = serve(store_url, role="ranker")
    call, other = ranker.caller(key), second.caller(key)
    assert call("POST", "/v1/bandits", BANDIT)[0] == 201
    decisions = [decide(call if i % 2 else other) for i in range(20)]
    assert len({d.split("-")[0] for d in decisions}) == 20
    for i, decision in enumerate(decisions):
        status, answer = (other if i % 2 else call)(
            "POST", "/v1/bandits/shop/rewards", {"decision": decision, "reward": 1}
        )
        assert (status, answer) == (200, {"status": "accepted"})
    time.sleep(1.2)
    assert call.get("/v1/bandits/shop")["learned"] == 0
    serve(store_url, role="learner", listens=False)
    learned(call, 20)
    version = call.get("/v1/bandits/shop")["model_version"]
    until(lambda: other.get("/v1/bandits/shop")["model_version"] == version, 2)


def test_a_service_that_is_told_to_stop_finishes_what_it_has_begun(tmp_path, serve):
    url = f"sqlite:///{tmp_path}/store.db"
    key = make_key(url)
    service = serve(url)
    call = service.caller(key)
    assert call("POST", "/v1/bandits", BANDIT)[0] == 201
    decide(call)
    learned(call, 1)
    acknowledged = []
    stop = threading.Event()

    def keep_asking():
        mine = Caller(service.port, key, timeout=10)
        while not stop.is_set():
            try:
                acknowledged.append(decide(mine))
            except (OSError, AssertionError):
                return

    threads = [threading.Thread(target=keep_asking) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert service.stop() == 0
    stop.set()
    for thread in threads:
        thread.join(20)
    store = Store(url)
    kept = {f"{s:x}-{n:016x}" for s, n in store.connection.all("SELECT seq, nonce FROM decisions")}
    lease = store.connection.all("SELECT expires_at FROM leases")[0][0]
    store.close()
    assert len(acknowledged) > 10
    assert set(acknowledged) <= kept
    assert lease == 0  # given back


# ---------------------------------------------------------------------- clocks that jump

HOUR = 3_600_000_000


def test_a_dead_learners_lease_from_another_hour_does_not_stop_learning(settings):
    """A clock was an hour ahead when it was written, and was put right."""
    bandit = make_bandit(settings.store)
    add_decisions(settings.store, bandit, 3)
    store = Store(settings.store)
    token = store.acquire(bandit, "somebody who is dead", 3600.0)
    settings = replace(settings, lease_seconds=0.1)
    learner = Learner(settings)
    until(lambda: learner.turn() or _lines(settings.store)[0].learned == 3, 5)
    assert store.renew({bandit: token}, 1.0) == [bandit]
    # One that is alive prolongs it, and is left alone, however far ahead.
    token = store.acquire(bandit, learner.holder, 3600.0)
    other = Learner(settings)
    for _ in range(10):
        assert store.renew({bandit: token}, 3600.0) == []
        other.turn()
        time.sleep(0.05)
    assert bandit not in other._held
    for one in (learner, other, store):
        (one.close if one is store else one.stop)()


def test_a_lease_that_nobody_prolongs_is_no_learner(tmp_path, monkeypatch):
    from dpbandit.service import catalog

    url = f"sqlite:///{tmp_path}/store.db"
    bandit = make_bandit(url)
    store = Store(url)
    token = store.acquire(bandit, "somebody", 3600.0)
    (line,) = store.lines()
    served, clock = catalog.Served(line, 0, None), [1000.0]
    monkeypatch.setattr(catalog.time, "monotonic", lambda: clock[0])
    now = store.connection.now()
    for seconds, up in ((0, True), (30, True), (29, True), (2, False)):
        clock[0] += seconds
        served.see(line, clock[0])
        assert served.learner_up(now) is up
    store.renew({bandit: token}, 3600.0)
    served.see(store.lines()[0], clock[0])
    assert served.learner_up(now)
    store.close()


def test_what_is_dated_in_the_future_holds_up_nothing_behind_it(settings):
    bandit = make_bandit(settings.store)
    add_decisions(settings.store, bandit, 6, [(1, 1.0), (3, 1.0), (5, 1.0)])
    store = Store(settings.store)
    db = store.connection
    for table, time_, seq in (("decisions", "decided_at", 2), ("rewards", "received_at", 2)):
        sql = f"UPDATE {table} SET {time_} = {time_} + ? WHERE bandit = ? AND seq = ?"
        assert db.run(sql, (HOUR, bandit, seq)) == 1
    learner = Learner(replace(settings, retain_rewards=0.0, retain_decisions=0.0))
    learner.turn()
    assert _lines(settings.store)[0].learned == 6
    time.sleep(0.01)
    learner._erased = -1e9
    learner.turn()
    assert (
        db.one("SELECT count(*) FROM rewards") == db.one("SELECT count(*) FROM decisions") == (0,)
    )
    learner.stop()
    store.close()


def test_a_decision_dated_in_the_future_keeps_its_whole_window(settings):
    """It is dated like the one behind it, never earlier than it was made."""
    bandit = make_bandit(settings.store, reward_window=600)
    add_decisions(settings.store, bandit, 3)
    store = Store(settings.store)
    db = store.connection
    times = [1_000, 2_000, 3_000]
    for seq, at in zip((1, 2, 3), (times[0], times[1] + 10**17, times[2]), strict=True):
        db.run("UPDATE decisions SET decided_at = ? WHERE seq = ?", (at, seq))
    assert store.due(bandit, 0, window=600.0, limit=10) == 3
    assert db.all("SELECT decided_at FROM decisions ORDER BY seq") == [(1_000,), (3_000,), (3_000,)]
    db.run("UPDATE decisions SET decided_at = ? WHERE seq = 3", (10**17,))
    assert store.due(bandit, 0, window=600.0, limit=10) == 2
    (at,) = db.one("SELECT decided_at FROM decisions WHERE seq = 3")
    assert abs(at - db.now()) < 5_000_000
    store.close()


def test_a_decision_committed_after_a_delete_does_not_survive_it(store_url):
    from dpbandit.service.records import place

    bandit = make_bandit(store_url)
    context = np.array([0.5, 0.5, 0.0]).tobytes()
    entry = ((bandit, 0, None, context, None, 0, "test"), None, None)
    one, other = Store(store_url), Store(store_url)
    deleting = threading.Thread(target=other.delete, args=(bandit,))
    with one.connection.write():
        assert place(one.connection, [entry]) != [None]
        deleting.start()
        deleting.join(0.4)
    deleting.join(20)
    assert not deleting.is_alive()
    assert one.connection.one("SELECT count(*) FROM decisions") == (0,)
    with one.connection.write():
        assert place(one.connection, [entry]) == [None]
    one.close()
    other.close()


# ---------------------------------------------------------------------- many bandits


def add_copies(url, count):
    """So many more bandits like the first."""
    store = Store(url)
    db = store.connection
    columns = "config, claim, status, reason, timelines, created_at, created_by"
    with db.write():
        for number in range(count):
            db.run(
                f"INSERT INTO bandits (identity, name, {columns}) SELECT ?, ?, {columns} FROM "
                "bandits WHERE id = 1",
                (f"{number:032x}", f"copy-{number}"),
            )
        db.run("INSERT INTO streams SELECT id, 0 FROM bandits WHERE id > 1")
        db.run("INSERT INTO progress SELECT id, 0, 0, 0 FROM bandits WHERE id > 1")
        sql = "INSERT INTO states (bandit, number, state) SELECT b.id, 0, s.state FROM bandits b, "
        db.run(sql + "states s WHERE b.id > 1")
        db.run(
            "INSERT INTO releases SELECT b.id, r.number, r.position, r.made_at, r.token, "
            "r.fingerprint, r.charged, r.privacy, r.noise_scale, r.model, r.noisy FROM bandits b, "
            "releases r WHERE b.id > 1"
        )
    store.close()


def test_many_bandits_cost_little_to_begin_and_nothing_while_idle(tmp_path, monkeypatch):
    """Counted, not timed: folders that are read, transactions, statements."""
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url)
    add_copies(url, 300)
    learner = Learner(Settings(store=url, witness=tmp_path / "witness", lease_seconds=60.0))
    listed, listdir, said = [], os.listdir, []
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or listdir(path))
    learner.store.connection._db.set_trace_callback(said.append)
    while len(learner._leases) < 301:
        learner.turn()
    assert len(listed) < 10
    assert sum(one.startswith("BEGIN") for one in said) < 30
    learner._erased = -1e9
    learner.turn()  # looks once whether there is something to erase
    said.clear()
    learner._erased = -1e9
    learner.turn()
    assert len(said) < 10
    assert len(learner._held) == 0
    add_decisions(url, 7, 2)
    learner.turn()
    assert next(line for line in _lines(url) if line.id == 7).learned == 2
    said.clear()
    learner.stop()
    assert sum(one.startswith("BEGIN") for one in said) == 1
    assert all(line.lease_until == 0 for line in _lines(url))
