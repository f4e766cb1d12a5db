"""Strangers and owners of keys who mean harm, by the thousand: requests that are almost right,
requests that are none, connections that are left as they are.

Everything is drawn from one seed. What an answer may not be is a 5xx; what a connection may not be
is older than its deadline.
"""

import asyncio
import json
import random
import socket
import time
from collections import Counter
from pathlib import Path

import dpbandit as dpb

NASTY = [None, True, 0, -1, 1.5, 2**63, 2**64, -(2**63), 1e308, -1e308, 5e-324, "", "x" * 300]
NASTY += ["\0", "ünï", "\u202e", "😀" * 70, [], {}, [[]], [{}], {"a": 1}, [None] * 3, "1", "NaN"]
NASTY += [[[1e200] * 3], [[0.1] * 3] * 1001, [0.1] * 3, [["x"] * 3], [[0.1] * 3, [0.1]], "a" * 64]
RAW = [b"", b"{", b"null", b"[]", b"NaN", b"\xff\xfe", b"[" * 60_000, b'{"a":' * 9_000]
RAW += [b'{"contexts":[[' + b"9" * 5_000 + b",0,0]]}", b'{"contexts":[[1e999,0,0]]}', b"\0" * 100]
RAW += [b'{"contexts":[[0,0,0]],"contexts":[[0,0,0]]}', b'{"\\ud800":1}', b'"\\ud800"']
CODED = dpb.Encoder(
    {"price": dpb.Number(0, 1), "id": dpb.Hashed(1)}, item=["price", "id"], intercept=False
).to_record()
# name → what is special about it
BANDITS = {
    "shop": {},
    "personal": {"unit": ["user", 2]},
    "lots": {"algorithm": "private-ts", "horizon": 10**6},
    "visits": {"algorithm": "anytime-joint"},
    "shade": {"algorithm": "anytime", "shadow": True, "measure_every": 2},
    "hold": {"holdout": 0.4, "measure_every": 2, "measure_share": 0.3},
    "coded": {"dim": None, "encoder": CODED},
}
TARGETS = ["", "/", "//", "/.", "/..", "/%", "/%00", "/v1", "/v1/", "/v1/bandits/", "/v1//rewards"]
TARGETS += ["/v1/bandits/%2e%2e/decisions", "/v1/bandits/shop%2fx/rewards", "*", "http://x/", "?"]
TARGETS += ["/v1/bandits/shop/users/", "/v1/bandits/shop/users/%ff%fe", "/v1/bandits/" + "x" * 9000]
TARGETS += ["/v1/bandits/shop/users/" + "y" * 300, "/v1/bandits/shop/users/a/b//c", "/readyz?x=%"]
QUERIES = [
    "limit=0",
    "limit=-1",
    "limit=1e3",
    "limit=1001",
    "limit=٣",
    "limit=²",
    "limit=",
    "after=",
]
QUERIES += [
    "limit=1&limit=x",
    "after=%00",
    "after=%ff",
    "after=zzz",
    "&&&",
    "=",
    "limit=" + "9" * 5000,
]
QUERIES += ["after=" + "z" * 5000, "a=b;limit=3", "limit=%31", "limit=+1", "LIMIT=2", "after=shop"]
HEADS = [
    b"GET / HTTP/0.9\r\n\r\n",
    b"GET /healthz HTTP/3.0\r\nhost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 60,
    b"\r\n\r\n\r\n\r\n",
    b"\0" * 4000,
    b"GET /healthz HTTP/1.1\nhost: x\n\n",
    b"GET  /healthz  HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n folded: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 9000 + b"\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
    b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"TRACE / HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"BREW /v1/bandits HTTP/1.1\r\nhost: x\r\n\r\n",
]
LENGTHS = [
    b"-1",
    b"1e3",
    b"0x10",
    b"99999999999999999999",
    b"+5",
    b" 5 5",
    b"",
    b"5, 5",
    b"4194305",
]
CHUNKS = [
    b"0\r\n\r\n",
    b"-1\r\n",
    b"zz\r\nxx\r\n",
    b"ffffffffffffffff\r\n",
    b"5\r\nabc\r\n0\r\n\r\n",
]
CHUNKS += [b"5;" + b"x" * 40_000 + b"\r\n", b"1\r\na\r\n0\r\nx: y\r\n\r\n", b"\r\n\r\n"]


