"""Real processes on real sockets over real databases, for the tests of the service."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
# Far more than anything here takes, on a machine that is busy with other things too.
PATIENCE = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(check, seconds=PATIENCE, pause=0.05):
    """The first true answer of `check`, or a failure."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} seconds: {check}")


def dpbandit(*arguments, env=None):
    return subprocess.run(
        [sys.executable, "-m", "dpbandit.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
    )


def make_key(store, role="admin"):
    from dpbandit.service.keys import create
    from dpbandit.service.store import Store

    opened = Store(store)
    key = create(opened.connection, role)
    opened.close()
    return key


class Caller:
    """HTTP with a key, over one connection."""

    def __init__(self, port, key, timeout=30):
        self.port, self.key, self.timeout = port, key, timeout
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def __call__(self, method, path, body=None, *, headers=None, raw=None):
        sent = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        sent |= headers or {}
        data = raw if raw is not None else (None if body is None else json.dumps(body))
        try:
            self.connection.request(method, path, data, sent)
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise
        if answer.headers.get("content-type", "").startswith("application/json"):
            return answer.status, json.loads(text)
        return answer.status, text.decode()

    def get(self, path):
        status, answer = self("GET", path)
        assert status == 200, answer
        return answer


class Service:
    """`dpbandit serve` as a process."""

    def __init__(
        self, store, folder, *options, role="all", port=None, listens=True, prefix=(), env=None
    ):
        self.store, self.port = store, port or free_port()
        self.log = Path(folder) / f"serve-{self.port}.log"
        command = [
            *prefix,
            sys.executable,
            "-m",
            "dpbandit.cli",
            "serve",
            "--store",
            store,
            "--role",
            role,
        ]
        command += (
            ["--witness", str(Path(folder) / "witness")] if "--witness" not in options else []
        )
        command += ["--port", str(self.port)] if listens else []
        with self.log.open("ab") as file:
            environment = {**os.environ, **(env or {})}
            self.process = subprocess.Popen(
                [*command, *options], stdout=file, stderr=file, env=environment
            )
        if listens:
            until(self.answers, 60)

    def answers(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return Caller(self.port, "")("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def caller(self, key):
        return Caller(self.port, key)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(40)


BANDIT = {
    "name": "shop",
    "algorithm": "tree-gauss",
    "dim": 3,
    "epsilon": 1.0,
    "delta": 1e-6,
    "reward_range": [0, 1],
    "reward_window": 1,
}
ARMS = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.5]]


def decide(call, name="shop", **more):
    status, answer = call("POST", f"/v1/bandits/{name}/decisions", {"contexts": ARMS, **more})
    assert status == 201, answer
    return answer["decision"]


def reward(call, decision, value, name="shop"):
    return call("POST", f"/v1/bandits/{name}/rewards", {"decision": decision, "reward": value})


def learned(call, count, name="shop", seconds=PATIENCE):
    """Wait until this many decisions are learned."""
    return until(lambda: call.get(f"/v1/bandits/{name}")["learned"] >= count, seconds)
