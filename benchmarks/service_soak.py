"""An hour at an ordinary load, on several stores at once: latency, memory, and whether every reward was learned once.

    python benchmarks/service_soak.py [--seconds 3600] [--decisions 40] [--rewards 20] [--store URL ...] [--json out.json]

Each store (a new SQLite file, unless said) has a ranker and a learner, and two bandits: `shop` protects one reward, `people`
a user with three. Three decisions in four are the shop's. Requests are sent when they are due, on 16 connections, and a latency
begins when its request was due: what keeps one waiting is not hidden. One report in fifty is sent twice. Beside that an admin key
polls what a dashboard asks for every five seconds, and erases a user every twenty.

At the end everything is learned, and is judged: all rewards that the store still has are those that were acknowledged, and the
shop's stream, learned again from what the clients know and the noise that was published, gives the same ledger, the same clean
sums and the same θ, to the last bit. So no reward was lost, none was counted twice, and no noise was drawn again.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from service_load import (
    PYTHON,
    decision_bodies,
    free_port,
    memory,
    post,
    processor_seconds,
    started,
)

CLI = [PYTHON, "-m", "dpbandit.cli"]
DIM, ARMS, CONNECTIONS, USERS, CAP = 25, 25, 16, 8_000, 3
PARTS = 6  # of the time, each with its own figures
POLLED, ERASED = 5.0, 20.0  # seconds between two
BEHIND = 2.0  # seconds from a decision to its report
BANDIT = {
    "algorithm": "anytime", "dim": DIM, "epsilon": 1.0, "delta": 1e-6,
    "reward_range": [0, 1], "reward_window": 10.0,
}  # fmt: skip
POLLS = (
    "/v1/bandits",
    "/v1/privacy",
    "/metrics",
    "/v1/bandits/{}/privacy",
    "/v1/bandits/{}/releases",
)


class Side:
    """One store: its processes, and what its clients know."""

    def __init__(self, number: int, store: str, folder: Path) -> None:
        self.number, self.store, self.log = number, store, folder / f"log-{number}"
        self.chance = random.Random(number)
        self.keys = {role: self._key(role) for role in ("rank", "reward", "admin")}
        self.port = free_port()
        serve = [*CLI, "serve", "--store", store, "--witness", str(folder / f"witness-{number}")]
        ranker = started(
            [*serve, "--role", "ranker", "--port", str(self.port)], self.port, self.log
        )
        port = free_port()
        more = ["--role", "learner", "--keep-transcript", "--retain-rewards", "900"]
        learner = started([*serve, *more, "--port", str(port)], port, self.log)
        self.processes = {"ranker": ranker, "learner": learner}
        for name, unit in (("shop", "reward"), ("people", ["user", CAP])):
            body = {**BANDIT, "name": name, "unit": unit}
            post(self.port, "/v1/bandits", self.keys["admin"], body)
        self.queue: asyncio.Queue[tuple[float, str, str, str, bytes, Any]] = asyncio.Queue()
        self.latencies: dict[str, list[float]] = collections.defaultdict(list)
        self.statuses: collections.Counter[str] = collections.Counter()
        self.decided: dict[str, list[int]] = {"shop": [], "people": []}
        self.taken: dict[str, dict[int, float]] = {"shop": {}, "people": {}}
        self.waiting: collections.deque[tuple[float, str, str]] = collections.deque()
        self.users: collections.Counter[str] = collections.Counter()
        self.gone: set[str] = set()

    def _key(self, role: str) -> str:
        command = [*CLI, "keys", "create", "--role", role, "--store", self.store]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        return made.stdout.split()[-1]

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait(40)

    # ------------------------------------------------------------------ what is asked for

    async def work(self) -> None:
        """One connection, which takes what is due."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while True:
            due, method, path, role, body, about = await self.queue.get()
            head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.keys[role]}\r\n"
            writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
            answered = (await reader.readuntil(b"\r\n\r\n")).lower()
            at = answered.index(b"content-length: ") + 16
            text = await reader.readexactly(int(answered[at : answered.index(b"\r", at)]))
            kind = about[0]
            self.latencies[kind].append(time.perf_counter() - due)
            status = int(answered[9:12])
            self.statuses[f"{kind} {status}"] += 1
            self.answered(status, text, *about)
            self.queue.task_done()

    def answered(self, status: int, text: bytes, kind: str, name: str, told: Any) -> None:
        """What the client now knows."""
        if kind == "decision" and status == 201:
            decision = json.loads(text)["decision"]
            self.decided[name].append(number_of(decision))
            self.users[told] += name == "people"
            self.waiting.append((time.perf_counter(), name, decision))
        elif kind == "reward" and status == 200:
            decision, value = told
            said = json.loads(text)["status"]
            self.statuses[f"reward {said}"] += 1
            if said == "accepted":
                taken = self.taken[name]
                assert number_of(decision) not in taken, "accepted twice"
                taken[number_of(decision)] = value

    def ask(self, due: float, bodies: list[bytes]) -> None:
        name = "people" if self.chance.random() < 0.25 else "shop"
        body, user = self.chance.choice(bodies), ""
        if name == "people":
            user = f"visitor {self.chance.randrange(USERS)}"
            if user in self.gone:
                return
            body = body[:-1] + b',"user":"%s"}' % user.encode()
        path = f"/v1/bandits/{name}/decisions"
        self.queue.put_nowait((due, "POST", path, "rank", body, ("decision", name, user)))

    def report(self, due: float, most: int) -> None:
        if not self.waiting or time.perf_counter() - self.waiting[0][0] < BEHIND:
            return
        _, name, decision = self.waiting.popleft()
        value = self.chance.choice((0.0, 1.0, round(self.chance.random(), 6)))
        body = json.dumps({"decision": decision, "reward": value}).encode()
        path, about = f"/v1/bandits/{name}/rewards", ("reward", name, (decision, value))
        for _ in range(2 if self.chance.random() < 0.02 else 1):
            self.queue.put_nowait((due, "POST", path, "reward", body, about))
        while len(self.waiting) > most:
            self.waiting.popleft()

    def poll(self, due: float) -> None:
        for path in POLLS:
            path = path.format(self.chance.choice(("shop", "people")))
            self.queue.put_nowait((due, "GET", path, "admin", b"", ("poll", "", None)))

    def erase(self, due: float) -> None:
        if known := sorted(set(self.users) - self.gone):
            user = self.chance.choice(known)
            self.gone.add(user)
            path = f"/v1/bandits/people/users/{user.replace(' ', '%20')}"
            self.queue.put_nowait((due, "DELETE", path, "admin", b"", ("erasure", "", None)))

    # ------------------------------------------------------------------ what came of it

    def part(self) -> dict[str, Any]:
        """Figures of the time since the last."""
        found: dict[str, Any] = {}
        for kind, seen in self.latencies.items():
            ordered = sorted(seen) or [0.0]
            at = {"p50": 0.5, "p99": 0.99}
            found[kind] = {"answers": len(seen), "max_ms": round(1e3 * ordered[-1], 1)} | {
                f"{name}_ms": round(1e3 * ordered[int(len(ordered) * part)], 1)
                for name, part in at.items()
            }
        self.latencies.clear()
        pids = {who: process.pid for who, process in self.processes.items()}
        found["memory_mb"] = {who: round(memory(pid), 1) for who, pid in pids.items()}
        found["cpu_s"] = {who: round(processor_seconds(pid), 1) for who, pid in pids.items()}
        found["load"] = os.getloadavg()[0]
        return found


