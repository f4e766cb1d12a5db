"""The client against a real service, and against servers that misbehave."""

import asyncio
import json
import logging
import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from harness import ARMS, BANDIT, free_port, make_key

import dpbandit
from dpbandit.client import calls
from dpbandit.errors import (
    AccessError,
    DpbanditError,
    NotFiniteError,
    OptionError,
    RequestError,
    ServiceError,
    ShapeError,
    UnreachableError,
)
from dpbandit.service.trusted import TrustedStore as Store

MADE = {key: value for key, value in BANDIT.items() if key not in ("name", "algorithm")} | {
    "reward_window": 600
}
KEY = "dpb_0123456789ab_" + "s" * 43
ANSWER = {"decision": "1-0000000000000001", "arm": 0, "arm_id": None, "model_version": 0}


class Waiting:
    """An AsyncClient used like a Client, so that both pass the same tests."""

    def __init__(self, *arguments, **options):
        self._loop = asyncio.new_event_loop()
        self._client = dpbandit.AsyncClient(*arguments, **options)

    def __getattr__(self, name):
        method = getattr(self._client, name)
        return lambda *arguments, **options: self._loop.run_until_complete(
            method(*arguments, **options)
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self._loop.close()


both = pytest.mark.parametrize("kind", [dpbandit.Client, Waiting], ids=["sync", "async"])


class Scripted(threading.Thread):
    """A server that answers each request as the script says: bytes, or a function of the connection."""

    def __init__(self, *script):
        super().__init__(daemon=True)
        self.script, self.requests, self.connections = list(script), [], 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.start()

    def run(self):
        while self.script:
            connection, _ = self.socket.accept()
            self.connections += 1
            with connection:
                while self.script and (asked := self.read(connection)):
                    self.requests.append(asked)
                    step = self.script.pop(0)
                    if step is None:
                        break
                    if callable(step):
                        step(connection)
                        break
                    connection.sendall(step)

    @staticmethod
    def read(connection):
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        ]
        while length and len(body) < length[0]:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def bodies(self):
        return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in self.requests]


def http(status, body=ANSWER, *headers):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(text)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + text


# ---------------------------------------------------------------------- a real service


@both
def test_the_whole_way_of_a_decision(shared, kind, monkeypatch):
    service, key = shared
    monkeypatch.setenv("DPBANDIT_KEY", key)
    with kind(f"http://127.0.0.1:{service.port}/") as client:
        name = f"way-{kind.__name__}"
        made = client.create_bandit(name, "tree-gauss", **MADE, ridge=2.0)
        assert made["options"] == {"ridge": 2.0}
        assert (
            client.create_bandit(name, "tree-gauss", **MADE, ridge=2.0)["created_at"]
            == made["created_at"]
        )
        assert name in {bandit["name"] for bandit in client.bandits()}
        shown = client.decide(name, np.array(ARMS, dtype=np.float32), arms=["a", "b", "c"])
        assert isinstance(shown, dpbandit.Decision)
        assert shown.arm_id == "abc"[shown.arm]
        assert client.reward(name, shown, 1) == "accepted"
        assert client.reward(name, shown.decision, 1.0) == "duplicate"
        others = [client.decide(name, ARMS) for _ in range(3)]
        assert client.rewards(name, [(other, 0.5) for other in others]) == ["accepted"] * 3
        reports = {others[0].decision: 0.5, others[1].decision: 0.25, "nonsense": 1.0}
        assert client.rewards(name, reports) == ["duplicate", "conflict", "unknown"]
        assert client.rewards(name, []) == []
        assert client.rewards(name, [(shown, 1.0)] * 2_500) == ["duplicate"] * 2_500
        time.sleep(0.1)  # longer than a ranker remembers a count
        assert client.bandit(name)["decisions"] == 4
        assert client.privacy(name)["claim"]["status"] == "proven"
        assert client.privacy()["total"]["bandits"] >= 1