class Attack:
    """So many requests to one service. `ended` is how long each connection took that was left."""

    def __init__(self, port, keys, seed, *, deadline):
        self.port, self.keys, self.rng = port, keys, random.Random(seed)
        self.deadline = deadline  # of any connection, in seconds, and what a busy machine may add
        self.statuses, self.faults, self.ended = Counter(), [], []
        self.decisions = ["1-0000000000000001"]

    async def run(self, count, *, at_once=48, left=200):
        """`count` requests, of which one in fifty is never finished."""
        todo = iter(range(count))
        leaving = asyncio.Semaphore(left)

        async def worker():
            tasks = []
            stream = None
            for number in todo:
                if number % 50 == 0:
                    await leaving.acquire()
                    task = asyncio.create_task(self._leave())
                    task.add_done_callback(lambda _: leaving.release())
                    tasks.append(task)
                elif number % 5 == 0:
                    await self._once(self._nonsense())
                else:
                    stream = await self._ask(stream)
            if stream is not None:
                stream[1].close()
            await asyncio.gather(*tasks)

        await asyncio.gather(*(worker() for _ in range(at_once)))

    # ------------------------------------------------------------------ almost right

    def _body(self):
        rng = self.rng
        arms = [
            [rng.uniform(-0.5, 0.5) for _ in range(3)] for _ in range(rng.choice([1, 3, 3, 40]))
        ]
        decision = {"contexts": arms}
        for name, value in (
            ("arms", [str(n) for n in range(len(arms))]),
            ("user", rng.choice(["ann", "bob", "a/b", "%00", "ü" * 200])),
            ("request", str(rng.randrange(300))),
            ("k", rng.randrange(-1, len(arms) + 2)),
            ("propensities", rng.random() < 0.5),
            ("baseline", rng.randrange(-1, len(arms) + 1)),
            ("baseline_propensity", rng.choice([0.5, 1.0, 0.0, 5e-324, 1 + 1e-9])),
        ):
            if rng.random() < 0.4:
                decision[name] = value
        report = {"decision": rng.choice(self.decisions), "reward": rng.uniform(-1, 2)}
        name = rng.choice([*BANDITS])
        if rng.random() < 0.1:
            return self._event(name)
        which = rng.random()
        if which < 0.5:
            what = [decision] * rng.choice([0, 2, 30, 999]) if rng.random() < 0.1 else decision
            return "POST", f"/v1/bandits/{name}/decisions", what
        if which < 0.8:
            what = [report] * rng.choice([0, 2, 999, 1001]) if rng.random() < 0.2 else report
            return "POST", f"/v1/bandits/{name}/rewards", what
        if which < 0.81:
            bandit = {"name": f"b{rng.randrange(20)}", "algorithm": "tree-gauss", "dim": 3}
            bandit |= {"epsilon": 1.0, "delta": 1e-9, "reward_range": [0, 1]}
            more = {"shadow": True, "holdout": 0.2, "measure_share": 0.1, "measure_every": 100}
            more |= {"encoder": CODED, "unit": ["user", 2], "options": {"policy": "sampled"}}
            bandit |= {one: more[one] for one in rng.sample(sorted(more), rng.choice([0, 0, 2]))}
            return "POST", "/v1/bandits", bandit
        if which < 0.815:
            return "POST", f"/v1/bandits/{rng.choice(['b1', 'b2', 'shop', 'none'])}/live", None
        if which < 0.83:
            user = rng.choice(["ann", "a/b", "%00", "%ff", "nobody", "x" * 257])
            return "DELETE", f"/v1/bandits/{name}/users/{user}", None
        pages = ["/v1/bandits", "/v1/privacy", "/metrics", "/openapi.json", "/", "/readyz"]
        pages += [f"/v1/bandits/{name}{rest}" for rest in ("", "/privacy", "/releases", "/models")]
        page = rng.choice(pages) if rng.random() < 0.7 else rng.choice(TARGETS)
        if rng.random() < 0.5:
            page += "?" + rng.choice(QUERIES)
        return rng.choice(["GET", "GET", "HEAD", "PUT", "POST"]), page, None

    def _event(self, name):
        """As clients of Personalizer ask."""
        rng = self.rng
        event = rng.choice(["e1", "e2", "a/b", "%00", "x" * 256, "x" * 257, str(rng.random())])
        many = rng.choice(["", "multislot/", "v1.0/", "v1.0/multislot/"])
        at = f"/v1/bandits/{name}/personalizer/{many}"
        features = [{"price": rng.random()}, {"_user": "ann"}]
        if rng.random() < 0.5:
            features[0]["deep"] = {"a": [1, "x", True, None, [], 10 ** rng.choice([3, 30, 400])]}
        idents = ["a", "b", "ü" * 256, "d"]
        if rng.random() < 0.4:
            one = {"value": rng.uniform(-1, 2)}
            report = {"reward": [{"slotId": "top", **one}]} if "multislot" in many else one
            return "POST", f"{at}events/{event}/{rng.choice(['reward', 'activate'])}", report
        asked = {"actions": [{"id": one, "features": features[:1]} for one in idents]}
        asked |= {"contextFeatures": features[rng.choice([0, 1]) :], "eventId": event}
        asked["deferActivation"] = rng.random() < 0.5
        if "multislot" in many:
            slots = [{"id": one, "baselineAction": one, "features": []} for one in idents[:3]]
            slots[0]["excludedActions"] = ["b", "zzz"]
            asked["slots"] = slots
        else:
            asked["excludedActions"] = rng.choice([[], ["a"], idents])
        return "POST", f"{at}rank", asked

    def _mutated(self, what):
        """One value replaced by something else, or one name."""
        rng = self.rng
        if isinstance(what, list) and what and rng.random() < 0.7:
            at = rng.randrange(len(what))
            return [*what[:at], self._mutated(what[at]), *what[at + 1 :]]
        if isinstance(what, dict) and what:
            name = rng.choice(sorted(what))
            if rng.random() < 0.1:
                return {**what, name + "x": what[name]}
            return {**what, name: self._mutated(what[name])}
        return rng.choice(NASTY)

    def _request(self):
        rng = self.rng
        method, path, what = self._body()
        if what is not None and rng.random() < 0.6:
            what = self._mutated(what)
        body = b"" if what is None else json.dumps(what).encode()
        if rng.random() < 0.1:
            body = rng.choice(RAW)
        elif body and rng.random() < 0.1:
            at = rng.randrange(len(body))
            body = body[:at] + rng.randbytes(rng.randrange(3)) + body[at + rng.randrange(3) :]
        key = rng.choice(
            [*self.keys] * 4 + ["", "dpb_0123456789ab_" + "x" * 43, "x" * 9000, "\xff"]
        )
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        if rng.random() < 0.1:
            size = rng.choice([1, 7, 100_000])
            parts = [body[at : at + size] for at in range(0, len(body), size)][:500]
            chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
            return head.encode("latin-1", "replace") + (
                b"transfer-encoding: chunked\r\n\r\n" + chunked + b"0\r\n\r\n"
            )
        return head.encode("latin-1", "replace") + b"content-length: %d\r\n\r\n%b" % (
            len(body),
            body,
        )

    async def _ask(self, stream):
        """One request on a connection that is kept as long as the service keeps it."""
        request = self._request()
        for _ in range(2):
            fresh = stream is None
            try:
                stream = stream or await asyncio.open_connection("127.0.0.1", self.port)
                stream[1].write(request)
                status, body, last = await asyncio.wait_for(
                    _answer(stream[0], request.startswith(b"HEAD")), self.deadline
                )
            except (OSError, EOFError, asyncio.IncompleteReadError):
                if stream is not None:
                    stream[1].close()
                stream = None
                if fresh:  # it was refused in the middle of being sent, or ended without a word
                    self.statuses["none"] += 1
                    return None
                continue  # it had rested too long
            except TimeoutError:
                self.faults.append(("no answer", request[:3000]))
                stream[1].close()
                return None
            self._count(status, request, body)
            if status in (200, 201) and b'"decision":"' in body and len(self.decisions) < 500:
                self.decisions.append(body.split(b'"decision":"')[1].split(b'"')[0].decode())
            if last:
                stream[1].close()
                return None
            return stream
        return None

    def _count(self, status, request, body=b""):
        self.statuses[status] += 1
        if status >= 500:
            self.faults.append((status, body, len(request), request[:500], request[-500:]))

    # ------------------------------------------------------------------ none at all

    def _nonsense(self):
        rng = self.rng
        which = rng.random()
        key = rng.choice(self.keys).encode()
        path = rng.choice([b"/healthz", b"/v1/bandits/shop/decisions", b"/v1/bandits/shop/rewards"])
        head = b"POST %b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n" % (path, key)
        if which < 0.3:
            return rng.choice(HEADS)
        if which < 0.5:
            return head + b"content-length: %b\r\n\r\n12345" % rng.choice(LENGTHS)
        if which < 0.7:
            return head + b"transfer-encoding: chunked\r\n\r\n" + rng.choice(CHUNKS)
        if which < 0.8:
            both = b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n"
            return head + both
        whole = self._request()
        at = rng.randrange(len(whole))
        return whole[:at] + rng.randbytes(rng.randrange(4)) + whole[at + rng.randrange(4) :]

    async def _once(self, request):
        """Sent on a connection of its own, which ends whatever became of it."""
        began = time.monotonic()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            self.statuses["none"] += 1
            return
        try:
            writer.write(request)
            line = await asyncio.wait_for(reader.readline(), self.deadline)
            if line.startswith(b"HTTP/1.1 "):
                self._count(int(line[9:12]), request)
            else:
                self.statuses["none"] += 1
        except OSError:
            self.statuses["none"] += 1
        except (TimeoutError, ValueError):
            self.faults.append((time.monotonic() - began, request[:3000]))
        finally:
            writer.transport.abort()

    # ------------------------------------------------------------------ left as they are

    def _unfinished(self):
        rng = self.rng
        key = rng.choice([*self.keys, "none"]).encode()
        start = b"POST /v1/bandits/shop/decisions HTTP/1.1\r\nhost: x\r\n"
        known = start + b"authorization: Bearer %b\r\n" % key
        whole = b"GET /dashboard.js HTTP/1.1\r\nhost: x\r\n\r\n"
        return rng.choice(
            [
                (b"", True),
                (start, True),
                (known + b"content-length: 1000000\r\n\r\n{", True),
                (known + b"transfer-encoding: chunked\r\n\r\nfffff\r\n{", True),
                (whole, True),
                (whole + b"\r\n", True),
                (whole + start, True),
                (whole * 300, False),  # and nobody reads
            ]
        )

    async def _leave(self):
        sent, reads = self._unfinished()
        self.statuses["left"] += 1
        made = socket.socket()
        made.setblocking(False)
        if not reads:  # or the kernel would take it all
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        try:
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self.port))
            reader, writer = await asyncio.open_connection(sock=made, limit=1 << 12)
        except OSError:
            made.close()
            return
        began = time.monotonic()
        try:
            writer.write(sent)
            if not reads:
                writer.transport.pause_reading()
                own = writer.get_extra_info("sockname")[1]
                # Whether the service has it: the kernel has it first, and goes on offering its part.
                for there in (True, False):
                    while has(self.port, own) != there and time.monotonic() - began < self.deadline:
                        await asyncio.sleep(0.2)
                if time.monotonic() - began >= self.deadline:
                    raise TimeoutError
                return
            async with asyncio.timeout(self.deadline):
                while await reader.read(1 << 16):
                    pass
        except OSError:
            pass
        except TimeoutError:
            self.faults.append(("still there", sent[:3000]))
        finally:
            self.ended.append(time.monotonic() - began)
            writer.transport.abort()


def has(port, theirs):
    """Whether the service on this port has the connection from that one."""
    ports = f":{port:04X} 0100007F:{theirs:04X} "
    rows = Path("/proc/net/tcp").read_text().splitlines()
    return any(ports in row and row.split()[9] != "0" for row in rows)


async def _answer(reader, bare):
    """Status, body, and whether the connection ends with it."""
    head = await reader.readuntil(b"\r\n\r\n")
    status, fields = int(head[9:12]), head.lower()
    at = fields.find(b"content-length: ")
    length = int(fields[at + 16 : fields.index(b"\r", at)]) if at >= 0 and not bare else 0
    return status, await reader.readexactly(length), b"connection: close" in fields
