"""Stores that are silent, locked or full, models and rows that cannot be read, learners that stop:
what is answered meanwhile, how soon, and that it says so."""

import asyncio
import contextlib
import fcntl
import json
import os
import re
import resource
import signal
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from harness import ARMS, BANDIT, Caller, Service, SilentProxy, decide, make_key, until
from test_leases import make_bandit

from dpbandit.errors import StoreError
from dpbandit.service import server
from dpbandit.service.api import App
from dpbandit.service.database import connect
from dpbandit.service.keys import revoke
from dpbandit.service.loops import Loop, Remembered
from dpbandit.service.settings import Settings
from dpbandit.service.store import Store

QUICK = {"read_seconds": 1, "write_seconds": 1, "shutdown_seconds": 4}


def ready(service):
    return Caller(service.port, "")("GET", "/readyz")[0] == 200


def test_a_silent_postgresql_is_answered_503_and_ends_no_later(new_database, tmp_path):
    proxy = SilentProxy(new_database())
    key = make_key(proxy.url)
    service = Service(proxy.url, tmp_path, role="ranker", settings=QUICK)
    try:
        call = service.caller(key)
        assert call("POST", "/v1/bandits", BANDIT)[0] == 201
        proxy.speaks.clear()
        time.sleep(0.3)  # what was read a moment ago is news
        unknown = Caller(service.port, "dpb_000000000000_" + "x" * 43)
        asked = [
            (call, "GET", "/v1/bandits", None),
            (service.caller(key), "GET", "/v1/bandits/shop", None),
            (service.caller(key), "GET", "/v1/privacy", None),
            (service.caller(key), "POST", "/v1/bandits/shop/decisions", {"contexts": ARMS}),
            (unknown, "GET", "/v1/bandits", None),
        ]
        began, answers = time.monotonic(), []
        threads = [
            threading.Thread(target=lambda one=one: answers.append(one[0](*one[1:])[0]))
            for one in asked
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert answers == [503] * len(asked)
        assert time.monotonic() - began < 9
        assert Caller(service.port, "")("GET", "/v1/bandits")[0] == 401
        assert not ready(service)
        # Those who may read metrics are told that the store is away.
        assert "dpbandit_store_up 0.0" in service.caller(key)("GET", "/metrics")[1]
        began = time.monotonic()
        service.stop()
        assert time.monotonic() - began < QUICK["shutdown_seconds"] + 2
    finally:
        service.process.kill()
        proxy.close()


def test_what_the_url_of_postgresql_says_holds(new_database):
    url = new_database()
    mark = "&" if "?" in url else "?"
    given = "options=-c%20work_mem%3D7MB%20-c%20lock_timeout%3D1234&application_name=mine"
    store = connect(f"{url}{mark}{given}", patience=3.0)
    settings = ("work_mem", "lock_timeout", "application_name", "synchronous_commit", "jit")
    found = [store.one(f"SHOW {name}")[0] for name in settings]
    assert found == ["7MB", "1234ms", "mine", "on", "off"]
    assert store.one("SHOW statement_timeout")[0] == "3s"
    told = {"keepalives_idle": "10", "tcp_user_timeout": "20000"}
    assert told.items() <= store._db.info.get_parameters().items()
    store.close()


def test_the_log_of_postgresql_holds_rewards_where_it_is_told_to_and_says_how_not_to(new_database):
    """The page's commands do what it says; a statement that fails is logged without its parameters."""
    url = new_database()
    admin = connect(url)
    name, folder = admin.one("SELECT current_database()")[0], admin.one("SHOW data_directory")[0]
    Store(url).close()
    rewards = iter(range(100))

    def logged(value, fails=False):
        db = connect(url)
        seq = next(rewards)
        for _ in range(1 + fails):
            with contextlib.suppress(StoreError) if fails else contextlib.nullcontext():
                db.add("rewards", bandit=1, seq=seq, value=value, received_at=1, key="")
        db.close()
        return str(value) in (Path(folder) / "log").read_text()

    assert not logged(0.731219)
    assert not logged(7.340187, fails=True)
    assert "duplicate key value" in (Path(folder) / "log").read_text()
    admin.run(f"ALTER DATABASE {name} SET log_statement = 'all'")
    assert logged(0.615533)
    admin.run(f"ALTER ROLE CURRENT_USER IN DATABASE {name} SET log_parameter_max_length = 0")
    assert not logged(0.847127)
    admin.close()


def test_a_loop_survives_everything_says_so_and_is_not_well_meanwhile(caplog):
    faults = [None, OSError("secret"), KeyError("secret"), StoreError("the store is away"), None]

    async def runs():
        seen, done = [], asyncio.Event()

        async def step():
            if not faults:
                done.set()
                return
            fault = faults.pop(0)
            seen.append(loop.well)
            if fault is not None:
                raise fault

        loop = Loop("the catalogue", step, every=0.001, well_for=5.0)
        loop.start()
        await asyncio.wait_for(done.wait(), 20)
        assert seen == [True, True, False, False, False]
        assert loop.well
        await loop.stop()
        slow = Loop("slow", asyncio.Event().wait, every=0.0, well_for=0.05)
        slow.start()
        await asyncio.sleep(0.1)
        assert not slow.well  # it fails at nothing, and does nothing
        await slow.stop()

    with caplog.at_level("WARNING"):
        asyncio.run(runs())
    said = [record.getMessage() for record in caplog.records]
    assert [words.startswith("the catalogue: ") for words in said] == [True] * 4
    assert "the store is away" in said[2]
    assert said[3].endswith("works again")
    assert "secret" not in caplog.text


def test_all_who_ask_a_silent_store_share_one_failure():
    """Ten of them waited for it one after the other, five seconds each."""
    readings = []

    async def asks():
        async def read():
            readings.append(1)
            await asyncio.sleep(0.05)
            if len(readings) < 4:
                raise StoreError("the server is silent")

        what = Remembered(read)
        found = await asyncio.gather(*(what.again() for _ in range(10)), return_exceptions=True)
        assert [str(error) for error in found] == ["the server is silent"] * 10
        assert len(readings) == 2  # one had begun before the others asked
        with pytest.raises(StoreError):  # asked anew, it looks anew
            await what.again()
        await what.again()
        assert (len(readings), what.age < 5) == (4, True)

    asyncio.run(asks())


def test_pages_that_take_long_keep_no_ranker_from_reading_what_is_new(tmp_path):
    """A hundred readers of one large bandit: it was not ready for as long as they asked."""
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url)
    free = threading.Event()

    async def live():
        app = App(Settings(store=url))
        await app.start()
        page = asyncio.create_task(app.catalog.with_store(lambda _: free.wait(60)))
        await asyncio.sleep(0.1)
        try:
            await asyncio.wait_for(app.catalog.refresh(), 20)
            assert not page.done()
            assert app.ready
        finally:
            free.set()
        await page
        await app.stop()

    asyncio.run(live())