@both
def test_an_id_of_ones_own_gives_the_same_decision_again(shared, kind):
    service, key = shared
    with kind(f"http://127.0.0.1:{service.port}", key=key) as client:
        name = f"own-{kind.__name__}"
        client.create_bandit(name, "tree-gauss", **MADE)
        first = client.decide(name, ARMS, request="visit 7")
        assert client.decide(name, ARMS, request="visit 7") == first
        assert client.decide(name, ARMS) != first
        with pytest.raises(RequestError, match="request id") as refused:
            client.decide(name, ARMS[:2], request="visit 7")
        assert refused.value.status == 409


@both
def test_what_is_refused_says_what_to_do(shared, kind):
    service, key = shared
    url = f"http://127.0.0.1:{service.port}"
    with kind(url, key=key) as client:
        name = f"refused-{kind.__name__}"
        client.create_bandit(name, "tree-gauss", **MADE)
        with pytest.raises(RequestError, match="another bandit of this name"):
            client.create_bandit(name, "tree-gauss", **{**MADE, "epsilon": 0.5})
        with pytest.raises(RequestError, match="no bandit called 'nobody'"):
            client.decide("nobody", ARMS)
        with pytest.raises(RequestError, match="must have 3 numbers"):
            client.decide(name, [[1.0, 0.0]])
        with pytest.raises(RequestError, match="above max_norm"):
            client.decide(name, [[9.0, 9.0, 9.0]])
        with pytest.raises(RequestError, match="no such decision"):
            client.reward(name, "1-0000000000000000", 1.0)
        shown = client.decide(name, ARMS)
        client.reward(name, shown, 0.0)
        with pytest.raises(RequestError, match="another reward") as refused:
            client.reward(name, shown, 0.8125)
        assert refused.value.status == 409
        assert "8125" not in str(refused.value)
    with (
        kind(url, key=KEY) as stranger,
        pytest.raises(AccessError, match="does not accept this key"),
    ):
        stranger.bandits()
    with (
        kind(url, key=make_key(service.store, "reward")) as reporter,
        pytest.raises(AccessError, match="another role"),
    ):
        reporter.decide(name, ARMS)


def test_mistakes_are_found_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("DPBANDIT_KEY", raising=False)
    with pytest.raises(AccessError, match="DPBANDIT_KEY"):
        dpbandit.Client()
    for wrong in (
        {"key": "two words"},
        {"key": "ключ"},
        {"key": KEY, "timeout": 0},
        {"key": KEY, "patience": -1},
    ):
        with pytest.raises(OptionError):
            dpbandit.Client(**wrong)
    for url in (
        "ftp://x",
        "localhost:80",
        "http://",
        "http://u:p@localhost",
        "http://localhost/?q",
    ):
        with pytest.raises(OptionError):
            dpbandit.Client(url, key=KEY)
    with pytest.raises(OptionError, match="in the clear"):
        dpbandit.Client("http://bandits.example.org", key=KEY)
    dpbandit.Client("http://bandits.example.org", key=KEY, insecure=True)
    client = dpbandit.Client(key=KEY)
    assert KEY not in repr(client)
    for contexts in ("nonsense", 7, [1.0, 2.0], [["x"]], [[None]], None):
        with pytest.raises(ShapeError):
            client.decide("shop", contexts)
    with pytest.raises(NotFiniteError):
        client.decide("shop", [[float("nan")]])
    for value in (float("inf"), float("nan"), "much", None):
        with pytest.raises(DpbanditError) as error:
            client.reward("shop", "1-0000000000000000", value)
        assert "much" not in str(error.value)
    with pytest.raises(OptionError):
        client.reward("shop", 7, 1.0)
    with pytest.raises(OptionError):
        client.bandit("..")
    # 17.0 would be another person than 17, who is the same as "17".
    for user in (17.0, True, b"17", "", None):
        with pytest.raises(OptionError, match="text or whole numbers"):
            client.erase_user("shop", user)
    for user in (17.0, True, b"17", ""):
        with pytest.raises(OptionError, match="text or whole numbers"):
            client.decide("shop", [[1.0]], user=user)
    assert {calls.question([[1.0]], user=user)["user"] for user in (17, np.int64(17), "17")} == {
        "17"
    }


