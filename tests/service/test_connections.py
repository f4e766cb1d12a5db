"""Connections that want to stay: every one of them ends by itself, and no stranger keeps an
application out."""

import contextlib
import http.client
import json
import socket
import ssl
import struct
import time
from pathlib import Path

import pytest
from harness import ARMS, BANDIT, Service, certificate, make_key, until

MOST = 12
PATIENT, WHOLE = (
    b"GET /healthz HTTP/1.1\r\nhost: x\r\n",
    b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
)
LARGE = b"content-length: 1000000\r\n\r\n{"
CHUNKED = b"transfer-encoding: chunked\r\n\r\nfffff\r\n{"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    url = f"sqlite:///{folder}/store.db"
    key = make_key(url)
    settings = {"body_seconds": 1, "max_connections": MOST, "idle_seconds": 2, "write_seconds": 1}
    service = Service(url, folder, role="ranker", settings=settings)
    yield service, key
    service.stop()


@pytest.fixture
def small(served):
    """A ranker with few connections, and a caller with a key. It has seen the connections of the
    test before end: with one processor for all, that may come after the next test began."""
    service, _ = served
    until(lambda: all(answers(service) for _ in range(MOST // 2)))
    return served


def answers(service):
    """Whether a stranger is let in."""
    with contextlib.suppress(ConnectionError), connected(service) as asks:
        asks.sendall(WHOLE)
        return asks.recv(1000).startswith(b"HTTP/1.1 200 ")
    return False


def connected(service, *, buffer=None):
    made = socket.socket()
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.settimeout(20)
    made.connect(("127.0.0.1", service.port))
    return made


def test_a_connection_ends_whatever_it_was_left_in(small):
    """What is left over comes after the answer: it must not count as a sign of life."""
    service, _ = small
    starts = (b"POST /v1/bandits HTTP/1.1\r\nhost: x\r\n", b"POST /healthz HTTP/1.1\r\nhost: x\r\n")
    left = [(start + rest, b"1") for start in starts for rest in (LARGE, CHUNKED)]
    with contextlib.ExitStack() as stack:
        staying = []
        for sent, more in (*left, (WHOLE, b"\r\n"), (WHOLE, b""), (WHOLE, PATIENT)):
            staying.append(stack.enter_context(connected(service)))
            staying[-1].sendall(sent)
            assert staying[-1].recv(1000).startswith(b"HTTP/1.1 ")
            staying[-1].sendall(more)
        began = time.monotonic()
        for stays in staying:
            stays.settimeout(6)
            with contextlib.suppress(ConnectionError):
                while stays.recv(1 << 16):
                    pass
        assert time.monotonic() - began < 6


def test_answers_that_nobody_reads_are_not_kept_for_ever(small):
    service, _ = small
    with connected(service, buffer=4096) as deaf:
        deaf.sendall(b"GET /dashboard.js HTTP/1.1\r\nhost: x\r\n\r\n" * 700)
        ports = f":{service.port:04X} 0100007F:{deaf.getsockname()[1]:04X} "

        def held():
            """Whether the service has it, not the kernel alone, which goes on offering the rest."""
            rows = Path("/proc/net/tcp").read_text().splitlines()
            return any(ports in row and row.split()[9] != "0" for row in rows)

        until(held, 8)  # the kernel has it first
        until(lambda: not held(), 8)


def test_who_is_gone_before_the_answer_is_in_no_log(small):
    """Requests behind one another, from a caller who goes, and from one whose answers nobody reads."""
    service, key = small
    with contextlib.ExitStack() as stack:
        for what in ("rewards", "decisions"):
            head = f"POST /v1/bandits/none/{what} HTTP/1.1\r\nhost: x\r\n"
            head += f"authorization: Bearer {key}\r\n"
            asks = head.encode() + b"content-length: 2\r\n\r\n{}"
            for wait in (0.0, 0.001, 0.003, 0.005, 0.01) * 4:
                with connected(service) as goes:
                    goes.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    goes.sendall(asks * 3)
                    time.sleep(wait)
            deaf = stack.enter_context(connected(service, buffer=4096))
            deaf.sendall((asks + b"GET /dashboard.js HTTP/1.1\r\nhost: x\r\n\r\n") * 300)
        time.sleep(4)  # longer than they may be unread
    assert answers(service)
    assert "Traceback" not in service.log.read_text()


def test_strangers_do_not_keep_an_application_out(small):
    service, key = small
    call = service.caller(key)
    assert call("GET", "/v1/bandits")[0] == 200
    with contextlib.ExitStack() as stack:
        for number in range(3 * MOST):
            stays = stack.enter_context(connected(service))
            stays.sendall(
                (b"POST /healthz HTTP/1.1\r\nhost: x\r\n" + LARGE, PATIENT, WHOLE)[number % 3]
            )
            if number % 4 == 0:
                # The connection that has shown its key stays, and a new one is let in.
                assert call("GET", "/v1/bandits")[0] == 200
                assert service.caller(key)("GET", "/v1/bandits")[0] == 200


def test_those_who_are_too_many_are_told_so(small):
    service, key = small
    asking = f"POST /v1/bandits HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(MOST):  # all with a key, all in the middle of a request
            busy = stack.enter_context(connected(service))
            busy.sendall(asking.encode() + LARGE)
        time.sleep(0.2)
        statuses = set()
        for _ in range(4):
            with contextlib.suppress(ConnectionError), connected(service) as late:
                late.sendall(WHOLE)
                answer = http.client.HTTPResponse(late)
                answer.begin()
                statuses.add((answer.status, answer.headers["retry-after"]))
        assert statuses <= {(503, "1")}
        assert statuses


@pytest.mark.parametrize("size", [33_000, 40_000])
def test_a_large_head_is_refused_though_it_comes_at_once(small, size):
    service, _ = small
    for fields in (b"x: " + b"y" * size, b"\r\n".join([b"x: y"] * (size // 6))):
        with connected(service) as babbler:
            babbler.sendall(PATIENT + fields + b"\r\n\r\n")
            answer = http.client.HTTPResponse(babbler)
            answer.begin()
            assert answer.status == 431
            assert "head" in json.loads(answer.read())["error"]


def test_a_tls_handshake_that_does_not_end_is_ended(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    make_key(url)
    options = ("--body-seconds", "1")
    service = Service(url, tmp_path, *options, role="ranker", tls=certificate(tmp_path))
    try:
        with contextlib.ExitStack() as stack:
            left = []
            for sent in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n"):
                left.append(stack.enter_context(connected(service)))
                left[-1].sendall(sent)
            # One that has shaken hands, and rests in the middle of a head, ends as without TLS.
            context = ssl.create_default_context(cafile=service.tls)
            safe = context.wrap_socket(connected(service), server_hostname="127.0.0.1")
            left.append(stack.enter_context(safe))
            safe.sendall(PATIENT)
            began = time.monotonic()
            for silent in left:
                with contextlib.suppress(OSError):
                    while silent.recv(1000):
                        pass
            assert time.monotonic() - began < 8
    finally:
        service.stop()


@pytest.mark.parametrize("tls", [False, True])
def test_strangers_take_no_open_file_that_the_service_needs(tmp_path, tls):
    """A system may allow fewer open files than connections are allowed."""
    url = f"sqlite:///{tmp_path}/store.db"
    key = make_key(url)
    few = ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh"]
    safe = certificate(tmp_path) if tls else None
    service = Service(url, tmp_path, role="ranker", prefix=few, tls=safe)
    try:
        call = service.caller(key)
        assert call("POST", "/v1/bandits", BANDIT)[0] == 201
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                for _ in range(100):
                    silent = stack.enter_context(socket.socket())
                    silent.setblocking(False)
                    silent.connect_ex(("127.0.0.1", service.port))
                for one in (call, service.caller(key)):
                    asked = {"contexts": ARMS}
                    assert one("POST", "/v1/bandits/shop/decisions", asked)[0] == 201
        assert "72 connections at a time, not 10000" in service.log.read_text()
    finally:
        service.stop()