@contextlib.contextmanager
def held(path, kind):
    """Somebody stopped in the middle of a write."""
    if kind == "turn":
        with open(f"{path}-lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    else:
        store = connect(f"sqlite:///{path}")
        store.run("BEGIN IMMEDIATE")
        yield
        store.run("ROLLBACK")
        store.close()


@pytest.mark.parametrize("kind", ["turn", "sqlite"])
def test_while_a_lock_is_held_nothing_hangs_and_nobody_says_ready(tmp_path, kind):
    path = tmp_path / "store.db"
    url = f"sqlite:///{path}"
    key = make_key(url)
    service = Service(url, tmp_path, role="ranker", settings=QUICK)
    call = service.caller(key)
    assert call("POST", "/v1/bandits", BANDIT)[0] == 201
    with held(path, kind):
        began = time.monotonic()
        assert call("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})[0] == 503
        assert call("GET", "/v1/bandits")[0] == 200
        assert time.monotonic() - began < 5
        until(lambda: not ready(service), 8)
        began = time.monotonic()
        service.stop()
        assert time.monotonic() - began < QUICK["shutdown_seconds"] + 2


def test_a_full_disk_is_not_ready_until_there_is_room(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    key = make_key(url)
    service = Service(url, tmp_path, role="ranker", settings=QUICK)
    call = service.caller(key)
    assert call("POST", "/v1/bandits", BANDIT)[0] == 201
    everything = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (1, everything[1]))
    try:
        until(lambda: not ready(service), 8)
        assert call("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})[0] == 503
        assert call("GET", "/v1/bandits")[0] == 200
    finally:
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, everything)
    until(lambda: ready(service), 8)
    decide(call)
    assert service.stop() in (0, -15)


def test_a_revoked_key_ends_whatever_cannot_be_read(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    good, broken = make_bandit(url, name="shop"), make_bandit(url, name="broken")
    keys = [make_key(url) for _ in range(3)]
    store = Store(url)
    db = store.connection
    with db.write():
        for model in ("{}", "[1]"):
            db.run("UPDATE releases SET model = ? WHERE bandit = ?", (model, broken))
    service = Service(url, tmp_path, role="ranker", settings=QUICK)
    callers = [service.caller(key) for key in keys]

    def asks(call):
        return call("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})[0]

    def ends(number):
        assert asks(callers[number]) == 201
        revoke(db, keys[number])
        began = time.monotonic()
        until(lambda: asks(callers[number]) == 401, 5, 0.01)
        return time.monotonic() - began

    assert callers[0]("GET", "/v1/bandits/broken")[0] == 503
    assert ready(service)
    assert ends(0) < 2
    # A row that nothing can be made of: the whole catalogue cannot be read.
    copied = "id, identity, name, config, claim, status, reason, timelines, created_at, created_by"
    with db.write():
        db.run(
            f"INSERT INTO bandits ({copied}) SELECT 99, 'x', 'x', config, '{{', status, reason, "
            "timelines, created_at, created_by FROM bandits WHERE id = ?",
            (good,),
        )
        db.add("streams", bandit=99, last_seq=0)
        db.add("progress", bandit=99, closed=0, learned=0, version=0)
    until(lambda: not ready(service), 5)
    assert "the catalogue: " in service.log.read_text()
    assert ends(1) < 2
    with db.write():
        db.run("DELETE FROM bandits WHERE id = 99")
    until(lambda: ready(service), 5)
    assert asks(callers[2]) == 201
    assert "the catalogue: works again" in service.log.read_text()
    service.stop()
    store.close()


def test_large_creations_leave_the_others_their_turn(tmp_path):
    """Eight of 3.5 MB at once: a decision waited for 18 seconds, and lists had 66 MB."""
    url = f"sqlite:///{tmp_path}/store.db"
    key, ending = make_key(url), make_key(url)
    service = Service(url, tmp_path, role="ranker", settings={})
    call, ends = service.caller(key), service.caller(ending)
    assert call("POST", "/v1/bandits", BANDIT)[0] == 201
    rng = np.random.default_rng(0)
    contexts = rng.uniform(0, 0.5, (58_000, 3)).round(15).tolist()
    large = {**BANDIT, "algorithm": "anytime", "options": {"public_contexts": contexts}}
    bodies = [json.dumps({**large, "name": f"large-{n}"}) for n in range(8)]
    assert 3 << 20 < len(bodies[0]) < 4 << 20
    with ThreadPoolExecutor(8) as pool:
        makes = [
            pool.submit(Caller(service.port, key, timeout=120), "POST", "/v1/bandits", raw=body)
            for body in bodies
        ]
        seconds, revoked = [], None
        store = connect(url)
        while not all(one.done() for one in makes):
            began = time.monotonic()
            decide(call)
            seconds.append(time.monotonic() - began)
            if revoked is None:
                revoke(store, ending)
                revoked = time.monotonic()
            if ends is not None and ends("GET", "/v1/bandits/shop")[0] == 401:
                revoked, ends = time.monotonic() - revoked, None
        store.close()
        assert [one.result()[0] for one in makes] == [201] * 8
    assert max(seconds) < 5
    assert statistics.median(seconds) < 1
    assert ends is None
    assert revoked < 5
    assert len(json.dumps(call.get("/v1/bandits"))) < 50_000
    (memory,) = re.findall(
        r"VmHWM:\s+(\d+) kB", Path(f"/proc/{service.process.pid}/status").read_text()
    )
    assert int(memory) < 500_000
    service.stop()


def test_a_learner_that_stops_makes_the_service_not_ready(tmp_path, monkeypatch):
    monkeypatch.setattr(server._Child, "SILENT_SECONDS", 2.5)
    monkeypatch.setattr(server._Child, "STARTING_SECONDS", 0.0)
    settings = Settings(store=f"sqlite:///{tmp_path}/store.db", witness=tmp_path / "witness")
    child, stop = server._Child(settings), threading.Event()
    keeper = threading.Thread(target=child.keep, args=(stop,), daemon=True)
    keeper.start()
    try:
        until(lambda: child.healthy, 30)
        mine = Path(f"/proc/{os.getpid()}/task")
        born = {
            int(pid) for task in mine.iterdir() for pid in (task / "children").read_text().split()
        }
        (pid,) = [one for one in born if "dpbandit.service.server" in _command(one)]
        os.kill(pid, signal.SIGSTOP)
        until(lambda: not child.healthy, 5)
        os.kill(pid, signal.SIGCONT)
        until(lambda: child.healthy, 5)
    finally:
        stop.set()
        keeper.join(20)
    assert not keeper.is_alive()


def _command(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def test_leases_are_prolonged_whatever_happens(tmp_path, monkeypatch, caplog):
    """The thread that does it goes on after errors that are not the store's."""
    from dpbandit.service.learner import Learner
    from dpbandit.service.trusted import TrustedStore

    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url)
    learner = Learner(Settings(store=url, witness=tmp_path / "witness", lease_seconds=0.3))
    tried, renew = [], TrustedStore.renew

    def odd(self, leases, seconds):
        if threading.current_thread().name == "leases":
            tried.append(1)
            if len(tried) == 1:
                raise ValueError("0.73194268")
        return renew(self, leases, seconds)

    monkeypatch.setattr(TrustedStore, "renew", odd)
    stop = threading.Event()
    running = threading.Thread(target=learner.run, args=(stop,), daemon=True)
    running.start()
    until(lambda: len(tried) > 2, 10)
    stop.set()
    running.join(10)
    assert "could not be prolonged: ValueError at" in caplog.text
    assert "7319" not in caplog.text
