"""Killed or paused at any moment, as often as you like: nothing acknowledged is lost, nothing is
counted or drawn twice. The long runs are the siege of `make test-all`.
"""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from harness import Caller, free_port, make_key, until

from dpbandit.service import blueprint
from dpbandit.service.measure import HOLDOUT, REWARD_STEPS, WEIGHT_STEPS, Measure, Tally
from dpbandit.service.trusted import TrustedStore as Store

DIM = 4
CONFIG = {
    "name": "crash",
    "algorithm": "tree-gauss",
    "dim": DIM,
    "epsilon": 1.0,
    "delta": 1e-6,
    "reward_range": [0, 1],
    "reward_window": 1.5,
}
# Releases now and then instead of with every reward; people who come more often than their cap.
PERSONAL = {**CONFIG, "algorithm": "anytime", "unit": ["user", 3]}
# People who count up to a cap, in the engine itself: what is counted is private, and as true as the
# sums.
CAPPED = {
    **CONFIG,
    "algorithm": "anytime-joint",
    "unit": ["person", 1],
    "options": {"first_release": 20, "knee": 200.0},
}
# A share of decisions by lot, and what they earned beside the others, told by stretches.
MEASURED = {**CONFIG, "holdout": 0.4, "measure_every": 25, "measure_share": 0.5}
PEOPLE = 100
LEASE = 0.5
KILLS = [("kill", "learner"), ("kill", "ranker")]
CARDS = [*KILLS * 3, ("pause", "learner"), ("pause", "ranker")]


