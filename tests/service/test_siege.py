"""The siege of strangers and of those with keys: no 5xx, no connection older than its deadline, no
budget that changed. `make test-all` sends a hundred thousand requests to each store."""

import asyncio
import time
from pathlib import Path

import pytest
from harness import ARMS, BANDIT, Service, decide, make_key, reward, until
from hostile import BANDITS, Attack

SETTINGS = {"body_seconds": 2, "idle_seconds": 3, "strangers_per_second": 50}
# What a busy machine may add.
SLACK = 10


@pytest.mark.parametrize(
    ("requests", "answer"),
    [(1_000, 8), pytest.param(100_000, 20, marks=pytest.mark.slow)],
    ids=["short", "long"],
)
def test_hostile_requests(store_url, tmp_path, requests, answer):
    settings = {**SETTINGS, "write_seconds": answer}
    # The longest that a connection may last: an answer that nobody reads.
    longest = settings["body_seconds"] + answer
    keys = [make_key(store_url, role) for role in ("rank", "reward", "app", "admin")]
    service = Service(store_url, tmp_path, settings=settings)
    try:
        call = service.caller(keys[-1])
        for name, change in BANDITS.items():
            asked = {**BANDIT, "reward_window": 86_400, "name": name, **change}
            asked = {field: value for field, value in asked.items() if value is not None}
            assert call("POST", "/v1/bandits", asked)[0] == 201
        decision = decide(call)
        before = [call.get(f"/v1/bandits/{name}/privacy") for name in BANDITS]
        attack = Attack(service.port, keys, seed=requests, deadline=longest + SLACK)
        began = time.monotonic()
        asyncio.run(attack.run(requests))
        seconds = time.monotonic() - began
        print(f"{requests} in {seconds:.0f} s: {dict(attack.statuses)}")
        print(f"{len(attack.ended)} were left, and ended after {max(attack.ended):.1f} s at most")
        assert not attack.faults, "\n".join(map(str, attack.faults[:5]))
        # Of each kind there were many, and most were answered.
        counts = attack.statuses
        assert sum(counts.values()) == requests
        assert min(counts[n] for n in (200, 201, 400, 401, 403, 404, 405, 422)) > requests // 1000
        assert counts["none"] < requests / 10
        assert len(attack.ended) >= requests // 60
        # All that is left over ends by itself.
        until(lambda: held(service.port) == 0, SETTINGS["idle_seconds"] + SLACK)
        call = service.caller(keys[-1])
        assert [call.get(f"/v1/bandits/{name}/privacy") for name in BANDITS] == before
        assert reward(call, decision, 1.0) == (200, {"status": "accepted"})
        assert call("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})[0] == 201
        assert "unexpected" not in service.log.read_text()
    finally:
        service.stop()


def held(port):
    """Connections that the service has."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)
