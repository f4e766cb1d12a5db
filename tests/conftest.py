"""What every test starts from."""

import contextlib
import os
import signal
import sys
from types import SimpleNamespace
from typing import NamedTuple

import pytest


class Said(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def dpbandit_(monkeypatch, capsys, tmp_path):
    """The command line in this process: called with arguments, it says the exit status and what was
    printed. It runs in an empty folder."""
    import dpbandit.cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["dpbandit", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            dpbandit.cli.main()
        said = capsys.readouterr()
        return Said(left.value.code or 0, said.out, said.err)

    return call


@pytest.fixture
def ctrl_c(monkeypatch):
    """Send a real SIGINT to this process as soon as the work says that so much is done."""
    from dpbandit.cli import progress

    def arm(share):
        seen = SimpleNamespace(sent=[], most=0.0)

        @contextlib.contextmanager
        def drawing(first):
            def draw(what, done, total):
                seen.most = max(seen.most, total)
                if not seen.sent and done >= share * total:
                    seen.sent.append(what)
                    os.kill(os.getpid(), signal.SIGINT)

            yield draw

        monkeypatch.setattr(progress, "drawing", drawing)
        return seen

    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # processes of a test runner may ignore it
    yield arm
    after = signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler, "the handler was not put back"