class Nursery:
    def __init__(self, folder, store, config):
        self.folder, self.store = folder, store
        unit = config.get("unit", "reward")
        request = {
            **config,
            "reward_range": (0, 1),
            "unit": unit if isinstance(unit, str) else tuple(unit),
        }
        normal = blueprint.normalised(blueprint.Request(**request), max_dim=100)
        here = Path(__file__).parent / "nursery.py"
        self.process = subprocess.Popen(
            [sys.executable, str(here), json.dumps(normal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline().strip() == "ready"
        self.children = set()

    def bear(self, role, port=0):
        order = {
            "store": self.store,
            "role": role,
            "port": port,
            "witness": str(self.folder / "witness"),
            "lease_seconds": LEASE,
            "release_seconds": 0.02,
            "batch": 64,
            "keep_transcript": True,
            "retain_rewards": 1e6,
            "log": str(self.folder / f"{role}.log"),
        }
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        pid = int(self.process.stdout.readline())
        self.children.add(pid)
        return pid

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)
        self.children.discard(pid)
        # With its last thread its port is free. It is nobody's zombie.
        until(lambda: not Path(f"/proc/{pid}").exists(), pause=0.005)

    def end(self):
        for pid in list(self.children):
            self.kill(pid)
        self.process.stdin.close()
        self.process.wait(10)

    def pause(self, pid, seconds):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)


class Visitors(threading.Thread):
    """Somebody who keeps asking and reporting, and asks again when a ranker dies under them."""

    def __init__(self, ports, key, seed, stop, personal):
        super().__init__(daemon=True)
        self.ports, self.key, self.stop_, self.personal = ports, key, stop, personal
        self.random = random.Random(seed)
        self.reported = {}  # decision → (value, final status)
        self.decided = []
        self.attempts = 0

    def ask(self, path, body):
        """Try every ranker until one answers."""
        while True:
            port = self.random.choice(self.ports)
            self.attempts += 1
            try:
                status, answer = Caller(port, self.key, timeout=10)("POST", path, body)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
                continue
            if status == 503:
                time.sleep(0.02)
                continue
            return status, answer

    def run(self):
        while not self.stop_.is_set():
            contexts = [[self.random.uniform(-0.5, 0.5) for _ in range(DIM)] for _ in range(3)]
            request = f"{self.random.getrandbits(128):032x}"
            who = {"user": f"visitor {self.random.randrange(PEOPLE)}"} if self.personal else {}
            status, answer = self.ask(
                "/v1/bandits/crash/decisions", {"contexts": contexts, "request": request, **who}
            )
            assert status in (200, 201), answer  # 200: it was made before its ranker died
            self.decided.append(answer["decision"])
            if self.random.random() < 0.9:
                value = self.random.choice([0.0, 1.0, self.random.random()])
                report = {"decision": answer["decision"], "reward": value}
                status, result = self.ask("/v1/bandits/crash/rewards", report)
                assert status == 200, result
                self.reported[answer["decision"]] = (value, result["status"])
                if self.random.random() < 0.1:  # a retry, for good measure
                    status, again = self.ask("/v1/bandits/crash/rewards", report)
                    assert (status, again["status"]) == (
                        200,
                        "late" if result["status"] == "late" else "duplicate",
                    )


class Script:
    """A source that answers with the noisy values that were published."""

    kind = "real"

    def __init__(self, values):
        self.values = iter(values)

    def release(self, noise, pending, *, scale, shift, index):
        return next(self.values).copy()


def watch(ports, key, stop, seen):
    """What a stranger sees of the releases over time: nothing that was seen may change."""
    while not stop.is_set():
        try:
            caller = Caller(random.choice(ports), key, timeout=5)
            releases = caller.get("/v1/bandits/crash/releases")["releases"]
            spent = caller.get("/v1/bandits/crash/privacy")["spent"]["epsilon"]
        except (OSError, http.client.HTTPException, AssertionError):
            continue
        for release in releases:
            known = seen["releases"].setdefault(release["model_version"], release)
            if known != release:
                seen["changed"].append((known, release))
        seen["spent"].append(spent)
        time.sleep(0.1)


# A kill hits one of the learner's moments by chance: every run tries some, a long one most of them.
def short_or_long(most):
    long = pytest.param(most, marks=pytest.mark.slow)
    return pytest.mark.parametrize("kills", [20, long], ids=["short", "long"])


@short_or_long(1000)
def test_killed_again_and_again_nothing_is_lost_doubled_or_redrawn(store_url, tmp_path, kills):
    _kill_again_and_again(store_url, tmp_path, CONFIG, kills=kills, rewards=10 * kills, pause=0.7)


@pytest.mark.slow
def test_killed_again_and_again_people_are_counted_once(tmp_path):
    _kill_again_and_again(
        f"sqlite:///{tmp_path}/store.db",
        tmp_path,
        PERSONAL,
        kills=100 // 2,
        rewards=10 * 100,
        pause=1.2,
    )


@short_or_long(100)
def test_killed_again_and_again_what_persons_add_up_to_is_as_true_as_the_sums(tmp_path, kills):
    _kill_again_and_again(
        f"sqlite:///{tmp_path}/store.db",
        tmp_path,
        CAPPED,
        kills=kills // 2,
        rewards=10 * kills,
        pause=1.2,
    )


@pytest.mark.slow
def test_killed_again_and_again_each_reward_is_in_one_stretch(store_url, tmp_path):
    _kill_again_and_again(store_url, tmp_path, MEASURED, kills=100, rewards=1000, pause=0.7)


def _kill_again_and_again(store_url, tmp_path, config, *, kills, rewards, pause):
    key = make_key(store_url)
    nursery = Nursery(tmp_path, store_url, config)
    ports = [free_port(), free_port()]
    stop = threading.Event()
    try:
        rankers = {port: nursery.bear("ranker", port) for port in ports}
        learner = nursery.bear("learner")

        def made():
            try:
                return Caller(ports[0], key)("POST", "/v1/bandits", config)[0] == 201
            except OSError:
                return False

        until(made, 60)
        visitors = [Visitors(ports, key, seed, stop, "unit" in config) for seed in range(6)]
        seen = {"releases": {}, "changed": [], "spent": []}
        watcher = threading.Thread(target=watch, args=(ports, key, stop, seen), daemon=True)
        for thread in (*visitors, watcher):
            thread.start()
        chance = random.Random(11)
        done, deck = Counter(), []

        def accepted():
            return sum(s != "late" for v in visitors for _, s in list(v.reported.values()))

        while sum(done.values()) < kills or accepted() < rewards:
            time.sleep(chance.uniform(0.1, pause))
            if not deck:
                deck = chance.sample(CARDS, len(CARDS))
            what, whom = deck.pop()
            port = chance.choice(ports)
            if (what, whom) == ("kill", "learner"):
                nursery.kill(learner)
                learner = nursery.bear("learner")
            elif (what, whom) == ("kill", "ranker"):
                nursery.kill(rankers[port])
                rankers[port] = nursery.bear("ranker", port)
            elif (what, whom) == ("pause", "ranker"):
                nursery.pause(rankers[port], chance.uniform(0.0, 1.0))
            else:
                # Longer than its lease, as a rule: another takes over, and there are two when it
                # wakes up.
                other = nursery.bear("learner")
                nursery.pause(learner, chance.uniform(0.0, 3 * LEASE))
                time.sleep(chance.uniform(0.0, LEASE))
                nursery.kill(other if chance.random() < 0.3 else learner)
                learner = next(pid for pid in (learner, other) if pid in nursery.children)
            done[what, whom] += 1
        stop.set()
        for thread in (*visitors, watcher):
            thread.join(60)
            assert not thread.is_alive()
        store = Store(store_url)
        until(lambda: store.lines()[0].learned == store.lines()[0].decisions, 60 + kills)
        assert min(done[card] for card in CARDS) >= kills // 10
        _check(store, visitors, seen, kills, rewards)
        print(f"{dict(done)}; {_summary(store, visitors)}")
        store.close()
    finally:
        stop.set()
        nursery.end()


def _summary(store, visitors):
    """What the siege was, for whoever runs it with -s."""
    line = store.lines()[0]
    statuses = Counter(status for v in visitors for _, status in v.reported.values())
    (leases,) = store.connection.one("SELECT token FROM leases WHERE bandit = ?", (line.id,))
    return (
        f"{sum(v.attempts for v in visitors)} requests, {line.decisions} decisions, "
        f"{dict(statuses)}, {line.version} releases, {leases} leases taken"
    )


def _check(store, visitors, seen, kills, rewards):
    reported = {d: pair for visitor in visitors for d, pair in visitor.reported.items()}
    taken = {
        int(d.split("-")[0], 16): value
        for d, (value, status) in reported.items()
        if status != "late"
    }
    assert len(taken) >= rewards

    # every acknowledged reward is there, once, as it was sent; and nothing else is
    db = store.connection
    assert dict(db.all("SELECT seq, value FROM rewards WHERE bandit = 1")) == taken

    # a crash-free replay of the stream the clients saw, with the noise that was published
    releases = db.all(
        "SELECT number, position, fingerprint, charged, noisy, token FROM releases WHERE bandit = "
        "1 ORDER BY number"
    )
    assert [row[0] for row in releases] == list(range(len(releases)))
    line = store.lines()[0]
    replay = blueprint.build(line.config)
    personal = line.config["unit"] != "reward"
    noisy = np.concatenate([np.frombuffer(row[4]) for row in releases if row[4] is not None])
    noisy = noisy.reshape(-1, len(replay.engine.pending()))
    decisions = db.all("SELECT seq, context, person FROM decisions WHERE bandit = 1 ORDER BY seq")
    assert [row[0] for row in decisions] == list(range(1, len(decisions) + 1))
    # asked again until answered, every decision was made once
    decided = sorted(int(d.split("-")[0], 16) for visitor in visitors for d in visitor.decided)
    assert decided == [row[0] for row in decisions]
    replay.source = Script(noisy)
    marks = {row[1]: row for row in releases}
    for seq, context, person in decisions:
        who = {"user": bytes(person).hex()} if personal else {}
        replay.update(
            np.frombuffer(bytes(context)), taken.get(seq, line.config["default_reward"]), **who
        )
        if seq in marks:
            assert replay.ledger.fingerprint == marks[seq][2]
            assert replay.ledger.releases == marks[seq][3]
    assert next(replay.source.values, None) is None  # every draw was needed: none was drawn again
    counts = {
        bytes(person).hex(): count
        for person, count in db.all("SELECT person, decisions FROM people")
    }
    kept = {name: count for name, count in counts.items() if count}
    assert kept == replay.counters
    if line.config["unit"][0] == "user":
        assert replay.over_cap > 50
    elif personal:
        assert max(kept.values()) == 1 + (1 << 20)  # the cap was reached

    # the final model and the clean statistics behind it are those of the replay, to the last bit
    from dpbandit.files import unpack

    kept = unpack(store.state(1)[2])
    replayed = replay.engine.fields()
    for name, array in kept.engine.fields().items():
        assert np.array_equal(array, replayed[name]), name
    assert kept.ledger.to_dict() == replay.ledger.to_dict()
    assert store.model(1)[1]["theta"] == replay.theta.tolist()

    if line.config.get("holdout"):
        _check_stretches(store, line, taken)

    # many learners took part, each with a larger token; budgets only grew; nothing seen was changed
    tokens = [row[5] for row in releases]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) > kills // 10
    assert seen["spent"] == sorted(seen["spent"])
    assert not seen["changed"]
    assert len(seen["releases"]) > 10


