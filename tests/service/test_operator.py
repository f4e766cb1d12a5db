"""What an operator expects: copies, a look at migrations, patience at the start, strangers kept short."""

import contextlib
import json
import os
import sqlite3
import stat
import threading
import time

import pytest
from harness import (
    ARMS,
    BANDIT,
    Caller,
    Service,
    SilentProxy,
    decide,
    dpbandit,
    free_port,
    make_key,
    until,
)
from psycopg.conninfo import conninfo_to_dict
from test_leases import add_decisions, make_bandit

from dpbandit.errors import OptionError, StoreError
from dpbandit.service import schema
from dpbandit.service.backup import backup, versions
from dpbandit.service.database import SQLite, connect
from dpbandit.service.store import Store
from dpbandit.service.strangers import BURST_SECONDS, Strangers


def test_a_copy_of_a_store_that_is_written_to(tmp_path):
    url, target = f"sqlite:///{tmp_path}/store.db", tmp_path / "copy.db"
    bandit = make_bandit(url)
    add_decisions(url, bandit, 5, [(0, 1.0)])
    interrupted = tmp_path / "copy.db.part", tmp_path / "copy.db.part-journal"
    for left in interrupted:
        left.write_bytes(b"of one that was killed")
    over = threading.Event()

    def write():
        while not over.is_set():
            add_decisions(url, bandit, 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        size = backup(url, target)
    finally:
        over.set()
        writer.join()
    assert size == target.stat().st_size
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert not any(left.exists() for left in interrupted)
    copy = Store(f"sqlite:///{target}")
    (line,) = copy.lines()
    count, last = copy.connection.one("SELECT count(*), max(seq) FROM decisions")
    assert count == last == line.decisions >= 5  # one moment of it
    assert copy.connection.one("SELECT count(*) FROM rewards") == (1,)
    copy.close()
    with pytest.raises(OptionError, match="exists already"):
        backup(url, target)
    with pytest.raises(StoreError, match="could not be made"):
        backup(url, tmp_path / "none" / "copy.db")


def test_of_two_copies_of_one_name_at_a_time_one_is_made(tmp_path, monkeypatch):
    """The second one removed what the first was writing, which then called the second's beginning
    its whole copy."""
    url, target = f"sqlite:///{tmp_path}/store.db", tmp_path / "copy.db"
    add_decisions(url, make_bandit(url), 5)
    plain, begun, free, sizes = SQLite.copy_to, threading.Event(), threading.Event(), []

    def slowly(self, path):
        begun.set()
        assert free.wait(60)
        plain(self, path)

    monkeypatch.setattr(SQLite, "copy_to", slowly)
    first = threading.Thread(target=lambda: sizes.append(backup(url, target)))
    first.start()
    assert begun.wait(60)
    monkeypatch.setattr(SQLite, "copy_to", plain)
    with pytest.raises(OptionError, match=r"another copy to .*copy\.db is being made"):
        backup(url, target)
    free.set()
    first.join(60)
    assert sizes == [target.stat().st_size]
    assert [file.name for file in tmp_path.glob("copy*")] == ["copy.db"]


def test_another_program_s_file_is_left_as_it_is(tmp_path):
    """A look at its version changed how it keeps its log, and any other command put our tables in."""
    file = tmp_path / "mail.db"
    with contextlib.closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE letters (words)")
    before, url = file.read_bytes(), f"sqlite:///{file}"
    for touch in (versions, Store, lambda url: backup(url, tmp_path / "copy.db")):
        with pytest.raises(StoreError, match="another program's tables"):
            touch(url)
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["mail.db"]


def test_what_is_damaged_is_not_called_a_copy(tmp_path):
    url, file = f"sqlite:///{tmp_path}/store.db", tmp_path / "store.db"
    bandit = make_bandit(url)
    add_decisions(url, bandit, 500)
    db = connect(url)
    assert db.empty_log()
    pages = sqlite3.connect(file)
    (root,) = pages.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'decisions'"
    ).fetchone()
    (size,) = pages.execute("PRAGMA page_size").fetchone()
    pages.close()
    db.close()
    whole = bytearray(file.read_bytes())
    whole[(root - 1) * size + 8 : (root - 1) * size + 64] = b"\xff" * 56
    file.write_bytes(whole)
    with pytest.raises(StoreError):
        backup(url, tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy.db*"))


def test_the_commands(store_url, tmp_path):
    kind = store_url.split(":")[0]
    connection = connect(store_url)
    schema.migrate(connection, to=2)
    connection.close()
    migrate = ("store", "migrate", "--store", store_url)
    said = dpbandit(*migrate, "--check")
    assert (said.returncode, said.stdout) == (
        1,
        f"schema version 2: needs {len(schema.MIGRATIONS)}\n",
    )
    assert versions(store_url)[0] == 2  # nothing was changed
    assert dpbandit(*migrate).returncode == 0
    assert dpbandit(*migrate, "--check").returncode == 0
    assert versions(store_url) == (len(schema.MIGRATIONS),) * 2
    said = dpbandit("store", "backup", "--store", store_url, "--to", str(tmp_path / "copy.db"))
    if kind == "sqlite":
        assert said.returncode == 0, said.stderr
        assert "old one" in said.stdout
        Store(f"sqlite:///{tmp_path}/copy.db").close()
    else:
        assert said.returncode == 2
        assert "pg_basebackup" in said.stderr
    Store(store_url).set_meta("schema", "99")
    assert dpbandit(*migrate, "--check").returncode == 2


def test_a_database_that_is_still_starting_is_waited_for(new_database, tmp_path):
    url, port, number = new_database(), free_port(), free_port()
    make_key(url)
    told = conninfo_to_dict(url)
    later = f"postgresql://{told['user']}@127.0.0.1:{port}/{told['dbname']}"
    service = Service(
        later, tmp_path, "--port", str(number), role="ranker", listens=False, port=number
    )
    try:
        until(lambda: "waiting" in service.log.read_text(), 30)
        assert service.process.poll() is None
        proxy = SilentProxy(url, port)
        until(service.answers, 30)
        proxy.close()
    finally:
        service.stop()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:1/db?user=app&password=secret",
        "postgresql://127.0.0.1:1/db?password=x@secret",
        "postgresql://app:%ZZsecret@127.0.0.1:1/db",
        "postgresql:///db?password=se secret",
        "postgress://app:secret@127.0.0.1/db",
        "host=127.0.0.1 password=secret",
        "mysql://db/db?password=secret",
        "sqlite:///secret\0",
    ],
)
def test_a_store_that_cannot_be_opened_is_said_in_a_line_without_its_password(tmp_path, url):
    config = tmp_path / "config.toml"
    config.write_text(f"store = {json.dumps(url)}\nstart_seconds = 0.1\n")
    said = dpbandit("serve", "--config", str(config))
    assert said.returncode == 2
    assert "secret" not in said.stderr + said.stdout
    assert "Traceback" not in said.stderr
    assert len(said.stderr.splitlines()) <= 3


