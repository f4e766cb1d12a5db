"""How many decisions and rewards a second one ranker process takes, beside a bare uvicorn + Starlette endpoint in the same run.

    python benchmarks/service_load.py [--seconds 5] [--rounds 3] [--soak 120] [--store URL] [--json out.json]
    python benchmarks/service_load.py --rounds 0 --soak 3600 --rate 60         # an hour at an ordinary load, nothing else

d = 25, 25 arms, 256 connections on loopback, every decision and reward durable before it is answered. With a rate, requests
are sent when they are due on 16 connections, and a latency begins when its request was due. The bare endpoint decodes the same body (once with Starlette's own request.json(), once with msgspec) and answers as many bytes. Server and load
generator are processes of their own; the candidates take turns, and the medians over rounds are compared.
Wanted: decisions ≥ 0.6 and rewards ≥ 0.4 of the bare endpoint; over the soak p99 < 10 × p50 and flat memory.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DIM, ARMS, CONNECTIONS = 25, 25, 256
PYTHON = sys.executable


# ---------------------------------------------------------------------- the load generator (a process of its own)


class Caller(asyncio.Protocol):
    """One connection that sends its next request when the last was answered."""

    def __init__(self, run: Run) -> None:
        self.run, self.seen, self.sent, self.request = run, b"", 0.0, b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.next()

    def next(self) -> None:
        due, now = self.run.due(), time.perf_counter()
        if due > now:
            asyncio.get_running_loop().call_later(due - now, self.send, due)
        else:
            self.send(due or now)

    def send(self, due: float) -> None:
        request = self.run.next()
        if request is None:
            self.transport.close()
            return
        self.sent = due
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.seen = self.seen + data if self.seen else data
        head = self.seen.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self.seen.find(b"ontent-length: ")
        length = int(self.seen[at + 15 : self.seen.index(b"\r", at)])
        if len(self.seen) < head + 4 + length:
            return
        self.run.answered(
            time.perf_counter() - self.sent,
            self.seen[9:12],
            self.seen[head + 4 : head + 4 + length],
        )
        self.seen = b""
        self.next()

    def connection_lost(self, error: Exception | None) -> None:
        self.run.lost()


class Run:
    def __init__(
        self, requests: Iterator[bytes], seconds: float, keep: bool, connections: int, rate: float
    ) -> None:
        self.requests, self.keep = requests, keep
        self.latencies: list[float] = []
        self.statuses: dict[str, int] = {}
        self.bodies: list[bytes] = []
        self.open = connections
        self.done = asyncio.get_running_loop().create_future()
        self.begin = time.perf_counter()
        self.end = self.begin + seconds
        self.rate, self.asked = rate, 0

    def due(self) -> float:
        """When the next request is due: at once, unless there is a rate."""
        if not self.rate:
            return 0.0
        self.asked += 1
        return self.begin + self.asked / self.rate

    def next(self) -> bytes | None:
        return None if time.perf_counter() > self.end else next(self.requests, None)

    def answered(self, seconds: float, status: bytes, body: bytes) -> None:
        self.latencies.append(seconds)
        word = status.decode()
        self.statuses[word] = self.statuses.get(word, 0) + 1
        if self.keep:
            self.bodies.append(body)

    def lost(self) -> None:
        self.open -= 1
        if self.open == 0 and not self.done.done():
            self.done.set_result(None)


def http(path: str, body: bytes, key: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


def decision_bodies(count: int, dim: int, arms: int) -> list[bytes]:
    rng = random.Random(7)
    bodies = []
    for _ in range(count):
        contexts = [[rng.gauss(0, 0.75 / dim**0.5) for _ in range(dim)] for _ in range(arms)]
        contexts = [
            [v / max(1.0, sum(w * w for w in row) ** 0.5 * 1.001) for v in row] for row in contexts
        ]
        bodies.append(json.dumps({"contexts": contexts}).encode())
    return bodies


async def generate(job: dict[str, Any]) -> dict[str, Any]:
    bodies = decision_bodies(64, job.get("dim", DIM), job.get("arms", ARMS))
    connections, rate = job.get("connections", CONNECTIONS), job.get("rate", 0.0)
    if job["what"] == "decisions":
        pool = [http(job["path"], body, job["key"]) for body in bodies]
        requests: Iterator[bytes] = itertools.cycle(pool)
    elif job["what"] == "rewards":
        ids = Path(job["ids"]).read_text().split()
        start = job.get("start", 0)
        requests = (
            http(job["path"], b'{"decision":"%s","reward":%d}' % (i.encode(), n % 2), job["key"])
            for n, i in enumerate(ids[start:])
        )
    else:  # both, as an application would
        pool = [http(job["path"] + "/decisions", body, job["key"]) for body in bodies]
        requests = iter(())
    began = time.perf_counter()
    if job["what"] == "both":
        rewards = job["path"] + "/rewards"
        run: Run = Mixed(pool, rewards, job["key"], job["seconds"], connections, rate)
    else:
        run = Run(requests, job["seconds"], bool(job.get("keep")), connections, rate)
    loop = asyncio.get_running_loop()
    await asyncio.gather(
        *(
            loop.create_connection(lambda: Caller(run), "127.0.0.1", job["port"])
            for _ in range(connections)
        )
    )
    await run.done
    elapsed = time.perf_counter() - began
    if job.get("keep"):
        Path(job["keep"]).write_text("\n".join(json.loads(body)["decision"] for body in run.bodies))
    ordered = sorted(run.latencies)
    return {
        "per_second": len(ordered) / elapsed,
        "p50_ms": 1e3 * ordered[len(ordered) // 2],
        "p99_ms": 1e3 * ordered[int(len(ordered) * 0.99)],
        "max_ms": 1e3 * ordered[-1],
        "answers": len(ordered),
        "statuses": run.statuses,
    }


class Mixed(Run):
    """Decisions, and a reward for half of them some seconds later. Memory of the generator stays bounded too."""

    def __init__(
        self,
        pool: list[bytes],
        rewards: str,
        key: str,
        seconds: float,
        connections: int,
        rate: float,
    ) -> None:
        super().__init__(iter(()), seconds, False, connections, rate)
        # Rewards are a second or so behind their decisions, whatever the load.
        self.behind = min(2_000, int(rate) + 1) if rate else 2_000
        self.pool, self.rewards, self.key, self.turn = pool, rewards, key, 0
        self.waiting: list[bytes] = []

    def next(self) -> bytes | None:
        if time.perf_counter() > self.end:
            return None
        self.turn += 1
        if self.turn % 3 == 0 and len(self.waiting) > self.behind:
            body = b'{"decision":"%s","reward":1}' % self.waiting.pop(0)
            return http(self.rewards, body, self.key)
        return self.pool[self.turn % len(self.pool)]

    def answered(self, seconds: float, status: bytes, body: bytes) -> None:
        word = status.decode()
        self.statuses[word] = self.statuses.get(word, 0) + 1
        if status == b"201":
            self.latencies.append(seconds)
            if self.turn % 2 and len(self.waiting) < 2 * self.behind:
                at = body.index(b'"decision":"') + 12
                self.waiting.append(body[at : body.index(b'"', at)])


# ---------------------------------------------------------------------- the servers (processes of their own)


def bare(port: int, decoder: str, size: int) -> None:
    """uvicorn + Starlette, with the same settings as the service."""
    import msgspec
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from dpbandit.service.server import fastest

    answer = b'{"x":"' + b"0" * (size - 8) + b'"}'

    async def with_json(request: Request) -> Response:
        await request.json()
        return Response(answer, 201, media_type="application/json")

    async def with_msgspec(request: Request) -> Response:
        msgspec.json.decode(await request.body())
        return Response(answer, 201, media_type="application/json")

    app = Starlette(
        routes=[Route("/x", with_json if decoder == "json" else with_msgspec, methods=["POST"])]
    )
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        access_log=False,
        log_level="error",
        server_header=False,
        backlog=2048,
        loop=fastest(),
        http="httptools",
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started(command: list[str], port: int, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    deadline = time.time() + 60
    while time.time() < deadline:
        if process.poll() is not None:
            raise RuntimeError(log.read_text())
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    raise RuntimeError("a server did not start")


def load(**job: Any) -> dict[str, Any]:
    ran = subprocess.run(
        [PYTHON, __file__, "--generate", json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return dict(json.loads(ran.stdout))


def post(port: int, path: str, key: str, body: Any) -> Any:
    import urllib.request

    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def get(port: int, path: str, key: str) -> Any:
    import urllib.request

    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {key}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def processor_seconds(pid: int) -> float:
    """User and system time of a process's threads, as the scheduler measures it: what is counted by
    ticks misses threads that run for less than one."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def memory(pid: int) -> float:
    """Resident megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


# ---------------------------------------------------------------------- the measurement


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="dpbandit-load-", dir=arguments.folder))
    store = arguments.store or f"sqlite:///{folder}/load.db"
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    cli = [PYTHON, "-m", "dpbandit.cli"]
    made = subprocess.run(
        [*cli, "keys", "create", "--role", "admin", "--store", store],
        capture_output=True,
        text=True,
        check=True,
    )
    key = made.stdout.split()[-1]
    ports = {name: free_port() for name in ("service", "json", "msgspec")}
    log = folder / "log"

    def say(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    running: list[subprocess.Popen[bytes]] = []
    result: dict[str, Any] = {
        "dim": DIM,
        "arms": ARMS,
        "connections": CONNECTIONS,
        "store": store.split(":")[0],
    }
    name = f"load{random.randrange(10**9)}"
    path = f"/v1/bandits/{name}"
    try:
        serve = [*cli, "serve", "--store", store, "--port", str(ports["service"])]
        service = started([*serve, "--role", "ranker"], ports["service"], log)
        running.append(service)
        for decoder in ("json", "msgspec"):
            running.append(
                started(
                    [PYTHON, __file__, "--bare", f"{ports[decoder]},{decoder},{85}"],
                    ports[decoder],
                    log,
                )
            )
        bandit = {
            "name": name,
            "algorithm": "tree-gauss",
            "dim": DIM,
            "epsilon": 1.0,
            "delta": 1e-6,
            "reward_range": [0, 1],
        }
        post(ports["service"], "/v1/bandits", key, bandit)
        for what, share in (("decisions", 0.6), ("rewards", 0.4)) if arguments.rounds else ():
            ids, start = folder / "ids", 0
            if what == "rewards":
                load(
                    what="decisions",
                    path=path + "/decisions",
                    key=key,
                    port=ports["service"],
                    seconds=max(4, 3.5 * arguments.rounds * arguments.seconds),
                    keep=str(ids),
                )
            found: dict[str, list[dict[str, Any]]] = {"service": [], "json": [], "msgspec": []}
            for _ in range(arguments.rounds):
                for candidate in found:
                    url = f"{path}/{what}" if candidate == "service" else "/x"
                    pid = running[list(found).index(candidate)].pid
                    used = processor_seconds(pid)
                    one = load(
                        what=what,
                        path=url,
                        key=key,
                        port=ports[candidate],
                        seconds=arguments.seconds,
                        ids=str(ids),
                        start=start,
                    )
                    one["cpu_us"] = 1e6 * (processor_seconds(pid) - used) / one["answers"]
                    if candidate == "service" and what == "rewards":
                        start += one["answers"] + CONNECTIONS
                    found[candidate].append(one)
                    say(
                        f"{what:10} {candidate:8} {one['per_second']:8.0f}/s  p50 {one['p50_ms']:6.1f} ms  p99 {one['p99_ms']:6.1f} ms  {one['cpu_us']:4.0f} µs CPU  {one['statuses']}"
                    )
            rates = {
                c: statistics.median(r["per_second"] for r in runs) for c, runs in found.items()
            }
            result[what] = {
                "per_second": rates,
                "ratio_to_starlette": rates["service"] / rates["json"],
                "ratio_to_starlette_with_msgspec": rates["service"] / rates["msgspec"],
                "cpu_us": {
                    c: statistics.median(r["cpu_us"] for r in runs) for c, runs in found.items()
                },
                "wanted": share,
                "p50_ms": statistics.median(r["p50_ms"] for r in found["service"]),
                "p99_ms": statistics.median(r["p99_ms"] for r in found["service"]),
            }
            say(f"{what}: {result[what]}")
        for process in running[1:3]:
            process.terminate()
        if arguments.soak:
            learner = subprocess.Popen(
                [*cli, "serve", "--store", store, "--role", "learner"],
                stdout=log.open("ab"),
                stderr=log.open("ab"),
            )
            running.append(learner)
            result["soak"] = soak(
                arguments,
                key,
                ports["service"],
                {"ranker": service.pid, "learner": learner.pid},
                say,
            )
    finally:
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(30)
    return result


def soak(
    arguments: argparse.Namespace,
    key: str,
    port: int,
    pids: dict[str, int],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Decisions and rewards together at full load, while a learner closes, learns, releases and erases beside it."""
    name = f"soak{random.randrange(10**9)}"
    bandit = {
        "name": name,
        "algorithm": "anytime",
        "dim": DIM,
        "epsilon": 1.0,
        "delta": 1e-6,
        "reward_range": [0, 1],
    }
    path = f"/v1/bandits/{name}"
    post(port, "/v1/bandits", key, {**bandit, "reward_window": 1.0})
    warm = {"what": "both", "path": path, "key": key, "port": port, "seconds": 2.0}
    if arguments.rate:
        warm |= {"rate": arguments.rate, "connections": 16}
    load(**warm)
    while get(port, path, key)["learned"] == 0:
        time.sleep(0.5)
    before = get(port, path, key)
    job = {**warm, "seconds": arguments.soak}
    generator = subprocess.Popen(
        [PYTHON, __file__, "--generate", json.dumps(job)], stdout=subprocess.PIPE, text=True
    )
    sizes: dict[str, list[float]] = {who: [] for who in pids}
    used = {who: processor_seconds(pid) for who, pid in pids.items()}
    while generator.poll() is None:
        for who, pid in pids.items():
            sizes[who].append(memory(pid))
        time.sleep(min(5.0, arguments.soak / 8))
    one = json.loads(generator.communicate()[0])
    after = get(port, path, key)
    one |= {
        "memory_mb": {
            who: {
                "start": seen[0],
                "after a quarter": seen[len(seen) // 4],
                "end": seen[-1],
                "largest": max(seen),
            }
            for who, seen in sizes.items()
        },
        "cores": {
            who: (processor_seconds(pid) - used[who]) / arguments.soak for who, pid in pids.items()
        },
        "p99_over_p50": one["p99_ms"] / one["p50_ms"],
        "models": after["model_version"] - before["model_version"],
        "learned": after["learned"] - before["learned"],
        "learned_per_second": (after["learned"] - before["learned"]) / arguments.soak,
        "waiting": after["waiting"],
    }
    one["held"] = {
        "p99 under 10 × p50": one["p99_over_p50"] < 10,
        "memory flat": all(
            m["end"] < 1.1 * m["after a quarter"] + 5 for m in one["memory_mb"].values()
        ),
        "only 200 and 201": set(one["statuses"]) <= {"200", "201"},
    }
    say(f"soak: {one}")
    return one


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second in the soak")
    parser.add_argument("--store", help="another store than a new SQLite file")
    parser.add_argument("--folder", help="where that file is made")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--generate", help=argparse.SUPPRESS)
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.generate:
        import uvloop

        print(json.dumps(uvloop.run(generate(json.loads(arguments.generate)))))
        return
    if arguments.bare:
        port, decoder, size = arguments.bare.split(",")
        bare(int(port), decoder, int(size))
        return
    result = measure(arguments)
    print(json.dumps(result, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    missed = [what for what, held in result.get("soak", {}).get("held", {}).items() if not held]
    ratios = [w for w in ("decisions", "rewards") if w in result]
    missed += [w for w in ratios if result[w]["ratio_to_starlette"] < result[w]["wanted"]]
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