def number_of(decision: str) -> int:
    return int(decision.split("-")[0], 16)


async def paced(per_second: float, end: float, act: Any) -> None:
    """Call `act` when it is due, however late it is."""
    due = time.perf_counter()
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        act(due)
        due += 1 / per_second


async def load(arguments: argparse.Namespace, sides: list[Side], result: dict[str, Any]) -> None:
    bodies = decision_bodies(64, DIM, ARMS)
    workers = [asyncio.create_task(side.work()) for side in sides for _ in range(CONNECTIONS)]
    end = time.perf_counter() + arguments.seconds
    tasks = []
    most = int(2 * BEHIND * arguments.decisions)  # an older decision gets no report
    for side in sides:
        tasks += [
            paced(arguments.decisions, end, lambda due, side=side: side.ask(due, bodies)),
            paced(arguments.rewards, end, lambda due, side=side: side.report(due, most)),
            paced(1 / POLLED, end, side.poll),
            paced(1 / ERASED, end, side.erase),
        ]

    def note(_: float) -> None:
        for side in sides:
            result["stores"][side.number]["parts"].append(side.part())
        said = [store["parts"][-1] for store in result["stores"]]
        print(json.dumps(said), file=sys.stderr, flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1) + "\n")

    async def noted() -> None:
        for _ in range(PARTS):
            await asyncio.sleep(arguments.seconds / PARTS)
            note(0.0)

    broken = asyncio.gather(*workers)  # a worker ends by an error alone
    await asyncio.wait(
        [asyncio.gather(noted(), *tasks), broken], return_when=asyncio.FIRST_COMPLETED
    )
    if broken.done():
        broken.result()
    for side in sides:
        await side.queue.join()
    broken.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await broken


