"""Real processes on real sockets over real databases, for the tests of the service."""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
# Far more than anything here takes, on a machine that is busy with other things too.
PATIENCE = 60


def free_port():
    """A port that nobody has, below those that systems give to callers: it stays free meanwhile."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


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


def certificate(folder):
    """A certificate of this machine alone, and its key, as files."""
    cert, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    command += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


class Caller:
    """HTTP with a key, over one connection."""

    def __init__(self, port, key, timeout=30, tls=None):
        self.port, self.key, self.timeout = port, key, timeout
        if tls is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        else:
            context = ssl.create_default_context(cafile=tls)
            self.connection = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=timeout, context=context
            )

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


WITH_SETTINGS = """
import json, pathlib, sys
from dpbandit.service import server, settings
given = json.loads(sys.argv[1])
given["witness"] = pathlib.Path(given["witness"])
server.serve(settings.Settings(**given))
"""


class Service:
    """`dpbandit serve` as a process."""

    def __init__(
        self,
        store,
        folder,
        *options,
        role="all",
        port=None,
        listens=True,
        prefix=(),
        env=None,
        settings=None,
        tls=None,
    ):
        self.store, self.port, self.tls = store, port or free_port(), tls and tls[0]
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
        command += ["--tls-cert", str(tls[0]), "--tls-key", str(tls[1])] if tls else []
        if settings is not None:  # those that have no option
            given = {"store": store, "role": role, "port": self.port, **settings}
            given.setdefault("witness", str(Path(folder) / "witness"))
            command = [*prefix, sys.executable, "-c", WITH_SETTINGS, json.dumps(given)]
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
            return self.caller("")("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def caller(self, key):
        return Caller(self.port, key, tls=self.tls)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(40)


class SilentProxy:
    """Between a service and its PostgreSQL; it can fall silent and stay connected."""

    def __init__(self, url, port=0):
        from psycopg.conninfo import conninfo_to_dict

        told = conninfo_to_dict(url)
        self.path = told["host"]
        self.listener = socket.create_server(("127.0.0.1", port))
        self.speaks = threading.Event()
        self.speaks.set()
        where = f"127.0.0.1:{self.listener.getsockname()[1]}/{told['dbname']}"
        self.url = f"postgresql://{told['user']}@{where}"
        self.sockets = [self.listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(f"{self.path}/.s.PGSQL.5432")
                self.sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.speaks.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.speaks.set()
        for one in self.sockets:
            one.close()


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