def _check_stretches(store, line, taken):
    """Each round that was learned is in one stretch; what a stretch holds is what was sent, and what
    was told is that and one draw of noise for each."""
    db = store.connection
    lots = dict(db.all("SELECT seq, by_lot FROM decisions WHERE bandit = 1"))
    kept = Measure.from_text(store.measure(1))
    told, left = kept.told[HOLDOUT], kept.open.get(HOLDOUT, Tally())
    assert told.rounds + left.rounds == line.learned
    assert told.rounds == kept.every * told.stretches == kept.every * kept.releases > 0

    def sums(start, end):
        found = [0, 0]
        for seq in range(start, end):
            steps = round(taken.get(seq, 0.0) * REWARD_STEPS)
            found[0] += steps * lots[seq]
            found[1] += steps * (WEIGHT_STEPS - lots[seq])
        return found

    assert list(left.sums) == sums(told.rounds + 1, line.learned + 1)
    assert told.hits == sum(lots[seq] > 0 for seq in range(1, told.rounds + 1))
    for noisy, true in zip(told.sums, sums(1, told.rounds + 1), strict=True):
        assert abs(noisy - true) < 6 * kept.scale * np.sqrt(told.stretches)  # by chance: 2e-9


@pytest.mark.parametrize("role", ["all"])
def test_the_learner_dies_with_the_service_that_started_it(tmp_path, serve, role):
    service = serve(f"sqlite:///{tmp_path}/store.db", role=role)
    children = until(lambda: _children(service.process.pid), 20)
    service.stop(signal.SIGKILL)
    until(lambda: not any(_alive(pid) for pid in children), 30)


def _children(pid):
    listed = [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for task in Path(f"/proc/{pid}/task").iterdir():
        listed += [int(c) for c in (task / "children").read_text().split()]
    return set(listed)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