# ---------------------------------------------------------------------- the judgement


class Script:
    """A source that answers with the noisy values that were published."""

    kind = "real"

    def __init__(self, values: Any) -> None:
        self.values = iter(values)

    def release(self, noise: Any, pending: Any, *, scale: float, shift: float, index: int) -> Any:
        return next(self.values).copy()


def judged(side: Side) -> dict[str, Any]:
    """Everything learned; what is kept and what was learned, beside what the clients know."""
    import numpy as np

    from dpbandit.files import unpack
    from dpbandit.service import blueprint
    from dpbandit.service.trusted import TrustedStore

    store = TrustedStore(side.store)
    deadline = time.monotonic() + 120
    while any(line.learned < line.decisions for line in store.lines()):
        assert time.monotonic() < deadline, "not everything was learned"
        time.sleep(0.5)
    lines = {line.name: line for line in store.lines()}
    for name, line in lines.items():
        assert sorted(side.decided[name]) == list(range(1, line.decisions + 1)), name
        sql = "SELECT seq, value FROM rewards WHERE bandit = ?"
        kept = dict(store.connection.all(sql, (line.id,)))
        assert kept, "there are rewards that are not erased yet"
        assert kept.items() <= side.taken[name].items(), name
    shop = lines["shop"]
    replay = blueprint.build(store.config(shop.id))
    sql = "SELECT noisy FROM releases WHERE bandit = ? AND noisy IS NOT NULL ORDER BY number"
    noisy = np.concatenate(
        [np.frombuffer(bytes(row[0])) for row in store.connection.all(sql, (shop.id,))]
    )
    script = Script(noisy.reshape(-1, len(replay.engine.pending())))
    replay.source = script
    sql = "SELECT seq, context FROM decisions WHERE bandit = ? ORDER BY seq"
    for seq, context in store.connection.all(sql, (shop.id,)):
        replay.update(np.frombuffer(bytes(context)), side.taken["shop"].get(seq, 0.0))
    assert next(script.values, None) is None, "noise was drawn twice"
    found = unpack(store.state(shop.id)[2])
    replayed = replay.engine.fields()
    for name, array in found.engine.fields().items():
        assert np.array_equal(array, replayed[name]), f"{name} is not what was sent"
    assert found.ledger.to_dict() == replay.ledger.to_dict()
    assert store.model(shop.id)[1]["theta"] == replay.theta.tolist()
    sql = "SELECT decisions FROM people WHERE bandit = ?"
    counts = [row[0] for row in store.connection.all(sql, (lines["people"].id,))]
    known = [min(n, CAP) for user, n in side.users.items() if n and user not in side.gone]
    assert sorted(min(n, CAP) for n in counts if n > 0) == sorted(known), "users"
    store.close()
    return {
        "decisions": {name: line.decisions for name, line in lines.items()},
        "rewards": {name: len(taken) for name, taken in side.taken.items()},
        "releases": {name: line.version for name, line in lines.items()},
        "draws": len(noisy) // len(replay.engine.pending()),
        "statuses": dict(side.statuses),
        "erased users": len(side.gone),
        "lost, doubled, redrawn": 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--decisions", type=float, default=40.0, help="a second, on each store")
    parser.add_argument("--rewards", type=float, default=20.0, help="a second, on each store")
    parser.add_argument("--store", action="append", help="may be given several times")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dpbandit-soak-"))
    stores = arguments.store or [f"sqlite:///{folder}/soak.db"]
    sides = [Side(number, store, folder) for number, store in enumerate(stores)]
    kinds = [{"store": side.store.split(":")[0], "parts": []} for side in sides]
    result: dict[str, Any] = {"seconds": arguments.seconds, "folder": str(folder), "stores": kinds}
    try:
        asyncio.run(load(arguments, sides, result))
        for side, told in zip(sides, result["stores"], strict=True):
            told["judged"] = judged(side)
    finally:
        for side in sides:
            side.end()
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