def test_it_does_not_wait_for_ever(tmp_path):
    url = f"postgresql://app:secret@127.0.0.1:{free_port()}/bandits"
    began = time.monotonic()
    said = dpbandit("serve", "--store", url, "--start-seconds", "1")
    assert said.returncode == 2
    assert time.monotonic() - began < 20
    assert "secret" not in said.stderr
    assert "Traceback" not in said.stderr


def test_a_bucket():
    strangers = Strangers(2.0)
    assert [strangers.heard(rewards=False) for _ in range(25)].count(True) == 2 * BURST_SECONDS
    assert strangers.heard(rewards=True)  # of reports nobody else can see anything
    strangers.known(rewards=False)
    assert strangers.heard(rewards=False)
    assert not strangers.heard(rewards=False)
    time.sleep(0.6)
    assert strangers.heard(rewards=False)


def test_strangers_are_kept_short_and_keys_are_not(serve, tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    key = make_key(url)
    service = serve(url, "--strangers-per-second", "1", role="ranker")
    call, stranger = service.caller(key), service.caller("dpb_0123456789ab_guess")
    assert call("POST", "/v1/bandits", BANDIT)[0] == 201
    found = [stranger("GET", "/v1/bandits")[0] for _ in range(20)]
    assert found[:5] == [401] * 5
    assert found[-5:] == [429] * 5
    assert service.caller("")("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})[0] == 429
    guessed = key[:-3] + ("abc" if key[-3:] != "abc" else "abd")  # of a key that there is
    assert service.caller(guessed)("GET", "/v1/bandits")[0] == 429
    # Reports have a bucket of their own: what they use up, others do not see.
    assert service.caller("")("POST", "/v1/bandits/shop/rewards", {})[0] == 401
    assert Caller(service.port, "")("GET", "/healthz")[0] == 200
    decide(call)
    new = service.caller(make_key(url, "rank"))  # known as soon as keys were read again
    until(lambda: new("GET", "/v1/bandits")[0] == 200, 3)