# ---------------------------------------------------------------------- once, whatever happens in between


class Wire(threading.Thread):
    """Stands between client and service and loses every second answer, after the service has given it."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.lost, self.count = port, 0, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.start()

    def run(self):
        while True:
            connection, _ = self.socket.accept()
            with connection, socket.create_connection(("127.0.0.1", self.port)) as service:
                while asked := Scripted.read(connection):
                    service.sendall(asked)
                    answer = Scripted.read(service)  # an answer has the same frame as a question
                    self.count += 1
                    if self.count % 2:
                        self.lost += 1
                        break
                    connection.sendall(answer)


@both
def test_an_answer_that_was_lost_costs_nothing(shared, kind):
    service, key = shared
    wire = Wire(service.port)
    with kind(wire.url, key=key) as client:
        name = f"lost-{kind.__name__}"
        client.create_bandit(name, "tree-gauss", **MADE)
        shown = [client.decide(name, ARMS) for _ in range(20)]
        statuses = [client.reward(name, decision, 1.0) for decision in shown]
        assert len({decision.decision for decision in shown}) == 20
        assert set(statuses) <= {"accepted", "duplicate"}
        time.sleep(0.1)
        assert client.bandit(name)["decisions"] == 20
    assert wire.lost >= 20
    store = Store(service.store)
    (count,) = store.connection.all(
        "SELECT count(*) FROM rewards r JOIN bandits b ON b.id = r.bandit WHERE b.name = ?", (name,)
    )
    assert count == (20,)
    store.close()


def test_a_service_that_is_killed_and_started_again_counts_everything_once(store_url, serve):
    key, port = make_key(store_url), free_port()
    service = serve(store_url, role="ranker", port=port)
    shown, statuses, stop = [], [], threading.Event()
    with dpbandit.Client(f"http://127.0.0.1:{port}", key=key, timeout=5, patience=120) as client:
        client.create_bandit("shop", "tree-gauss", **MADE)

        def visit():
            while not stop.is_set():
                shown.append(client.decide("shop", ARMS))
                statuses.append(client.reward("shop", shown[-1], 1.0))

        async def visit_too():
            async with dpbandit.AsyncClient(
                f"http://127.0.0.1:{port}", key=key, timeout=5, patience=120
            ) as other:

                async def one():
                    while not stop.is_set():
                        decision = await other.decide("shop", ARMS)
                        also.append(decision)
                        reported.append(await other.reward("shop", decision, 0.0))

                await asyncio.gather(*(one() for _ in range(4)))

        also, reported = [], []
        visitors = [
            threading.Thread(target=visit),
            threading.Thread(target=lambda: asyncio.run(visit_too())),
        ]
        for visitor in visitors:
            visitor.start()
        for _ in range(2):
            time.sleep(0.7)
            service.process.kill()
            service.process.wait()
            service = serve(store_url, role="ranker", port=port)
        time.sleep(0.5)
        stop.set()
        for visitor in visitors:
            visitor.join(130)
            assert not visitor.is_alive()
    made = [decision.decision for decision in shown + also]
    store = Store(store_url)
    assert sorted(int(d.split("-")[0], 16) for d in made) == list(range(1, len(made) + 1))
    assert store.lines()[0].decisions == len(made) >= 20
    assert store.connection.all("SELECT count(*) FROM rewards") == [(len(made),)]
    assert set(statuses + reported) <= {"accepted", "duplicate"}
    store.close()


# ---------------------------------------------------------------------- services that misbehave


@both
def test_a_busy_service_is_given_the_time_it_asks_for(kind):
    server = Scripted(
        http(503, {"error": "too much is waiting"}, "Retry-After: 1"),
        http(502, b"<html>"),
        None,
        http(201),
    )
    began = time.monotonic()
    with kind(server.url, key=KEY) as client:
        assert client.decide("shop", ARMS).arm == 0
    assert time.monotonic() - began >= 1.0
    assert len({body["request"] for body in server.bodies()}) == 1  # the same question each time
    assert len(server.requests) == 4


@both
def test_silence_ends_with_a_timeout_and_patience_with_an_error(kind):
    quiet = [lambda connection: time.sleep(0.5)] * 20
    server = Scripted(*quiet)
    with kind(server.url, key=KEY, timeout=0.1, patience=0.6) as client:
        began = time.monotonic()
        with pytest.raises(UnreachableError, match=r"no answer in time.*safe") as error:
            client.decide("shop", ARMS)
        assert 0.1 < time.monotonic() - began < 2.0
        assert error.value.status is None
    nobody = f"http://127.0.0.1:{free_port()}"
    with (
        kind(nobody, key=KEY, patience=0.3) as client,
        pytest.raises(UnreachableError, match="Refused"),
    ):
        client.bandits()


@both
def test_connections_are_reused_and_one_that_went_stale_is_replaced_at_once(kind):
    server = Scripted(
        http(201),
        http(201),
        http(201, ANSWER, "Connection: close"),
        http(201),
        None,
        http(201),
        http(201),
    )
    began = time.monotonic()
    with kind(server.url, key=KEY) as client:
        for _ in range(3):
            client.decide("shop", ARMS)
        assert server.connections == 1
        for _ in range(3):
            client.decide("shop", ARMS)
        assert server.connections == 3
    assert time.monotonic() - began < 2.0


@both
def test_answers_of_other_servers_are_told_apart(kind):
    chunked = b"HTTP/1.1 201 x\r\nTransfer-Encoding: chunked\r\n\r\n"
    text = json.dumps(ANSWER).encode()
    chunked += (
        b"5;x=y\r\n"
        + text[:5]
        + b"\r\n"
        + f"{len(text) - 5:x}".encode()
        + b"\r\n"
        + text[5:]
        + b"\r\n0\r\nT: 1\r\n\r\n"
    )
    early = b"HTTP/1.1 103 x\r\nLink: y\r\n\r\n" + http(201)
    server = Scripted(
        chunked,
        early if kind is Waiting else http(201),
        http(200, b"<html>hello</html>"),
        http(200, {"other": 1}),
        http(302, b"", "Location: https://elsewhere"),
        http(500, {"error": "unexpected"}),
    )
    with kind(server.url, key=KEY) as client:
        assert client.decide("shop", ARMS).decision == ANSWER["decision"]
        assert client.decide("shop", ARMS).decision == ANSWER["decision"]
        for words in ("status 200", "status 200", "status 302", "the service failed: unexpected"):
            with pytest.raises(ServiceError, match=words):
                client.decide("shop", ARMS)


def test_a_forked_worker_does_not_speak_on_its_parents_connection():
    server = Scripted(http(201), http(201), http(201))
    with dpbandit.Client(server.url, key=KEY) as client:
        client.decide("shop", ARMS)
        assert len(client._idle) == 1
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, b"%d" % client._connection()[1])
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 10) == b"0"
        assert client._connection()[1]


def test_many_share_an_async_client_and_it_moves_between_loops(shared):
    service, key = shared
    client = dpbandit.AsyncClient(f"http://127.0.0.1:{service.port}", key=key, connections=5)

    async def visit():
        await client.create_bandit("many", "tree-gauss", **MADE)
        shown = await asyncio.gather(*(client.decide("many", ARMS) for _ in range(50)))
        assert len(client._idle) <= 5
        return shown

    made = asyncio.run(visit()) + asyncio.run(visit())
    assert len({decision.decision for decision in made}) == 100


def test_nothing_is_logged(shared, caplog, capfd):
    service, key = shared
    with (
        caplog.at_level(logging.DEBUG),
        dpbandit.Client(f"http://127.0.0.1:{service.port}", key=key) as client,
    ):
        client.create_bandit("silent", "tree-gauss", **MADE)
        client.reward("silent", client.decide("silent", ARMS), 0.8125)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_the_client_needs_nothing_but_the_standard_library():
    folder = Path(dpbandit.__file__).parent / "client"
    lines = [line.strip() for path in folder.glob("*.py") for line in path.read_text().splitlines()]
    named = {
        line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))
    }
    import sys

    assert named <= sys.stdlib_module_names | {"dpbandit", "__future__"}
